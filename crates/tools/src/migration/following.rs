//! The second part of a copy: forwards the source's writes until the user ends it.

use super::{
    MigrationError,
    copying::{Copy, TICK_PERIOD},
    peer::PeerError,
    source::{Position, Source, Synchronized},
    status::Progress,
    stream::{Received, Stream},
    target::Refusal,
    watch::{PollResults, Watch},
};

/// Seconds of silence after which the source is considered lost; a master sends something every ten seconds.
const SILENT_TICKS_MAX: u32 = 60;
/// Seconds to wait, once the user has ended the copy, for the writes that the source has already made.
const STOP_TICKS_MAX: u32 = 10;

/// Why following ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The user ended the copy.
    Stopped {
        /// The target has everything up to this offset.
        offset: u64,
        /// Bytes that the source has written since, if known.
        ahead_bytes: Option<u64>,
        /// Whether this is all that the source had when the user ended the copy, as far as is known.
        is_whole: bool,
    },
    /// The source no longer has the writes after this offset.
    Forgotten {
        /// The offset up to which the copy has the writes.
        offset: u64,
    },
}

struct Following {
    stream: Stream,
    watch: Watch,
    /// Whether the source has requested an acknowledgement.
    is_ack_wanted: bool,
    was_in_sync: bool,
    /// Set once the user has ended the copy: the number of offset queries to the source by then, and the
    /// seconds since.
    stop: Option<(u64, u32)>,
}

impl Following {
    /// Whether there is nothing more to wait for.
    fn has_reached_its_end(&self) -> bool {
        self.stop.is_some_and(|(_, ticks)| ticks >= STOP_TICKS_MAX) || self.has_everything()
    }

    /// Whether everything that the source had when the user ended the copy has been received. If the source
    /// does not report its offset, everything counts as received.
    fn has_everything(&self) -> bool {
        let Some((asked, _)) = self.stop else { return false };
        let PollResults { times, offset } = self.watch.seen();
        // The source may have sent the first reply before the user's stop, although it arrived later. The
        // second reply answers a query made after the stop.
        times >= asked + 2 && offset.is_none_or(|goal| self.stream.boundary() >= goal)
    }
}

