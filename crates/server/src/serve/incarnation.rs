//! One incarnation of the server: its start from a directory, its run, and its end in order.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, OnceLock, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use couch::{Feeds, Store};
use documents::{Documents, Listener, StoreError, mango::Indexes};
use engine::{observe::LatencyEvent, replication::Availability as _};
use env::{Clock, RealClock, RealDisk, RealEntropy};
use keyspace::DbId;
use lsn::Lsn;
use recovery::{
    recover::{Mode, RecoverError},
    salvage::messages_lost_before,
};
use settings::{Key, Settings};
use storage::{Cut, Log, cut_log, cut_log_alone};
use tokio::{net::TcpListener, sync::Notify};

use super::{Process, ServeError, addresses, failure, loading, reopening, told_first};
use crate::{
    banner::Banner,
    documents::Saver,
    encryption::Door,
    handshakes::{Handshakes, TlsDoor},
    http::Http,
    listen::{self, Reception},
    log_threads::LogThreads,
    logging,
    long_units::LONG_UNITS_MAX,
    mailbox::{Mailbox, WorkerOrder},
    parts::Parts,
    read_only,
    reaper::Reaper,
    replication::{FollowingParts, Node, full_copy, stalled::StalledApplier},
    startup_info::StartupInfo,
    stop::AtStop,
    supervisor, worker,
};

/// How long the stop waits for each worker to send its last replies.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// The minimum number of workers by default, also on one core: while one worker waits for its own write to a
/// slow disk, the second one gets the new connections.
const WORKERS_MIN: usize = 2;

/// The beginning of an incarnation.
pub(super) struct Next {
    pub(super) settings: Settings,
    pub(super) mode: Mode,
    /// The position at which the log of a replica is to be cut before it is recovered, unless a full copy
    /// replaces the log; `None` for no cut.
    pub(super) diverged_at: Option<Lsn>,
    /// Whether this is the first incarnation of the process. Only then may settings given at the start be new
    /// to the data.
    pub(super) is_first: bool,
}

