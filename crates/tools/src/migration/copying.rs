//! The first part of a copy: all keys of the source.

use std::{collections::HashSet, sync::Arc, time::Duration};

use recovery::offline::{ProgressBars, Stage};
use tokio::sync::mpsc;

use super::{
    Interruption, IntoServer, MigrationError, Options,
    following::End,
    keys::{self, Batch},
    left_out::LeftOut,
    source::{Position, Source, Synchronized},
    spool::Spool,
    status::Status,
    target::{Refusal, Target},
};
use crate::{counted::counted, import};

/// The period of reconnection attempts, and of acknowledgements to the source.
pub(super) const TICK_PERIOD: Duration = Duration::from_secs(1);
/// The copy fails once the transfer of the source's file has broken off this many times. One is not enough:
/// the source may have been restarted. But a source that cannot create the file breaks off every time.
const TRANSFERS_MAX: u32 = 5;
/// Maximum number of batches of commands queued between the file and the target.
const BATCHES_MAX: usize = 4;

/// A copy into a running server.
pub(super) struct Copy<'a> {
    pub(super) options: &'a Options,
    into: &'a IntoServer,
    pub(super) target: Target,
    /// Names of the target's commands, in lower case.
    pub(super) supported: HashSet<Vec<u8>>,
    left_out: LeftOut,
    pub(super) status: Status,
    pub(super) interruption: Interruption,
    keys: u64,
    /// Whether the keys of the source's file are being copied.
    is_loading: bool,
    /// The number of commands forwarded since all keys were copied.
    pub(super) forwarded: u64,
}

impl<'a> Copy<'a> {
    /// Connects to the target, which must be empty unless it may be flushed.
    pub(super) async fn open(options: &'a Options, into: &'a IntoServer) -> Result<Self, MigrationError> {
        let interruption = Interruption::new()?;
        let mut target = Target::open(&into.target).await?;
        let supported = target.command_names().await?;
        let keys = target.key_count().await?;
        if keys > 0 && !into.flushes {
            return Err(MigrationError::HoldsKeys { address: into.target.to_string(), keys });
        }
        let (left_out, status) = (LeftOut::default(), Status::new());
        Ok(Copy {
            options,
            into,
            target,
            supported,
            left_out,
            status,
            interruption,
            keys: 0,
            is_loading: false,
            forwarded: 0,
        })
    }

    /// Copies, and then follows until interrupted.
    pub(super) async fn run(mut self) -> Result<(), MigrationError> {
        loop {
            let (source, position) = self.copy_keys().await?;
            match self.follow(source, position).await? {
                End::Stopped { offset, ahead_bytes, is_whole } => {
                    self.status.finish();
                    print!("{}", self.summary(offset, ahead_bytes, is_whole));
                    return match (self.left_out.is_empty(), is_whole) {
                        (false, _) => Err(MigrationError::Incomplete),
                        (true, false) => Err(MigrationError::Behind),
                        (true, true) => Ok(()),
                    };
                }
                End::Forgotten { offset } if !self.into.flushes => {
                    return Err(MigrationError::CannotResume { offset });
                }
                End::Forgotten { .. } => {
                    self.status.note(
                        "the source no longer has the writes since the copy began: the copy starts again",
                    );
                    (self.left_out, self.forwarded) = (LeftOut::default(), 0);
                    // The old connection may have an open transaction.
                    self.target = Target::open(&self.into.target).await?;
                }
            }
        }
    }

    /// Copies all keys, in their state at the returned position.
    async fn copy_keys(&mut self) -> Result<(Source, Position), MigrationError> {
        let bars = Arc::new(ProgressBars::default());
        let copied = self.copy_keys_showing(&bars).await;
        bars.finish();
        let (source, position) = copied?;
        let (keys, offset) = (self.keys, position.offset);
        self.status.note(&format!(
            "copied {}, as at offset {offset}; the writes since then follow",
            counted(keys, "key", "keys")
        ));
        Ok((source, position))
    }

    async fn copy_keys_showing(
        &mut self,
        bars: &Arc<ProgressBars>,
    ) -> Result<(Source, Position), MigrationError> {
        let received = tokio::select! {
            received = receive(self.options, bars) => received?,
            () = self.interruption.next() => return Err(MigrationError::Interrupted { has_begun: false }),
        };
        let (mut source, position, spool) = received;
        let verified = tokio::select! {
            verified = keep_alive(&mut source, position.offset, verify(&spool, bars.clone())) => verified?,
            () = self.interruption.next() => return Err(MigrationError::Interrupted { has_begun: false }),
        };
        self.left_out = verified;
        if !self.left_out.is_empty() && !self.into.skips_unsupported {
            return Err(MigrationError::Unsupported(self.left_out.to_string().trim_end().into()));
        }
        // A separate [`Interruption`], because `load` borrows all of `self`.
        let mut interruption = Interruption::new()?;
        let loading = self.load(&spool, position.offset, bars);
        tokio::select! {
            loaded = keep_alive(&mut source, position.offset, loading) => loaded?,
            () = interruption.next() => return Err(MigrationError::Interrupted { has_begun: true }),
        }
        Ok((source, position))
    }

