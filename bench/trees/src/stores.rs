//! The stores, each behind the four measured operations.

use std::{
    ops::Bound,
    path::{Path, PathBuf},
};

use env::{RealDisk, RealEntropy};
use lsn::Lsn;
use tree::{Builder, Change, Direction, NodeCache, Op, Options, Sums, TreeFile, TreeId};

use crate::Error;

/// The cache size of each store; LMDB has no cache of its own and relies on the page cache.
const CACHE_BYTES: u64 = 256 << 20;

/// Entries in the order of their keys.
type Entries<'a, 'b> = &'a mut dyn Iterator<Item = (&'b [u8], &'b [u8])>;

pub trait Store {
    /// Fills an empty store with sorted entries, by the fastest method of the store.
    fn fill(&mut self, entries: Entries<'_, '_>) -> Result<(), Error>;
    /// Inserts a batch, durable on return.
    fn insert(&mut self, keys: &[[u8; 16]], value: &[u8]) -> Result<(), Error>;
    /// Reads keys one by one; returns the number of keys found.
    fn read(&mut self, keys: &[[u8; 16]]) -> Result<u64, Error>;
    /// Reads everything in order; returns the number of entries.
    fn scan(&mut self) -> Result<u64, Error>;
}

pub struct Sheaf {
    path: PathBuf,
    options: Options,
    file: Option<TreeFile>,
    lsn: u64,
}

impl Sheaf {
    pub fn create(path: &Path, leaf_bytes: usize, inner_bytes: usize) -> Result<Sheaf, Error> {
        let measure = |_, _: &[u8], value: &[u8]| Sums([1, value.len() as u64, 0, 0]);
        let options = Options::new(1, measure, NodeCache::new(CACHE_BYTES));
        let options = Options { leaf_bytes, inner_bytes, ..options };
        Ok(Sheaf { path: path.to_owned(), options, file: None, lsn: 1 })
    }

    fn file(&mut self) -> Result<&mut TreeFile, Error> {
        self.file.as_mut().ok_or("not filled".into())
    }
}

impl Store for Sheaf {
    fn fill(&mut self, entries: Entries<'_, '_>) -> Result<(), Error> {
        let mut builder = Builder::create(&RealDisk, &self.path, self.options.clone(), &RealEntropy)?;
        for (key, value) in entries {
            builder.append(TreeId(0), key, value)?;
        }
        self.file = Some(builder.finish(b"", Lsn::new(1))?);
        Ok(())
    }

    fn insert(&mut self, keys: &[[u8; 16]], value: &[u8]) -> Result<(), Error> {
        self.lsn += 1;
        let lsn = Lsn::new(self.lsn);
        let mut ops = keys.iter().map(|key| Op { key, change: Change::Insert(value) }).collect();
        let mut checkpoint = self.file()?.begin()?;
        checkpoint.modify(TreeId(0), &mut ops)?;
        checkpoint.finish(b"", lsn)?;
        Ok(())
    }

    fn read(&mut self, keys: &[[u8; 16]]) -> Result<u64, Error> {
        let snapshot = self.file()?.snapshot();
        let mut found = 0;
        for key in keys {
            found += u64::from(snapshot.get(TreeId(0), key)?.is_some());
        }
        Ok(found)
    }

