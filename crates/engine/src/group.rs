//! The interface of commands to a group of servers, which fails over without an operator.
//!
//! The server implements [`Group`]; where there is no group, [`NoGroup`] does. The interface is not the
//! protocol between members, of which only the first message, GROUP PEER, is a command.

use lsn::Lsn;

use crate::{Responder, replication::Address};

/// The error of commands that need a group.
pub const NO_GROUP: &str = "ERR this server belongs to no group: start it with --group NAME";

/// A group, as one of its members sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    /// The name of the group, as `--group` gives it.
    pub name: String,
    /// The random id of the group, 32 hexadecimal digits.
    pub id: String,
    /// The term of this member: the number of the newest election that it knows.
    pub term: u64,
    /// The id of the leader that this member knows; `None` for none.
    pub leader: Option<String>,
    /// The role of the server that is asked.
    pub standing: Standing,
    /// All members. The server that is asked is among them only if it is a member.
    pub members: Vec<MemberView>,
}

impl GroupView {
    /// The leader, if this member knows one that takes writes: a witness leads only until it has handed the
    /// lead on.
    pub fn leader(&self) -> Option<&MemberView> {
        self.with_data().find(|member| Some(&member.id) == self.leader.as_ref())
    }

    /// The members with data that do not lead.
    pub fn followers(&self) -> impl Iterator<Item = &MemberView> {
        self.with_data().filter(|member| Some(&member.id) != self.leader.as_ref())
    }

    /// The members that clients may ask for data.
    pub fn with_data(&self) -> impl Iterator<Item = &MemberView> {
        self.members.iter().filter(|member| member.kind != MemberKind::Witness)
    }
}

/// A member of a group, as the server that is asked knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// The random id of the member, 16 hexadecimal digits.
    pub id: String,
    /// The address at which clients and members reach the member.
    pub address: Address,
    /// The HTTP port at which the member serves its documents, on the host of `address`.
    pub http_port: u16,
    /// Whether the member keeps data, and whether it is a voter.
    pub kind: MemberKind,
    /// Whether the member's vote and acknowledgements count.
    pub has_vote: bool,
    /// Whether the member is the server that is asked.
    pub is_self: bool,
    /// Whether the member is the server that is asked, or is connected and was heard within a second. A
    /// server that does not lead hears only its leader, so for it every other connected member counts as
    /// answering.
    pub answers: bool,
    /// The member's term; the term of another member is known only if that member was heard within a second.
    /// The leader's batches have its term as their epoch.
    pub epoch: Option<u64>,
    /// The end of the member's durable log, if the server that is asked knows it: a server that does not lead
    /// knows only the end of its own log.
    pub durable: Option<Lsn>,
    /// The committed position that the member knows. `None` if the server that is asked does not know it: a
    /// server that does not lead knows only its own position.
    pub committed: Option<Lsn>,
    /// Bytes of the leader's log that the member's durable log lacks; only if the leader is asked.
    pub lag_bytes: Option<u64>,
    /// Milliseconds since the server that is asked has heard from the member; `None` if never. On a server
    /// that does not lead, 0 for every connected member but its leader.
    pub heard_ms: Option<u64>,
}

/// The part of a server in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The server asks to be added.
    Joining,
    /// The server was added, and is one of the members.
    Member,
    /// The group has removed the server.
    Removed,
}

impl Standing {
    /// The name of the standing in replies, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Joining => "joining",
            Standing::Member => "member",
            Standing::Removed => "removed",
        }
    }
}

/// The kind of a member: whether it votes, and whether it has data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind {
    /// A member whose vote and acknowledgements count.
    Voter,
    /// A voter that keeps only the log and has no data. Its vote and its acknowledgements count once it has
    /// caught up.
    Witness,
    /// A member that follows, and becomes a voter once it has caught up.
    Learner,
}

impl MemberKind {
    /// The name of the kind in replies, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            MemberKind::Voter => "voter",
            MemberKind::Witness => "witness",
            MemberKind::Learner => "learner",
        }
    }
}

/// A server that asks to become a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinRequest {
    /// The version of the protocol between members.
    pub version: u32,
    /// The name of the group that the server wants to join.
    pub group: String,
    /// The id of the new member, 16 hexadecimal digits.
    pub id: String,
    /// The address at which the new member is reached.
    pub address: Address,
    /// The HTTP port at which the new member serves its documents, on the host of `address`.
    pub http_port: u16,
    /// Whether the new member is to keep the log and no data.
    pub is_witness: bool,
}

/// The group of this server; see the module documentation.
pub trait Group: Send + Sync {
    /// The group as this server sees it; `None` if it belongs to none.
    fn view(&self) -> Option<GroupView>;

    /// Adds a member, as a learner at first, or records the new address of a member. Answers `responder` with
    /// the group's id as a simple string once the change is committed, or with an error. The error that this
    /// server does not lead begins with `NOTLEADER`, followed by the leader's address if it is known.
    fn join(&self, request: JoinRequest, responder: Responder);

    /// Removes the member with this id; answers `responder` with OK once the change is committed, or with an
    /// error. Unless `by_force`, a removal after which no majority answers is refused.
    fn remove(&self, id: &str, by_force: bool, responder: Responder);

    /// Hands the lead over to the member with this id, or to a voter of this server's choice. Gives up after
    /// `timeout_ms`, or without it after a time of its own, unless the election has begun. Answers
    /// `responder` with OK when that member has everything and its election is about to begin, because no
    /// reply leaves this server after the election has begun. Answers with an error if the transfer fails.
    fn transfer(&self, to: Option<&str>, timeout_ms: Option<u64>, responder: Responder);
}

/// A server without a group.
pub struct NoGroup;

impl Group for NoGroup {
    fn view(&self) -> Option<GroupView> {
        None
    }

    fn join(&self, _: JoinRequest, responder: Responder) {
        responder.keep(Err(NO_GROUP.into()));
    }

    fn remove(&self, _: &str, _: bool, responder: Responder) {
        responder.keep(Err(NO_GROUP.into()));
    }

    fn transfer(&self, _: Option<&str>, _: Option<u64>, responder: Responder) {
        responder.keep(Err(NO_GROUP.into()));
    }
}
