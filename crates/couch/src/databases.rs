//! Routes over all databases: lists, information, and the feed of created, changed and deleted databases.

use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::Duration};

use documents::{Database, DbId};
use http::StatusCode;
use lsn::Lsn;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    access,
    body::{ChunkWriter, chunks},
    changes::{Beat, Form},
    database::described,
    failure::Failure,
    reply::{self, Reply},
    request::{Call, only},
    security::check_member,
};
use crate::Host;

/// The maximum number of databases in one request of `_dbs_info`.
const DESCRIBED_MAX: usize = 100;

/// The databases selected by the parameters of a list.
fn names(call: &Call) -> Result<Vec<Arc<Database>>, Failure> {
    let text = |names: &[&str]| -> Result<Option<String>, Failure> {
        Ok(call.query.any_json(names)?.and_then(|key| key.as_str().map(str::to_owned)))
    };
    let key = text(&["key"])?;
    let mut first = key.clone().or(text(&["startkey", "start_key"])?);
    let mut last = key.or(text(&["endkey", "end_key"])?);
    let descending = call.query.flag("descending")?;
    if descending {
        std::mem::swap(&mut first, &mut last);
    }
    let inclusive_end = call.query.flag_or("inclusive_end", true)?;
    let bound = |name: Option<String>, included: bool| match name {
        None => Bound::Unbounded,
        Some(name) if included => Bound::Included(name),
        Some(name) => Bound::Excluded(name),
    };
    let range = (bound(first, !descending || inclusive_end), bound(last, descending || inclusive_end));
    let mut found = call.thread.documents().all();
    found.retain(|database| std::ops::RangeBounds::<String>::contains(&range, &database.name().to_string()));
    if descending {
        found.reverse();
    }
    let skip = call.query.count("skip")?.unwrap_or(0) as usize;
    let limit = call.query.count("limit")?.map_or(usize::MAX, |limit| limit as usize);
    Ok(found.into_iter().skip(skip).take(limit).collect())
}

/// Serves `/_all_dbs`
pub(super) async fn all_dbs(call: &Call) -> Result<Reply, Failure> {
    only(&call.head, "GET,HEAD")?;
    call.user.require_admin()?;
    let found = call.thread.read(|| Ok((names(call)?, call.thread.documents().names_lsn()))).await?;
    let names: Vec<&str> = found.iter().map(|database| &**database.name()).collect();
    Ok(reply::value(StatusCode::OK, &names))
}

/// Serves `/_dbs_info`
pub(super) async fn dbs_info(call: &mut Call) -> Result<Reply, Failure> {
    only(&call.head, "GET,HEAD,POST")?;
    let keys = if call.method() == "POST" {
        call.require_json()?;
        let mut body = call.json_object().await?;
        let Some(Value::Array(keys)) = body.remove("keys") else {
            return Err(Failure::bad_request("`keys` member must exist."));
        };
        if keys.len() > DESCRIBED_MAX {
            return Err(Failure::bad_request("`keys` can contain at most 100 elements"));
        }
        Some(keys)
    } else {
        call.user.require_admin()?;
        None
    };
    let host = call.thread.host();
    let row_of = |key: Value| {
        let found = key.as_str().and_then(|name| call.thread.documents().database(name).ok());
        match found.filter(|database| check_member(&call.user, database).is_ok()) {
            Some(database) => row(host, &database),
            None => json!({ "key": key, "error": "not_found" }),
        }
    };
    let read = || {
        let rows: Vec<Value> = match keys {
            Some(keys) => keys.into_iter().map(row_of).collect(),
            None => names(call)?.iter().map(|database| row(host, database)).collect(),
        };
        Ok((rows, call.thread.shown_lsn()?))
    };
    let rows = call.thread.read(read).await?;
    Ok(reply::value(StatusCode::OK, &rows))
}

fn row(host: &Host, database: &Arc<Database>) -> Value {
    json!({ "key": &**database.name(), "info": described(host, database, &database.snapshot()) })
}

/// The id and update sequence of each database at the last scan.
type Reported = BTreeMap<Arc<str>, (DbId, u64)>;

