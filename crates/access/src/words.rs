//! The words of rules: their separators, and the bytes that a word may contain.

/// Whether the byte separates words. As in Redis, these bytes are the white space of C.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Whether a text can be a part of a rule: it has no spaces and no null bytes, and may be empty.
pub(crate) fn is_word(text: &[u8]) -> bool {
    !text.iter().any(|byte| is_space(*byte) || *byte == 0)
}

/// Splits a text at white space into words; no word is empty.
pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| is_space(*byte)).filter(|word| !word.is_empty())
}

/// A text up to its first null byte, where Redis' messages end.
pub(crate) fn up_to_null(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Appends the parts as one word, with a space before it unless `out` is empty.
pub(crate) fn push_spaced(out: &mut Vec<u8>, parts: &[&[u8]]) {
    if !out.is_empty() {
        out.push(b' ');
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
}
