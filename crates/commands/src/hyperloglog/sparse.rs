//! The sparse encoding: registers as runs of the same value, for sketches with few elements.
//!
//! | bits | run |
//! |------|-----|
//! | `00llllll` | `l` + 1 registers of value 0 |
//! | `01llllll llllllll` | `l` + 1 registers of value 0, the high bits of `l` first |
//! | `1vvvvvll` | `l` + 1 registers of value `v` + 1 |
//!
//! Changes are made in place and join only nearby runs of the same value, exactly as Redis does: the same
//! elements in the same order give the same bytes.

use smallvec::SmallVec;

use super::sketch::{Corrupted, REGISTERS, Run};

/// The largest value of a run.
const VALUE_MAX: u8 = 32;
/// The maximum number of registers in a run with a value other than 0.
const VALUES_MAX: usize = 4;
/// The maximum number of registers in a run of zeros that takes one byte.
const SHORT_ZEROS_MAX: usize = 64;
/// The maximum number of comparisons in search of runs to join. Each compares a run with the next run; the
/// first compared run is the run before the change, if there is one.
const JOINS_MAX: usize = 5;

/// The encoding of all registers at 0.
pub(super) const EMPTY: [u8; 2] = [0x40 | ((REGISTERS - 1) >> 8) as u8, (REGISTERS - 1) as u8];

/// The result of raising a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Raised {
    /// Unchanged: the register had at least this value.
    No,
    /// The runs have changed.
    Yes,
    /// Unchanged: the runs would become too long, or cannot hold the value.
    NeedsDense,
}

/// The position at which to start searching for a register; by default the first run. After raising a
/// register, the same cursor serves registers of higher index, so that raising many in order takes one pass.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    /// The offset of a run, in bytes.
    offset: usize,
    /// The first register of that run.
    first: usize,
}

/// An encoded run and its position.
#[derive(Debug, Clone, Copy)]
struct Encoded {
    run: Run,
    /// The offset of the run in the encoding, in bytes.
    offset: usize,
    /// The length of the encoded run, in bytes: 1 or 2.
    size: usize,
}

impl Encoded {
    /// Decodes the run at an offset; `None` at the end, or if it is truncated.
    fn at(bytes: &[u8], Cursor { offset, first }: Cursor) -> Option<Encoded> {
        let (value, len, size) = match *bytes.get(offset..)? {
            [byte, ..] if byte & 0x80 != 0 => ((byte >> 2 & 31) + 1, usize::from(byte & 3) + 1, 1),
            [byte, ..] if byte & 0x40 == 0 => (0, usize::from(byte & 63) + 1, 1),
            [byte, low, ..] => (0, (usize::from(byte & 63) << 8 | usize::from(low)) + 1, 2),
            _ => return None,
        };
        Some(Encoded { run: Run { first, len, value }, offset, size })
    }

    fn next(&self, bytes: &[u8]) -> Option<Encoded> {
        Encoded::at(bytes, self.end())
    }

    fn start(&self) -> Cursor {
        Cursor { offset: self.offset, first: self.run.first }
    }

    fn end(&self) -> Cursor {
        Cursor { offset: self.offset + self.size, first: self.run.end() }
    }
}

fn push(out: &mut SmallVec<[u8; 8]>, value: u8, len: usize) {
    match (value, len) {
        (_, 0) => {}
        (0, 1..=SHORT_ZEROS_MAX) => out.push((len - 1) as u8),
        (0, _) => out.extend([0x40 | ((len - 1) >> 8) as u8, (len - 1) as u8]),
        _ => out.push(encode_values(value, len)),
    }
}

fn encode_values(value: u8, len: usize) -> u8 {
    0x80 | (value - 1) << 2 | (len - 1) as u8
}

