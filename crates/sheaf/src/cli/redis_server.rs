//! Command lines of `redis-server`, in which a file of settings comes first and a flag may have several
//! words.
//!
//! The module translates such arguments into arguments of this command line. Flags that have no effect here
//! become values of one hidden flag ([`WITHOUT_EFFECT`]), so that the server can name them. All other
//! arguments stay unchanged.

use settings::{Meaning, OPTIONS, Settings, is_redis_file, meaning};

/// The hidden flag whose value is the name of a flag without effect, a space, and its value.
pub(super) const WITHOUT_EFFECT: &str = "without-effect";

/// Translates arguments of `redis-server` into arguments of this command line. `tools` has the names of the
/// subcommands other than `serve`.
pub(super) fn in_our_words(arguments: Vec<String>, tools: &[String]) -> Vec<String> {
    let mut ours = Vec::with_capacity(arguments.len());
    let mut rest = arguments.into_iter().peekable();
    ours.extend(rest.next());
    if rest.peek().is_some_and(|first| tools.contains(first)) {
        return ours.into_iter().chain(rest).collect();
    }
    ours.extend(rest.next_if(|first| first == "serve"));
    if let Some(file) = rest.next_if(|first| !first.starts_with('-') && is_redis_file(first.as_ref())) {
        ours.push(format!("--config={file}"));
    }
    while let Some(argument) = rest.next() {
        let Some(flag) = argument.strip_prefix("--") else {
            ours.push(argument);
            continue;
        };
        let (name, mut words) = match flag.split_once('=') {
            Some((name, word)) => (name, vec![word.to_owned()]),
            None => (flag, Vec::new()),
        };
        while words.is_empty() || !flag.contains('=') {
            match rest.next_if(|next| !next.starts_with("--")) {
                Some(word) => words.push(word),
                None => break,
            }
        }
        match translated(name, &words) {
            Some(translated) => ours.push(translated),
            None if flag.contains('=') => ours.push(argument),
            None => {
                ours.push(argument);
                ours.append(&mut words);
            }
        }
    }
    ours
}

/// The flag of this command line with the same meaning. `None` if there is none, or if the words need no
/// translation.
fn translated(name: &str, words: &[String]) -> Option<String> {
    let is_ours = OPTIONS.iter().any(|option| option.name == name);
    if let (true, [word]) = (is_ours, words) {
        let defaults = Settings::default();
        let (_, value) = settings::in_our_words(name, word, &defaults).ok()?;
        return (value != word).then(|| format!("--{name}={value}"));
    }
    if words.is_empty() {
        return None;
    }
    match meaning(&name.to_ascii_lowercase(), words, true) {
        Ok(Meaning::Setting { setting, value }) => Some(format!("--{}={value}", setting.name)),
        Ok(Meaning::Inert { name, value }) => Some(format!("--{WITHOUT_EFFECT}={name} {value}")),
        Ok(Meaning::Nothing(_)) => Some(format!("--{WITHOUT_EFFECT}={name} {}", words.join(" "))),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated_line(line: &str) -> String {
        let arguments = line.split(' ').map(str::to_owned).collect();
        in_our_words(arguments, &["check".into(), "tail".into()]).join(" ")
    }

    #[test]
    fn lines_of_redis_server_are_understood() {
        for (line, ours) in [
            ("sheaf redis.conf", "sheaf --config=redis.conf"),
            (
                "sheaf serve /etc/redis/redis.conf --port 1",
                "sheaf serve --config=/etc/redis/redis.conf --port 1",
            ),
            ("sheaf --replicaof db1 6379", "sheaf --replica-of=db1:6379"),
            ("sheaf --slaveof no one --port 7", "sheaf --replica-of=none --port 7"),
            ("sheaf --appendfsync everysec", "sheaf --durability=interval"),
            ("sheaf --appendfsync=always", "sheaf --durability=strict"),
            ("sheaf --loglevel notice --port 7", "sheaf --loglevel=info --port 7"),
            ("sheaf --loglevel=warning", "sheaf --loglevel=warn"),
            ("sheaf --bind 127.0.0.1 -::1 --port 7", "sheaf --bind=127.0.0.1 -::1 --port 7"),
            ("sheaf --min-slaves-to-write 1", "sheaf --min-replicas-to-write=1"),
            ("sheaf --save 900 1 --port 7", "sheaf --without-effect=save 900 1 --port 7"),
            ("sheaf --hz 10", "sheaf --without-effect=hz 10"),
            ("sheaf --slave-priority=7", "sheaf --without-effect=replica-priority 7"),
            (
                "sheaf --client-output-buffer-limit normal 0 0 0",
                "sheaf --client-output-buffer-limit=normal 0 0 0",
            ),
        ] {
            assert_eq!(translated_line(line), ours);
        }
    }

    #[test]
    fn all_other_lines_stay_as_they_are() {
        for line in [
            "sheaf",
            "sheaf --port 1 --bind 127.0.0.1",
            "sheaf --port=1",
            "sheaf --loglevel warn",
            "sheaf --loglevel loud",
            "sheaf check data.conf",
            "sheaf tail --bind a b",
            "sheaf data.toml",
            "sheaf --workers -1",
            "sheaf --daemonize yes",
            "sheaf --save 900 x",
            "sheaf --hz x",
            "sheaf --replicaof",
            "sheaf --help",
        ] {
            assert_eq!(translated_line(line), line);
        }
    }
}
