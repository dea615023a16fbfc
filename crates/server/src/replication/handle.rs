//! Replication as commands see it: implements [`engine::replication::Replication`].

use std::sync::{Arc, atomic::Ordering::SeqCst};

use engine::{
    Responder,
    replication::{
        Address, Failover, Followed, Link, READ_ONLY, Replication, Role, TOO_FEW_REPLICAS, Wanted,
    },
};
use lsn::Lsn;
use replication::{Follow, Led, LogHistory, join};

use super::{Node, failover, waits::Awaited};

/// The interface for commands. Holds an `Arc`, because some operations outlive the command.
pub(crate) struct ReplicationHandle(pub(crate) Arc<Node>);

impl Replication for ReplicationHandle {
    fn is_read_only(&self) -> bool {
        self.0.is_read_only.load(SeqCst)
    }

    fn refuses_writes(&self) -> Option<&'static str> {
        if self.is_read_only() {
            Some(READ_ONLY)
        } else if self.0.lacks_replicas.load(SeqCst) {
            Some(TOO_FEW_REPLICAS)
        } else {
            None
        }
    }

    fn is_stale(&self) -> bool {
        self.0.is_stale()
    }

    fn role(&self) -> Role {
        let node = &self.0;
        match node.leader_address() {
            None => Role::Leader {
                end: node.durable_lsn(),
                replicas: node.leader.replicas().into_iter().map(Into::into).collect(),
            },
            Some(leader) => {
                let following = node.following();
                Role::Replica {
                    leader,
                    link: following.as_ref().map_or(Link::Connect, |following| following.link()),
                    applied: following.map_or(Lsn::ZERO, |following| following.applied()),
                }
            }
        }
    }

    fn follow(&self, leader: Address) -> Result<Followed, String> {
        let node = &self.0;
        if node.own.get().is_some_and(|own| own.include(&leader)) {
            return Err(format!("ERR {leader} is this server itself"));
        }
        let (follow, remembered) = node.change_role(|role| {
            let follow = role.follow(leader.clone());
            (follow, follow != Follow::Already)
        });
        if follow == Follow::Already {
            return Ok(Followed::Already);
        }
        tracing::info!(target: "replication", %leader, "this server is to follow another");
        remembered.map_err(|error| format!("ERR {error}"))?;
        match node.following() {
            Some(following) if follow == Follow::Reconnect => following.reconnect(),
            _ => node.request_restart(),
        }
        Ok(Followed::Begun)
    }

    fn lead(&self, responder: Responder) {
        let node = self.0.clone();
        let run = move || {
            let led = node.promote();
            if let Err(reason) = &led {
                tracing::error!(target: "replication", reason, "this server cannot lead");
            }
            responder.keep(led.as_ref().map(drop).map_err(String::clone));
            // The client is answered before the restart closes connections.
            if led == Ok(Led::AfterRestart) {
                node.request_restart();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("promotion".into()).spawn(run) {
            tracing::error!(target: "replication", %error, "cannot start a thread");
        }
    }

    fn fail_over(&self, failover: Failover) -> Result<(), String> {
        failover::begin(&self.0, failover)
    }

    fn abort_failover(&self) -> Result<(), String> {
        failover::abort(&self.0)
    }

    fn disconnect_replicas(&self) -> usize {
        self.0.leader.disconnect()
    }

    fn durable_lsn(&self) -> Lsn {
        self.0.durable_lsn()
    }

    fn shown_lsn(&self) -> Lsn {
        self.0.shown_lsn()
    }

    fn count_flushed(&self, lsn: Lsn) -> usize {
        self.0.count_flushed(lsn)
    }

    fn wait_flushed(&self, wanted: Wanted, responder: Responder) {
        let node = &self.0;
        if wanted.local
            && wanted.lsn > node.durable_lsn()
            && let (Some(log), Some(runtime)) = (node.log(), node.runtime.get())
        {
            // With a durability that syncs on a timer, the sync is made now.
            let (log, node) = (log.clone(), node.clone());
            runtime.spawn_blocking(move || {
                let _ = log.make_durable(wanted.lsn);
                node.settle_waits();
            });
        }
        node.wait(Awaited::Flushed(wanted), wanted.timeout_ms, responder);
    }

    fn wait_applied(&self, lsn: Lsn, timeout_ms: Option<u64>, responder: Responder) {
        self.0.wait(Awaited::Shown(lsn), timeout_ms, responder);
    }

    fn newest_common(&self, marks: &[&[u8]]) -> Result<Option<Lsn>, String> {
        let marks = join::parse_marks(marks).ok_or("ERR no arguments of REPLICATE MARKS")?;
        let log = self.0.log().ok_or("LOADING this server is starting")?;
        join::newest_common(&marks, &LogHistory(log)).map_err(|error| format!("ERR {error}"))
    }
}
