//! Verifies the copied data as recovery would read it, before it becomes the backup.
//!
//! Data of the earlier backup was verified when it was copied, and compared with its checksums now. The
//! earlier data is read again only if the new data cannot be verified alone. All snapshots are read if one of
//! their files is new, and the whole log if one of its earlier segments had to be copied again, or the server
//! offers none of them.

use std::{cell::Cell, ops::ControlFlow, path::Path, sync::Arc};

use env::Disk;
use lsn::Lsn;
use recovery::offline::Stage;
use storage::snapshot;

use super::{Copying, Step, names::is_of_log, os};
use crate::{Manifest, Offer, chain_digits, fetch::BackupError, view::BackupView};

impl Copying<'_> {
    /// Reads all new data, and earlier data where the new data needs it, as recovery would.
    pub(super) fn verify(
        &self,
        offer: &Offer,
        steps: &[Step<'_>],
        manifest: &Manifest,
        before: Option<&Manifest>,
    ) -> Result<(), BackupError> {
        let view: Arc<dyn Disk> = Arc::new(BackupView::new(self.disk.clone(), self.dir, manifest));
        let ended = Cell::new(None);
        let watch = |done, total| match (self.show)(Stage::Verifying, done, total) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                ended.set(Some(error));
                ControlFlow::Break(())
            }
        };
        let is_kept = |step: &Step<'_>| step.kept() == step.offered.bytes;
        let in_snapshots = snapshot::directory(Path::new(""));
        let has_snapshot =
            steps.iter().filter(|step| Path::new(&step.offered.name).starts_with(&in_snapshots)).all(is_kept);
        let check_snapshots = || match has_snapshot {
            true => Ok(()),
            false => snapshot::check(&*view, self.dir, watch)?
                .into_iter()
                .try_for_each(|snapshot| snapshot.outcome.map(drop)),
        };
        let begin = Lsn::new(offer.begin_lsn);
        let check_log = || {
            let from = self.log_kept_to(steps, before).filter(|&from| from > begin);
            let watch = |position: Lsn, end: Lsn| {
                let from = from.unwrap_or(begin);
                watch(position.bytes_since(from), end.bytes_since(from))
            };
            match from {
                Some(from) => storage::check_behind(view.clone(), self.dir, from, watch),
                None => storage::check(view.clone(), self.dir, watch),
            }
        };
        let checked = check_snapshots().and_then(|()| check_log());
        if let Some(error) = ended.take() {
            return Err(error);
        }
        match checked {
            Ok(log) if log.tail.end.get() == offer.end_lsn => {
                let copied = log.end_chain.map(chain_digits);
                if offer.end_chain.is_some() && copied != offer.end_chain {
                    let reason = "the log that was copied is not that of the server".into();
                    return Err(BackupError::Unverified(reason));
                }
                self.verify_documents(&*view, steps)
            }
            Ok(log) => {
                let (end, wanted) = (log.tail.end, offer.end_lsn);
                Err(BackupError::Unverified(format!("the log ends at lsn {end}, lsn {wanted} was offered")))
            }
            Err(error) => {
                let path = match &error {
                    storage::Error::Corrupt(damage) => damage.path.clone(),
                    storage::Error::SnapshotCorrupt(damage) => damage.path.clone(),
                    storage::Error::Inconsistent { path, .. } => path.clone(),
                    _ => return Err(BackupError::Unverified(error.to_string())),
                };
                let of_path = |step: &&Step<'_>| self.dir.join(&step.offered.name) == path;
                steps.iter().find(of_path).map_or(Ok(()), |step| self.forget(step))?;
                Err(BackupError::Damaged(error))
            }
        }
    }

    /// The end of the earlier backup's log, if the server still offers some of its segments, and all of those
    /// are reused.
    fn log_kept_to(&self, steps: &[Step<'_>], before: Option<&Manifest>) -> Option<Lsn> {
        let before = before?;
        let was_there =
            |step: &&Step<'_>| is_of_log(&step.offered.name) && before.file(&step.offered.name).is_some();
        let mut earlier = steps.iter().filter(was_there).peekable();
        earlier.peek()?;
        earlier.all(|step| step.kept() > 0).then_some(Lsn::new(before.end_lsn))
    }

    /// Verifies the document files, except for the bytes reused from the earlier backup. If one is damaged,
    /// the new data of all of them is removed.
    fn verify_documents(&self, view: &dyn Disk, steps: &[Step<'_>]) -> Result<(), BackupError> {
        let (mut first, mut stopped) = (None, None);
        let below = documents::directory(Path::new(""));
        let kept = |name: &str| {
            let name = below.join(name);
            steps.iter().find(|step| Path::new(&step.offered.name) == name).map_or(0, Step::kept)
        };
        let checked = documents::check_behind(
            view,
            &documents::directory(self.dir),
            kept,
            |what| _ = first.get_or_insert(what),
            |done, total| {
                if let Err(error) = (self.show)(Stage::Verifying, done, total) {
                    stopped.get_or_insert(error);
                }
            },
        );
        if let Some(error) = stopped {
            return Err(error);
        }
        let damage = first.or_else(|| checked.err().map(|error| error.to_string()));
        let Some(what) = damage else { return Ok(()) };
        let of_documents = |step: &&Step<'_>| Path::new(&step.offered.name).starts_with(&below);
        steps.iter().filter(of_documents).try_for_each(|step| self.forget(step))?;
        Err(BackupError::Unverified(format!(
            "the copied documents are damaged: {what}. Run the same command again to copy them again"
        )))
    }

    /// Removes the newly copied data of a file, so that the next run copies it again.
    fn forget(&self, step: &Step<'_>) -> Result<(), BackupError> {
        let path = self.dir.join(step.stored());
        match step.kept() {
            0 => self.remove_if_present(&path),
            kept => self.open(step.stored())?.set_len(kept).map_err(os("cut", &path)),
        }
    }
}