/// `/_db_updates`: the feed of created, changed and deleted databases. Its sequences are positions of the
/// log.
pub(super) async fn db_updates(call: &Call) -> Result<Reply, Failure> {
    only(&call.head, "GET,HEAD")?;
    call.user.require_admin()?;
    let form = Form::of(&call.query)?;
    let beat = Beat::of(&call.query)?;
    call.thread.read(|| Ok(((), Lsn::ZERO))).await?;
    let since = match call.query.text("since") {
        None | Some("" | "0") => 0,
        Some("now") => call.thread.shown_lsn()?.get(),
        Some(text) => text.trim_matches('"').parse().map_err(|_| Failure::bad_request("Malformed since."))?,
    };
    let (thread, user) = (call.thread.clone(), access::begin_follow(&call.thread, &call.user));
    let body = chunks(&call.idle_timer, async move |mut writer: ChunkWriter| {
        let (mut news, mut rights) =
            (thread.feeds().subscribe_to_all(), thread.feeds().subscribe_to_rights());
        let mut told = Reported::new();
        let (mut since, mut is_first, mut is_begun) = (since, true, false);
        form.open(&mut writer);
        loop {
            news.mark_unchanged();
            rights.mark_unchanged();
            if !access::still(&thread, &user).is_some_and(|user| user.is_admin) {
                break;
            }
            let position = thread.shown_lsn()?;
            let rows = updates(&thread.documents().all(), &mut told, since, is_begun);
            thread.committed(position).await?;
            let found = !rows.is_empty();
            for (name, kind) in rows {
                let row = json!({ "db_name": &*name, "type": kind, "seq": position.get().to_string() });
                form.put_row(
                    &mut writer,
                    &mut is_first,
                    row.to_string().as_bytes(),
                    &position.get().to_string(),
                );
                writer.breathe().await?;
            }
            (since, is_begun) = (position.get(), true);
            if form == Form::Normal || form == Form::Longpoll && found {
                break;
            }
            writer.send().await?;
            // As in CouchDB, the timeout begins anew with each change.
            let (heartbeat, deadline) = (beat.next(), Instant::now() + beat.timeout);
            let time_left = access::time_left(&thread, &user);
            tokio::select! {
                biased;
                () = sleep(time_left.unwrap_or_default()), if time_left.is_some() => break,
                _ = news.changed() => sleep(GATHER).await,
                Ok(()) = rights.changed() => sleep(GATHER).await,
                () = sleep_until(heartbeat), if beat.heartbeat.is_some() => form.put_heartbeat(&mut writer),
                () = sleep_until(deadline), if beat.heartbeat.is_none() => break,
                () = thread.stopping() => break,
                () = writer.gone() => break,
            }
        }
        form.close(&mut writer, &since.to_string(), 0);
        writer.send().await
    });
    Ok(form.reply(body))
}

/// Pause after a change before the next scan: each scan visits all databases.
const GATHER: Duration = Duration::from_millis(50);

/// The events since the state `told`, which this function replaces by the current state. In the first call
/// (`is_begun` false): the changes after `since`.
fn updates(
    databases: &[Arc<Database>],
    told: &mut Reported,
    since: u64,
    is_begun: bool,
) -> Vec<(Arc<str>, &'static str)> {
    let mut rows = Vec::new();
    let mut now = Reported::new();
    for database in databases {
        let (name, id, snapshot) = (database.name(), database.id(), database.snapshot());
        let is_new = told.get(name).is_none_or(|(known, _)| *known != id);
        let has_changed = told.get(name).is_none_or(|(_, seq)| *seq != snapshot.update_seq());
        if is_begun && is_new || !is_begun && id.get() > since {
            rows.push((name.clone(), "created"));
        }
        if !is_begun && snapshot.last_lsn().get() > since && snapshot.update_seq() > 0
            || is_begun && has_changed && snapshot.update_seq() > 0
        {
            rows.push((name.clone(), "updated"));
        }
        now.insert(name.clone(), (id, snapshot.update_seq()));
    }
    let gone = told.keys().filter(|name| !now.contains_key(*name));
    rows.extend(gone.map(|name| (name.clone(), "deleted")));
    *told = now;
    rows
}
