//! One encrypted connection, without its socket: turns bytes of the wire into plain bytes, and back.
//!
//! Invariants
//! - After [`Session::receive`] no plain bytes are left in the session.
//! - [`Session::encrypt`] takes no more while [`UNSENT_BYTES_MAX`] of records are unwritten.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use rustls::{AlertDescription, Connection};

use crate::certificate::common_name;

/// The length of the longest record, with its header. The buffer for plain bytes must be longer by this much
/// than the encrypted bytes of one call, which may complete a record that began in an earlier call.
pub const RECORD_BYTES_MAX: usize = (16 << 10) + 256 + 5;

/// While this many bytes of records, or more, wait for the socket, nothing more is encrypted.
pub const UNSENT_BYTES_MAX: usize = 64 << 10;

/// Why the other side, a server, has ended a session.
const CERTIFICATE_REQUIRED: &str = "the server requires a certificate of its client: --cert FILE and --key FILE, or tls-cert-file and \
     tls-key-file of a server that connects";

/// One encrypted connection, of either side.
#[derive(Debug)]
pub struct Session {
    connection: Connection,
    /// Whether the other side has said that it sends nothing more.
    is_closed: bool,
}

impl Session {
    pub(crate) fn new(mut connection: Connection) -> Session {
        connection.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        Session { connection, is_closed: false }
    }

    /// Whether the handshake is not complete yet.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Takes encrypted bytes, and puts the plain bytes into `plain`, which must be [`RECORD_BYTES_MAX`]
    /// longer than `encrypted`. Returns the number of plain bytes: 0 if no record of data is complete, or if
    /// the other side has already said that it sends nothing more.
    ///
    /// # Errors
    /// If the other side breaks the protocol, is not trusted, or has sent an alert that ends the session. An
    /// alert may then wait to be written.
    pub fn receive(&mut self, mut encrypted: &[u8], plain: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while !encrypted.is_empty() && !self.is_closed {
            if self.connection.read_tls(&mut encrypted)? == 0 {
                // The other side has already said that it sends nothing more.
                break;
            }
            self.process()?;
            filled += self.take(&mut plain[filled..])?;
        }
        Ok(filled)
    }

    /// As [`Session::receive`], but reads once from the socket, and leaves the plain bytes in the session for
    /// [`Session::take`]. Returns the number of bytes read: 0 at the end of the socket, or if the other side
    /// has already said that it sends nothing more.
    ///
    /// # Errors
    /// Errors of the socket, `WouldBlock` among them, and errors as in [`Session::receive`]. Also an error if
    /// too many plain bytes are left in the session.
    pub fn read_from(&mut self, socket: &mut dyn Read) -> io::Result<usize> {
        let count = self.connection.read_tls(socket)?;
        self.process()?;
        Ok(count)
    }

