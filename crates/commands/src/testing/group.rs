//! The group of a test server: none, or one whose view and answers a test sets.

use engine::{
    Responder,
    group::{Group, GroupView, JoinRequest, MemberKind, MemberView, NoGroup, Standing},
    replication::Address,
};
use lsn::Lsn;
use parking_lot::Mutex;
use wire::Protocol;

use super::TestServer;

/// A group that records what it is asked for, and answers when a test says so.
#[derive(Default)]
pub(crate) struct TestGroup {
    /// The group as the server sees it. `None` if the server belongs to no group, and refuses requests at
    /// once.
    pub(crate) view: Mutex<Option<GroupView>>,
    /// The requests, in order: `remove 00000000000000b2`, `transfer`.
    asked: Mutex<Vec<String>>,
    /// The requests without an answer yet, each with the text of a success; `None` stands for OK.
    unanswered: Mutex<Vec<(Responder, Option<String>)>>,
}

impl TestGroup {
    /// Takes the requests since the last call.
    pub(crate) fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock())
    }

    /// Answers all requests that have no answer yet with this outcome.
    pub(crate) fn answer(&self, outcome: Result<(), String>) {
        for (responder, text) in self.unanswered.lock().drain(..) {
            match (text, &outcome) {
                (Some(text), Ok(())) => responder.answer(|reply| reply.simple(&text)),
                _ => responder.keep(outcome.clone()),
            }
        }
    }

    fn ask(&self, request: String, responder: Responder, success: Option<String>) {
        self.asked.lock().push(request);
        self.unanswered.lock().push((responder, success));
    }
}

impl Group for TestGroup {
    fn view(&self) -> Option<GroupView> {
        self.view.lock().clone()
    }

    fn join(&self, request: JoinRequest, responder: Responder) {
        let Some(group) = self.view() else { return NoGroup.join(request, responder) };
        let JoinRequest { version, group: name, id, address, http_port, is_witness } = request;
        let witness = if is_witness { " witness" } else { "" };
        self.ask(
            format!("join v{version} {name} {id} {address} http {http_port}{witness}"),
            responder,
            Some(group.id),
        );
    }

    fn remove(&self, id: &str, by_force: bool, responder: Responder) {
        match self.view() {
            Some(_) if by_force => self.ask(format!("remove {id} by force"), responder, None),
            Some(_) => self.ask(format!("remove {id}"), responder, None),
            None => NoGroup.remove(id, by_force, responder),
        }
    }

    fn transfer(&self, to: Option<&str>, timeout_ms: Option<u64>, responder: Responder) {
        if self.view().is_none() {
            return NoGroup.transfer(to, timeout_ms, responder);
        }
        let to = to.map(|id| format!(" {id}")).unwrap_or_default();
        let within = timeout_ms.map(|ms| format!(" within {ms} ms")).unwrap_or_default();
        self.ask(format!("transfer{to}{within}"), responder, None);
    }
}

/// The group `shop`, asked at its leader: a voter that it has heard from lately, and a learner never heard
/// from.
pub(crate) fn sample_group() -> GroupView {
    let member = |id: &str, host: &str, number: u16| MemberView {
        id: id.into(),
        address: Address { host: host.into(), port: 7000 + number },
        http_port: 7100 + number,
        kind: MemberKind::Voter,
        has_vote: true,
        is_self: false,
        answers: false,
        epoch: None,
        durable: None,
        committed: None,
        lag_bytes: None,
        heard_ms: None,
    };
    let leader = MemberView {
        is_self: true,
        answers: true,
        epoch: Some(7),
        durable: Some(Lsn::new(8192)),
        committed: Some(Lsn::new(4096)),
        lag_bytes: Some(0),
        ..member("00000000000000a1", "10.0.0.1", 1)
    };
    let voter = MemberView {
        answers: true,
        epoch: Some(7),
        durable: Some(Lsn::new(4096)),
        committed: Some(Lsn::new(4096)),
        lag_bytes: Some(4096),
        heard_ms: Some(12),
        ..member("00000000000000b2", "db2.example", 2)
    };
    let learner =
        MemberView { kind: MemberKind::Learner, has_vote: false, ..member("00000000000000c3", "::1", 3) };
    GroupView {
        name: "shop".into(),
        id: "0123456789abcdef0123456789abcdef".into(),
        term: 7,
        leader: Some(leader.id.clone()),
        standing: Standing::Member,
        members: vec![leader, voter, learner],
    }
}

/// As [`check_protocols()`](super::check_protocols()), on a server in this group, and without a replay.
///
/// # Panics
/// At the first reply that is not the expected one.
pub(crate) fn check_group(group: &GroupView, table: &[(&str, &str, &str)]) {
    for (protocol, replies) in [(Protocol::Resp2, 0), (Protocol::Resp3, 1)] {
        let mut server = TestServer::new();
        server.session.protocol = protocol;
        *server.host.group.view.lock() = Some(group.clone());
        for (line, resp2, resp3) in table {
            server.check(&[(line, [*resp2, *resp3][replies])]);
        }
    }
}