/// Runs an incarnation. Returns `None` when the server is to stop, or the beginning of the next incarnation.
pub(super) async fn run(process: &Process, next: Next) -> Result<Option<Next>, ServeError> {
    let Next { settings, mode, diverged_at, is_first } = next;
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let of_process = (process.id, process.traces.clone());
    let node = Node::open(&settings, &process.dir, of_process, clock.clone(), Arc::new(RealEntropy));
    let node = Arc::new(node.map_err(ServeError::of_settings)?);
    if is_first {
        node.report_overridden_setting();
    }
    prepare(&process.dir, &node)?;
    let parts = new_parts(settings, process, node.clone(), clock);
    let (redis_addresses, tls_addresses) = (addresses(&process.redis)?, addresses(&process.redis_tls)?);
    let (http_addresses, https_addresses) = (addresses(&process.http)?, addresses(&process.http_tls)?);
    let http_port = told_first(&parts.config.current(), &http_addresses, &https_addresses)[0].port();
    let all_addresses = told_first(&parts.config.current(), &redis_addresses, &tls_addresses);
    node.set_addresses(&all_addresses, http_port)?;
    let _ =
        redis_addresses.first().or(all_addresses.first()).map(|it| parts.startup.redis_port.set(it.port()));
    let reaper = Reaper::start(parts.freed.clone())?;
    let (mailboxes, threads) = start_workers(&parts, &reaper)?;
    let _ = parts.mailboxes.set(mailboxes.clone());
    node.set_interests(parts.data.interests.clone());
    let (tls, https) = start_handshakes(&parts)?;
    listen_for_redis(process, &parts, &mailboxes, tls)?;
    let feeds = Arc::new(Feeds::default());
    let (of_users, of_settings) = (feeds.clone(), feeds.clone());
    parts.config.users().observe(move || of_users.note_rights());
    parts.config.observe(move |_| of_settings.note_rights());
    let http = Arc::new(Http::start(&parts, feeds.clone())?);
    let plain = process.http.iter().map(|listener| (listener, None));
    let encrypted = process.http_tls.iter().map(|listener| (listener, https.clone()));
    for (listener, tls) in plain.chain(encrypted) {
        tokio::spawn(http.clone().accept(TcpListener::from_std(listener.try_clone()?)?, tls));
    }
    tokio::spawn(reload_at_hangups(parts.clone(), feeds.clone(), process.hangups.clone()));

    let (dir, of_replica) = (process.dir.clone(), node.clone());
    in_background(move || replace_log(&dir, &of_replica, diverged_at)).await?;
    let (log, mirrored, documents) = loading::recover_in_background(&parts, process, mode, feeds).await?;
    let indexes = Arc::new(loading::open_indexes(process, &documents)?);
    if is_first && !node.is_replica() {
        parts.config.give_to_data();
    }
    parts.config.put_data_settings_in_force();
    node.report_acks_without_group();
    parts.config.record_given(&log);
    let imported = parts.config.import_users(&log, &*parts.data.entropy);
    imported.map_err(|reason| ServeError::Setting(std::io::Error::other(reason)))?;
    parts.config.follow_users();
    if is_first {
        parts.config.report_ineffective_password();
    }
    parts.config.adopt_segment_bytes(&log);
    let config = Arc::downgrade(&parts.config);
    node.before_leading(move || _ = config.upgrade().map(|config| config.put_data_settings_in_force()));
    let log_threads = attach(&parts, &mailboxes, &http, &log, (documents.clone(), indexes))?;
    parts.config.protect_kept().map_err(|reason| ServeError::Setting(std::io::Error::other(reason)))?;
    let in_group = parts.group.prepare(&log, (&all_addresses, http_port), &mailboxes)?;
    if let Some((mirror, chains)) = mirrored {
        let needed = following_parts(&parts, &log, log_threads.clone(), documents, reaper.clone());
        node.start_following(needed, mirror, chains)?;
    }
    parts.group.start(in_group)?;
    renew_retention(&parts, &log);
    let lost_before = messages_lost_before(&parts.data.keyspace.data_settings());
    let channels = parts.durable_channels.start(&log, lost_before, mailboxes.clone())?;
    let (saver, compactor) = (parts.saver.start(&log)?, parts.compactor.start()?);
    let (snapshots, scrubber) = (parts.snapshots.start(&log)?, parts.scrubber.start(&log)?);
    show_banner(&parts, (&redis_addresses, &tls_addresses), (&http_addresses, &https_addresses), &log);
    if is_first {
        supervisor::tell_ready();
    }
    let is_over = tokio::select! {
        () = parts.stop.requested() => true,
        () = reopening::requested(&node, &log, &mailboxes) => false,
        () = every_second(&parts, &log) => true,
        () = parts.config.follow_audit(&log) => true,
        lost = failure::notice_loss(&process.disk) => failure::end_process(&lost, &mailboxes, &process.disk),
    };
    tracing::info!(target: "server", "stopping");
    if is_over {
        supervisor::tell_stopping();
    }
    let stop_fronts = async {
        stop_http(&http).await;
        parts.access_log.close();
        parts.scripts.close();
        stop_workers(mailboxes, threads).await;
    };
    // Replies that wait for replicas must time out even while the server stops.
    tokio::select! {
        () = stop_fronts => {}
        () = end_overdue_waits(&parts) => {}
    }
    parts.config.record_audit(&log);
    parts.scrubber.stop();
    parts.durable_channels.stop();
    parts.snapshots.stop(if is_over { parts.stop.at_stop() } else { AtStop::Leave });
    let (stopping, leaving) = (node.clone(), parts.group.clone());
    parts.saver.stop();
    parts.compactor.stop();
    let join = move || {
        (
            scrubber.join(),
            snapshots.join(),
            channels.join(),
            saver.join(),
            compactor.join(),
            leaving.stop(),
            stopping.stop(),
        )
    };
    // If one of the threads has panicked, the log is closed all the same.
    let _ = tokio::task::spawn_blocking(join).await;
    if is_over && parts.stop.at_stop() != AtStop::Leave && !log.is_frozen() {
        save_documents(&parts.saver, &log).await;
    }
    parts.traces.detach();
    let closing = log.clone();
    in_background(move || closing.close()).await.map_err(ServeError::Close)?;
    log_threads.stop();
    tracing::info!(target: "server", lsn = log.durable_lsn().get(), "stopped in order");
    let settings = parts.config.current().clone();
    // A stop that was requested meanwhile ends the process. The next start then does the work of this
    // restart.
    let is_over = is_over || parts.stop.is_requested();
    Ok((!is_over).then(|| Next {
        settings,
        mode: Mode::Newest,
        diverged_at: node.diverged_at(),
        is_first: false,
    }))
}