/// Raises a register to at least `value`, unless runs cannot hold the value, or would grow beyond `bytes_max`
/// bytes.
///
/// # Errors
/// The runs do not contain this register.
pub(super) fn raise(
    bytes: &mut Vec<u8>,
    cursor: &mut Cursor,
    index: usize,
    value: u8,
    bytes_max: usize,
) -> Result<Raised, Corrupted> {
    let mut found = Encoded::at(bytes, *cursor).ok_or(Corrupted)?;
    let mut before = found;
    while found.run.end() <= index {
        // Joining may change the run before the found run, but no earlier run.
        *cursor = before.start();
        before = found;
        found = found.next(bytes).ok_or(Corrupted)?;
    }
    let Encoded { run, offset, size } = found;
    if run.value >= value {
        return Ok(Raised::No);
    }
    if value > VALUE_MAX {
        return Ok(Raised::NeedsDense);
    }
    let mut pieces = SmallVec::new();
    push(&mut pieces, run.value, index - run.first);
    push(&mut pieces, value, 1);
    push(&mut pieces, run.value, run.end() - index - 1);
    if pieces.len() > size && bytes.len() - size + pieces.len() > bytes_max {
        return Ok(Raised::NeedsDense);
    }
    bytes.splice(offset..offset + size, pieces);
    join(bytes, before.start());
    Ok(Raised::Yes)
}

/// Joins neighbouring runs of the same value, except 0, in up to [`JOINS_MAX`] comparisons from the run at
/// `start` on.
fn join(bytes: &mut Vec<u8>, start: Cursor) {
    let Some(mut run) = Encoded::at(bytes, start) else { return };
    for _ in 0..JOINS_MAX {
        let Some(next) = run.next(bytes) else { return };
        let (value, len) = (run.run.value, run.run.len + next.run.len);
        if value != 0 && next.run.value == value && len <= VALUES_MAX {
            bytes[run.offset] = encode_values(value, len);
            bytes.remove(next.offset);
            run.run.len = len;
        } else {
            run = next;
        }
    }
}

