//! Cells: the squares of a grid over the earth, numbered by geohashes.
//!
//! This module converts a place to a number and back exactly as Redis does, because clients store, compare
//! and copy these numbers as scores. At step n a cell has a row and a column of n bits each. The number of
//! the cell interleaves these bits. The numbers of step 26 have 52 bits, which a score holds without loss.
//! Distances are in `earth`.
//!
//! ```text
//! step 3:  column c2 c1 c0, row r2 r1 r0  ->  number c2 r2 c1 r1 c0 r0
//! ```

use std::ops::Range;

/// The number of bits of the row, and of the column, in a score.
pub(super) const STEP_MAX: u32 = 26;

/// The valid longitudes.
const LONGITUDES: Extent = Extent { min: -180.0, max: 180.0 };
/// The latitudes that a score can represent: those of a square map.
const LATITUDES: Extent = Extent { min: -85.05112878, max: 85.05112878 };
/// The latitudes of standard geohashes.
const ALL_LATITUDES: Extent = Extent { min: -90.0, max: 90.0 };

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Coordinates {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

impl Coordinates {
    /// Whether a score can represent the place.
    pub(super) fn is_on_map(&self) -> bool {
        LONGITUDES.contains(self.longitude) && LATITUDES.contains(self.latitude)
    }

    /// The score of the place, which must be on the map.
    pub(super) fn score(&self) -> f64 {
        Cell::at(*self, STEP_MAX).number() as f64
    }

    /// The place of a score: the centre of its cell.
    pub(super) fn of_score(score: f64) -> Coordinates {
        // Scores need not come from places: negative scores wrap, and scores from 2^64 on become 0, as in
        // Redis.
        const END: f64 = 18_446_744_073_709_551_616.0;
        let number = match score {
            ..0.0 => score as i64 as u64,
            ..END => score as u64,
            _ => 0,
        };
        let cell = Cell { row: even_bits(number), column: even_bits(number >> 1), step: STEP_MAX };
        let Area { longitudes, latitudes } = cell.area();
        Coordinates {
            longitude: LONGITUDES.clamp(longitudes.middle()),
            latitude: LATITUDES.clamp(latitudes.middle()),
        }
    }

    /// The standard geohash of a place as text. Its last letter is always 0, as in Redis: 52 bits suffice for
    /// ten letters of 5 bits.
    pub(super) fn geohash(&self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let number = Cell::within(*self, STEP_MAX, ALL_LATITUDES).number();
        let mut text = [LETTERS[0]; 11];
        for (index, letter) in text[..10].iter_mut().enumerate() {
            *letter = LETTERS[(number >> (2 * STEP_MAX as usize - 5 * (index + 1)) & 31) as usize];
        }
        text
    }
}

/// A range of degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Extent {
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Extent {
    fn contains(&self, degrees: f64) -> bool {
        (self.min..=self.max).contains(&degrees)
    }

    fn clamp(&self, degrees: f64) -> f64 {
        degrees.clamp(self.min, self.max)
    }

    fn middle(&self) -> f64 {
        (self.min + self.max) / 2.0
    }

    /// The index of the part that contains an angle, when this extent is divided into 2^step equal parts.
    fn part_of(&self, degrees: f64, step: u32) -> u32 {
        ((degrees - self.min) / (self.max - self.min) * parts(step)) as u32
    }

    /// One of 2^step equal parts of this extent. The order of operations is that of Redis, so that the last
    /// bits are equal.
    fn part(&self, index: u32, step: u32) -> Extent {
        let degrees = |index: u32| self.min + (f64::from(index) / parts(step)) * (self.max - self.min);
        Extent { min: degrees(index), max: degrees(index.wrapping_add(1)) }
    }
}

fn parts(step: u32) -> f64 {
    (1u64 << step) as f64
}

/// The extent of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub(super) longitudes: Extent,
    pub(super) latitudes: Extent,
}

/// A square of the grid at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    /// Counted from south to north.
    row: u32,
    /// Counted from west to east.
    column: u32,
    step: u32,
}

impl Cell {
    /// The cell that contains a place on the map.
    pub(super) fn at(place: Coordinates, step: u32) -> Cell {
        Cell::within(place, step, LATITUDES)
    }

    fn within(place: Coordinates, step: u32, latitudes: Extent) -> Cell {
        Cell {
            row: latitudes.part_of(place.latitude, step),
            column: LONGITUDES.part_of(place.longitude, step),
            step,
        }
    }

    /// The cell `rows` to the north and `columns` to the east; wraps around at the edges of the map.
    pub(super) fn moved(self, rows: i32, columns: i32) -> Cell {
        let mask = (1u32 << self.step) - 1;
        let moved = |index: u32, by: i32| match by {
            0 => index,
            by => index.wrapping_add_signed(by) & mask,
        };
        Cell { row: moved(self.row, rows), column: moved(self.column, columns), step: self.step }
    }

