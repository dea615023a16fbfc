//! Tests of encodings that the writer never produces: other forms of the protocol, broken values, and values
//! over the limits. The tests of the writer check that its output decodes.

use proptest::prelude::*;

use super::*;

fn decoded(bytes: &[u8]) -> Result<Option<(Value, usize)>, DecodeError> {
    decode(bytes, &DecodeLimits::DEFAULT)
}

#[test]
fn the_forms_only_others_write_are_read() {
    let value = |bytes: &[u8]| decoded(bytes).unwrap().unwrap().0;
    assert_eq!(value(b"$-1\r\n"), Value::Null);
    assert_eq!(value(b"*-1\r\n"), Value::Null);
    assert_eq!(value(b"!5\r\nERR x\r\n"), Value::Error(b"ERR x".to_vec()));
    assert_eq!(value(b",1e+20\r\n"), Value::Double(1e20));
    assert_eq!(value(b"(+12\r\n"), Value::BigNumber(b"+12".to_vec()));
    assert!(matches!(value(b",NaN\r\n"), Value::Double(double) if double.is_nan()));
}

#[test]
fn broken_values_say_how() {
    use DecodeError::*;
    let cases: [(&[u8], DecodeError); 18] = [
        (b"hello\r\n", UnknownType(b'h')),
        (b"\r\n", UnknownType(b'\r')),
        (b"$a\r\n", InvalidLength),
        (b"$-2\r\n", InvalidLength),
        (b"$?\r\n", InvalidLength),
        (b"%-1\r\n", InvalidLength),
        (b"!-1\r\n", InvalidLength),
        (b"=-1\r\n", InvalidLength),
        (b":+1\r\n", InvalidScalar),
        (b"#x\r\n", InvalidScalar),
        (b"_x\r\n", InvalidScalar),
        (b",x\r\n", InvalidScalar),
        (b"(-\r\n", InvalidScalar),
        (b"=3\r\ntxt\r\n", InvalidScalar),
        (b"+a\rb\r\n", MissingLineEnd),
        (b"+a\n", MissingLineEnd),
        (b"$1\r\nabc", MissingLineEnd),
        (b"*2\r\n:1\r\n$1\r\nab", MissingLineEnd),
    ];
    for (bytes, error) in cases {
        assert_eq!(decoded(bytes), Err(error), "{}", bytes.escape_ascii());
    }
}

#[test]
fn limits_hold() {
    let limits = DecodeLimits { bytes_max: 40, elements_max: 5, nesting_max: 2 };
    let check = |bytes: &[u8]| decode(bytes, &limits).map(|decoded| decoded.is_some());
    assert_eq!(check(b"*1\r\n*1\r\n:1\r\n"), Ok(true));
    assert_eq!(check(b"*1\r\n*1\r\n*0\r\n"), Err(DecodeError::TooDeep));
    assert_eq!(check(b"*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n"), Ok(true));
    assert_eq!(check(b"*5\r\n"), Err(DecodeError::TooManyElements));
    assert_eq!(check(b"%3\r\n"), Err(DecodeError::TooManyElements));
    assert_eq!(check(b"*2\r\n*2\r\n:1\r\n:1\r\n*1\r\n"), Err(DecodeError::TooManyElements));
    assert_eq!(check(&[b"$33\r\n".as_slice(), &[b'x'; 33], b"\r\n"].concat()), Ok(true));
    assert_eq!(check(&[b"$34\r\n".as_slice(), &[b'x'; 34], b"\r\n"].concat()), Err(DecodeError::TooLong));
    assert_eq!(check(b"$34\r\n"), Ok(false));
}

#[test]
fn no_limit_allows_a_depth_that_the_stack_does_not() {
    let limits = DecodeLimits { nesting_max: usize::MAX, ..DecodeLimits::DEFAULT };
    assert_eq!(decode(&b"*1\r\n".repeat(100_000), &limits), Err(DecodeError::TooDeep));
    assert_eq!(decode(&b"*1\r\n".repeat(999), &limits), Ok(None));
}

#[test]
fn a_long_value_can_arrive_byte_by_byte() {
    const LEN: usize = 60_000;
    let bytes = [format!("*{LEN}\r\n").into_bytes(), b":1\r\n".repeat(LEN)].concat();
    let mut decoder = Decoder::new();
    for end in 0..bytes.len() {
        assert_eq!(decoder.decode(&bytes[..end], &DecodeLimits::DEFAULT), Ok(None));
    }
    let expected = Value::Array(vec![Value::Integer(1); LEN]);
    assert_eq!(decoder.decode(&bytes, &DecodeLimits::DEFAULT), Ok(Some((expected, bytes.len()))));
}

/// Bytes that are often values: random characters of the protocol, and sequences of headers and lines.
const NEARLY_VALUES: &str =
    "[-+:$*%~>|_,#(=!0-3tf\r\n]{0,40}|([*%~>|$][0-3]\r\n|[:+,][0-9]\r\n|_\r\n|[$!]2\r\nab\r\n){0,12}";

proptest! {
    #[test]
    fn any_bytes_give_a_value_an_error_or_a_wish_for_more(bytes in NEARLY_VALUES) {
        let bytes = bytes.into_bytes();
        match decoded(&bytes) {
            Ok(Some((value, size))) => {
                prop_assert!(size <= bytes.len());
                prop_assert_eq!(decoded(&bytes[..size]), Ok(Some((value, size))));
                prop_assert_eq!(decoded(&bytes[..size - 1]), Ok(None));
                // A value fits a limit of exactly its number of elements, and no lower limit.
                let at_most = |elements_max| DecodeLimits { elements_max, ..DecodeLimits::DEFAULT };
                let elements = decoded(&bytes[..size]).unwrap().unwrap().0.elements();
                prop_assert!(decode(&bytes[..size], &at_most(elements)).is_ok());
                let fewer = decode(&bytes[..size], &at_most(elements - 1));
                prop_assert_eq!(fewer, Err(DecodeError::TooManyElements));
            }
            Ok(None) => {
                // Every prefix of an incomplete value is incomplete, too.
                for end in 0..bytes.len() {
                    prop_assert_eq!(decoded(&bytes[..end]), Ok(None));
                }
            }
            Err(error) => {
                prop_assert_eq!(decoded(&[&bytes[..], b"x"].concat()), Err(error));
            }
        }
    }

    #[test]
    fn values_do_not_depend_on_the_reads_they_arrive_in(
        bytes in NEARLY_VALUES,
        reads in prop::collection::vec(1..8usize, 60),
        (bytes_max, elements_max, nesting_max) in (1..60usize, 1..12usize, 0..4usize),
    ) {
        let bytes = bytes.into_bytes();
        let limits = DecodeLimits { bytes_max, elements_max, nesting_max };
        let (mut decoder, mut start, mut end) = (Decoder::new(), 0, 0);
        for read in reads {
            let received = &bytes[start..end];
            let decoded = decoder.decode(received, &limits);
            prop_assert_eq!(&decoded, &decode(received, &limits));
            match decoded {
                Ok(Some((_, len))) => start += len,
                Ok(None) => end = bytes.len().min(end + read),
                Err(error) => {
                    prop_assert_eq!(decoder.decode(received, &limits), Err(error));
                    break;
                }
            }
        }
    }
}
