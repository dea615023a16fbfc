//! Properties of rules, records and judgements, over random rules.

use proptest::prelude::*;
use wire::glob;

use crate::codec::{DecodeError, VERSION};
use crate::command_list::{CommandId, CommandList};
use crate::command_rules::CommandRules;
use crate::judge::{Call, ChannelUse, KeyUse};
use crate::patterns::{ChannelPatterns, KeyAccess, KeyPatterns};
use crate::rights::Rights;
use crate::samples::{commands, grammar};
use crate::selector::Selector;
use crate::user::User;

/// A rule for a selector. The grammar refuses some of these rules.
fn rule() -> impl Strategy<Value = String> {
    let command = prop::sample::select(vec![
        "get",
        "set",
        "mget",
        "config",
        "config|get",
        "config|set",
        "client",
        "client|id",
        "select",
        "select|0",
        "select|A",
        "get|a",
        "get|b",
        "subscribe",
        "publish",
        "nosuch",
        "acl|cat",
        "keys",
        "exists",
    ]);
    let category =
        prop::sample::select(vec!["all", "read", "write", "fast", "dangerous", "admin", "slow", "x"]);
    let sign = prop::sample::select(vec!["+", "-"]);
    let access = prop::sample::select(vec!["~", "%R~", "%W~", "%RW~"]);
    let other = prop::sample::select(vec![
        "allkeys",
        "resetkeys",
        "~*",
        "allchannels",
        "resetchannels",
        "&*",
        "allcommands",
        "nocommands",
    ]);
    prop_oneof![
        6 => (sign.clone(), command).prop_map(|(sign, name)| format!("{sign}{name}")),
        3 => (sign, category).prop_map(|(sign, name)| format!("{sign}@{name}")),
        4 => (access, "[ab]{0,2}[*?]?[ab]?").prop_map(|(access, pattern)| format!("{access}{pattern}")),
        1 => "[~&][ab()]{1,3}",
        2 => "&[ab]{0,2}[*?]?",
        1 => other.prop_map(str::to_owned),
    ]
}

fn user_rule() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => rule(),
        2 => prop::collection::vec(rule(), 0..4).prop_map(|rules| format!("({})", rules.join(" "))),
        1 => "[><][ab]",
        1 => prop::sample::select(vec!["on", "off", "nopass", "resetpass", "skip-sanitize-payload"])
            .prop_map(str::to_owned),
    ]
}

/// The user that results from those rules that are not refused.
fn user_of(rules: &[String]) -> User {
    let commands = commands();
    rules.iter().fold(User::initial(false), |user, rule| {
        grammar(commands).apply(&user, [rule.as_bytes()]).unwrap_or(user)
    })
}

fn users() -> impl Strategy<Value = User> {
    let births = prop_oneof![Just(0), any::<u64>()];
    (prop::collection::vec(user_rule(), 0..14), births)
        .prop_map(|(rules, birth)| User { birth, ..user_of(&rules) })
}

/// Whether the rules permit a command, according to the model, which applies the meaning of each rule in
/// order.
fn model_permits_command(rules: &CommandRules, commands: &CommandList, id: CommandId, arg: &[u8]) -> bool {
    let name = commands.name(id);
    let (_, command) = commands.iter().find(|(known, _)| *known == id).unwrap();
    let mut verdict = rules.begins_with_all();
    let mut args = Vec::new();
    for rule in rules.rules() {
        let target = std::str::from_utf8(rule.target()).unwrap();
        let is_about_all = match target.strip_prefix('@') {
            Some(category) => command.categories.iter().any(|known| known.name() == category),
            None => target == name || name.split_once('|').is_some_and(|(container, _)| container == target),
        };
        if is_about_all {
            verdict = rule.allows();
            args.clear();
        } else if let Some((of, arg)) = target.split_once('|')
            && of == name
        {
            args.push(arg.as_bytes());
        }
    }
    verdict || args.iter().any(|known| known.eq_ignore_ascii_case(arg))
}

fn model_permits(selector: &Selector, commands: &CommandList, call: &Call<'_, '_>) -> bool {
    let keys = |key: &KeyUse<'_>| match &selector.keys {
        KeyPatterns::All => true,
        KeyPatterns::Of(patterns) => patterns
            .iter()
            .any(|known| known.access.has(key.access) && glob::matches(&known.pattern, key.key)),
    };
    let channels = |channel: &ChannelUse<'_>| match &selector.channels {
        ChannelPatterns::All => true,
        ChannelPatterns::Of(patterns) if channel.is_pattern => {
            patterns.iter().any(|known| **known == *channel.name)
        }
        ChannelPatterns::Of(patterns) => patterns.iter().any(|known| glob::matches(known, channel.name)),
    };
    model_permits_command(&selector.commands, commands, call.command, call.first_arg.unwrap_or_default())
        && call.keys.iter().all(keys)
        && call.channels.iter().all(channels)
}

