//! Extracts the rows of a large JSON response from any server: the objects in the first array.
//!
//! The response may arrive in any pieces. It is not fully validated: rows are parsed by the caller.

use memchr::memchr2;

/// The nesting level of rows: in an array in an object.
const ROW_DEPTH: usize = 2;

/// A splitter of a JSON response into rows.
#[derive(Debug, Default)]
pub struct Rows {
    partial: Vec<u8>,
    /// The position in `partial` from which to continue.
    looked_at: usize,
    /// Number of open brackets.
    depth: usize,
    is_in_text: bool,
    is_escaped: bool,
    row_begins: usize,
    has_array: bool,
    has_ended: bool,
}

impl Rows {
    /// Consumes received bytes, and passes each complete row to `each`.
    pub fn feed<E>(&mut self, input: &[u8], mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        self.partial.extend_from_slice(input);
        while self.looked_at < self.partial.len() {
            if self.is_in_text {
                self.pass_text();
            } else if self.pass_byte() {
                each(&self.partial[self.row_begins..self.looked_at])?;
            }
        }
        let kept_from = if self.depth > ROW_DEPTH { self.row_begins } else { self.looked_at };
        self.partial.drain(..kept_from);
        self.looked_at -= kept_from;
        self.row_begins = 0;
        Ok(())
    }

    /// Whether the array has ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Skips to behind the next byte that may end the text.
    fn pass_text(&mut self) {
        let rest = &self.partial[self.looked_at..];
        if self.is_escaped {
            self.is_escaped = false;
            self.looked_at += 1;
        } else if let Some(found) = memchr2(b'"', b'\\', rest) {
            self.is_escaped = rest[found] == b'\\';
            self.is_in_text = self.is_escaped;
            self.looked_at += found + 1;
        } else {
            self.looked_at = self.partial.len();
        }
    }

    /// Consumes a byte outside of texts. Returns whether it completes a row.
    fn pass_byte(&mut self) -> bool {
        let (at, is_within) = (self.looked_at, self.has_array && !self.has_ended);
        self.looked_at += 1;
        match self.partial[at] {
            b'"' => self.is_in_text = true,
            opening @ (b'{' | b'[') => {
                if self.depth == ROW_DEPTH {
                    self.row_begins = at;
                }
                self.depth += 1;
                self.has_array |= opening == b'[' && self.depth == ROW_DEPTH;
            }
            closing @ (b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                self.has_ended |= is_within && self.depth < ROW_DEPTH;
                return is_within && closing == b'}' && self.depth == ROW_DEPTH;
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const ANSWERS: [(&str, &[&str]); 4] = [
        (r#"{"results":[],"last_seq":0}"#, &[]),
        (
            "{\"total_rows\":2,\"rows\":[\n{\"id\":\"a\"},\n{\"id\":\"b\"}\n]}\n",
            &[r#"{"id":"a"}"#, r#"{"id":"b"}"#],
        ),
        (
            r#"{"results":[{"id":"]}\"{\\","changes":[{"rev":"1"},{}]}],"last_seq":0}"#,
            &[r#"{"id":"]}\"{\\","changes":[{"rev":"1"},{}]}"#],
        ),
        (r#"{"before":{"a":{}},"rows":[{}],"after":[{"b":1}]}"#, &["{}"]),
    ];

    fn rows_of(pieces: &[&[u8]]) -> (Vec<String>, bool) {
        let (mut rows, mut found) = (Rows::default(), Vec::new());
        for piece in pieces {
            let each = |row: &[u8]| {
                found.push(String::from_utf8_lossy(row).into_owned());
                Ok::<(), Infallible>(())
            };
            rows.feed(piece, each).unwrap();
        }
        (found, rows.has_ended())
    }

    #[test]
    fn rows_are_found_wherever_the_answer_is_cut() {
        for (answer, expected) in ANSWERS {
            for cut in 0..=answer.len() {
                let (found, has_ended) = rows_of(&[&answer.as_bytes()[..cut], &answer.as_bytes()[cut..]]);
                assert_eq!(found, expected, "{cut}");
                assert!(has_ended, "{cut}");
            }
            let pieces: Vec<&[u8]> = answer.as_bytes().chunks(1).collect();
            assert_eq!(rows_of(&pieces).0, expected);
        }
    }

    #[test]
    fn an_answer_that_is_cut_off_has_not_ended() {
        let (found, has_ended) = rows_of(&[br#"{"results":[{"id":"a"},{"id":"b""#]);
        assert_eq!((found, has_ended), (vec![r#"{"id":"a"}"#.to_owned()], false));
        assert_eq!(rows_of(&[br#"{"error":"not_found","reason":"missing"}"#]), (vec![], false));
    }
}
