//! The server that is copied: Redis or Valkey, to which this is a replica.
//!
//! The port that a replica tells is left out: nobody must find a server there that could be made a master (Sentinel
//! reads it from INFO).

use std::sync::Arc;

use env::File;
use wire::Value;

use super::{
    MigrationError,
    address::Address,
    peer::{Peer, PeerError},
    transfer::Transfer,
};

/// A place in the stream of a source's writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    /// Which stream: it changes with the master.
    pub(super) replication_id: String,
    /// Bytes from its begin.
    pub(super) offset: u64,
}

/// See the module documentation.
pub(super) struct Source {
    pub(super) peer: Peer,
}

impl Source {
    /// Connects as a replica that has nothing, or has everything up to a position. Returns the position of the RDB file
    /// that follows; or, if the stream goes on behind the position that was given, that one.
    pub(super) async fn open(
        address: &Address,
        from: Option<&Position>,
    ) -> Result<(Source, Synchronized), PeerError> {
        let mut source = Source { peer: Peer::open("source", address).await? };
        source.peer.ask(&["REPLCONF", "capa", "eof", "capa", "psync2"]).await?;
        let next = from.map(|position| (position.offset + 1).to_string());
        let (id, next) = match (from, &next) {
            (Some(position), Some(next)) => (position.replication_id.as_str(), next.as_str()),
            _ => ("?", "-1"),
        };
        source.peer.send(&["PSYNC", id, next]).await?;
        let synchronized = source.synchronized(from).await?;
        Ok((source, synchronized))
    }

    async fn synchronized(&mut self, from: Option<&Position>) -> Result<Synchronized, PeerError> {
        let line = loop {
            // It says that it is alive, while it asks itself.
            let alive = self.peer.buffer().iter().take_while(|byte| **byte == b'\n').count();
            self.peer.take(alive);
            match self.peer.next_value()? {
                None => self.peer.receive().await?,
                Some(Value::Simple(line)) => break line,
                Some(Value::Error(text)) => return Err(self.peer.refused("PSYNC", &text)),
                Some(_) => return Err(self.peer.foreign("the answer to PSYNC is none")),
            }
        };
        let line = String::from_utf8_lossy(&line).into_owned();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match (words.as_slice(), from) {
            (["FULLRESYNC", id, offset], _) => match offset.parse() {
                Ok(offset) => Ok(Synchronized::Full(Position { replication_id: (*id).into(), offset })),
                Err(_) => Err(self.peer.foreign(format!("the answer to PSYNC is {line:?}"))),
            },
            // The id is another one if its master has changed.
            (["CONTINUE", rest @ ..], Some(from)) => {
                let replication_id = rest.first().map_or(from.replication_id.clone(), |id| (*id).into());
                Ok(Synchronized::Continued(Position { replication_id, offset: from.offset }))
            }
            _ => Err(self.peer.foreign(format!("the answer to PSYNC is {line:?}"))),
        }
    }

    /// Writes the RDB file that follows to `file`; tells how many bytes have come, of how many if that is known.
    pub(super) async fn receive_file(
        &mut self,
        file: Arc<dyn File>,
        mut progress: impl FnMut(u64, Option<u64>),
    ) -> Result<(), MigrationError> {
        let (mut transfer, mut piece, mut written) = (Transfer::new(), Vec::new(), 0);
        loop {
            let taken = transfer.take(self.peer.buffer(), &mut piece)?;
            self.peer.take(taken);
            file.write_all_at(&piece, written).map_err(MigrationError::Spool)?;
            written += piece.len() as u64;
            piece.clear();
            progress(written, transfer.len());
            if transfer.has_ended() {
                return Ok(());
            }
            self.peer.receive().await?;
        }
    }

    /// Tells the source how far the copy is. It also shows that this replica is alive.
    pub(super) async fn acknowledge(&mut self, offset: u64) -> Result<(), PeerError> {
        self.peer.send(&["REPLCONF", "ACK", &offset.to_string()]).await
    }
}

/// How the source answers a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Synchronized {
    /// An RDB file follows, of this position.
    Full(Position),
    /// What is behind this position follows.
    Continued(Position),
}
