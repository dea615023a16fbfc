//! Replies from bytes: a head, and a body with a length or in chunks.

use serde_json::Value;

use crate::Violation;

/// A whole reply.
pub(super) struct Reply {
    pub(super) status: u16,
    /// The cookie that the reply sets; empty if the reply removes the cookie.
    pub(super) cookie: Option<String>,
    pub(super) body: Value,
}

/// Takes a whole reply from the beginning of `received`; `None` if its end has not arrived.
///
/// # Errors
/// If the bytes are no reply.
pub(super) fn take(received: &mut Vec<u8>) -> Result<Option<Reply>, Violation> {
    let Some(end) = memchr::memmem::find(received, b"\r\n\r\n") else { return Ok(None) };
    let wrong = |what: &str| Violation::Protocol(format!("{what}: {}", received.escape_ascii()));
    let head = std::str::from_utf8(&received[..end]).map_err(|_| wrong("a head that is no text"))?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or_else(|| wrong("a reply without a status"))?;
    let (mut length, mut is_chunked, mut cookie) = (0, false, None);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        match &*name.to_ascii_lowercase() {
            "content-length" => length = value.parse().map_err(|_| wrong("a length that is no number"))?,
            "transfer-encoding" => is_chunked = value == "chunked",
            "set-cookie" => {
                let rest = value.strip_prefix("AuthSession=").ok_or_else(|| wrong("another cookie"))?;
                cookie = rest.split(';').next().map(String::from);
            }
            _ => {}
        }
    }
    let body = &received[end + 4..];
    let parts = if is_chunked {
        chunks(body)
    } else {
        (body.len() >= length).then(|| (body[..length].to_vec(), length))
    };
    let Some((body, used)) = parts else { return Ok(None) };
    let body =
        serde_json::from_slice(&body).map_err(|error| wrong(&format!("a body that is no JSON ({error})")))?;
    received.drain(..end + 4 + used);
    Ok(Some(Reply { status, cookie, body }))
}

/// The content of a body in chunks, and its length on the wire; `None` if its end has not arrived, or the
/// size of a chunk is no number.
fn chunks(body: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut content, mut at) = (Vec::new(), 0);
    loop {
        let line = memchr::memmem::find(&body[at..], b"\r\n")?;
        let size = std::str::from_utf8(&body[at..at + line]).ok()?;
        let size = usize::from_str_radix(size, 16).ok()?;
        at += line + 2;
        content.extend_from_slice(body.get(at..at + size)?);
        at += size + 2;
        if body.len() < at {
            return None;
        }
        if size == 0 {
            return Some((content, at));
        }
    }
}
