//! The relays of a server: it ships its log to every server that follows it, in any role.

use std::{collections::BTreeMap, sync::Arc};

use lsn::Lsn;
use replication::{
    Leading, Moment, Outgoing, Relay, RelayError, RelayOptions, ReplicaId, SILENCE_MS, Session, Tail,
    join::{Claim, Decision, newest_common, parse_marks},
};
use storage::{Log, Pin};

use crate::cluster::{
    history::JudgedHistory,
    network::{ConnId, Message, Network, NodeId, Side},
    node::Failure,
};

/// The maximum amount of log that is kept for a replica.
const RETENTION_BYTES_MAX: u64 = 384 << 10;
/// The time for which log is kept for a disconnected replica.
const AWAY_MS_MAX: u64 = 20_000;
const RELAY: RelayOptions =
    RelayOptions { flush_bytes: 8 << 10, round_bytes_max: 24 << 10, unsent_bytes_max: 32 << 10 };

enum Served {
    Talking { since_ms: u64 },
    Shipping { relay: Box<Relay>, source: Tail, session: Session, replica: ReplicaId },
}

/// The reason why a connection is closed.
enum End {
    Closed,
    Failed(Failure),
}

impl From<storage::Error> for End {
    fn from(error: storage::Error) -> End {
        End::Failed(error.into())
    }
}

impl From<replication::Close> for End {
    // No epoch fences a member of a group.
    fn from(_: replication::Close) -> End {
        End::Closed
    }
}

pub(super) struct Relays {
    account: Leading,
    pin: Option<(Lsn, Pin)>,
    conns: BTreeMap<ConnId, Served>,
    by_position: bool,
}

/// The surroundings that a step of the relays uses.
pub(super) struct Around<'a> {
    pub(super) number: NodeId,
    pub(super) network: &'a mut Network,
    pub(super) log: &'a Log,
    /// The commit position that this server sends to its followers.
    pub(super) commit: Lsn,
    /// The time of this server.
    pub(super) now_ms: u64,
    /// The time of the network.
    pub(super) sent_ms: u64,
    pub(super) has_tick_ended: bool,
}

impl Relays {
    pub(super) fn new(by_position: bool) -> Relays {
        let account = Leading::new(RETENTION_BYTES_MAX, AWAY_MS_MAX);
        Relays { account, pin: None, conns: BTreeMap::new(), by_position }
    }

    /// Serves every connection once.
    pub(super) fn step(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        let conns = around.network.conns_to(around.number);
        if conns.is_empty() && self.conns.is_empty() {
            return Ok(());
        }
        for conn in conns {
            let talking = Served::Talking { since_ms: around.now_ms };
            let mut served = self.conns.remove(&conn).unwrap_or(talking);
            match self.serve(conn, &mut served, around) {
                Ok(()) => drop(self.conns.insert(conn, served)),
                Err(end) => {
                    if let Served::Shipping { session, replica, .. } = served {
                        self.account.leave(session);
                        self.account.left(replica, around.now_ms);
                    }
                    around.network.close(conn, Side::Leader, around.sent_ms);
                    if let End::Failed(failure) = end {
                        return Err(failure);
                    }
                }
            }
        }
        self.retain(around);
        Ok(())
    }

    fn serve(&mut self, conn: ConnId, served: &mut Served, around: &mut Around<'_>) -> Result<(), End> {
        while let Some(message) = around.network.receive(conn, Side::Leader, around.sent_ms) {
            match (message, &mut *served) {
                (Message::Claim(words), Served::Talking { .. }) => {
                    self.let_in(conn, served, &words, around)?;
                }
                (Message::Marks(words), Served::Talking { .. }) => {
                    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
                    let marks = parse_marks(&words).ok_or(End::Closed)?;
                    let history = JudgedHistory::of(around.log, self.by_position);
                    let common = newest_common(&marks, &history)?;
                    let line = common.map_or(":-1".into(), |end| format!(":{end}"));
                    around.network.send(conn, Side::Replica, Message::Line(line), around.sent_ms);
                }
                (Message::Frames(bytes), Served::Shipping { relay, session, .. }) => {
                    relay.inbox().extend_from_slice(&bytes);
                    if let Some(acked) = relay.receive(around.now_ms)? {
                        self.account.note(*session, acked);
                    }
                }
                _ => return Err(End::Closed),
            }
        }
        match served {
            Served::Talking { since_ms } if around.now_ms >= *since_ms + SILENCE_MS => Err(End::Closed),
            Served::Talking { .. } => Ok(()),
            Served::Shipping { relay, source, .. } => {
                let moment = Moment {
                    now_ms: around.now_ms,
                    unsent_bytes: around.network.unsent_bytes(conn, Side::Replica),
                    shippable: around.log.shippable_lsn(),
                    commit: around.commit,
                    epoch: around.log.epoch(),
                    has_tick_ended: around.has_tick_ended,
                    distance: 0,
                };
                let mut out: Vec<Outgoing<Arc<[u8]>>> = Vec::new();
                let stepped = relay.step(moment, source, &mut out);
                for Outgoing { header, payload } in out {
                    let frame = [&header[..], payload.as_deref().unwrap_or_default()].concat();
                    around.network.send(conn, Side::Replica, Message::Frames(frame), around.sent_ms);
                }
                match stepped {
                    Ok(_) => Ok(()),
                    Err(RelayError::Close(_) | RelayError::Source(_)) => Err(End::Closed),
                    Err(error) => Err(End::Failed(Failure::Breach(error.to_string()))),
                }
            }
        }
    }

    fn let_in(
        &mut self,
        conn: ConnId,
        served: &mut Served,
        words: &[String],
        around: &mut Around<'_>,
    ) -> Result<(), End> {
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        let claim = Claim::parse(&words).ok_or(End::Closed)?;
        self.account.hear(&claim);
        self.retain(around);
        let history = JudgedHistory::of(around.log, self.by_position);
        let decision = self.account.decide(&claim, around.log, &history)?;
        let epoch = around.log.epoch();
        match decision {
            Decision::Resume(end) => {
                let relay = Relay::new(RELAY, epoch, end, around.now_ms);
                let session = self.account.join(claim.replica, relay.acked());
                let source = Tail(around.log.cursor(end));
                *served = Served::Shipping { relay: relay.into(), source, session, replica: claim.replica };
            }
            Decision::Full(_) => self.retain(around),
            Decision::Probe | Decision::Refuse(_) | Decision::Fenced { .. } => {}
        }
        around.network.send(conn, Side::Replica, Message::Line(decision.line(epoch, 80)), around.sent_ms);
        Ok(())
    }

    /// Pins the log that followers need.
    fn retain(&mut self, around: &Around<'_>) {
        let keep_from = self.account.keep_from(around.log.shippable_lsn(), around.now_ms);
        let keep_from = keep_from.map(|from| from.max(around.log.start_lsn()));
        if keep_from != self.pin.as_ref().map(|(lsn, _)| *lsn) {
            // Take the new pin before dropping the old one.
            self.pin = keep_from.and_then(|lsn| Some((lsn, around.log.pin(lsn)?)));
        }
    }
}
