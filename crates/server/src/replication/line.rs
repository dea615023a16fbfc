//! The words before the frames: commands that a replica sends to its leader, and the lines that answer them.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use commands::replication::Address;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server may take to answer a command.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A longer line is no answer.
const LINE_BYTES_MAX: usize = 1024;

/// Connects, and says the password if there is one.
///
/// # Errors
/// In words for the log.
pub(super) fn connect(address: &Address, password: &str) -> Result<TcpStream, String> {
    let resolved = (address.host.as_str(), address.port).to_socket_addrs();
    let resolved = resolved.map_err(|error| format!("cannot find {address}: {error}"))?;
    let mut failed = format!("'{address}' is no address");
    for candidate in resolved {
        match TcpStream::connect_timeout(&candidate, CONNECT_TIMEOUT) {
            Ok(mut stream) => {
                let set = stream
                    .set_nodelay(true)
                    .and_then(|()| stream.set_write_timeout(Some(ANSWER_TIMEOUT)))
                    .and_then(|()| stream.set_read_timeout(Some(ANSWER_TIMEOUT)));
                set.map_err(|error| error.to_string())?;
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

/// Sends a command and reads the line that answers it, without what ends it.
///
/// # Errors
/// In words for the log.
pub(super) fn ask(stream: &mut TcpStream, words: &[String]) -> Result<String, String> {
    let mut request = Vec::new();
    wire::request::encode(words, &mut request);
    stream.write_all(&request).map_err(|error| format!("cannot send: {error}"))?;
    // Byte by byte: what follows the line is not for us.
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
            return Err("what answers is no Sheaf server".into());
        }
    }
    line.truncate(line.len() - 2);
    Ok(String::from_utf8_lossy(&line).into_owned())
}
