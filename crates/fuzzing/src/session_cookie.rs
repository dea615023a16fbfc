//! Arbitrary text as the cookie of a session: no panic.

use crate::{Outcome, Seed};

/// Decodes a cookie. Accepts one of the right form, also with a wrong signature.
pub fn session_cookie(bytes: &[u8]) -> Outcome {
    Outcome::accepted_if(std::str::from_utf8(bytes).is_ok_and(couch::is_session_cookie))
}

pub(crate) fn seeds() -> Vec<Seed> {
    vec![
        // anna:1F:65A4B3C2 and 32 zero bytes
        ("plain", b"YW5uYToxRjo2NUE0QjNDMjoAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".to_vec()),
        ("colons", b"YTpiOkZGRkZGRkZGRkZGRkZGRkY6MDqlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpQ".to_vec()),
        ("refused-short", b"YW5uYQ".to_vec()),
        ("refused-alphabet", b"a+b/".to_vec()),
    ]
}
