//! Recovery within a server: on threads of its own, with progress in the server's log and on the terminal.

use std::{sync::Arc, time::Duration};

use couch::Feeds;
use documents::{Documents, Listener, mango::Indexes};
use env::{Disk, RealClock, RealEntropy, thread::run_nice};
use recovery::{
    opening,
    progress::LoadProgress,
    progress_bar::ProgressBar,
    recover::{Mode, RecoverError, Source, recover, recover_mirror, recover_witness},
};
use settings::Key;
use storage::{Chains, Durability, Log, LogOptions, Mirror};
use tree::NodeCache;

use super::{Process, ServeError};
use crate::{logging::rounded, parts::Parts, replication::JOINING_NICE};

/// The period at which a long recovery reports its progress in the server's log.
const REPORT_PERIOD: Duration = Duration::from_secs(2);
/// The period at which a recovery shows its progress on a terminal.
const SHOW_PERIOD: Duration = Duration::from_millis(200);
/// The memory for cached nodes of indexes of document databases.
const INDEX_CACHE_BYTES: u64 = 32 << 20;

/// Recovers on threads of its own and reports progress. The calling thread meanwhile continues to answer
/// probes.
pub(super) async fn recover_in_background(
    parts: &Arc<Parts>,
    process: &Process,
    mode: Mode,
    feeds: Arc<Feeds>,
) -> Result<(Log, Option<(Mirror, Chains)>, Arc<Documents>), ServeError> {
    let (recovering, dir) = (parts.clone(), process.dir.clone());
    let disk: Arc<dyn Disk> = Arc::new(process.disk.clone());
    let options = {
        let settings = parts.config.current();
        LogOptions {
            durability: Durability::parse(settings.text(Key::Durability)).expect("the table lists the names"),
            segment_bytes: settings.integer(Key::LogSegmentBytes),
            ..LogOptions::default()
        }
        .fitting()
    };
    let mut recovery = tokio::task::spawn_blocking(move || {
        let listener: Listener = Arc::new(move |notice| feeds.notify(&notice));
        let documents = opening::open(disk.clone(), &dir, Arc::new(RealEntropy), None, listener)?;
        let source = Source {
            disk,
            dir: &dir,
            options,
            clock: Arc::new(RealClock),
            entropy: &RealEntropy,
            appliers: env::process::cores_available(),
            mode,
            documents: Some(&documents),
        };
        let (keyspace, progress) = (&recovering.data.keyspace, &recovering.progress);
        if recovering.node.is_witness() {
            let (log, mirror) = recover_witness(source, keyspace, progress)?;
            let chains = Chains::from(log.appended_lsn());
            return Ok((log, Some((mirror, chains)), Arc::new(documents)));
        }
        if recovering.node.is_replica() {
            let recover = || recover_mirror(source, keyspace, progress);
            let recovered = run_nice("recovery", JOINING_NICE, recover).map_err(RecoverError::Thread)?;
            let (log, mirror, chains) = recovered?;
            return Ok::<_, RecoverError>((log, Some((mirror, chains)), Arc::new(documents)));
        }
        let log = recover(source, keyspace, progress)?;
        Ok((log, None, Arc::new(documents)))
    });
    let mut period = tokio::time::interval_at(tokio::time::Instant::now() + REPORT_PERIOD, REPORT_PERIOD);
    let mut frames = tokio::time::interval(SHOW_PERIOD);
    let bar = ProgressBar::new("recovering");
    loop {
        tokio::select! {
            recovered = &mut recovery => {
                bar.finish();
                return Ok(recovered.expect("recovery does not panic; if it does, the server must not start")?);
            }
            _ = period.tick() => report(&parts.progress),
            _ = frames.tick() => {
                let (done, total) = parts.progress.bytes();
                bar.show(done, total);
            }
        }
    }
}

fn report(progress: &LoadProgress) {
    if let Some(loading) = progress.loading() {
        let (snapshot_keys, replayed_records) = (progress.rows(), progress.records());
        let rate = (snapshot_keys + replayed_records) as f64 / progress.seconds().max(1e-6);
        let eta_seconds = loading.eta_seconds.map(|seconds| rounded(seconds, 1));
        tracing::info!(
            target: "server", percent = rounded(loading.percent, 1), snapshot_keys, replayed_records,
            per_second = rate as u64, eta_seconds, "recovering"
        );
    }
}

/// Opens the indexes of the document databases. Indexes can be rebuilt from the databases, so they have a
/// directory of their own, which may be removed while no server runs.
pub(super) fn open_indexes(process: &Process, documents: &Documents) -> Result<Indexes, ServeError> {
    let all = documents.all();
    let databases: Vec<_> =
        all.iter().map(|database| (database.id(), database.snapshot().last_lsn())).collect();
    let (cache, dir) = (NodeCache::new(INDEX_CACHE_BYTES), opening::indexes_directory(&process.dir));
    let opened = Indexes::open(Arc::new(process.disk.clone()), Arc::new(RealEntropy), cache, dir, &databases);
    opened.map_err(|error| ServeError::Indexes(error.to_string()))
}
