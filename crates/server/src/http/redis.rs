//! Connects clients of HTTP as clients of the Redis protocol. Each gets a pair of sockets, one end of which a
//! worker serves like any other connection.
//!
//! A connection to the port would depend on the addresses to which the port is bound, and on trust in an
//! address. A pair of sockets depends on neither.

use std::{
    net::{SocketAddr, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
};

use engine::{CommandTable, Place};

use crate::{
    listen::{RoundRobin, worker_for_one_more},
    mailbox::{Admitted, WorkerOrder},
    parts::Parts,
};

pub(super) struct RedisClients {
    parts: Arc<Parts>,
    turns: RoundRobin,
}

impl RedisClients {
    pub(super) fn new(parts: Arc<Parts>) -> RedisClients {
        RedisClients { parts, turns: RoundRobin::default() }
    }
}

impl couch::Redis for RedisClients {
    fn connect(&self, peer: SocketAddr, user: Option<&str>) -> Result<UnixStream, String> {
        let words = |error: &dyn std::fmt::Display| format!("cannot connect to the own server: {error}");
        let admitted = self.parts.access.admit(&peer).and_then(|(place, arrival)| match place {
            Place::Client => Ok((place, arrival)),
            // Reserved places are for servers.
            Place::Reserve | Place::Lost => {
                self.parts.access.note_rejected();
                Err(engine::clients::TOO_MANY_CLIENTS)
            }
        });
        let (place, arrival) = admitted.map_err(|error| {
            let mut line = Vec::new();
            error.render(&mut line);
            String::from_utf8_lossy(&line).into_owned()
        })?;
        let workers = self.parts.mailboxes.get().ok_or_else(|| words(&"it is starting"))?;
        let (own, served) = UnixStream::pair().map_err(|error| words(&error))?;
        for end in [&own, &served] {
            end.set_nonblocking(true).map_err(|error| words(&error))?;
        }
        // A worker reads, writes and shuts down; these calls are the same for all stream sockets.
        let stream = TcpStream::from(OwnedFd::from(served));
        let on_behalf_of = user.map(|user| user.as_bytes().into());
        let admitted =
            Admitted { stream, session: None, peer, local: peer, unix: None, place, arrival, on_behalf_of };
        worker_for_one_more(workers, &self.turns, &self.parts.log).send(WorkerOrder::Connect(admitted));
        Ok(own)
    }

    fn commands(&self) -> &'static CommandTable {
        commands::table()
    }
}
