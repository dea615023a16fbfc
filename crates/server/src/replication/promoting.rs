//! The promotion of this server: the steps that [`replication::promote`] orders, with the threads of a
//! replica.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    thread::JoinHandle,
    time::Duration,
};

use env::{Disk, RealDisk};
use lsn::Lsn;
use replication::{Led, Promotion, promote};
use storage::{Chains, Log, Mirror};

use super::{
    NOT_WHILE_HANDING_OVER, Node,
    follower::{Following, Threads},
    full_copy,
    orders::{NOT_ITS_TURN, TURN_MS},
};

impl Node {
    /// Promotes this server: it stops following, if it follows, and takes writes.
    ///
    /// # Errors
    /// If this server cannot lead. If it followed before, it then follows again, unless its threads have
    /// failed or its epoch has begun. Once its epoch has begun, it follows nobody, and the caller can try
    /// again. If an earlier change of the role waits for the disk, nothing is changed.
    pub(super) fn promote(self: &Arc<Self>) -> Result<Led, String> {
        let turn = Duration::from_millis(TURN_MS);
        let _one_at_a_time = self.promotion.try_lock_for(turn).ok_or(NOT_ITS_TURN)?;
        // A change of the role that is being written to the disk comes first, because this server may be
        // about to follow.
        drop(self.standing.try_lock_for(turn).ok_or(NOT_ITS_TURN)?);
        let log = self.log().ok_or("ERR this server is starting")?;
        if self.handover.lock().is_some() {
            return Err(NOT_WHILE_HANDING_OVER.into());
        }
        if !self.is_read_only.load(SeqCst) {
            return Ok(Led::Now);
        }
        let taken = {
            let mut following = self.following.lock();
            following.as_mut().and_then(|(following, threads)| Some((following.clone(), threads.take()?)))
        };
        if taken.is_none() && log.is_mirror() {
            return Err("ERR an earlier promotion of this server has failed: restart it and try again".into());
        }
        let mut promoting =
            Promoting { node: self, log, taken, epoch: None, applier: None, mirror: None, chains: None };
        match promote(&mut promoting) {
            Ok(Led::Now) => {}
            Ok(Led::AfterRestart) => {
                self.is_restarting.store(true, SeqCst);
                return Ok(Led::AfterRestart);
            }
            Err(reason) => {
                promoting.follow_again();
                return Err(reason);
            }
        }
        if let Some(act) = self.before_leading.get() {
            act();
        }
        self.begin_to_count_acks(log);
        // From here on, acknowledgements of replicas determine the commit position.
        *self.following.lock() = None;
        // The check is made here, so that a client that sees a leader also gets the right answer about
        // missing replicas.
        self.look_for_replicas();
        self.change_role_here(|role| role.open());
        if let Err(error) = full_copy::discard(&RealDisk as &dyn Disk, &self.dir) {
            tracing::warn!(target: "replication", %error, "cannot remove the copy of a leader's data");
        }
        Ok(Led::Now)
    }
}

impl Node {
    /// Whether a promotion or a demotion is under way.
    pub(crate) fn is_being_promoted(&self) -> bool {
        self.promotion.is_locked()
    }

    /// Leads the group in `term`, to which its votes have elected this server.
    ///
    /// # Errors
    /// If this server cannot lead, or another member leads by now. The server must then restart.
    pub(crate) fn lead_in_group(self: &Arc<Self>, term: u64) -> Result<(), String> {
        let _one_at_a_time = self.promotion.lock();
        let (log, votes) = (self.log().ok_or("this server is starting")?, self.votes().ok_or("no group")?);
        let taken = {
            let mut following = self.following.lock();
            following.as_mut().and_then(|(following, threads)| Some((following.clone(), threads.take()?)))
        };
        if taken.is_none() {
            return Err("an earlier promotion of this server has failed".into());
        }
        let epoch = u32::try_from(term).map_err(|_| "no epoch is left")?;
        let mut promoting = Promoting {
            node: self,
            log,
            taken,
            epoch: Some(epoch),
            applier: None,
            mirror: None,
            chains: None,
        };
        promote(&mut promoting)?;
        *self.mirror.lock() = promoting.mirror.take();
        if let Some(act) = self.before_leading.get() {
            act();
        }
        // The log counts as committed only once a batch of this term is committed.
        log.set_acked(Lsn::ZERO);
        self.has_led.store(true, SeqCst);
        log.mark_epoch().map_err(Promoting::failed)?;
        *self.following.lock() = None;
        // A witness has nothing to show, and takes no writes.
        let open = || {
            if !votes.is_witness() {
                self.change_role_here(|role| role.open())
            }
        };
        if !votes.open(term, open) {
            return Err("another member leads by now".into());
        }
        self.acked();
        if let Err(error) = full_copy::discard(&RealDisk as &dyn Disk, &self.dir) {
            tracing::warn!(target: "replication", %error, "cannot remove the copy of a leader's data");
        }
        Ok(())
    }
}

