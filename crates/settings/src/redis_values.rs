//! Settings in the words of Redis: names and values, in CONFIG SET and in files of Redis, that mean something
//! here under another name.

use super::{Key, Settings};

/// Translates a name and a value that are words of Redis to the name and value that mean the same here.
/// Others are returned unchanged.
///
/// # Errors
/// The reason, in the words of Redis.
pub fn in_our_words<'a>(
    name: &'a str,
    value: &'a str,
    in_force: &'a Settings,
) -> Result<(&'a str, &'a str), String> {
    if name.eq_ignore_ascii_case("appendfsync") {
        return durability_for(value, in_force).map(|durability| ("durability", durability));
    }
    if name.eq_ignore_ascii_case("loglevel") {
        return Ok((name, level_for(value)));
    }
    // Valkey's name for lines of text.
    if name.eq_ignore_ascii_case("log-format") && value.eq_ignore_ascii_case("legacy") {
        return Ok((name, "text"));
    }
    Ok((name, value))
}

/// The `appendfsync` of Redis that promises what the durability in force promises.
pub fn appendfsync_of(settings: &Settings) -> &'static str {
    match settings.text(Key::Durability) {
        "strict" | "commit" => "always",
        "interval" => "everysec",
        _ => "no",
    }
}

fn durability_for<'a>(policy: &str, in_force: &'a Settings) -> Result<&'a str, String> {
    match policy.to_ascii_lowercase().as_str() {
        // `commit` promises as much as `always` already, so it stays.
        "always" if appendfsync_of(in_force) == "always" => Ok(in_force.text(Key::Durability)),
        "always" => Ok("strict"),
        "everysec" => Ok("interval"),
        "no" => Ok("none"),
        _ => Err("argument(s) must be one of the following: everysec, always, no".into()),
    }
}

fn level_for(level: &str) -> &str {
    match level.to_ascii_lowercase().as_str() {
        "verbose" | "notice" => "info",
        "warning" => "warn",
        "nothing" => "error",
        _ => level,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appendfsync_is_the_durability() {
        let mut settings = Settings::default();
        for (policy, durability) in
            [("everysec", "interval"), ("No", "none"), ("always", "strict"), ("ALWAYS", "strict")]
        {
            let ours = in_our_words("AppendFsync", policy, &settings);
            assert_eq!(ours, Ok(("durability", durability)));
            settings.set("durability", durability).unwrap();
            assert_eq!(appendfsync_of(&settings), policy.to_ascii_lowercase());
        }
        settings.set("durability", "commit").unwrap();
        assert_eq!(in_our_words("appendfsync", "always", &settings), Ok(("durability", "commit")));
        assert_eq!(
            in_our_words("appendfsync", "maybe", &settings),
            Err("argument(s) must be one of the following: everysec, always, no".into())
        );
    }

    #[test]
    fn levels_of_redis_are_levels() {
        let settings = Settings::default();
        for (level, ours) in [
            ("debug", "debug"),
            ("verbose", "info"),
            ("Notice", "info"),
            ("warning", "warn"),
            ("warn", "warn"),
        ] {
            assert_eq!(in_our_words("loglevel", level, &settings), Ok(("loglevel", ours)));
            assert!(Settings::default().set("loglevel", ours).is_ok());
        }
        assert_eq!(in_our_words("port", "verbose", &settings), Ok(("port", "verbose")));
        assert_eq!(in_our_words("log-format", "Legacy", &settings), Ok(("log-format", "text")));
    }
}
