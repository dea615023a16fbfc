//! Facts about a TCP socket that the standard library does not request from the kernel.
//!
//! A socket takes bytes into the kernel's buffer, so the number of bytes that it has taken says little about
//! the number that the peer has received. If the buffer is full, the kernel wakes the sender only when a
//! third of the buffer is free, which takes seconds with a slow peer. The number of acknowledged bytes grows
//! steadily, so it shows much sooner that a slow peer still makes progress.

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Bytes that were written to the socket and that the peer has not acknowledged.
///
/// # Errors
/// If the descriptor is no socket, or one that does not count these bytes.
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<u64> {
    // For sockets, Linux calls this request SIOCOUTQ; the number is the same.
    count(socket, libc::TIOCOUTQ)
}

/// Bytes that have arrived at the socket and were not read.
///
/// # Errors
/// If the descriptor is no socket, or one that does not count these bytes.
pub fn unread_bytes(socket: impl AsFd) -> io::Result<u64> {
    count(socket, libc::FIONREAD)
}

fn count(socket: impl AsFd, request: libc::Ioctl) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both requests write one `int`, which is borrowed exclusively during the call and not retained;
    // the descriptor is open as long as `socket` is borrowed.
    let status = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request, &raw mut bytes) };
    if status == 0 { Ok(bytes.max(0) as u64) } else { Err(io::Error::last_os_error()) }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn acknowledged_bytes_grow_as_the_peer_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        sender.set_nonblocking(true).unwrap();
        assert_eq!(unread_bytes(&peer).unwrap(), 0);
        let piece = [0; 1 << 16];
        let mut sent = 0;
        while let Ok(count) = sender.write(&piece) {
            sent += count as u64;
        }
        let unacknowledged = unacknowledged_bytes(&sender).unwrap();
        assert!((1..=sent).contains(&unacknowledged), "{unacknowledged} of {sent}");
        assert!(unread_bytes(&peer).unwrap() > 0);
        let mut left = vec![0; sent as usize];
        peer.read_exact(&mut left).unwrap();
        while unacknowledged_bytes(&sender).unwrap() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(unread_bytes(&peer).unwrap(), 0);
    }

    #[test]
    fn a_file_instead_of_a_socket_is_an_error() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(unacknowledged_bytes(&file).is_err());
    }
}
