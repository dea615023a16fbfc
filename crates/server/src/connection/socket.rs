//! The socket of a connection, plain or encrypted.
//!
//! Invariants
//! - For a plain socket, each call tests once whether the socket is encrypted.
//! - An encrypted socket keeps the bytes that it has accepted, as encrypted records, until [`Socket::flush`]
//!   has succeeded. It keeps about [`tls::UNSENT_BYTES_MAX`] at most.
//! - Encrypted replies leave only in `write` and `flush`. Their caller has asked whether replies may leave,
//!   because the lease of a leader may have ended since the encryption. Neither a read nor the end of the
//!   connection sends encrypted replies.

use std::{
    cell::{Cell, RefCell, RefMut},
    io::{self, ErrorKind, IoSlice},
    os::fd::{AsFd, BorrowedFd},
    pin::pin,
    task::{Context, Poll, Waker, ready},
};

use engine::outbox::Outbox;
use tls::{RECORD_BYTES_MAX, Session};
use tokio::{io::Interest, net::TcpStream};

/// The maximum number of pieces of output in one vectored write.
const PIECES_MAX: usize = 64;

pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<Encrypted>),
}

pub(crate) struct Encrypted {
    stream: TcpStream,
    /// `None` once another server has taken the connection over.
    session: RefCell<Option<Box<Session>>>,
    /// Whether the session may hold decrypted bytes that came with the end of the handshake and are unread.
    may_have_plain: Cell<bool>,
    /// Bytes that the socket has taken.
    sent_bytes: Cell<u64>,
}

/// A connection that another server has taken over.
pub(crate) struct Taken {
    pub(crate) socket: std::net::TcpStream,
    pub(crate) session: Option<Box<Session>>,
}

impl Socket {
    /// The socket of a connection, encrypted if there is a session, whose handshake is over.
    pub(crate) fn new(stream: TcpStream, session: Option<Box<Session>>) -> Socket {
        match session {
            None => Socket::Plain(stream),
            Some(session) => Socket::Tls(Box::new(Encrypted {
                stream,
                session: RefCell::new(Some(session)),
                may_have_plain: Cell::new(true),
                sent_bytes: Cell::new(0),
            })),
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        match self {
            Socket::Plain(stream) => stream,
            Socket::Tls(encrypted) => &encrypted.stream,
        }
    }

    /// Whether the other side has closed the connection, or its own half of the connection. Bytes that came
    /// before may be unread.
    pub(super) fn has_hung_up(&self) -> bool {
        let ready = pin!(self.stream().ready(Interest::READABLE));
        let known = ready.poll(&mut Context::from_waker(Waker::noop()));
        matches!(known, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// The common name in the certificate of the client.
    pub(super) fn certificate_name(&self) -> Option<String> {
        match self {
            Socket::Plain(_) => None,
            Socket::Tls(encrypted) => encrypted.session().peer_name(),
        }
    }

    /// Reads once, into `buffer`; encrypted bytes go through `encrypted`.
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        encrypted: &RefCell<Vec<u8>>,
    ) -> Poll<io::Result<usize>> {
        match self {
            Socket::Plain(stream) => poll_read(stream, cx, buffer),
            Socket::Tls(socket) => socket.poll_read(cx, buffer, &mut encrypted.borrow_mut()),
        }
    }

    /// Accepts the first sendable bytes. Returns how many.
    ///
    /// # Errors
    /// Errors of the socket, `WouldBlock` among them.
    #[inline]
    pub(super) fn write(&self, outbox: &Outbox) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) if outbox.has_blocks() => {
                with_pieces(outbox, |pieces| stream.try_write_vectored(pieces))
            }
            Socket::Plain(stream) => stream.try_write(outbox.sendable()),
            Socket::Tls(encrypted) => encrypted.write(outbox),
        }
    }

    /// Writes the accepted bytes that have not left yet.
    ///
    /// # Errors
    /// Errors of the socket; `WouldBlock` if anything is left.
    #[inline]
    pub(super) fn flush(&self) -> io::Result<()> {
        match self {
            Socket::Plain(_) => Ok(()),
            Socket::Tls(encrypted) => encrypted.flush(),
        }
    }

    /// Whether all accepted bytes have left.
    pub(super) fn is_flushed(&self) -> bool {
        match self {
            Socket::Plain(_) => true,
            Socket::Tls(encrypted) => !encrypted.session().has_unsent(),
        }
    }

    /// The number of encrypted bytes that the socket has taken. `None` for a plain socket, where this is the
    /// number of bytes sent to the client.
    pub(super) fn sent_bytes(&self) -> Option<u64> {
        match self {
            Socket::Plain(_) => None,
            Socket::Tls(encrypted) => Some(encrypted.sent_bytes.get()),
        }
    }

    /// Tells the client of an encrypted connection that nothing more comes. Does so only if all accepted
    /// bytes have left, and the socket takes the message.
    pub(super) fn say_goodbye(&self) {
        if let Socket::Tls(encrypted) = self
            && encrypted.session.borrow().as_ref().is_some_and(|session| !session.has_unsent())
        {
            encrypted.session().close();
            let _ = encrypted.flush();
        }
    }

    /// Takes the socket and its session, for the code that serves other servers. The connection does not use
    /// them afterwards.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(super) fn take(&self) -> io::Result<Taken> {
        let session = match self {
            Socket::Plain(_) => None,
            Socket::Tls(encrypted) => encrypted.session.borrow_mut().take(),
        };
        let socket = self.as_fd().try_clone_to_owned()?.into();
        Ok(Taken { socket, session })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream().as_fd()
    }
}

