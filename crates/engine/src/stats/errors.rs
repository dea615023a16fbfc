//! Error replies by their codes: the first word, such as `WRONGTYPE`.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The maximum number of codes that one worker tells apart, as in Redis; scripts can reply with any code.
const CODES_MAX: usize = 128;
/// The code under which replies with codes beyond the maximum are counted.
const OTHERS: &str = "ERRORSTATS_OVERFLOW";

#[derive(Debug, Default)]
pub(super) struct ErrorCounts(Mutex<BTreeMap<Box<str>, u64>>);

impl ErrorCounts {
    /// Counts a reply with this text.
    pub(super) fn add(&self, text: &[u8]) {
        let code = code_of(text);
        let mut counts = self.0.lock();
        if let Some(count) = counts.get_mut(&*code) {
            *count += 1;
            return;
        }
        let code = if counts.len() < CODES_MAX { &code } else { OTHERS };
        *counts.entry(code.into()).or_default() += 1;
    }

    pub(super) fn add_to(&self, totals: &mut BTreeMap<Box<str>, u64>) {
        for (code, count) in &*self.0.lock() {
            *totals.entry(code.clone()).or_default() += count;
        }
    }

    pub(super) fn reset(&self) {
        self.0.lock().clear();
    }
}

/// The first word of an error; `ERR` if that word could break a line of INFO.
fn code_of(text: &[u8]) -> std::borrow::Cow<'_, str> {
    let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    let is_code = |code: &&[u8]| code.iter().all(|byte| byte.is_ascii_graphic() && !b":=,".contains(byte));
    String::from_utf8_lossy(text.get(..end).filter(is_code).unwrap_or(b"ERR"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(counts: &ErrorCounts) -> BTreeMap<Box<str>, u64> {
        let mut totals = BTreeMap::new();
        counts.add_to(&mut totals);
        totals
    }

    #[test]
    fn errors_are_counted_by_their_first_word() {
        let counts = ErrorCounts::default();
        for text in ["ERR syntax error", "ERR no such key", "WRONGTYPE x", "OOM", "a:b c", ""] {
            counts.add(text.as_bytes());
        }
        let shown: Vec<_> = totals(&counts).into_iter().collect();
        let expected = [("", 1), ("ERR", 3), ("OOM", 1), ("WRONGTYPE", 1)];
        assert_eq!(shown, expected.map(|(code, count)| (code.into(), count)));
        counts.reset();
        assert!(totals(&counts).is_empty());
    }

    #[test]
    fn there_is_an_upper_number_of_codes() {
        let counts = ErrorCounts::default();
        (0..200).for_each(|number| counts.add(format!("CODE{number} x").as_bytes()));
        let totals = totals(&counts);
        assert_eq!((totals.len(), totals[OTHERS], totals["CODE7"]), (CODES_MAX + 1, 72, 1));
    }
}
