//! Small JSON files of a data directory that have a checksum of their other fields: `replication.json` and
//! `group.json`.
//!
//! This module writes and reads such a file. It does not know the meaning of the fields, or the remedy for a
//! damaged file.
//!
//! Invariants
//! - A file with a checksum that was cut or modified is never taken for a whole one.
//! - A write is durable and all or nothing.

use std::{io, path::Path};

use env::{Access, Disk};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

const CHECKSUM: &str = "checksum";
/// The most bytes read; a larger file is damaged.
const BYTES_MAX: u64 = 64 << 10;

/// Writes a file durably.
///
/// # Errors
/// I/O errors.
pub(crate) fn store(disk: &dyn Disk, path: &Path, contents: &impl Serialize) -> io::Result<()> {
    let mut fields = serde_json::to_value(contents).map_err(io::Error::other)?;
    fields[CHECKSUM] = checksum(&fields).into();
    let text = serde_json::to_vec_pretty(&fields).map_err(io::Error::other)?;
    env::crashsafe::write_atomically(disk, path, &text)
}

/// Reads a file; `None` if there is none. The inner error says why the file is damaged. A file whose fields
/// are all in `unsealed` may lack the checksum.
///
/// # Errors
/// I/O errors.
pub(crate) fn read<T: DeserializeOwned>(
    disk: &dyn Disk,
    path: &Path,
    unsealed: &[&str],
) -> io::Result<Option<Result<T, String>>> {
    let file = match disk.open(path, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut text = vec![0; file.len()?.min(BYTES_MAX) as usize];
    file.read_exact_at(&mut text, 0)?;
    Ok(Some(parse(&text, unsealed)))
}

fn parse<T: DeserializeOwned>(text: &[u8], unsealed: &[&str]) -> Result<T, String> {
    let mut fields: Map<String, Value> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    match fields.shift_remove(CHECKSUM) {
        Some(found) if found == checksum(&fields) => {}
        Some(_) => return Err("checksum mismatch".into()),
        None if fields.keys().all(|name| unsealed.contains(&name.as_str())) => {}
        None => return Err("it has no checksum".into()),
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
}

/// The checksum of all fields, in their order.
fn checksum(fields: &impl Serialize) -> String {
    let text = serde_json::to_vec(fields).expect("a JSON value is JSON");
    format!("{:08x}", crc32c::crc32c(&text))
}
