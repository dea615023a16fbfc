//! Single places: GEOADD, GEOPOS, GEODIST, GEOHASH.

use engine::{CommandError, Context};
use wire::{Args, ReplyWriter, number::parse_f64};

use super::{
    cell::Coordinates,
    earth::{LengthUnit, distance_m},
};
use crate::zset::{AddOptions, Members, add_members, zset};

/// Parses a longitude and a latitude.
pub(super) fn parse_place(longitude: &[u8], latitude: &[u8]) -> Result<Coordinates, CommandError> {
    let degrees = |text| parse_f64(text).ok_or(CommandError::NotAFloat);
    let place = Coordinates { longitude: degrees(longitude)?, latitude: degrees(latitude)? };
    if place.is_on_map() {
        return Ok(place);
    }
    let Coordinates { longitude, latitude } = place;
    Err(CommandError::Composed(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")))
}

pub(super) fn parse_unit(name: &[u8]) -> Result<LengthUnit, CommandError> {
    const UNKNOWN: CommandError =
        CommandError::Text("ERR unsupported unit provided. please use M, KM, FT, MI");
    LengthUnit::parse(name).ok_or(UNKNOWN)
}

/// Writes a length with four decimal places.
pub(super) fn write_length(reply: &mut ReplyWriter<'_>, length: f64) {
    reply.bulk_display(format_args!("{length:.4}"));
}

/// Writes longitude and latitude in their shortest form, without the sign of zero.
pub(super) fn write_place(reply: &mut ReplyWriter<'_>, place: Coordinates) {
    reply.array(2);
    for degrees in [place.longitude, place.latitude] {
        reply.double(degrees + 0.0);
    }
}

/// `GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]`
pub(super) fn geoadd(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut options = AddOptions::default();
    let mut words = args.skip(2);
    while let Some(word) = words.get(0) {
        if word.eq_ignore_ascii_case(b"nx") {
            options.only_new = true;
        } else if word.eq_ignore_ascii_case(b"xx") {
            options.only_old = true;
        } else if word.eq_ignore_ascii_case(b"ch") {
            options.counts_changed = true;
        } else {
            break;
        }
        words = words.skip(1);
    }
    let conflict = options.only_new && options.only_old;
    if words.is_empty() || !words.len().is_multiple_of(3) || conflict {
        return Err(CommandError::Syntax);
    }
    let mut members = Members::with_capacity(words.len() / 3);
    for index in (0..words.len()).step_by(3) {
        let place = parse_place(words.at(index), words.at(index + 1))?;
        members.push((place.score(), words.at(index + 2)));
    }
    add_members(cx, args.at(1), options, members)
}

/// `GEOPOS key [member [member ...]]`
pub(super) fn geopos(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let zset = zset(cx.unit.read(db, args.at(1)))?;
    let members = args.skip(2);
    cx.reply.array(members.len());
    for member in members {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => write_place(&mut cx.reply, Coordinates::of_score(score)),
            None => cx.reply.null_array(),
        }
    }
    Ok(())
}

/// `GEOHASH key [member [member ...]]`
pub(super) fn geohash(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let zset = zset(cx.unit.read(db, args.at(1)))?;
    let members = args.skip(2);
    cx.reply.array(members.len());
    for member in members {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => cx.reply.bulk(&Coordinates::of_score(score).geohash()),
            None => cx.reply.null(),
        }
    }
    Ok(())
}

/// `GEODIST key member1 member2 [M | KM | FT | MI]`
pub(super) fn geodist(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let unit = match args.get(4) {
        _ if args.len() > 5 => return Err(CommandError::Syntax),
        Some(name) => parse_unit(name)?,
        None => LengthUnit::METRE,
    };
    let db = cx.db();
    let zset = zset(cx.unit.read(db, args.at(1)))?;
    let place = |member| zset.and_then(|zset| zset.score(member)).map(Coordinates::of_score);
    match (place(args.at(2)), place(args.at(3))) {
        (Some(from), Some(to)) => write_length(&mut cx.reply, distance_m(from, to) / unit.metres),
        _ => cx.reply.null(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{WRONG_TYPE, check, check_protocols};

    const SICILY: (&str, &str) = ("GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2");

    #[test]
    fn places_are_members_with_scores() {
        check_protocols(&[
            ("GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2", ":2"),
            ("ZSCORE s Palermo", r#""3479099956230698""#, ",3479099956230698"),
            ("ZSCORE s Catania", r#""3479447370796909""#, ",3479447370796909"),
            (
                "GEOPOS s Palermo nowhere",
                r#"[["13.361389338970184", "38.1155563954963"], nil]"#,
                "[[,13.361389338970184, ,38.1155563954963], nil]",
            ),
            (
                "GEOHASH s Palermo Catania nowhere",
                r#"["sqc8b49rny0", "sqdtr74hyu0", nil]"#,
                r#"["sqc8b49rny0", "sqdtr74hyu0", nil]"#,
            ),
            ("GEOPOS none a", "[nil]", "[nil]"),
            ("GEOHASH none a", "[nil]", "[nil]"),
            ("GEOPOS s", "[]", "[]"),
            ("GEODIST s Palermo Catania", r#""166274.1516""#, r#""166274.1516""#),
            ("GEODIST s Palermo Catania km", r#""166.2742""#, r#""166.2742""#),
            ("GEODIST s Palermo Catania MI", r#""103.3182""#, r#""103.3182""#),
            ("GEODIST s Palermo Catania ft", r#""545518.8700""#, r#""545518.8700""#),
            ("GEODIST s Palermo Palermo", r#""0.0000""#, r#""0.0000""#),
            ("GEODIST s Palermo nowhere", "nil", "nil"),
            ("GEODIST none a b", "nil", "nil"),
        ]);
    }

    #[test]
    fn places_are_added_with_conditions() {
        check(&[
            SICILY,
            ("GEOADD s 13.361389 38.115556 Palermo", ":0"),
            ("GEOADD s NX 0 0 Palermo 1 1 new", ":1"),
            ("GEOADD s XX CH 0 0 new 1 1 nobody", ":1"),
            ("ZCARD s", ":3"),
            ("GEOADD s CH 2 2 new 3 3 other", ":2"),
            ("GEOADD s NX XX 0 0 a", "-ERR syntax error"),
            ("GEOADD s 0 0 a 1 1", "-ERR syntax error"),
            ("GEOADD s NX CH CH", "-ERR syntax error"),
            ("GEOADD s 0 0", "-ERR wrong number of arguments for 'geoadd' command"),
            ("GEOADD s 200 0 a", "-ERR invalid longitude,latitude pair 200.000000,0.000000"),
            ("GEOADD s 0 0 a 0 -85.0511288 b", "-ERR invalid longitude,latitude pair 0.000000,-85.051129"),
            ("GEOADD s x 0 a", "-ERR value is not a valid float"),
            ("GEOADD s 0 x a", "-ERR value is not a valid float"),
            ("GEOADD s GT 0 0 a", "-ERR syntax error"),
            ("ZCARD s", ":4"),
            ("GEODIST s Palermo Catania ly", "-ERR unsupported unit provided. please use M, KM, FT, MI"),
            ("GEODIST s Palermo Catania m m", "-ERR syntax error"),
            ("SET string 1", "+OK"),
            ("GEOADD string 0 0 a", WRONG_TYPE),
            ("GEOPOS string a", WRONG_TYPE),
            ("GEOHASH string a", WRONG_TYPE),
            ("GEODIST string a b", WRONG_TYPE),
        ]);
    }
}
