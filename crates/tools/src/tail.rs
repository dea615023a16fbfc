//! `sheaf tail`: follows channels of a running server and prints one line per message.
//!
//! ```text
//! connect -> HELLO 3, SUBSCRIBE -> messages -> standard output   (their rate -> a terminal's standard error)
//!    ^---------- the connection is lost: report, wait, retry ---'
//! ```
//!
//! Durable channels can be followed from a position (XSUBSCRIBE): then a lost connection leaves no gap.
//!
//! The command is an ordinary client, also of Redis, and opens no directory.
//!
//! Invariants
//! - A message is one line, independent of its content.
//! - Possible gaps are reported. A refusal by the server ends the command, unless the server is loading its
//!   data, or no longer has the position that the command itself has reached. Once all subscriptions were
//!   confirmed, a lost connection does not end the command.
//! - The command can be interrupted at any time, even while standard output blocks.

mod connection;
mod event;
mod screen;

use std::{
    collections::{HashMap, VecDeque},
    io,
    path::PathBuf,
    time::Duration,
};

use self::{connection::Connection, event::Event, screen::Screen};
use crate::{
    client::{advice, with_advice},
    interruption::interruption,
    migration::address::Address,
    outage::Outage,
};
pub use engine::audit::AUDIT_CHANNEL;

/// The period of rate updates and connection checks.
const TICK_PERIOD: Duration = Duration::from_secs(1);

/// The position of the oldest message in the log.
const OLDEST: &[u8] = b"-";

/// The channels to follow, and the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Names of channels, or patterns.
    pub names: Vec<String>,
    /// Whether `names` are patterns (PSUBSCRIBE) or channels.
    pub are_patterns: bool,
    /// If given, the channels are durable and are followed from this position.
    pub from: Option<String>,
    /// The server.
    pub address: Address,
    /// The file with the password of the user.
    pub password_file: Option<PathBuf>,
}

/// Why following ended.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// The connection cannot be established.
    #[error("cannot connect to {address}: {reason}")]
    Unreachable {
        /// Host and port of the server.
        address: String,
        /// The reason, in words.
        reason: String,
    },
    /// An established connection was lost.
    #[error("lost the connection to {address}: {reason}")]
    Lost {
        /// Host and port of the server.
        address: String,
        /// The reason, in words.
        reason: String,
    },
    /// The server has answered with this error.
    #[error("the server refuses: {}", with_advice(.0, advice(.0)))]
    Refused(String),
    /// The reply is not of the Redis protocol.
    #[error("{address} does not speak the Redis protocol: {error}")]
    Foreign {
        /// Host and port of the server.
        address: String,
        /// A description of the error, in words.
        error: String,
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

impl TailError {
    /// Whether the operation is worth repeating: the server was not reached or was lost, or it was loading.
    fn passes(&self) -> bool {
        match self {
            TailError::Unreachable { .. } | TailError::Lost { .. } => true,
            TailError::Refused(text) => text.starts_with("LOADING "),
            TailError::Foreign { .. } | TailError::Password { .. } | TailError::Os(_) => false,
        }
    }
}

/// Follows channels until it is interrupted or standard output is closed.
///
/// # Errors
/// [`TailError`].
pub fn run(options: &Options) -> Result<(), TailError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = follow(options) => ended,
            interrupted = interruption() => Ok(interrupted?),
        }
    });
    // This does not wait for a write to standard output, which may block for ever.
    runtime.shutdown_background();
    match ended {
        Err(TailError::Os(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        ended => ended,
    }
}

async fn follow(options: &Options) -> Result<(), TailError> {
    let read = |path: &PathBuf| {
        settings::read_password(path).map_err(|source| TailError::Password { path: path.clone(), source })
    };
    let password = options.password_file.as_ref().map(read).transpose()?;
    let mut tail = Tail {
        options,
        password,
        screen: Screen::new(),
        positions: HashMap::new(),
        was_connected: false,
        outage: Outage::default(),
    };
    loop {
        let Err(error) = tail.listen().await;
        tail.screen.flush().await?;
        let retries = error.passes() && (tail.was_connected || matches!(error, TailError::Refused(_)));
        if !retries {
            return Err(error);
        }
        let screen = &mut tail.screen;
        tail.outage.wait(&error, |text| screen.note(text)).await;
    }
}

struct Tail<'a> {
    options: &'a Options,
    password: Option<String>,
    screen: Screen,
    /// The position reached, by durable channel.
    positions: HashMap<Vec<u8>, Vec<u8>>,
    /// Whether all subscriptions have been confirmed at least once.
    was_connected: bool,
    outage: Outage,
}