/// Starts the threads that shake hands, if there is a door for TLS. Returns the doors of the Redis protocol
/// and of HTTP.
fn start_handshakes(parts: &Parts) -> std::io::Result<(Option<TlsDoor>, Option<TlsDoor>)> {
    let Some(encryption) = &parts.encryption else { return Ok((None, None)) };
    let access = parts.access.clone();
    let places_left = move || access.places_left();
    let handshakes = Arc::new(Handshakes::start(encryption.clone(), parts.clock.clone(), places_left)?);
    let open = |door| {
        let acceptor = encryption.acceptor(door)?;
        Some(TlsDoor { handshakes: handshakes.clone(), acceptor })
    };
    Ok((open(Door::Redis), open(Door::Http)))
}

fn listen_for_redis(
    process: &Process,
    parts: &Parts,
    mailboxes: &[Mailbox],
    tls: Option<TlsDoor>,
) -> std::io::Result<()> {
    let (access, log) = (parts.access.clone(), parts.log.clone());
    let reception = Reception { access, workers: mailboxes.to_vec(), log, next: Arc::default() };
    let plain = process.redis.iter().chain(&process.sentinel).map(|listener| (listener, None));
    let encrypted = process.redis_tls.iter().map(|listener| (listener, tls.clone()));
    for (listener, tls) in plain.chain(encrypted) {
        let listener = TcpListener::from_std(listener.try_clone()?)?;
        tokio::spawn(listen::accept(listener, reception.clone(), tls));
    }
    process.unix.as_ref().map_or(Ok(()), |door| door.accept(reception))
}

/// Saves documents, so that the next start has less log to replay. Changes that are not saved stay in the
/// log.
async fn save_documents(saver: &Arc<Saver>, log: &Log) {
    let (saver, log) = (saver.clone(), log.clone());
    let _ = tokio::task::spawn_blocking(move || saver.save_all(&log)).await;
}

/// Prepares the directory for the role of this server.
fn prepare(dir: &Path, node: &Node) -> Result<(), ServeError> {
    if !node.is_replica() {
        if full_copy::settle(&RealDisk, dir)? {
            tracing::warn!(
                target: "server",
                "the installation of a copy of a leader's data was interrupted, and was completed: this server has that data"
            );
        }
        return Ok(());
    }
    if full_copy::has_another_log(&RealDisk, dir) {
        node.forget_epochs().map_err(std::io::Error::other)?;
    }
    if let Some(votes) =
        node.votes().filter(|votes| votes.is_witness() && full_copy::is_complete(&RealDisk, dir))
    {
        // The copied log names the members of the group, which may differ from the saved roster.
        votes.save_roster("")?;
    }
    Ok(())
}

/// Installs the copy of the leader's data on a replica that has one. Else cuts a log that has diverged.
fn replace_log(dir: &Path, node: &Node, diverged_at: Option<Lsn>) -> Result<(), ServeError> {
    if !node.is_replica() {
        return Ok(());
    }
    if full_copy::install(&RealDisk, dir)? {
        tracing::info!(target: "server", "installing the copy of the leader's data");
    } else if let Some(at) = diverged_at {
        if documents_reach(dir).map_err(RecoverError::from)? > at {
            // Files of documents cannot return to an earlier position, so everything is copied anew.
            node.copy_anew();
            return Ok(());
        }
        let indexes = recovery::opening::indexes_directory(dir);
        Indexes::remove_all(&RealDisk, &indexes).map_err(|error| ServeError::Indexes(error.to_string()))?;
        let cut = if node.is_witness() { cut_log_alone } else { cut_log };
        let cut = cut(&RealDisk, dir, at).map_err(|error| ServeError::Recover(error.into()))?;
        match cut {
            Cut::Done(kept) => tracing::warn!(
                target: "server", at = at.get(), kept = %kept.display(), "the end of the log was cut off, and is kept in a file"
            ),
            Cut::NoBase => node.copy_anew(),
        }
    }
    Ok(())
}

/// The highest position up to which files of documents contain changes.
fn documents_reach(dir: &Path) -> Result<Lsn, StoreError> {
    let nobody: Listener = Arc::new(|_| {});
    Ok(recovery::opening::open(Arc::new(RealDisk), dir, Arc::new(RealEntropy), None, nobody)?.reached())
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
        commit: process.commit,
        beside_data_bytes: OnceLock::new(),
        redis_port: OnceLock::new(),
        listeners: [("tcp", &process.redis), ("tls", &process.redis_tls), ("sentinel", &process.sentinel)]
            .map(|(name, listeners)| (name, addresses(listeners).unwrap_or_default())),
        unix_socket: process.unix.as_ref().map(|door| door.path().to_owned()),
    };
    let settings = (settings, process.lasting.clone());
    let of_process = (process.encryption.clone(), process.stop.clone(), process.traces.clone());
    Arc::new(Parts::new(settings, startup, node, of_process, clock, Arc::new(RealEntropy)))
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

