//! `sheaf serve`: from settings to a running server, and its end.
//!
//! ```text
//! lock the directory -> listen -> an incarnation -> perhaps another -> unlock
//! incarnation: prepare the directory -> start workers (LOADING) -> recover -> attach the log -> ready
//! its end: no more connections -> workers send durable replies -> perhaps a snapshot -> the log is closed
//! ```
//!
//! An incarnation usually ends with the process. A leader that becomes a replica, and a replica whose log has
//! to be cut or replaced, need an empty memory: another incarnation begins, on the same ports, with the
//! present settings. Clients reconnect.
//!
//! Invariants
//! - Only the lock, the ports and the settings outlive an incarnation.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use couch::{Feeds, Store};
use documents::{Documents, Listener, StoreError, mango::Indexes};
use engine::observe::LatencyEvent;
use env::{
    Clock, DirLock, Disk, Entropy, HeldDisk, LockLost, RealClock, RealDisk, RealEntropy, thread::run_nice,
};
use keyspace::DbId;
use lsn::Lsn;
use parking_lot::Mutex;
use recovery::{
    data_directory::{Foreign, refuse_foreign},
    progress::LoadProgress,
    recover::{Mode, RecoverError, Source, recover, recover_mirror},
    replay::Replayer,
    unfinished::{Unfinished, refuse_unfinished},
};
use settings::{Key, Lasting, Settings};
use storage::{Chains, Cut, Durability, Log, LogOptions, Mirror, cut_log};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tree::NodeCache;

use crate::{
    banner::Banner,
    config::{ClientsMax, Config},
    documents::Saver,
    http::Http,
    listen,
    log_threads::LogThreads,
    logging,
    mailbox::{Mailbox, Message},
    parts::{Parts, StartupInfo},
    reaper::Reaper,
    replication::{JOINING_NICE, Node, full_copy},
    snapshots::AtStop,
    stop::Stop,
    worker,
};

/// Exit status when the log failed (EX_IOERR).
pub const EXIT_LOG_FAILED: i32 = 74;
/// Exit status when the data directory or its lock file was moved, replaced or removed (EX_NOINPUT).
pub const EXIT_DIRECTORY_LOST: i32 = 66;
/// How often an idle server looks whether its directory is still there.
const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// How long workers may take to answer waiting clients after the log has failed.
const FAIL_GRACE: Duration = Duration::from_secs(2);
/// How long replies may take to leave when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// How often a long recovery reports in the log.
const REPORT_PERIOD: Duration = Duration::from_secs(2);
/// And on a terminal.
const SHOW_PERIOD: Duration = Duration::from_millis(200);
/// Memory for nodes of indexes of document databases.
const INDEX_CACHE_BYTES: u64 = 32 << 20;
/// How long pages that nothing uses are kept. Documents are in memory for a second or two, until they are
/// saved; with the 10 ms of the allocator, a tenth of the CPU time of `_bulk_docs` went into getting the same
/// memory again.
const UNUSED_KEPT_MS: u16 = 250;
/// Workers by default, where there is only one core: the second one takes connections while the first one is
/// at something.
const WORKERS_MIN: usize = 2;