impl Tail<'_> {
    /// Connects and prints messages until an error.
    async fn listen(&mut self) -> Result<std::convert::Infallible, TailError> {
        let mut connection = Connection::open(self.options).await?;
        self.subscribe(&mut connection).await?;
        let mut unconfirmed: VecDeque<_> =
            self.options.names.iter().map(|name| name.as_bytes().to_vec()).collect();
        let mut ticks = tokio::time::interval(TICK_PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            while let Some(value) = connection.next_value()? {
                if let Some(gap) = self.hear(Event::of(&value), &mut unconfirmed)? {
                    self.note_gap(&gap);
                    subscribe_from(&mut connection, &gap.channel, &gap.goes_on_at).await?;
                    unconfirmed.push_back(gap.channel);
                }
            }
            self.screen.flush().await?;
            tokio::select! {
                received = connection.receive() => received?,
                _ = ticks.tick() => {
                    self.screen.tick();
                    connection.look_after().await?;
                }
            }
        }
    }

    /// Handles a received event. Returns the gap in a durable channel that the event reports, if it does.
    fn hear(
        &mut self,
        event: Result<Event<'_>, TailError>,
        unconfirmed: &mut VecDeque<Vec<u8>>,
    ) -> Result<Option<Gap>, TailError> {
        match event {
            Ok(Event::Message(message)) => {
                self.screen.add(&message);
                if let Some(position) = message.position {
                    self.passed(message.channel, position);
                }
            }
            Ok(Event::Subscribed) => self.confirmed(unconfirmed),
            Ok(Event::Placed { channel, position }) => {
                self.passed(channel, position);
                self.confirmed(unconfirmed);
            }
            Ok(Event::Lost { channel, position }) => {
                return Ok(Some(Gap { channel: channel.into(), goes_on_at: position.into() }));
            }
            Ok(Event::AuditOff) if !self.was_connected => self.screen.note(
                "the audit is off at this server: CONFIG SET audit yes begins it. Entries that were kept before are shown",
            ),
            Ok(Event::AuditOff | Event::Other) => {}
            // On the first connection the position was chosen by the user: the error ends the command.
            Err(TailError::Refused(text)) if text.starts_with("LOST ") && self.was_connected => {
                let channel = unconfirmed.pop_front().ok_or(TailError::Refused(text))?;
                return Ok(Some(Gap { channel, goes_on_at: OLDEST.into() }));
            }
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    async fn subscribe(&self, connection: &mut Connection) -> Result<(), TailError> {
        let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some(password) = &self.password {
            let user = self.options.address.user.as_deref().unwrap_or("default");
            hello.extend([b"AUTH", user.as_bytes(), password.as_bytes()]);
        }
        hello.extend([b"SETNAME".as_slice(), b"sheaf-tail"]);
        connection.send(&hello).await?;
        let names = self.options.names.iter().map(|name| name.as_bytes());
        if names.clone().any(|name| name == AUDIT_CHANNEL) {
            connection.send(&[b"CONFIG", b"GET", b"audit"]).await?;
        }
        let Some(from) = &self.options.from else {
            let verb: &[u8] = if self.options.are_patterns { b"PSUBSCRIBE" } else { b"SUBSCRIBE" };
            return connection.send(&[verb].into_iter().chain(names).collect::<Vec<_>>()).await;
        };
        for name in names {
            let from = self.positions.get(name).map_or(from.as_bytes(), Vec::as_slice);
            subscribe_from(connection, name, from).await?;
        }
        Ok(())
    }

    /// Records the position reached in a durable channel.
    fn passed(&mut self, channel: &[u8], position: &[u8]) {
        match self.positions.get_mut(channel) {
            Some(before) => {
                before.clear();
                before.extend_from_slice(position);
            }
            None => {
                self.positions.insert(channel.to_vec(), position.to_vec());
            }
        }
    }

    /// Handles the confirmation of one more subscription.
    fn confirmed(&mut self, unconfirmed: &mut VecDeque<Vec<u8>>) {
        if unconfirmed.pop_front().is_none() || !unconfirmed.is_empty() {
            return;
        }
        if self.outage.end() && self.was_connected {
            self.screen.note(match self.options.from {
                Some(_) => "connected again; going on where it was",
                None => "connected again; messages published meanwhile are missing",
            });
        }
        self.was_connected = true;
        self.screen.tick();
    }

    fn note_gap(&self, gap: &Gap) {
        let mut text = String::from("the next messages of ");
        event::escape(&gap.channel, &mut text);
        text.push_str(" are lost: the log does not keep them any more, or is damaged there; going on");
        if gap.goes_on_at == OLDEST {
            text.push_str(" with the oldest message");
        } else {
            text.push_str(" after position ");
            event::escape(&gap.goes_on_at, &mut text);
        }
        self.screen.note(&text);
    }
}

/// A gap in a durable channel.
struct Gap {
    channel: Vec<u8>,
    /// The position after which the channel goes on.
    goes_on_at: Vec<u8>,
}

async fn subscribe_from(connection: &mut Connection, channel: &[u8], from: &[u8]) -> Result<(), TailError> {
    connection.send(&[b"XSUBSCRIBE", channel, b"FROM", from]).await
}
