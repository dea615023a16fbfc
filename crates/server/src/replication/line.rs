//! The text phase before the frames: commands that a replica sends to its leader, and the lines that answer
//! them.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    time::Duration,
};

use engine::replication::Address;
use socket2::{Domain, Socket, Type};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait for an answer to a command.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer line; a peer that sends a longer one is not a Sheaf server.
const LINE_BYTES_MAX: usize = 1024;

/// Connects and sends the password if one is set. `begun` receives a handle of each socket before it is
/// connected: shutting that down makes this function return at once.
///
/// # Errors
/// Messages for the log; the error of `begun`.
pub(super) fn connect(
    address: &Address,
    password: &str,
    mut begun: impl FnMut(TcpStream) -> Result<(), String>,
) -> Result<TcpStream, String> {
    let resolved = (address.host.as_str(), address.port).to_socket_addrs();
    let resolved = resolved.map_err(|error| format!("cannot find {address}: {error}"))?;
    let mut failed = format!("'{address}' is no address");
    for candidate in resolved {
        let (socket, handle) =
            prepare(candidate).map_err(|error| format!("cannot make a socket: {error}"))?;
        begun(handle)?;
        match socket.connect_timeout(&candidate.into(), CONNECT_TIMEOUT) {
            Ok(()) => {
                let mut stream = socket.into();
                if !password.is_empty() {
                    let answer = ask(&mut stream, &["AUTH".into(), password.into()])?;
                    if answer != "+OK" {
                        return Err(format!("{address} refuses the password (masterauth): {answer}"));
                    }
                }
                return Ok(stream);
            }
            Err(error) => failed = format!("cannot connect to {address}: {error}"),
        }
    }
    Err(failed)
}

/// An unconnected socket, and a second handle of it.
fn prepare(candidate: SocketAddr) -> io::Result<(Socket, TcpStream)> {
    let socket = Socket::new(Domain::for_address(candidate), Type::STREAM, None)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let handle = socket.try_clone()?.into();
    Ok((socket, handle))
}

/// Sends a command and reads the answer line, without its terminator.
///
/// # Errors
/// Messages for the log.
pub(super) fn ask(stream: &mut TcpStream, words: &[String]) -> Result<String, String> {
    let mut request = Vec::new();
    wire::request::encode(words, &mut request);
    stream.write_all(&request).map_err(|error| format!("cannot send: {error}"))?;
    // Byte by byte: bytes after the line belong to the caller.
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) => return Err("the connection was closed before an answer came".into()),
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("no answer: {error}")),
        }
        if line.len() > LINE_BYTES_MAX {
            return Err("the other end is not a Sheaf server".into());
        }
    }
    line.truncate(line.len() - 2);
    Ok(String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use std::{net::Shutdown, sync::mpsc, thread};

    use super::*;

    /// An address that never answers: the backlog of its listener is full.
    fn silent() -> (Socket, Vec<Socket>, Address) {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        listener.bind(&any.into()).expect("a port");
        listener.listen(0).expect("listens");
        let address = listener.local_addr().expect("bound").as_socket().expect("an IP address");
        let waiting = Duration::from_millis(50);
        let mut taken = Vec::new();
        loop {
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            let is_full = client.connect_timeout(&address.into(), waiting).is_err();
            taken.push(client);
            if is_full {
                return (listener, taken, Address { host: "127.0.0.1".into(), port: address.port() });
            }
        }
    }

    #[test]
    fn whoever_has_the_socket_ends_an_attempt_to_connect() {
        let (_listener, _taken, address) = silent();
        let (sender, sockets) = mpsc::channel();
        let attempt = thread::spawn(move || {
            connect(&address, "", |socket| sender.send(socket).map_err(|error| error.to_string()))
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
    fn an_attempt_that_is_not_wanted_any_more_is_not_begun() {
        let (_listener, _taken, address) = silent();
        assert_eq!(connect(&address, "", |_| Err("ended".into())).expect_err("not wanted"), "ended");
    }
}
