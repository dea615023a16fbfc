//! The judge of ballots: remembers the messages of members, which no later message may contradict.
//!
//! Checked invariants
//! - A member gives one vote in a term, also after crashes.
//! - A member that starts is in no earlier term than it has spoken in.
//! - The id of a directory never changes (checked in `server`).

use std::collections::BTreeMap;

use consensus::{Ballot, Kind, MemberId, Message};

#[derive(Default)]
pub(super) struct Ballots {
    votes: BTreeMap<(MemberId, u64), MemberId>,
    terms: BTreeMap<MemberId, u64>,
}

impl Ballots {
    /// Notes a message that has left; an error if it contradicts an earlier one.
    pub(super) fn note(&mut self, message: &Message) -> Result<(), String> {
        let Message { from, to, term, .. } = *message;
        let candidate = match message.kind {
            // Pre-votes name a term that may never begin.
            Kind::PreVote | Kind::PreVoteAnswer => return Ok(()),
            Kind::Vote => Some(from),
            Kind::VoteAnswer if !message.is_rejected => Some(to),
            _ => None,
        };
        let newest = self.terms.entry(from).or_default();
        *newest = (*newest).max(term);
        let Some(candidate) = candidate else { return Ok(()) };
        match self.votes.insert((from, term), candidate) {
            Some(other) if other != candidate => {
                Err(format!("{from} has voted twice in term {term}, for {other} and {candidate}"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the ballot with which a member starts. The newest epoch of its log counts as well.
    pub(super) fn check_start(&self, id: MemberId, ballot: Ballot, newest: u64) -> Result<(), String> {
        let spoken = self.terms.get(&id).copied().unwrap_or(0);
        let term = ballot.term.max(newest);
        if term < spoken {
            return Err(format!("{id} starts in term {term}, and has spoken in term {spoken}"));
        }
        match self.votes.get(&(id, term)) {
            Some(vote) if ballot.term < term || ballot.voted_for != Some(*vote) => {
                Err(format!("{id} has forgotten its vote in term {term}"))
            }
            _ => Ok(()),
        }
    }
}
