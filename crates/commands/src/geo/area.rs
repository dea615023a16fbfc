//! Search areas: a circle or a box around a place, or a polygon, and the cells that cover it.
//!
//! At most nine cells cover an area. The cells are visited in the same order as in Redis, because unsorted
//! results are shown in that order.

use super::{
    cell::{Area, Cell, Coordinates, STEP_MAX},
    earth::{LengthUnit, RADIUS_M, degrees, distance_m, latitude_distance_m, middle, radians},
};

/// About half the way around the map, in metres. An area that reaches that far from its centre gets step 1.
const RANGE_M_MAX: f64 = 20_037_726.37;

/// The shape of an area, with lengths in [`SearchArea::unit`].
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    Circle {
        radius: f64,
    },
    Box {
        width: f64,
        height: f64,
    },
    /// At least three vertices, on the map. Their edges are straight on a map whose axes are longitude and
    /// latitude; the last vertex has an edge to the first.
    Polygon(Vec<Coordinates>),
}

/// A shape with its centre.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SearchArea {
    pub(super) center: Coordinates,
    pub(super) shape: Shape,
    pub(super) unit: LengthUnit,
}

/// The bounds of an area, in degrees.
struct Bounds {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

impl SearchArea {
    /// The area in a polygon. Distances are in metres from the middle of its vertices.
    pub(super) fn in_polygon(vertices: Vec<Coordinates>) -> SearchArea {
        SearchArea { center: middle(&vertices), shape: Shape::Polygon(vertices), unit: LengthUnit::METRE }
    }

    /// The work of one call of [`Self::distance_m`], compared with that for a circle.
    pub(super) fn work(&self) -> usize {
        /// The number of edges that are checked in about the time of one distance between two places.
        const EDGES_PER_DISTANCE: usize = 8;
        match &self.shape {
            Shape::Circle { .. } | Shape::Box { .. } => 1,
            Shape::Polygon(vertices) => 1 + vertices.len() / EDGES_PER_DISTANCE,
        }
    }

    /// The distance in metres from the centre to a place; `None` if the place is outside the area.
    pub(super) fn distance_m(&self, place: Coordinates) -> Option<f64> {
        match &self.shape {
            Shape::Polygon(vertices) => surround(vertices, place).then(|| distance_m(self.center, place)),
            Shape::Circle { radius } => {
                let distance_m = distance_m(self.center, place);
                (distance_m <= radius * self.unit.metres).then_some(distance_m)
            }
            Shape::Box { width, height } => {
                let (width_m, height_m) = (width * self.unit.metres, height * self.unit.metres);
                if latitude_distance_m(place.latitude, self.center.latitude) > height_m / 2.0 {
                    return None;
                }
                let beside = Coordinates { longitude: self.center.longitude, latitude: place.latitude };
                if distance_m(place, beside) > width_m / 2.0 {
                    return None;
                }
                Some(distance_m(self.center, place))
            }
        }
    }

    /// The cells in which to search for places, in the order of the search.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let bounds = self.bounds();
        let mut step = self.step();
        let mut center = Cell::at(self.center, step);
        // One step less suffices for a circle or a box. A polygon can span many degrees although its vertices
        // are near its centre, as around a pole.
        while step > 1 && !reaches(center, &bounds) {
            step -= 1;
            center = Cell::at(self.center, step);
            if !matches!(self.shape, Shape::Polygon(_)) {
                break;
            }
        }
        let Area { longitudes, latitudes } = center.area();
        // Skip neighbours on a side where the central cell already reaches beyond the area. At step 1 a cell
        // has the same neighbour on both sides, so none is skipped.
        let is_covered = |rows: i32, columns: i32| {
            step >= 2
                && (rows < 0 && latitudes.min < bounds.south
                    || rows > 0 && latitudes.max > bounds.north
                    || columns < 0 && longitudes.min < bounds.west
                    || columns > 0 && longitudes.max > bounds.east)
        };
        // The centre, north, south, east, west, and then the corners.
        const MOVES: [(i32, i32); 9] =
            [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)];
        let wanted = MOVES.into_iter().filter(|(rows, columns)| !is_covered(*rows, *columns));
        let mut cells: Vec<Cell> = wanted.map(|(rows, columns)| center.moved(rows, columns)).collect();
        // On a coarse grid two neighbours can be the same cell, which must not be searched twice.
        let mut seen = Vec::with_capacity(cells.len());
        cells.retain(|cell| {
            let is_new = !seen.contains(cell);
            seen.push(*cell);
            is_new
        });
        cells
    }

    fn bounds(&self) -> Bounds {
        let Coordinates { longitude, latitude } = self.center;
        let (width, height) = match &self.shape {
            Shape::Circle { radius } => (*radius, *radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
            Shape::Polygon(vertices) => return bounds_of(vertices),
        };
        let (width_m, height_m) = (width * self.unit.metres, height * self.unit.metres);
        let up = degrees(height_m / RADIUS_M);
        // A degree of longitude is shortest where the area is closest to a pole.
        let nearest_to_pole = if latitude < 0.0 { latitude - up } else { latitude + up };
        let aside = degrees(width_m / RADIUS_M / radians(nearest_to_pole).cos());
        Bounds {
            west: longitude - aside,
            east: longitude + aside,
            south: latitude - up,
            north: latitude + up,
        }
    }

    /// The step at which a cell is about as large as the area.
    fn step(&self) -> u32 {
        let mut range_m = self.unit.metres
            * match &self.shape {
                Shape::Circle { radius } => *radius,
                Shape::Box { width, height } => {
                    (width / 2.0 * (width / 2.0) + height / 2.0 * (height / 2.0)).sqrt()
                }
                Shape::Polygon(vertices) => {
                    vertices.iter().map(|vertex| distance_m(self.center, *vertex)).fold(0.0, f64::max)
                }
            };
        if range_m == 0.0 {
            return STEP_MAX;
        }
        let mut step = 1;
        while range_m < RANGE_M_MAX {
            range_m *= 2.0;
            step += 1;
        }
        // Cells are narrower towards the poles.
        let narrower = match self.center.latitude.abs() {
            latitude if latitude > 80.0 => 2,
            latitude if latitude > 66.0 => 1,
            _ => 0,
        };
        (step - 2 - narrower).clamp(1, STEP_MAX as i32) as u32
    }
}

