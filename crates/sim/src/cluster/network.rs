//! The simulated network: connections between servers, with faults.
//!
//! Each connection has two ordered pipes with their own delays, so connections can overtake each other. Links
//! can be blocked in one or both directions. Connections can break; both ends notice, or neither does. Within
//! a connection nothing is lost: TCP delivers in order or ends.

use std::collections::{BTreeMap, VecDeque};

use env::Prng;

/// The index of a server in the cluster.
pub(crate) type NodeId = usize;
/// The identity of a connection; never reused.
pub(crate) type ConnId = u64;

/// The capacity of a pipe; bytes beyond it count as unsent.
const WINDOW_BYTES: usize = 64 << 10;

/// A message: the words of a join, then bytes of frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// The arguments of REPLICATE.
    Claim(Vec<String>),
    /// The arguments of REPLICATE MARKS.
    Marks(Vec<String>),
    /// The line that answers a claim or marks.
    Line(String),
    /// Bytes of frames, cut at any position.
    Frames(Vec<u8>),
    /// The end of the stream.
    Closed,
}

impl Message {
    fn bytes(&self) -> usize {
        if let Message::Frames(bytes) = self { bytes.len() } else { 0 }
    }
}

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The replica, which opened the connection.
    Replica = 0,
    /// The leader, to which the connection was opened.
    Leader = 1,
}

impl Side {
    fn other(self) -> Side {
        if self == Side::Replica { Side::Leader } else { Side::Replica }
    }
}

struct Conn {
    /// The servers, indexed by side.
    nodes: [NodeId; 2],
    delay_ms_max: u64,
    /// Whether nothing arrives any more, without notice to either end.
    is_dead: bool,
    /// The messages in transit to each side, each with its time of arrival.
    pipes: [VecDeque<(u64, Message)>; 2],
    has_left: [bool; 2],
}

pub(crate) struct Network {
    nodes: usize,
    conns: BTreeMap<ConnId, Conn>,
    next_conn: ConnId,
    /// Whether messages from one server to another are blocked, at index `from * nodes + to`.
    blocked: Vec<bool>,
    prng: Prng,
}

impl Network {
    pub(crate) fn new(nodes: usize, prng: Prng) -> Network {
        Network { nodes, conns: BTreeMap::new(), next_conn: 1, blocked: vec![false; nodes * nodes], prng }
    }

    /// Opens a connection of a replica to its leader; a missing leader is noticed later.
    pub(crate) fn connect(&mut self, replica: NodeId, leader: NodeId) -> ConnId {
        let conn = self.next_conn;
        self.next_conn += 1;
        let delay_ms_max = [1, 5, 60][self.prng.below(3) as usize];
        let (nodes, pipes) = ([replica, leader], Default::default());
        self.conns.insert(conn, Conn { nodes, delay_ms_max, is_dead: false, pipes, has_left: [false; 2] });
        conn
    }

    /// The connections to this server that it has not closed.
    pub(crate) fn conns_to(&self, leader: NodeId) -> Vec<ConnId> {
        let is_to = |conn: &Conn| conn.nodes[1] == leader && !conn.has_left[1];
        self.conns.iter().filter(|(_, conn)| is_to(conn)).map(|(&id, _)| id).collect()
    }

    pub(crate) fn send(&mut self, conn: ConnId, to: Side, message: Message, now_ms: u64) {
        if let Some(conn) = self.conns.get_mut(&conn) {
            let due_ms = now_ms + self.prng.below(conn.delay_ms_max + 1);
            conn.pipes[to as usize].push_back((due_ms, message));
        }
    }

