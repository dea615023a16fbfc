//! The commands of simulated clients, as values and as request bytes.
//!
//! The subset produces effects on keys of every type but streams, and on whole databases: put, delete,
//! expiry, append, set-range, flush, swap, effects on collections, several keys of several slots in one
//! record, and several commands in one record. The semantics of the commands are in `model`.

use keyspace::DbId;

use crate::Operation;

/// One command of a simulated client, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// `SET key value [PX ms]`
    Set {
        /// The key.
        key: Vec<u8>,
        /// The new value.
        value: Vec<u8>,
        /// The time to live in milliseconds; `None` for a key that does not expire.
        px_ms: Option<u64>,
    },
    /// `SETNX key value`
    SetNx(Vec<u8>, Vec<u8>),
    /// `GETSET key value`
    GetSet(Vec<u8>, Vec<u8>),
    /// `GET key`
    Get(Vec<u8>),
    /// `GETDEL key`
    GetDel(Vec<u8>),
    /// `MGET key ...`
    MGet(Vec<Vec<u8>>),
    /// `MSET key value ...`
    MSet(Vec<(Vec<u8>, Vec<u8>)>),
    /// `DEL key ...`
    Del(Vec<Vec<u8>>),
    /// `INCR key`
    Incr(Vec<u8>),
    /// `APPEND key suffix`
    Append(Vec<u8>, Vec<u8>),
    /// `SETRANGE key offset bytes`
    SetRange(Vec<u8>, usize, Vec<u8>),
    /// `PEXPIRE key ms`
    PExpire(Vec<u8>, u64),
    /// `PERSIST key`
    Persist(Vec<u8>),
    /// `RENAME key newkey`
    Rename(Vec<u8>, Vec<u8>),
    /// `COPY source destination REPLACE`
    Copy(Vec<u8>, Vec<u8>),
    /// A command on the collection at a key.
    Collection(Vec<u8>, Operation),
    /// `SELECT db`
    Select(DbId),
    /// `SWAPDB a b`
    SwapDb(DbId, DbId),
    /// `FLUSHDB`
    FlushDb,
    /// `FLUSHALL`
    FlushAll,
    /// `DBSIZE`
    DbSize,
    /// `WATCH key ...`
    Watch(Vec<Vec<u8>>),
    /// `MULTI`
    Multi,
    /// `EXEC`
    Exec,
    /// `DISCARD`
    Discard,
}

impl Command {
    /// Appends the request to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Command::Set { key, value, px_ms: None } => request(out, &[b"SET", key, value]),
            Command::Set { key, value, px_ms: Some(ms) } => {
                request(out, &[b"SET", key, value, b"PX", ms.to_string().as_bytes()]);
            }
            Command::SetNx(key, value) => request(out, &[b"SETNX", key, value]),
            Command::GetSet(key, value) => request(out, &[b"GETSET", key, value]),
            Command::Get(key) => request(out, &[b"GET", key]),
            Command::GetDel(key) => request(out, &[b"GETDEL", key]),
            Command::MGet(keys) => request(out, &named(b"MGET", keys)),
            Command::MSet(pairs) => {
                let words = pairs.iter().flat_map(|(key, value)| [key.as_slice(), value.as_slice()]);
                request(out, &std::iter::once(&b"MSET"[..]).chain(words).collect::<Vec<_>>());
            }
            Command::Del(keys) => request(out, &named(b"DEL", keys)),
            Command::Incr(key) => request(out, &[b"INCR", key]),
            Command::Append(key, suffix) => request(out, &[b"APPEND", key, suffix]),
            Command::SetRange(key, offset, bytes) => {
                request(out, &[b"SETRANGE", key, offset.to_string().as_bytes(), bytes]);
            }
            Command::PExpire(key, ms) => request(out, &[b"PEXPIRE", key, ms.to_string().as_bytes()]),
            Command::Persist(key) => request(out, &[b"PERSIST", key]),
            Command::Rename(key, new_key) => request(out, &[b"RENAME", key, new_key]),
            Command::Copy(from, to) => request(out, &[b"COPY", from, to, b"REPLACE"]),
            Command::Collection(key, operation) => {
                let words = operation.words(key);
                request(out, &words.iter().map(Vec::as_slice).collect::<Vec<_>>());
            }
            Command::Select(db) => request(out, &[b"SELECT", db.to_string().as_bytes()]),
            Command::SwapDb(a, b) => {
                request(out, &[b"SWAPDB", a.to_string().as_bytes(), b.to_string().as_bytes()])
            }
            Command::FlushDb => request(out, &[b"FLUSHDB"]),
            Command::FlushAll => request(out, &[b"FLUSHALL"]),
            Command::DbSize => request(out, &[b"DBSIZE"]),
            Command::Watch(keys) => request(out, &named(b"WATCH", keys)),
            Command::Multi => request(out, &[b"MULTI"]),
            Command::Exec => request(out, &[b"EXEC"]),
            Command::Discard => request(out, &[b"DISCARD"]),
        }
    }

    /// Whether the server refuses the command while the log takes no writes. EXEC depends on the queued
    /// commands.
    pub fn may_write(&self) -> bool {
        let reads = match self {
            Command::Get(_) | Command::MGet(_) | Command::Select(_) | Command::DbSize => true,
            Command::Collection(_, operation) => operation.reads(),
            _ => false,
        };
        !reads && !matches!(self, Command::Watch(_) | Command::Multi | Command::Exec | Command::Discard)
    }
}

fn named<'a>(name: &'a [u8], keys: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
    std::iter::once(name).chain(keys.iter().map(Vec::as_slice)).collect()
}

/// Appends a request: an array of bulk strings.
pub(crate) fn request(out: &mut Vec<u8>, words: &[&[u8]]) {
    wire::request::encode(words, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        Command::MSet(vec![(b"k".to_vec(), b"\r\n".to_vec())]).encode(&mut out);
        assert_eq!(out, b"*3\r\n$4\r\nMSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n");
    }
}