/// Calls `write` with the first sendable pieces, which are not copied together.
fn with_pieces(
    outbox: &Outbox,
    write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); PIECES_MAX];
    let mut count = 0;
    for (slice, piece) in slices.iter_mut().zip(outbox.pieces()) {
        *slice = IoSlice::new(piece);
        count += 1;
    }
    write(&slices[..count])
}

fn poll_read(stream: &TcpStream, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_read_ready(cx))?;
        match stream.try_read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(count) if (1..buffer.len()).contains(&count) => {
                // A short read empties the socket: clear its readiness without a read that would only return
                // WouldBlock.
                let nothing = || Err::<(), _>(ErrorKind::WouldBlock.into());
                let _ = stream.try_io(Interest::READABLE, nothing);
                return Poll::Ready(Ok(count));
            }
            read => return Poll::Ready(read),
        }
    }
}

impl Encrypted {
    fn session(&self) -> RefMut<'_, Session> {
        let session = self.session.borrow_mut();
        RefMut::map(session, |session| &mut **session.as_mut().expect("it is taken at the end"))
    }

    fn poll_read(
        &self,
        cx: &mut Context<'_>,
        plain: &mut [u8],
        encrypted: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let mut session = self.session();
        if self.may_have_plain.replace(false) {
            let count = session.take(plain)?;
            if count > 0 {
                return Poll::Ready(Ok(count));
            }
        }
        if session.is_closed() {
            return Poll::Ready(Ok(0));
        }
        // This buffer belongs to the worker: it grows once, at the worker's first encrypted connection.
        encrypted.resize(plain.len() - RECORD_BYTES_MAX, 0);
        let read = ready!(poll_read(&self.stream, cx, encrypted))?;
        if read == 0 {
            return Poll::Ready(Ok(0));
        }
        let holds_replies = session.has_unsent();
        let received = session.receive(&encrypted[..read], plain);
        drop(session);
        if !holds_replies {
            // This sends messages of TLS itself: an alert, or the answer to a message. While encrypted
            // replies wait, nothing is sent here, because only `send` may send replies. If the socket takes
            // only a part, the rest leaves with the next `send`; the rest of an alert is lost, because the
            // connection ends.
            let _ = self.flush();
        }
        match received {
            Ok(0) if self.session().is_closed() => Poll::Ready(Ok(0)),
            // No record is complete. Other connections get their turn before the socket is read again.
            Ok(0) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            received => Poll::Ready(received),
        }
    }

    fn write(&self, outbox: &Outbox) -> io::Result<usize> {
        loop {
            let mut session = self.session();
            let count = with_pieces(outbox, |pieces| session.encrypt(pieces))?;
            if count > 0 {
                return Ok(count);
            }
            drop(session);
            self.flush()?;
        }
    }

    fn flush(&self) -> io::Result<()> {
        let mut session = self.session();
        while session.has_unsent() {
            let count = session.write_to(&mut Trying(&self.stream))?;
            self.sent_bytes.set(self.sent_bytes.get() + count as u64);
        }
        Ok(())
    }
}

