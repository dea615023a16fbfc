//! Searches, compared with replies of Redis.

use engine::EventClass;

use crate::testing::{TestServer, WRONG_TYPE, check, check_protocols};

const SYNTAX: &str = "-ERR syntax error";

/// Places in Sicily, and one across the sea.
const SICILY: (&str, &str, &str) = (
    "GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 12.758489 38.788135 edge1 17.241510 38.788135 \
     edge2",
    ":4",
    ":4",
);

#[test]
fn the_last_digit_of_a_distance_in_a_polygon_is_that_of_valkey() {
    let mut server = TestServer::new();
    server.check(&[
        ("GEOADD last-digit 11.336930441 45.117030372 p", ":1"),
        (
            "GEOSEARCHSTORE d last-digit BYPOLYGON 8 12.162233026 48.405346528 18.989427796 44.652225824 19.246788386 \
             45.502943155 19.729509160 42.089392362 14.445277793 48.188537015 19.757351524 48.475710795 10.564519542 \
             45.288424297 15.440382788 44.022958597 STOREDIST",
            ":1",
        ),
        ("ZSCORE d p", "\"3.9855657234401454e+5\""),
    ]);
}

#[test]
fn searches_find_the_places_in_polygons() {
    const FEW: &str = "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices";
    check(&[
        ("GEOADD g 0 0 o 1 1 a 0.5 0.2 b 5 5 far 0 0.5 edge", ":5"),
        // Distances are from the middle of the vertices, as in Valkey 9.1.
        (
            "GEOSEARCH g BYPOLYGON 3 0 0 2 0 1 2 ASC WITHDIST",
            r#"[["a", "37071.1895"], ["b", "76074.0511"], ["o", "133677.2817"]]"#,
        ),
        (
            "GEOSEARCH g bypolygon 4 0 0 10 0 0 1 0 0.5 DESC WITHDIST",
            r#"[["o", "280680.5981"], ["edge", "277882.2113"], ["b", "222795.0635"]]"#,
        ),
        ("GEOSEARCH g BYPOLYGON 3 0 0 2 0 1 2 COUNT 1", r#"["a"]"#),
        ("GEOSEARCH g BYPOLYGON 3 0 0 0 0 0 0", "[]"),
        (
            "GEOSEARCH g BYPOLYGON 4 -90 -1 90 -1 90 80 -90 80 ASC COUNT 9",
            r#"["far", "a", "edge", "b", "o"]"#,
        ),
        ("GEOSEARCH g BYPOLYGON 3 0 0 2 0 1 2 BYPOLYGON 3 4 4 6 4 5 6", r#"["far"]"#),
        ("GEOSEARCHSTORE d g BYPOLYGON 3 0 0 2 0 1 2", ":3"),
        ("GEOSEARCH nokey BYPOLYGON 3 0 0 2 0 1 2", "[]"),
        ("GEOSEARCH g BYPOLYGON 2 0 0 1 1 2 2", FEW),
        ("GEOSEARCH g BYPOLYGON 4 0 0 1 1 2 2 5", FEW),
        ("GEOSEARCH g BYPOLYGON x 0 0 1 1 2 2", "-ERR invalid number of vertices"),
        ("GEOSEARCH g BYPOLYGON 9223372036854775807 0 0 1 1 2 2", "-ERR invalid number of vertices"),
        ("GEOSEARCH g BYPOLYGON 3 0 0 1 1 200 2", "-ERR invalid longitude,latitude pair 200.000000,2.000000"),
        ("GEOSEARCH g BYPOLYGON 3 0 0 2 0 1 2 FROMLONLAT 0 0", SYNTAX),
        ("GEOSEARCH g FROMLONLAT 0 0 BYPOLYGON 3 0 0 2 0 1 2", SYNTAX),
        ("GEOSEARCH g BYPOLYGON 3 0 0 2 0 1 2 BYRADIUS 1 m", SYNTAX),
        ("GEOSEARCH g BYBOX 1 1 m BYPOLYGON 3 0 0 2 0 1 2", SYNTAX),
        ("GEOSEARCH g BYPOLYGON 3 0 0 2 0 1 2 km", SYNTAX),
    ]);
}

#[test]
fn searches_find_the_places_in_circles_and_boxes() {
    check_protocols(&[
        SICILY,
        (
            "GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 200 km ASC",
            r#"["Catania", "Palermo"]"#,
            r#"["Catania", "Palermo"]"#,
        ),
        (
            "GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 200 km DESC",
            r#"["Palermo", "Catania"]"#,
            r#"["Palermo", "Catania"]"#,
        ),
        (
            "GEOSEARCH s FROMLONLAT 15 37 BYBOX 400 400 km ASC WITHCOORD WITHDIST",
            r#"[["Catania", "56.4413", ["15.087267458438873", "37.50266842333162"]], ["Palermo", "190.4424", ["13.361389338970184", "38.1155563954963"]], ["edge2", "279.7403", ["17.241510450839996", "38.78813451624225"]], ["edge1", "279.7405", ["12.75848776102066", "38.78813451624225"]]]"#,
            "[[\"Catania\", \"56.4413\", [,15.087267458438873, ,37.50266842333162]], [\"Palermo\", \"190.4424\", [,13.361389338970184, ,38.1155563954963]], [\"edge2\", \"279.7403\", [,17.241510450839996, ,38.78813451624225]], [\"edge1\", \"279.7405\", [,12.75848776102066, ,38.78813451624225]]]",
        ),
        (
            "GEOSEARCH s FROMMEMBER Palermo BYRADIUS 0 m WITHHASH",
            r#"[["Palermo", :3479099956230698]]"#,
            r#"[["Palermo", :3479099956230698]]"#,
        ),
        ("GEOSEARCH s FROMMEMBER Catania BYRADIUS 20000 km COUNT 1 DESC", r#"["edge1"]"#, r#"["edge1"]"#),
        (
            "GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 500 km COUNT 2",
            r#"["Catania", "Palermo"]"#,
            r#"["Catania", "Palermo"]"#,
        ),
        ("GEOSEARCH s FROMLONLAT -100 -37 BYRADIUS 500 km", "[]", "[]"),
        ("GEORADIUS s 15 37 200 km ASC", r#"["Catania", "Palermo"]"#, r#"["Catania", "Palermo"]"#),
        (
            "GEORADIUS_RO s 15 37 200 km COUNT 1 WITHDIST",
            r#"[["Catania", "56.4413"]]"#,
            r#"[["Catania", "56.4413"]]"#,
        ),
        ("GEORADIUSBYMEMBER s Catania 200 km DESC", r#"["Palermo", "Catania"]"#, r#"["Palermo", "Catania"]"#),
        ("GEORADIUSBYMEMBER_RO s Catania 0.1 mi", r#"["Catania"]"#, r#"["Catania"]"#),
        (
            "GEORADIUSBYMEMBER s Catania inf km COUNT 4 DESC",
            r#"["edge1", "edge2", "Palermo", "Catania"]"#,
            r#"["edge1", "edge2", "Palermo", "Catania"]"#,
        ),
    ]);
}

#[test]
fn a_search_for_any_place_ends_early() {
    let mut server = TestServer::new();
    for number in 0..200 {
        server.run(&format!("GEOADD s {} {} m{number}", number % 20, number / 20));
    }
    for (count, expected) in [(1, 1), (7, 7), (500, 200)] {
        let reply = server.value(&format!("GEOSEARCH s FROMLONLAT 10 5 BYRADIUS 3000 km COUNT {count} ANY"));
        assert!(matches!(reply, wire::Value::Array(places) if places.len() == expected), "{count}");
    }
}

#[test]
fn found_places_can_be_stored() {
    check(&[
        (SICILY.0, SICILY.1),
        ("GEOSEARCHSTORE d s FROMLONLAT 15 37 BYRADIUS 200 km", ":2"),
        ("ZRANGE d 0 -1", r#"["Palermo", "Catania"]"#),
        ("GEOHASH d Palermo", r#"["sqc8b49rny0"]"#),
        ("GEOSEARCHSTORE d s FROMLONLAT 15 37 BYBOX 400 400 km STOREDIST COUNT 3", ":3"),
        ("ZRANGE d 0 -1", r#"["Catania", "Palermo", "edge2"]"#),
        ("ZCOUNT d 56.44 56.45", ":1"),
        ("GEORADIUS s 15 37 200 km STORE d", ":2"),
        ("GEOHASH d Palermo", r#"["sqc8b49rny0"]"#),
        ("GEORADIUSBYMEMBER s Catania 200 km STOREDIST d", ":2"),
        ("ZCOUNT d 166.27 166.28", ":1"),
        ("GEORADIUS s 15 37 200 km STORE first STORE second", ":2"),
        ("EXISTS first second", ":1"),
        ("GEOSEARCHSTORE s s FROMMEMBER Catania BYRADIUS 1 m", ":1"),
        ("ZCARD s", ":1"),
        ("GEORADIUS s 0 0 1 m STORE d", ":0"),
        ("EXISTS d", ":0"),
        ("SET d 1", "+OK"),
        ("GEOSEARCHSTORE d none FROMMEMBER x BYRADIUS 1 m", ":0"),
        ("EXISTS d", ":0"),
    ]);
}

#[test]
fn searches_refuse_the_arguments_that_redis_refuses() {
    const INCOMPATIBLE: &str =
        "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options";
    const DECODE: &str = "-ERR could not decode requested zset member";
    check(&[
        (SICILY.0, SICILY.1),
        (
            "GEOSEARCH s FROMMEMBER Palermo ASC DESC ASC",
            "-ERR exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH",
        ),
        (
            "geosearch s BYRADIUS 1 m ASC DESC",
            "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for geosearch",
        ),
        ("GEOSEARCH s FROMMEMBER Palermo FROMLONLAT 1 1 BYRADIUS 1 m", SYNTAX),
        ("GEOSEARCH s FROMLONLAT 1 1 FROMMEMBER Palermo BYRADIUS 1 m", SYNTAX),
        ("GEOSEARCH s FROMMEMBER Palermo BYRADIUS 1 m BYBOX 1 1 m", SYNTAX),
        ("GEOSEARCH s FROMMEMBER Palermo BYBOX 1 1 m BYRADIUS 1 m", SYNTAX),
        ("GEOSEARCH s FROMMEMBER Palermo BYRADIUS 1 m ANY", "-ERR the ANY argument requires COUNT argument"),
        ("GEOSEARCH s FROMMEMBER Palermo BYRADIUS 1 m COUNT 0", "-ERR COUNT must be > 0"),
        (
            "GEOSEARCH s FROMMEMBER Palermo BYRADIUS 1 m COUNT x",
            "-ERR value is not an integer or out of range",
        ),
        ("GEOSEARCH s FROMMEMBER Palermo BYRADIUS 1 m COUNT", SYNTAX),
        ("GEOSEARCH s FROMMEMBER Palermo BYRADIUS 1 m STOREDIST", SYNTAX),
        ("GEOSEARCH s FROMMEMBER Palermo BYRADIUS x m", "-ERR need numeric radius"),
        ("GEOSEARCH s FROMMEMBER Palermo BYRADIUS -1 m", "-ERR radius cannot be negative"),
        (
            "GEOSEARCH s FROMMEMBER Palermo BYRADIUS 1 x",
            "-ERR unsupported unit provided. please use M, KM, FT, MI",
        ),
        ("GEOSEARCH s FROMMEMBER Palermo BYBOX x 1 m", "-ERR need numeric width"),
        ("GEOSEARCH s FROMMEMBER Palermo BYBOX 1 x m", "-ERR need numeric height"),
        ("GEOSEARCH s FROMMEMBER Palermo BYBOX 1 -1 m", "-ERR height or width cannot be negative"),
        ("GEOSEARCH s FROMMEMBER nowhere BYRADIUS 1 m", DECODE),
        (
            "GEOSEARCH s FROMLONLAT 200 0 BYRADIUS 1 m",
            "-ERR invalid longitude,latitude pair 200.000000,0.000000",
        ),
        ("GEOSEARCH none FROMMEMBER nowhere BYRADIUS 1 m", "[]"),
        ("GEOSEARCH none FROMMEMBER nowhere BYRADIUS x m", "-ERR need numeric radius"),
        (
            "GEOSEARCHSTORE d s FROMMEMBER Palermo BYRADIUS 1 m WITHDIST",
            "-ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
        ("GEORADIUS s 15 37 1 m STORE d WITHHASH", INCOMPATIBLE),
        ("GEORADIUSBYMEMBER s Palermo 1 m STOREDIST d WITHCOORD", INCOMPATIBLE),
        ("GEORADIUS_RO s 15 37 1 m STORE d", SYNTAX),
        ("GEORADIUSBYMEMBER_RO s Palermo 1 m STORE d", SYNTAX),
        ("GEORADIUS s 15 37 1 m STORE", SYNTAX),
        ("GEORADIUS s 15 37 1 m BYRADIUS 1 m", SYNTAX),
        ("GEORADIUS s x 37 1 m", "-ERR value is not a valid float"),
        ("GEORADIUS none 15 37 x m", "-ERR need numeric radius"),
        ("GEORADIUSBYMEMBER none nowhere x y", "[]"),
        ("GEORADIUSBYMEMBER none nowhere x y STORE d", ":0"),
        ("GEORADIUSBYMEMBER s nowhere x y", DECODE),
        ("SET string 1", "+OK"),
        ("GEOSEARCH string FROMMEMBER a BYRADIUS 1 m", WRONG_TYPE),
        ("GEORADIUS string x 0 1 m", WRONG_TYPE),
        ("GEOSEARCHSTORE d string FROMMEMBER a BYRADIUS 1 m", WRONG_TYPE),
        ("EXISTS d", ":0"),
    ]);
}

#[test]
fn commands_on_places_notify_each_event_once() {
    let mut server = TestServer::new();
    *server.host.event_classes.lock() = EventClass::parse("zgE").expect("letters");
    for (command, expected) in [
        (SICILY.0, "zadd s"),
        (SICILY.0, ""),
        ("GEOSEARCHSTORE d s FROMMEMBER Palermo BYRADIUS 1 m", "geosearchstore d"),
        ("GEORADIUSBYMEMBER s Palermo 1 m STORE d", "georadiusstore d"),
        ("GEORADIUS s 0 0 1 m STORE d", "del d"),
        ("GEORADIUS s 0 0 1 m STORE d", ""),
    ] {
        server.run(command);
        assert_eq!(server.events().join(", "), expected, "{command}");
    }
    server.assert_replays();
}
