//! Tests of the parser: against a naive parser that sees all bytes at once, with input that is cut at every
//! position, and with Redis' error texts.

use proptest::prelude::*;

use super::check::{Outcome, check_cut, parse_in_reads};
use super::*;
use crate::number::parse_i64;

/// Limits that are so small that short inputs reach all of them.
const TIGHT: Limits = Limits {
    bulk_bytes_max: 40,
    args_max: 6,
    inline_bytes_max: 24,
    request_bytes_max: 80,
    authenticated: true,
};

const TIGHT_UNAUTHENTICATED: Limits =
    Limits { bulk_bytes_max: 8, args_max: 3, authenticated: false, ..TIGHT };

fn whole(bytes: &[u8]) -> Outcome {
    parse_in_reads(bytes, &[], &Limits::DEFAULT, usize::MAX)
}

fn commands(bytes: &[u8]) -> Vec<Vec<String>> {
    let outcome = whole(bytes);
    assert_eq!((outcome.error, outcome.consumed), (None, bytes.len()));
    let text = |arg: &[u8]| arg.escape_ascii().to_string();
    outcome.commands.iter().map(|args| args.as_args().iter().map(text).collect()).collect()
}

fn encode(args: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

#[test]
fn a_pipeline_becomes_its_commands() {
    let bytes =
        [encode(&[b"SET", b"k", b""]), encode(&[b"GET", b"k\r\n\0\xff"]), encode(&[b"PING"])].concat();
    let expected = [vec!["SET", "k", ""], vec!["GET", "k\\r\\n\\x00\\xff"], vec!["PING"]];
    assert_eq!(commands(&bytes), expected);
}

#[test]
fn a_full_batch_leaves_the_rest_of_the_buffer() {
    let one = encode(&[b"GET", b"key"]);
    let bytes = one.repeat(5);
    let (mut parser, mut batch) = (RequestParser::new(), RequestBatch::new());
    let parsed = parser.parse(&bytes, &Limits::DEFAULT, &mut batch, 3);
    assert_eq!(parsed, Parsed { consumed: 3 * one.len(), error: None });
    assert_eq!((batch.len(), batch.end(0), batch.end(2)), (3, one.len(), 3 * one.len()));
    let parsed = parser.parse(&bytes, &Limits::DEFAULT, &mut batch, 0);
    assert_eq!((parsed.consumed, batch.len()), (0, 0));
}

#[test]
fn requests_without_arguments_are_skipped() {
    assert_eq!(commands(b"*0\r\n*-1\r\n*-7\r\n\r\n\n  \r\nPING\r\n*0\r\n"), [["PING"]]);
}

/// A property test found this: the fast path for a header did not reset the count of bytes already searched
/// for a line end.
#[test]
fn a_line_after_an_interrupted_header_is_searched_from_its_start() {
    let outcome = parse_in_reads(b"*0\r\n\r\n", &[2, 4], &Limits::DEFAULT, 1);
    assert_eq!((outcome.consumed, outcome.error), (6, None));
}

#[test]
fn inline_words_are_unquoted() {
    let cases: [(&str, &[&str]); 9] = [
        ("GET k\r\n", &["GET", "k"]),
        ("GET k\n", &["GET", "k"]),
        ("  SET\t k  v \r\n", &["SET", "k", "v"]),
        ("SET k \"a b\"\r\n", &["SET", "k", "a b"]),
        ("SET k \"\\x41\\n\\\"\\q\\xg\\x4A\"\r\n", &["SET", "k", "A\\n\\\"qxgJ"]),
        ("SET k 'a\\'b\\n'\r\n", &["SET", "k", "a\\'b\\\\n"]),
        ("SET k\"a b\" ''\r\n", &["SET", "ka b", ""]),
        ("\x0b\x0cSET k\x0bv\r\n", &["SET", "k\\x0bv"]),
        ("a\rb\n", &["a", "b"]),
    ];
    for (line, words) in cases {
        assert_eq!(commands(line.as_bytes()), [words], "{line:?}");
    }
}

#[test]
fn broken_requests_are_refused_in_the_words_of_redis() {
    let long = |start: &str| [start.as_bytes(), &[b'1'; 70_000]].concat();
    let cases: [(&[u8], &str); 22] = [
        (b"*a\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$\r\n", "invalid bulk length"),
        (b"*1\r\n$01\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$4294967297\r\n", "invalid bulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n*1\r\n", "expected '$', got '*'"),
        (b"*1\r\n\r\n", "expected '$', got ' '"),
        (b"*1\r\n\n\r\n", "expected '$', got ' '"),
        (b"SET k \"v\r\n", "unbalanced quotes in request"),
        (b"SET k 'v\r\n", "unbalanced quotes in request"),
        (b"SET k \"v\"x\r\n", "unbalanced quotes in request"),
        (b"SET k \"v\\\"\r\n", "unbalanced quotes in request"),
        (&long("P"), "too big inline request"),
        (&long("*"), "too big mbulk count string"),
        (&long("*1\r\n$"), "too big bulk count string"),
    ];
    for (bytes, text) in cases {
        // A preceding command is still executed.
        let good = encode(&[b"PING"]);
        let outcome = whole(&[&good, bytes].concat());
        assert_eq!((outcome.commands.len(), outcome.consumed), (1, good.len()), "{text}");
        let mut reply = Vec::new();
        outcome.error.unwrap().render(&mut reply);
        assert_eq!(
            reply.escape_ascii().to_string(),
            format!("-ERR Protocol error: {text}\\r\\n").replace('\'', "\\'")
        );
    }
}

#[test]
fn a_stranger_may_send_little() {
    let error =
        |bytes: &[u8]| parse_in_reads(bytes, &[], &Limits::UNAUTHENTICATED, 1).error.unwrap().to_string();
    assert_eq!(error(b"*11\r\n"), "unauthenticated multibulk length");
    assert_eq!(error(b"*1\r\n$16385\r\n"), "unauthenticated bulk length");
    assert_eq!(error(b"*1\r\n$536870913\r\n"), "invalid bulk length");
    assert_eq!(error(b"*2147483648\r\n"), "invalid multibulk length");
    let parsed = |count: usize, bytes: usize| {
        let request = encode(&vec![&vec![b'x'; bytes][..]; count]);
        let parsed = parse_in_reads(&request, &[], &Limits::UNAUTHENTICATED, 1);
        (parsed.commands.len(), parsed.error)
    };
    assert_eq!(parsed(3, 16_384), (1, None));
    assert_eq!(parsed(10, 6_000), (1, None));
    assert_eq!(parsed(10, 16_384), (0, Some(ProtocolError::TooBigRequest)), "too much in all");
}

#[test]
fn an_error_is_gone_once_the_limits_are_raised() {
    let bytes = encode(&[b"x".as_slice(); 11]);
    let (mut parser, mut batch) = (RequestParser::new(), RequestBatch::new());
    for _ in 0..2 {
        let parsed = parser.parse(&bytes, &Limits::UNAUTHENTICATED, &mut batch, 1);
        assert_eq!(parsed.error, Some(ProtocolError::UnauthenticatedMultibulkLength));
    }
    let parsed = parser.parse(&bytes, &Limits::DEFAULT, &mut batch, 1);
    assert_eq!((parsed.error, batch.len()), (None, 1));
}

#[test]
fn too_long_a_request_is_refused_before_it_arrives() {
    let limits = Limits { request_bytes_max: 1000, ..Limits::DEFAULT };
    let error = |bytes: &[u8]| parse_in_reads(bytes, &[], &limits, 1).error;
    assert_eq!(error(b"*2\r\n$400\r\n"), None);
    assert_eq!(error(b"*2\r\n$991\r\n"), Some(ProtocolError::TooBigRequest));
    let first = [b"*2\r\n$400\r\n".as_slice(), &[b'x'; 402]].concat();
    assert_eq!(error(&[&first, b"$581\r\n".as_slice()].concat()), Some(ProtocolError::TooBigRequest));
    assert_eq!(error(&[&first, b"$580\r\n".as_slice()].concat()), None);
}

#[test]
fn lines_of_http_end_the_run_and_legitimate_commands_do_not() {
    let body = "CONFIG SET requirepass x\r\n";
    for line in [
        "POST / HTTP/1.1",
        "post",
        "POST \"/",
        "Host: localhost:6379",
        " host: x",
        "GET / HTTP/1.1",
        "get /a?b=c http/1.0",
        "PUT /x HTTP/2",
        "OPTIONS * HTTP/1.1",
        "DELETE http://localhost/ HTTP/1.1",
        "PROPFIND / HTTP/1.1",
    ] {
        let sent = format!("PING\r\n{line}\r\n{body}");
        let outcome = whole(sent.as_bytes());
        assert_eq!((outcome.commands.len(), outcome.error), (1, Some(ProtocolError::Http)), "{line}");
    }
    for line in
        ["GET key", "GET / HTTP", "GET a HTTP/1.1 b", "SET k HTTP/1.1", "HOST x", "POSTS", "PROPFIND / HTTP"]
    {
        let outcome = whole(format!("{line}\r\n").as_bytes());
        assert_eq!((outcome.commands.len(), outcome.error), (1, None), "{line}");
    }
    // Browsers do not send arrays.
    assert_eq!(whole(&encode(&[b"POST", b"/"])).error, None);
    let mut out = Vec::new();
    ProtocolError::Http.render(&mut out);
    assert!(out.is_empty(), "it is answered with nothing");
}

#[test]
fn the_caller_learns_how_much_is_missing() {
    let (mut parser, mut batch) = (RequestParser::new(), RequestBatch::new());
    let bytes = [b"*2\r\n$3\r\nGET\r\n$5000\r\n".as_slice(), &[b'k'; 5000], b"\r\n"].concat();
    for (end, missing) in
        [(0, 0), (3, 0), (8, 5), (13, 0), (15, 0), (20, 5002), (120, 4902), (5021, 1), (5022, 0)]
    {
        let _ = parser.parse(&bytes[..end], &Limits::DEFAULT, &mut batch, 1);
        assert_eq!(parser.bytes_missing(), missing, "{end}");
    }
    assert_eq!(batch.command(0, &bytes).len(), 2);
}

#[test]
fn a_parser_between_commands_is_small() {
    assert!(size_of::<RequestParser>() < 100);
    let (mut parser, mut batch) = (RequestParser::new(), RequestBatch::new());
    let bytes = encode(&[b"x".as_slice(); 10_000]);
    let _ = parser.parse(&bytes[..bytes.len() - 1], &Limits::DEFAULT, &mut batch, 1);
    assert_eq!((batch.len(), parser.kept_args() >= 9_999), (0, true));
    let _ = parser.parse(&bytes, &Limits::DEFAULT, &mut batch, 1);
    assert_eq!(batch.command(0, &bytes).len(), 10_000);
    assert!(parser.kept_args() <= 16);
}

#[test]
fn announced_sizes_reserve_nothing() {
    let (mut parser, mut batch) = (RequestParser::new(), RequestBatch::new());
    let _ = parser.parse(b"*1048576\r\n$536870912\r\n", &Limits::DEFAULT, &mut batch, 1);
    assert!(parser.kept_args() + batch.args.capacity() < 1000);
}

/// All but the last eight bytes of earlier reads are overwritten, which must have no effect.
#[test]
fn bytes_of_earlier_reads_are_not_looked_at_again() {
    let args: Vec<Vec<u8>> = (0..200).map(|index| vec![b'v'; index]).collect();
    let bytes = encode(&args.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let (mut parser, mut batch) = (RequestParser::new(), RequestBatch::new());
    let mut received = Vec::new();
    for chunk in bytes.chunks(7) {
        // The last 8 bytes stay as they are. They contain an incomplete header line, which here has at most
        // 5 bytes and is read again for its number once the rest has arrived.
        let readable = received.len().saturating_sub(8);
        received[..readable].fill(b'?');
        received.extend_from_slice(chunk);
        let parsed = parser.parse(&received, &Limits::DEFAULT, &mut batch, 1);
        assert_eq!(parsed.error, None);
    }
    let command = batch.command(0, &bytes);
    assert!(command.iter().eq(args.iter().map(Vec::as_slice)));
}

#[test]
fn arguments_can_be_walked_cut_and_kept() {
    let owned: OwnedArgs = ["ZADD", "key", "1", "member"].into_iter().collect();
    let args = owned.as_args();
    assert_eq!((args.len(), args.size_bytes(), args.is_empty()), (4, 14, false));
    assert_eq!((&args[1], args.at(3), args.get(4)), (b"key".as_slice(), b"member".as_slice(), None));
    assert_eq!(args.skip(2).iter().rev().collect::<Vec<_>>(), [b"member".as_slice(), b"1"]);
    assert_eq!((args.skip(9).len(), args.take(1).len(), args.take(9).len()), (0, 1, 4));
    assert_eq!(OwnedArgs::from(args.skip(2)), ["1", "member"].into_iter().collect());
    assert_eq!(format!("{args:?}"), r#"["ZADD", "key", "1", "member"]"#);
}

/// A parser with the same rules in the simplest form: it sees all bytes at once, and has no state and no
/// optimisation.
fn reference(bytes: &[u8], limits: &Limits) -> Outcome {
    let mut outcome = Outcome { commands: Vec::new(), consumed: 0, error: None };
    loop {
        let rest = &bytes[outcome.consumed..];
        let result = match rest.first() {
            None => return outcome,
            Some(b'*') => reference_array(rest, limits),
            Some(_) => reference_inline(rest, limits),
        };
        match result {
            Ok(Some((args, size))) => {
                outcome.consumed += size;
                outcome.commands.extend((!args.is_empty()).then(|| args.iter().collect::<OwnedArgs>()));
            }
            Ok(None) => return outcome,
            Err(error) => return Outcome { error: Some(error), ..outcome },
        }
    }
}

type Request = Result<Option<(Vec<Vec<u8>>, usize)>, ProtocolError>;

fn reference_line(
    bytes: &[u8],
    end: u8,
    max: usize,
    error: ProtocolError,
) -> Result<Option<&[u8]>, ProtocolError> {
    match bytes.iter().take(max + 1).position(|byte| *byte == end) {
        Some(at) if end == b'\r' && at + 1 == bytes.len() => Ok(None),
        Some(at) => Ok(Some(&bytes[..at])),
        None if bytes.len() > max => Err(error),
        None => Ok(None),
    }
}

fn reference_array(bytes: &[u8], limits: &Limits) -> Request {
    let max = limits.inline_bytes_max;
    let Some(line) = reference_line(bytes, b'\r', max, ProtocolError::TooBigMultibulkCount)? else {
        return Ok(None);
    };
    let count = match parse_i64(&line[1..]) {
        Some(count) if count <= limits.args_max as i64 => count,
        Some(count) if count <= i64::from(i32::MAX) && !limits.authenticated => {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        _ => return Err(ProtocolError::InvalidMultibulkLength),
    };
    let mut at = line.len() + 2;
    let mut args = Vec::new();
    for _ in 0..count {
        let Some(line) = reference_line(&bytes[at..], b'\r', max, ProtocolError::TooBigBulkCount)? else {
            return Ok(None);
        };
        if bytes[at] != b'$' {
            return Err(ProtocolError::ExpectedBulk(bytes[at]));
        }
        let len = match parse_i64(&line[1..]) {
            Some(len) if (0..=limits.bulk_bytes_max as i64).contains(&len) => len as usize,
            Some(len) if (0..=512 * 1024 * 1024).contains(&len) && !limits.authenticated => {
                return Err(ProtocolError::UnauthenticatedBulkLength);
            }
            _ => return Err(ProtocolError::InvalidBulkLength),
        };
        at += line.len() + 2;
        if at + len + 2 > limits.request_bytes_max {
            return Err(ProtocolError::TooBigRequest);
        }
        if at + len + 2 > bytes.len() {
            return Ok(None);
        }
        args.push(bytes[at..at + len].to_vec());
        at += len + 2;
    }
    Ok(Some((args, at)))
}

fn reference_inline(bytes: &[u8], limits: &Limits) -> Request {
    let Some(line) = reference_line(bytes, b'\n', limits.inline_bytes_max, ProtocolError::TooBigInline)?
    else {
        return Ok(None);
    };
    if inline::is_http(line) {
        return Err(ProtocolError::Http);
    }
    let mut args = Vec::new();
    let mut at = 0;
    let byte = |at: usize| line.get(at).copied();
    let space = |byte: u8| b" \t\n\x0b\x0c\r".contains(&byte);
    while at < line.len() {
        if space(line[at]) {
            at += 1;
            continue;
        }
        let (mut word, mut quote) = (Vec::new(), None);
        loop {
            match (quote, byte(at)) {
                (None, None | Some(b' ' | b'\t' | b'\r')) => break,
                (None, Some(mark @ (b'"' | b'\''))) => quote = Some(mark),
                (Some(_), None) => return Err(ProtocolError::UnbalancedQuotes),
                (Some(open), Some(mark)) if open == mark => {
                    at += 1;
                    if byte(at).is_some_and(|next| !space(next)) {
                        return Err(ProtocolError::UnbalancedQuotes);
                    }
                    break;
                }
                (Some(b'\''), Some(b'\\')) if byte(at + 1) == Some(b'\'') => {
                    at += 1;
                    word.push(b'\'');
                }
                (Some(b'"'), Some(b'\\')) if at + 1 < line.len() => {
                    let hex = line.get(at + 2..at + 4).filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
                    match (line[at + 1], hex) {
                        (b'x', Some(hex)) => {
                            word.push(u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap());
                            at += 2;
                        }
                        (escape, _) => word.push(match escape {
                            b'n' => 10,
                            b'r' => 13,
                            b't' => 9,
                            b'b' => 8,
                            b'a' => 7,
                            other => other,
                        }),
                    }
                    at += 1;
                }
                (_, Some(plain)) => word.push(plain),
            }
            at += 1;
        }
        args.push(word);
    }
    Ok(Some((args, line.len() + 1)))
}

/// Bytes that look like requests, most of them complete, some malformed.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let arg = prop::collection::vec(any::<u8>(), 0..12);
    let array = prop::collection::vec(arg, 1..6)
        .prop_map(|args| encode(&args.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    let piece = prop_oneof![
        8 => array,
        3 => "[a-z '\"\\\\x4n\t\r]{0,26}\r?\n".prop_map(String::into_bytes),
        1 => "[*$][-+0-9a]{0,4}\r\n?".prop_map(String::into_bytes),
        1 => "\\*[1-4]\r\n[$:][0-9]{1,2}\r\n[a-z]{0,10}\r\n".prop_map(String::into_bytes),
        1 => prop::sample::select(vec!["*0\r\n", "*-1\r\n", "\r\n", "\n", "*1\r\n$0\r\n\r\n", "*1\r\n$1\r\nxyz"])
            .prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn limits() -> impl Strategy<Value = Limits> {
    prop::sample::select(vec![Limits::DEFAULT, Limits::UNAUTHENTICATED, TIGHT, TIGHT_UNAUTHENTICATED])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_parser_agrees_with_the_reference(bytes in stream(), limits in limits()) {
        prop_assert_eq!(parse_in_reads(&bytes, &[], &limits, usize::MAX), reference(&bytes, &limits));
    }

    #[test]
    fn inline_words_agree_with_the_reference(line in "[ab'\" \\\\x4]{0,20}") {
        let bytes = [line.as_bytes(), b"\n"].concat();
        prop_assert_eq!(parse_in_reads(&bytes, &[], &TIGHT, usize::MAX), reference(&bytes, &TIGHT));
    }

    #[test]
    fn any_sequence_of_reads_gives_the_same(bytes in stream(), limits in limits(), size in 1usize..9, max in 1usize..4) {
        let ends: Vec<usize> = (0..bytes.len()).step_by(size).collect();
        prop_assert_eq!(parse_in_reads(&bytes, &ends, &limits, max), reference(&bytes, &limits));
    }
}

proptest! {
    #[test]
    fn a_cut_at_any_position_changes_nothing(bytes in stream(), limits in limits()) {
        for cut in 0..=bytes.len() {
            check_cut(&bytes, cut, &limits);
        }
    }
}
