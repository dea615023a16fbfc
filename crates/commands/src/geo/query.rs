//! The arguments of GEOSEARCH, GEOSEARCHSTORE, GEORADIUS and GEORADIUSBYMEMBER.
//!
//! The order of checks is that of Redis. If the sorted set does not exist, the member at the centre is not
//! looked up, and the radius of GEORADIUSBYMEMBER and its unit are not parsed. All other arguments are.

use engine::CommandError;
use keyspace::ZsetView;
use wire::{
    Args,
    number::{parse_f64, parse_i64},
};

use super::{
    area::{SearchArea, Shape},
    cell::Coordinates,
    earth::LengthUnit,
    place::{parse_place, parse_unit},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// GEOSEARCH
    Search,
    /// GEOSEARCHSTORE
    SearchStore,
    /// GEORADIUS; only the variant that may write has the options STORE and STOREDIST.
    Radius { may_store: bool },
    /// GEORADIUSBYMEMBER
    RadiusByMember { may_store: bool },
}

/// The order of results, by distance from the centre.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Descending,
}

/// A search, and the use of its results.
#[derive(Debug, Default)]
pub(super) struct Query<'a> {
    /// The area of the search; `None` if its centre is a member, and the sorted set does not exist.
    pub(super) area: Option<SearchArea>,
    pub(super) order: Option<Order>,
    /// The maximum number of results.
    pub(super) count: Option<usize>,
    /// ANY: the search stops at `count` results, even if others are nearer.
    pub(super) any: bool,
    pub(super) with_distance: bool,
    pub(super) with_hash: bool,
    pub(super) with_place: bool,
    /// The key at which the results are stored.
    pub(super) destination: Option<&'a [u8]>,
    /// STOREDIST: the distances are stored as scores.
    pub(super) stores_distances: bool,
}

/// The area as parsed so far.
#[derive(Default)]
struct Draft {
    /// The centre: not given, given but unknown because the sorted set does not exist, or known.
    center: Option<Option<Coordinates>>,
    is_around_member: bool,
    shape: Option<(Shape, LengthUnit)>,
}

