//! The server to be copied: a Redis or Valkey of which this process is a replica.
//!
//! Replicas usually announce their port. The port is omitted here, so that no tool (Sentinel reads it from
//! INFO) takes this process for a server that could be promoted.

use std::sync::Arc;

use env::File;
use wire::Value;

use super::{
    MigrationError,
    address::Address,
    peer::{Peer, PeerError},
    transfer::Transfer,
};

/// The version of Valkey that this replica announces. To a replica without a version, Valkey sends RDB
/// version 11, which cannot hold the expiry of hash fields: a source with such fields would send nothing.
const VERSION: &str = "9.0.0";

/// A position in the stream of a source's writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    /// The id of the stream; it changes with the master.
    pub(super) replication_id: String,
    /// Bytes since the beginning of the stream.
    pub(super) offset: u64,
}

pub(super) struct Source {
    pub(super) peer: Peer,
}

impl Source {
    /// Connects as a replica without data, or with all data up to `from`. Returns the source's answer: either
    /// an RDB file of a position follows, or the writes after `from` follow, perhaps under a new id of the
    /// stream.
    pub(super) async fn open(
        address: &Address,
        from: Option<&Position>,
    ) -> Result<(Source, Synchronized), PeerError> {
        let mut source = Source { peer: Peer::open("source", address).await? };
        source.peer.ask(&["REPLCONF", "capa", "eof", "capa", "psync2"]).await?;
        match source.peer.ask(&["REPLCONF", "version", VERSION]).await {
            // Redis does not know the option.
            Ok(_) | Err(PeerError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
        source.refuse_sheaf().await?;
        let next = from.map(|position| (position.offset + 1).to_string());
        let (id, next) = match (from, &next) {
            (Some(position), Some(next)) => (position.replication_id.as_str(), next.as_str()),
            _ => ("?", "-1"),
        };
        source.peer.send(&["PSYNC", id, next]).await?;
        let synchronized = source.synchronized(from).await?;
        Ok((source, synchronized))
    }

    /// Refuses a source that is a Sheaf, except if the source does not tell (INFO may be forbidden).
    async fn refuse_sheaf(&mut self) -> Result<(), PeerError> {
        match self.peer.ask(&["INFO", "server"]).await {
            Ok(Value::Bulk(info)) if is_sheaf(&String::from_utf8_lossy(&info)) => Err(self.peer.sheaf()),
            Ok(_) | Err(PeerError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn synchronized(&mut self, from: Option<&Position>) -> Result<Synchronized, PeerError> {
        let line = loop {
            // Empty lines keep the connection alive while the source is preparing.
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
            // There is a new id if the master has changed.
            (["CONTINUE", rest @ ..], Some(from)) => {
                let replication_id = rest.first().map_or(from.replication_id.clone(), |id| (*id).into());
                Ok(Synchronized::Continued(Position { replication_id, offset: from.offset }))
            }
            _ => Err(self.peer.foreign(format!("the answer to PSYNC is {line:?}"))),
        }
    }

    /// Writes the RDB file that follows to `file`; `progress` is called with the bytes received and the
    /// total, if known.
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

    /// Acknowledges an offset to the source, which also keeps the connection alive.
    pub(super) async fn acknowledge(&mut self, offset: u64) -> Result<(), PeerError> {
        self.peer.send(&["REPLCONF", "ACK", &offset.to_string()]).await
    }
}

fn is_sheaf(info: &str) -> bool {
    info.lines().any(|line| line.starts_with("sheaf_version:"))
}

/// The source's reply to PSYNC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Synchronized {
    /// An RDB file of this position follows.
    Full(Position),
    /// The writes behind this position follow.
    Continued(Position),
}
