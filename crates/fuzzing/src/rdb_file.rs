//! Arbitrary bytes as an RDB file: no panic, and no strings longer than the bytes justify.
//!
//! The seeds that begin with `redis-` in the corpus are files of Redis 7.0.15.

use rdb::{
    Element, FileError, FileWriter, Key, LZF_RATIO_MAX, PassedOver, StreamElement, Visitor, read_file,
};

use crate::{Outcome, Seed, rdb_values};

const MAGICS: [&[u8]; 2] = [b"REDIS0012", b"VALKEY080"];

/// A visitor that records the length of the longest string.
#[derive(Default)]
struct Weighed {
    longest: usize,
    is_open: bool,
}

impl Weighed {
    fn weigh(&mut self, bytes: &[u8]) {
        self.longest = self.longest.max(bytes.len());
    }
}

impl Visitor for Weighed {
    type Error = FileError;

    fn begin(&mut self, key: &Key<'_>) -> Result<(), FileError> {
        assert!(!self.is_open);
        self.is_open = true;
        self.weigh(key.name);
        Ok(())
    }

    fn element(&mut self, element: Element<'_>) -> Result<(), FileError> {
        assert!(self.is_open);
        match element {
            Element::String(bytes) | Element::Item(bytes) | Element::Member(bytes) => self.weigh(bytes),
            Element::Scored(score, member) => {
                assert!(!score.is_nan());
                self.weigh(member);
            }
            Element::Field { name, value, .. } => {
                self.weigh(name);
                self.weigh(value);
            }
            Element::Stream(StreamElement::Entry { pairs, .. }) => {
                pairs.iter().for_each(|part| self.weigh(part));
            }
            Element::Stream(StreamElement::Group { name, .. } | StreamElement::Consumer { name, .. }) => {
                self.weigh(name)
            }
            Element::Stream(StreamElement::Head(_) | StreamElement::Pending { .. }) => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), FileError> {
        assert!(self.is_open);
        self.is_open = false;
        Ok(())
    }

    fn library(&mut self, _: &[u8]) -> Result<(), FileError> {
        Ok(())
    }

    fn passed_over(&mut self, _: PassedOver) -> Result<(), FileError> {
        assert!(!self.is_open);
        Ok(())
    }
}

/// Returns whether the file is valid.
fn read(file: &[u8]) -> bool {
    let mut weighed = Weighed::default();
    let read = read_file(file, &mut weighed);
    assert!(weighed.longest <= 20 + file.len().saturating_mul(LZF_RATIO_MAX), "from {} bytes", file.len());
    read.is_ok()
}

/// Reads the bytes as a file, and as the rest of one. Accepts a valid file, also without its magic.
///
/// # Panics
/// If a string is longer than the bytes justify, or a value is not ended.
pub fn rdb_file(bytes: &[u8]) -> Outcome {
    let mut is_valid = read(bytes);
    // With a valid magic the values are reached.
    for magic in MAGICS {
        is_valid |= read(&[magic, bytes].concat());
    }
    Outcome::accepted_if(is_valid)
}

pub(crate) fn seeds() -> Vec<Seed> {
    let file = |version, names: &[&str]| {
        let mut file = FileWriter::begin(Vec::new(), version);
        file.note("redis-ver", "7.2.4");
        file.library(b"#!lua name=lib\nredis.register_function('f', function() return 1 end)");
        file.select(3, names.len() as u64, 1);
        for (number, name) in names.iter().enumerate() {
            let expire_at_ms = (number == 0).then_some(1_700_000_000_000);
            rdb_values::write(name, file.key(name.as_bytes(), expire_at_ms));
        }
        file.finish().expect("memory")
    };
    let newest = file(12, &rdb_values::NAMES);
    let magic = MAGICS[0].len();
    let with_a_changed_value = |mut file: Vec<u8>| {
        let at = file.len() / 2;
        file[at] ^= 1;
        file
    };
    let mut seeds: Vec<Seed> =
        rdb_values::NAMES.map(|name| (name, file(12, &[name])[magic..].to_vec())).into();
    seeds.extend([
        ("without-keys", file(11, &[])),
        ("version-10", file(10, &rdb_values::NAMES)),
        // A file as Valkey writes it without a checksum: the eight bytes at its end are zeros.
        ("valkey", b"VALKEY080\xf5\x03lib\xf3\x03job\x01\x00\x05\x00\x01k\x01v\xff\0\0\0\0\0\0\0\0".to_vec()),
        ("refused-checksum", with_a_changed_value(newest.clone())),
        ("version-12", newest),
        ("refused-cut", file(12, &["list"])[..40].to_vec()),
    ]);
    seeds
}
