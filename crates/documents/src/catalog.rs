//! The catalog: the list of databases and their files, in one small file that is replaced atomically.
//!
//! This module defines the bytes of that file and their meaning; `files` and `store` define when it is
//! written.
//!
//! ```text
//! 8 bytes  magic "SHEAFDOC"
//! u32      version
//! u64      names_lsn
//! u64      deleted_lsn
//! u64      saved_lsn
//! number   count of databases, and for each database:
//!   u64      id
//!   text     name
//!   u8       0: no file is needed; 1: a checkpoint of the file follows:
//!     number   generation of the file
//!     u64      position up to which the checkpoint has all changes
//!     number   end of the checkpoint in the file
//! u32      CRC-32C of everything before
//! ```
//! Integers of fixed size are little-endian; numbers and texts are encoded as in `codec`.
//!
//! Invariants
//! - The catalog reflects every creation and deletion up to `names_lsn`; `deleted_lsn` is the position of the
//!   last deletion.
//! - Every change of a database up to `saved_lsn` is in the checkpoint that the catalog vouches for, so the
//!   log is needed only after `saved_lsn`.
//! - Compaction makes a file of the next generation, whose name is in the catalog only after the next write
//!   of the catalog.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use env::{Access, Disk, crashsafe};
use lsn::Lsn;

use crate::codec::{Input, put_bytes};
use crate::id::DbId;
use crate::store_error::StoreError;

const MAGIC: &[u8; 8] = b"SHEAFDOC";
const VERSION: u32 = 1;
/// The largest catalog that is read, in bytes.
const CATALOG_BYTES_MAX: u64 = 64 << 20;

/// The decoded catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    pub(crate) names_lsn: Lsn,
    pub(crate) deleted_lsn: Lsn,
    pub(crate) saved_lsn: Lsn,
    pub(crate) databases: Vec<Entry>,
}

/// A database in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) db: DbId,
    pub(crate) name: Arc<str>,
    /// A checkpoint of the database's file: the file must have this one or a newer one. `None` if no file is
    /// needed.
    pub(crate) vouched: Option<Vouched>,
}

/// A checkpoint that is known to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vouched {
    pub(crate) generation: u32,
    /// The position up to which the checkpoint has all changes.
    pub(crate) lsn: Lsn,
    /// The offset of the checkpoint's end in the file.
    pub(crate) file_end: u64,
}

/// The file name of the catalog.
pub const CATALOG_NAME: &str = "catalog";

fn catalog_path(dir: &Path) -> PathBuf {
    dir.join(CATALOG_NAME)
}

/// The file name of a generation of a database.
pub(crate) fn tree_name(db: DbId, generation: u32) -> String {
    format!("{db}-{generation}.tree")
}

/// Parses a name that [`tree_name`] made.
pub(crate) fn parse_tree_name(name: &str) -> Option<(DbId, u32)> {
    let (db, generation) = name.strip_suffix(".tree")?.split_once('-')?;
    Some((db.parse().ok()?, generation.parse().ok()?))
}