fn bounds_of(vertices: &[Coordinates]) -> Bounds {
    let none = Bounds {
        west: f64::INFINITY,
        east: f64::NEG_INFINITY,
        south: f64::INFINITY,
        north: f64::NEG_INFINITY,
    };
    vertices.iter().fold(none, |bounds, vertex| Bounds {
        west: bounds.west.min(vertex.longitude),
        east: bounds.east.max(vertex.longitude),
        south: bounds.south.min(vertex.latitude),
        north: bounds.north.max(vertex.latitude),
    })
}

/// Whether a place is in a polygon: a line from the place to the east crosses an odd number of edges.
fn surround(vertices: &[Coordinates], place: Coordinates) -> bool {
    let next = vertices.iter().cycle().skip(1);
    let crossed = vertices.iter().zip(next).filter(|(from, to)| {
        let crosses_latitude = (from.latitude > place.latitude) != (to.latitude > place.latitude);
        // If both ends have the same latitude, `share` is NaN or infinite, and `crosses_latitude` is false.
        let share = (place.latitude - from.latitude) / (to.latitude - from.latitude);
        crosses_latitude && place.longitude < from.longitude + (to.longitude - from.longitude) * share
    });
    crossed.count() % 2 == 1
}

/// Whether a cell and its neighbours cover the bounds.
fn reaches(center: Cell, bounds: &Bounds) -> bool {
    let area = |rows, columns| center.moved(rows, columns).area();
    !(area(1, 0).latitudes.max < bounds.north
        || area(-1, 0).latitudes.min > bounds.south
        || area(0, 1).longitudes.max < bounds.east
        || area(0, -1).longitudes.min > bounds.west)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use proptest::prelude::*;

    use super::*;

    fn cells_with(area: &SearchArea, place: Coordinates) -> usize {
        area.cells().iter().filter(|cell| cell.scores().contains(&place.score())).count()
    }

    #[test]
    fn a_polygon_may_be_hollow_on_one_side() {
        let at = |(longitude, latitude)| Coordinates { longitude, latitude };
        let arrow = [(0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (1.0, 0.1), (0.0, 2.0)];
        let area = SearchArea::in_polygon(arrow.into_iter().map(at).collect());
        assert!(area.distance_m(at((0.5, 0.2))).is_some());
        assert!(area.distance_m(at((1.0, 1.0))).is_none(), "between the arms");
        assert!(area.distance_m(at((-1.0, 0.5))).is_none() && area.distance_m(at((3.0, 0.5))).is_none());
    }

    proptest! {
        #[test]
        fn every_place_within_the_radius_lies_in_a_cell(
            longitude in -179.0..179.0f64,
            latitude in -80.0..80.0f64,
            radius_m in 0.0..500_000.0f64,
            bearing in 0.0..2.0 * PI,
            share in 0.0..1.0f64,
        ) {
            let center = Coordinates { longitude, latitude };
            let away = degrees(radius_m * share / RADIUS_M);
            let place = Coordinates {
                longitude: longitude + away * bearing.sin() / radians(latitude).cos(),
                latitude: latitude + away * bearing.cos(),
            };
            prop_assume!(place.is_on_map());
            let place = Coordinates::of_score(place.score());
            let width = radius_m * 2.0;
            for shape in [Shape::Circle { radius: radius_m }, Shape::Box { width, height: width }] {
                let area = SearchArea { center, shape, unit: LengthUnit::METRE };
                if area.distance_m(place).is_some() {
                    prop_assert_eq!(cells_with(&area, place), 1, "{:?} {:?}", area, place);
                }
            }
        }

        #[test]
        fn every_place_in_a_polygon_lies_in_a_cell(
            vertices in proptest::collection::vec((-180.0..180.0f64, -85.0..85.0f64), 3..9),
            scale in 0.001..1.0f64,
            (longitude, latitude) in (-180.0..180.0f64, -85.0..85.0f64),
        ) {
            // Small polygons and places near them, too.
            let at = |(longitude, latitude): (f64, f64)| Coordinates { longitude: longitude * scale, latitude: latitude * scale };
            let area = SearchArea::in_polygon(vertices.into_iter().map(at).collect());
            let place = Coordinates::of_score(at((longitude, latitude)).score());
            if area.distance_m(place).is_some() {
                prop_assert_eq!(cells_with(&area, place), 1, "{:?} {:?}", area, place);
            }
        }

        #[test]
        fn an_area_of_any_size_has_one_to_nine_cells(longitude in -180.0..180.0f64, latitude in -85.0..85.0f64, width: f64, height: f64) {
            let (width, height) = (width.abs(), height.abs());
            prop_assume!(!width.is_nan() && !height.is_nan());
            for shape in [Shape::Circle { radius: width }, Shape::Box { width, height }] {
                let area = SearchArea { center: Coordinates { longitude, latitude }, shape, unit: LengthUnit::METRE };
                prop_assert!((1..=9).contains(&area.cells().len()));
            }
        }
    }
}