    fn process(&mut self) -> io::Result<()> {
        let invalid = |error: rustls::Error| match error {
            // With TLS 1.3 a client learns this only after its handshake.
            rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
                io::Error::new(ErrorKind::InvalidData, CERTIFICATE_REQUIRED)
            }
            error => io::Error::new(ErrorKind::InvalidData, error),
        };
        let state = self.connection.process_new_packets().map_err(invalid)?;
        self.is_closed |= state.peer_has_closed();
        Ok(())
    }

    /// Takes plain bytes that are left in the session. Returns the number of taken bytes.
    ///
    /// # Errors
    /// If the socket has ended although the other side had not said that it sends nothing more.
    pub fn take(&mut self, plain: &mut [u8]) -> io::Result<usize> {
        match self.connection.reader().read(plain) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            read => read,
        }
    }

    /// Whether the other side has said that it sends nothing more.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Encrypts these bytes, as far as there is room. Returns the number of encrypted bytes.
    ///
    /// # Errors
    /// None after a handshake.
    pub fn encrypt(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.connection.writer().write_vectored(pieces)
    }

    /// Whether records wait to be written.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Writes the waiting records, as far as the socket takes them. Returns the number of written bytes.
    ///
    /// # Errors
    /// Errors of the socket; `WouldBlock` if the socket takes no byte now.
    pub fn write_to(&mut self, socket: &mut dyn Write) -> io::Result<usize> {
        let mut sent = 0;
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The bytes that were written are reported first. If the socket still takes nothing, the next
                // call fails.
                Err(error) if error.kind() == ErrorKind::WouldBlock && sent > 0 => return Ok(sent),
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    /// Encrypts a last record, which tells the other side that nothing more comes. The record waits to be
    /// written.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Sends a last line and closes the session, as far as the socket takes the bytes at once.
    pub fn dismiss(&mut self, socket: &mut dyn Write, line: &[u8]) {
        if self.encrypt(&[IoSlice::new(line)]).is_ok() {
            self.close();
            let _ = self.write_to(socket);
        }
    }

    /// The common name in the certificate that the other side has shown. `None` if it has shown no
    /// certificate, or one without a usable common name.
    pub fn peer_name(&self) -> Option<String> {
        self.connection.peer_certificates()?.first().and_then(common_name)
    }

    /// The version and the algorithms, such as `TLSv1.3 TLS13_AES_256_GCM_SHA384`; empty until the handshake
    /// has chosen both.
    pub fn description(&self) -> String {
        let (Some(version), Some(suite)) =
            (self.connection.protocol_version(), self.connection.negotiated_cipher_suite())
        else {
            return String::new();
        };
        let version = match version {
            rustls::ProtocolVersion::TLSv1_2 => "TLSv1.2",
            rustls::ProtocolVersion::TLSv1_3 => "TLSv1.3",
            _ => "TLS",
        };
        format!("{version} {:?}", suite.suite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Acceptor, ClientCertificates, Loaded, ServerPolicy,
        testing::{Authority, Directory, pair, policy_in, shake_hands},
    };

    #[test]
    fn bytes_arrive_whatever_pieces_the_wire_makes_of_them() {
        let (mut client, mut server) = pair("pieces");
        let sent: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
        for piece_bytes in [1, 7, 4096, 5000, 40_000] {
            let (mut rest, mut received) = (&sent[..], Vec::new());
            let mut plain = vec![0; piece_bytes + RECORD_BYTES_MAX];
            while !rest.is_empty() {
                let count = client.encrypt(&[IoSlice::new(&rest[..1]), IoSlice::new(&rest[1..])]).unwrap();
                assert!(count <= UNSENT_BYTES_MAX);
                rest = &rest[count..];
                let mut wire = Vec::new();
                client.write_to(&mut wire).unwrap();
                for piece in wire.chunks(piece_bytes) {
                    let count = server.receive(piece, &mut plain).unwrap();
                    received.extend_from_slice(&plain[..count]);
                    assert_eq!(server.take(&mut plain).unwrap(), 0, "nothing stays in the session");
                }
            }
            assert!(received == sent, "pieces of {piece_bytes}");
        }
    }

    #[test]
    fn a_full_session_encrypts_nothing_more_until_it_is_written() {
        let (mut client, _) = pair("full");
        let bytes = vec![7; 4 * UNSENT_BYTES_MAX];
        let mut taken = 0;
        loop {
            match client.encrypt(&[IoSlice::new(&bytes)]).unwrap() {
                0 => break,
                count => taken += count,
            }
        }
        assert!(taken <= UNSENT_BYTES_MAX && client.has_unsent(), "{taken}");
        client.write_to(&mut io::sink()).unwrap();
        assert!(!client.has_unsent() && client.encrypt(&[IoSlice::new(&bytes)]).unwrap() > 0);
    }

    #[test]
    fn a_changed_byte_ends_the_session() {
        let (mut client, mut server) = pair("changed");
        client.encrypt(&[IoSlice::new(b"SET a 1")]).unwrap();
        let mut wire = Vec::new();
        client.write_to(&mut wire).unwrap();
        *wire.last_mut().unwrap() ^= 1;
        let mut plain = vec![0; wire.len() + RECORD_BYTES_MAX];
        let error = server.receive(&wire, &mut plain).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidData && server.has_unsent(), "an alert waits");
    }

    #[test]
    fn an_end_that_was_announced_is_told_from_one_that_was_not() {
        let (mut client, mut server) = pair("end");
        client.close();
        let mut wire = Vec::new();
        client.write_to(&mut wire).unwrap();
        let mut plain = vec![0; wire.len() + RECORD_BYTES_MAX];
        assert!(!server.is_closed());
        assert_eq!(server.receive(&wire, &mut plain).unwrap(), 0);
        assert!(server.is_closed());
        assert_eq!(server.receive(b"more", &mut plain).unwrap(), 0, "it is not read");
    }

    #[test]
    fn the_name_of_a_client_is_that_of_its_certificate() {
        let (client, server) = pair("name");
        assert_eq!(server.peer_name().as_deref(), Some("alice"));
        assert!(client.description().starts_with("TLSv1.3 "), "{}", client.description());
    }

    #[test]
    fn clients_show_certificates_as_the_policy_wants() {
        let directory = Directory::new("wanted");
        let (authority, stranger) = (Authority::new(), Authority::new());
        let policy = policy_in(&directory, &authority);
        let attempt = |clients, shown: Option<&Authority>| {
            let policy = ServerPolicy { clients, ..policy.clone() };
            let acceptor = Acceptor::new(Loaded::read(&policy).unwrap());
            let mut server = acceptor.accept().unwrap();
            let connector = authority.connector(&directory, shown.map(|by| (by, "alice")));
            shake_hands(&mut connector.connect("localhost").unwrap(), &mut server)?;
            Ok::<_, String>(server.peer_name())
        };
        let alice = Ok(Some("alice".to_owned()));
        assert_eq!(attempt(ClientCertificates::Required, Some(&authority)), alice);
        assert!(attempt(ClientCertificates::Required, Some(&stranger)).is_err());
        assert!(attempt(ClientCertificates::Required, None).is_err());
        assert_eq!(attempt(ClientCertificates::Optional, Some(&authority)), alice);
        assert!(attempt(ClientCertificates::Optional, Some(&stranger)).is_err());
        assert_eq!(attempt(ClientCertificates::Optional, None), Ok(None));
        assert_eq!(attempt(ClientCertificates::Unasked, Some(&authority)), Ok(None), "not asked, not shown");
    }
}
