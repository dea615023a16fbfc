//! CONFIG: the settings of the process.

use access::User;
use engine::{
    CommandError, Context, Flags, Row, Treatment,
    clients::DEFAULT_USER,
    row::Keys,
    users::{REQUIREPASS, setting_of},
};
use keyspace::Effect;
use settings::{FORCE_RECOVERY, may_show_value};
use wire::Args;

use super::{ADMIN, HELP, ROW};
use crate::acl::{UserChanges, user_after, user_changes};

pub(super) const ROWS: [Row; 5] = [
    Row {
        name: "config|get",
        arity: -3,
        flags: ADMIN,
        since: "2.0.0",
        complexity: "O(N) where N is the number of settings.",
        summary: "Replies with the settings whose names match a pattern.",
        syntax: "parameter [parameter ...]",
        handler: get,
        ..ROW
    },
    Row { name: "config|help", ..HELP },
    Row {
        name: "config|resetstat",
        arity: 2,
        flags: ADMIN.or(Flags::AUDITED),
        since: "2.0.0",
        summary: "Resets the counters of INFO.",
        handler: reset_stats,
        ..ROW
    },
    Row {
        name: "config|rewrite",
        arity: 2,
        flags: ADMIN.or(Flags::AUDITED).or(Flags::AWAITS_DISK),
        since: "2.8.0",
        summary: "Writes the settings in force to the configuration file.",
        handler: rewrite,
        ..ROW
    },
    Row {
        name: "config|set",
        treatment: Treatment::of_secrets(is_password),
        arity: -4,
        flags: ADMIN.or(Flags::AUDITED).or(Flags::AWAITS_DISK),
        since: "2.0.0",
        complexity: "O(N) where N is the number of settings given.",
        summary: "Changes settings, all or none.",
        syntax: "parameter value [parameter value ...]",
        handler: set,
        keys: Keys::Settings,
        ..ROW
    },
];

/// `CONFIG GET parameter [parameter ...]`
fn get(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut found: Vec<(&'static str, String)> = Vec::new();
    for pattern in args.skip(2) {
        for setting in cx.host.config.get(pattern) {
            if !found.iter().any(|(name, _)| *name == setting.0) {
                found.push(setting);
            }
        }
    }
    cx.reply.map(found.len());
    for (name, value) in &found {
        cx.reply.bulk(name.as_bytes());
        cx.reply.bulk(value.as_bytes());
    }
    Ok(())
}

/// `CONFIG SET parameter value [parameter value ...]`
fn set(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let settings = args.skip(2);
    if !settings.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity("config|set"));
    }
    let pair = |at: usize| (settings.at(at), settings.at(at + 1));
    let pairs: Vec<(&[u8], &[u8])> = (0..settings.len()).step_by(2).map(pair).collect();
    for (index, (name, _)) in pairs.iter().enumerate() {
        if pairs[..index].iter().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name)) {
            let name = String::from_utf8_lossy(name);
            return Err(CommandError::Composed(format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - duplicate parameter"
            )));
        }
    }
    if pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case(FORCE_RECOVERY.as_bytes())) {
        return confirm_recovery(cx, &pairs);
    }
    cx.require_own_thread()?;
    let default_user = default_user_with(cx, &pairs)?;
    if default_user.is_some() || pairs.iter().any(|(name, _)| cx.host.config.is_of_data(name)) {
        if cx.in_transaction {
            return Err(CommandError::Text(
                "ERR CONFIG SET of a setting that belongs to the data is a record of its own: not in a transaction",
            ));
        }
        cx.require_room(args.size_bytes() as u64)?;
    }
    let user_changes = match &default_user {
        Some(user) => {
            cx.host.config.require_say_over_data(REQUIREPASS).map_err(CommandError::Composed)?;
            user_changes(cx, [(DEFAULT_USER.as_bytes(), Some(user))])?
        }
        None => UserChanges::default(),
    };
    for (name, value) in cx.host.config.set(&pairs).map_err(CommandError::Composed)? {
        cx.unit.apply(&Effect::Setting { name: name.as_bytes(), value: Some(value.as_bytes()) });
        if (&*name, &*value) == AUDIT_ON {
            // The setting is in force once the record is published. The audit begins here already, so that
            // the audit contains this command.
            cx.host.users.audit.set_on(true);
        }
    }
    user_changes.apply(cx);
    cx.reply.ok();
    Ok(())
}

/// The user `default` with the `requirepass` that is to be set, if the data has a record of that user: the
/// record holds the password, too, and must change with the setting. After an empty `requirepass` the user
/// needs no password, as in Redis.
fn default_user_with(
    cx: &mut Context<'_, '_>,
    pairs: &[(&[u8], &[u8])],
) -> Result<Option<User>, CommandError> {
    let name = setting_of(DEFAULT_USER.as_bytes());
    let given = pairs.iter().find(|(name, _)| name.eq_ignore_ascii_case(REQUIREPASS.as_bytes()));
    let Some((_, password)) = given else { return Ok(None) };
    let data = cx.unit.data_settings();
    let Some(record) = data.get(&name) else { return Ok(None) };
    let user = User::decode(record).unwrap_or_else(|_| User::initial(false));
    let added = if password.is_empty() { b"nopass".to_vec() } else { [b">", *password].concat() };
    user_after(cx, &user, [&b"resetpass"[..], &added]).map(Some)
}

