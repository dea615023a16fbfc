//! Searches for places in an area: GEOSEARCH, GEOSEARCHSTORE, GEORADIUS and GEORADIUSBYMEMBER, each of the
//! last two also as `_RO`.

use engine::{CommandError, Context, long_units::ElementsMax};
use keyspace::{Element, ScoredItemsBuf, ZsetView};
use wire::{Args, ReplyWriter};

use super::{
    area::SearchArea,
    cell::Coordinates,
    place::{write_length, write_place},
    query::{Command, Order, Query},
};
use crate::zset::{store, zset};

/// `GEOSEARCH key <<FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM | FT | MI> |
/// BYBOX width height <M | KM | FT | MI>> | BYPOLYGON num-vertices longitude latitude [longitude latitude
/// ...]> [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]`
pub(super) fn geosearch(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    search(cx, args, Command::Search)
}

/// `GEOSEARCHSTORE destination source`, and the arguments of GEOSEARCH with `[STOREDIST]` instead of the WITH
/// options.
pub(super) fn geosearchstore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    search(cx, args, Command::SearchStore)
}

/// `GEORADIUS key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count
/// [ANY]] [ASC | DESC] [STORE key | STOREDIST key]`
pub(super) fn georadius(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    search(cx, args, Command::Radius { may_store: true })
}

/// `GEORADIUS_RO`, with the arguments of GEORADIUS except STORE and STOREDIST.
pub(super) fn georadius_ro(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    search(cx, args, Command::Radius { may_store: false })
}

/// `GEORADIUSBYMEMBER key member radius`, and the other arguments of GEORADIUS.
pub(super) fn georadiusbymember(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    search(cx, args, Command::RadiusByMember { may_store: true })
}

/// `GEORADIUSBYMEMBER_RO`, with the arguments of GEORADIUSBYMEMBER except STORE and STOREDIST.
pub(super) fn georadiusbymember_ro(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    search(cx, args, Command::RadiusByMember { may_store: false })
}

/// A place in the area.
struct AreaMatch<'a> {
    member: Element<'a>,
    score: f64,
    place: Coordinates,
    /// The distance from the centre, in the unit of the area.
    distance: f64,
}

fn search(cx: &mut Context<'_, '_>, args: Args<'_>, command: Command) -> Result<(), CommandError> {
    let (db, source) = (cx.db(), args.at(if command == Command::SearchStore { 2 } else { 1 }));
    let elements_max = cx.elements_max();
    let zset = zset(cx.unit.read(db, source))?;
    let query = Query::parse(args, command, zset)?;
    let mut found = match (zset, &query.area) {
        (Some(zset), Some(area)) => find(zset, area, query.count.filter(|_| query.any), elements_max)?,
        _ => Vec::new(),
    };
    // No distance is NaN or -0, so the order of `total_cmp` is that of numbers.
    match query.order {
        Some(Order::Ascending) => found.sort_by(|one, other| one.distance.total_cmp(&other.distance)),
        Some(Order::Descending) => found.sort_by(|one, other| other.distance.total_cmp(&one.distance)),
        None => {}
    }
    found.truncate(query.count.unwrap_or(usize::MAX));
    let Some(destination) = query.destination else {
        cx.reply.array(found.len());
        found.iter().for_each(|found| show(&mut cx.reply, found, &query));
        return Ok(());
    };
    let mut members = ScoredItemsBuf::new();
    for AreaMatch { member, score, distance, .. } in &found {
        members.push(if query.stores_distances { *distance } else { *score }, member);
    }
    let is_search = command == Command::SearchStore;
    store(cx, destination, &members, if is_search { "geosearchstore" } else { "georadiusstore" })
}

/// Finds the members in an area, cell by cell; stops at `limit` results.
///
/// # Errors
/// The search takes more work than `elements_max` allows.
fn find<'a>(
    zset: ZsetView<'a>,
    area: &SearchArea,
    limit: Option<usize>,
    elements_max: ElementsMax,
) -> Result<Vec<AreaMatch<'a>>, CommandError> {
    let (mut found, mut looked_at) = (Vec::new(), 0);
    for cell in area.cells() {
        let scores = cell.scores();
        let first = zset.partition_by_score(|score| score < scores.start);
        let members = zset.range(first..zset.len()).take_while(|(_, score)| *score < scores.end);
        for (member, score) in members {
            if limit.is_some_and(|limit| found.len() >= limit) {
                return Ok(found);
            }
            looked_at += area.work();
            elements_max.require(looked_at)?;
            let place = Coordinates::of_score(score);
            if let Some(distance_m) = area.distance_m(place) {
                found.push(AreaMatch { member, score, place, distance: distance_m / area.unit.metres });
            }
        }
    }
    Ok(found)
}

fn show(reply: &mut ReplyWriter<'_>, found: &AreaMatch<'_>, query: &Query<'_>) {
    let details = [query.with_distance, query.with_hash, query.with_place];
    let details = details.into_iter().filter(|is_wanted| *is_wanted).count();
    if details > 0 {
        reply.array(1 + details);
    }
    reply.bulk(&found.member);
    if query.with_distance {
        write_length(reply, found.distance);
    }
    if query.with_hash {
        reply.integer(found.score as i64);
    }
    if query.with_place {
        write_place(reply, found.place);
    }
}
