//! Filters of a changes feed.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use documents::{
    ChangeRow, DESIGN_PREFIX, Database, DocError, Found, Pick, Snapshot,
    mango::{Selector, Value},
};

use super::super::{
    failure::Failure,
    request::Call,
    show::{Show, put_document},
};

/// Selects the documents of a feed.
pub(super) enum Filter {
    /// All documents.
    None,
    /// Documents with these ids.
    Ids(HashSet<String>),
    /// Documents that a Mango selector matches.
    Selector(Selector),
    /// Design documents only.
    Design,
}

impl Filter {
    /// The filter named by a request, with its parameters.
    pub(super) async fn of(call: &mut Call, database: &Arc<Database>) -> Result<Filter, Failure> {
        let body = if call.method() == "POST" {
            call.require_json()?;
            call.small_body().await?
        } else {
            Bytes::new()
        };
        let text = std::str::from_utf8(&body).map_err(|_| Failure::INVALID_JSON)?;
        let body = if text.is_empty() { Value::Null } else { Value::parse(text).map_err(DocError::from)? };
        match call.query.text("filter") {
            // `doc_ids` in the body are a filter even without its name.
            None if body.get("doc_ids").is_some() => ids(call, &body),
            None | Some("") => Ok(Filter::None),
            Some("_doc_ids") => ids(call, &body),
            Some("_selector") => {
                let selector = body.get("selector");
                let selector = selector
                    .ok_or_else(|| Failure::bad_request("Selector must be specified in POST payload"))?;
                Ok(Filter::Selector(Selector::parse(selector).map_err(DocError::from)?))
            }
            Some("_design") => Ok(Filter::Design),
            Some("_view") => Err(IN_JAVASCRIPT),
            Some(name) => {
                let Some((design, _)) = name.split_once('/') else {
                    return Err(Failure::bad_request("`filter` must be of the form `designname/filtername`"));
                };
                let design = format!("{DESIGN_PREFIX}{design}");
                call.snapshot(database).await?.open(&design, Pick::Winner)?;
                Err(IN_JAVASCRIPT)
            }
        }
    }

    /// Whether a change passes the filter.
    pub(super) fn takes(&self, row: &ChangeRow, snapshot: &Snapshot) -> Result<bool, DocError> {
        Ok(match self {
            Filter::None => true,
            Filter::Ids(ids) => ids.contains(&*row.id),
            Filter::Selector(selector) => matches(selector, row, snapshot)?,
            Filter::Design => row.id.starts_with(DESIGN_PREFIX),
        })
    }
}

fn matches(selector: &Selector, row: &ChangeRow, snapshot: &Snapshot) -> Result<bool, DocError> {
    let info = snapshot.document(&row.id)?.ok_or(DocError::Missing)?;
    let winner = row.leaves.first().and_then(|rev| Found::new(info, *rev)).ok_or(DocError::Missing)?;
    let mut text = Vec::new();
    put_document(&mut text, snapshot, &winner, &Show::default())?;
    let text = std::str::from_utf8(&text).map_err(|_| STORED_BADLY)?;
    Ok(selector.matches(&Value::parse_stored(text)?))
}

const IN_JAVASCRIPT: Failure =
    Failure::NotImplemented("Filters in JavaScript are not run: use _doc_ids or _selector");
const STORED_BADLY: DocError = DocError::bad_request("a document that was stored is not a text");

fn ids(call: &Call, body: &Value<'_>) -> Result<Filter, Failure> {
    let invalid = || Failure::bad_request("`doc_ids` parameter must be a list of texts");
    let ids: HashSet<String> = match (body.get("doc_ids"), call.query.json::<Vec<String>>("doc_ids")?) {
        (Some(ids), _) => {
            let texts = ids.as_array().ok_or_else(invalid)?.iter();
            texts.map(|id| id.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(invalid)?
        }
        (None, Some(ids)) => ids.into_iter().collect(),
        (None, None) => return Err(Failure::bad_request("`doc_ids` parameter is missing")),
    };
    Ok(Filter::Ids(ids))
}