    fn scan(&mut self) -> Result<u64, Error> {
        let snapshot = self.file()?.snapshot();
        let mut range = snapshot.range(TreeId(0), Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let mut rows = 0;
        while range.next_entry()?.is_some() {
            rows += 1;
        }
        Ok(rows)
    }
}

const TABLE: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("entries");

pub struct Redb(redb::Database);

impl Redb {
    pub fn create(path: &Path) -> Result<Redb, Error> {
        Ok(Redb(redb::Database::builder().set_cache_size(CACHE_BYTES as usize).create(path)?))
    }
}

impl Store for Redb {
    fn fill(&mut self, entries: Entries<'_, '_>) -> Result<(), Error> {
        let transaction = self.0.begin_write()?;
        let mut table = transaction.open_table(TABLE)?;
        for (key, value) in entries {
            table.insert(key, value)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn insert(&mut self, keys: &[[u8; 16]], value: &[u8]) -> Result<(), Error> {
        let transaction = self.0.begin_write()?;
        let mut table = transaction.open_table(TABLE)?;
        for key in keys {
            table.insert(&key[..], value)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn read(&mut self, keys: &[[u8; 16]]) -> Result<u64, Error> {
        use redb::ReadableDatabase;
        let table = self.0.begin_read()?.open_table(TABLE)?;
        let mut found = 0;
        for key in keys {
            found += u64::from(table.get(&key[..])?.is_some_and(|value| !value.value().to_vec().is_empty()));
        }
        Ok(found)
    }

    fn scan(&mut self) -> Result<u64, Error> {
        use redb::{ReadableDatabase, ReadableTable};
        let mut rows = 0;
        for entry in self.0.begin_read()?.open_table(TABLE)?.iter()? {
            let (key, value) = entry?;
            rows += u64::from(!key.value().is_empty() && !value.value().is_empty());
        }
        Ok(rows)
    }
}

pub struct Fjall {
    database: fjall::Database,
    keyspace: fjall::Keyspace,
}

impl Fjall {
    pub fn create(path: &Path) -> Result<Fjall, Error> {
        let database = fjall::Database::builder(path).cache_size(CACHE_BYTES).open()?;
        let keyspace = database.keyspace("entries", fjall::KeyspaceCreateOptions::default)?;
        Ok(Fjall { database, keyspace })
    }
}

impl Store for Fjall {
    fn fill(&mut self, entries: Entries<'_, '_>) -> Result<(), Error> {
        let mut ingestion = self.keyspace.start_ingestion()?;
        for (key, value) in entries {
            ingestion.write(key, value)?;
        }
        Ok(ingestion.finish()?)
    }

    fn insert(&mut self, keys: &[[u8; 16]], value: &[u8]) -> Result<(), Error> {
        let mut batch = self.database.batch().durability(Some(fjall::PersistMode::SyncAll));
        for key in keys {
            batch.insert(&self.keyspace, &key[..], value);
        }
        Ok(batch.commit()?)
    }

    fn read(&mut self, keys: &[[u8; 16]]) -> Result<u64, Error> {
        let mut found = 0;
        for key in keys {
            found += u64::from(self.keyspace.get(key)?.is_some());
        }
        Ok(found)
    }

    fn scan(&mut self) -> Result<u64, Error> {
        let mut rows = 0;
        for guard in self.keyspace.iter() {
            let (key, value) = guard.into_inner()?;
            rows += u64::from(!key.is_empty() && !value.is_empty());
        }
        Ok(rows)
    }
}

type LmdbTable = heed::Database<heed::types::Bytes, heed::types::Bytes>;

pub struct Lmdb {
    environment: heed::Env,
    table: LmdbTable,
}

impl Lmdb {
    pub fn create(path: &Path) -> Result<Lmdb, Error> {
        std::fs::create_dir_all(path)?;
        let mut options = heed::EnvOpenOptions::new();
        options.map_size(64 << 30);
        // SAFETY: no other process or thread opens or changes the file.
        let environment = unsafe { options.open(path)? };
        let mut transaction = environment.write_txn()?;
        let table = environment.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Lmdb { environment, table })
    }
}

impl Store for Lmdb {
    fn fill(&mut self, entries: Entries<'_, '_>) -> Result<(), Error> {
        let mut transaction = self.environment.write_txn()?;
        for (key, value) in entries {
            self.table.put_with_flags(&mut transaction, heed::PutFlags::APPEND, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn insert(&mut self, keys: &[[u8; 16]], value: &[u8]) -> Result<(), Error> {
        let mut transaction = self.environment.write_txn()?;
        for key in keys {
            self.table.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn read(&mut self, keys: &[[u8; 16]]) -> Result<u64, Error> {
        let transaction = self.environment.read_txn()?;
        let mut found = 0;
        for key in keys {
            found +=
                u64::from(self.table.get(&transaction, key)?.is_some_and(|value| !value.to_vec().is_empty()));
        }
        Ok(found)
    }

    fn scan(&mut self) -> Result<u64, Error> {
        let transaction = self.environment.read_txn()?;
        let mut rows = 0;
        for entry in self.table.iter(&transaction)? {
            let (key, value) = entry?;
            rows += u64::from(!key.is_empty() && !value.is_empty());
        }
        Ok(rows)
    }
}

pub struct Sqlite(rusqlite::Connection);

impl Sqlite {
    pub fn create(path: &Path) -> Result<Sqlite, Error> {
        let connection = rusqlite::Connection::open(path)?;
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -{};
             CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID;",
            CACHE_BYTES / 1024,
        ))?;
        Ok(Sqlite(connection))
    }
}

impl Store for Sqlite {
    fn fill(&mut self, entries: Entries<'_, '_>) -> Result<(), Error> {
        let transaction = self.0.transaction()?;
        let mut insert = transaction.prepare("INSERT INTO entries VALUES (?, ?)")?;
        for entry in entries {
            insert.execute(entry)?;
        }
        drop(insert);
        transaction.commit()?;
        // The checkpoint of the fill is made here, so that the rounds do not pay for it.
        self.0.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }

    fn insert(&mut self, keys: &[[u8; 16]], value: &[u8]) -> Result<(), Error> {
        let transaction = self.0.transaction()?;
        let mut insert = transaction.prepare_cached("INSERT OR REPLACE INTO entries VALUES (?, ?)")?;
        for key in keys {
            insert.execute((&key[..], value))?;
        }
        drop(insert);
        Ok(transaction.commit()?)
    }

    fn read(&mut self, keys: &[[u8; 16]]) -> Result<u64, Error> {
        let mut select = self.0.prepare_cached("SELECT value FROM entries WHERE key = ?")?;
        let mut found = 0;
        for key in keys {
            let value: Vec<u8> = select.query_row([&key[..]], |row| row.get(0))?;
            found += u64::from(!value.is_empty());
        }
        Ok(found)
    }

    fn scan(&mut self) -> Result<u64, Error> {
        let mut select = self.0.prepare_cached("SELECT key, value FROM entries ORDER BY key")?;
        let mut rows = select.query([])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            let filled = !row.get_ref(0)?.as_blob()?.is_empty() && !row.get_ref(1)?.as_blob()?.is_empty();
            count += u64::from(filled);
        }
        Ok(count)
    }
}