/// A socket as a session writes to it: a write that would wait fails with `WouldBlock`.
struct Trying<'a>(&'a TcpStream);

impl io::Write for Trying<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, future::poll_fn, path::PathBuf};

    use tls::{Acceptor, ClientCertificates, ClientFiles, Connector, Loaded, ServerPolicy, Versions};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// The two ends of a connection over TLS, the one of a client and the one of a worker.
    async fn ends(name: &str) -> (tls::Stream, Socket) {
        let directory = std::env::temp_dir().join(format!("sheaf-socket-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (directory.join("crt"), directory.join("key"));
        fs::write(&certificate, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let policy = ServerPolicy {
            certificate,
            key,
            authority_file: PathBuf::new(),
            authority_dir: PathBuf::new(),
            clients: ClientCertificates::Unasked,
            versions: Versions::parse("").unwrap(),
        };
        let mut server = Acceptor::new(Loaded::read(&policy).unwrap()).accept().unwrap();
        fs::remove_dir_all(&directory).unwrap();
        let files = ClientFiles { trusts_everybody: true, ..ClientFiles::default() };
        let mut client = Connector::new(&files).unwrap().connect("localhost").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::try_join!(connecting, listener.accept()).unwrap();
        tokio::try_join!(tls::handshake(&near, &mut client), tls::handshake(&far.0, &mut server)).unwrap();
        (tls::Stream::new(near, client), Socket::new(far.0, Some(Box::new(server))))
    }

    fn on_a_runtime(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap().block_on(test);
    }

    /// Writes replies until the socket takes no more; some of them are encrypted and unsent then.
    fn fill(socket: &Socket) {
        let mut outbox = Outbox::default();
        outbox.bytes_mut().resize(1 << 20, b'x');
        while socket.write(&outbox).is_ok() {}
        assert!(!socket.is_flushed());
    }

    #[test]
    fn neither_a_read_nor_the_end_sends_replies_that_are_encrypted() {
        on_a_runtime(async {
            let (mut client, socket) = ends("unsent").await;
            fill(&socket);
            let sent = socket.sent_bytes();
            // The client makes room, and says something.
            let mut received = vec![0; 1 << 20];
            assert!(client.read(&mut received).await.unwrap() > 0);
            client.write_all(b"PING").await.unwrap();
            let (mut plain, encrypted) = (vec![0; 64 << 10], RefCell::default());
            let count = poll_fn(|cx| socket.poll_read(cx, &mut plain, &encrypted)).await.unwrap();
            assert_eq!(&plain[..count], b"PING");
            socket.say_goodbye();
            assert!(socket.sent_bytes() == sent && !socket.is_flushed());
        });
    }

    #[test]
    fn a_client_that_hangs_up_is_noticed_though_bytes_are_unread() {
        on_a_runtime(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let connecting = TcpStream::connect(listener.local_addr().unwrap());
            let (mut client, (far, _)) = tokio::try_join!(connecting, listener.accept()).unwrap();
            let socket = Socket::new(far, None);
            client.write_all(b"*1").await.unwrap();
            socket.stream().readable().await.unwrap();
            assert!(!socket.has_hung_up());
            drop(client);
            while !socket.has_hung_up() {
                tokio::task::yield_now().await;
            }
        });
    }

    #[test]
    fn all_that_was_accepted_arrives_and_then_the_end() {
        on_a_runtime(async {
            let (mut client, socket) = ends("all").await;
            let mut outbox = Outbox::default();
            outbox.bytes_mut().extend((0..3_000_000_u32).map(|number| number as u8));
            let expected = outbox.sendable().to_vec();
            let send = async {
                loop {
                    let done = if outbox.sendable().is_empty() {
                        socket.flush().map(|()| 0)
                    } else {
                        socket.write(&outbox)
                    };
                    match done {
                        Ok(_) if outbox.sendable().is_empty() => break,
                        Ok(count) => outbox.consume(count),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            socket.stream().writable().await.unwrap();
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                socket.say_goodbye();
            };
            let mut received = Vec::new();
            let (read, ()) = tokio::join!(client.read_to_end(&mut received), send);
            assert!(read.unwrap() == expected.len() && received == expected);
        });
    }
}
