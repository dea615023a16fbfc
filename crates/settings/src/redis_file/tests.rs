//! Files of Redis, from lines to settings.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::Lasting;

struct Files(PathBuf);

impl Files {
    fn new(test: &str) -> Files {
        let path = std::env::temp_dir().join(format!("sheaf-redis-file-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Files(path)
    }

    fn with(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn settings_of(test: &str, text: &str) -> Result<(Settings, Vec<String>), String> {
    let files = Files::new(test);
    let path = files.with("redis.conf", text);
    let (settings, lasting) =
        Lasting::load(Some(path.clone()), Vec::new()).map_err(|error| error.to_string())?;
    assert_eq!(lasting.config_file(), Some(&*path));
    Ok((settings, read(&path).unwrap().without_effect))
}

fn refusal(test: &str, text: &str) -> String {
    settings_of(test, text).map(|_| ()).unwrap_err()
}

#[test]
fn the_lines_of_an_everyday_file_are_taken_over() {
    let text = "# a comment\n\nbind 127.0.0.1 -::1\nPORT 7000\ntcp-backlog 511\ndaemonize no\nloglevel notice\nlogfile /tmp/a.log\n\
                databases 16\nsave 900 1\nsave 300 10\nappendonly yes\nappendfsync everysec\nmaxmemory 100mb\n\
                maxmemory-policy allkeys-lru\nrequirepass \"a \\\"b\\\" \\x41\"\nreplicaof db1 6379\nhz 50\n\
                client-output-buffer-limit normal 0 0 0\nclient-output-buffer-limit pubsub 64mb 16mb 90\n\
                hash-max-ziplist-entries 99\nlatency-tracking-info-percentiles 50 99\n";
    let (settings, without_effect) = settings_of("everyday", text).unwrap();
    let texts =
        [Key::Bind, Key::Requirepass, Key::ReplicaOf, Key::Durability, Key::Logfile, Key::MaxmemoryPolicy];
    assert_eq!(
        texts.map(|key| settings.text(key)),
        ["127.0.0.1 -::1", "a \"b\" A", "db1:6379", "interval", "/tmp/a.log", "allkeys-lru"]
    );
    assert_eq!(
        [Key::Port, Key::Maxmemory, Key::HashMaxListpackEntries].map(|key| settings.integer(key)),
        [7000, 100 << 20, 99]
    );
    let limits = settings.rendered(Key::ClientOutputBufferLimit);
    assert!(
        limits.starts_with("normal 0 0 0 ") && limits.ends_with("pubsub 67108864 16777216 90"),
        "{limits}"
    );
    assert!(settings.inert().any(|(name, value)| name == "hz" && value == "50"), "CONFIG GET shows it");
    assert_eq!(
        without_effect,
        [
            "daemonize",
            "databases (there are 16)",
            "save (every write is in the log)",
            "appendonly (every write is in the log)",
            "hz",
            "latency-tracking-info-percentiles"
        ]
    );
}

#[test]
fn addresses_and_points_of_saving_are_those_of_redis() {
    for (text, bind) in [
        ("bind * -::*\n", "0.0.0.0 -::"),
        ("bind -10.0.0.9 127.0.0.1\nsave \"\"\n", "-10.0.0.9 127.0.0.1"),
        ("bind \"127.0.0.1\"\nsave 900 1 300 0\n", "127.0.0.1"),
    ] {
        let (settings, _) = settings_of("addresses", text).unwrap();
        assert_eq!(settings.text(Key::Bind), bind, "{text}");
    }
}

#[test]
fn appendfsync_counts_only_with_an_append_only_file() {
    for (text, durability) in [
        ("appendfsync no\n", "strict"),
        ("appendonly no\nappendfsync everysec\n", "strict"),
        ("appendfsync everysec\nappendonly yes\n", "interval"),
        ("appendonly yes\nappendfsync always\n", "strict"),
    ] {
        let (settings, _) = settings_of("appendfsync", text).unwrap();
        assert_eq!(settings.text(Key::Durability), durability, "{text}");
    }
}

#[test]
fn promises_that_are_not_kept_here_are_refused_with_their_line() {
    for (text, reason) in [
        (
            "port 1\nrename-command FLUSHALL \"\"\n",
            "line 2: 'rename-command' is not known here: commands keep their names",
        ),
        ("daemonize yes\n", "line 1: 'daemonize' is not known here: the server stays in the foreground"),
        ("cluster-enabled yes\n", "use --group NAME"),
        ("replica-read-only no\n", "a replica always refuses writes"),
        ("user alice on >secret\n", "--aclfile FILE"),
        ("loadmodule x.so\n", "there are no modules"),
        ("databases 32\n", "databases"),
        ("appendonly yes\nappendfsync sometimes\n", "everysec, always, no"),
        ("appendfsync sometimes\n", "line 1: 'appendfsync': argument(s) must be one of"),
        ("appendonly maybe\n", "line 1: 'appendonly': argument must be 'yes' or 'no'"),
        ("save 900\n", "line 1: 'save': Invalid save parameters"),
        ("save 0 1\n", "Invalid save parameters"),
        ("dbfilename a/b\n", "dbfilename can't be a path, just a filename"),
        ("requirepass \"geheim\" x\n", "line 1: 'requirepass': one word is expected"),
        ("requirepass geheim\\ x\n", "line 1: 'requirepass': one word is expected"),
        ("include /tmp\n", "line 1: a directory cannot be included"),
        ("include a.conf b.conf\n", "line 1: 'include' takes one file or pattern"),
        ("maxmemory 5mb\x0c\n", "invalid value"),
        ("hz x\n", "'hz'"),
        ("maxmemroy 1\n", "did you mean 'maxmemory'?"),
        ("requirepass \"geheim\n", "line 1: a quote is not closed"),
        ("requirepass \"geheim\"x\n", "line 1: a quote is not closed, or not followed by a space"),
        ("requirepass \"\\xff\"\n", "not text in UTF-8"),
        ("port\n", "a name and at least one word"),
        ("port 0\n", "line 1: invalid value '0' for 'port': no client could connect"),
        ("include /nowhere.conf\n", "line 1: cannot read the settings of /nowhere.conf"),
        ("\n\nport 99999\n", "line 3: invalid value '99999' for 'port'"),
    ] {
        let error = refusal("refused", text);
        assert!(error.contains(reason) && !error.contains("geheim"), "{text:?}: {error}");
    }
}

#[test]
fn files_include_others_in_place_and_errors_name_the_right_one() {
    let files = Files::new("include");
    let inner = files.with("inner.conf", "timeout 7\nport 1\n");
    let outer = files.with("outer.conf", &format!("port 2\ninclude {}\ntimeout 9\n", inner.display()));
    let (settings, _) = Lasting::load(Some(outer.clone()), Vec::new()).unwrap();
    assert_eq!([Key::Port, Key::Timeout].map(|key| settings.integer(key)), [1, 9]);
    files.with("inner.conf", "timeout 7\nport x\n");
    let error = Lasting::load(Some(outer), Vec::new()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}, line 2: ", inner.display())), "{error}");
    let circle = files.with("circle.conf", &format!("include {}\n", files.0.join("circle.conf").display()));
    assert!(read(&circle).unwrap_err().to_string().contains("too deeply"));
}

#[test]
fn patterns_include_files_in_the_order_of_their_names() {
    let files = Files::new("patterns");
    fs::create_dir_all(files.0.join("parts")).unwrap();
    for (name, timeout) in
        [("parts/b.conf", 2), ("parts/a.conf", 1), ("parts/.c.conf", 3), ("parts/d.txt", 4)]
    {
        files.with(name, &format!("timeout {timeout}\n"));
    }
    fs::create_dir_all(files.0.join("parts/z.conf")).unwrap();
    let root = files.0.display();
    for (pattern, expected) in [
        (format!("{root}/parts/*.conf"), 2),
        (format!("{root}/p?rts/[a]*"), 1),
        (format!("{root}/parts/.*.conf"), 3),
        (format!("{root}/none/*.conf"), 9),
        (format!("{root}/parts/*.none"), 9),
    ] {
        let path = files.with("outer.conf", &format!("timeout 9\ninclude {pattern}\n"));
        let (settings, _) = Lasting::load(Some(path), Vec::new()).unwrap();
        assert_eq!(settings.integer(Key::Timeout), expected, "{pattern}");
    }
}

#[test]
fn files_that_include_each_other_by_patterns_come_to_an_end() {
    let files = Files::new("many");
    let text = format!("include {}/*.conf\n", files.0.display());
    let all: Vec<PathBuf> = (0..10).map(|number| files.with(&format!("{number}.conf"), &text)).collect();
    assert!(read(&all[0]).unwrap_err().to_string().contains("too "));
    assert!(matches!(read(&files.with("one.conf", &text)), Err(error) if error.to_string().contains("too ")));
    let line = "port 1\n".repeat(3)
        + &format!("include {}\n", files.with("wide.txt", "port 2\n").display()).repeat(2000);
    assert!(read(&files.with("wide.conf", &line)).unwrap_err().to_string().contains("too many files"));
}

#[test]
fn another_door_may_replace_the_plain_port() {
    for text in ["port 0\nunixsocket /tmp/a.sock\n", "tls-port 1\nport 0\n", "port 0\nport 1\n"] {
        assert!(settings_of("door", text).is_ok(), "{text}");
    }
}

#[test]
fn a_converted_file_sets_the_same_and_says_what_it_leaves_out() {
    let files = Files::new("convert");
    let text = "port 7001\nrequirepass \"p # \\\"q\"\nmaxmemory 1gb\nport 7002\nsave 60 1\nhz 10\nrename-command KEYS \"\"\n\
                client-output-buffer-limit normal 1 2 3\nclient-output-buffer-limit pubsub 4 5 6\n";
    let path = files.with("redis.conf", text);
    let Converted { text: toml, refused } = converted(&path).unwrap();
    assert_eq!(refused, 1);
    assert!(toml.starts_with(&format!("# Made from {}\nport = 7002\n", path.display())), "{toml}");
    assert!(
        toml.contains("# Not taken over:\n#   ")
            && toml.contains("line 7: 'rename-command' is not known here"),
        "{toml}"
    );
    assert!(toml.contains("# Without effect here:\n#   hz\n#   save: every write is in the log"), "{toml}");
    let from_toml = Lasting::load(Some(files.with("sheaf.toml", &toml)), Vec::new()).unwrap().0;
    let kept = text.replace("rename-command KEYS \"\"\n", "");
    let (from_redis, _) = settings_of("convert2", &kept).unwrap();
    for option in OPTIONS {
        assert_eq!(from_toml.value(option.key), from_redis.value(option.key), "{}", option.name);
    }
}

#[test]
fn a_file_of_redis_is_not_written() {
    let files = Files::new("rewrite");
    let path = files.with("redis.conf", "timeout 5\n");
    let (mut settings, mut lasting) = Lasting::load(Some(path.clone()), Vec::new()).unwrap();
    settings.set("timeout", "6").unwrap();
    let error = lasting.rewrite(&settings).unwrap_err();
    assert!(
        error.starts_with("ERR Rewriting config file: ") && error.contains("sheaf config convert"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(path).unwrap(), "timeout 5\n");
}

#[test]
fn words_are_split_as_redis_splits_them() {
    for (line, words) in [
        ("a  b\tc", &["a", "b", "c"][..]),
        (r#"a "b c" 'd e'"#, &["a", "b c", "d e"]),
        (r#"a "\n\r\t\x41\q" 'it\'s \n'"#, &["a", "\n\r\tAq", "it's \\n"]),
        (r#"a "" ''"#, &["a", "", ""]),
        (r#"a b"c d""#, &["a", "bc d"]),
        ("a \"é\"", &["a", "é"]),
    ] {
        assert_eq!(split(line).unwrap(), words, "{line}");
    }
    for line in ["a \"b", "a 'b", "a \"b\"c", "a \"b\\", "a \"b\\x4\"\\"] {
        split(line).expect_err(line);
    }
}

proptest! {
    #[test]
    fn quoted_words_come_back(words in proptest::collection::vec(any::<String>(), 1..5)) {
        let quoted = |word: &String| {
            let bytes = word.bytes().map(|byte| format!("\\x{byte:02x}"));
            format!("\"{}\"", bytes.collect::<String>())
        };
        let line = words.iter().map(quoted).collect::<Vec<_>>().join(" ");
        prop_assert_eq!(split(&line).unwrap(), words);
    }

    #[test]
    fn any_text_is_split_or_refused(line in "\\PC*") {
        if let Ok(words) = split(&line) {
            prop_assert!(words.iter().map(String::len).sum::<usize>() <= line.len());
        }
    }
}