/// The steps of a promotion, with the threads of a replica.
struct Promoting<'n> {
    node: &'n Arc<Node>,
    log: &'n Log,
    /// The link and the applier; `None` for a server that follows nobody, for example because it was fenced.
    taken: Option<(Arc<Following>, Threads)>,
    /// The epoch that the votes have given to this server; `None`: the promotion chooses one.
    epoch: Option<u32>,
    /// The applier of received batches.
    applier: Option<(Arc<Following>, JoinHandle<Option<Chains>>)>,
    /// The incomplete payloads at the end of the applied log.
    chains: Option<Chains>,
    /// The right to append.
    mirror: Option<Mirror>,
}

impl Promoting<'_> {
    fn failed(error: storage::Error) -> String {
        format!("ERR cannot lead: {error}")
    }

    /// Follows again after a failed step, if the log is still a mirror. Everything received is applied first,
    /// as the promotion would have done.
    fn follow_again(mut self) {
        if let Some((following, apply)) = self.applier.take() {
            following.drain(self.log);
            self.chains = apply.join().ok().flatten();
        }
        // The parts stay locked until the threads are known, because a stop of the server clears the parts
        // and then ends the threads.
        let parts = self.node.following_parts.lock();
        let (Some(mirror), Some(chains), Some(parts)) = (self.mirror.take(), self.chains.take(), &*parts)
        else {
            return;
        };
        if !self.log.is_mirror() {
            return;
        }
        match parts.begin(self.node, mirror, chains) {
            Ok(begun) => *self.node.following.lock() = Some(begun),
            Err(error) => {
                tracing::error!(target: "replication", %error, "cannot follow again: restart this server");
            }
        }
    }
}

impl Promotion for Promoting<'_> {
    type Error = String;

    fn end_link(&mut self) -> Result<Option<Lsn>, String> {
        let Some((following, Threads { link, apply })) = self.taken.take() else { return Ok(None) };
        following.stop();
        let mirror = link.join().map_err(|_| "ERR the link to the leader has failed")?;
        if self.node.is_restarting() {
            return Err("ERR this server is restarting, try again".into());
        }
        let end = mirror.position();
        (self.mirror, self.applier) = (Some(mirror), Some((following, apply)));
        Ok(Some(end))
    }

    fn make_durable(&mut self, end: Lsn) -> Result<(), String> {
        self.log.make_durable(end).map_err(Self::failed)
    }

    fn apply_all(&mut self, end: Lsn) -> Result<(), String> {
        let Some((following, apply)) = self.applier.take() else { return Ok(()) };
        following.drain(self.log);
        self.chains = apply.join().ok().flatten();
        if self.chains.is_none() || following.applied() < end {
            return Err("ERR the received log cannot be applied, see the server's log".into());
        }
        Ok(())
    }

    fn begin_epoch(&mut self) -> Result<(), String> {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        let epoch = self.node.writes.during(|| match self.epoch {
            Some(epoch) => mirror.promote_in(epoch).map(|()| epoch),
            None => mirror.promote(),
        });
        let epoch = epoch.map_err(Self::failed)?;
        tracing::info!(target: "replication", epoch, at = mirror.position().get(), "this server leads now");
        Ok(())
    }

    fn stop_following(&mut self) -> Result<u32, String> {
        self.node.change_role(|role| (role.lead(), true)).map_err(|error| format!("ERR {error}"))
    }

    fn outbid(&mut self, epoch: u32) -> Result<(), String> {
        // Once this has succeeded, the other leader no longer fences this server. This server restarts, and
        // then leads.
        self.node.writes.during(|| self.log.outbid_epoch(epoch)).map_err(Self::failed)
    }
}
