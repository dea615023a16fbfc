//! The model of document databases: it executes the same edits, and takes only the names of revisions from
//! the replies.

use std::collections::BTreeMap;

use documents::{DocError, Documents, Pick};

use crate::Violation;

/// All databases by name, and their documents by id.
pub type DocumentContent = BTreeMap<String, BTreeMap<String, Held>>;

/// A document without conflicts: every edit had the newest revision as its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The newest revision of the document.
    pub rev: String,
    /// The body of the document; `None` if the newest revision is a deletion.
    pub body: Option<String>,
}

/// One edit of one document.
#[derive(Debug, Clone)]
pub(super) struct Edit {
    pub(super) database: String,
    pub(super) id: String,
    /// The revision that the sender wants to replace.
    pub(super) parent: Option<String>,
    /// The new body; `None` deletes the document.
    pub(super) body: Option<String>,
}

impl Edit {
    /// The command for this edit.
    pub(super) fn words(&self) -> Vec<Vec<u8>> {
        let parent = self.parent.clone().unwrap_or_default();
        let words = match &self.body {
            Some(body) if self.parent.is_some() => vec!["DOC.PUT", &self.database, &self.id, body, &parent],
            Some(body) => vec!["DOC.PUT", &self.database, &self.id, body],
            None => vec!["DOC.DEL", &self.database, &self.id, &parent],
        };
        words.into_iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    /// Applies the edit to `content`, and checks its answer: the new revision, or an error.
    pub(super) fn apply(
        &self,
        content: &mut DocumentContent,
        answer: Result<String, String>,
    ) -> Result<(), Violation> {
        let found = content.get(&self.database).map(|documents| documents.get(&self.id));
        let expected = match found {
            None => Err("NOTFOUND"),
            Some(found) => match (found, &self.parent) {
                (Some(held), Some(parent)) if held.rev == *parent => Ok(number_of(parent) + 1),
                (Some(held), None) if held.body.is_none() && self.body.is_some() => {
                    Ok(number_of(&held.rev) + 1)
                }
                (None, None) if self.body.is_some() => Ok(1),
                _ => Err("CONFLICT"),
            },
        };
        let fits = match (&expected, &answer) {
            (Ok(number), Ok(rev)) => number_of(rev) == *number,
            (Err(name), Err(text)) => text.starts_with(name),
            _ => false,
        };
        if !fits {
            let text = format!("{self:?} was answered {answer:?}, not {expected:?}: there is {found:?}");
            return Err(Violation::Protocol(text));
        }
        if let (Ok(rev), Some(documents)) = (answer, content.get_mut(&self.database)) {
            documents.insert(self.id.clone(), Held { rev, body: self.body.clone() });
        }
        Ok(())
    }
}

fn number_of(rev: &str) -> u64 {
    rev.split('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The content of all databases.
///
/// # Errors
/// If a document cannot be read.
///
/// # Panics
/// If a document has conflicts, which no edit here can create, if the changes feed has a document twice, or
/// if the feed's documents are not as many as the database counts.
pub fn documents_of(documents: &Documents) -> Result<DocumentContent, DocError> {
    let mut content = DocumentContent::new();
    for database in documents.all() {
        let snapshot = database.snapshot();
        let mut held = BTreeMap::new();
        for row in snapshot.changes(0, documents::Direction::Ascending) {
            let row = row?;
            assert_eq!(row.leaves.len(), 1, "{row:?}");
            let pick = row.leaves.first().map_or(Pick::Winner, |rev| Pick::Rev(*rev));
            let body = snapshot.body(snapshot.open(&row.id, pick)?.leaf())?;
            let body = (!row.deleted).then(|| String::from_utf8_lossy(&body).into_owned());
            let rev = row.leaves.first().map(ToString::to_string).unwrap_or_default();
            assert!(held.insert(row.id.to_string(), Held { rev, body }).is_none(), "{} comes twice", row.id);
        }
        let (sums, there) = (snapshot.info().sums, held.values().filter(|held| held.body.is_some()).count());
        assert_eq!((sums.documents, sums.deleted), (there as u64, (held.len() - there) as u64));
        content.insert(database.name().to_string(), held);
    }
    Ok(content)
}
