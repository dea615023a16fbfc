//! The text phase before the frames: the commands that a replica sends to its leader, and the lines with
//! which the leader answers.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use engine::{clients::DEFAULT_USER, replication::Address};
use settings::{Key, Settings};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use tls::ClientFiles;

use crate::tunnels::Tunnels;

/// The longest attempt to connect to one address of a host. The system repeats a lost request after 1 s, and
/// then after pauses that double each time. A new attempt starts with the short pause, so a host is found
/// soon after the network has healed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of each read and write on a connection that was just made. Also the time within which the
/// other host must acknowledge sent bytes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The idle time after which the system probes the other host.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// The interval between two probes.
const PROBE_PERIOD: Duration = Duration::from_secs(1);
/// The number of unanswered probes after which the system closes the connection. On a connection with
/// [`limit_unacknowledged`], that limit decides instead.
const PROBES_MAX: u32 = 5;
/// The longest text that [`ask_text`] reads.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// The longest answer line; a peer that sends a longer one is not a Sheaf server.
const LINE_BYTES_MAX: usize = 1024;

/// The user as whom this server logs in to other servers: `masteruser` with `masterauth`.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    /// Empty: the user `default`.
    user: String,
    /// Empty: the server does not log in.
    password: String,
}

impl Credentials {
    pub(crate) fn of(settings: &Settings) -> Credentials {
        let [user, password] = [Key::Masteruser, Key::Masterauth].map(|key| settings.text(key).into());
        Credentials { user, password }
    }

    /// The name and, if there is one, the password for HTTP.
    pub(crate) fn for_http(&self) -> (&str, Option<&str>) {
        let user = if self.user.is_empty() { DEFAULT_USER } else { &self.user };
        (user, Some(&*self.password).filter(|password| !password.is_empty()))
    }

    /// The AUTH command; `None` if this server does not log in.
    fn command(&self) -> Option<Vec<String>> {
        let words = ["AUTH", &self.user, &self.password].into_iter().filter(|word| !word.is_empty());
        (!self.password.is_empty()).then(|| words.map(String::from).collect())
    }
}

/// Leaves the password out.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// How this server introduces itself to other servers.
#[derive(Clone, Default)]
pub(crate) struct Introduction {
    pub(crate) credentials: Credentials,
    /// The certificates, if servers talk to each other over TLS (`tls-replication`).
    pub(crate) tls: Option<(Arc<Tunnels>, ClientFiles)>,
}

/// Connects, shakes hands if `tls-replication` is on, and logs in if a password is set. `begun` receives a
/// second handle of each socket before the socket is connected. To shut this handle down ends the attempt
/// with this socket at once.
///
/// # Errors
/// The reason as text for a line of the server's log; or the error of `begun`.
pub(crate) fn connect(
    address: &Address,
    own: &Introduction,
    begun: impl FnMut(TcpStream) -> Result<(), String>,
) -> Result<TcpStream, String> {
    connect_within(ANSWER_TIMEOUT, address, own, begun)
}

/// As [`connect`], with a timeout: every answer on this connection must come within `timeout`, and the other
/// host must acknowledge sent bytes within `timeout`.
///
/// # Errors
/// As [`connect`].
pub(crate) fn connect_within(
    timeout: Duration,
    address: &Address,
    own: &Introduction,
    mut begun: impl FnMut(TcpStream) -> Result<(), String>,
) -> Result<TcpStream, String> {
    let resolved = (address.host.as_str(), address.port).to_socket_addrs();
    let resolved = resolved.map_err(|error| format!("cannot find {address}: {error}"))?;
    let mut failed = format!("'{address}' is not an address");
    for candidate in resolved {
        let (socket, handle) =
            prepare(candidate, timeout).map_err(|error| format!("cannot make a socket: {error}"))?;
        begun(handle)?;
        match socket.connect_timeout(&candidate.into(), timeout.min(CONNECT_TIMEOUT)) {
            Ok(()) => {
                let mut stream = match &own.tls {
                    None => socket.into(),
                    Some((tunnels, files)) => encrypted(tunnels, files, socket.into(), address, timeout)?,
                };
                if let Some(command) = own.credentials.command() {
                    let answer = ask(&mut stream, &command)?;
                    if answer != "+OK" {
                        return Err(format!("{address} refuses masteruser and masterauth: {answer}"));
                    }
                }
                return Ok(stream);
            }
            Err(error) => failed = format!("cannot connect to {address}: {}", reason_of(&error)),
        }
    }
    Err(failed)
}

/// Encrypts the connection through a tunnel. Returns the plain end of the tunnel.
fn encrypted(
    tunnels: &Tunnels,
    files: &ClientFiles,
    stream: TcpStream,
    address: &Address,
    timeout: Duration,
) -> Result<TcpStream, String> {
    let failed = |reason: String| format!("cannot connect to {address}: {reason}");
    let stream = tunnels.begin(stream, &address.host, files, timeout).map_err(failed)?;
    let limited =
        stream.set_write_timeout(Some(timeout)).and_then(|()| stream.set_read_timeout(Some(timeout)));
    limited.map_err(|error| failed(error.to_string()))?;
    Ok(stream)
}

/// Makes the system probe the other host of an idle connection, and close the connection if that host does
/// not answer.
///
/// # Errors
/// Errors of the socket.
pub(crate) fn keep_alive<'a>(socket: impl Into<SockRef<'a>>) -> io::Result<()> {
    let probes =
        TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_PERIOD).with_retries(PROBES_MAX);
    socket.into().set_tcp_keepalive(&probes)
}

