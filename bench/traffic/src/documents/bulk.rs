//! `_bulk_docs` of new documents: endless for measuring, or up to a number of documents for filling a
//! database.
//!
//! The order of rows in a response is not checked: PouchDB's servers reply in the order in which they first
//! saw the ids.

use std::ops::Range;

use crate::{
    documents::{DATABASE, Store, load::Work, put::Saved},
    failure::Failure,
};

/// A [`Work`] that adds documents in batches.
#[derive(Debug)]
pub struct Bulk {
    /// The expected content of the database.
    pub store: Store,
    batch: u64,
    /// The total number of documents to add.
    total: u64,
    /// The document numbers of each connection's pending request.
    batches: Vec<Range<u64>>,
}

impl Bulk {
    /// Work for this many connections, with `batch` documents per request.
    pub fn new(store: Store, connections: usize, batch: u64, total: u64) -> Bulk {
        Bulk { store, batch, total, batches: vec![0..0; connections] }
    }
}

impl Work for Bulk {
    fn next(&mut self, connection: usize, body: &mut Vec<u8>) -> Option<(&'static str, String)> {
        let Store { corpus, revisions } = &mut self.store;
        let first = revisions.len();
        let numbers = first..self.total.min(first + self.batch);
        body.extend_from_slice(br#"{"docs":["#);
        for number in numbers.clone() {
            if number > first {
                body.push(b',');
            }
            let number = revisions.number_next();
            corpus.write(number, 0, &format!(r#""_id":"{}","#, corpus.ids.id(number)), body);
        }
        body.extend_from_slice(b"]}");
        self.batches[connection] = numbers.clone();
        (!numbers.is_empty()).then(|| ("POST", format!("/{DATABASE}/_bulk_docs")))
    }

    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<u64, Failure> {
        let numbers = std::mem::take(&mut self.batches[connection]);
        let count = numbers.end - numbers.start;
        match serde_json::from_slice::<Vec<Saved<'_>>>(body) {
            Ok(saved) if status == 201 && saved.len() as u64 == count => {
                saved.iter().try_for_each(|saved| saved.confirm_one_of(&mut self.store, &numbers))?;
            }
            _ => return Err(Failure::unexpected("_bulk_docs", status, body)),
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::documents::corpus::{Corpus, Ids};

    fn answer(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
        let row =
            |number| format!(r#"{{"ok":true,"id":"{}","rev":"1-{:032x}"}}"#, Ids::Random.id(number), number);
        format!("[{}]", numbers.map(row).collect::<Vec<_>>().join(",")).into_bytes()
    }

    #[test]
    fn batches_are_full_until_the_last_and_each_document_is_confirmed() {
        let mut bulk = Bulk::new(Store::new(Corpus::new(Ids::Random, 100)), 2, 3, 5);
        let mut body = Vec::new();
        bulk.next(1, &mut body).unwrap();
        let sent: Value = serde_json::from_slice(&body).unwrap();
        let ids: Vec<_> =
            sent["docs"].as_array().unwrap().iter().map(|document| document["_id"].clone()).collect();
        assert_eq!(ids, (0..3).map(|number| Value::from(Ids::Random.id(number))).collect::<Vec<_>>());
        bulk.next(0, &mut Vec::new()).unwrap();
        assert_eq!(bulk.answer(1, 201, &answer(0..3)).unwrap(), 3);
        assert!(bulk.next(1, &mut Vec::new()).is_none());
        assert_eq!(bulk.answer(0, 201, &answer(3..5)).unwrap(), 2);
        assert_eq!(bulk.store.revisions.confirmed(), 5);
    }

    #[test]
    fn rows_may_come_in_any_order_but_each_once() {
        for (order, is_right) in [([2, 0, 1], true), ([2, 2, 1], false)] {
            let mut bulk = Bulk::new(Store::new(Corpus::new(Ids::Random, 100)), 1, 3, 5);
            bulk.next(0, &mut Vec::new()).unwrap();
            assert_eq!(bulk.answer(0, 201, &answer(order.into_iter())).is_ok(), is_right, "{order:?}");
        }
    }

    #[test]
    fn rows_that_are_missing_or_others_are_wrong() {
        for (status, numbers) in [(201, 0..2), (201, 1..4), (200, 0..3), (201, 0..4)] {
            let mut bulk = Bulk::new(Store::new(Corpus::new(Ids::Random, 100)), 1, 3, 5);
            bulk.next(0, &mut Vec::new()).unwrap();
            assert!(bulk.answer(0, status, &answer(numbers.clone())).is_err(), "{status} {numbers:?}");
        }
    }
}