/// The setting that begins the audit, with its value.
const AUDIT_ON: (&str, &str) = ("audit", "yes");

/// `CONFIG SET force-recovery confirmed`: the reply comes when the server takes writes again.
fn confirm_recovery(cx: &mut Context<'_, '_>, pairs: &[(&[u8], &[u8])]) -> Result<(), CommandError> {
    if pairs.len() > 1 || !pairs[0].1.eq_ignore_ascii_case(b"confirmed") || cx.in_transaction {
        return Err(CommandError::Text(
            "ERR CONFIG SET failed (possibly related to argument 'force-recovery') - it can only be set to 'confirmed', \
             alone and outside of a transaction",
        ));
    }
    let host = cx.host;
    cx.responder(|responder| host.persistence.confirm_recovery(responder)).map_err(CommandError::Text)
}

/// `CONFIG RESETSTAT`
fn reset_stats(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.host.process.reset_stats();
    cx.reply.ok();
    Ok(())
}

/// `CONFIG REWRITE`
fn rewrite(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.require_own_thread()?;
    cx.host.config.rewrite().map_err(CommandError::Composed)?;
    cx.reply.ok();
    Ok(())
}

/// Whether the argument at `index` of `CONFIG SET parameter value ...` is a value that may be a password.
fn is_password(args: Args<'_>, index: usize) -> bool {
    index >= 3 && index % 2 == 1 && !may_show_value(args.at(index - 1))
}

#[cfg(test)]
mod tests {
    use crate::testing::TestServer;

    fn server() -> TestServer {
        let server = TestServer::new();
        let settings = [("maxmemory", "0"), ("maxmemory-policy", "noeviction"), ("timeout", "0")];
        server.host.settings.lock().extend(settings.map(|(name, value)| (name, value.to_string())));
        server
    }

    #[test]
    fn a_forced_recovery_is_confirmed_alone_and_answered_later() {
        let refused = "-ERR CONFIG SET failed (possibly related to argument 'force-recovery') - it can only be set to \
                       'confirmed', alone and outside of a transaction";
        let mut server = server();
        server.check(&[
            ("config set force-recovery no", refused),
            ("config set timeout 5 force-recovery confirmed", refused),
            ("multi", "+OK"),
            ("config set force-recovery confirmed", "+QUEUED"),
            ("exec", &format!("[{refused}]")),
            ("config get timeout", "[\"timeout\", \"0\"]"),
            ("config set Force-Recovery CONFIRMED", ""),
        ]);
        let client = server.session.client.id();
        server.host.promises.lock().pop().expect("a responder").keep(Ok(()));
        assert_eq!(server.host.take_answer(client).expect("an answer").0, "+OK");
    }

    #[test]
    fn settings_are_read_by_patterns_each_once() {
        let mut server = server();
        server.check(&[
            ("config get maxmemory", "[\"maxmemory\", \"0\"]"),
            ("CONFIG GET MAXMEMORY-*", "[\"maxmemory-policy\", \"noeviction\"]"),
            ("config get nosuch", "[]"),
            (
                "config get timeout max* maxmemory",
                "[\"timeout\", \"0\", \"maxmemory\", \"0\", \"maxmemory-policy\", \"noeviction\"]",
            ),
            ("config get", "-ERR wrong number of arguments for 'config|get' command"),
        ]);
        server.run("hello 3");
        server.check(&[("config get max*y", "{\"maxmemory\": \"0\", \"maxmemory-policy\": \"noeviction\"}")]);
    }

    #[test]
    fn settings_change_all_or_none() {
        let mut server = server();
        server.check(&[
            ("config set maxmemory 1 timeout 5", "+OK"),
            (
                "config set timeout 6 nosuch 1",
                "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
            ),
            ("config get timeout", "[\"timeout\", \"5\"]"),
            (
                "config set maxmemory 1 MaxMemory 2",
                "-ERR CONFIG SET failed (possibly related to argument 'MaxMemory') - duplicate parameter",
            ),
            ("config set maxmemory", "-ERR wrong number of arguments for 'config|set' command"),
            ("config set maxmemory 1 timeout", "-ERR wrong number of arguments for 'config|set' command"),
            ("config get maxmemory", "[\"maxmemory\", \"1\"]"),
        ]);
    }

    #[test]
    fn a_setting_of_the_data_is_a_record_that_flushall_keeps() {
        let mut server = server();
        server.check(&[
            ("config set of-data a", "+OK"),
            ("config set of-data b", "+OK"),
            ("set k v", "+OK"),
            ("flushall", "+OK"),
            ("multi", "+OK"),
            ("config set of-data c", "+QUEUED"),
            (
                "exec",
                "[-ERR CONFIG SET of a setting that belongs to the data is a record of its own: not in a transaction]",
            ),
        ]);
        let settings = server.executor.keyspace().data_settings();
        assert_eq!(settings.get(b"of-data"), Some(&b"b"[..]));
    }

    #[test]
    fn statistics_and_the_file_are_the_hosts() {
        let mut server = server();
        server.check(&[
            ("config rewrite", "+OK"),
            ("config resetstat", "+OK"),
            ("config rewrite x", "-ERR wrong number of arguments for 'config|rewrite' command"),
        ]);
        assert_eq!(*server.host.asked.lock(), ["rewrite", "reset"]);
    }
}