proptest! {
    #[test]
    fn a_line_gives_the_same_user(user in users()) {
        let commands = commands();
        let line = user.line(b"u");
        let rules = line.split(|byte| *byte == b' ').skip(2);
        let again = grammar(commands).apply(&User::initial(false), rules).unwrap();
        prop_assert_eq!(&again, &User { birth: 0, ..user });
        prop_assert_eq!(again.line(b"u"), line);
    }

    #[test]
    fn a_record_gives_the_same_user(mut user in users(), roles in prop::collection::vec("[a-z_]{0,8}", 0..3)) {
        user.roles = roles.into_iter().map(|role| role.into_bytes().into()).collect();
        let payload = user.encode();
        prop_assert_eq!(User::decode(&payload), Ok(user));
        for end in 0..payload.len() {
            prop_assert!(User::decode(&payload[..end]).is_err(), "cut at {}", end);
        }
        prop_assert!(User::decode(&[&*payload, &[0]].concat()).is_err());
    }

    #[test]
    fn decoding_any_bytes_gives_an_error_or_a_user_with_these_bytes(
        user in users(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        random in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut payload = user.encode();
        for (at, byte) in changes {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        for bytes in [payload, [&[VERSION], &*random].concat(), random] {
            if let Ok(user) = User::decode(&bytes) {
                prop_assert_eq!(user.encode(), bytes);
                // Every user that can be decoded can also be judged and shown.
                user.line(b"u");
                Rights::new(&user, commands());
            }
        }
    }

    #[test]
    fn judgements_are_those_of_the_model(
        user in users(),
        calls in prop::collection::vec(
            (
                any::<prop::sample::Index>(),
                prop::option::of("[abAB0]"),
                prop::collection::vec(("[ab]{0,3}", 0..4_u8), 0..3),
                prop::collection::vec(("[ab]{0,2}[*]?", any::<bool>()), 0..3),
            ),
            1..20,
        ),
    ) {
        let commands = commands();
        let rights = Rights::new(&user, commands);
        for (command, first_arg, keys, channels) in &calls {
            let keys: Vec<KeyUse<'_>> = keys
                .iter()
                .map(|(key, bits)| KeyUse { key: key.as_bytes(), access: KeyAccess::from_bits(*bits).unwrap() })
                .collect();
            let channels: Vec<ChannelUse<'_>> = channels
                .iter()
                .map(|(name, is_pattern)| ChannelUse { name: name.as_bytes(), is_pattern: *is_pattern })
                .collect();
            let command = CommandId(command.index(commands.len()) as u16);
            let first_arg = first_arg.as_ref().map(|arg| arg.as_bytes());
            let call = Call { command, first_arg, keys: &keys, channels: &channels };
            let is_for_all = commands.iter().any(|(id, known)| id == command && known.is_for_all);
            let expected =
                is_for_all || user.all_selectors().any(|selector| model_permits(selector, commands, &call));
            prop_assert_eq!(rights.judge(&call).is_ok(), expected, "{} {:?}", commands.name(command), call);
            if rights.are_unrestricted() {
                prop_assert!(expected);
            }
        }
    }

    #[test]
    fn rules_that_are_left_out_change_no_verdict(rules in prop::collection::vec(rule(), 0..14)) {
        let commands = commands();
        let user = user_of(&rules);
        // `kept` has the same rules, but no rule replaces another one.
        let mut kept = CommandRules::default();
        for rule in &rules {
            let one = user_of(std::slice::from_ref(rule)).root.commands;
            let begins_anew = ["allcommands", "nocommands", "+@all", "-@all"].contains(&&**rule);
            if begins_anew {
                kept = one;
            } else {
                kept.rules.extend(one.rules);
            }
        }
        let rights = Rights::new(&user, commands);
        for (id, command) in commands.iter().filter(|(_, command)| !command.is_for_all) {
            for first_arg in [&b"a"[..], b"b", b"0"] {
                let call = Call { command: id, first_arg: Some(first_arg), keys: &[], channels: &[] };
                let expected = model_permits_command(&kept, commands, id, first_arg);
                prop_assert_eq!(rights.judge(&call).is_ok(), expected, "{} {:?}", command.name, user.root);
            }
        }
    }
}

#[test]
fn the_bytes_of_a_record_are_fixed() {
    let mut user = user_of(&["on", "%R~a", "&b", "+get", "(~*)"].map(String::from));
    user.roles = vec![b"x".as_slice().into()];
    let expected = b"\x01\x01\0\x01\0\x01\x01\x03get\x01\x01\x01a\x01\x01b\x02\0\0\0\x01\x01x";
    assert_eq!(user.encode(), expected);
    assert_eq!(User::decode(&[VERSION + 1]), Err(DecodeError::Version(VERSION + 1)));
    assert_eq!(User::decode(&[0]), Err(DecodeError::Malformed));
    assert_eq!(User::decode(&[]), Err(DecodeError::Malformed));
}
