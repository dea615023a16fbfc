//! Character classes: `%a`, `[a-z]` and so on.

use super::matcher::{Fault, Pattern};

/// The end of the single-character item that begins at `at`.
pub(super) fn item_end(pattern: Pattern<'_>, at: usize) -> Result<usize, Fault> {
    match pattern.get(at) {
        Some(b'%') if at + 1 >= pattern.len() => Err(Fault::Malformed("malformed pattern (ends with '%')")),
        Some(b'%') => Ok(at + 2),
        Some(b'[') => set_end(pattern, at),
        _ => Ok(at + 1),
    }
}

fn set_end(pattern: Pattern<'_>, at: usize) -> Result<usize, Fault> {
    const UNCLOSED: Fault = Fault::Malformed("malformed pattern (missing ']')");
    let mut at = at + 1;
    if pattern.get(at) == Some(&b'^') {
        at += 1;
    }
    let first = at;
    loop {
        match pattern.get(at).ok_or(UNCLOSED)? {
            // The first character is a member, even if it is `]`.
            b']' if at > first => return Ok(at + 1),
            b'%' => at += 2,
            _ => at += 1,
        }
    }
}

/// Whether a character belongs to the item from `start` to `end`.
pub(super) fn is_member(byte: u8, pattern: Pattern<'_>, start: usize, end: usize) -> bool {
    match pattern[start] {
        b'.' => true,
        b'%' => in_class(byte, pattern[start + 1]),
        b'[' => in_set(byte, &pattern[start + 1..end - 1]),
        plain => plain == byte,
    }
}

/// Whether a character belongs to a set; `inside` is the text between its brackets.
pub(super) fn in_set(byte: u8, inside: &[u8]) -> bool {
    let (negated, mut rest) = match inside.split_first() {
        Some((b'^', rest)) => (true, rest),
        _ => (false, inside),
    };
    let mut found = false;
    while let Some((&first, others)) = rest.split_first() {
        rest = others;
        match (first, others) {
            (b'%', [class, others @ ..]) => {
                found |= in_class(byte, *class);
                rest = others;
            }
            (low, [b'-', high, others @ ..]) => {
                found |= (low..=*high).contains(&byte);
                rest = others;
            }
            (plain, _) => found |= plain == byte,
        }
    }
    found != negated
}

/// Whether a character belongs to a class; an upper-case letter means the complement of the class.
fn in_class(byte: u8, class: u8) -> bool {
    let found = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    found != class.is_ascii_uppercase()
}
