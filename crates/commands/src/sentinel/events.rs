//! The messages of Redis Sentinel about changes of a group, from what a member sees of it over time.
//!
//! ```text
//! +switch-master, switch-master         NAME OLDIP OLDPORT NEWIP NEWPORT
//! +sdown, -sdown                        slave|master INSTANCE
//! +slave                                slave INSTANCE
//! +sentinel                             sentinel INSTANCE
//! +slave-reconf-done, +replica-reconf-done   slave INSTANCE
//! INSTANCE                              ID IP PORT @ NAME MASTERIP MASTERPORT, or NAME IP PORT of the master
//! ```
//!
//! Each message is published once for every name of the master. The names without + and with `replica` are
//! those that node-redis and go-redis listen for.
//!
//! The server looks at the group periodically and publishes these messages; this module has no clock and no
//! channels.
//!
//! Invariants
//! - The old address of a switch is the address of the leader that was announced before, or else of the first
//!   leader that was known.
//! - The looks up to the first that finds a leader announce nothing: there is nothing to compare them with.
//!   A member that is silent from then on is announced after [`LOOKS_MIN`] looks, like any other.

use std::collections::BTreeMap;

use engine::{
    group::{GroupView, MemberKind, MemberView},
    replication::Address,
};

use super::{
    instance::{is_down, run_id},
    names,
};

/// The number of consecutive looks that must find a member silent, or heard again, before the change is
/// announced. One look is not enough, because a new leader has not heard from everybody yet.
const LOOKS_MIN: u8 = 10;

/// A message to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentinelEvent {
    /// The channel to which the message is published.
    pub channel: &'static str,
    /// The text of the message.
    pub message: String,
}

/// The findings of the looks so far, to be compared with the next look.
#[derive(Default)]
pub struct SentinelEvents {
    has_looked: bool,
    /// The last leader that was known, also while the group has no leader.
    leader: Option<(String, Address)>,
    members: BTreeMap<String, Seen>,
}

/// A member: its address at the last look, and whether it counts as down for clients.
struct Seen {
    address: Address,
    is_down: bool,
    /// The number of consecutive looks that found the member in the other state.
    differed: u8,
}

impl SentinelEvents {
    /// Looks at the group, and returns the messages about changes that are due.
    pub fn look(&mut self, group: &GroupView) -> Vec<SentinelEvent> {
        let mut events = Vec::new();
        let switched = group.leader().and_then(|leader| self.switch(leader));
        let Some((_, master)) = self.leader.clone() else { return events };
        for name in names(group) {
            let mut tell = |channel, message| events.push(SentinelEvent { channel, message });
            if let Some(old) = &switched {
                let [old, new] = [old, &master].map(|it| format!("{} {}", it.host, it.port));
                let message = format!("{name} {old} {new}");
                tell("+switch-master", message.clone());
                tell("switch-master", message);
            }
            for member in &group.members {
                let about = |kind: &str| instance(kind, member, name, &master);
                let is_leader = group.leader.as_ref() == Some(&member.id);
                let slave = about(if is_leader { "master" } else { "slave" });
                let seen = self.members.get(&member.id);
                let is_new = self.has_looked && seen.is_none_or(|seen| seen.address != member.address);
                if is_new && !member.is_self {
                    tell("+sentinel", about("sentinel"));
                }
                if member.kind == MemberKind::Witness {
                    continue;
                }
                if !is_leader && (is_new || switched.is_some()) {
                    tell("+slave", slave.clone());
                }
                if !is_leader && switched.is_some() && seen.is_some_and(|seen| !seen.is_down) {
                    tell("+slave-reconf-done", slave.clone());
                    tell("+replica-reconf-done", slave.clone());
                }
                match seen.filter(|seen| seen.changes(member)) {
                    Some(seen) if seen.is_down => tell("-sdown", slave),
                    Some(_) => tell("+sdown", slave),
                    None => {}
                }
            }
        }
        self.note(group);
        events
    }

    /// Notes the leader; returns the address of the previous leader, if that differs.
    fn switch(&mut self, leader: &MemberView) -> Option<Address> {
        let (id, address) = (leader.id.clone(), leader.address.clone());
        let (_, old) = self.leader.replace((id, address))?;
        (old != leader.address).then_some(old)
    }

    fn note(&mut self, group: &GroupView) {
        self.has_looked = true;
        self.members.retain(|id, _| group.members.iter().any(|member| member.id == *id));
        for member in &group.members {
            let new = Seen { address: member.address.clone(), is_down: false, differed: 0 };
            let seen = self.members.entry(member.id.clone()).or_insert(new);
            seen.address.clone_from(&member.address);
            if seen.changes(member) {
                (seen.is_down, seen.differed) = (!seen.is_down, 0);
            } else {
                seen.differed = if is_down(member) == seen.is_down { 0 } else { seen.differed + 1 };
            }
        }
    }
}

impl Seen {
    /// Whether this look changes the member's state: to down, or to up again.
    fn changes(&self, member: &MemberView) -> bool {
        is_down(member) != self.is_down && self.differed + 1 >= LOOKS_MIN
    }
}

