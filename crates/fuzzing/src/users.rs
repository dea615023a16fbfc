//! Arbitrary bytes as users: a record, rules, a file of users. No panic, and the text of a user reads as an
//! equal user.

use std::sync::LazyLock;

use access::{Categories, Category, Command, CommandList, Grammar, Rights, User, parse_file};

use crate::{Outcome, Seed};

static COMMANDS: LazyLock<CommandList> = LazyLock::new(|| {
    let categories = |all: &[Category]| all.iter().copied().collect::<Categories>();
    let command = |name, all: &[Category]| Command { name, categories: categories(all), is_for_all: false };
    CommandList::new([
        command("get", &[Category::Read, Category::String, Category::Fast]),
        command("set", &[Category::Write, Category::String, Category::Slow]),
        command("select", &[Category::Fast, Category::Connection]),
        command("config", &[Category::Slow]),
        command("config|get", &[Category::Admin, Category::Slow, Category::Dangerous]),
        command("config|set", &[Category::Admin, Category::Slow, Category::Dangerous]),
    ])
});

fn grammar(all_channels: bool) -> Grammar<'static> {
    Grammar { commands: &COMMANDS, all_channels }
}

/// Decodes the record of a user. Accepts one.
///
/// # Panics
/// If the user is encoded as another record.
pub fn user_record(bytes: &[u8]) -> Outcome {
    let Ok(user) = User::decode(bytes) else { return Outcome::Refused };
    assert_eq!(user.encode(), bytes, "a user has one encoding");
    // The password is not checked against a derived password, which may take seconds.
    _ = (user.accepts_at_once(b"password"), user.login_digest());
    _ = (user.line(b"name"), user.describe(), Rights::new(&user, &COMMANDS));
    Outcome::Accepted
}

/// Applies rules, which line feeds separate, to a new user. Accepts rules of which none is refused.
///
/// # Panics
/// If the line or the record of the user reads as another user.
pub fn user_rules(bytes: &[u8]) -> Outcome {
    let grammar = grammar(false);
    let rules = bytes.split(|byte| *byte == b'\n');
    let user = match grammar.apply(&User::initial(false), rules) {
        Ok(user) => user,
        Err(error) => {
            _ = error.reply();
            return Outcome::Refused;
        }
    };
    assert_eq!(User::decode(&user.encode()).as_ref(), Ok(&user));
    let file = user.line(b"name");
    let read = parse_file(&grammar, b"file", &file).expect("a line of ACL LIST is a line of a file");
    assert_eq!(read.get(&b"name"[..]), Some(&user));
    Outcome::Accepted
}

/// Reads a file of users. Accepts one without errors.
///
/// # Panics
/// If the lines of its users read as other users.
pub fn user_file(bytes: &[u8]) -> Outcome {
    let grammar = grammar(true);
    let Ok(users) = parse_file(&grammar, b"file", bytes) else { return Outcome::Refused };
    let lines: Vec<Vec<u8>> = users.iter().map(|(name, user)| user.line(name)).collect();
    assert_eq!(parse_file(&grammar, b"file", &lines.join(&b'\n')).as_ref(), Ok(&users));
    Outcome::Accepted
}

fn user(rules: &[&str]) -> User {
    let rules = rules.iter().map(|rule| rule.as_bytes());
    grammar(false).apply(&User::initial(false), rules).expect("rules")
}

pub(crate) fn record_seeds() -> Vec<Seed> {
    vec![
        ("initial", User::initial(false).encode()),
        ("all-powerful", User::all_powerful().encode()),
        (
            "selectors",
            user(&["on", ">pw", "~a*", "%R~b", "&c", "+get", "-config|get", "(+set %W~d)"]).encode(),
        ),
        (
            "derived-password",
            user(&[
                "on",
                ">pw",
                "#pbkdf2-sha$4096$73616c74$4b007901b765489abead49d926f721d065a429c1",
                "role:two%20words",
            ])
            .encode(),
        ),
        ("roles", User { roles: vec![b"_admin"[..].into()], ..User::all_powerful() }.encode()),
        ("birth", User { birth: 7, ..User::all_powerful() }.encode()),
        ("refused-version", vec![9, 0, 0, 0]),
        ("refused-empty", Vec::new()),
    ]
}

pub(crate) fn rules_seeds() -> Vec<Seed> {
    vec![
        ("all", b"on\nnopass\n+@all\n~*\n&*".to_vec()),
        ("patterns", b"~a*\n%R~b[c-d]\n%W~e?\n&f".to_vec()),
        ("commands", b"+@all\n-@dangerous\n+config|get\n+select|1\n-set".to_vec()),
        ("selectors", b"(+get ~a)\n(+set\n%W~b)\nclearselectors\n(+@read)".to_vec()),
        ("passwords", b">one\n>two\n<one\nresetpass\nreset".to_vec()),
        ("roles", b"role:a\nrole:two%20words\nresetroles\nROLE:b".to_vec()),
        (
            "derived-password",
            b"#pbkdf2-sha$4096$73616c74$4b007901b765489abead49d926f721d065a429c1\n>pw".to_vec(),
        ),
        ("refused-role", b"role:_admin".to_vec()),
        ("refused-command", b"+nosuch".to_vec()),
        ("refused-parenthesis", b"(+get".to_vec()),
    ]
}

pub(crate) fn file_seeds() -> Vec<Seed> {
    vec![
        ("two", b"user default on nopass ~* &* +@all\nuser a on >pw ~a* +get (+set ~b)\n".to_vec()),
        ("empty", b"\n\n".to_vec()),
        ("refused-twice", b"user a on\nuser a off\n".to_vec()),
        ("refused-comment", b"# users\n".to_vec()),
    ]
}