    pub(super) fn area(self) -> Area {
        Area {
            longitudes: LONGITUDES.part(self.column, self.step),
            latitudes: LATITUDES.part(self.row, self.step),
        }
    }

    /// The scores of the places in the cell.
    pub(super) fn scores(self) -> Range<f64> {
        let shift = 2 * (STEP_MAX - self.step);
        (self.number() << shift) as f64..((self.number() + 1) << shift) as f64
    }

    /// The interleaved bits of row and column.
    fn number(self) -> u64 {
        spread(self.row) | spread(self.column) << 1
    }
}

/// Moves bit n to bit 2n.
fn spread(bits: u32) -> u64 {
    const MASKS: [(u32, u64); 5] = [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ];
    MASKS.iter().fold(u64::from(bits), |bits, (shift, mask)| (bits | bits << shift) & mask)
}

/// Moves bit 2n to bit n and drops the others.
fn even_bits(bits: u64) -> u32 {
    const MASKS: [(u32, u64); 5] = [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ];
    let even = bits & 0x5555_5555_5555_5555;
    MASKS.iter().fold(even, |bits, (shift, mask)| (bits | bits >> shift) & mask) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PALERMO: Coordinates = Coordinates { longitude: 13.361389, latitude: 38.115556 };

    #[test]
    fn a_place_has_the_score_that_redis_gives_it() {
        assert_eq!(PALERMO.score(), 3479099956230698.0);
        let Coordinates { longitude, latitude } = Coordinates::of_score(3479099956230698.0);
        let shown = format!("{longitude:.17} {latitude:.17}");
        assert_eq!(shown, "13.36138933897018433 38.11555639549629859");
        assert_eq!(&PALERMO.geohash(), b"sqc8b49rny0");
    }

    #[test]
    fn the_map_includes_its_corners_and_nothing_beyond() {
        for (longitude, latitude) in [(180.0, 85.05112878), (-180.0, -85.05112878), (180.0, -85.05112878)] {
            let place = Coordinates { longitude, latitude };
            assert!(place.is_on_map());
            let found = Coordinates::of_score(place.score());
            assert!((found.latitude - latitude).abs() < 1e-5, "{found:?}");
        }
        assert!(!Coordinates { longitude: 180.1, latitude: 0.0 }.is_on_map());
        assert!(!Coordinates { longitude: 0.0, latitude: -85.06 }.is_on_map());
    }

    /// The places that Redis 7.0 shows for these scores.
    #[test]
    fn scores_beyond_the_map_have_the_places_of_redis() {
        let shown = |score| {
            let Coordinates { longitude, latitude } = Coordinates::of_score(score);
            format!("{longitude:.17} {latitude:.17}")
        };
        for score in [f64::INFINITY, 1e30, 18_446_744_073_709_551_616.0, 0.0] {
            assert_eq!(shown(score), "-179.99999731779098511 -85.05112751263942528", "{score}");
        }
        for score in [f64::NEG_INFINITY, 9_223_372_036_854_775_808.0] {
            assert_eq!(shown(score), "180.00000000000000000 -85.05112751263942528", "{score}");
        }
        assert_eq!(shown(-1.0), "180.00000000000000000 85.05112877999999910");
    }

    #[test]
    fn neighbours_wrap_around_the_edges() {
        let cell = Cell::at(Coordinates { longitude: 179.9, latitude: 0.0 }, 4);
        assert_eq!((cell.column, cell.moved(0, 1).column, cell.moved(0, -1).column), (15, 0, 14));
        assert_eq!(cell.moved(1, 1).moved(-1, -1), cell);
    }

    proptest! {
        #[test]
        fn bits_are_spread_and_gathered(row: u32, column: u32) {
            let number = spread(row) | spread(column) << 1;
            prop_assert_eq!((even_bits(number), even_bits(number >> 1)), (row, column));
        }

        #[test]
        fn a_place_is_in_its_cell_at_every_step(
            longitude in -180.0..180.0f64,
            latitude in -85.0..85.0f64,
            step in 1..=STEP_MAX,
        ) {
            let place = Coordinates { longitude, latitude };
            let cell = Cell::at(place, step);
            let Area { longitudes, latitudes } = cell.area();
            prop_assert!(longitudes.contains(longitude) && latitudes.contains(latitude));
            prop_assert!(cell.scores().contains(&place.score()));
            let found = Coordinates::of_score(place.score());
            prop_assert!((found.longitude - longitude).abs() < 1e-5 && (found.latitude - latitude).abs() < 1e-5);
        }

        #[test]
        fn every_score_is_a_place_on_the_map(score: f64) {
            let place = Coordinates::of_score(score);
            prop_assert!(place.is_on_map());
        }
    }
}
