//! Parses commands from JSON, and refuses commands that a request cannot run.

use base64::{Engine, prelude::BASE64_STANDARD};
use engine::{CommandTable, row::ConnectionNeed};
use serde::Deserialize;
use wire::OwnedArgs;

/// The maximum number of commands in one request.
pub const COMMANDS_MAX: usize = 256;

/// Why the body of a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The body does not have the form of a list of commands.
    #[error(
        "The body must be an array of commands, each an array of words: strings, integers, or {{\"base64\": \"...\"}}."
    )]
    NoCommands,
    /// A command has no word.
    #[error("A command must have at least one word.")]
    NoWord,
    /// The body has more than [`COMMANDS_MAX`] commands.
    #[error("A request has at most 256 commands.")]
    TooMany,
}

/// A word of a command, or the name of a channel.
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Unsigned(u64),
    Signed(i64),
    Bytes(Bytes),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bytes {
    base64: String,
}

impl Word {
    fn bytes(self) -> Result<Vec<u8>, Malformed> {
        match self {
            Word::Text(text) => Ok(text.into_bytes()),
            Word::Unsigned(number) => Ok(number.to_string().into_bytes()),
            Word::Signed(number) => Ok(number.to_string().into_bytes()),
            Word::Bytes(Bytes { base64 }) => {
                BASE64_STANDARD.decode(base64).map_err(|_| Malformed::NoCommands)
            }
        }
    }
}

/// The commands in the body of a request.
///
/// # Errors
/// [`Malformed`].
pub fn parse(body: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, Malformed> {
    let commands: Vec<Vec<Word>> = serde_json::from_slice(body).map_err(|_| Malformed::NoCommands)?;
    if commands.len() > COMMANDS_MAX {
        return Err(Malformed::TooMany);
    }
    let words = |command: Vec<Word>| match command.is_empty() {
        true => Err(Malformed::NoWord),
        false => command.into_iter().map(Word::bytes).collect(),
    };
    commands.into_iter().map(words).collect()
}

/// A request for the messages of a durable channel.
#[derive(Debug, PartialEq, Eq)]
pub struct Follow {
    /// The name of the channel to read.
    pub channel: Vec<u8>,
    /// The position after which messages are wanted, as XSUBSCRIBE takes it.
    pub from: String,
    /// The longest wait for the first message, in milliseconds; the server has a limit of its own.
    pub wait_ms: u64,
}

impl Follow {
    /// The request in this body; `None` if the body has another form.
    pub fn parse(body: &[u8]) -> Option<Follow> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Form {
            channel: Word,
            from: String,
            #[serde(default)]
            wait_ms: u64,
        }
        let Form { channel, from, wait_ms } = serde_json::from_slice(body).ok()?;
        Some(Follow { channel: channel.bytes().ok()?, from, wait_ms })
    }
}

/// Why a request cannot run a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ERR '{name}' is not available over HTTP: {}", reason(*need))]
pub struct CommandRefusal {
    name: &'static str,
    need: ConnectionNeed,
}

fn reason(need: ConnectionNeed) -> &'static str {
    match need {
        ConnectionNeed::Waiting => "it waits, and a request must end",
        ConnectionNeed::Messages => "it makes its connection listen, and a request has none that lasts",
        ConnectionNeed::Transaction => {
            "the state of a transaction belongs to a connection; a script is one transaction (EVAL)"
        }
        ConnectionNeed::State => "it changes its connection, and a request has none that lasts",
        ConnectionNeed::Server => "it is for connections between servers",
    }
}

