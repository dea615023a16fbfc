//! The possible contents of every document: all versions that its owner has sent, and the newest of them that
//! a reply has shown or acknowledged. The document can have no older version.
//!
//! The number of a version is the generation of its revision, which every change increments.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{Held, Violation};

/// The number of documents that one client owns.
pub(super) const DOCUMENTS: usize = 4;

/// A document: its owner, and its number among the owner's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Document {
    pub(super) owner: usize,
    pub(super) number: usize,
}

impl Document {
    pub(super) fn id(self) -> String {
        format!("c{}-d{}", self.owner, self.number)
    }
}

/// The known versions of one document.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The versions that were sent, from the first on; `None` is a deletion.
    sent: Vec<Option<Value>>,
    /// The revision of the newest version that was acknowledged.
    rev: Option<String>,
    /// The oldest version that the document may have; 0 if the document need not exist.
    floor: usize,
}

/// The known versions of all documents, and the numbers of acknowledgements and of shown versions that were
/// checked.
pub(super) struct Ledger {
    documents: BTreeMap<Document, Known>,
    pub(super) acknowledged: u64,
    pub(super) shown: u64,
}

impl Ledger {
    pub(super) fn new(owners: usize) -> Ledger {
        let all = (0..owners).flat_map(|owner| (0..DOCUMENTS).map(move |number| Document { owner, number }));
        let documents = all.map(|document| (document, Known::default())).collect();
        Ledger { documents, acknowledged: 0, shown: 0 }
    }

    fn known(&mut self, document: Document) -> &mut Known {
        self.documents.entry(document).or_default()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Document> {
        self.documents.keys().copied()
    }

    pub(super) fn of_id(&self, id: &str) -> Option<Document> {
        self.documents.keys().copied().find(|document| document.id() == id)
    }

    /// Whether the newest version is a document, not a deletion.
    pub(super) fn is_there(&self, document: Document) -> bool {
        self.documents[&document].sent.last().is_some_and(Option::is_some)
    }

    /// The revision that the next change of the document replaces.
    pub(super) fn rev(&self, document: Document) -> Option<&str> {
        self.documents[&document].rev.as_deref()
    }

    /// The owner sends the next version.
    pub(super) fn sends(&mut self, document: Document, version: Option<Value>) {
        self.known(document).sent.push(version);
    }

    /// The newest version was refused.
    pub(super) fn takes_back(&mut self, document: Document) {
        self.known(document).sent.pop();
    }

    /// The owner was told that its newest version has this revision.
    pub(super) fn acknowledges(&mut self, document: Document, rev: &str) -> Result<(), Violation> {
        let known = self.known(document);
        if generation(rev) != known.sent.len() {
            let sent = known.sent.len();
            return Err(Violation::Protocol(format!("{document:?}: version {sent} was answered {rev}")));
        }
        known.floor = known.sent.len();
        known.rev = Some(rev.to_string());
        self.acknowledged += 1;
        Ok(())
    }

    /// For each document, the oldest version that the reply to a request sent now may show.
    pub(super) fn floors(&self) -> BTreeMap<Document, usize> {
        self.documents.iter().map(|(document, known)| (*document, known.floor)).collect()
    }

    /// A reply shows this revision of a document, with its body if there is one.
    pub(super) fn shows(
        &mut self,
        document: Document,
        rev: &str,
        body: Option<&Value>,
        floor: usize,
    ) -> Result<(), Violation> {
        let known = self.known(document);
        let version = generation(rev);
        if version < floor || version > known.sent.len() || version == 0 {
            let sent = known.sent.len();
            let text = format!("{document:?}: {rev} was shown, after {floor} of {sent} versions was");
            return Err(Violation::Protocol(text));
        }
        if body.is_some() && body != known.sent[version - 1].as_ref() {
            let expected = &known.sent[version - 1];
            return Err(Violation::Protocol(format!("{document:?} {rev}: {body:?}, not {expected:?}")));
        }
        known.floor = known.floor.max(version);
        self.shown += 1;
        Ok(())
    }

    /// A reply shows that a document is not there.
    pub(super) fn shows_nothing(&self, document: Document, floor: usize) -> Result<(), Violation> {
        let known = &self.documents[&document];
        let may_be_absent = floor == 0 || known.sent[floor - 1..].iter().any(Option::is_none);
        let lost = || Violation::Protocol(format!("{document:?} is not there, after version {floor} was"));
        may_be_absent.then_some(()).ok_or_else(lost)
    }

    /// Checks the documents on a disk. `in_flight`: the documents of each change without a reply; such a
    /// change must have happened as a whole or not at all.
    pub(super) fn judge(
        &self,
        held: Option<&BTreeMap<String, Held>>,
        in_flight: &[&[Document]],
    ) -> Result<(), Violation> {
        let version_of = |document: &Document| {
            held.and_then(|held| held.get(&document.id())).map_or(0, |held| generation(&held.rev))
        };
        for (document, known) in &self.documents {
            let (position, executed) = (version_of(document), known.sent.len());
            if position < known.floor {
                return Err(Violation::Lost { position, floor: known.floor, executed });
            }
            let body = held.and_then(|held| held.get(&document.id())).and_then(|held| held.body.as_deref());
            let body: Option<Value> = body.and_then(|body| serde_json::from_str(body).ok());
            if position > executed || position > 0 && body != known.sent[position - 1] {
                let difference = format!("{document:?} holds {body:?} as version {position}");
                return Err(Violation::NeverWas { floor: known.floor, executed, difference });
            }
        }
        for change in in_flight {
            let is_done = |document: &&Document| version_of(document) == self.documents[document].sent.len();
            let done = change.iter().filter(is_done).count();
            if done != 0 && done != change.len() {
                let difference = format!("{done} of the changes of {change:?} happened");
                return Err(Violation::NeverWas { floor: 0, executed: change.len(), difference });
            }
        }
        Ok(())
    }
}

fn generation(rev: &str) -> usize {
    rev.split('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