/// A member, as messages describe it.
fn instance(kind: &str, member: &MemberView, name: &str, master: &Address) -> String {
    let Address { host, port } = &member.address;
    let id = match kind {
        "master" => return format!("master {name} {host} {port}"),
        "sentinel" => run_id(member),
        _ => member.address.to_string(),
    };
    format!("{kind} {id} {host} {port} @ {name} {} {}", master.host, master.port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample_group;

    /// The sample group with three voters that hear each other.
    fn healthy() -> GroupView {
        let mut group = sample_group();
        group.members[2].kind = MemberKind::Voter;
        group.members[2].heard_ms = Some(3);
        group
    }

    fn look(events: &mut SentinelEvents, group: &GroupView) -> Vec<String> {
        let told = events.look(group);
        let of_group = told.iter().filter(|event| !event.message.contains("mymaster"));
        let shown: Vec<String> =
            of_group.map(|event| format!("{} {}", event.channel, event.message)).collect();
        assert_eq!(told.len(), 2 * shown.len(), "each comes under both names");
        shown
    }

    #[test]
    fn a_switch_is_announced_once_also_after_a_time_without_a_leader() {
        let mut events = SentinelEvents::default();
        let mut group = healthy();
        assert_eq!(look(&mut events, &group), [""; 0]);
        group.leader = None;
        assert_eq!(look(&mut events, &group), [""; 0]);
        group.leader = Some(group.members[1].id.clone());
        assert_eq!(
            look(&mut events, &group),
            [
                "+switch-master shop 10.0.0.1 7001 db2.example 7002",
                "switch-master shop 10.0.0.1 7001 db2.example 7002",
                "+slave slave 10.0.0.1:7001 10.0.0.1 7001 @ shop db2.example 7002",
                "+slave-reconf-done slave 10.0.0.1:7001 10.0.0.1 7001 @ shop db2.example 7002",
                "+replica-reconf-done slave 10.0.0.1:7001 10.0.0.1 7001 @ shop db2.example 7002",
                "+slave slave [::1]:7003 ::1 7003 @ shop db2.example 7002",
                "+slave-reconf-done slave [::1]:7003 ::1 7003 @ shop db2.example 7002",
                "+replica-reconf-done slave [::1]:7003 ::1 7003 @ shop db2.example 7002",
            ]
        );
        assert_eq!(look(&mut events, &group), [""; 0]);
    }

    #[test]
    fn a_leader_at_another_address_is_a_switch() {
        let mut events = SentinelEvents::default();
        let mut group = healthy();
        look(&mut events, &group);
        group.members[0].address.port = 8001;
        let told = look(&mut events, &group);
        assert_eq!(told[0], "+switch-master shop 10.0.0.1 7001 10.0.0.1 8001");
    }

    #[test]
    fn silent_members_are_down_after_some_looks_and_up_again() {
        let mut events = SentinelEvents::default();
        let mut group = healthy();
        look(&mut events, &group);
        group.members[1].heard_ms = Some(2001);
        for _ in 1..LOOKS_MIN {
            assert_eq!(look(&mut events, &group), [""; 0]);
        }
        assert_eq!(
            look(&mut events, &group),
            ["+sdown slave db2.example:7002 db2.example 7002 @ shop 10.0.0.1 7001"]
        );
        group.members[1].heard_ms = Some(1);
        for _ in 1..LOOKS_MIN {
            assert_eq!(look(&mut events, &group), [""; 0]);
        }
        assert_eq!(
            look(&mut events, &group),
            ["-sdown slave db2.example:7002 db2.example 7002 @ shop 10.0.0.1 7001"]
        );
        group.members[1].heard_ms = Some(2001);
        look(&mut events, &group);
        group.members[1].heard_ms = Some(1);
        for _ in 0..2 * LOOKS_MIN {
            assert_eq!(look(&mut events, &group), [""; 0], "one look alone says nothing");
        }
    }

    #[test]
    fn a_silent_leader_is_a_master_that_is_down() {
        let mut events = SentinelEvents::default();
        let mut group = healthy();
        (group.members[0].is_self, group.members[1].is_self) = (false, true);
        group.members[0].heard_ms = Some(2001);
        let told: Vec<_> = (0..=LOOKS_MIN).flat_map(|_| look(&mut events, &group)).collect();
        assert_eq!(told, ["+sdown master shop 10.0.0.1 7001"]);
    }

    #[test]
    fn a_new_member_is_a_replica_and_a_sentinel() {
        let mut events = SentinelEvents::default();
        let mut group = healthy();
        let third = group.members.pop().expect("three members");
        look(&mut events, &group);
        group.members.push(third);
        assert_eq!(
            look(&mut events, &group),
            [
                "+sentinel sentinel 00000000000000c3000000000000000000000000 ::1 7003 @ shop 10.0.0.1 7001",
                "+slave slave [::1]:7003 ::1 7003 @ shop 10.0.0.1 7001",
            ]
        );
        group.members.pop();
        assert_eq!(look(&mut events, &group), [""; 0]);
        let witness = MemberView { kind: MemberKind::Witness, ..sample_group().members.remove(2) };
        group.members.push(witness);
        let told = look(&mut events, &group);
        assert!(told.len() == 1 && told[0].starts_with("+sentinel sentinel "), "{told:?}");
    }

    #[test]
    fn without_a_leader_ever_known_there_is_nothing_to_tell() {
        let mut events = SentinelEvents::default();
        let group = GroupView { leader: None, ..healthy() };
        assert_eq!(look(&mut events, &group), [""; 0]);
        assert_eq!(look(&mut events, &healthy()), [""; 0], "the first leader is no switch");
    }

    #[test]
    fn a_group_of_the_usual_name_is_announced_once() {
        let mut events = SentinelEvents::default();
        let mut group = GroupView { name: "mymaster".into(), ..healthy() };
        events.look(&group);
        group.leader = Some(group.members[1].id.clone());
        let told = events.look(&group);
        assert_eq!(told.iter().filter(|event| event.channel == "+switch-master").count(), 1);
    }
}
