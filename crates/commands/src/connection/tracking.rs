//! Client-side caching: CLIENT TRACKING, CACHING, TRACKINGINFO, GETREDIR.

use engine::{ClientTracking, CommandError, Context, tracking::Mode};
use wire::{Args, number::parse_i64};

/// The maximum number of prefixes of a client. The empty prefix counts, too: a call with BCAST that names no
/// prefix adds it.
const PREFIXES_MAX: usize = 1024;
const TOO_MANY_PREFIXES: CommandError = CommandError::Text("ERR too many prefixes for one client");

#[derive(Default)]
struct Options {
    redirect: Option<u64>,
    broadcast: bool,
    opt_in: bool,
    opt_out: bool,
    noloop: bool,
    prefixes: Vec<Box<[u8]>>,
}

impl Options {
    fn parse(cx: &Context<'_, '_>, options: Args<'_>) -> Result<Options, CommandError> {
        let mut parsed = Options::default();
        let mut rest = options.iter();
        while let Some(option) = rest.next() {
            match option.to_ascii_lowercase().as_slice() {
                b"redirect" if rest.len() > 0 => {
                    let id = rest.next().and_then(parse_i64);
                    parsed.redirect = Some(parsed.parse_redirect(cx, id)?);
                }
                b"bcast" => parsed.broadcast = true,
                b"optin" => parsed.opt_in = true,
                b"optout" => parsed.opt_out = true,
                b"noloop" => parsed.noloop = true,
                b"prefix" if rest.len() > 0 => parsed.prefixes.extend(rest.next().map(Box::from)),
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(parsed)
    }

    fn parse_redirect(&self, cx: &Context<'_, '_>, id: Option<i64>) -> Result<u64, CommandError> {
        if self.redirect.is_some() {
            return Err(CommandError::Text("ERR A client can only redirect to a single other client"));
        }
        let id = id.ok_or(CommandError::NotAnInteger)?;
        let known = u64::try_from(id).ok().filter(|id| cx.host.clients.find(*id).is_some());
        known.ok_or(CommandError::Text("ERR The client ID you want redirect to does not exist"))
    }

    /// The tracking mode; an error if the options contradict each other or the present mode.
    fn mode(&self, present: Option<&ClientTracking>) -> Result<Mode, CommandError> {
        let error = |text| Err(CommandError::Text(text));
        if !self.broadcast && !self.prefixes.is_empty() {
            return error("ERR PREFIX option requires BCAST mode to be enabled");
        }
        let present = present.map(|tracking| tracking.mode);
        if present.is_some_and(|present| (present == Mode::Broadcast) != self.broadcast) {
            return error(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling \
                 it with a different mode.",
            );
        }
        if self.broadcast && (self.opt_in || self.opt_out) {
            return error("ERR OPTIN and OPTOUT are not compatible with BCAST");
        }
        if self.opt_in && self.opt_out {
            return error("ERR You can't specify both OPTIN mode and OPTOUT mode");
        }
        if (self.opt_in && present == Some(Mode::OptOut)) || (self.opt_out && present == Some(Mode::OptIn)) {
            return error(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling \
                 it with a different mode.",
            );
        }
        Ok(match () {
            () if self.broadcast => Mode::Broadcast,
            () if self.opt_in => Mode::OptIn,
            () if self.opt_out => Mode::OptOut,
            () => Mode::Reads,
        })
    }

    /// Adds the prefixes of this call to the prefixes that the client has, `present`. A call without a prefix
    /// adds the empty prefix, which is then not checked for overlaps.
    fn all_prefixes(self, present: &[Box<[u8]>]) -> Result<Vec<Box<[u8]>>, CommandError> {
        if self.prefixes.is_empty() {
            let every = Box::default();
            let others = present.iter().filter(|prefix| **prefix != every).cloned();
            let all: Vec<Box<[u8]>> = others.chain([every.clone()]).collect();
            return if all.len() > PREFIXES_MAX { Err(TOO_MANY_PREFIXES) } else { Ok(all) };
        }
        if present.len() + self.prefixes.len() > PREFIXES_MAX {
            return Err(TOO_MANY_PREFIXES);
        }
        for (index, prefix) in self.prefixes.iter().enumerate() {
            let overlaps = |other: &[u8]| prefix.starts_with(other) || other.starts_with(prefix);
            if let Some(other) = present.iter().find(|other| overlaps(other)) {
                return Err(overlap(prefix, "an existing", other));
            }
            if let Some(other) = self.prefixes[index + 1..].iter().find(|other| overlaps(other)) {
                return Err(overlap(prefix, "another provided", other));
            }
        }
        Ok([present, &self.prefixes].concat())
    }
}

fn overlap(prefix: &[u8], which: &str, other: &[u8]) -> CommandError {
    let (prefix, other) = (String::from_utf8_lossy(prefix), String::from_utf8_lossy(other));
    CommandError::Composed(format!(
        "ERR Prefix '{prefix}' overlaps with {which} prefix '{other}'. Prefixes for a single client must not overlap."
    ))
}

/// `CLIENT TRACKING <ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN]
/// [OPTOUT] [NOLOOP]`
pub(super) fn tracking(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let options = Options::parse(cx, args.skip(3))?;
    let switch = args.at(2);
    if switch.eq_ignore_ascii_case(b"on") {
        let present = cx.session.tracking.as_deref();
        let mode = options.mode(present)?;
        let (redirect, noloop) = (options.redirect, options.noloop);
        let prefixes = match mode {
            Mode::Broadcast => options.all_prefixes(present.map_or(&[], |tracking| &tracking.prefixes))?,
            _ => Vec::new(),
        };
        let (interests, client) = (cx.unit.interests(), &cx.session.client);
        let tracking = ClientTracking::begin(interests, client, mode, redirect, noloop, prefixes);
        cx.session.tracking = Some(Box::new(tracking));
    } else if switch.eq_ignore_ascii_case(b"off") {
        cx.session.tracking = None;
    } else {
        return Err(CommandError::Syntax);
    }
    cx.reply.ok();
    Ok(())
}

/// `CLIENT CACHING <YES | NO>`
pub(super) fn caching(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let Some(tracking) = &mut cx.session.tracking else {
        return Err(CommandError::Text(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    let answer = args.at(2);
    if answer.eq_ignore_ascii_case(b"yes") {
        if tracking.mode != Mode::OptIn {
            return Err(CommandError::Text(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
    } else if answer.eq_ignore_ascii_case(b"no") {
        if tracking.mode != Mode::OptOut {
            return Err(CommandError::Text(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
    } else {
        return Err(CommandError::Syntax);
    }
    tracking.caching = true;
    cx.reply.ok();
    Ok(())
}

/// `CLIENT TRACKINGINFO`
pub(super) fn info(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let mut flags = Vec::new();
    let (mut redirect, mut prefixes) = (-1, &[][..]);
    match &cx.session.tracking {
        None => flags.push("off"),
        Some(tracking) => {
            flags.push("on");
            flags.extend(match tracking.mode {
                Mode::Reads => None,
                Mode::OptIn => Some("optin"),
                Mode::OptOut => Some("optout"),
                Mode::Broadcast => Some("bcast"),
            });
            let answer = if tracking.mode == Mode::OptIn { "caching-yes" } else { "caching-no" };
            let others = [
                (tracking.caching, answer),
                (tracking.tracker.noloop, "noloop"),
                (tracking.is_redirect_broken(), "broken_redirect"),
            ];
            flags.extend(others.into_iter().filter(|(on, _)| *on).map(|(_, name)| name));
            redirect = tracking.tracker.redirect.unwrap_or(0) as i64;
            prefixes = &tracking.prefixes;
        }
    }
    cx.reply.map(3);
    cx.reply.bulk(b"flags");
    cx.reply.set(flags.len());
    flags.iter().for_each(|flag| cx.reply.bulk(flag.as_bytes()));
    cx.reply.bulk(b"redirect");
    cx.reply.integer(redirect);
    cx.reply.bulk(b"prefixes");
    cx.reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| cx.reply.bulk(prefix));
    Ok(())
}

/// `CLIENT GETREDIR`: -1 without tracking, 0 without redirection.
pub(super) fn get_redirection(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let tracking = cx.session.tracking.as_ref();
    cx.reply.integer(tracking.map_or(-1, |tracking| tracking.tracker.redirect.unwrap_or(0) as i64));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::PREFIXES_MAX;
    use crate::testing::TestServer;

    const SWITCHED: &str = "-ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                            re-enabling it with a different mode.";

    #[test]
    fn how_a_client_tracks_is_told() {
        let mut server = TestServer::new();
        let info = |flags: &str, redirect: i64, prefixes: &str| {
            format!("[\"flags\", [{flags}], \"redirect\", :{redirect}, \"prefixes\", [{prefixes}]]")
        };
        let _other = server.connect();
        server.check(&[
            ("client trackinginfo", &info("\"off\"", -1, "")),
            ("client getredir", ":-1"),
            ("client tracking on", "+OK"),
            ("client trackinginfo", &info("\"on\"", 0, "")),
            ("client getredir", ":0"),
            ("client tracking ON optin redirect 2", "+OK"),
            ("client trackinginfo", &info("\"on\", \"optin\"", 2, "")),
            ("client getredir", ":2"),
            ("client caching YES", "+OK"),
            ("client trackinginfo", &info("\"on\", \"optin\", \"caching-yes\"", 2, "")),
            ("ping", "+PONG"),
            ("client trackinginfo", &info("\"on\", \"optin\"", 2, "")),
            ("client tracking off", "+OK"),
            ("client tracking on optout noloop", "+OK"),
            ("client caching no", "+OK"),
            ("client trackinginfo", &info("\"on\", \"optout\", \"caching-no\", \"noloop\"", 0, "")),
            ("client tracking off", "+OK"),
            ("client tracking on bcast", "+OK"),
            ("client trackinginfo", &info("\"on\", \"bcast\"", 0, "\"\"")),
            ("client tracking off", "+OK"),
            ("client tracking on bcast prefix ab prefix c", "+OK"),
            ("client tracking on bcast prefix d noloop", "+OK"),
            ("client trackinginfo", &info("\"on\", \"bcast\", \"noloop\"", 0, "\"ab\", \"c\", \"d\"")),
        ]);
        assert!(
            server.run("client info").contains(" flags=tB ")
                && server.run("client info").contains(" redir=0 ")
        );
        server.check(&[("reset", "+RESET"), ("client trackinginfo", &info("\"off\"", -1, ""))]);
        assert!(
            server.run("client info").contains(" flags=N ")
                && server.run("client info").contains(" redir=-1 ")
        );
    }

    #[test]
    fn conflicting_options_are_refused() {
        let overlap = |prefix, which, other| {
            format!(
                "-ERR Prefix '{prefix}' overlaps with {which} prefix '{other}'. Prefixes for a single client must not overlap."
            )
        };
        TestServer::new().check(&[
            ("client tracking", "-ERR wrong number of arguments for 'client|tracking' command"),
            ("client tracking maybe", "-ERR syntax error"),
            ("client tracking off x", "-ERR syntax error"),
            ("client tracking on prefix a", "-ERR PREFIX option requires BCAST mode to be enabled"),
            ("client tracking on redirect 99", "-ERR The client ID you want redirect to does not exist"),
            ("client tracking on redirect -1", "-ERR The client ID you want redirect to does not exist"),
            ("client tracking on redirect x", "-ERR value is not an integer or out of range"),
            ("client tracking on redirect 1 redirect 1", "-ERR A client can only redirect to a single other client"),
            ("client tracking on bcast optin", "-ERR OPTIN and OPTOUT are not compatible with BCAST"),
            ("client tracking on optin optout", "-ERR You can't specify both OPTIN mode and OPTOUT mode"),
            ("client tracking on bcast prefix", "-ERR syntax error"),
            ("client tracking on redirect", "-ERR syntax error"),
            (
                "client caching yes",
                "-ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
            ),
            ("client tracking on", "+OK"),
            ("client tracking on bcast", SWITCHED),
            ("client caching yes", "-ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."),
            ("client caching no", "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."),
            ("client caching maybe", "-ERR syntax error"),
            ("client tracking on optin", "+OK"),
            (
                "client tracking on optout",
                "-ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it \
                 with a different mode.",
            ),
            ("client tracking off", "+OK"),
            ("client tracking on bcast prefix ab prefix a", &overlap("ab", "another provided", "a")),
            ("client tracking on bcast prefix ab", "+OK"),
            ("client tracking on", SWITCHED),
            ("client tracking on bcast prefix abc", &overlap("abc", "an existing", "ab")),
            ("client tracking on bcast", "+OK"),
            ("client tracking on bcast", "+OK"),
            ("client tracking on bcast prefix x", &overlap("x", "an existing", "")),
            ("client trackinginfo", "[\"flags\", [\"on\", \"bcast\"], \"redirect\", :0, \"prefixes\", [\"ab\", \"\"]]"),
        ]);
    }

    #[test]
    fn the_empty_prefix_counts_against_the_limit_like_any_other() {
        let mut server = TestServer::new();
        let on = |prefixes: std::ops::Range<usize>| {
            let prefixes: String = prefixes.map(|number| format!(" prefix p{number}:")).collect();
            format!("client tracking on bcast{prefixes}")
        };
        server.check(&[
            (&on(0..PREFIXES_MAX + 1), "-ERR too many prefixes for one client"),
            (&on(0..PREFIXES_MAX), "+OK"),
            (&on(PREFIXES_MAX..PREFIXES_MAX + 1), "-ERR too many prefixes for one client"),
            ("client tracking on bcast", "-ERR too many prefixes for one client"),
        ]);
    }
}