/// Starts the log's threads, and gives the log to the node, HTTP, the workers and other parts.
fn attach(
    parts: &Arc<Parts>,
    mailboxes: &[Mailbox],
    http: &Arc<Http>,
    log: &Log,
    (documents, indexes): (Arc<Documents>, Arc<Indexes>),
) -> std::io::Result<LogThreads> {
    let for_failure = mailboxes.to_vec();
    let disk = parts.startup.disk.clone();
    let failed = move |error| failure::end_process(&error, &for_failure, &disk);
    let threads = LogThreads::start(log.clone(), Arc::new(RealClock), failed)?;
    let (workers, settling) = (mailboxes.to_vec(), Arc::downgrade(http));
    let (hung_up, hanging_up) = (mailboxes.to_vec(), Arc::downgrade(http));
    let hang_up = move || {
        hung_up.iter().for_each(|mailbox| mailbox.send(WorkerOrder::HangUp));
        if let Some(http) = hanging_up.upgrade() {
            http.hang_up();
        }
    };
    let long_units = Arc::downgrade(&parts.long_units);
    let rounds_end = move |gives_up: &dyn Fn() -> bool| {
        let (done, finished) = mpsc::channel();
        workers.iter().for_each(|mailbox| mailbox.send(WorkerOrder::Report(done.clone())));
        drop(done);
        // A worker that has ended drops its sender, and executes nothing more.
        while finished.recv().is_ok() {}
        let have_ended = long_units.upgrade().is_none_or(|long_units| long_units.settle(gives_up));
        if let Some(http) = settling.upgrade() {
            http.settle();
        }
        have_ended
    };
    parts.node.attach(log.clone(), rounds_end, hang_up);
    // The documents are set first, because clients of HTTP may write after the next statement, and workers
    // once they have the log.
    let (driver, log) = (Arc::new(threads.clone()), log.clone());
    let _ = parts.documents.set(documents.clone());
    let is_first = http
        .store
        .set(Store { documents, indexes, keyspace: parts.data.keyspace.clone(), log, driver })
        .is_ok();
    assert!(is_first, "documents are served once");
    for mailbox in mailboxes {
        mailbox.send(WorkerOrder::Attach(threads.clone()));
    }
    parts.traces.attach(threads.log());
    parts.log.attach(threads.clone());
    parts.progress.finish();
    Ok(threads)
}

fn following_parts(
    parts: &Arc<Parts>,
    log: &Log,
    threads: LogThreads,
    documents: Arc<Documents>,
    reaper: Reaper,
) -> FollowingParts {
    let (data, thread, for_waiters) =
        (parts.data.clone(), parts.startup.workers + LONG_UNITS_MAX, log.clone());
    FollowingParts {
        host: parts.engine_host(),
        log: log.clone(),
        threads,
        keyspace: parts.data.keyspace.clone(),
        documents,
        reaper,
        new_executor: Box::new(move || {
            let mut executor = data.executor(thread, 0);
            executor.attach(for_waiters.appender());
            executor
        }),
    }
}

fn show_banner(
    parts: &Parts,
    (redis, redis_tls): (&[SocketAddr], &[SocketAddr]),
    (http, http_tls): (&[SocketAddr], &[SocketAddr]),
    log: &Log,
) {
    let durability = log.durability().name();
    let banner = Banner {
        redis,
        redis_tls,
        http,
        http_tls,
        dir: &parts.startup.dir,
        durability,
        snapshot_keys: parts.progress.rows(),
        replayed_records: parts.progress.records(),
        seconds: parts.progress.seconds(),
        keys: DbId::all().map(|db| parts.data.keyspace.len(db)).sum(),
        workers: parts.startup.workers,
    };
    banner.show();
}

