//! The machine of a member at its start, from its log.

use consensus::{Ballot, Batch, Member, Members, Start};
use keyspace::Effect;
use lsn::Lsn;
use storage::{BatchInfo, Chains, CursorRead, Error, Log};

use crate::{Known, OF_GROUP, ROSTER, Votes};

/// The maximum number of batches of the log that are looked at when a member starts; all earlier ones count
/// as committed: see [`refuses_writes`].
const BATCHES_AT_START: usize = 1 << 16;

/// A leader with this many uncommitted batches refuses writes after [`PATIENCE_US`], whatever `ack-timeout`
/// is. The remaining room up to [`BATCHES_AT_START`] is for the batches that are written until the refusal,
/// and for the few records that the server itself writes afterwards.
const UNCOMMITTED_BATCHES_MAX: u64 = BATCHES_AT_START as u64 / 4;

/// The microseconds that the oldest uncommitted batch must have waited before the leader concludes that no
/// majority takes the log: a new leader does not know at once what is committed.
const PATIENCE_US: u64 = 1_000_000;

/// Whether a leader refuses writes because no majority takes its log: its oldest uncommitted batch has waited
/// for `timeout_ms` (0: no limit), or for a second while too many batches are uncommitted.
pub fn refuses_writes(awaited_us: u64, uncommitted_batches: u64, timeout_ms: u64) -> bool {
    let is_late = timeout_ms > 0 && awaited_us / 1000 >= timeout_ms;
    is_late || awaited_us >= PATIENCE_US && uncommitted_batches >= UNCOMMITTED_BATCHES_MAX
}

const READ_BYTES: usize = 1 << 20;

/// The outcome of a start.
pub enum Started {
    /// This server is no member yet: it asks to join.
    Joins,
    /// The log cannot name its last batch: everything has to be copied from the leader.
    CopiesAnew,
    /// This server is a member: it takes part in votes with this machine.
    Member(Box<Member>),
}

fn reference(batch: &BatchInfo) -> Batch {
    Batch { number: batch.number, epoch: batch.epoch, end: batch.end }
}

/// The batches, by reference.
pub fn references(batches: &[BatchInfo]) -> Vec<Batch> {
    batches.iter().map(reference).collect()
}

/// Makes the state machine of this member's votes, before anything is received: the machine must know all of
/// the log. `seed` is random.
///
/// # Errors
/// If the log cannot be read.
pub fn start(votes: &Votes, known: &mut Known, log: &Log, seed: u64) -> Result<Started, Error> {
    let members = known.in_force.clone();
    if members == Members::default() {
        return Ok(Started::Joins);
    }
    // Batches that are known to be committed need not be read.
    let batches = log.last_batches(known.committed, BATCHES_AT_START)?;
    if batches.is_empty() && log.shippable_lsn() > Lsn::ZERO {
        return Ok(Started::CopiesAnew);
    }
    // All batches before the first one that was read count as committed (see `BATCHES_AT_START`). The first
    // one itself does not: in a log that was copied, it can be the leader's newest. The epoch of the batch
    // before it is not known and decides nothing: votes compare last batches.
    let before = |first: &BatchInfo| Batch { number: first.number - 1, epoch: first.epoch, end: first.start };
    let committed = batches.first().filter(|first| first.number > 0).map(before);
    let batches = references(&batches);
    // The batches up to `known.committed` are committed, too. If this member did not know that when it is
    // elected, it could ship two changes of members in a row without reporting that the first change is
    // committed.
    let first_unknown = batches.partition_point(|batch| batch.end <= known.committed);
    let committed = first_unknown.checked_sub(1).map(|last| batches[last]).or(committed);
    let batches = &batches[first_unknown..];
    let is_pending = known.roster.as_ref().is_some_and(|roster| roster.members() != members);
    if is_pending && let Some(at) = recorded_at(log, known.committed)? {
        known.is_recorded_at(at);
    }
    let configured = if is_pending { committed.as_ref() } else { batches.last().or(committed.as_ref()) };
    // The log may have seen a later term in which nothing was written, such as the term of a promotion by an
    // operator.
    let (ballot, epoch) = (votes.ballot(), u64::from(log.epoch()));
    let ballot = if ballot.term >= epoch { ballot } else { Ballot { term: epoch, voted_for: None } };
    let member = Member::start(Start {
        id: votes.id(),
        is_witness: votes.is_witness(),
        members,
        configured_up_to: configured.map_or(Lsn::ZERO, |batch| batch.end),
        ballot,
        committed,
        batches,
        now_us: votes.now_us(),
        seed,
    });
    Ok(Started::Member(member.into()))
}

/// The end of the newest record of a roster in the log from the last batch before `from` on.
fn recorded_at(log: &Log, from: Lsn) -> Result<Option<Lsn>, Error> {
    let first = log.last_batches(from, BATCHES_AT_START)?.first().map_or(from, |batch| batch.start);
    let start = first.max(log.start_lsn());
    let (mut cursor, mut chains, mut newest) = (log.cursor(start), Chains::from(start), None);
    let name = format!("{OF_GROUP}{ROSTER}");
    while let CursorRead::Chunk(chunk) = cursor.read(READ_BYTES)? {
        for record in chunk.records() {
            let Some(payload) = chains.payload(&record)? else { continue };
            let mut rest = &payload[..];
            while let Ok(Some(effect)) = Effect::decode_next(&mut rest) {
                if matches!(effect, Effect::Setting { name: found, .. } if found == name.as_bytes()) {
                    newest = Some(record.lsn);
                }
            }
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_refuses_writes_long_before_a_start_would_take_its_batches_for_committed() {
        let most = UNCOMMITTED_BATCHES_MAX;
        assert!(most * 2 < BATCHES_AT_START as u64);
        assert!(!refuses_writes(u64::MAX, most - 1, 0) && refuses_writes(PATIENCE_US, most, 0));
        assert!(!refuses_writes(PATIENCE_US - 1, most, 0), "a new leader");
        assert!(!refuses_writes(999_999, 5, 1000) && refuses_writes(1_000_000, 5, 1000));
    }
}