/// Why the server did not start or had to stop; the message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another server uses the directory, or it cannot be locked.
    #[error(transparent)]
    Lock(#[from] env::LockError),
    /// The directory is not for a server.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// An address, thread or runtime was refused by the OS.
    #[error(transparent)]
    Os(#[from] std::io::Error),
    /// An import into the directory was interrupted.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// The directory is a backup.
    #[error(transparent)]
    Backup(#[from] backup::ManifestError),
    /// The directory of the indexes of document databases cannot be used.
    #[error("the indexes of documents: {0}")]
    Indexes(String),
    /// The log cannot be recovered.
    #[error("{0}{hint}", hint = .0.last_resort())]
    Recover(#[from] RecoverError),
    /// The log could not be closed in order; everything acknowledged is durable all the same.
    #[error("cannot close the log: {0}")]
    Close(storage::Error),
}

/// Runs a server until it is told to stop.
///
/// # Errors
/// See [`ServeError`].
pub fn serve(settings: Settings, lasting: Lasting, mode: Mode) -> Result<(), ServeError> {
    logging::start(&settings);
    lasting.report();
    env::allocator::keep_unused_for_ms(UNUSED_KEPT_MS);
    let process = Process::begin(&settings, lasting)?;
    let mut next = Next { settings, mode, diverged_at: None, is_first: true };
    loop {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ended = runtime.block_on(live(&process, next));
        // A copy of files that still runs finds them removed, not changed.
        runtime.shutdown_timeout(FAIL_GRACE);
        next = match ended? {
            Some(next) => next,
            None => return Ok(()),
        };
        tracing::info!(target: "server", "restarting within the process, for replication");
    }
}

/// The state shared by all incarnations of a process.
struct Process {
    dir: PathBuf,
    lasting: Arc<Mutex<Lasting>>,
    run_id: String,
    started_unix_ms: u64,
    redis: Vec<std::net::TcpListener>,
    http: Vec<std::net::TcpListener>,
    disk: HeldDisk,
}

/// The beginning of an incarnation.
struct Next {
    settings: Settings,
    mode: Mode,
    /// Where the log is to be cut.
    diverged_at: Option<Lsn>,
    /// Whether settings given at the start may be new to the data.
    is_first: bool,
}

impl Process {
    fn begin(settings: &Settings, lasting: Lasting) -> Result<Process, ServeError> {
        let dir = PathBuf::from(settings.text(Key::Dir));
        refuse_foreign(&dir, lasting.config_file())?;
        let disk = HeldDisk::new(lock(&dir)?);
        refuse_unfinished(&RealDisk, &dir)?;
        backup::refuse_backup(&RealDisk, &dir)?;
        fit_clients(settings);
        let (bind, backlog) = (settings.text(Key::Bind), settings.integer(Key::TcpBacklog) as u32);
        // Sockets are made within a runtime, and outlive it.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let _entered = runtime.enter();
        // From here on it does not end the process.
        let _ = signal(SignalKind::hangup());
        let redis = listen::bind(bind, settings.integer(Key::Port) as u16, backlog)?;
        let http = listen::bind(bind, settings.integer(Key::HttpPort) as u16, backlog)?;
        warn_of_open_door(settings, &redis);
        let run_id = (0..3).map(|_| format!("{:016x}", RealEntropy.random_u64())).collect::<String>();
        let (run_id, started_unix_ms) = (run_id[..40].to_string(), RealClock.unix_ms());
        let lasting = Arc::new(Mutex::new(lasting));
        Ok(Process { dir, lasting, run_id, started_unix_ms, redis, http, disk })
    }
}

/// Raises the limit of open files for the clients that may come; says if it cannot be raised far enough.
fn fit_clients(settings: &Settings) {
    let wanted = settings.integer(Key::Maxclients);
    let possible = ClientsMax::possible(wanted).redis;
    if possible < wanted {
        let open_files_max = env::process::open_files_max();
        tracing::warn!(
            target: "server", wanted, possible, open_files_max,
            "maxclients is lowered to fit the limit of open files"
        );
    }
}

/// Warns if other machines can reach the server without a password.
fn warn_of_open_door(settings: &Settings, redis: &[std::net::TcpListener]) {
    let is_open = |address: &SocketAddr| !address.ip().to_canonical().is_loopback();
    let open: Vec<String> = redis
        .iter()
        .filter_map(|listener| listener.local_addr().ok())
        .filter(is_open)
        .map(|address| address.ip().to_string())
        .collect();
    if open.is_empty() || !settings.text(Key::Requirepass).is_empty() {
        return;
    }
    let bind = open.join(" ");
    if settings.switch(Key::ProtectedMode) {
        tracing::warn!(
            target: "server", bind,
            "bind goes beyond this machine and there is no password: clients of the Redis protocol on other machines are \
             refused. Set requirepass"
        );
    } else {
        tracing::warn!(
            target: "server", bind,
            "bind goes beyond this machine, there is no password and protected-mode is off: everybody who reaches this \
             address can read, change and stop this server. Set requirepass"
        );
    }
}

/// Lives until the server is to stop (`None`), or to begin anew.
async fn live(process: &Process, next: Next) -> Result<Option<Next>, ServeError> {
    let Next { settings, mode, diverged_at, is_first } = next;
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let node = Arc::new(Node::open(&settings, &process.dir, clock.clone(), Arc::new(RealEntropy))?);
    prepare(&process.dir, &node, diverged_at)?;
    let parts = new_parts(settings, process, node.clone(), clock);
    let (redis_addresses, http_addresses) = (addresses(&process.redis)?, addresses(&process.http)?);
    node.set_addresses(&redis_addresses, http_addresses[0].port())?;
    let _ = parts.startup.redis_port.set(redis_addresses[0].port());
    let reaper = Reaper::start()?;
    let (mailboxes, threads) = start_workers(&parts, &reaper)?;
    let _ = parts.mailboxes.set(mailboxes.clone());
    let turns = Arc::new(listen::RoundRobin::default());
    for listener in &process.redis {
        let listener = TcpListener::from_std(listener.try_clone()?)?;
        tokio::spawn(listen::accept(listener, parts.access.clone(), mailboxes.clone(), turns.clone()));
    }
    let feeds = Arc::new(Feeds::default());
    let http = Arc::new(Http::start(&parts, feeds.clone())?);
    for listener in &process.http {
        tokio::spawn(http.clone().accept(TcpListener::from_std(listener.try_clone()?)?));
    }
    tokio::spawn(watch_signals(parts.config.clone(), parts.stop.clone()));

    let (log, mirrored, documents) = recover_in_background(&parts, process, mode, feeds).await?;
    let indexes = Arc::new(open_indexes(process, &documents)?);
    if is_first && !node.is_replica() {
        parts.config.give_to_data();
    }
    parts.config.put_data_settings_in_force();
    parts.config.record_given(&log);
    let config = Arc::downgrade(&parts.config);
    node.before_leading(move || _ = config.upgrade().map(|config| config.put_data_settings_in_force()));
    let log_threads = attach(&parts, &mailboxes, &http, &log, (documents.clone(), indexes))?;
    if let Some((mirror, chains)) = mirrored {
        let replayer = Replayer::new(parts.data.keyspace.clone(), chains, log.appended_lsn());
        let replayer = replayer.with_documents(documents);
        let surroundings = (parts.engine_host(), parts.snapshots.clone());
        let interests = parts.data.interests.clone();
        node.start_following(
            surroundings,
            (&log, &log_threads),
            mirror,
            replayer,
            interests,
            reaper.clone(),
        )?;
    }
    renew_retention(&parts, &log);
    let channels = parts.durable_channels.start(&log, mailboxes.clone())?;
    let (saver, compactor) = (parts.saver.start(&log)?, parts.compactor.start()?);
    let (snapshots, scrubber) = (parts.snapshots.start(&log)?, parts.scrubber.start(&log)?);
    show_banner(&parts, &redis_addresses, &http_addresses, &log);
    let is_over = tokio::select! {
        () = parts.stop.requested() => true,
        () = node.restart_requested() => false,
        () = every_second(&parts, &log) => true,
        lost = notice_loss(&process.disk) => log_failed(&lost, &mailboxes, &process.disk),
    };
    tracing::info!(target: "server", "stopping");
    stop_http(&http).await;
    parts.scripts.close();
    stop_workers(mailboxes, threads).await;
    parts.scrubber.stop();
    parts.durable_channels.stop();
    parts.snapshots.stop(if is_over { parts.stop.at_stop() } else { AtStop::Leave });
    let stopping = node.clone();
    parts.saver.stop();
    parts.compactor.stop();
    let join = move || {
        (scrubber.join(), snapshots.join(), channels.join(), saver.join(), compactor.join(), stopping.stop())
    };
    // If one panics, the log is closed all the same.
    let _ = tokio::task::spawn_blocking(join).await;
    if is_over && parts.stop.at_stop() != AtStop::Leave && !log.is_frozen() {
        save_documents(&parts.saver, &log).await;
    }
    log.close().map_err(ServeError::Close)?;
    log_threads.stop();
    tracing::info!(target: "server", lsn = %log.durable_lsn(), "stopped in order");
    let settings = parts.config.current().clone();
    Ok((!is_over).then(|| Next {
        settings,
        mode: Mode::Newest,
        diverged_at: node.diverged_at(),
        is_first: false,
    }))
}

/// Saves documents, so that the next start has less of the log to replay. Unsaved changes are in the log.
async fn save_documents(saver: &Arc<Saver>, log: &Log) {
    let (saver, log) = (saver.clone(), log.clone());
    let _ = tokio::task::spawn_blocking(move || saver.save_all(&log)).await;
}

/// Prepares the directory for the role of this server.
fn prepare(dir: &Path, node: &Node, diverged_at: Option<Lsn>) -> Result<(), ServeError> {
    if !node.is_replica() {
        return Ok(full_copy::discard(&RealDisk, dir)?);
    }
    if full_copy::install(&RealDisk, dir)? {
        tracing::info!(target: "server", "installing the copy of the leader's data");
    } else if let Some(at) = diverged_at {
        if documents_reach(dir).map_err(RecoverError::from)? > at {
            // Files of documents do not go back.
            node.copy_anew();
            return Ok(());
        }
        let indexes = recovery::opening::indexes_directory(dir);
        Indexes::remove_all(&RealDisk, &indexes).map_err(|error| ServeError::Indexes(error.to_string()))?;
        let cut = cut_log(&RealDisk, dir, at).map_err(|error| ServeError::Recover(error.into()))?;
        match cut {
            Cut::Done(kept) => tracing::warn!(
                target: "server", %at, kept = %kept.display(), "the end of the log was cut off, and is kept in a file"
            ),
            Cut::NoBase => node.copy_anew(),
        }
    }
    Ok(())
}

/// Up to where files of documents have anything.
fn documents_reach(dir: &Path) -> Result<Lsn, StoreError> {
    let nobody: Listener = Arc::new(|_| {});
    Ok(recovery::opening::open(Arc::new(RealDisk), dir, Arc::new(RealEntropy), None, nobody)?.reached())
}

fn lock(dir: &Path) -> Result<DirLock, ServeError> {
    let refused = |error: std::io::Error| {
        let message = format!("cannot use {} as the data directory: {error}", dir.display());
        std::io::Error::new(error.kind(), message)
    };
    RealDisk.create_dir_all(dir).map_err(refused)?;
    let lock = DirLock::acquire(dir)?;
    if !lock.locks_directory() {
        tracing::warn!(
            target: "server", dir = %dir.display(),
            "the file system locks no directories: only the file sheaf.lock keeps other servers out. Do not remove it"
        );
    }
    Ok(lock)
}

fn addresses(listeners: &[std::net::TcpListener]) -> std::io::Result<Vec<SocketAddr>> {
    listeners.iter().map(std::net::TcpListener::local_addr).collect()
}

fn new_parts(settings: Settings, process: &Process, node: Arc<Node>, clock: Arc<dyn Clock>) -> Arc<Parts> {
    let workers = match settings.integer(Key::Workers) as usize {
        0 => env::process::cores_available().max(WORKERS_MIN),
        workers => workers,
    };
    let startup = StartupInfo {
        dir: process.dir.clone(),
        disk: process.disk.clone(),
        workers,
        merges: settings.switch(Key::LogMerge),
        started_unix_ms: process.started_unix_ms,
        run_id: process.run_id.clone(),
        redis_port: OnceLock::new(),
    };
    let settings = (settings, process.lasting.clone());
    Arc::new(Parts::new(settings, startup, node, clock, Arc::new(RealEntropy)))
}

fn start_workers(
    parts: &Arc<Parts>,
    reaper: &Reaper,
) -> std::io::Result<(Vec<Mailbox>, Vec<JoinHandle<()>>)> {
    let count = parts.startup.workers;
    let started: std::io::Result<Vec<_>> =
        (0..count).map(|index| worker::start(index, parts.clone(), reaper.clone(), count)).collect();
    Ok(started?.into_iter().unzip())
}

/// Recovers on threads of its own, so that this one goes on answering probes, and reports progress.
async fn recover_in_background(
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
            segment_bytes: settings.integer(Key::LogSegmentBytes).next_power_of_two(),
            ..LogOptions::default()
        }
        .fitting()
    };
    let mut recovery = tokio::task::spawn_blocking(move || {
        let listener: Listener = Arc::new(move |notice| feeds.tell(&notice));
        let documents = recovery::opening::open(disk.clone(), &dir, Arc::new(RealEntropy), None, listener)?;
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
    let bar = recovery::progress_bar::ProgressBar::new("recovering");
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
        let (rows, records) = (progress.rows(), progress.records());
        let rate = (rows + records) as f64 / progress.seconds().max(1e-6);
        let eta_seconds = loading.eta_seconds.map_or("unknown".into(), |seconds| format!("{seconds:.1}"));
        tracing::info!(
            target: "server", percent = format!("{:.1}", loading.percent), rows, records,
            rows_per_second = format!("{rate:.0}"), eta_seconds, "recovering"
        );
    }
}

/// Indexes are derived from the databases: they have a directory of their own, which may be removed while
/// nobody serves.
fn open_indexes(process: &Process, documents: &Documents) -> Result<Indexes, ServeError> {
    let databases: Vec<_> = documents.all().iter().map(|database| database.id()).collect();
    let (cache, dir) =
        (NodeCache::new(INDEX_CACHE_BYTES), recovery::opening::indexes_directory(&process.dir));
    let opened = Indexes::open(Arc::new(process.disk.clone()), Arc::new(RealEntropy), cache, dir, &databases);
    opened.map_err(|error| ServeError::Indexes(error.to_string()))
}

/// Starts the log's threads and gives the log to everyone.
fn attach(
    parts: &Arc<Parts>,
    mailboxes: &[Mailbox],
    http: &Arc<Http>,
    log: &Log,
    (documents, indexes): (Arc<Documents>, Arc<Indexes>),
) -> std::io::Result<LogThreads> {
    let for_failure = mailboxes.to_vec();
    let disk = parts.startup.disk.clone();
    let failed = move |error| log_failed(&error, &for_failure, &disk);
    let threads = LogThreads::start(log.clone(), Arc::new(RealClock), failed)?;
    let (workers, settling) = (mailboxes.to_vec(), Arc::downgrade(http));
    let long_units = Arc::downgrade(&parts.long_units);
    parts.node.attach(log.clone(), move |gives_up| {
        let (done, finished) = mpsc::channel();
        workers.iter().for_each(|mailbox| mailbox.send(Message::Report(done.clone())));
        drop(done);
        // A worker that has ended does nothing more.
        while finished.recv().is_ok() {}
        let have_ended = long_units.upgrade().is_none_or(|long_units| long_units.settle(gives_up));
        if let Some(http) = settling.upgrade() {
            http.settle();
        }
        have_ended
    });
    // Before anything can be written.
    let (driver, log) = (Arc::new(threads.clone()), log.clone());
    let _ = parts.documents.set(documents.clone());
    let is_first = http.store.set(Store { documents, indexes, log, driver }).is_ok();
    assert!(is_first, "documents are served once");
    for mailbox in mailboxes {
        mailbox.send(Message::Attach(threads.clone()));
    }
    parts.log.attach(threads.clone());
    parts.progress.finish();
    Ok(threads)
}

/// Ends when the directory is not the one any more that was locked. Writes notice that themselves.
async fn notice_loss(disk: &HeldDisk) -> LockLost {
    let mut period = tokio::time::interval(LOOK_PERIOD);
    loop {
        period.tick().await;
        if let Err(lost) = disk.verify() {
            return lost;
        }
    }
}

/// The log is poisoned, or must not be written: waiting clients get an error, then the process ends. Nothing
/// is retried.
fn log_failed(error: &dyn std::error::Error, mailboxes: &[Mailbox], disk: &HeldDisk) -> ! {
    let (done, finished) = mpsc::channel();
    for mailbox in mailboxes {
        mailbox.send(Message::Fail(done.clone()));
    }
    drop(done);
    for _ in mailboxes {
        if finished.recv_timeout(FAIL_GRACE).is_err() {
            break;
        }
    }
    if let Err(lost) = disk.verify() {
        tracing::error!(
            target: "server", %lost,
            "stopped: nothing was acknowledged since this was noticed. What was acknowledged before is in the directory that was \
             locked: put it back, then start again"
        );
        std::process::exit(EXIT_DIRECTORY_LOST);
    }
    tracing::error!(
        target: "server", error = %error,
        "stopped: the log could not be written, the outcome of unanswered writes is unknown; everything acknowledged \
         is on disk. Check the disk, then start again"
    );
    std::process::exit(EXIT_LOG_FAILED);
}

fn show_banner(parts: &Parts, redis: &[SocketAddr], http: &[SocketAddr], log: &Log) {
    let durability = log.durability().name();
    let banner = Banner {
        redis,
        http,
        dir: &parts.startup.dir,
        durability,
        rows: parts.progress.rows(),
        records: parts.progress.records(),
        seconds: parts.progress.seconds(),
        keys: DbId::all().map(|db| parts.data.keyspace.len(db)).sum(),
        workers: parts.startup.workers,
    };
    banner.show();
}

async fn watch_signals(config: Arc<Config>, stop: Arc<Stop>) {
    let signals =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()));
    let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)) = signals else {
        tracing::warn!(target: "server", "cannot listen for signals; use SHUTDOWN to stop");
        return;
    };
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => {
                let config = config.clone();
                let _ = tokio::task::spawn_blocking(move || config.reload()).await;
            }
        }
    }
    stop.request();
}

