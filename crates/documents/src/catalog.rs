//! The catalog: which databases there are, and what their files vouch for. One small file, replaced atomically.
//!
//! What it is: bytes and their meaning.
//! What it is not: the rules when it is written; see `checkpoint`.
//!
//! Bytes: `SHEAFDOC`, version (u32, little endian), names position, saved position (u64, little endian), count (number), and for
//! each database its id (u64, little endian), its name (text), and 0, or 1 and the position of the checkpoint that its file has
//! at least (u64, little endian); at the end the CRC-32C of all that (u32, little endian). Numbers and texts as in `codec`.
//!
//! Invariants
//! - Every creation and deletion up to `names_lsn` is in it.
//! - Every change of a database up to `saved_lsn` is in the checkpoint that its file is vouched to have; so the log is needed
//!   behind `saved_lsn` only.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use env::{Access, Disk, crashsafe};
use lsn::Lsn;

use crate::codec::{Input, put_bytes, put_number};
use crate::id::DbId;
use crate::store_error::StoreError;

const MAGIC: &[u8; 8] = b"SHEAFDOC";
const VERSION: u32 = 1;
/// The largest catalog that is read.
const CATALOG_BYTES_MAX: u64 = 64 << 20;

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    pub(crate) names_lsn: Lsn,
    pub(crate) saved_lsn: Lsn,
    pub(crate) databases: Vec<Entry>,
}

/// A database in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) db: DbId,
    pub(crate) name: Arc<str>,
    /// The checkpoint that its file has at least; `None` if there need be no file.
    pub(crate) vouched_lsn: Option<Lsn>,
}

/// Where the catalog lies.
pub(crate) fn catalog_path(dir: &Path) -> PathBuf {
    dir.join("catalog")
}

/// Where the file of a database lies.
pub(crate) fn tree_path(dir: &Path, db: DbId) -> PathBuf {
    dir.join(format!("{db}.tree"))
}

/// The database whose file has this name.
pub(crate) fn db_of_file(name: &str) -> Option<DbId> {
    name.strip_suffix(".tree")?.parse().ok()
}

impl Catalog {
    /// The catalog of a directory; `None` if there is none yet.
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

    /// Replaces the catalog of a directory, durably.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
        let path = catalog_path(dir);
        crashsafe::write_atomically(disk, &path, &self.encode()).map_err(StoreError::io("write", &path))
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.names_lsn.get().to_le_bytes());
        out.extend_from_slice(&self.saved_lsn.get().to_le_bytes());
        put_number(&mut out, self.databases.len() as u64);
        for entry in &self.databases {
            out.extend_from_slice(&entry.db.get().to_le_bytes());
            put_bytes(&mut out, entry.name.as_bytes());
            out.push(u8::from(entry.vouched_lsn.is_some()));
            if let Some(lsn) = entry.vouched_lsn {
                out.extend_from_slice(&lsn.get().to_le_bytes());
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
        let (names_lsn, saved_lsn) = (decode_lsn(&mut input)?, decode_lsn(&mut input)?);
        let count = input.count(10)?;
        let databases = (0..count).map(|_| decode_entry(&mut input)).collect::<Option<_>>()?;
        input.is_empty().then_some(Catalog { names_lsn, saved_lsn, databases })
    }
}

fn decode_lsn(input: &mut Input<'_>) -> Option<Lsn> {
    Some(Lsn::new(u64::from_le_bytes(input.array()?)))
}

fn decode_entry(input: &mut Input<'_>) -> Option<Entry> {
    let (db, name) = (DbId::new(decode_lsn(input)?), input.text()?.into());
    let vouched_lsn = match input.byte()? {
        0 => None,
        1 => Some(decode_lsn(input)?),
        _ => return None,
    };
    Some(Entry { db, name, vouched_lsn })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_of_its_bytes_is_seen() {
        let entry = |lsn, name: &str, vouched| Entry {
            db: DbId::new(Lsn::new(lsn)),
            name: name.into(),
            vouched_lsn: vouched,
        };
        let catalog = Catalog {
            names_lsn: Lsn::new(300),
            saved_lsn: Lsn::new(200),
            databases: vec![entry(7, "a", None), entry(1 << 40, "b/c", Some(Lsn::new(99)))],
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
        let path = tree_path(Path::new("d"), db);
        assert_eq!(path, Path::new("d/00000000000000ab.tree"));
        assert_eq!(path.file_name().and_then(|name| db_of_file(name.to_str()?)), Some(db));
        assert_eq!((db_of_file("catalog"), db_of_file("ab.tree")), (None, None));
    }
}
