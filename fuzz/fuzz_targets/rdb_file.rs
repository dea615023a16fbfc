//! Arbitrary bytes as an RDB file: no panic, and no strings longer than the bytes justify.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rdb::{Element, FileError, Key, LZF_RATIO_MAX, PassedOver, StreamElement, Visitor, read_file};

/// Records the longest string passed to it.
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

fn read(file: &[u8]) {
    let mut weighed = Weighed::default();
    let _ = read_file(file, &mut weighed);
    assert!(weighed.longest <= 20 + file.len().saturating_mul(LZF_RATIO_MAX), "from {} bytes", file.len());
}

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    // With a valid magic the values are reached.
    for magic in [b"REDIS0012", b"VALKEY080"] {
        read(&[magic, bytes].concat());
    }
});
