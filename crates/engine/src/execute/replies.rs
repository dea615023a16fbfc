//! Replies that the executor writes or changes itself: refusals, tokens of leases, the position of a write
//! (CLIENT LSN), and replies that the client does not want (CLIENT REPLY).

use lsn::Lsn;
use wire::ReplyWriter;

use super::Outcome;
use crate::{CommandError, ReplyMode, Session, leases::NO_TOKEN, stats::WorkerStats};

/// Replies to a command that was refused before it ran, and counts the reply.
#[cold]
pub fn refuse(error: &CommandError, stats: &WorkerStats, session: &Session, out: &mut Vec<u8>) -> Outcome {
    let mut text = Vec::new();
    error.render(&mut text);
    stats.replied_error(&text);
    ReplyWriter::new(out, session.protocol).error(text);
    Outcome::Done { gate: Lsn::ZERO }
}

/// Writes the token of each LEASE over its placeholder in the reply.
#[cold]
pub(super) fn tell_tokens(session: &mut Session, out: &mut Vec<u8>, token: u64) {
    let token = i64::try_from(token).unwrap_or(i64::MAX);
    for at in session.granted.drain(..).rev() {
        out.splice(at..at + NO_TOKEN.len(), format!(":{token}\r\n").into_bytes());
    }
}

/// CLIENT LSN ON: puts an attribute before the reply. RESP2 has no attributes.
#[cold]
pub(super) fn tell_lsn(session: &Session, out: &mut Vec<u8>, before: usize) {
    if session.protocol == wire::Protocol::Resp3 {
        let attribute = format!("|1\r\n$3\r\nlsn\r\n:{}\r\n", session.last_write);
        out.splice(before..before, attribute.into_bytes());
    }
}

/// CLIENT REPLY OFF and SKIP: removes the reply, but not confirmations of subscriptions, which are no
/// replies.
#[cold]
pub(crate) fn silence(session: &mut Session, out: &mut Vec<u8>, before: usize) {
    match session.reply_mode {
        ReplyMode::On => {}
        ReplyMode::Off => {
            out.truncate(before);
            out.append(&mut session.confirmations);
        }
        // CLIENT REPLY SKIP itself, which has no reply.
        ReplyMode::SkipNext => session.reply_mode = ReplyMode::Skip,
        ReplyMode::Skip => {
            out.truncate(before);
            out.append(&mut session.confirmations);
            session.reply_mode = ReplyMode::On;
        }
    }
}
