//! `sheaf group`: prints the group of a running server as a table, once or every second.
//!
//! ```text
//! connect -> HELLO 3 -> GROUP INFO, GROUP MEMBERS -> table -> standard output
//!    ^                     ^------------ a second later ------------'   (--watch)
//!    '---- the connection is lost: report, wait, retry
//! ```
//!
//! The command is an ordinary client, and shows the state of the group that the asked server knows.
//!
//! Invariants
//! - Without `--watch`, a table without a leader is an error of its own ([`GroupError::NoLeader`]), so that
//!   scripts can wait for a leader.
//! - A lost connection does not end `--watch` once it has shown a table; a refusal by the server does, unless
//!   the server is loading.
//! - The command can be interrupted at any time, even while standard output blocks.

mod overview;
mod table;

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
    time::Duration,
};

use env::{Clock, RealClock};
use recovery::unix_time;
use wire::{DecodeLimits, Value};

use self::overview::Overview;
use crate::{
    client::{Client, advice, plain, with_advice},
    interruption::interruption,
    migration::address::Address,
    outage::Outage,
};

/// The time between two tables.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Limits of a reply, far above the replies about a large group.
const LIMITS: DecodeLimits = DecodeLimits { bytes_max: 1 << 20, ..DecodeLimits::DEFAULT };
/// Moves a terminal's cursor to the top and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[J";

/// The server to ask, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Any member of the group.
    pub address: Address,
    /// Whether the table is printed every second.
    pub watch: bool,
    /// The file whose first line is the member's password.
    pub password_file: Option<PathBuf>,
}

/// Why the command has failed.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The connection cannot be established.
    #[error("cannot connect to {address}: {reason}{}", others(reason))]
    Unreachable {
        /// Host and port of the server.
        address: String,
        /// The reason, in words.
        reason: String,
    },
    /// An established connection was lost.
    #[error("lost the connection to {address}: {reason}. Any other member of its group shows the same table")]
    Lost {
        /// Host and port of the server.
        address: String,
        /// The reason, in words.
        reason: String,
    },
    /// The server has answered with an error.
    #[error("{address} refuses: {}", with_advice(text, advice(text)))]
    Refused {
        /// Host and port of the server.
        address: String,
        /// The error reply of the server.
        text: String,
    },
    /// The reply is not of the Redis protocol, or not the expected one.
    #[error("{address} is no Sheaf server, or one of another version: {reason}")]
    Foreign {
        /// Host and port of the server.
        address: String,
        /// A description of the error, in words.
        reason: String,
    },
    /// The table was printed, and has no leader.
    #[error("{address} knows no leader of its group: {reason}")]
    NoLeader {
        /// Host and port of the server.
        address: String,
        /// The reason why the server knows no leader, with advice.
        reason: &'static str,
    },
    /// The password cannot be read.
    #[error("cannot read the password in {}: {source}", path.display())]
    Password {
        /// The path of the password file.
        path: PathBuf,
        /// An error of the operating system, or the fault of the first line of the file.
        source: io::Error,
    },
    /// Standard output cannot be written, or another operation of the operating system failed.
    #[error(transparent)]
    Os(#[from] io::Error),
}

/// Advice to ask another member, unless the error is one of TLS.
fn others(reason: &str) -> &'static str {
    match reason.starts_with("TLS") {
        true => "",
        false => ". Any other member of its group shows the same table",
    }
}

impl GroupError {
    /// Whether the operation is worth repeating: the server was not reached or was lost, or it was loading.
    fn passes(&self) -> bool {
        match self {
            GroupError::Unreachable { .. } | GroupError::Lost { .. } => true,
            GroupError::Refused { text, .. } => text.starts_with("LOADING "),
            GroupError::Foreign { .. }
            | GroupError::NoLeader { .. }
            | GroupError::Password { .. }
            | GroupError::Os(_) => false,
        }
    }
}