    /// Sends the keys of the file to the target.
    async fn load(&mut self, spool: &Spool, offset: u64, bars: &ProgressBars) -> Result<(), MigrationError> {
        if self.into.flushes {
            self.target.flush().await?;
        }
        let total = spool.file.len().map_err(MigrationError::Spool)?;
        let (sender, mut batches) = mpsc::channel::<Batch>(BATCHES_MAX);
        let file = spool.file.clone();
        let reading = tokio::task::spawn_blocking(move || keys::pass_on(file, sender));
        let mut ticks = tokio::time::interval(TICK_PERIOD);
        let mut has_ended = false;
        (self.keys, self.is_loading) = (0, true);
        while !(has_ended && self.target.is_settled()) {
            tokio::select! {
                batch = batches.recv(), if !has_ended && self.target.has_room() => match batch {
                    Some(batch) => {
                        bars.show(Stage::Importing, batch.position, total);
                        self.keys += batch.keys;
                        self.target.push_all(&batch.commands, offset);
                    }
                    None => has_ended = true,
                },
                moved = self.target.exchange() => moved.map_err(MigrationError::TargetFailed)?,
                _ = ticks.tick() => self.target.look_after().map_err(MigrationError::TargetFailed)?,
            }
            self.take_replies()?;
        }
        reading.await.map_err(std::io::Error::other)??;
        self.is_loading = false;
        Ok(())
    }

    /// Handles the received replies of the target.
    pub(super) fn take_replies(&mut self) -> Result<(), MigrationError> {
        while let Some(refusal) = self.target.next_refusal().map_err(MigrationError::TargetFailed)? {
            self.leave_out(refusal)?;
        }
        Ok(())
    }

    /// Records an omitted command, if omissions are allowed; otherwise ends the copy.
    pub(super) fn leave_out(&mut self, refusal: Refusal) -> Result<(), MigrationError> {
        let may_go_on = self.into.skips_unsupported && refusal.is_of_the_command();
        let Refusal { command, key, error, offset } = refusal;
        if !may_go_on {
            return Err(if self.is_loading {
                MigrationError::KeyRefused { command, key, error }
            } else {
                MigrationError::Refused { command, key, error, offset }
            });
        }
        if self.left_out.add(&command, 1, &key, &error) {
            self.status
                .note(&format!("left out: {command} on \"{key}\": {error}; others of this name are counted"));
        }
        Ok(())
    }

    /// The text printed at the end.
    fn summary(&self, offset: u64, ahead_bytes: Option<u64>, is_whole: bool) -> String {
        let ahead = match ahead_bytes {
            Some(0) => "the source has written nothing else".into(),
            Some(bytes) => format!("the source has written {bytes} bytes since, which are NOT here"),
            None => "the source did not say how far it is".into(),
        };
        let verdict = match (self.left_out.is_empty(), is_whole, ahead_bytes.unwrap_or(0)) {
            (false, ..) => "lacks what is listed here",
            (true, false, _) => "may lack later writes of the source",
            (true, true, 0) => "has all of it: clients can be pointed there",
            (true, true, _) => "has all that the source had when the copy was ended",
        };
        format!(
            "copied       {} from {} and {} after them\n\
             offset       {offset}; {ahead}\n\
             target       {} {verdict}\n{}",
            counted(self.keys, "key", "keys"),
            self.options.source,
            counted(self.forwarded, "write", "writes"),
            self.into.target,
            self.left_out
        )
    }
}

/// Receives the source's RDB file, and returns it with the connection on which the later writes follow.
pub(super) async fn receive(
    options: &Options,
    bars: &ProgressBars,
) -> Result<(Source, Position, Spool), MigrationError> {
    let mut started = 0;
    eprintln!("sheaf: copying from {}", options.source);
    loop {
        let before = started;
        let error = match receive_once(options, bars, &mut started).await {
            Err(MigrationError::Peer(error)) if started > before && started >= TRANSFERS_MAX => {
                return Err(MigrationError::NeverSends { times: started, error });
            }
            Err(MigrationError::Peer(error)) if started > 0 && error.passes() => error,
            ended => return ended,
        };
        eprintln!("sheaf: {error}; the copy starts again");
        tokio::time::sleep(TICK_PERIOD).await;
    }
}

async fn receive_once(
    options: &Options,
    bars: &ProgressBars,
    started: &mut u32,
) -> Result<(Source, Position, Spool), MigrationError> {
    bars.show(Stage::Waiting, 0, 0);
    let (mut source, synchronized) = Source::open(&options.source, None).await?;
    *started += 1;
    let (Synchronized::Full(position) | Synchronized::Continued(position)) = synchronized;
    let spool = Spool::create(&options.spool_dir).map_err(MigrationError::Spool)?;
    let show = |done, total: Option<u64>| match total {
        Some(total) => bars.show(Stage::Copying, done, total),
        None => bars.show(Stage::Receiving, done, 0),
    };
    source.receive_file(spool.file.clone(), show).await?;
    // A source that sends the file while creating it sends nothing more before this acknowledgement.
    source.acknowledge(position.offset).await?;
    Ok((source, position, spool))
}

/// Verifies the whole file. Returns the unsupported data in it.
async fn verify(spool: &Spool, bars: Arc<ProgressBars>) -> Result<LeftOut, MigrationError> {
    let path = spool.path().to_path_buf();
    let verifying = move || import::verify(&path, &|stage, done, total| bars.show(stage, done, total));
    let found = tokio::task::spawn_blocking(verifying).await.map_err(std::io::Error::other)??;
    let mut left_out = LeftOut::default();
    if found.refused_libraries > 0 {
        let why = found.first_refusal.as_deref().unwrap_or_default();
        left_out.add("libraries of functions", found.refused_libraries, "", why);
    }
    if found.module_data > 0 {
        left_out.add("records of modules", found.module_data, "", "there are no modules");
    }
    Ok(left_out)
}

/// Waits for `work`, and meanwhile acknowledges to the source so that it keeps the connection. A lost
/// connection is found at the next read.
async fn keep_alive<T>(source: &mut Source, offset: u64, work: impl Future<Output = T>) -> T {
    let mut ticks = tokio::time::interval(TICK_PERIOD);
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = ticks.tick() => {
                let _ = source.acknowledge(offset).await;
            }
        }
    }
}