/// The reason why a request cannot run this command: by its row or its arguments, it needs a connection of
/// its own. `None` if it needs none, or if no row has this name.
pub fn refusal(table: &'static CommandTable, words: &[Vec<u8>]) -> Option<CommandRefusal> {
    let args: OwnedArgs = words.iter().collect();
    let (row, need) = ConnectionNeed::of(table, args.as_args())?;
    Some(CommandRefusal { name: row.name, need })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn words_are_texts_integers_and_bytes() {
        let body = br#"[["SET", "k\u00fc", {"base64": "/wA="}], ["INCRBY", 7, -9223372036854775808]]"#;
        let expected = [
            vec![b"SET".to_vec(), "kü".into(), vec![0xff, 0]],
            vec![b"INCRBY".to_vec(), b"7".into(), b"-9223372036854775808".into()],
        ];
        assert_eq!(parse(body).unwrap(), expected);
        assert_eq!(parse(b"[]").unwrap(), Vec::<Vec<Vec<u8>>>::new());
    }

    #[test]
    fn other_bodies_are_refused() {
        for body in [
            "",
            "{}",
            "[\"GET\"]",
            "[[\"GET\", null]]",
            "[[\"GET\", 1.5]]",
            "[[\"GET\", {\"base64\": \"?\"}]]",
            "[[\"GET\", {\"base64\": \"\", \"more\": 1}]]",
            "[[\"GET\", [\"k\"]]]",
            "[[\"GET\"]] x",
        ] {
            assert_eq!(parse(body.as_bytes()), Err(Malformed::NoCommands), "{body}");
        }
        assert_eq!(parse(b"[[]]"), Err(Malformed::NoWord));
        let many = |count: usize| format!("[{}]", vec!["[\"PING\"]"; count].join(","));
        assert_eq!(parse(many(COMMANDS_MAX).as_bytes()).unwrap().len(), COMMANDS_MAX);
        assert_eq!(parse(many(COMMANDS_MAX + 1).as_bytes()), Err(Malformed::TooMany));
    }

    #[test]
    fn a_channel_is_named_by_text_or_bytes() {
        let follow = |body: &str| Follow::parse(body.as_bytes());
        let expected = Follow { channel: vec![0xff], from: "-".into(), wait_ms: 5 };
        assert_eq!(follow(r#"{"channel": {"base64": "/w=="}, "from": "-", "wait_ms": 5}"#), Some(expected));
        assert_eq!(follow(r#"{"channel": "c", "from": "$"}"#).unwrap().wait_ms, 0);
        for wrong in ["", "[]", r#"{"channel": "c"}"#, r#"{"channel": "c", "from": "-", "x": 1}"#] {
            assert_eq!(follow(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn commands_that_outlive_their_request_are_refused_with_a_reason() {
        let told = |line: &str| refusal(commands::table(), &words(line)).map(|refusal| refusal.to_string());
        assert_eq!(
            told("BLPOP k 0").unwrap(),
            "ERR 'blpop' is not available over HTTP: it waits, and a request must end"
        );
        for refused in [
            "Multi",
            "client REPLY off",
            "SUBSCRIBE c",
            "idemp k 1000 BLPOP q 0",
            "xread COUNT 1 BLOCK 0 STREAMS s $",
            "xreadgroup GROUP block c BLOCK 0 STREAMS s >",
            "xreadgroup GROUP streams c BLOCK 0 STREAMS s >",
            "idemp k 1000 xread BLOCK 0 STREAMS s $",
        ] {
            assert!(told(refused).is_some(), "{refused}");
        }
        for run in [
            "GET k",
            "client list",
            "idemp k 1000 INCR n",
            "idemp k",
            "idemp k 1000 idemp k 1000 BLPOP q 0",
            "xread STREAMS block 0",
            "xreadgroup GROUP block c STREAMS s >",
            "client",
            "unknown",
        ] {
            assert_eq!(told(run), None, "{run}");
        }
    }

    #[test]
    fn the_rows_of_all_commands_that_need_a_connection_say_so() {
        let needy = |need: ConnectionNeed| {
            let rows = commands::table().rows().iter();
            let calls = rows.map(|row| row.name.split('|').map(|word| word.as_bytes().to_vec()).collect());
            let refusals = calls.filter_map(|call: Vec<_>| refusal(commands::table(), &call));
            let mut names: Vec<_> = refusals.filter(|it| it.need == need).map(|it| it.name).collect();
            names.sort_unstable();
            names.join(" ")
        };
        let waiting = "blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin wait waitaof waitlsn";
        assert_eq!(needy(ConnectionNeed::Waiting), waiting);
        let messages = "monitor psubscribe punsubscribe ssubscribe subscribe sunsubscribe unsubscribe \
                        xsubscribe xunsubscribe";
        assert_eq!(needy(ConnectionNeed::Messages), messages);
        assert_eq!(needy(ConnectionNeed::Transaction), "discard exec multi unwatch watch");
        let state = "auth client|caching client|reply client|tracking hello lease quit reset";
        assert_eq!(needy(ConnectionNeed::State), state);
        assert_eq!(needy(ConnectionNeed::Server), "group|join group|peer psync replconf replicate sync");
    }
}
