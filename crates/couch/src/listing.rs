//! `_all_docs` and similar routes: documents in the order of their ids, in ranges or by keys.

use std::{ops::Bound, sync::Arc};

use documents::{
    AllDocs, Database, Direction, DocError, DocInfo, Found, IdRange, Snapshot, json::put_string,
};
use http::StatusCode;
use serde_json::{Map, Value};

use super::{
    body::{Broken, ChunkWriter, chunks},
    failure::Failure,
    ids::seq_text,
    query::Query,
    reply::{self, Reply},
    request::{Call, only},
    show::{Show, send_document},
};

/// The maximum number of queries in one request to `_all_docs/queries`.
const QUERIES_MAX: usize = 1000;

/// Skipped rows between two yields to other connections.
const SKIPPED_MAX: u64 = 1024;

/// Parameters that may be given in a body as well as in the query string.
const PARAMETERS: &[&str] = &[
    "conflicts",
    "descending",
    "endkey",
    "end_key",
    "include_docs",
    "attachments",
    "inclusive_end",
    "key",
    "keys",
    "limit",
    "skip",
    "startkey",
    "start_key",
    "update_seq",
];

/// The parameters of a list.
struct Listing {
    range: IdRange,
    keys: Option<Vec<Value>>,
    direction: Direction,
    skip: u64,
    limit: u64,
    include_docs: bool,
    show: Show,
    update_seq: bool,
}

impl Listing {
    /// Parses the parameters of a list of the ids with this prefix.
    fn of(query: &Query, prefix: &str) -> Result<Listing, Failure> {
        let descending = query.flag("descending")?;
        let direction = if descending { Direction::Descending } else { Direction::Ascending };
        let keys = match query.json::<Value>("keys")? {
            None => None,
            Some(Value::Array(keys)) => Some(keys),
            Some(_) => return Err(Failure::bad_request("`keys` member must be an array.")),
        };
        let inclusive_end = query.flag_or("inclusive_end", true)?;
        let key = query.any_json(&["key"])?;
        let start = key.clone().or(query.any_json(&["startkey", "start_key"])?);
        let is_key = key.is_some();
        let end = key.or(query.any_json(&["endkey", "end_key"])?);
        let (low, high) = if descending && !is_key { (end, start) } else { (start, end) };
        let (low_included, high_included) =
            if descending && !is_key { (inclusive_end, true) } else { (true, inclusive_end || is_key) };
        let range = IdRange { from: lowest(low, low_included), to: highest(high, high_included) };
        let show = Show {
            conflicts: query.flag("conflicts")?,
            attachments: query.flag("attachments")?,
            ..Show::default()
        };
        Ok(Listing {
            range: within(range, prefix),
            keys,
            direction,
            skip: query.count("skip")?.unwrap_or(0),
            limit: query.count("limit")?.unwrap_or(u64::MAX),
            include_docs: query.flag("include_docs")?,
            show,
            update_seq: query.flag("update_seq")?,
        })
    }
}

/// The lower end of a range. Null, booleans and numbers sort before all ids; arrays and objects after them.
fn lowest(key: Option<Value>, included: bool) -> Bound<Arc<str>> {
    match key {
        Some(Value::String(id)) => bound(&id, included),
        // No id is greater than this one, which repeats the largest character until the id has its maximum
        // length.
        Some(Value::Array(_) | Value::Object(_)) => Bound::Excluded(char::MAX.to_string().repeat(512).into()),
        _ => Bound::Unbounded,
    }
}

fn highest(key: Option<Value>, included: bool) -> Bound<Arc<str>> {
    match key {
        Some(Value::String(id)) => bound(&id, included),
        None | Some(Value::Array(_) | Value::Object(_)) => Bound::Unbounded,
        // No id is before the empty text.
        Some(_) => Bound::Excluded("".into()),
    }
}

fn bound(id: &str, included: bool) -> Bound<Arc<str>> {
    if included { Bound::Included(id.into()) } else { Bound::Excluded(id.into()) }
}

/// The part of a range with ids of this prefix. A non-empty prefix ends with a slash, and `0` is the
/// character after the slash.
fn within(range: IdRange, prefix: &str) -> IdRange {
    let Some(rest) = prefix.strip_suffix('/') else { return range };
    let IdRange { from, to } = range;
    let is_below = |bound: &Bound<Arc<str>>| match bound {
        Bound::Included(id) | Bound::Excluded(id) => **id < *prefix,
        Bound::Unbounded => true,
    };
    let behind: Arc<str> = format!("{rest}0").into();
    let from = if is_below(&from) { Bound::Included(prefix.into()) } else { from };
    let to = match to {
        Bound::Included(id) if id < behind => Bound::Included(id),
        Bound::Excluded(id) if id < behind => Bound::Excluded(id),
        _ => Bound::Excluded(behind),
    };
    IdRange { from, to }
}

