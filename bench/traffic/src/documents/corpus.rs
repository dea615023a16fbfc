//! The documents of a run: their ids and their text, and the number of a given id.
//!
//! A document is a function of its number and of how often it was written; it is the same for every server
//! and every run. No state is needed to recognise an id.
//!
//! Invariants
//! - Different numbers have different ids: [`Ids::number`] is the inverse of [`Ids::id`].

/// Number of digits of an id.
pub const ID_BYTES: usize = 32;
/// Size of the text from which documents are taken; too large for a server to compress it away.
const NOISE_BYTES: usize = 1 << 20;
/// The first half of the digits of all sequential ids.
const COMMON_DIGITS: &str = "5eaf5eaf5eaf5eaf";
/// An odd number without a pattern (from SplitMix64).
const FACTOR: u64 = 0xbf58_476d_1ce4_e5b9;
const FACTOR_INVERSE: u64 = inverse(FACTOR);

/// The order of the ids of successive documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// Random: an insertion can be anywhere in a tree.
    Random,
    /// Ascending.
    Sequential,
}

impl Ids {
    /// The id of a document.
    pub fn id(self, number: u64) -> String {
        match self {
            Ids::Random => format!("{:016x}{:016x}", mix(number), mix(!number)),
            Ids::Sequential => format!("{COMMON_DIGITS}{number:016x}"),
        }
    }

    /// The number of the document with this id; `None` if it is not an id of the corpus.
    pub fn number(self, id: &str) -> Option<u64> {
        let digits = match self {
            Ids::Random => id.get(..ID_BYTES / 2)?,
            Ids::Sequential => id.get(ID_BYTES / 2..)?,
        };
        let half = u64::from_str_radix(digits, 16).ok()?;
        let number = if self == Ids::Random { unmix(half) } else { half };
        (self.id(number) == id).then_some(number)
    }
}

/// A generator of documents.
#[derive(Debug)]
pub struct Corpus {
    /// The kind of ids.
    pub ids: Ids,
    bytes: usize,
    noise: Vec<u8>,
}

impl Corpus {
    /// Documents of `bytes` bytes, or of their minimum length if that is larger.
    pub fn new(ids: Ids, bytes: usize) -> Corpus {
        let letter = |at| b"abcdefghijklmnopqrstuvwxyz012345"[(mix(at) >> 59) as usize];
        Corpus { ids, bytes, noise: (0..(NOISE_BYTES + bytes) as u64).map(letter).collect() }
    }

    /// Appends the document as JSON; `generation` is the number of earlier writes. `members` are inserted
    /// first, verbatim, and do not count for the length.
    pub fn write(&self, number: u64, generation: u32, members: &str, out: &mut Vec<u8>) {
        let head = format!(r#""number":{number},"generation":{generation},"text":""#);
        out.push(b'{');
        out.extend_from_slice(members.as_bytes());
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(self.text(number, generation, head.len()));
        out.extend_from_slice(b"\"}");
    }

    fn text(&self, number: u64, generation: u32, head_bytes: usize) -> &[u8] {
        let start = mix(number ^ u64::from(generation) << 40) as usize % NOISE_BYTES;
        &self.noise[start..start + self.bytes.saturating_sub(head_bytes + br#"{"}"#.len())]
    }
}

/// A bijection without a visible pattern.
const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 32).wrapping_mul(FACTOR);
    let number = (number ^ number >> 32).wrapping_mul(FACTOR);
    number ^ number >> 32
}

const fn unmix(mixed: u64) -> u64 {
    let number = (mixed ^ mixed >> 32).wrapping_mul(FACTOR_INVERSE);
    let number = (number ^ number >> 32).wrapping_mul(FACTOR_INVERSE);
    number ^ number >> 32
}

/// The inverse modulo 2^64, by Newton's method: each step doubles the number of correct bits, which are three
/// at first.
const fn inverse(odd: u64) -> u64 {
    let (mut inverse, mut step) = (odd, 0);
    while step < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_id_tells_its_number(number: u64) {
            for ids in [Ids::Random, Ids::Sequential] {
                let id = ids.id(number);
                prop_assert_eq!(id.len(), ID_BYTES);
                prop_assert_eq!(ids.number(&id), Some(number));
            }
        }
    }

    #[test]
    fn another_id_is_none_of_ours() {
        for id in
            ["", "a", "_design/x", "5eaf5eaf5eaf5eaf0000000000000001x", &"0".repeat(32), &"é".repeat(16)]
        {
            assert_eq!(Ids::Sequential.number(id), None, "{id}");
            assert_eq!(Ids::Random.number(id), None, "{id}");
        }
    }

    #[test]
    fn ids_are_in_order_or_not() {
        let ascending = |ids: Ids| (0..1000).filter(|number| ids.id(*number) < ids.id(number + 1)).count();
        assert_eq!(ascending(Ids::Sequential), 1000);
        assert!((400..600).contains(&ascending(Ids::Random)));
    }

    #[test]
    fn a_document_is_json_of_its_length_and_differs_with_each_generation() {
        let corpus = Corpus::new(Ids::Random, 1024);
        let write = |number, generation, members| {
            let mut out = Vec::new();
            corpus.write(number, generation, members, &mut out);
            out
        };
        let document: serde_json::Value = serde_json::from_slice(&write(7, 1, r#""_rev":"1-a","#)).unwrap();
        assert_eq!((&document["number"], &document["_rev"]), (&7.into(), &"1-a".into()));
        assert_eq!((write(7, 1, "").len(), write(1 << 40, 0, "").len()), (1024, 1024));
        assert_ne!(write(7, 1, "")[60..], write(7, 2, "")[60..]);
        assert_eq!(write(7, 1, ""), write(7, 1, ""));
    }
}
