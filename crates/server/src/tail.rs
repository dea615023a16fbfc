//! `sheaf tail`: follows channels of a running server, one line per message.
//!
//! ```text
//! connect -> HELLO 3, SUBSCRIBE -> messages -> standard output          (and how many, on a terminal's standard error)
//!    ^---------- the connection is lost: say so, wait, try again ---'
//! ```
//!
//! What it is: a client like any other, of Redis as well. What it is not: part of a server: it opens no directory.
//!
//! Invariants
//! - A message is one line, whatever it holds.
//! - What may have been missed is said. What the server refuses ends the command; a lost connection does not.
//! - It can be interrupted at any time, also while standard output takes nothing.

mod connection;
mod event;
mod screen;

use std::{io, path::PathBuf, time::Duration};

use tokio::signal::unix::{SignalKind, signal};

use self::{connection::Connection, event::Event, screen::Screen};
use crate::password;

/// How long to wait before connecting again.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// How often the rate is shown, and the connection looked after.
const TICK_PERIOD: Duration = Duration::from_secs(1);

/// What is followed, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Names or, if they are patterns, patterns of channels.
    pub names: Vec<String>,
    /// Whether they are patterns.
    pub are_patterns: bool,
    /// The host of the server.
    pub host: String,
    /// Its port of the Redis protocol.
    pub port: u16,
    /// A file with its password.
    pub password_file: Option<PathBuf>,
}

/// Why following ended.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// Nobody answers there.
    #[error("cannot connect to {address}: {reason}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// What the OS said.
        reason: String,
    },
    /// There was a connection.
    #[error("lost the connection to {address}: {reason}")]
    Lost {
        /// Host and port.
        address: String,
        /// What the OS said.
        reason: String,
    },
    /// An error reply.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// Something else answers there.
    #[error("{address} does not speak the Redis protocol: {error}")]
    Foreign {
        /// Host and port.
        address: String,
        /// What is wrong with its answer.
        error: wire::DecodeError,
    },
    /// The password cannot be read.
    #[error("cannot read the password in {}: {source}", path.display())]
    Password {
        /// The file.
        path: PathBuf,
        /// What the OS said.
        source: io::Error,
    },
    /// Standard output takes no more, or the OS refuses something else.
    #[error(transparent)]
    Os(#[from] io::Error),
}

impl TailError {
    /// Whether it may be different the next time.
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
/// See [`TailError`].
pub fn run(options: &Options) -> Result<(), TailError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = follow(options) => ended,
            interrupted = interruption() => Ok(interrupted?),
        }
    });
    // A write to standard output may hang for ever.
    runtime.shutdown_background();
    match ended {
        Err(TailError::Os(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        ended => ended,
    }
}

async fn interruption() -> io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

async fn follow(options: &Options) -> Result<(), TailError> {
    let read = |path: &PathBuf| {
        password::read(path).map_err(|source| TailError::Password { path: path.clone(), source })
    };
    let password = options.password_file.as_ref().map(read).transpose()?;
    let mut tail = Tail { options, password, screen: Screen::new(), was_connected: false, is_down: false };
    loop {
        let Err(error) = tail.listen().await;
        let retries = error.passes() && (tail.was_connected || matches!(error, TailError::Refused(_)));
        if !retries {
            return Err(error);
        }
        if !std::mem::replace(&mut tail.is_down, true) {
            tail.screen.note(&format!("{error}; trying again every second"));
        }
        tokio::time::sleep(RETRY_PERIOD).await;
    }
}

struct Tail<'a> {
    options: &'a Options,
    password: Option<String>,
    screen: Screen,
    /// All subscriptions were confirmed, once.
    was_connected: bool,
    /// It was said that there is no connection.
    is_down: bool,
}

impl Tail<'_> {
    /// Connects and passes on messages, until something ends that.
    async fn listen(&mut self) -> Result<std::convert::Infallible, TailError> {
        let mut connection = Connection::open(&self.options.host, self.options.port).await?;
        self.subscribe(&mut connection).await?;
        let mut unconfirmed = self.options.names.len();
        let mut ticks = tokio::time::interval(TICK_PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            while let Some(value) = connection.next_value()? {
                match Event::of(&value)? {
                    Event::Message(message) => self.screen.add(&message),
                    Event::Subscribed if unconfirmed > 0 => {
                        unconfirmed -= 1;
                        if unconfirmed == 0 {
                            self.connected();
                        }
                    }
                    Event::Subscribed | Event::Other => {}
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

    async fn subscribe(&self, connection: &mut Connection) -> Result<(), TailError> {
        let mut hello = vec!["HELLO", "3"];
        if let Some(password) = &self.password {
            hello.extend(["AUTH", "default", password]);
        }
        hello.extend(["SETNAME", "sheaf-tail"]);
        connection.send(&hello).await?;
        let verb = if self.options.are_patterns { "PSUBSCRIBE" } else { "SUBSCRIBE" };
        let names = self.options.names.iter().map(String::as_str);
        connection.send(&[verb].into_iter().chain(names).collect::<Vec<_>>()).await
    }

    fn connected(&mut self) {
        if std::mem::take(&mut self.is_down) && self.was_connected {
            self.screen.note("connected again; what was published meanwhile is missing");
        }
        self.was_connected = true;
        self.screen.tick();
    }
}
