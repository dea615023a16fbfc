//! The requests of PouchDB's first pull of a database: changes in batches of 100, their documents, and a
//! checkpoint per batch. Only the requests and their order are reproduced, not PouchDB's own work, which
//! takes longer than most servers'.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::{
    documents::{Store, client::Client},
    failure::Failure,
};

/// Number of changes per request, as in PouchDB.
const BATCH: usize = 100;
const CHECKPOINT: &str = "/_local/bench-pull";

/// Pulls all documents and checks them. Returns their number.
pub fn run(client: &mut Client, store: &Store) -> Result<u64, Failure> {
    client.page("/")?;
    client.expect(200, "GET", "", b"")?;
    client.expect(200, "GET", "", b"")?;
    client.expect(404, "GET", CHECKPOINT, b"")?;
    let (mut since, mut pulled, mut rev) = (json!(0), HashSet::new(), Value::Null);
    loop {
        let path = format!("/_changes?style=all_docs&since={}&limit={BATCH}", in_query(&since));
        let changes = client.expect(200, "GET", &path, b"")?;
        let rows = changes["results"].as_array().filter(|rows| rows.len() <= BATCH);
        let rows = rows.ok_or_else(|| Failure::Wrong("_changes without results".to_owned()))?;
        if rows.is_empty() {
            break;
        }
        pull_documents(client, store, rows, &mut pulled)?;
        since = changes["last_seq"].clone();
        rev = write_checkpoint(client, &since, &rev)?;
    }
    let expected = store.revisions.confirmed();
    if pulled.len() as u64 != expected {
        return Err(Failure::Wrong(format!("{} documents pulled of {expected}", pulled.len())));
    }
    Ok(expected)
}

/// A sequence in the form of a query parameter: text without quotes.
fn in_query(seq: &Value) -> String {
    seq.as_str().map_or_else(|| seq.to_string(), str::to_owned)
}

fn pull_documents(
    client: &mut Client,
    store: &Store,
    rows: &[Value],
    pulled: &mut HashSet<u64>,
) -> Result<(), Failure> {
    let wanted: Vec<Value> =
        rows.iter().map(|row| json!({"id": row["id"], "rev": row["changes"][0]["rev"]})).collect();
    let body = json!({ "docs": wanted }).to_string();
    let answer = client.expect(200, "POST", "/_bulk_get?revs=true&latest=true", body.as_bytes())?;
    for (at, wanted) in wanted.iter().enumerate() {
        let document = &answer["results"][at]["docs"][0]["ok"];
        let number = document["_id"].as_str().and_then(|id| store.corpus.ids.number(id));
        let is_right = document["_id"] == wanted["id"]
            && document["_rev"] == wanted["rev"]
            && document["_revisions"]["start"] == 1
            && number.is_some_and(|number| store.holds(number, document) && pulled.insert(number));
        if !is_right {
            return Err(Failure::Wrong(format!("_bulk_get of {wanted}: {document}")));
        }
    }
    Ok(())
}

fn write_checkpoint(client: &mut Client, seq: &Value, rev: &Value) -> Result<Value, Failure> {
    let mut checkpoint = json!({
        "session_id": "bench",
        "last_seq": seq,
        "history": [{"session_id": "bench", "last_seq": seq}],
        "replicator": "pouchdb",
        "version": 1,
    });
    if !rev.is_null() {
        checkpoint["_rev"] = rev.clone();
    }
    let answer = client.expect(201, "PUT", CHECKPOINT, checkpoint.to_string().as_bytes())?;
    Ok(answer["rev"].clone())
}
