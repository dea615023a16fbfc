//! Distances on a sphere the size of the earth.
//!
//! The formulas and their order of operations are those of Redis, so that distances are equal to the last
//! digit shown.

use std::f64::consts::PI;

use super::cell::Coordinates;

/// The radius of the sphere, in metres.
pub(super) const RADIUS_M: f64 = 6_372_797.560_856;

const RADIANS: f64 = PI / 180.0;

pub(super) fn radians(degrees: f64) -> f64 {
    degrees * RADIANS
}

pub(super) fn degrees(radians: f64) -> f64 {
    radians / RADIANS
}

/// The distance between two places in metres.
pub(super) fn distance_m(from: Coordinates, to: Coordinates) -> f64 {
    let v = ((radians(to.longitude) - radians(from.longitude)) / 2.0).sin();
    if v == 0.0 {
        return latitude_distance_m(from.latitude, to.latitude);
    }
    let (from_latitude, to_latitude) = (radians(from.latitude), radians(to.latitude));
    let u = ((to_latitude - from_latitude) / 2.0).sin();
    let a = u * u + from_latitude.cos() * to_latitude.cos() * v * v;
    // For antipodes, rounding may exceed 1, for which there is no arcsine.
    2.0 * RADIUS_M * a.sqrt().min(1.0).asin()
}

/// The distance between two latitudes in metres.
pub(super) fn latitude_distance_m(from: f64, to: f64) -> f64 {
    RADIUS_M * (radians(to) - radians(from)).abs()
}

/// The middle of places: the direction of the sum of their vectors from the centre of the sphere.
pub(super) fn middle(places: &[Coordinates]) -> Coordinates {
    let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
    for place in places {
        let (longitude, latitude) = (radians(place.longitude), radians(place.latitude));
        x += latitude.cos() * longitude.cos();
        y += latitude.cos() * longitude.sin();
        z += latitude.sin();
    }
    // Not `hypot`: its last digit can differ from that of this formula.
    Coordinates { longitude: degrees(y.atan2(x)), latitude: degrees(z.atan2((x * x + y * y).sqrt())) }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LengthUnit {
    pub(super) metres: f64,
}

impl LengthUnit {
    pub(super) const METRE: LengthUnit = LengthUnit { metres: 1.0 };

    pub(super) fn parse(name: &[u8]) -> Option<LengthUnit> {
        let metres = match name.to_ascii_lowercase().as_slice() {
            b"m" => 1.0,
            b"km" => 1000.0,
            b"ft" => 0.3048,
            b"mi" => 1609.34,
            _ => return None,
        };
        Some(LengthUnit { metres })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_redis() {
        let place = |longitude, latitude| Coordinates { longitude, latitude };
        let palermo = Coordinates::of_score(place(13.361389, 38.115556).score());
        let catania = Coordinates::of_score(place(15.087269, 37.502669).score());
        assert_eq!(format!("{:.4}", distance_m(palermo, catania)), "166274.1516");
        assert_eq!(distance_m(palermo, palermo), 0.0);
        let north = latitude_distance_m(0.0, 90.0);
        assert_eq!(format!("{:.0}", distance_m(place(5.0, 0.0), place(5.0, 90.0))), format!("{north:.0}"));
        let other_side = distance_m(place(-90.0, 1e-9), place(90.0, -1e-9));
        assert!((other_side - PI * RADIUS_M).abs() < 1.0, "{other_side}");
    }
}
