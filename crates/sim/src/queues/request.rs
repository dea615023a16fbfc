//! The requests of queue clients, and the facts in their replies. The consequences are judged in `ledger`.

use wire::Value;

use crate::{Violation, command::request, ledger::Element, oracle::is_refusal};

#[derive(Debug, Clone)]
pub(super) enum Request {
    Push { at_head: bool, queue: u64, elements: Vec<Element> },
    Pop { at_head: bool, queues: Vec<u64>, timeout_ms: u64 },
    Take(u64),
    Move { from: u64, to: u64, timeout_ms: u64 },
    Unblock(u64),
    Kill(u64),
}

impl Request {
    /// Appends the request.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let seconds = |ms: u64| format!("{}.{:03}", ms / 1000, ms % 1000);
        let words: Vec<String> = match self {
            Request::Push { at_head, queue, elements } => {
                let name = if *at_head { "LPUSH" } else { "RPUSH" };
                let elements = elements.iter().map(Element::to_string);
                [name.to_string(), key(*queue)].into_iter().chain(elements).collect()
            }
            Request::Pop { at_head, queues, timeout_ms } => {
                let name = if *at_head { "BLPOP" } else { "BRPOP" };
                let keys = queues.iter().map(|queue| key(*queue));
                [name.to_string()].into_iter().chain(keys).chain([seconds(*timeout_ms)]).collect()
            }
            Request::Take(queue) => vec!["LPOP".into(), key(*queue)],
            Request::Move { from, to, timeout_ms } => {
                vec!["BRPOPLPUSH".into(), key(*from), key(*to), seconds(*timeout_ms)]
            }
            Request::Unblock(id) => vec!["CLIENT".into(), "UNBLOCK".into(), id.to_string()],
            Request::Kill(id) => vec!["CLIENT".into(), "KILL".into(), "ID".into(), id.to_string()],
        };
        request(out, &words.iter().map(String::as_bytes).collect::<Vec<_>>());
    }

    /// The queues on which this request blocks.
    pub(super) fn queues(&self) -> &[u64] {
        match self {
            Request::Pop { queues, .. } => queues,
            Request::Move { from, .. } => std::slice::from_ref(from),
            _ => &[],
        }
    }
}

pub(super) fn key(queue: u64) -> String {
    format!("queue-{queue}")
}

/// The fact that becomes certain when a reply is delivered.
#[derive(Debug)]
pub(super) enum Fact {
    Pushed(Vec<Element>),
    Popped(Element),
    Nothing,
}

pub(super) fn fact(request: Request, reply: &Value) -> Result<Fact, Violation> {
    let popped = |value: &Value| match value {
        Value::Bulk(bytes) => number(bytes).map(Fact::Popped),
        _ => None,
    };
    let fact = match (&request, reply) {
        (_, refusal) if is_refusal(refusal) => Some(Fact::Nothing),
        // The wait timed out, or CLIENT UNBLOCK ended it, or LPOP found no element.
        (Request::Pop { .. } | Request::Move { .. } | Request::Take(_), Value::Null) => Some(Fact::Nothing),
        (Request::Pop { .. } | Request::Move { .. }, Value::Error(text))
            if text.starts_with(b"UNBLOCKED") =>
        {
            Some(Fact::Nothing)
        }
        (Request::Push { elements, .. }, Value::Integer(_)) => Some(Fact::Pushed(elements.clone())),
        (Request::Pop { .. }, Value::Array(parts)) => parts.get(1).and_then(popped),
        (Request::Take(_), value) => popped(value),
        (Request::Move { .. }, Value::Bulk(_)) => Some(Fact::Nothing),
        (Request::Unblock(_) | Request::Kill(_), Value::Integer(_)) => Some(Fact::Nothing),
        _ => None,
    };
    fact.ok_or_else(|| unexpected(&request, reply))
}

pub(super) fn unexpected(request: &Request, reply: &Value) -> Violation {
    Violation::Protocol(format!("{request:?} replied {reply:?}"))
}

/// Parses an element.
pub(super) fn number(bytes: &[u8]) -> Option<Element> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
