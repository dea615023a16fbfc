//! The rows of the commands on positions on the earth.

use engine::{Family, Flags, KeyUsage, Keys, Needs, Row, Treatment};

use super::{place, query, search};

const GROW: Flags = Flags::WRITE.or(Flags::DENYOOM);
const STORE: Flags = GROW.or(Flags::COPIES);

/// The keys of GEORADIUS and GEORADIUSBYMEMBER: the sorted set, and the destination of STORE.
const MAY_STORE: Keys =
    Keys::Computed { first: Some(1), find: query::keys_of_radius, reads_others: |_| false };

/// Shared fields of the rows.
const ROW: Row = Row {
    name: "",
    arity: -2,
    flags: Flags::READONLY,
    keys: Keys::First,
    family: Family::Geo,
    since: "3.2.0",
    complexity: "O(1) for each member in question.",
    summary: "",
    syntax: "key [member [member ...]]",
    handler: place::geopos,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

/// Shared fields of the rows of searches.
const SEARCH: Row = Row {
    complexity: "O(N+log(M)) where N is the number of members in the cells around the area and M that of all members.",
    ..ROW
};

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "geoadd",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -5,
        flags: GROW,
        complexity: "O(log(N)) for each place, where N is the number of members.",
        summary: "Adds places to a sorted set, or moves them, with conditions if wanted.",
        syntax: "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]",
        handler: place::geoadd,
        ..ROW
    },
    Row { name: "geopos", summary: "Replies with longitudes and latitudes.", ..ROW },
    Row {
        name: "geohash",
        summary: "Replies with places as geohashes of 11 letters.",
        handler: place::geohash,
        ..ROW
    },
    Row {
        name: "geodist",
        arity: -4,
        summary: "Replies with the distance between two places.",
        syntax: "key member1 member2 [M | KM | FT | MI]",
        handler: place::geodist,
        ..ROW
    },
    Row {
        name: "geosearch",
        arity: -7,
        since: "6.2.0",
        summary: "Replies with the places in a circle, a box or a polygon.",
        syntax: "key <<FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM | FT | MI> | BYBOX \
                 width height <M | KM | FT | MI>> | BYPOLYGON num-vertices longitude latitude [longitude latitude ...]> \
                 [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
        handler: search::geosearch,
        ..SEARCH
    },
    Row {
        name: "geosearchstore",
        needs: Needs::first_and_others(KeyUsage::OVERWRITE, KeyUsage::READ),
        arity: -8,
        flags: STORE,
        keys: Keys::Range { first: 1, last: 2, step: 1 },
        since: "6.2.0",
        summary: "Stores the places in a circle, a box or a polygon.",
        syntax: "destination source <<FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius \
                 <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI>> | BYPOLYGON num-vertices longitude latitude \
                 [longitude latitude ...]> [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
        handler: search::geosearchstore,
        ..SEARCH
    },
    Row {
        name: "georadius",
        needs: Needs::first_and_others(KeyUsage::READ, KeyUsage::OVERWRITE),
        arity: -6,
        flags: STORE,
        keys: MAY_STORE,
        summary: "Replies with the places in a circle, or stores them; GEOSEARCH does more.",
        syntax: "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] \
                 [ASC | DESC] [STORE key | STOREDIST key]",
        handler: search::georadius,
        ..SEARCH
    },
    Row {
        name: "georadius_ro",
        arity: -6,
        since: "3.2.10",
        summary: "Replies with the places in a circle.",
        syntax: "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] \
                 [ASC | DESC]",
        handler: search::georadius_ro,
        ..SEARCH
    },
    Row {
        name: "georadiusbymember",
        needs: Needs::first_and_others(KeyUsage::READ, KeyUsage::OVERWRITE),
        arity: -5,
        flags: STORE,
        keys: MAY_STORE,
        summary: "Replies with the places in a circle around a member, or stores them; GEOSEARCH does more.",
        syntax: "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] \
                 [STORE key | STOREDIST key]",
        handler: search::georadiusbymember,
        ..SEARCH
    },
    Row {
        name: "georadiusbymember_ro",
        arity: -5,
        since: "3.2.10",
        summary: "Replies with the places in a circle around a member.",
        syntax: "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
        handler: search::georadiusbymember_ro,
        ..SEARCH
    },
];
