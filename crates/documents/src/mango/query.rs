//! `Query`: makes the reply of `_find`, piece by piece.
//!
//! A query reads the entries of the plan and their documents, applies the selector, and renders JSON in
//! pieces that the caller can send. Its memory does not depend on the number of documents. The reply shows
//! the state of the snapshot, so it may leave the server only once the log has committed that state.

use std::ops::Bound;
use std::time::Duration;

use super::index_file::{IndexEntries, IndexSnapshot};
use super::indexes::{parse, rendered};
use super::{Bookmark, FindRequest, KeyRange, Plan, QueryError, Value};
use crate::json::put_string;
use crate::names::DESIGN_PREFIX;
use crate::scan::AllDocs;
use crate::{Direction, DocError, Found, IdRange, Pick, Snapshot};

/// The maximum number of entries read per step.
const STEP_DOCUMENTS: usize = 200;
/// Bytes of the reply after which a step ends.
const STEP_BYTES: usize = 64 << 10;
/// The reply has a warning if the number of examined documents per returned document, rounded down, is
/// greater than this.
const SCAN_RATIO_MAX: u64 = 10;

/// A query in execution.
pub struct Query {
    snapshot: Snapshot,
    request: FindRequest,
    plan: Plan,
    entries: Entries,
    skipped: u64,
    returned: u64,
    examined: u64,
    /// The key of the last returned entry.
    last_key: Option<Vec<u8>>,
    begun: bool,
}

enum Entries {
    None,
    Documents(AllDocs),
    Index(IndexEntries),
}

/// The key of an entry, and its document if queries may see it.
struct Candidate {
    key: Vec<u8>,
    found: Option<Found>,
}

impl Query {
    /// Begins a query. `index` has the entries of the index in the plan.
    pub fn new(
        snapshot: Snapshot,
        request: FindRequest,
        plan: Plan,
        index: Option<IndexSnapshot>,
    ) -> Result<Query, DocError> {
        let entries = match (&plan.keys, index) {
            (Some(_), _) if request.limit == 0 => Entries::None,
            (None, _) => Entries::None,
            (Some(keys), Some(index)) => Entries::Index(index.entries(keys, plan.descending)),
            (Some(keys), None) => {
                let direction = if plan.descending { Direction::Descending } else { Direction::Ascending };
                Entries::Documents(snapshot.all_docs(ids(keys, &request)?, direction))
            }
        };
        Ok(Query {
            snapshot,
            request,
            plan,
            entries,
            skipped: 0,
            returned: 0,
            examined: 0,
            last_key: None,
            begun: false,
        })
    }

    /// Appends the next piece of the reply. Returns whether there are more. `elapsed` is the time since the
    /// request arrived.
    pub fn step(&mut self, elapsed: Duration, out: &mut Vec<u8>) -> Result<bool, DocError> {
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(b"{\"docs\":[");
        }
        for _ in 0..STEP_DOCUMENTS {
            if out.len() >= STEP_BYTES {
                return Ok(true);
            }
            if self.returned == self.request.limit {
                self.entries = Entries::None;
            }
            match self.next_document()? {
                Some(Candidate { key, found: Some(found) }) => self.examine(key, &found, out)?,
                Some(Candidate { found: None, .. }) => {}
                None => {
                    self.end(elapsed, out);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The next entry of the plan.
    fn next_document(&mut self) -> Result<Option<Candidate>, DocError> {
        match &mut self.entries {
            Entries::None => Ok(None),
            Entries::Documents(documents) => {
                let Some(info) = documents.next().transpose()? else { return Ok(None) };
                let key = info.id.as_bytes().to_vec();
                let winner = info.revs.winner().map(|(rev, _)| rev);
                let found = winner
                    .filter(|_| !info.id.starts_with(DESIGN_PREFIX))
                    .and_then(|rev| Found::new(info, rev));
                Ok(Some(Candidate { key, found }))
            }
            Entries::Index(entries) => {
                let Some(entry) = entries.next().transpose()? else { return Ok(None) };
                match self.snapshot.open(&entry.id, Pick::Winner) {
                    Ok(found) => Ok(Some(Candidate { key: entry.key, found: Some(found) })),
                    // The document was purged, or the index was not brought up to date (`"update":false`).
                    Err(DocError::Missing | DocError::Deleted) => {
                        Ok(Some(Candidate { key: entry.key, found: None }))
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    fn examine(&mut self, key: Vec<u8>, found: &Found, out: &mut Vec<u8>) -> Result<(), DocError> {
        self.examined += 1;
        let text = rendered(&self.snapshot, found, self.request.conflicts)?;
        let document = parse(&text)?;
        if !self.request.selector.matches(&document) {
            return Ok(());
        }
        if self.skipped < self.request.skip {
            self.skipped += 1;
            return Ok(());
        }
        out.extend_from_slice(if self.returned == 0 { b"\r\n" } else { b",\r\n" });
        if self.request.fields.is_all() {
            out.extend_from_slice(&text);
        } else {
            self.request.fields.of(document).render(out);
        }
        self.returned += 1;
        self.last_key = Some(key);
        Ok(())
    }

    fn end(&self, elapsed: Duration, out: &mut Vec<u8>) {
        let bookmark = match (&self.last_key, &self.request.bookmark) {
            (Some(key), _) => self.plan.bookmark(key).text(),
            (None, Some(given)) => given.text(),
            (None, None) => Bookmark::NONE.to_owned(),
        };
        out.extend_from_slice(b"\r\n],\"bookmark\":");
        put_string(out, &bookmark);
        if self.request.execution_stats {
            let stats = format!(
                ",\"execution_stats\":{{\"total_keys_examined\":0,\"total_docs_examined\":{},\
                 \"total_quorum_docs_examined\":0,\"results_returned\":{},\"execution_time_ms\":{:.3}}}",
                self.examined,
                self.returned,
                elapsed.as_secs_f64() * 1000.0,
            );
            out.extend_from_slice(stats.as_bytes());
        }
        let scan = (self.examined / self.returned.max(1) > SCAN_RATIO_MAX).then_some(
            "The number of documents examined is high in proportion to the number of results returned. \
             Consider adding a more specific index to improve this.",
        );
        let warnings: Vec<&str> = self.plan.warning.as_deref().into_iter().chain(scan).collect();
        if !warnings.is_empty() {
            out.extend_from_slice(b",\"warning\":");
            put_string(out, &warnings.join("\n"));
        }
        out.extend_from_slice(b"}\n");
    }
}

/// The range of ids of a plan without an index. Only a bookmark can contain bytes that are not UTF-8.
fn ids(keys: &KeyRange, request: &FindRequest) -> Result<IdRange, QueryError> {
    let id = |bytes: &[u8]| {
        let bookmark = || request.bookmark.as_ref().map_or_else(String::new, Bookmark::text);
        let text = std::str::from_utf8(bytes).ok();
        text.map(Into::into).ok_or_else(|| QueryError::InvalidBookmark(Value::string(bookmark()).to_json()))
    };
    Ok(IdRange {
        from: Bound::Included(id(&keys.from)?),
        to: keys.to.as_deref().map_or(Ok(Bound::Unbounded), |to| id(to).map(Bound::Excluded))?,
    })
}