impl Catalog {
    /// Reads the catalog of a directory; `None` if the directory has no catalog yet.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Catalog>, StoreError> {
        let path = catalog_path(dir);
        let file = match disk.open(&path, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(StoreError::io("open", &path))?,
        };
        let damaged = |what| StoreError::Damaged { path: path.clone(), what };
        let len = file.len().map_err(StoreError::io("read", &path))?;
        let len = usize::try_from(len)
            .ok()
            .filter(|_| len <= CATALOG_BYTES_MAX)
            .ok_or_else(|| damaged("it is too large"))?;
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0).map_err(StoreError::io("read", &path))?;
        Catalog::decode(&bytes).map(Some).ok_or_else(|| damaged("its bytes are not those that were written"))
    }

    /// Whether any position in the catalog is after `limit`.
    pub(crate) fn reaches_behind(&self, limit: Lsn) -> bool {
        let saved = self.databases.iter().filter_map(|entry| entry.vouched).map(|vouched| vouched.lsn);
        saved.chain([self.names_lsn, self.saved_lsn]).max() > Some(limit)
    }

    /// Replaces the catalog of a directory, atomically and durably.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
        let path = catalog_path(dir);
        crashsafe::write_atomically(disk, &path, &self.encode()).map_err(StoreError::io("write", &path))
    }

    /// The bytes of the file; the module documentation has their layout.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        for lsn in [self.names_lsn, self.deleted_lsn, self.saved_lsn] {
            out.extend_from_slice(&lsn.get().to_le_bytes());
        }
        varint::put(&mut out, self.databases.len() as u64);
        for entry in &self.databases {
            out.extend_from_slice(&entry.db.get().to_le_bytes());
            put_bytes(&mut out, entry.name.as_bytes());
            out.push(u8::from(entry.vouched.is_some()));
            if let Some(Vouched { generation, lsn, file_end }) = entry.vouched {
                varint::put(&mut out, u64::from(generation));
                out.extend_from_slice(&lsn.get().to_le_bytes());
                varint::put(&mut out, file_end);
            }
        }
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Catalog> {
        let (body, checksum) = bytes.split_last_chunk()?;
        if u32::from_le_bytes(*checksum) != crc32c::crc32c(body) {
            return None;
        }
        let mut input = Input::new(body);
        if input.array::<8>()? != *MAGIC || u32::from_le_bytes(input.array()?) != VERSION {
            return None;
        }
        let (names_lsn, deleted_lsn) = (decode_lsn(&mut input)?, decode_lsn(&mut input)?);
        let saved_lsn = decode_lsn(&mut input)?;
        let count = input.count(10)?;
        let databases = (0..count).map(|_| decode_entry(&mut input)).collect::<Option<_>>()?;
        input.is_empty().then_some(Catalog { names_lsn, deleted_lsn, saved_lsn, databases })
    }
}

fn decode_lsn(input: &mut Input<'_>) -> Option<Lsn> {
    Some(Lsn::new(u64::from_le_bytes(input.array()?)))
}

fn decode_entry(input: &mut Input<'_>) -> Option<Entry> {
    let (db, name) = (DbId::new(decode_lsn(input)?), input.text()?.into());
    let vouched = match input.byte()? {
        0 => None,
        1 => {
            let (generation, lsn) = (input.number_u32()?, decode_lsn(input)?);
            Some(Vouched { generation, lsn, file_end: input.number()? })
        }
        _ => return None,
    };
    Some(Entry { db, name, vouched })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_of_its_bytes_is_seen() {
        let entry =
            |lsn, name: &str, vouched| Entry { db: DbId::new(Lsn::new(lsn)), name: name.into(), vouched };
        let vouched = Vouched { generation: 3, lsn: Lsn::new(99), file_end: 8192 };
        let catalog = Catalog {
            names_lsn: Lsn::new(300),
            deleted_lsn: Lsn::new(250),
            saved_lsn: Lsn::new(200),
            databases: vec![entry(7, "a", None), entry(1 << 40, "b/c", Some(vouched))],
        };
        let bytes = catalog.encode();
        assert_eq!(Catalog::decode(&bytes), Some(catalog));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Catalog::decode(&changed), None, "bit {bit}");
        }
        assert!((0..bytes.len()).all(|len| Catalog::decode(&bytes[..len]).is_none()));
    }

    #[test]
    fn files_are_called_by_the_ids_of_databases() {
        let db = DbId::new(Lsn::new(0xab));
        assert_eq!(tree_name(db, 2), "00000000000000ab-2.tree");
        assert_eq!(parse_tree_name(&tree_name(db, 2)), Some((db, 2)));
        assert!(
            ["catalog", "ab-1.tree", "00000000000000ab.tree"]
                .iter()
                .all(|name| parse_tree_name(name).is_none())
        );
    }
}