/// Serves `/DB/_all_docs` and `/DB/_design_docs`; `prefix` limits the list to ids that begin with it.
pub(super) async fn all_docs(
    call: &mut Call,
    database: &Arc<Database>,
    prefix: &'static str,
) -> Result<Reply, Failure> {
    only(&call.head, "GET,HEAD,POST")?;
    if call.method() == "POST" {
        call.require_json()?;
        let body = call.small_body().await?;
        if !body.is_empty() {
            let body: Map<String, Value> = serde_json::from_slice(&body)
                .map_err(|error| if error.is_data() { not_an_object() } else { Failure::INVALID_JSON })?;
            take_parameters(&mut call.query, &body);
        }
    }
    let listing = Listing::of(&call.query, prefix)?;
    let snapshot = call.snapshot(database).await?;
    let body = chunks(&call.idle_timer, async move |mut writer: ChunkWriter| {
        send_listing(&mut writer, &snapshot, listing).await?;
        writer.buffer.push(b'\n');
        writer.send().await
    });
    Ok(reply::json(StatusCode::OK, body))
}

fn not_an_object() -> Failure {
    Failure::bad_request("Request body must be a JSON object")
}

/// Adds the parameters of the body to the query; they take precedence over those of the query string.
fn take_parameters(query: &mut Query, body: &Map<String, Value>) {
    for (name, value) in body.iter().filter(|(name, _)| PARAMETERS.contains(&name.as_str())) {
        query.put_first(name, value.to_string());
    }
}

/// Serves `POST /DB/_all_docs/queries`
pub(super) async fn queries(call: &mut Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    only(&call.head, "POST")?;
    call.require_json()?;
    let body = call.json_object().await?;
    let queries = match body.get("queries") {
        Some(Value::Array(queries)) if queries.len() <= QUERIES_MAX => queries,
        Some(Value::Array(_)) => return Err(Failure::TooLarge),
        Some(_) => return Err(Failure::bad_request("`queries` member must be an array.")),
        None => return Err(Failure::bad_request("POST body must include `queries` parameter.")),
    };
    let mut listings = Vec::with_capacity(queries.len());
    for query in queries {
        let body = query.as_object().ok_or_else(not_an_object)?;
        let mut query = Query::default();
        take_parameters(&mut query, body);
        listings.push(Listing::of(&query, "")?);
    }
    let snapshot = call.snapshot(database).await?;
    let body = chunks(&call.idle_timer, async move |mut writer: ChunkWriter| {
        writer.buffer.extend_from_slice(b"{\"results\":[");
        for (index, listing) in listings.into_iter().enumerate() {
            if index > 0 {
                writer.buffer.push(b',');
            }
            send_listing(&mut writer, &snapshot, listing).await?;
        }
        writer.buffer.extend_from_slice(b"]}\n");
        writer.send().await
    });
    Ok(reply::json(StatusCode::OK, body))
}

async fn send_listing(writer: &mut ChunkWriter, snapshot: &Snapshot, listing: Listing) -> Result<(), Broken> {
    let total = snapshot.info().sums.documents;
    writer.put(format_args!("{{\"total_rows\":{total}"));
    if listing.update_seq {
        writer.put(format_args!(",\"update_seq\":\"{}\"", seq_text(snapshot.update_seq(), snapshot.db())));
    }
    // The number of rows before a range is unknown, and with keys it is undefined.
    let is_from_start = listing.keys.is_none() && listing.range == IdRange::ALL;
    match listing.skip.min(total) {
        skip if is_from_start => writer.put(format_args!(",\"offset\":{skip}")),
        _ => writer.buffer.extend_from_slice(b",\"offset\":null"),
    }
    writer.buffer.extend_from_slice(b",\"rows\":[\n");
    match &listing.keys {
        Some(keys) => send_keys(writer, snapshot, &listing, keys).await?,
        None => {
            let rows = snapshot.all_docs(listing.range.clone(), listing.direction);
            send_range(writer, snapshot, &listing, rows).await?;
        }
    }
    writer.buffer.extend_from_slice(b"\n]}");
    Ok(())
}