/// Prints the table once, or until it is interrupted or standard output is closed.
///
/// # Errors
/// [`GroupError`].
pub fn run(options: &Options) -> Result<(), GroupError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = show(options) => ended,
            interrupted = interruption() => Ok(interrupted?),
        }
    });
    // This does not wait for a write to standard output, which may block for ever.
    runtime.shutdown_background();
    match ended {
        Err(GroupError::Os(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        ended => ended,
    }
}

async fn show(options: &Options) -> Result<(), GroupError> {
    let mut address = options.address.clone();
    if let Some(path) = &options.password_file {
        let read = settings::read_password(path);
        address.password = Some(read.map_err(|source| GroupError::Password { path: path.clone(), source })?);
    }
    let mut screen = Screen { clears: options.watch && io::stdout().is_terminal(), tables: 0 };
    if !options.watch {
        let overview = Asked::connect(&address).await?.overview().await?;
        screen.print(overview.table()).await?;
        return match overview.leader {
            Some(_) => Ok(()),
            None => {
                Err(GroupError::NoLeader { address: address.to_string(), reason: overview.why_no_leader() })
            }
        };
    }
    let mut outage = Outage::default();
    loop {
        let Err(error) = watch(&address, &mut screen, &mut outage).await;
        if !error.passes() || screen.tables == 0 {
            return Err(error);
        }
        // A failure of the report cannot be reported anywhere.
        outage.wait(&error, |text| _ = writeln!(io::stderr(), "sheaf: {text}")).await;
    }
}

/// Prints the table every second until an error.
async fn watch(
    address: &Address,
    screen: &mut Screen,
    outage: &mut Outage,
) -> Result<std::convert::Infallible, GroupError> {
    let mut asked = Asked::connect(address).await?;
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let overview = asked.overview().await?;
        outage.end();
        screen.print(format!("{}\n{}", unix_time::shown(RealClock.unix_ms()), overview.table())).await?;
    }
}

/// Standard output, to which tables are printed.
struct Screen {
    /// Whether a table replaces the one before.
    clears: bool,
    /// The number of tables printed.
    tables: u64,
}

impl Screen {
    async fn print(&mut self, table: String) -> Result<(), GroupError> {
        let before = match (self.clears, self.tables) {
            (true, _) => CLEAR,
            (false, 0) => "",
            (false, _) => "\n",
        };
        // Another thread writes: the reader of a pipe may be slow, and interruptions must still be handled.
        let written = tokio::task::spawn_blocking(move || {
            let mut out = io::stdout().lock();
            out.write_all(before.as_bytes())?;
            out.write_all(table.as_bytes())?;
            out.flush()
        });
        written.await.map_err(io::Error::other)??;
        self.tables += 1;
        Ok(())
    }
}

/// A connection to the server that is asked.
struct Asked {
    client: Client,
    address: String,
}

impl Asked {
    /// Connects, and authenticates if there is a password.
    async fn connect(address: &Address) -> Result<Asked, GroupError> {
        let connected = Client::connect(&address.host, address.port, address.tls.as_ref(), LIMITS).await;
        let client =
            connected.map_err(|reason| GroupError::Unreachable { address: address.to_string(), reason })?;
        let mut asked = Asked { client, address: address.to_string() };
        let mut hello = vec!["HELLO", "3"];
        if let Some(password) = &address.password {
            hello.extend(["AUTH", address.user.as_deref().unwrap_or("default"), password]);
        }
        hello.extend(["SETNAME", "sheaf-group"]);
        asked.ask(&hello).await?;
        Ok(asked)
    }

    /// The group, as the server sees it.
    async fn overview(&mut self) -> Result<Overview, GroupError> {
        let info = self.ask(&["GROUP", "INFO"]).await?;
        let members = self.ask(&["GROUP", "MEMBERS"]).await?;
        Overview::of(&info, &members).ok_or_else(|| self.foreign("unknown replies of GROUP"))
    }