impl<'a> Query<'a> {
    pub(super) fn parse(
        args: Args<'a>,
        command: Command,
        zset: Option<ZsetView<'_>>,
    ) -> Result<Query<'a>, CommandError> {
        let mut query = Query::default();
        let mut draft = Draft::default();
        let mut words = match command {
            Command::Search => args.skip(2),
            Command::SearchStore => {
                query.destination = Some(args.at(1));
                args.skip(3)
            }
            Command::Radius { .. } => {
                draft.center = Some(Some(parse_place(args.at(2), args.at(3))?));
                draft.shape = Some(parse_circle(args.at(4), args.at(5))?);
                args.skip(6)
            }
            Command::RadiusByMember { .. } => {
                draft.center = Some(place_of(zset, args.at(2))?);
                if zset.is_some() {
                    draft.shape = Some(parse_circle(args.at(3), args.at(4))?);
                }
                args.skip(5)
            }
        };
        while !words.is_empty() {
            let taken = match query.read_option(words, command)? {
                0 if matches!(command, Command::Search | Command::SearchStore) => draft.read(words, zset)?,
                taken => taken,
            };
            if taken == 0 {
                return Err(CommandError::Syntax);
            }
            words = words.skip(taken);
        }
        query.verify(&draft, args.at(0), command)?;
        query.area = match (draft.center, draft.shape) {
            (_, Some((Shape::Polygon(vertices), _))) => Some(SearchArea::in_polygon(vertices)),
            (Some(Some(center)), Some((shape, unit))) => Some(SearchArea { center, shape, unit }),
            _ => None,
        };
        if query.count.is_some() && query.order.is_none() && !query.any {
            query.order = Some(Order::Ascending);
        }
        Ok(query)
    }

    /// Parses the option at the start of `words`, unless the option belongs to the area. Returns the number
    /// of words that the option takes; 0 if the words begin with anything else.
    fn read_option(&mut self, words: Args<'a>, command: Command) -> Result<usize, CommandError> {
        let is = |name: &[u8]| words.at(0).eq_ignore_ascii_case(name);
        let may_store = matches!(
            command,
            Command::Radius { may_store: true } | Command::RadiusByMember { may_store: true }
        );
        if is(b"withdist") {
            self.with_distance = true;
        } else if is(b"withhash") {
            self.with_hash = true;
        } else if is(b"withcoord") {
            self.with_place = true;
        } else if is(b"any") {
            self.any = true;
        } else if is(b"asc") {
            self.order = Some(Order::Ascending);
        } else if is(b"desc") {
            self.order = Some(Order::Descending);
        } else if is(b"count") && words.len() > 1 {
            let count = parse_i64(words.at(1)).ok_or(CommandError::NotAnInteger)?;
            let count = usize::try_from(count).ok().filter(|count| *count > 0);
            self.count = Some(count.ok_or(CommandError::Text("ERR COUNT must be > 0"))?);
            return Ok(2);
        } else if may_store && words.len() > 1 && (is(b"store") || is(b"storedist")) {
            self.destination = Some(words.at(1));
            self.stores_distances = is(b"storedist");
            return Ok(2);
        } else if command == Command::SearchStore && is(b"storedist") {
            self.stores_distances = true;
        } else {
            return Ok(0);
        }
        Ok(1)
    }

    fn verify(&self, draft: &Draft, name: &[u8], command: Command) -> Result<(), CommandError> {
        let is_search = matches!(command, Command::Search | Command::SearchStore);
        let missing = |what: &str| {
            let name = String::from_utf8_lossy(name);
            Err(CommandError::Composed(format!("ERR exactly one of {what} for {name}")))
        };
        if self.destination.is_some() && (self.with_distance || self.with_hash || self.with_place) {
            return Err(CommandError::Text(if is_search {
                "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            } else {
                "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            }));
        }
        if is_search && draft.center.is_none() && !draft.has_polygon() {
            return missing("FROMMEMBER or FROMLONLAT can be specified");
        }
        if is_search && draft.shape.is_none() {
            return missing("BYRADIUS and BYBOX can be specified");
        }
        if self.any && self.count.is_none() {
            return Err(CommandError::Text("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }
}

impl Draft {
    fn has_polygon(&self) -> bool {
        matches!(self.shape, Some((Shape::Polygon(_), _)))
    }

    /// Parses the option of the area at the start of `words`. Returns the number of words that the option
    /// takes; 0 if it is no option of the area, lacks a value, or is excluded by another option.
    fn read(&mut self, words: Args<'_>, zset: Option<ZsetView<'_>>) -> Result<usize, CommandError> {
        let is = |name: &[u8]| words.at(0).eq_ignore_ascii_case(name);
        let is_around_place = self.center.is_some() && !self.is_around_member;
        // A polygon has a centre of its own.
        let has_polygon = self.has_polygon();
        let has_box = matches!(self.shape, Some((Shape::Box { .. }, _)));
        let has_circle = matches!(self.shape, Some((Shape::Circle { .. }, _)));
        if is(b"frommember") && words.len() > 1 && !is_around_place && !has_polygon {
            self.center = Some(place_of(zset, words.at(1))?);
            self.is_around_member = true;
            Ok(2)
        } else if is(b"fromlonlat") && words.len() > 2 && !self.is_around_member && !has_polygon {
            self.center = Some(Some(parse_place(words.at(1), words.at(2))?));
            Ok(3)
        } else if is(b"byradius") && words.len() > 2 && !has_box && !has_polygon {
            self.shape = Some(parse_circle(words.at(1), words.at(2))?);
            Ok(3)
        } else if is(b"bybox") && words.len() > 3 && !has_circle && !has_polygon {
            self.shape = Some(parse_box(words.at(1), words.at(2), words.at(3))?);
            Ok(4)
        } else if is(b"bypolygon") && words.len() > 1 && self.center.is_none() && !has_box && !has_circle {
            let vertices = parse_vertices(words.skip(1))?;
            let taken = 2 + 2 * vertices.len();
            self.shape = Some((Shape::Polygon(vertices), LengthUnit::METRE));
            Ok(taken)
        } else {
            Ok(0)
        }
    }
}

/// Parses the number of vertices and the vertices.
fn parse_vertices(words: Args<'_>) -> Result<Vec<Coordinates>, CommandError> {
    const VERTICES_MIN: i32 = 3;
    let count = parse_i64(words.at(0)).and_then(|count| i32::try_from(count).ok());
    let count = count.ok_or(CommandError::Text("ERR invalid number of vertices"))?;
    let given = (words.len() - 1) / 2;
    if count < VERTICES_MIN || count as usize > given {
        return Err(CommandError::Text("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"));
    }
    (0..count as usize).map(|index| parse_place(words.at(1 + 2 * index), words.at(2 + 2 * index))).collect()
}

/// The place of a member; `None` if the sorted set does not exist.
fn place_of(zset: Option<ZsetView<'_>>, member: &[u8]) -> Result<Option<Coordinates>, CommandError> {
    let Some(zset) = zset else { return Ok(None) };
    match zset.score(member) {
        Some(score) => Ok(Some(Coordinates::of_score(score))),
        None => Err(CommandError::Text("ERR could not decode requested zset member")),
    }
}

fn parse_circle(radius: &[u8], unit: &[u8]) -> Result<(Shape, LengthUnit), CommandError> {
    let radius = parse_f64(radius).ok_or(CommandError::Text("ERR need numeric radius"))?;
    if radius < 0.0 {
        return Err(CommandError::Text("ERR radius cannot be negative"));
    }
    Ok((Shape::Circle { radius }, parse_unit(unit)?))
}

fn parse_box(width: &[u8], height: &[u8], unit: &[u8]) -> Result<(Shape, LengthUnit), CommandError> {
    let width = parse_f64(width).ok_or(CommandError::Text("ERR need numeric width"))?;
    let height = parse_f64(height).ok_or(CommandError::Text("ERR need numeric height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(CommandError::Text("ERR height or width cannot be negative"));
    }
    Ok((Shape::Box { width, height }, parse_unit(unit)?))
}

/// Visits the keys of GEORADIUS and GEORADIUSBYMEMBER: the sorted set, and the destination of STORE or
/// STOREDIST.
pub(super) fn keys_of_radius(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
    /// The first argument that can be an option.
    const OPTIONS_AT: usize = 5;
    if args.len() > 1 {
        visit(1);
    }
    let mut index = OPTIONS_AT;
    while index + 1 < args.len() {
        let word = args.at(index);
        if word.eq_ignore_ascii_case(b"store") || word.eq_ignore_ascii_case(b"storedist") {
            index += 1;
            visit(index);
        }
        index += 1;
    }
}
