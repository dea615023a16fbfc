//! The last confirmed revision of each document. Of revisions, only number and form are checked.

use std::{fmt, str::FromStr};

use crate::failure::Failure;

/// A revision: number and hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rev {
    /// Its generation, from 1.
    pub number: u32,
    hash: u128,
}

impl FromStr for Rev {
    type Err = ();

    fn from_str(text: &str) -> Result<Rev, ()> {
        let (number, hash) = text.split_once('-').ok_or(())?;
        if hash.len() != 32 {
            return Err(());
        }
        let hash = u128::from_str_radix(hash, 16).map_err(|_| ())?;
        Ok(Rev { number: number.parse().map_err(|_| ())?, hash })
    }
}

impl fmt::Display for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:032x}", self.number, self.hash)
    }
}

/// The confirmed revisions, by document number.
#[derive(Debug, Default)]
pub struct Revisions {
    known: Vec<Option<Rev>>,
}

impl Revisions {
    /// Number of documents, confirmed or not.
    pub fn len(&self) -> u64 {
        self.known.len() as u64
    }

    /// Number of confirmed documents.
    pub fn confirmed(&self) -> u64 {
        self.known.iter().flatten().count() as u64
    }

    /// Adds a document and returns its number.
    pub fn number_next(&mut self) -> u64 {
        self.known.push(None);
        self.len() - 1
    }

    /// The confirmed revision of a document; `None` if there is none.
    pub fn get(&self, number: u64) -> Option<Rev> {
        *self.known.get(number as usize)?
    }

    /// Records a confirmed revision, which must be the next one of the document.
    pub fn confirm(&mut self, number: u64, rev: &str) -> Result<Rev, Failure> {
        let before = self.get(number).map_or(0, |rev| rev.number);
        let rev = rev.parse::<Rev>().ok().filter(|rev| rev.number == before + 1);
        match (self.known.get_mut(number as usize), rev) {
            (Some(known), Some(rev)) => {
                *known = Some(rev);
                Ok(rev)
            }
            _ => Err(Failure::Wrong(format!("revision {rev:?} of document {number} after {before}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "00ff00ff00ff00ff00ff00ff00ff00ff";

    #[test]
    fn a_revision_reads_as_it_is_written() {
        let text = format!("12-{HASH}");
        let rev: Rev = text.parse().unwrap();
        assert_eq!((rev.number, rev.to_string()), (12, text));
        for wrong in ["", "1", "1-", "1-00", &format!("x-{HASH}"), &format!("1-{}", &HASH.replace('f', "g"))]
        {
            assert!(wrong.parse::<Rev>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn revisions_follow_each_other() {
        let mut revisions = Revisions::default();
        assert_eq!((revisions.number_next(), revisions.number_next(), revisions.confirmed()), (0, 1, 0));
        assert!(revisions.confirm(1, &format!("2-{HASH}")).is_err());
        revisions.confirm(1, &format!("1-{HASH}")).unwrap();
        assert!(revisions.confirm(1, &format!("1-{HASH}")).is_err());
        revisions.confirm(1, &format!("2-{HASH}")).unwrap();
        assert!(revisions.confirm(2, &format!("1-{HASH}")).is_err(), "there is no such document");
        assert_eq!((revisions.len(), revisions.confirmed(), revisions.get(0)), (2, 1, None));
    }
}
