//! Joining a group: a new server asks a member to be added, and then copies the log as a replica does.
//!
//! ```text
//! GROUP JOIN -> leader: a learner in the roster, committed -> +<group id> -> saved -> follow it
//!    '-> -NOTLEADER address: ask there              full copy -> restart: the data has the roster
//! ```

use std::{io, sync::Arc, thread, time::Duration};

use consensus::{Link, Member};
use engine::replication::Address;
use membership::Listed;
use recovery::{group_state::GroupState, replication_state::parse_address};
use storage::Log;

use super::{Group, peers::PEER_VERSION};
use crate::{
    repeated::Repeated,
    replication::{
        holds_data,
        line::{ask, connect},
    },
};

/// The pause after a failed attempt.
const RETRY_PERIOD: Duration = Duration::from_millis(500);
/// The code of the error of a member that does not lead.
pub(super) const NOT_LEADER: &str = "NOTLEADER ";
/// The number of attempts that may find the group without a leader before a warning is logged.
const ELECTIONS_AT_START: u32 = 6;

impl Group {
    /// Checks that this server can join, before it asks and is listed by the group.
    ///
    /// # Errors
    /// If it is to join itself or has data of its own, or the log cannot be read.
    pub(super) fn check_joiner(&self, state: &GroupState, log: &Log) -> io::Result<()> {
        let refused = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if let Some(itself) = state.join_address().filter(|address| self.node.is_reached_at(address)) {
            return refused(format!("join: {itself} is this server itself. Name a member of the group"));
        }
        if log.holds_records(holds_data).map_err(io::Error::other)? {
            let name = &state.name;
            return refused(format!(
                "this directory has data, and a server that joins the group '{name}' begins with a copy of the group's. Start it on an empty \
                 directory; or without --group and --join, to go on alone with the data (--group none if it has asked to join before)"
            ));
        }
        Ok(())
    }

    /// Joins the group, and keeps trying until the server stops. A member that has to copy everything anew is
    /// in the group already, and only asks who leads.
    pub(super) fn join(self: &Arc<Self>) {
        let Some(votes) = &self.votes else { return };
        let (mut logged, mut elections) = (Repeated::default(), 0);
        while !self.is_stopping() {
            match self.ask_around() {
                Ok((group_id, leader)) => {
                    if let Err(error) = votes.joined(&group_id) {
                        tracing::error!(target: "group", %error, "cannot save the id of the group");
                    } else {
                        self.peers.get().inspect(|peers| peers.set_group(&group_id));
                        tracing::info!(target: "group", %leader, group_id, "this server was added to the group: it copies the data");
                        return self.node.follow_in_group(None, leader);
                    }
                }
                Err(reason) if reason.contains(NOT_LEADER) && elections < ELECTIONS_AT_START => {
                    elections += 1
                }
                Err(reason) => {
                    if let Some(unlogged) = logged.note(&reason, votes.now_us() / 1000) {
                        tracing::warn!(target: "group", reason, unlogged, "cannot join the group; trying again");
                    }
                }
            }
            thread::sleep(RETRY_PERIOD);
        }
    }

    /// Finds the address of a leader that the roster here does not list, by asking other members.
    pub(super) fn find_leader(self: &Arc<Self>, link: Link) {
        let found = self.spawn("group-find", move |group| {
            let (Some(votes), Some(peers)) = (&group.votes, group.peers.get()) else { return };
            while !group.is_stopping() && votes.link() == Ok(Some(link)) {
                if let Ok((_, leader)) = group.ask_around()
                    && peers.meet(&leader, link.leader).is_ok()
                {
                    tracing::info!(target: "group", leader = %link.leader, address = %leader, "other members know where the leader is");
                    return group.node.follow_in_group(Some(link), leader);
                }
                thread::sleep(RETRY_PERIOD);
            }
        });
        if let Err(error) = found {
            tracing::error!(target: "group", %error, "cannot start a thread");
        }
    }

    /// Asks the known members to add this server, or to say who leads. Returns the id of the group, and the
    /// address of its leader.
    fn ask_around(&self) -> Result<(String, Address), String> {
        let Some(state) = self.votes.as_ref().map(|votes| votes.state()) else { return Err(String::new()) };
        let roster = self.known.lock().roster.clone().unwrap_or_default();
        let mut members: Vec<Address> = roster.members.iter().map(Listed::address).collect();
        if members.is_empty() {
            // The address in `join` counts only while no member is known here: later, any other server may
            // have it.
            members.extend(state.join_address());
        }
        members.retain(|address| !self.node.is_reached_at(address));
        let mut last = "no other member is known".to_string();
        for first in members {
            let mut target = first;
            // At most one hint is followed for each member, because the server named in the hint may have
            // lost the leadership and give another hint.
            for _ in 0..2 {
                match self.ask_to_join(&target) {
                    Ok(Answer::Joined(group_id)) if state.has_joined() && group_id != state.group_id => {
                        last = format!("{target} belongs to another group of the same name");
                        break;
                    }
                    Ok(Answer::Joined(group_id)) => return Ok((group_id, target)),
                    // This server was elected meanwhile, or it led until it lost its directory.
                    Ok(Answer::Elsewhere(leader)) if self.node.is_reached_at(&leader) => {
                        last = format!("{target}: {NOT_LEADER}it takes this server for the leader");
                        break;
                    }
                    Ok(Answer::Elsewhere(leader)) => target = leader,
                    Err(reason) => {
                        last = format!("{target}: {reason}");
                        break;
                    }
                }
            }
        }
        Err(last)
    }

