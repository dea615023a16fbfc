//! A HyperLogLog as the string that holds it: a header, then the registers in one of two encodings.
//!
//! | bytes | content |
//! |-------|---------|
//! | 0..4 | `HYLL` |
//! | 4 | 0: dense registers follow, 1: sparse ones |
//! | 5..8 | 0 |
//! | 8..16 | the cached cardinality, little-endian; its highest bit marks it out of date |
//!
//! This is the format of Redis, byte for byte.
//!
//! Invariants
//! - Reading arbitrary bytes ends in an error or a number, never in a panic.
//! - A changed sketch has no valid cardinality in its header.

use super::{
    dense::{self, Quad},
    estimate::{VALUES, cardinality},
    hash::hash,
    sparse::{self, Cursor, Raised},
};

/// The bits of a hash that choose the register.
const INDEX_BITS: usize = 14;
/// The number of registers: 16,384.
pub(super) const REGISTERS: usize = 1 << INDEX_BITS;
/// The number of bits of a hash besides those of the register's index. They give the value of the register,
/// which is at most one more than this number.
pub(super) const HASH_BITS_LEFT: usize = 64 - INDEX_BITS;

const HEADER_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"HYLL";
/// The offset of the encoding in the header.
const ENCODING: usize = MAGIC.len();
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// A flag in the last byte of the header: the cached cardinality is out of date.
const OUT_OF_DATE: u8 = 0x80;

/// The registers are malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Corrupted;

/// Consecutive registers with the same value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: usize,
    pub(super) len: usize,
    pub(super) value: u8,
}

impl Run {
    /// The index of the register after the run.
    pub(super) fn end(&self) -> usize {
        self.first + self.len
    }
}

/// The register of an element, and its minimum value: the position, from 1, of the lowest set bit in the
/// remaining bits of the hash.
fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let left = hash >> INDEX_BITS | 1 << HASH_BITS_LEFT;
    (hash as usize % REGISTERS, left.trailing_zeros() as u8 + 1)
}

/// A sketch in a string, read in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct SketchRef<'a> {
    header: &'a [u8; HEADER_BYTES],
    registers: Registers<&'a [Quad], &'a [u8]>,
}

/// The registers in one of their encodings.
#[derive(Debug, Clone, Copy)]
enum Registers<D, S> {
    Dense(D),
    Sparse(S),
}

impl<'a> SketchRef<'a> {
    /// Interprets a string as a sketch. `None` if the string has no header of a sketch, or dense registers of
    /// another length. Sparse registers are checked only when they are read.
    pub(super) fn new(bytes: &'a [u8]) -> Option<SketchRef<'a>> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let registers = match header[ENCODING] {
            _ if !header.starts_with(&MAGIC) => return None,
            DENSE if rest.len() == dense::BYTES => Registers::Dense(rest.as_chunks().0),
            SPARSE => Registers::Sparse(rest),
            _ => return None,
        };
        Some(SketchRef { header, registers })
    }

    pub(super) fn is_dense(&self) -> bool {
        matches!(self.registers, Registers::Dense(_))
    }

    /// Whether adding the element would certainly change nothing. Always false for sparse sketches, where the
    /// check would cost as much as adding.
    pub(super) fn holds(&self, element: &[u8]) -> bool {
        let (index, value) = register_of(element);
        match self.registers {
            Registers::Dense(quads) => dense::get(quads, index) >= value,
            Registers::Sparse(_) => false,
        }
    }

    /// The estimated number of different elements; cached if the header has a valid cardinality.
    pub(super) fn cardinality(&self) -> Result<u64, Corrupted> {
        if self.header[HEADER_BYTES - 1] & OUT_OF_DATE == 0 {
            let cached = self.header.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            return Ok(cached);
        }
        let mut histogram = [0; VALUES];
        self.for_each_run(|run| histogram[usize::from(run.value)] += run.len as u32)?;
        Ok(cardinality(&histogram))
    }

    /// Visits all registers in order, as runs.
    pub(super) fn for_each_run(&self, visit: impl FnMut(Run)) -> Result<(), Corrupted> {
        match self.registers {
            Registers::Dense(quads) => {
                dense::for_each_run(quads, visit);
                Ok(())
            }
            Registers::Sparse(runs) => sparse::for_each_run(runs, visit),
        }
    }
}