async fn send_range(
    writer: &mut ChunkWriter,
    snapshot: &Snapshot,
    listing: &Listing,
    mut rows: AllDocs,
) -> Result<(), Broken> {
    for skipped in 0..listing.skip {
        match rows.next() {
            Some(row) => drop(row?),
            None => return Ok(()),
        }
        if skipped % SKIPPED_MAX == SKIPPED_MAX - 1 {
            writer.rest().await?;
        }
    }
    let mut left = listing.limit;
    let mut is_first = true;
    while left > 0
        && let Some(info) = rows.next()
    {
        left -= 1;
        if !std::mem::take(&mut is_first) {
            writer.buffer.extend_from_slice(b",\n");
        }
        send_row(writer, snapshot, listing, &info?).await?;
    }
    Ok(())
}

async fn send_keys(
    writer: &mut ChunkWriter,
    snapshot: &Snapshot,
    listing: &Listing,
    keys: &[Value],
) -> Result<(), Broken> {
    let (skip, limit) = (listing.skip as usize, usize::try_from(listing.limit).unwrap_or(usize::MAX));
    let in_order: Box<dyn Iterator<Item = &Value>> = match listing.direction {
        Direction::Ascending => Box::new(keys.iter()),
        Direction::Descending => Box::new(keys.iter().rev()),
    };
    for (index, key) in in_order.skip(skip).take(limit).enumerate() {
        if index > 0 {
            writer.buffer.extend_from_slice(b",\n");
        }
        let info = key.as_str().map(|id| snapshot.document(id)).transpose()?.flatten();
        match info {
            Some(info) => send_row(writer, snapshot, listing, &info).await?,
            None => {
                writer.buffer.extend_from_slice(b"{\"key\":");
                reply::write_json(&mut writer.buffer, key);
                writer.buffer.extend_from_slice(b",\"error\":\"not_found\"}");
                writer.breathe().await?;
            }
        }
    }
    Ok(())
}

async fn send_row(
    writer: &mut ChunkWriter,
    snapshot: &Snapshot,
    listing: &Listing,
    info: &Arc<DocInfo>,
) -> Result<(), Broken> {
    let Some((rev, leaf)) = info.revs.winner() else { return Err(DocError::Missing.into()) };
    writer.buffer.extend_from_slice(b"{\"id\":");
    put_string(&mut writer.buffer, &info.id);
    writer.buffer.extend_from_slice(b",\"key\":");
    put_string(&mut writer.buffer, &info.id);
    let deleted = if leaf.deleted { ",\"deleted\":true" } else { "" };
    writer.put(format_args!(",\"value\":{{\"rev\":\"{rev}\"{deleted}}}"));
    if listing.include_docs {
        writer.buffer.extend_from_slice(b",\"doc\":");
        match Found::new(info.clone(), rev) {
            Some(found) if !leaf.deleted => send_document(writer, snapshot, &found, &listing.show).await?,
            _ => writer.buffer.extend_from_slice(b"null"),
        }
    }
    writer.buffer.push(b'}');
    writer.breathe().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(query: &str, prefix: &str) -> IdRange {
        Listing::of(&Query::parse(Some(query)).unwrap(), prefix).unwrap().range
    }

    fn ids(from: Bound<&str>, to: Bound<&str>) -> IdRange {
        let owned = |bound: Bound<&str>| bound.map(Arc::from);
        IdRange { from: owned(from), to: owned(to) }
    }

    #[test]
    fn keys_become_bounds_in_either_direction() {
        use Bound::{Excluded, Included, Unbounded};
        assert_eq!(range("", ""), IdRange::ALL);
        assert_eq!(range("startkey=\"b\"&endkey=\"d\"", ""), ids(Included("b"), Included("d")));
        assert_eq!(
            range("start_key=\"b\"&end_key=\"d\"&inclusive_end=false", ""),
            ids(Included("b"), Excluded("d"))
        );
        assert_eq!(
            range("startkey=\"d\"&endkey=\"b\"&descending=true&inclusive_end=false", ""),
            ids(Excluded("b"), Included("d"))
        );
        assert_eq!(
            range("key=\"b\"&descending=true&inclusive_end=false", ""),
            ids(Included("b"), Included("b"))
        );
        assert_eq!(range("startkey=null&endkey={}", ""), ids(Unbounded, Unbounded));
        assert_eq!(range("endkey=7", ""), ids(Unbounded, Excluded("")));
    }

    #[test]
    fn a_prefix_cuts_a_range() {
        use Bound::{Excluded, Included};
        let prefix = "_design/";
        assert_eq!(range("", prefix), ids(Included(prefix), Excluded("_design0")));
        assert_eq!(range("startkey=\"_design/b\"", prefix), ids(Included("_design/b"), Excluded("_design0")));
        assert_eq!(
            range("startkey=\"_c\"&endkey=\"_design/c\"", prefix),
            ids(Included(prefix), Included("_design/c"))
        );
        assert_eq!(range("endkey=\"z\"", prefix), ids(Included(prefix), Excluded("_design0")));
    }
}
