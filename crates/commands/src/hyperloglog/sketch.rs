//! A HyperLogLog as the string that holds it: a header, then the registers in one of two encodings.
//!
//! | bytes | content |
//! |-------|---------|
//! | 0..4 | `HYLL` |
//! | 4 | 0: dense registers follow, 1: sparse ones |
//! | 5..8 | 0 |
//! | 8..16 | the cardinality as it was counted last, little-endian; the highest bit says that it is out of date |
//!
//! That is the form in which Redis stores them, byte by byte.
//!
//! Invariants
//! - Reading any bytes at all ends in an error or a number, never in a panic.
//! - A changed sketch has no valid cardinality in its header.

use super::{
    dense::{self, Quad},
    estimate::{VALUES, cardinality},
    hash::hash,
    sparse::{self, Cursor, Raised},
};

/// Bits of a hash that choose the register.
const INDEX_BITS: usize = 14;
/// The number of registers.
pub(super) const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a hash that make up the value of a register, which is at most one more.
pub(super) const HASH_BITS_LEFT: usize = 64 - INDEX_BITS;

const HEADER_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"HYLL";
/// Where the encoding stands in the header.
const ENCODING: usize = MAGIC.len();
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// In the last byte of the header.
const OUT_OF_DATE: u8 = 0x80;

/// The registers do not make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Corrupted;

/// Registers in a row with the same value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: usize,
    pub(super) len: usize,
    pub(super) value: u8,
}

impl Run {
    /// The register behind it.
    pub(super) fn end(&self) -> usize {
        self.first + self.len
    }
}

/// The register an element belongs to, and the value it must at least have: the position of the lowest set bit of what is
/// left of the hash.
fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let left = hash >> INDEX_BITS | 1 << HASH_BITS_LEFT;
    (hash as usize % REGISTERS, left.trailing_zeros() as u8 + 1)
}

/// A sketch in a string.
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
    /// Takes a string for a sketch; `None` if its header or its length is none of a sketch.
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

    /// Whether its registers are in the dense encoding.
    pub(super) fn is_dense(&self) -> bool {
        matches!(self.registers, Registers::Dense(_))
    }

    /// Whether an element surely changes nothing. For a sparse sketch that is as much work as adding it, and is not tried.
    pub(super) fn holds(&self, element: &[u8]) -> bool {
        let (index, value) = register_of(element);
        match self.registers {
            Registers::Dense(quads) => dense::get(quads, index) >= value,
            Registers::Sparse(_) => false,
        }
    }

    /// The number of different elements that were added.
    pub(super) fn cardinality(&self) -> Result<u64, Corrupted> {
        if self.header[HEADER_BYTES - 1] & OUT_OF_DATE == 0 {
            let cached = self.header.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            return Ok(cached);
        }
        let mut histogram = [0; VALUES];
        self.for_each_run(|run| histogram[usize::from(run.value)] += run.len as u32)?;
        Ok(cardinality(&histogram))
    }

    /// Visits all registers in order.
    fn for_each_run(&self, visit: impl FnMut(Run)) -> Result<(), Corrupted> {
        match self.registers {
            Registers::Dense(quads) => {
                dense::for_each_run(quads, visit);
                Ok(())
            }
            Registers::Sparse(runs) => sparse::for_each_run(runs, visit),
        }
    }
}

/// A sketch that is being changed.
#[derive(Debug, Clone)]
pub(super) struct Sketch {
    header: [u8; HEADER_BYTES],
    registers: Registers<Box<[Quad]>, Vec<u8>>,
    /// Longest string with sparse registers.
    sparse_bytes_max: usize,
}

impl Sketch {
    /// A sketch without elements, sparse up to `sparse_bytes_max`.
    pub(super) fn new(sparse_bytes_max: usize) -> Sketch {
        let mut header = [0; HEADER_BYTES];
        header[..MAGIC.len()].copy_from_slice(&MAGIC);
        header[ENCODING] = SPARSE;
        Sketch { header, registers: Registers::Sparse(sparse::EMPTY.to_vec()), sparse_bytes_max }
    }

    /// A copy of a sketch.
    pub(super) fn of(sketch: &SketchRef<'_>, sparse_bytes_max: usize) -> Sketch {
        let registers = match sketch.registers {
            Registers::Dense(quads) => Registers::Dense(quads.into()),
            Registers::Sparse(runs) => Registers::Sparse(runs.into()),
        };
        Sketch { header: *sketch.header, registers, sparse_bytes_max }
    }

    /// Adds an element. Returns whether that changed anything.
    pub(super) fn add(&mut self, element: &[u8]) -> Result<bool, Corrupted> {
        let (index, value) = register_of(element);
        self.raise(&mut Cursor::default(), index, value)
    }

    /// Makes the value of a register at least `value`. Returns whether that changed it.
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

    /// Changes the encoding to dense.
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

    /// The string that holds it.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.header[HEADER_BYTES - 1] |= OUT_OF_DATE;
        match &self.registers {
            Registers::Dense(quads) => [&self.header, quads.as_flattened()].concat(),
            Registers::Sparse(runs) => [&self.header, runs.as_slice()].concat(),
        }
    }
}

/// The union of sketches, each register with its largest value.
pub(super) struct Union(Box<[u8; REGISTERS]>);

impl Union {
    /// The union of no sketches.
    pub(super) fn new() -> Union {
        Union(Box::new([0; REGISTERS]))
    }

    /// Takes a sketch in.
    pub(super) fn include(&mut self, sketch: &SketchRef<'_>) -> Result<(), Corrupted> {
        sketch.for_each_run(|run| {
            for value in &mut self.0[run.first..run.end()] {
                *value = run.value.max(*value);
            }
        })
    }

    /// The number of different elements.
    pub(super) fn cardinality(&self) -> u64 {
        let mut histogram = [0; VALUES];
        self.0.iter().for_each(|&value| histogram[usize::from(value)] += 1);
        cardinality(&histogram)
    }

    /// Makes a sketch hold all of it.
    pub(super) fn add_to(&self, sketch: &mut Sketch) -> Result<(), Corrupted> {
        let mut cursor = Cursor::default();
        for (index, &value) in self.0.iter().enumerate().filter(|(_, value)| **value > 0) {
            sketch.raise(&mut cursor, index, value)?;
        }
        Ok(())
    }
}