/// A modifiable copy of a sketch.
#[derive(Debug, Clone)]
pub(super) struct Sketch {
    header: [u8; HEADER_BYTES],
    registers: Registers<Box<[Quad]>, Vec<u8>>,
    /// With sparse registers, the string does not grow beyond this length.
    sparse_bytes_max: usize,
}

impl Sketch {
    /// An empty sketch, with sparse registers.
    pub(super) fn new(sparse_bytes_max: usize) -> Sketch {
        let mut header = [0; HEADER_BYTES];
        header[..MAGIC.len()].copy_from_slice(&MAGIC);
        header[ENCODING] = SPARSE;
        Sketch { header, registers: Registers::Sparse(sparse::EMPTY.to_vec()), sparse_bytes_max }
    }

    pub(super) fn of(sketch: &SketchRef<'_>, sparse_bytes_max: usize) -> Sketch {
        let registers = match sketch.registers {
            Registers::Dense(quads) => Registers::Dense(quads.into()),
            Registers::Sparse(runs) => Registers::Sparse(runs.into()),
        };
        Sketch { header: *sketch.header, registers, sparse_bytes_max }
    }

    /// Adds an element. Returns whether the sketch changed.
    pub(super) fn add(&mut self, element: &[u8]) -> Result<bool, Corrupted> {
        let (index, value) = register_of(element);
        self.raise(&mut Cursor::default(), index, value)
    }

    /// Raises a register to at least `value`. Returns whether it changed.
    fn raise(&mut self, cursor: &mut Cursor, index: usize, value: u8) -> Result<bool, Corrupted> {
        if let Registers::Sparse(runs) = &mut self.registers {
            let runs_bytes_max = self.sparse_bytes_max.saturating_sub(HEADER_BYTES);
            match sparse::raise(runs, cursor, index, value, runs_bytes_max)? {
                Raised::No => return Ok(false),
                Raised::Yes => return Ok(true),
                Raised::NeedsDense => {}
            }
        }
        Ok(dense::raise(self.make_dense()?, index, value))
    }

    /// Converts the registers to the dense encoding.
    pub(super) fn make_dense(&mut self) -> Result<&mut [Quad], Corrupted> {
        if let Registers::Sparse(runs) = &self.registers {
            let mut quads = dense::zeros();
            let copy = |run: Run| {
                for index in run.first..run.end() {
                    dense::raise(&mut quads, index, run.value);
                }
            };
            sparse::for_each_run(runs, copy)?;
            self.registers = Registers::Dense(quads);
            self.header[ENCODING] = DENSE;
        }
        match &mut self.registers {
            Registers::Dense(quads) => Ok(quads),
            Registers::Sparse(_) => unreachable!("it was made dense"),
        }
    }

    /// The string of the sketch, without a valid cached cardinality.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.header[HEADER_BYTES - 1] |= OUT_OF_DATE;
        match &self.registers {
            Registers::Dense(quads) => [&self.header, quads.as_flattened()].concat(),
            Registers::Sparse(runs) => [&self.header, runs.as_slice()].concat(),
        }
    }
}

/// The union of sketches: the largest value of each register.
pub(super) struct Union(Box<[u8; REGISTERS]>);

impl Union {
    /// The union of no sketches.
    pub(super) fn new() -> Union {
        Union(Box::new([0; REGISTERS]))
    }

    /// Adds a sketch to the union.
    pub(super) fn include(&mut self, sketch: &SketchRef<'_>) -> Result<(), Corrupted> {
        sketch.for_each_run(|run| {
            for value in &mut self.0[run.first..run.end()] {
                *value = run.value.max(*value);
            }
        })
    }

    /// The estimated number of different elements.
    pub(super) fn cardinality(&self) -> u64 {
        let mut histogram = [0; VALUES];
        self.0.iter().for_each(|&value| histogram[usize::from(value)] += 1);
        cardinality(&histogram)
    }

    /// Merges the union into a sketch.
    pub(super) fn add_to(&self, sketch: &mut Sketch) -> Result<(), Corrupted> {
        let mut cursor = Cursor::default();
        for (index, &value) in self.0.iter().enumerate().filter(|(_, value)| **value > 0) {
            sketch.raise(&mut cursor, index, value)?;
        }
        Ok(())
    }
}
