//! The output forms of a feed, its heartbeats and its timeout.

use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use tokio::time::Instant;

use super::super::{
    body::{Body, ChunkWriter},
    failure::Failure,
    query::{Query, quoted},
    reply::{self, Reply},
};

/// Default milliseconds between heartbeats, and until a feed without heartbeats ends.
const PERIOD_MS: u64 = 60_000;
/// The shortest period of heartbeats.
const HEARTBEAT_MS_MIN: u64 = 10;
/// The longest timeout of a feed without heartbeats, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 60_000;

/// The output form of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Form {
    /// The existing changes.
    Normal,
    /// The existing changes; if there are none, the feed waits for the next ones.
    Longpoll,
    /// One line per change; the feed goes on with later changes.
    Continuous,
    /// One server-sent event per change; the feed goes on with later changes.
    EventSource,
}

impl Form {
    pub(in super::super) fn of(query: &Query) -> Result<Form, Failure> {
        match query.text("feed") {
            None | Some("" | "normal") => Ok(Form::Normal),
            Some("longpoll") => Ok(Form::Longpoll),
            Some("continuous" | "live") => Ok(Form::Continuous),
            Some("eventsource") => Ok(Form::EventSource),
            Some(_) => {
                let known = "Supported `feed` types: normal, continuous, live, longpoll, eventsource";
                Err(Failure::bad_request(known))
            }
        }
    }

    fn is_list(self) -> bool {
        matches!(self, Form::Normal | Form::Longpoll)
    }

    /// The reply with a body of this form.
    pub(in super::super) fn reply(self, body: Body) -> Reply {
        let mut reply = reply::json(StatusCode::OK, body);
        if self == Form::EventSource {
            let headers = reply.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        reply
    }

    /// Writes the start of the body.
    pub(in super::super) fn open(self, writer: &mut ChunkWriter) {
        if self.is_list() {
            writer.buffer.extend_from_slice(b"{\"results\":[\n");
        }
    }

    /// Writes the text before a row.
    pub(super) fn begin_row(self, writer: &mut ChunkWriter, is_first: &mut bool) {
        match self {
            Form::Normal | Form::Longpoll if !*is_first => writer.buffer.extend_from_slice(b",\n"),
            Form::EventSource => writer.buffer.extend_from_slice(b"data: "),
            _ => {}
        }
        *is_first = false;
    }

    /// Writes the text after a row.
    pub(super) fn end_row(self, writer: &mut ChunkWriter, seq: &str) {
        match self {
            Form::Normal | Form::Longpoll => {}
            Form::Continuous => writer.buffer.push(b'\n'),
            Form::EventSource => writer.put(format_args!("\nid: {seq}\n\n")),
        }
    }

    /// Writes a row that is rendered already.
    pub(in super::super) fn put_row(
        self,
        writer: &mut ChunkWriter,
        is_first: &mut bool,
        row: &[u8],
        seq: &str,
    ) {
        self.begin_row(writer, is_first);
        writer.buffer.extend_from_slice(row);
        self.end_row(writer, seq);
    }

    pub(in super::super) fn put_heartbeat(self, writer: &mut ChunkWriter) {
        let beat: &[u8] = if self == Form::EventSource { b"event: heartbeat\ndata: \n\n" } else { b"\n" };
        writer.buffer.extend_from_slice(beat);
    }

    /// Writes the end of the body.
    pub(in super::super) fn close(self, writer: &mut ChunkWriter, last_seq: &str, pending: u64) {
        match self {
            Form::Normal | Form::Longpoll => {
                writer.put(format_args!("\n],\n\"last_seq\":\"{last_seq}\",\"pending\":{pending}}}\n"));
            }
            Form::Continuous => {
                writer.put(format_args!("{{\"last_seq\":\"{last_seq}\",\"pending\":{pending}}}\n"));
            }
            Form::EventSource => {}
        }
    }
}

/// The behaviour of a feed without changes: heartbeats, or an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Beat {
    /// Period of heartbeats; a feed with heartbeats has no timeout.
    pub(in super::super) heartbeat: Option<Duration>,
    /// Time after which a feed without heartbeats ends.
    pub(in super::super) timeout: Duration,
}

impl Beat {
    pub(in super::super) fn of(query: &Query) -> Result<Beat, Failure> {
        let heartbeat_ms = match query.text("heartbeat") {
            None | Some("false") => None,
            Some("true" | "") => Some(PERIOD_MS),
            Some(text) => match text.parse::<u64>() {
                Ok(ms) if ms > 0 => Some(ms.max(HEARTBEAT_MS_MIN)),
                Ok(_) => {
                    let reason = "The heartbeat value should be a positive integer (in milliseconds).";
                    return Err(Failure::bad_request(reason));
                }
                Err(_) => {
                    let reason = format!(
                        "Invalid heartbeat value. Expecting a positive integer value \
                                          (in milliseconds). Got: {}",
                        quoted(text)
                    );
                    return Err(Failure::bad_request(reason));
                }
            },
        };
        let timeout_ms = query.count("timeout")?.unwrap_or(PERIOD_MS).min(TIMEOUT_MS_MAX);
        Ok(Beat {
            // Durations beyond 32 bits of milliseconds (49 days) are useless, and could overflow the clock.
            heartbeat: heartbeat_ms.map(|ms| Duration::from_millis(ms.min(u64::from(u32::MAX)))),
            timeout: Duration::from_millis(timeout_ms),
        })
    }

    /// The time of the next heartbeat, or of the timeout.
    pub(in super::super) fn next(self) -> Instant {
        Instant::now() + self.heartbeat.unwrap_or(self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_and_timeouts_have_bounds() {
        let beat = |query: &str| {
            let beat = Beat::of(&Query::parse(Some(query))?)?;
            Ok((beat.heartbeat.map(|it| it.as_millis()), beat.timeout.as_millis()))
        };
        assert_eq!(beat(""), Ok((None, 60_000)));
        assert_eq!(beat("heartbeat=true&timeout=5"), Ok((Some(60_000), 5)));
        assert_eq!(beat("heartbeat=1&timeout=999999999999"), Ok((Some(10), 60_000)));
        assert!(beat("heartbeat=0").is_err() && beat("heartbeat=x").is_err() && beat("timeout=x").is_err());
        let _: Failure = beat("heartbeat=-5").expect_err("below zero");
    }
}