async fn every_second(parts: &Parts, log: &Log) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        second.tick().await;
        renew_retention(parts, log);
        parts.dead_log.cut();
        // LATENCY keeps the worst of each second.
        let slowest_us = log.stats().take_slowest_us();
        parts.observer.latency.took(LatencyEvent::LogSync, slowest_us, parts.clock.unix_ms());
        parts.backups.end_due();
        if let Some(up_to) = parts.node.overdue() {
            let workers = parts.mailboxes.get().into_iter().flatten();
            workers.for_each(|mailbox| mailbox.send(Message::Overdue(up_to)));
        }
        parts.config.put_data_settings_in_force();
        parts.config.record_given(log);
        parts.node.tick();
    }
}

/// Keeps the log for durable channels, and removes log that they no longer need.
fn renew_retention(parts: &Parts, log: &Log) {
    let now_ms = parts.clock.unix_ms();
    parts.durable_channels.retention.renew(&parts.config, &parts.startup.dir, now_ms, log);
}

async fn stop_http(http: &Arc<Http>) {
    let http = http.clone();
    let _ = tokio::task::spawn_blocking(move || http.stop()).await;
}

async fn stop_workers(mailboxes: Vec<Mailbox>, threads: Vec<JoinHandle<()>>) {
    let (done, finished) = mpsc::channel();
    for mailbox in &mailboxes {
        mailbox.send(Message::Stop(done.clone()));
    }
    let count = mailboxes.len();
    let all_stopped = tokio::task::spawn_blocking(move || {
        (0..count).all(|_| finished.recv_timeout(STOP_GRACE).is_ok())
            && threads.into_iter().all(|thread| thread.join().is_ok())
    });
    if !all_stopped.await.unwrap_or(false) {
        tracing::warn!(target: "server", "some replies did not leave in time; the clients see a closed connection");
    }
}
