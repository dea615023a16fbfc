//! Glob patterns over bytes, with the semantics of KEYS, SCAN, PSUBSCRIBE and CONFIG GET.
//!
//! `*` any bytes, `?` one byte, `[abc]` `[a-z]` `[^a]` one byte of (not of) a set, `\x` the byte x. As in
//! Redis: an unclosed set ends with the pattern, a range may be reversed, `]` right after `[` closes an empty
//! set, and a trailing `\` stands for itself. Unlike in Redis, a pattern of `*` alone matches also the empty
//! text.
//!
//! Time is bounded by pattern length times text length, and memory by a constant, because it is enough to
//! backtrack to the last `*`.

/// Whether the whole of `text` matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    run(pattern, text, |byte| byte)
}

/// As [`matches()`], ignoring the case of ASCII letters.
pub fn matches_ignore_case(pattern: &[u8], text: &[u8]) -> bool {
    run(pattern, text, |byte| byte.to_ascii_lowercase())
}

/// The pattern up to its first special byte: every text that [`matches()`] accepts begins with these bytes.
pub fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let special = pattern.iter().position(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
    &pattern[..special.unwrap_or(pattern.len())]
}

/// Whether the pattern has no special bytes and so matches only itself.
pub fn is_literal(pattern: &[u8]) -> bool {
    literal_prefix(pattern).len() == pattern.len()
}

fn run(mut pattern: &[u8], mut text: &[u8], fold: impl Fn(u8) -> u8 + Copy) -> bool {
    // The pattern after the last `*`, and the text on which it was last tried. The next try begins one byte
    // later.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            if rest.is_empty() {
                return true;
            }
            retry = Some((rest, text));
            pattern = rest;
            continue;
        }
        let after = match text {
            [] if pattern.is_empty() => return true,
            [] => return false,
            [byte, ..] => match_one(pattern, *byte, fold),
        };
        match (after, &mut retry) {
            (Some(after), _) => (pattern, text) = (after, &text[1..]),
            (None, None) => return false,
            (None, Some((rest, from))) => {
                *from = &from[1..];
                (pattern, text) = (rest, from);
            }
        }
    }
}

/// Matches one byte with the first element of `pattern`, which is not `*`. Returns the pattern after the
/// element.
#[inline]
fn match_one(pattern: &[u8], byte: u8, fold: impl Fn(u8) -> u8 + Copy) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', b'^', set @ ..] => match_set(set, byte, fold, true),
        [b'[', set @ ..] => match_set(set, byte, fold, false),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (fold(*literal) == fold(byte)).then_some(rest),
    }
}

/// Matches one byte with a set, given the pattern after its `[` or `[^`. Returns the pattern after the set.
fn match_set(mut set: &[u8], byte: u8, fold: impl Fn(u8) -> u8, negated: bool) -> Option<&[u8]> {
    let byte = fold(byte);
    let mut found = false;
    let rest = loop {
        set = match set {
            [] => break set,
            [b'\\', literal, rest @ ..] => {
                found |= fold(*literal) == byte;
                rest
            }
            [b']', rest @ ..] => break rest,
            [first, b'-', last, rest @ ..] => {
                let (first, last) = (fold(*first.min(last)), fold(*first.max(last)));
                found |= (first..=last).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                found |= fold(*literal) == byte;
                rest
            }
        };
    };
    (found != negated).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases = [
            ("", "", true),
            ("", "a", false),
            ("a", "", false),
            ("*", "", true),
            ("*", "abc", true),
            ("**", "", true),
            ("a*", "a", true),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("h[ae]llo", "hello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("[a-c]", "b", true),
            ("[c-a]", "b", true),
            ("[a-c]", "d", false),
            ("[a\\]c]", "]", true),
            ("[\\-]", "-", true),
            ("[]", "a", false),
            ("[]a]", "a", false),
            ("[^]", "a", true),
            ("[", "[", false),
            ("[^", "x", true),
            ("[ab", "b", true),
            ("[a-]", "_", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("\\[x]", "[x]", true),
            ("ABC", "abc", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn case_can_be_ignored_in_letters_and_sets() {
        assert!(matches_ignore_case(b"MaxM*[D-F]?y", b"maxmemory-Ely"));
        assert!(!matches_ignore_case(b"max", b"mux"));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = b"a*".repeat(2_000);
        let text = [b'a'; 20_000];
        assert!(matches(&pattern, &text));
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
    }

    #[test]
    fn the_literal_prefix_ends_at_the_first_special_byte() {
        let prefix = |pattern: &'static str| literal_prefix(pattern.as_bytes());
        assert_eq!(prefix("user:*"), b"user:");
        assert_eq!(prefix("a\\*"), b"a");
        assert_eq!(prefix("abc"), b"abc");
        assert!(is_literal(b"abc") && is_literal(b"") && !is_literal(b"a?"));
    }

    /// The definition of matching, which takes exponential time.
    fn reference(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|skipped| reference(rest, &text[skipped..])),
            (_, []) => false,
            (_, [byte, text @ ..]) => {
                match_one(pattern, *byte, |byte| byte).is_some_and(|rest| reference(rest, text))
            }
        }
    }

    proptest! {
        #[test]
        fn going_back_to_the_last_star_is_enough(pattern in "[ab*?\\[\\]^\\\\-]{0,8}", text in "[abc^-]{0,10}") {
            prop_assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                reference(pattern.as_bytes(), text.as_bytes())
            );
        }

        #[test]
        fn a_match_begins_with_the_literal_prefix(pattern in "[ab*?]{0,6}", text in "[ab]{0,8}") {
            if matches(pattern.as_bytes(), text.as_bytes()) {
                prop_assert!(text.as_bytes().starts_with(literal_prefix(pattern.as_bytes())));
            }
        }
    }
}
