//! The life of a worker's clients: from an accepted socket to the end of their subscriptions and leases.

use std::{net::SocketAddr, os::fd::AsRawFd, rc::Rc, sync::Arc, time::Duration};

use engine::{
    PeerClaim, Place,
    clients::{Client, Connected},
};
use pubsub::durable::Request;
use tokio::net::TcpStream;

use super::Worker;
use crate::{
    connection::{Connection, Socket, Taken},
    mailbox::{Admitted, UnixPeer},
    redis_feed::Feeding,
};

/// The pause before the release of an ended connection's leases is retried, if the log or a slot was busy.
const RELEASE_PERIOD: Duration = Duration::from_millis(10);

/// The time for which a connection may occupy a place that is reserved for other servers, unless its command
/// waits. A server sends the command that identifies it at once.
const RESERVED_PERIOD: Duration = Duration::from_secs(1);

impl Worker {
    /// Serves a client until its connection ends.
    pub(super) fn connect(self: &Rc<Self>, admitted: Admitted) {
        let Admitted { stream, session, peer, local, unix, place, arrival, on_behalf_of } = admitted;
        let stream = match TcpStream::from_std(stream) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(target: "server", %error, %peer, "cannot serve a connection");
                return;
            }
        };
        // From here on it counts as a client: it must not count twice, or another one would be refused.
        drop(arrival);
        let client = self.register_client(&stream, (peer, local), unix);
        let (id, worker) = (client.id(), self.clone());
        let (connection, serving) =
            Connection::new(Socket::new(stream, session), client, (place, on_behalf_of), worker.clone());
        self.connections.borrow_mut().insert(id, connection);
        if place == Place::Reserve {
            tokio::task::spawn_local(self.clone().vacate(id));
        }
        tokio::task::spawn_local(async move {
            serving.await;
            let ended = worker.connections.borrow_mut().remove(&id);
            if let Some(connection) = ended {
                if let Some((taken, claim, user)) = connection.take_over() {
                    worker.serve_server(taken, peer, claim, user);
                }
                if connection.place() == Place::Lost {
                    worker.parts.access.note_rejected();
                }
                connection.end();
                while !worker.end_subscriptions(&connection) {
                    tokio::task::yield_now().await;
                }
                while !worker.release_leases(&connection) {
                    tokio::time::sleep(RELEASE_PERIOD).await;
                }
            }
            worker.host.clients.remove(id);
        });
    }

    /// Hands the connection of another server to the part of this server that serves it.
    fn serve_server(&self, taken: Taken, peer: SocketAddr, claim: PeerClaim, user: Vec<u8>) {
        let parts = &self.parts;
        match (parts.node.plain_end(taken.socket, taken.session), claim) {
            (Ok(socket), PeerClaim::Replica(words)) => {
                parts.node.serve_replica(socket, peer.ip(), &words, user)
            }
            (Ok(socket), PeerClaim::Member(words)) => parts.group.serve_member(socket, peer.ip(), &words),
            (Ok(socket), PeerClaim::Redis(claim)) => {
                let (node, snapshots) = (parts.node.clone(), parts.snapshots.clone());
                let clients = parts.clients.clone();
                Feeding { node, snapshots, clients }.serve((socket, peer), *claim, user);
            }
            (Err(reason), _) => parts.node.note_refused(peer, &reason),
        }
    }

    /// Turns away a connection that keeps a reserved place for too long. A connection whose command waits is
    /// left alone (GROUP JOIN waits until the group has agreed).
    async fn vacate(self: Rc<Self>, id: u64) {
        loop {
            tokio::time::sleep(RESERVED_PERIOD).await;
            let Some(connection) = self.connections.borrow().get(&id).cloned() else { return };
            if !connection.is_waiting() {
                return connection.turn_away();
            }
        }
    }

    fn register_client(
        &self,
        stream: &TcpStream,
        (peer, local): (SocketAddr, SocketAddr),
        unix: Option<UnixPeer>,
    ) -> Arc<Client> {
        let mailbox = self.mailbox.clone();
        // The addresses are shown in the form of Redis.
        let shown = |address: SocketAddr| match &unix {
            Some(unix) => format!("{}:0", unix.path),
            None => address.to_string(),
        };
        self.host.clients.register(Connected {
            peer: shown(peer),
            peer_uid: unix.as_ref().map(|unix| unix.uid),
            local: shown(local),
            fd: stream.as_raw_fd(),
            now_ms: self.parts.clock.unix_ms(),
            signaller: Box::new(move |id, signal| mailbox.signal(id, signal)),
        })
    }

    /// Ends the subscriptions of a closed connection. Returns whether all have ended; if not, the caller must
    /// call this again.
    fn end_subscriptions(&self, connection: &Rc<Connection>) -> bool {
        let mut executor = self.executor.borrow_mut();
        let ended = connection.with_session(|session| {
            if let Some(reader) = session.reader.take() {
                self.host.durable_channels.request(Request::Leave { reader: reader.id });
            }
            executor.end_subscriptions(session)
        });
        executor.channels().flush_mailboxes();
        let must_deliver = executor.channels().must_deliver();
        drop(executor);
        if must_deliver {
            self.deliver();
        }
        ended
    }

    /// Releases the leases of an ended connection. Returns whether all are released; if not, the caller must
    /// call this again.
    fn release_leases(&self, connection: &Connection) -> bool {
        connection.with_session(|session| {
            !session.holds_leases() || self.run_own(|executor| executor.release_leases(session, &self.host))
        })
    }
}