    /// Makes the roster show the present address of this member, if it shows another address.
    pub(super) fn renew_listing(self: &Arc<Self>) {
        let Some(own) = self.own.get() else { return };
        let is_listed = || {
            let known = self.known.lock();
            let listed =
                known.roster.as_ref().and_then(|roster| roster.members.iter().find(|it| it.id == own.id));
            listed.is_none_or(|it| it.address() == own.address() && it.http_port == own.http_port)
        };
        if is_listed() {
            return;
        }
        let renewed = self.spawn("group-listing", move |group| {
            let mut logged = Repeated::default();
            while !group.is_stopping()
                && let Err(reason) = renew(group)
            {
                let now_ms = group.votes.as_ref().map_or(0, |votes| votes.now_us() / 1000);
                // While the group has no leader, other reasons are to be expected.
                let is_refusal = reason.contains(": ERR ");
                if is_refusal && let Some(unlogged) = logged.note(&reason, now_ms) {
                    tracing::warn!(target: "group", reason, unlogged, "the group does not list the present address of this server; trying again");
                }
                thread::sleep(RETRY_PERIOD);
            }
        });
        if let Err(error) = renewed {
            tracing::error!(target: "group", %error, "cannot start a thread");
        }
    }

    fn ask_to_join(&self, target: &Address) -> Result<Answer, String> {
        let (Some(own), Some(votes)) = (self.own.get(), &self.votes) else { return Err("starting".into()) };
        let mut socket = connect(target, &self.node.introduction(), |_| Ok(()))?;
        votes.store().map_err(|error| format!("cannot write group.json: {error}"))?;
        let mut words = vec![
            "GROUP".to_string(),
            "JOIN".into(),
            PEER_VERSION.to_string(),
            votes.state().name.clone(),
            own.id.clone(),
            own.host.clone(),
            own.port.to_string(),
            own.http_port.to_string(),
        ];
        words.extend(votes.is_witness().then(|| "WITNESS".to_string()));
        let line = ask(&mut socket, &words)?;
        if let Some(group_id) = line.strip_prefix('+') {
            return Ok(Answer::Joined(group_id.to_string()));
        }
        match leader_named(&line) {
            Some(leader) => Ok(Answer::Elsewhere(leader)),
            None => Err(explained(&line)),
        }
    }
}

/// The address of the leader, from the answer of a member that does not lead: the first word after the code.
fn leader_named(line: &str) -> Option<Address> {
    let said = line.strip_prefix('-')?.strip_prefix(NOT_LEADER)?;
    parse_address(said.split(' ').next()?)
}

/// The reason why this server is not added, with advice where the answer has none.
fn explained(line: &str) -> String {
    let reason = line.trim_start_matches('-');
    let advice = match reason.split_once(' ').map(|(code, _)| code) {
        Some("NOAUTH") => {
            "; set masterauth here to the requirepass of the group, or masteruser to a user of it"
        }
        _ => "",
    };
    format!("{reason}{advice}")
}

/// Makes the leader, which may be this member, list the present address of this member.
fn renew(group: &Group) -> Result<(), String> {
    let (Some(own), Some(votes)) = (group.own.get(), &group.votes) else { return Ok(()) };
    if votes.look(Member::leads) != Some(true) {
        return group.ask_around().map(drop);
    }
    let _one_at_a_time = group.changing.lock();
    let renewed = group.change_roster(|roster| {
        let listed = roster.members.iter_mut().find(|it| it.id == own.id).ok_or("not a member")?;
        *listed = Listed { is_voter: listed.is_voter, ..own.clone() };
        Ok(())
    });
    renewed.map(drop).map_err(|_| "try again".into())
}

/// The answer to GROUP JOIN.
enum Answer {
    /// This server is a member of the group with this id.
    Joined(String),
    /// Another member leads.
    Elsewhere(Address),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_does_not_lead_names_the_leader_first() {
        let leader = |line: &str| leader_named(line).map(|leader| leader.to_string());
        assert_eq!(
            leader("-NOTLEADER 10.0.0.1:7001 leads the group: ask it").as_deref(),
            Some("10.0.0.1:7001")
        );
        assert_eq!(
            leader("-NOTLEADER [::1]:7001").as_deref(),
            Some("[::1]:7001"),
            "earlier versions say no more"
        );
        assert_eq!(leader("-NOTLEADER no leader is known, try again"), None);
        assert_eq!(leader("-ERR 10.0.0.1:7001"), None);
    }

    #[test]
    fn answers_without_advice_are_explained() {
        assert!(
            explained("-NOAUTH Authentication required.").ends_with(
                "set masterauth here to the requirepass of the group, or masteruser to a user of it"
            )
        );
        assert_eq!(explained("-ERR no"), "ERR no");
    }
}
