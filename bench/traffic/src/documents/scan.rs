//! `_changes` from the beginning and `_all_docs`, streamed: each row is checked, and all must exist, in
//! order.

use std::{ops::ControlFlow, time::Duration};

use env::{Clock, RealClock};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    documents::{DATABASE, Store, client::Client, rows::Rows},
    failure::Failure,
    process::Process,
};

/// The period of sampling the server's memory.
const LOOK_US: u64 = Duration::from_millis(10).as_micros() as u64;

/// The kind of listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// In the order of the documents' last writes.
    Changes,
    /// In the order of their ids.
    AllDocs,
}

/// A row of `_changes`.
#[derive(Debug, Deserialize)]
pub struct ChangeRow<'a> {
    /// Its sequence, as unparsed JSON.
    #[serde(borrow)]
    pub seq: &'a RawValue,
    /// The id of the document.
    pub id: &'a str,
    /// The winning revision only, as there are no conflicts here.
    #[serde(borrow)]
    pub changes: Vec<Leaf<'a>>,
}

#[derive(Debug, Deserialize)]
struct AllDocsRow<'a> {
    id: &'a str,
    #[serde(borrow)]
    value: Leaf<'a>,
}

/// A leaf of a document's revision tree, in a row.
#[derive(Debug, Deserialize)]
pub struct Leaf<'a> {
    /// The revision id.
    pub rev: &'a str,
}

/// The position of a row in its order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Beginning,
    Seq(u64),
    Id(String),
}

/// The rows seen so far.
#[derive(Debug)]
pub struct Seen<'a> {
    store: &'a Store,
    last: Place,
    is_seen: Vec<bool>,
    rows: u64,
}

impl Seen<'_> {
    /// No rows yet.
    pub fn nothing(store: &Store) -> Seen<'_> {
        let is_seen = vec![false; store.revisions.len() as usize];
        Seen { store, last: Place::Beginning, is_seen, rows: 0 }
    }

    fn take(&mut self, scan: Scan, row: &[u8]) -> Result<(), Failure> {
        let wrong = |_| Failure::Wrong(format!("row {}", String::from_utf8_lossy(row)));
        match scan {
            Scan::Changes => {
                let row: ChangeRow<'_> = serde_json::from_slice(row).map_err(wrong)?;
                let [leaf] = row.changes.as_slice() else { return Err(Failure::Wrong(format!("{row:?}"))) };
                self.note(row.id, leaf.rev, Place::Seq(seq_number(row.seq.get())?))
            }
            Scan::AllDocs => {
                let row: AllDocsRow<'_> = serde_json::from_slice(row).map_err(wrong)?;
                self.note(row.id, row.value.rev, Place::Id(row.id.to_owned()))
            }
        }
    }

    fn note(&mut self, id: &str, rev: &str, place: Place) -> Result<(), Failure> {
        let number = self.store.corpus.ids.number(id);
        let known = number.and_then(|number| self.store.revisions.get(number));
        let seen = number.and_then(|number| self.is_seen.get_mut(number as usize));
        match seen {
            Some(is_seen) if !*is_seen && known == rev.parse().ok() && place > self.last => *is_seen = true,
            _ => return Err(Failure::Wrong(format!("{id} {rev} at {place:?} after {:?}", self.last))),
        }
        self.last = place;
        self.rows += 1;
        Ok(())
    }

    fn must_be_all(&self) -> Result<u64, Failure> {
        let expected = self.store.revisions.confirmed();
        if self.rows != expected {
            return Err(Failure::Wrong(format!("{} rows of {expected}", self.rows)));
        }
        Ok(self.rows)
    }
}

/// The number at the start of a sequence, which may be a JSON number or text.
pub fn seq_number(seq: &str) -> Result<u64, Failure> {
    let digits = seq.trim_matches('"');
    let digits = digits.split_once('-').map_or(digits, |(number, _)| number);
    digits.parse().map_err(|_| Failure::Wrong(format!("sequence {seq}")))
}

/// Reads all rows. Returns their number, and the growth of the server's memory in bytes meanwhile.
pub fn run(client: &mut Client, store: &Store, scan: Scan, process: Process) -> Result<(u64, u64), Failure> {
    let path = match scan {
        Scan::Changes => format!("/{DATABASE}/_changes?since=0"),
        Scan::AllDocs => format!("/{DATABASE}/_all_docs"),
    };
    let (mut rows, mut seen) = (Rows::default(), Seen::nothing(store));
    let before_bytes = process.rss_bytes()?;
    let (mut most_bytes, mut looked_us) = (before_bytes, RealClock.monotonic_us());
    let status = client.stream("GET", &path, b"", |body| {
        rows.feed(body, |row| seen.take(scan, row))?;
        body.clear();
        let now_us = RealClock.monotonic_us();
        if now_us > looked_us + LOOK_US {
            (most_bytes, looked_us) = (most_bytes.max(process.rss_bytes()?), now_us);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if status != 200 || !rows.has_ended() {
        return Err(Failure::Wrong(format!("{path}: {status}, incomplete")));
    }
    let most_bytes = most_bytes.max(process.rss_bytes()?);
    Ok((seen.must_be_all()?, most_bytes - before_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::corpus::{Corpus, Ids};

    const IDS: Ids = Ids::Sequential;

    fn rev(number: u64) -> String {
        format!("1-{number:032x}")
    }

    fn store() -> Store {
        let mut store = Store::new(Corpus::new(IDS, 100));
        for number in 0..3 {
            store.revisions.number_next();
            store.revisions.confirm(number, &rev(number)).unwrap();
        }
        store
    }

    fn change(seq: &str, number: u64, rev: &str) -> String {
        format!(r#"{{"seq":{seq},"id":"{}","changes":[{{"rev":"{rev}"}}]}}"#, IDS.id(number))
    }

    #[test]
    fn all_rows_in_order_are_all() {
        let store = store();
        let mut seen = Seen::nothing(&store);
        for (seq, number) in [("1", 2), (r#""5-00ff""#, 0), ("7", 1)] {
            assert!(seen.must_be_all().is_err());
            seen.take(Scan::Changes, change(seq, number, &rev(number)).as_bytes()).unwrap();
        }
        assert_eq!(seen.must_be_all().unwrap(), 3);

        let mut seen = Seen::nothing(&store);
        let row = |number| {
            format!(r#"{{"id":"{0}","key":"{0}","value":{{"rev":"{1}"}}}}"#, IDS.id(number), rev(number))
        };
        seen.take(Scan::AllDocs, row(0).as_bytes()).unwrap();
        seen.take(Scan::AllDocs, row(2).as_bytes()).unwrap();
        assert!(seen.take(Scan::AllDocs, row(1).as_bytes()).is_err(), "order");
    }

    #[test]
    fn rows_that_are_not_owed_are_wrong() {
        let store = store();
        let mut seen = Seen::nothing(&store);
        seen.take(Scan::Changes, change("5", 1, &rev(1)).as_bytes()).unwrap();
        for (seq, number, rev) in [
            ("6", 1, rev(1)),
            ("5", 0, rev(0)),
            ("4", 0, rev(0)),
            ("6", 0, rev(1)),
            ("6", 3, rev(3)),
            ("null", 0, rev(0)),
        ] {
            assert!(
                seen.take(Scan::Changes, change(seq, number, &rev).as_bytes()).is_err(),
                "{seq} {number} {rev}"
            );
        }
        seen.take(Scan::Changes, change("6", 0, &rev(0)).as_bytes()).unwrap();
    }
}