    /// Sends a command and returns its reply; an error reply is an error.
    async fn ask(&mut self, arguments: &[&str]) -> Result<Value, GroupError> {
        let lost = |address: &str, reason: &dyn std::fmt::Display| GroupError::Lost {
            address: address.into(),
            reason: reason.to_string(),
        };
        self.client.send(arguments).await.map_err(|error| lost(&self.address, &error))?;
        loop {
            match self.client.next_value() {
                Ok(Some(Value::Error(text))) => {
                    return Err(GroupError::Refused { address: self.address.clone(), text: plain(&text) });
                }
                Ok(Some(value)) => return Ok(value),
                Ok(None) => {}
                Err(error) => return Err(self.foreign(error)),
            }
            match tokio::time::timeout(ANSWER_TIMEOUT, self.client.receive()).await {
                Err(_) => return Err(lost(&self.address, &"the server does not answer")),
                Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(lost(&self.address, &"the server closed it"));
                }
                Ok(received) => received.map_err(|error| lost(&self.address, &error))?,
            }
        }
    }

    fn foreign(&self, reason: impl ToString) -> GroupError {
        GroupError::Foreign { address: self.address.clone(), reason: reason.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        net::TcpListener,
        thread::{JoinHandle, spawn},
    };

    use super::*;

    /// A server that answers the requests of one connection with `replies`, then closes it. Returns the
    /// address of the server, and the requests that it got.
    fn server(replies: &'static [&'static str]) -> (Address, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        let requests = spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let answered = replies.iter().map(|reply| {
                let mut request = [0; 4096];
                let read = socket.read(&mut request).unwrap();
                socket.write_all(reply.as_bytes()).unwrap();
                String::from_utf8(request[..read].to_vec()).unwrap()
            });
            answered.collect()
        });
        (address, requests)
    }

    /// The table of a server, and the requests that it got.
    fn table_of(
        password: Option<&str>,
        replies: &'static [&'static str],
    ) -> (Result<String, String>, Vec<String>) {
        let (mut address, requests) = server(replies);
        address.password = password.map(String::from);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let table = runtime.block_on(async {
            let overview = Asked::connect(&address).await?.overview().await?;
            Ok(overview.table())
        });
        (table.map_err(|error: GroupError| error.to_string()), requests.join().unwrap())
    }

    const INFO: &str = "%5\r\n$4\r\nname\r\n$4\r\nshop\r\n$4\r\nterm\r\n:7\r\n$6\r\nleader\r\n_\r\n\
                        $14\r\nleader-address\r\n_\r\n$6\r\nvoters\r\n:0\r\n";

    #[test]
    fn a_server_is_asked_and_the_table_shows_its_replies() {
        let (table, requests) = table_of(Some("secret"), &["%0\r\n", INFO, "*0\r\n"]);
        let heading = "group shop, term 7, no known leader, members 0, voters 0\n";
        assert!(table.as_ref().is_ok_and(|table| table.starts_with(heading)), "{table:?}");
        let words = |request: &String| {
            request.lines().skip(2).step_by(2).map(String::from).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            requests.iter().map(words).collect::<Vec<_>>(),
            ["HELLO 3 AUTH default secret SETNAME sheaf-group", "GROUP INFO", "GROUP MEMBERS"]
        );
    }

    #[test]
    fn other_servers_are_reported() {
        for (replies, expected) in [
            (
                &["-ERR unknown command 'HELLO'\u{1b}\r\n"][..],
                "refuses: ERR unknown command 'HELLO'?. It is no",
            ),
            (&["%0\r\n", "+OK\r\n", "+OK\r\n"], "is no Sheaf server, or one of another version"),
            (
                &["HTTP/1.1 400 Bad Request\r\n"],
                "is no Sheaf server, or one of another version: it is an HTTP port",
            ),
            (&["\u{15}\u{3}\u{3}\0\u{2}\u{2}\n"], "it is a port for TLS: use --tls"),
            (&["%0\r\n", INFO], "lost the connection"),
        ] {
            let error = table_of(None, replies).0.expect_err("no table");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn refusals_name_a_remedy() {
        let shown = |text: &str| GroupError::Refused { address: "a:1".into(), text: text.into() }.to_string();
        for (text, expected) in [
            ("NOAUTH Authentication required.", "required. Give the password with --password-file"),
            (
                "NOAUTH HELLO must be called with the client already authenticated, otherwise ...",
                "NOAUTH Authentication required. Give",
            ),
            ("WRONGPASS invalid username-password pair", "first line of the password file"),
            ("ERR unknown command 'GROUP', with args", "no Sheaf server"),
            (engine::group::NO_GROUP, "--group NAME"),
        ] {
            let error = shown(text);
            assert!(error.starts_with("a:1 refuses: ") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn only_temporary_errors_are_retried() {
        let refused = |text: &str| GroupError::Refused { address: "a:1".into(), text: text.into() };
        assert!(refused("LOADING Redis is loading the dataset in memory").passes());
        assert!(!refused("NOAUTH Authentication required.").passes());
        assert!(GroupError::Lost { address: "a:1".into(), reason: "x".into() }.passes());
        assert!(!GroupError::Foreign { address: "a:1".into(), reason: "x".into() }.passes());
    }
}
