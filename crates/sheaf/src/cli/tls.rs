//! The flags for TLS of client commands, named as in redis-cli, and the arguments of `sheaf certs`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use tls::ClientFiles;
use tools::{certs::Options, migration::address::Address};

use super::UsageError;

/// The flags for TLS. `what` is the help text of `--tls`.
pub(super) fn flags(what: &'static str) -> [Arg; 6] {
    let tls = Arg::new("tls").long("tls").action(ArgAction::SetTrue).help(what);
    let name = named("sni", "NAME").requires("tls");
    let name = name.help("Name that the certificate of the server must have [default: its host]");
    let [authorities, certificate, key, insecure] = url_flags().map(|flag| flag.requires("tls"));
    [tls, authorities, certificate, key, name, insecure]
}

/// The flags of commands that take a URL. The connection is encrypted if the URL begins with `https`.
pub(super) fn url_flags() -> [Arg; 4] {
    [
        named("cacert", "FILE")
            .help("Certificates of the authorities to trust [default: those of the system]"),
        named("cert", "FILE")
            .requires("key")
            .help("Certificate of this client, for a server that asks for one (tls-auth-clients)"),
        named("key", "FILE").requires("cert").help("Private key of the certificate of --cert"),
        Arg::new("insecure")
            .long("insecure")
            .action(ArgAction::SetTrue)
            .conflicts_with("cacert")
            .hide_short_help(true)
            .help("Trust any certificate: the connection is encrypted, perhaps with the wrong server"),
    ]
}

fn named(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).hide_short_help(true)
}

/// The files of the flags, if `--tls` was given.
pub(super) fn files(matches: &ArgMatches) -> Option<ClientFiles> {
    let server_name = matches.get_one::<String>("sni").cloned();
    matches.get_flag("tls").then(|| ClientFiles { server_name, ..url_files(matches) })
}

/// The files of the flags, for a connection to this URL.
///
/// # Errors
/// If certificates are given for a URL that does not begin with `https://`.
pub(super) fn files_for(url: &str, matches: &ArgMatches) -> Result<ClientFiles, UsageError> {
    let files = url_files(matches);
    if url.starts_with("https://") || files == ClientFiles::default() {
        return Ok(files);
    }
    Err(UsageError::PlainUrl(url.into()))
}

fn url_files(matches: &ArgMatches) -> ClientFiles {
    let path = |name: &str| matches.get_one::<String>(name).map(PathBuf::from);
    ClientFiles {
        authorities: path("cacert"),
        certificate: path("cert"),
        key: path("key"),
        server_name: None,
        trusts_everybody: matches.get_flag("insecure"),
    }
}

/// The address of a server, reached over TLS with the files of the flags if `--tls` was given. Otherwise the
/// scheme of the address decides.
pub(super) fn with_files(address: &Address, matches: &ArgMatches) -> Address {
    let tls = files(matches).or_else(|| address.tls.clone());
    Address { tls, ..address.clone() }
}

pub(super) fn certs_command() -> Command {
    let host = Arg::new("host").long("host").value_name("HOST").action(ArgAction::Append);
    let user = Arg::new("user").long("user").value_name("NAME").default_value("client");
    let days = Arg::new("days").long("days").value_name("DAYS").default_value("365");
    Command::new("certs")
        .about("Make a test authority and certificates, to try TLS")
        .arg(Arg::new("dir").value_name("DIR").required(true).help("Directory of the files; made if there is none"))
        .arg(host.help("Another name or address of the server, besides localhost, 127.0.0.1, ::1 and its host name"))
        .arg(user.help("Name in the certificate of the client: a user, with --tls-auth-clients-user CN"))
        .arg(days.value_parser(clap::value_parser!(u32).range(1..=3650)).help("Days for which they are valid"))
        .after_help(
            "It writes ca.crt, server.crt, client.crt and their keys (.key, for their owner only). Existing files are never \
             replaced. For tests: whoever has ca.key can make certificates that your servers and clients trust. In \
             production, use those of your own authority.\n\nExamples:\n  sheaf certs tls\n  sheaf --port 0 --tls-port 6379 \
             --tls-cert-file tls/server.crt \\\n    --tls-key-file tls/server.key --tls-ca-cert-file tls/ca.crt\n  \
             redis-cli --tls --cacert tls/ca.crt --cert tls/client.crt \\\n    --key tls/client.key ping",
        )
}

pub(super) fn certs_options(matches: &ArgMatches) -> Options {
    Options {
        dir: matches.get_one::<String>("dir").map(PathBuf::from).unwrap_or_default(),
        hosts: matches.get_many::<String>("host").into_iter().flatten().cloned().collect(),
        user: matches.get_one::<String>("user").cloned().unwrap_or_default(),
        days: matches.get_one::<u32>("days").copied().unwrap_or(365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_only_where_they_are_used() {
        let command = || Command::new("tail").args(flags("Connect over TLS"));
        let parsed = |flags: &[&str]| {
            command().try_get_matches_from([&["tail"], flags].concat()).map(|found| files(&found))
        };
        assert_eq!(parsed(&[]).unwrap(), None);
        assert_eq!(parsed(&["--tls"]).unwrap(), Some(ClientFiles::default()));
        let found = parsed(&["--tls", "--cacert", "ca", "--cert", "c", "--key", "k", "--sni", "s"]).unwrap();
        let expected = ClientFiles {
            authorities: Some("ca".into()),
            certificate: Some("c".into()),
            key: Some("k".into()),
            server_name: Some("s".into()),
            trusts_everybody: false,
        };
        assert_eq!(found, Some(expected));
        assert!(parsed(&["--tls", "--insecure"]).unwrap().is_some_and(|files| files.trusts_everybody));
        for refused in [
            &["--cacert", "ca"][..],
            &["--insecure"],
            &["--tls", "--cert", "c"],
            &["--tls", "--key", "k"],
            &["--tls", "--insecure", "--cacert", "ca"],
        ] {
            assert!(parsed(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn a_url_says_whether_there_are_files() {
        let parsed = |url: &str, flags: &[&str]| {
            let found = Command::new("health").args(url_flags());
            files_for(url, &found.try_get_matches_from([&["health"], flags].concat()).unwrap())
        };
        assert_eq!(parsed("http://db1", &[]).unwrap(), ClientFiles::default());
        let files = parsed("https://db1", &["--cacert", "ca"]).unwrap();
        assert_eq!(files.authorities, Some("ca".into()));
        for url in ["http://db1", "db1:5984"] {
            let error = parsed(url, &["--insecure"]).unwrap_err().to_string();
            assert!(error.contains("https://") && error.contains(url), "{error}");
        }
    }

    #[test]
    fn certificates_are_for_more_hosts_and_another_user_if_these_are_named() {
        let found = certs_command()
            .try_get_matches_from(["certs", "d", "--host", "db1", "--host", "10.0.0.1", "--user", "app"])
            .map(|found| certs_options(&found))
            .unwrap();
        let hosts = vec!["db1".into(), "10.0.0.1".into()];
        assert_eq!(found, Options { dir: "d".into(), hosts, user: "app".into(), days: 365 });
        assert!(certs_command().try_get_matches_from(["certs", "d", "--days", "0"]).is_err());
    }
}
