//! PUT of one document per request: new ones, or further revisions of existing ones.

use std::ops::Range;

use serde::Deserialize;

use crate::{
    documents::{DATABASE, Store, load::Work, random::Random},
    failure::Failure,
};

/// The kind of documents to put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// New documents.
    New,
    /// Random existing documents. Each connection has its own share of them, so there are no conflicts.
    Updates,
}

/// A server's confirmation of a saved document.
#[derive(Debug, Deserialize)]
pub struct Saved<'a> {
    ok: bool,
    id: &'a str,
    rev: &'a str,
}

impl Saved<'_> {
    /// Records the confirmation; it must be of this document and of its next revision.
    pub fn confirm(&self, store: &mut Store, number: u64) -> Result<(), Failure> {
        if !self.ok || self.id != store.corpus.ids.id(number) {
            return Err(Failure::Wrong(format!("{self:?} for document {number}")));
        }
        store.revisions.confirm(number, self.rev).map(drop)
    }

    /// Records the confirmation; it must be of one of these documents, not confirmed before.
    pub fn confirm_one_of(&self, store: &mut Store, numbers: &Range<u64>) -> Result<(), Failure> {
        match store.corpus.ids.number(self.id).filter(|number| numbers.contains(number)) {
            Some(number) if store.revisions.get(number).is_none() => self.confirm(store, number),
            _ => Err(Failure::Wrong(format!("{self:?} for one of {numbers:?}"))),
        }
    }
}

/// A [`Work`] that puts documents.
#[derive(Debug)]
pub struct Puts {
    /// The expected content of the database.
    pub store: Store,
    put: Put,
    /// The document number of each connection's pending request.
    numbers: Vec<u64>,
    random: Random,
}

impl Puts {
    /// Work for this many connections.
    pub fn new(store: Store, put: Put, connections: usize) -> Puts {
        Puts { store, put, numbers: vec![0; connections], random: Random::default() }
    }

    fn choose(&mut self, connection: usize) -> u64 {
        if self.put == Put::New {
            return self.store.revisions.number_next();
        }
        let (connection, connections) = (connection as u64, self.numbers.len() as u64);
        let share = (self.store.revisions.len() - connection).div_ceil(connections);
        self.random.below(share) * connections + connection
    }
}

impl Work for Puts {
    fn next(&mut self, connection: usize, body: &mut Vec<u8>) -> Option<(&'static str, String)> {
        let number = self.choose(connection);
        self.numbers[connection] = number;
        let rev = self.store.revisions.get(number);
        let members = rev.map(|rev| format!(r#""_rev":"{rev}","#)).unwrap_or_default();
        self.store.corpus.write(number, rev.map_or(0, |rev| rev.number), &members, body);
        Some(("PUT", format!("/{DATABASE}/{}", self.store.corpus.ids.id(number))))
    }

    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<u64, Failure> {
        match serde_json::from_slice::<Saved<'_>>(body) {
            Ok(saved) if status == 201 => saved.confirm(&mut self.store, self.numbers[connection])?,
            _ => return Err(Failure::unexpected("PUT", status, body)),
        }
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::corpus::{Corpus, Ids};

    const REV: &str = "00ff00ff00ff00ff00ff00ff00ff00ff";

    fn store() -> Store {
        Store::new(Corpus::new(Ids::Sequential, 100))
    }

    fn saved(number: u64, rev: u32) -> String {
        format!(r#"{{"ok":true,"id":"{}","rev":"{rev}-{REV}"}}"#, Ids::Sequential.id(number))
    }

    #[test]
    fn only_the_right_answer_confirms() {
        let mut puts = Puts::new(store(), Put::New, 1);
        assert!(puts.next(0, &mut Vec::new()).is_some());
        assert!(puts.answer(0, 200, saved(0, 1).as_bytes()).is_err(), "status");
        assert!(puts.answer(0, 201, saved(1, 1).as_bytes()).is_err(), "id");
        assert!(puts.answer(0, 201, saved(0, 2).as_bytes()).is_err(), "revision");
        assert!(puts.answer(0, 201, br#"{"error":"conflict"}"#).is_err());
        assert_eq!(puts.answer(0, 201, saved(0, 1).as_bytes()).unwrap(), 1);
        assert_eq!(puts.store.revisions.confirmed(), 1);
    }

    #[test]
    fn updates_name_the_revision_and_no_two_connections_have_the_same_document() {
        let mut store = store();
        for number in 0..7 {
            store.revisions.number_next();
            store.revisions.confirm(number, &format!("1-{REV}")).unwrap();
        }
        let mut puts = Puts::new(store, Put::Updates, 3);
        let mut seen = [[false; 7]; 3];
        for _ in 0..200 {
            for (connection, seen) in seen.iter_mut().enumerate() {
                let mut body = Vec::new();
                puts.next(connection, &mut body).unwrap();
                let number = puts.numbers[connection] as usize;
                seen[number] = true;
                let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let rev = puts.store.revisions.get(number as u64).unwrap();
                assert_eq!(document["_rev"], rev.to_string());
                assert_eq!(document["generation"], rev.number);
                puts.answer(connection, 201, saved(number as u64, rev.number + 1).as_bytes()).unwrap();
            }
        }
        for number in 0..7 {
            assert_eq!(seen.iter().filter(|seen| seen[number]).count(), 1, "{number}");
        }
    }
}