/// Visits all runs in order.
///
/// # Errors
/// If the runs do not add up to all registers. Some runs may have been visited.
pub(super) fn for_each_run(bytes: &[u8], mut visit: impl FnMut(Run)) -> Result<(), Corrupted> {
    let mut cursor = Cursor::default();
    while let Some(encoded) = Encoded::at(bytes, cursor) {
        cursor = encoded.end();
        if cursor.first > REGISTERS {
            return Err(Corrupted);
        }
        visit(encoded.run);
    }
    if cursor.first == REGISTERS && cursor.offset == bytes.len() { Ok(()) } else { Err(Corrupted) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(bytes: &[u8]) -> Result<Vec<u8>, Corrupted> {
        let mut values = Vec::new();
        for_each_run(bytes, |run| {
            assert_eq!(run.first, values.len());
            values.resize(run.end(), run.value);
        })?;
        Ok(values)
    }

    #[test]
    fn runs_are_split_and_joined() {
        let mut bytes = EMPTY.to_vec();
        let steps: [(usize, u8, &[u8]); 8] = [
            (100, 1, &[0x40, 99, 0x80, 0x7F, 0x9A]),
            (102, 1, &[0x40, 99, 0x80, 0x00, 0x80, 0x7F, 0x98]),
            (101, 1, &[0x40, 99, 0x82, 0x7F, 0x98]),
            (101, 2, &[0x40, 99, 0x80, 0x84, 0x80, 0x7F, 0x98]),
            (0, 32, &[0xFC, 0x40, 98, 0x80, 0x84, 0x80, 0x7F, 0x98]),
            (16383, 3, &[0xFC, 0x40, 98, 0x80, 0x84, 0x80, 0x7F, 0x97, 0x88]),
            (90, 1, &[0xFC, 0x40, 88, 0x80, 8, 0x80, 0x84, 0x80, 0x7F, 0x97, 0x88]),
            (60, 1, &[0xFC, 58, 0x80, 28, 0x80, 8, 0x80, 0x84, 0x80, 0x7F, 0x97, 0x88]),
        ];
        for (index, value, expected) in steps {
            assert_eq!(raise(&mut bytes, &mut Cursor::default(), index, value, 100), Ok(Raised::Yes));
            assert_eq!(bytes, expected, "register {index}");
            assert_eq!(raise(&mut bytes, &mut Cursor::default(), index, value, 100), Ok(Raised::No));
        }
        assert_eq!(raise(&mut bytes, &mut Cursor::default(), 5, 33, 100), Ok(Raised::NeedsDense));
        assert_eq!(raise(&mut bytes, &mut Cursor::default(), 5, 1, 13), Ok(Raised::NeedsDense));
        assert_eq!(raise(&mut bytes, &mut Cursor::default(), 60, 9, 1), Ok(Raised::Yes), "it does not grow");
        assert_eq!(values(&bytes).map(|values| values.len()), Ok(REGISTERS));
    }

    #[test]
    fn runs_that_do_not_cover_all_registers_are_corrupted() {
        let cases: [&[u8]; 6] =
            [&[], &[0x7F], &[0x7F, 0xFE], &[0x7F, 0xFF, 0x00], &[0x7F, 0xFF, 0x7F], &[0x80; 4097]];
        for bytes in cases {
            assert_eq!(values(bytes), Err(Corrupted), "{bytes:?}");
        }
        assert_eq!(
            raise(&mut vec![0x7F, 0xFE], &mut Cursor::default(), REGISTERS - 1, 1, 100),
            Err(Corrupted)
        );
        assert_eq!(raise(&mut vec![0x7F], &mut Cursor::default(), 0, 1, 100), Err(Corrupted));
        assert_eq!(raise(&mut Vec::new(), &mut Cursor::default(), 0, 1, 100), Err(Corrupted));
    }

    proptest! {
        #[test]
        fn runs_hold_the_same_values_as_an_array(
            steps in prop::collection::vec((prop_oneof![0..80usize, 0..REGISTERS], 1..=4u8), 1..300),
        ) {
            let mut bytes = EMPTY.to_vec();
            let mut expected = vec![0; REGISTERS];
            for (index, value) in steps {
                let raised = if expected[index] < value { Raised::Yes } else { Raised::No };
                prop_assert_eq!(raise(&mut bytes, &mut Cursor::default(), index, value, usize::MAX), Ok(raised));
                expected[index] = expected[index].max(value);
            }
            prop_assert_eq!(values(&bytes), Ok(expected));
        }

        #[test]
        fn raising_registers_with_a_cursor_gives_the_same_sketch(
            before in prop::collection::vec((0..400usize, 1..=4u8), 0..200),
            steps in prop::collection::btree_map(0..400usize, 1..=4u8, 0..200),
        ) {
            let mut bytes = EMPTY.to_vec();
            for (index, value) in before {
                raise(&mut bytes, &mut Cursor::default(), index, value, usize::MAX).expect("it is whole");
            }
            let (mut one_by_one, mut cursor) = (bytes.clone(), Cursor::default());
            for (index, value) in steps {
                let expected = raise(&mut one_by_one, &mut Cursor::default(), index, value, usize::MAX);
                prop_assert_eq!(raise(&mut bytes, &mut cursor, index, value, usize::MAX), expected);
                prop_assert_eq!(&bytes, &one_by_one);
            }
        }

        #[test]
        fn no_bytes_do_harm(
            mut bytes in prop::collection::vec(any::<u8>(), 0..600),
            index in 0..REGISTERS,
            value in 1..=63u8,
        ) {
            let before = values(&bytes);
            let raised = raise(&mut bytes, &mut Cursor::default(), index, value, 600);
            if let (Ok(mut expected), Ok(raised)) = (before, raised) {
                if raised == Raised::Yes {
                    expected[index] = value;
                }
                prop_assert_eq!(values(&bytes), Ok(expected));
            }
        }
    }
}
