//! Encoding of commands, for clients.

/// Appends a command of these words.
pub fn encode<W: AsRef<[u8]>>(
    words: impl IntoIterator<Item = W, IntoIter: ExactSizeIterator>,
    out: &mut Vec<u8>,
) {
    let words = words.into_iter();
    let line = |mark: u8, number: usize, out: &mut Vec<u8>| {
        out.push(mark);
        out.extend_from_slice(number.to_string().as_bytes());
        out.extend_from_slice(b"\r\n");
    };
    line(b'*', words.len(), out);
    for word in words {
        let word = word.as_ref();
        line(b'$', word.len(), out);
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_in_an_array() {
        let mut out = Vec::new();
        encode(["GET", "a key\r\n", ""], &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nGET\r\n$7\r\na key\r\n\r\n$0\r\n\r\n");
    }
}
