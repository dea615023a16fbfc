//! The roster: the list of a group's members. It is a part of the group's data.
//!
//! ```json
//! {"group": "16 bytes in hex", "members": [{"id": "8 bytes in hex", "host": "10.0.0.1", "port": 6379,
//!  "http_port": 5984, "is_voter": true, "is_witness": false}],
//!  "voters_before": ["8 bytes in hex"], "learners_before": [], "leaving": [], "committed_before": 4096}
//! ```
//!
//! Invariants
//! - [`changed_roster`](crate::changed_roster) makes a change only after the one before it is committed and
//!   in force. So the members before the newest change are committed, wherever that change is found.

use consensus::{MemberId, Members};
use engine::replication::Address;
use keyspace::DataSettings;
use lsn::Lsn;
use serde::{Deserialize, Serialize};

/// The prefix of the names of facts about the group to which the data belong. The facts are kept among the
/// settings of the data.
pub const OF_GROUP: &str = "group:";
/// The name of the roster in the data, after the prefix [`OF_GROUP`].
pub const ROSTER: &str = "roster";
/// The maximum number of members of a group, with its witnesses and learners.
pub const MEMBERS_MAX: usize = 9;

/// The list of a group's members.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// The id of the group.
    pub group: String,
    /// The members, among them learners and witnesses.
    pub members: Vec<Listed>,
    /// The voters before this change. These voters and [`Roster::learners_before`] are certainly committed.
    #[serde(default)]
    pub voters_before: Vec<String>,
    /// The learners before this change.
    #[serde(default)]
    pub learners_before: Vec<String>,
    /// The members that this change removes: they are needed until the change is in force.
    #[serde(default)]
    pub leaving: Vec<Listed>,
    /// A position of the log that was committed when this change was made.
    #[serde(default)]
    pub committed_before: u64,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The id of the member, as text.
    pub id: String,
    /// The host under which others reach it.
    pub host: String,
    /// The port of the Redis protocol.
    pub port: u16,
    /// The port of HTTP under which others reach the member.
    pub http_port: u16,
    /// Whether it votes; else it is a learner.
    pub is_voter: bool,
    /// Whether it keeps the log and no data.
    #[serde(default)]
    pub is_witness: bool,
}

impl Listed {
    /// The id of the member; `None` if the text is no id.
    pub fn member_id(&self) -> Option<MemberId> {
        MemberId::parse(&self.id)
    }

    /// The address under which others reach its port of the Redis protocol.
    pub fn address(&self) -> Address {
        Address { host: self.host.clone(), port: self.port }
    }
}

impl Roster {
    /// The roster that the data has; `None` if the data has none that this version understands.
    pub fn of(data: &DataSettings) -> Option<Roster> {
        let text = data.get(format!("{OF_GROUP}{ROSTER}").as_bytes())?;
        let roster: Roster = serde_json::from_slice(text).ok()?;
        roster.members.iter().all(|member| member.member_id().is_some()).then_some(roster)
    }

    /// The JSON text, as the data has it.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers are JSON")
    }

    /// The members as votes count them.
    pub fn members(&self) -> Members {
        let ids = |is_voter: bool| {
            let chosen = self.members.iter().filter(move |member| member.is_voter == is_voter);
            chosen.filter_map(Listed::member_id).collect()
        };
        Members { voters: ids(true), learners: ids(false) }
    }

    /// The members before the newest change; `None` if the roster names none.
    pub fn members_before(&self) -> Option<Members> {
        let ids = |texts: &[String]| texts.iter().filter_map(|text| MemberId::parse(text)).collect();
        let members = Members { voters: ids(&self.voters_before), learners: ids(&self.learners_before) };
        (!members.voters.is_empty()).then_some(members)
    }

    /// Notes the state before this change: the roster and the members in force.
    pub fn note_before(&mut self, before: &Roster, members: &Members, committed: Lsn) {
        let is_gone = |listed: &&Listed| self.members.iter().all(|member| member.id != listed.id);
        self.leaving = before.members.iter().filter(is_gone).cloned().collect();
        self.committed_before = committed.get();
        let texts = |ids: &[MemberId]| ids.iter().map(ToString::to_string).collect();
        (self.voters_before, self.learners_before) = (texts(&members.voters), texts(&members.learners));
    }

    /// Whether the member with this id is a voter that has data, so that it may lead.
    pub fn is_voter_with_data(&self, id: MemberId) -> bool {
        self.find(id).is_some_and(|member| member.is_voter && !member.is_witness)
    }

    /// The member with this id.
    pub fn find(&self, id: MemberId) -> Option<&Listed> {
        self.members.iter().find(|member| member.member_id() == Some(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roster_is_read_as_it_was_written() {
        let listed = |number: u64, is_voter| Listed {
            id: MemberId::new(number).expect("not 0").to_string(),
            host: "::1".into(),
            port: 1,
            http_port: 2,
            is_voter,
            is_witness: number == 3,
        };
        let roster = Roster {
            group: "00".into(),
            members: vec![listed(1, true), listed(2, false), listed(3, true)],
            ..Roster::default()
        };
        assert_eq!(serde_json::from_str::<Roster>(&roster.text()).expect("JSON"), roster);
        let id = |number| MemberId::new(number).expect("not 0");
        assert_eq!(roster.members(), Members { voters: vec![id(1), id(3)], learners: vec![id(2)] });
        assert_eq!(roster.find(id(2)), Some(&roster.members[1]));
        assert_eq!(roster.find(id(4)), None);
        let with_data = [1, 2, 3, 4].map(|number| roster.is_voter_with_data(id(number)));
        assert_eq!(with_data, [true, false, false, false]);
        let earlier = roster.text().replace(",\"is_witness\":false", "");
        assert_eq!(serde_json::from_str::<Roster>(&earlier).expect("of an earlier version"), roster);
        let mut changed = roster.clone();
        changed.members.remove(1);
        changed.note_before(&roster, &roster.members(), Lsn::new(5));
        assert_eq!((&changed.leaving[..], changed.committed_before), (&roster.members[1..2], 5));
        assert_eq!(changed.members_before(), Some(roster.members()));
        let again = changed.clone();
        changed.note_before(&again, &again.members(), Lsn::new(6));
        assert_eq!(changed.leaving, []);
    }
}