    /// The next message for one end, if it has arrived; sometimes only the first bytes of a frame.
    pub(crate) fn receive(&mut self, conn: ConnId, side: Side, now_ms: u64) -> Option<Message> {
        let Some(found) = self.conns.get_mut(&conn) else { return Some(Message::Closed) };
        let (from, to) = (found.nodes[side.other() as usize], found.nodes[side as usize]);
        if found.is_dead || self.blocked[from * self.nodes + to] {
            return None;
        }
        let queue = &mut found.pipes[side as usize];
        let (_, message) = queue.front_mut().filter(|(due_ms, _)| *due_ms <= now_ms)?;
        match message {
            Message::Frames(bytes) if bytes.len() > 1 && self.prng.chance(20) => {
                let cut = 1 + self.prng.below(bytes.len() as u64 - 1) as usize;
                let rest = bytes.split_off(cut);
                Some(Message::Frames(std::mem::replace(bytes, rest)))
            }
            _ => queue.pop_front().map(|(_, message)| message),
        }
    }

    /// The bytes sent to one end that exceed the capacity of the pipe.
    pub(crate) fn unsent_bytes(&self, conn: ConnId, to: Side) -> u64 {
        let pipe = self.conns.get(&conn).map(|conn| &conn.pipes[to as usize]);
        let queued: usize = pipe.into_iter().flatten().map(|(_, message)| message.bytes()).sum();
        queued.saturating_sub(WINDOW_BYTES) as u64
    }

    /// Closes one end; the other one is notified, unless the connection has broken silently.
    pub(crate) fn close(&mut self, conn: ConnId, by: Side, now_ms: u64) {
        self.send(conn, by.other(), Message::Closed, now_ms);
        if let Some(found) = self.conns.get_mut(&conn) {
            found.has_left[by as usize] = true;
            if found.has_left == [true; 2] {
                self.conns.remove(&conn);
            }
        }
    }

    /// A machine or its process has stopped. Its peers are notified, or find out by timeout.
    pub(crate) fn crash(&mut self, node: NodeId, now_ms: u64) {
        let ids: Vec<ConnId> = self.conns.keys().copied().collect();
        for id in ids {
            let nodes = self.conns[&id].nodes;
            if nodes.contains(&node) {
                self.break_conn(id);
                self.close(id, if nodes[0] == node { Side::Replica } else { Side::Leader }, now_ms);
            }
        }
    }

    /// Injects a random disturbance, or unblocks all links.
    pub(crate) fn disturb(&mut self) {
        let any = self.nodes as u64;
        let (a, b) = (self.prng.below(any) as usize, self.prng.below(any) as usize);
        match self.prng.below(10) {
            0..4 => {
                let ids: Vec<ConnId> = self.conns.keys().copied().collect();
                if !ids.is_empty() {
                    let chosen = ids[self.prng.below(ids.len() as u64) as usize];
                    self.break_conn(chosen);
                }
            }
            4..6 => self.blocked[a * self.nodes + b] = true,
            6 => {
                self.blocked[a * self.nodes + b] = true;
                self.blocked[b * self.nodes + a] = true;
            }
            _ => self.heal(),
        }
    }

    /// Unblocks all links; broken connections stay broken.
    pub(crate) fn heal(&mut self) {
        self.blocked.fill(false);
    }

    /// Whether two servers can reach each other in both directions.
    pub(crate) fn reaches(&self, a: NodeId, b: NodeId) -> bool {
        !self.blocked[a * self.nodes + b] && !self.blocked[b * self.nodes + a]
    }

    /// Whether nothing arrives from one server at another.
    pub(crate) fn is_blocked(&self, from: NodeId, to: NodeId) -> bool {
        self.blocked[from * self.nodes + to]
    }

    /// Blocks all that one server sends to another.
    pub(crate) fn block(&mut self, from: NodeId, to: NodeId) {
        self.blocked[from * self.nodes + to] = from != to;
    }

    /// Breaks a connection: either both ends are notified (a reset), or neither is.
    fn break_conn(&mut self, conn: ConnId) {
        let is_silent = self.prng.chance(40);
        if let Some(conn) = self.conns.get_mut(&conn) {
            conn.is_dead |= is_silent;
            for pipe in &mut conn.pipes {
                let kept = self.prng.below(pipe.len() as u64 + 1) as usize;
                pipe.truncate(kept);
                pipe.push_back((0, Message::Closed));
            }
        }
    }
}