/// At each SIGHUP, reads settings, certificates and keys of issuers, and opens the log files again.
async fn reload_at_hangups(parts: Arc<Parts>, feeds: Arc<Feeds>, hangups: Arc<Notify>) {
    loop {
        hangups.notified().await;
        let (config, encryption) = (parts.config.clone(), parts.encryption.clone());
        let issuers = parts.access.issuers.clone();
        let (access_log, feeds) = (parts.access_log.clone(), feeds.clone());
        let reload = move || {
            // The log files are opened again first, so that the report goes into the new file.
            let settings = config.current().clone();
            logging::configure(&settings);
            access_log.configure(&settings);
            config.reload();
            let settings = config.current().clone();
            issuers.follow(&settings);
            // The reload may have removed the key of a token with which a client follows changes.
            feeds.note_rights();
            if let Some(encryption) = encryption {
                encryption.reload(true);
            }
        };
        let _ = tokio::task::spawn_blocking(reload).await;
    }
}

async fn every_second(parts: &Parts, log: &Log) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    let mut read_only = read_only::Reporter::default();
    let mut stalled = StalledApplier::default();
    loop {
        second.tick().await;
        parts.rates.look(parts);
        parts
            .startup
            .beside_data_bytes
            .get_or_init(|| env::process::rss_bytes().saturating_sub(parts.data.keyspace.bytes()));
        renew_retention(parts, log);
        parts.dead_log.cut();
        // LATENCY looks at the slowest write of each second.
        let slowest_us = log.stats().take_slowest_us();
        parts.observer.latency.took(LatencyEvent::LogSync, slowest_us, parts.clock.unix_ms());
        parts.backups.end_due();
        if let Some(encryption) = parts.encryption.clone() {
            let now_unix_s = (parts.clock.unix_ms() / 1000) as i64;
            let look = move || {
                encryption.reload(false);
                encryption.warn_of_end(now_unix_s);
            };
            // The files may lie on a slow disk, so a blocking thread reads them.
            let _ = tokio::task::spawn_blocking(look).await;
        }
        tell_overdue(parts);
        // A reply on a follower may wait for its gate for long, for example because the disk is full. While
        // reads are refused, such a reply becomes an error, too.
        if let Some(refusal) = parts.replication.refuses_reads().filter(|_| parts.node.following().is_some())
        {
            tell_workers(parts, || WorkerOrder::RefuseHeld(refusal));
        }
        // A document of `_users` may change users while no client command notices the change.
        parts.config.follow_users();
        let commands = parts.config.users().commands();
        if let (Some(replicate), Some(psync)) = (commands.find(b"replicate"), commands.find(b"psync")) {
            parts.node.review_replicas(&parts.config.users().current(), [replicate, psync]);
        }
        if parts.config.record_given(log) {
            let config = parts.config.clone();
            // Observers of a setting may have to wait for the disk.
            tokio::task::spawn_blocking(move || config.put_data_settings_in_force());
        }
        parts.node.tick();
        log.look_for_stall();
        parts.snapshots.look_for_standstill();
        stalled.look(&parts.node, &parts.scripts);
        read_only.look(Some(log), &*parts.replication);
    }
}

fn tell_workers(parts: &Parts, order: impl Fn() -> WorkerOrder) {
    parts.mailboxes.get().into_iter().flatten().for_each(|mailbox| mailbox.send(order()));
}

/// Tells the workers which replies have waited for replicas for longer than `ack-timeout`. Called once a
/// second.
fn tell_overdue(parts: &Parts) {
    if let Some(up_to) = parts.node.overdue() {
        tell_workers(parts, || WorkerOrder::Overdue(up_to));
    }
}

/// Ends overdue waits while the server stops. Never completes.
async fn end_overdue_waits(parts: &Parts) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        second.tick().await;
        tell_overdue(parts);
    }
}

/// Moves the floor of the log for durable channels, and removes log that they no longer need.
fn renew_retention(parts: &Parts, log: &Log) {
    if parts.node.is_witness() {
        // A witness has no readers of messages.
        return;
    }
    let now_ms = parts.clock.unix_ms();
    parts.durable_channels.retention.renew(&parts.config, &parts.startup.dir, now_ms, log);
}

/// Runs work for which the disk may keep its thread waiting. The thread of the doors goes on meanwhile: it
/// says LOADING, or turns new connections away.
async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

async fn stop_http(http: &Arc<Http>) {
    let http = http.clone();
    let _ = tokio::task::spawn_blocking(move || http.stop()).await;
}

async fn stop_workers(mailboxes: Vec<Mailbox>, threads: Vec<JoinHandle<()>>) {
    let (done, finished) = mpsc::channel();
    for mailbox in &mailboxes {
        mailbox.send(WorkerOrder::Stop(done.clone()));
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
