//! The dense encoding: registers of 6 bits, four of them in three bytes.
//!
//! ```text
//! three bytes as a little-endian number:   register 3 | register 2 | register 1 | register 0
//! bits:                                      23..18       17..12       11..6        5..0
//! ```

use super::sketch::{REGISTERS, Run};

/// Four packed registers.
pub(super) type Quad = [u8; 3];

/// The size of all registers, in bytes.
pub(super) const BYTES: usize = REGISTERS / 4 * size_of::<Quad>();

/// All registers, with value 0.
pub(super) fn zeros() -> Box<[Quad]> {
    vec![[0; 3]; REGISTERS / 4].into()
}

pub(super) fn get(quads: &[Quad], index: usize) -> u8 {
    registers(quads[index / 4])[index % 4]
}

/// Raises a register to at least `value`. Returns whether it changed.
pub(super) fn raise(quads: &mut [Quad], index: usize, value: u8) -> bool {
    let quad = &mut quads[index / 4];
    let mut registers = registers(*quad);
    if registers[index % 4] >= value {
        return false;
    }
    registers[index % 4] = value;
    let [a, b, c, d] = registers;
    *quad = [a | b << 6, b >> 2 | c << 4, c >> 4 | d << 2];
    true
}

/// Visits all registers in order, each as a run of one.
pub(super) fn for_each_run(quads: &[Quad], mut visit: impl FnMut(Run)) {
    for (index, quad) in quads.iter().enumerate() {
        for (offset, value) in registers(*quad).into_iter().enumerate() {
            visit(Run { first: index * 4 + offset, len: 1, value });
        }
    }
}

fn registers([a, b, c]: Quad) -> [u8; 4] {
    [a & 63, (a >> 6 | b << 2) & 63, (b >> 4 | c << 4) & 63, c >> 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_do_not_touch_each_other() {
        let mut quads = zeros();
        assert_eq!(quads.len() * 3, BYTES);
        let values = |index: usize| (index * 7 % 63 + 1) as u8;
        for index in (0..REGISTERS).rev() {
            assert!(raise(&mut quads, index, values(index)));
            assert!(!raise(&mut quads, index, values(index)));
        }
        assert!((0..REGISTERS).all(|index| get(&quads, index) == values(index)));
        let mut visited = 0;
        for_each_run(&quads, |run| {
            assert_eq!((run.first, run.len, run.value), (visited, 1, values(visited)));
            visited += 1;
        });
        assert_eq!(visited, REGISTERS);
    }

    #[test]
    fn the_first_register_is_in_the_lowest_bits() {
        let mut quads = zeros();
        raise(&mut quads, 0, 0b00_0001);
        raise(&mut quads, 1, 0b11_0011);
        raise(&mut quads, 3, 0b10_1010);
        assert_eq!(quads[0], [0b1100_0001, 0b0000_1100, 0b1010_1000]);
    }
}