impl Copy<'_> {
    /// Forwards the writes after a position.
    pub(super) async fn follow(
        &mut self,
        mut source: Source,
        mut position: Position,
    ) -> Result<End, MigrationError> {
        let mut following = Following {
            stream: Stream::new(position.offset, self.supported.clone()),
            watch: Watch::start(self.options.source.clone()),
            is_ack_wanted: false,
            was_in_sync: false,
            stop: None,
        };
        loop {
            match self.forward_all(&mut source, &mut following).await? {
                None => break,
                Some(lost) => self.status.note(&format!("{lost}; trying again every second")),
            }
            following.stream.interrupt();
            position.offset = following.stream.offset();
            let again = tokio::select! {
                again = reconnect(self.options, &position) => again?,
                () = self.interruption.next() => break,
            };
            match again {
                (_, Synchronized::Full(_)) => return Ok(End::Forgotten { offset: position.offset }),
                (connected, Synchronized::Continued(at)) => (source, position) = (connected, at),
            }
            self.status.note(&format!("connected again, going on behind offset {}", position.offset));
        }
        self.settle().await?;
        let offset = following.stream.boundary();
        let ahead_bytes = following.watch.seen().offset.map(|source| source.saturating_sub(offset));
        let is_whole = following.has_everything();
        Ok(End::Stopped { offset, ahead_bytes, is_whole })
    }

    /// Waits until the target has answered everything.
    async fn settle(&mut self) -> Result<(), MigrationError> {
        let mut ticks = tokio::time::interval(TICK_PERIOD);
        while !self.target.is_settled() {
            tokio::select! {
                moved = self.target.exchange() => moved.map_err(MigrationError::TargetFailed)?,
                _ = ticks.tick() => self.target.look_after().map_err(MigrationError::TargetFailed)?,
            }
            self.take_replies()?;
        }
        Ok(())
    }

    /// Forwards the writes from one connection, until it is lost (returns the error) or the end is reached
    /// (`None`).
    async fn forward_all(
        &mut self,
        source: &mut Source,
        following: &mut Following,
    ) -> Result<Option<PeerError>, MigrationError> {
        let mut ticks = tokio::time::interval(TICK_PERIOD);
        let mut silent_ticks = 0;
        loop {
            self.take_replies()?;
            self.forward(source, following)?;
            if self.target.is_settled() && following.has_reached_its_end() {
                return Ok(None);
            }
            let applied = self.applied(following);
            if following.is_ack_wanted && self.target.is_settled() {
                following.is_ack_wanted = false;
                if let Err(lost) = source.acknowledge(applied).await {
                    return Ok(Some(lost));
                }
            }
            tokio::select! {
                received = source.peer.receive(), if self.target.has_room() => match received {
                    Ok(()) => silent_ticks = 0,
                    Err(lost) => return Ok(Some(lost)),
                },
                moved = self.target.exchange() => moved.map_err(MigrationError::TargetFailed)?,
                () = following.watch.changed() => self.tell_when_in_sync(following),
                _ = ticks.tick() => {
                    // While the target has no room, the source is not read and so appears silent.
                    silent_ticks = if self.target.has_room() { silent_ticks + 1 } else { 0 };
                    if silent_ticks > SILENT_TICKS_MAX {
                        return Ok(Some(source.peer.lost("it says nothing")));
                    }
                    if let Err(lost) = source.acknowledge(applied).await {
                        return Ok(Some(lost));
                    }
                    self.target.look_after().map_err(MigrationError::TargetFailed)?;
                    self.tick(following);
                }
                () = self.interruption.next() => match following.stop {
                    Some(_) => return Ok(None),
                    None => {
                        following.stop = Some((following.watch.seen().times, 0));
                        following.watch.ask_now();
                        self.status.note("finishing: copying the writes that the source has already; Ctrl-C again to stop at once");
                    }
                },
            }
        }
    }

    /// Forwards received writes, as far as the target has room.
    fn forward(&mut self, source: &mut Source, following: &mut Following) -> Result<(), MigrationError> {
        while self.target.has_room() {
            let (target, is_ack_wanted) = (&mut self.target, &mut following.is_ack_wanted);
            let (mut forwarded, mut unsupported) = (0, Vec::new());
            let taken = following.stream.take(source.peer.buffer(), |received| match received {
                Received::Write { bytes, offset } => {
                    target.push(bytes, offset);
                    forwarded += 1;
                }
                Received::AckWanted => *is_ack_wanted = true,
                Received::Unsupported { name, key } => unsupported.push((name, key)),
            });
            let taken = taken.map_err(MigrationError::Stream)?;
            source.peer.take(taken);
            self.forwarded += forwarded;
            for (command, key) in unsupported {
                let (error, offset) = ("ERR unknown command".into(), self.target.applied());
                self.leave_out(Refusal { command, key, error, offset })?;
            }
            if taken == 0 {
                break;
            }
        }
        Ok(())
    }

    /// The offset up to which the target has applied the writes.
    fn applied(&self, following: &Following) -> u64 {
        if self.target.is_settled() { following.stream.boundary() } else { self.target.applied() }
    }

    fn lag_bytes(&self, following: &Following) -> Option<u64> {
        following.watch.seen().offset.map(|offset| offset.saturating_sub(self.applied(following)))
    }

    fn tick(&mut self, following: &mut Following) {
        if let Some((_, ticks)) = &mut following.stop {
            *ticks += 1;
        }
        self.tell_when_in_sync(following);
        let (offset, lag_bytes) = (self.applied(following), self.lag_bytes(following));
        self.status.show(Progress { offset, lag_bytes, commands: self.forwarded });
    }

    /// Prints that the copy is in sync, once.
    fn tell_when_in_sync(&mut self, following: &mut Following) {
        if !following.was_in_sync && self.lag_bytes(following) == Some(0) {
            following.was_in_sync = true;
            let offset = self.applied(following);
            self.status.note(&format!(
                "in sync at offset {offset}, and following. To move over: stop what writes to the source, press Ctrl-C, \
                 point the clients at the target"
            ));
        }
    }
}

/// Tries once a second to connect again.
async fn reconnect(
    options: &super::Options,
    position: &Position,
) -> Result<(Source, Synchronized), MigrationError> {
    loop {
        tokio::time::sleep(TICK_PERIOD).await;
        match Source::open(&options.source, Some(position)).await {
            Err(error) if error.passes() => {}
            ended => return Ok(ended?),
        }
    }
}