/// Makes the system close the connection if the other host has not acknowledged sent bytes for `timeout`.
/// Without this limit, the system repeats unacknowledged bytes for a quarter of an hour, at growing pauses.
/// After a partition, everything on the connection would wait for the end of such a pause.
///
/// # Errors
/// Errors of the socket.
pub(crate) fn limit_unacknowledged<'a>(socket: impl Into<SockRef<'a>>, timeout: Duration) -> io::Result<()> {
    socket.into().set_tcp_user_timeout(Some(timeout))
}

/// An unconnected socket, and a second handle of it.
fn prepare(candidate: SocketAddr, timeout: Duration) -> io::Result<(Socket, TcpStream)> {
    let socket = Socket::new(Domain::for_address(candidate), Type::STREAM, None)?;
    socket.set_tcp_nodelay(true)?;
    keep_alive(&socket)?;
    limit_unacknowledged(&socket, timeout)?;
    socket.set_write_timeout(Some(timeout))?;
    socket.set_read_timeout(Some(timeout))?;
    let handle = socket.try_clone()?.into();
    Ok((socket, handle))
}

/// Sends a command and reads the answer line, without its terminator.
///
/// # Errors
/// The reason, as text for a line of the server's log.
pub(crate) fn ask(stream: &mut TcpStream, words: &[String]) -> Result<String, String> {
    let mut request = Vec::new();
    wire::request::encode(words, &mut request);
    stream.write_all(&request).map_err(|error| format!("cannot send: {}", reason_of(&error)))?;
    // The line is read byte by byte, because bytes after it belong to the caller.
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) => return Err("the connection was closed before an answer came".into()),
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("no answer: {}", reason_of(&error))),
        }
        if line.len() > LINE_BYTES_MAX {
            return Err("the other end is not a Sheaf server".into());
        }
    }
    line.truncate(line.len() - 2);
    if line.starts_with(b"HTTP/") {
        return Err("this is the port of HTTP: name the port on which that server serves Redis".into());
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Sends a command and reads the text with which it is answered, such as that of INFO.
///
/// # Errors
/// The reason, or another answer, as text for a line of the server's log.
pub(crate) fn ask_text(stream: &mut TcpStream, words: &[String]) -> Result<String, String> {
    let line = ask(stream, words)?;
    let length = line.strip_prefix('$').and_then(|length| length.parse::<usize>().ok());
    let Some(length) = length.filter(|length| *length <= TEXT_BYTES_MAX) else { return Err(line) };
    let mut text = vec![0; length + b"\r\n".len()];
    stream.read_exact(&mut text).map_err(|error| format!("no answer: {}", reason_of(&error)))?;
    text.truncate(length);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The reason of an error of a socket with a timeout, in words. For a timeout, the text of the OS would be
/// that a resource is temporarily unavailable.
pub(crate) fn reason_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it timed out".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Shutdown, sync::mpsc, thread};

    use super::*;

    /// An address that never answers, because the backlog of its listener is full.
    fn silent() -> (Socket, Vec<Socket>, Address) {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        listener.bind(&any.into()).expect("a port");
        listener.listen(0).expect("listens");
        let address = listener.local_addr().expect("bound").as_socket().expect("an IP address");
        let waiting = Duration::from_millis(200);
        let mut taken = Vec::new();
        loop {
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            // On a slow machine, the client may be connected after the timeout; then the backlog is not full
            // yet.
            let is_full =
                client.connect_timeout(&address.into(), waiting).is_err() && client.peer_addr().is_err();
            taken.push(client);
            if is_full {
                return (listener, taken, Address { host: "127.0.0.1".into(), port: address.port() });
            }
        }
    }

    #[test]
    fn a_shutdown_of_the_socket_ends_an_attempt_to_connect() {
        let (_listener, _taken, address) = silent();
        let (sender, sockets) = mpsc::channel();
        let attempt = thread::spawn(move || {
            connect(&address, &Introduction::default(), |socket| {
                sender.send(socket).map_err(|error| error.to_string())
            })
        });
        let socket = sockets.recv().expect("an attempt has begun");
        // A shutdown fails until the kernel has begun to connect.
        while socket.shutdown(Shutdown::Both).is_err() && !attempt.is_finished() {
            thread::yield_now();
        }
        let error = attempt.join().expect("no panic").expect_err("nobody answers");
        assert!(!error.contains("timed out"), "{error}");
    }

    #[test]
    fn what_is_sent_must_be_acknowledged_within_the_timeout() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address =
            Address { host: "127.0.0.1".into(), port: listener.local_addr().expect("bound").port() };
        let timeout = Duration::from_millis(1234);
        let own = Introduction::default();
        let socket = connect_within(timeout, &address, &own, |_| Ok(())).expect("connects");
        assert_eq!(SockRef::from(&socket).tcp_user_timeout().expect("a TCP socket"), Some(timeout));
    }

    #[test]
    fn a_timeout_has_a_readable_reason() {
        let timed_out = io::Error::from_raw_os_error(11);
        assert_eq!(timed_out.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(reason_of(&timed_out), "it timed out");
        assert_eq!(reason_of(&io::ErrorKind::BrokenPipe.into()), "broken pipe");
    }

    #[test]
    fn an_abandoned_attempt_to_connect_is_not_begun() {
        let (_listener, _taken, address) = silent();
        assert_eq!(
            connect(&address, &Introduction::default(), |_| Err("ended".into())).expect_err("not wanted"),
            "ended"
        );
    }
}
