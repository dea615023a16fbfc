//! Arbitrary bytes as requests and as replies, divided at any position: no panic, no overrun, the same
//! commands, the same reply. And as a glob pattern with a text: matching returns.
//!
//! Input: a choice of limits, which is also the length of the pattern (u8), the cut (u16), the bytes.

use arbitrary::{Arbitrary, Unstructured};
use wire::request::check::check_cut;
use wire::{DecodeLimits, Decoder, Limits, decode, glob};

use crate::{Outcome, Seed};

/// Limits that are so small that short inputs reach each of them.
const TIGHT: Limits = Limits {
    bulk_bytes_max: 100,
    args_max: 20,
    inline_bytes_max: 60,
    request_bytes_max: 300,
    authenticated: true,
};

/// Parses requests, decodes a reply, and matches a text. Accepts whole commands without an error, or a reply.
///
/// # Panics
/// If the parser breaks its contract, or the reply depends on the cut.
pub fn resp_request(input: &[u8]) -> Outcome {
    let input = <(u8, u16, &[u8])>::arbitrary_take_rest(Unstructured::new(input));
    let Ok((choice, cut, bytes)) = input else { return Outcome::Refused };
    let limits = match choice % 4 {
        0 => Limits::DEFAULT,
        1 => Limits::UNAUTHENTICATED,
        2 => TIGHT,
        _ => Limits { authenticated: false, ..TIGHT },
    };
    let parsed = check_cut(bytes, usize::from(cut), &limits);
    let reply = decode(bytes, &DecodeLimits::DEFAULT);
    let mut decoder = Decoder::new();
    if let Ok(None) = decoder.decode(&bytes[..bytes.len().min(cut.into())], &DecodeLimits::DEFAULT) {
        let later = decoder.decode(bytes, &DecodeLimits::DEFAULT);
        // As text: a NaN does not equal itself.
        assert_eq!(format!("{later:?}"), format!("{reply:?}"), "the reply depends on the cut");
    }
    // The match must only return; its result does not matter.
    let (pattern, text) = bytes.split_at(bytes.len().min(usize::from(choice)));
    let _ = glob::matches(pattern, text);
    let are_commands = parsed.error.is_none() && !parsed.commands.is_empty();
    Outcome::accepted_if(are_commands || matches!(reply, Ok(Some(_))))
}

pub(crate) fn seeds() -> Vec<Seed> {
    let input = |choice: u8, cut: u16, bytes: &[u8]| [&[choice][..], &cut.to_le_bytes(), bytes].concat();
    let command = |words: &[&str]| {
        let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), words.collect::<String>())
    };
    let set_and_get = command(&["SET", "key", "value"]) + &command(&["GET", "key"]);
    let long = "x".repeat(100);
    let resp3 = "%2\r\n+a\r\n*3\r\n:1\r\n,1.5\r\n#t\r\n$1\r\nb\r\n~2\r\n_\r\n(12345678901234567890\r\n\
                 |1\r\n+ttl\r\n:3600\r\n>2\r\n+message\r\n=7\r\ntxt:abc\r\n!9\r\nERR wrong\r\n";
    vec![
        ("set-and-get", input(0, 7, set_and_get.as_bytes())),
        ("before-auth", input(1, 3, command(&["AUTH", "user", "password"]).as_bytes())),
        ("largest-under-tight-limits", input(2, 60, command(&["SET", &long, &long]).as_bytes())),
        ("most-arguments-under-tight-limits", input(2, 20, command(&["a"; 20]).as_bytes())),
        ("pipeline", input(0, 100, command(&["PING"]).repeat(40).as_bytes())),
        ("empty-and-null-arrays", input(0, 5, b"*0\r\n*-1\r\n\r\n*1\r\n$4\r\nPING\r\n")),
        ("empty-strings", input(3, 9, b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$0\r\n\r\n")),
        ("inline", input(0, 4, b"SET key \"a\\x00\\n b\" 'it\\'s'\r\nGET key\n")),
        ("glob", input(14, 2, b"h?ll*[^a-c\\]]dhello worlds\r\n")),
        ("glob-of-stars", input(12, 2, b"a*a*a*a*a*b*aaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")),
        ("reply-of-resp2", input(0, 1, b"*3\r\n:-7\r\n$-1\r\n-ERR no\r\n")),
        ("reply-of-resp3", input(0, 11, resp3.as_bytes())),
        ("refused-too-long", input(0, 0, b"*2\r\n$3\r\nGET\r\n$999999999999\r\n")),
        ("refused-too-many-before-auth", input(1, 0, b"*11\r\n")),
    ]
}
