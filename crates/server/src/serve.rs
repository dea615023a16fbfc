//! `sheaf serve`: from settings to a running server, and its end.
//!
//! ```text
//! lock the directory -> listen -> an incarnation -> perhaps another -> unlock
//! incarnation: prepare the directory -> start workers (LOADING) -> perhaps install a copy, or cut the log
//!              -> recover -> attach the log -> ready
//! its end: no more connections -> workers send durable replies -> perhaps a snapshot -> the log is closed
//! ```
//!
//! An incarnation usually ends with the process. Some changes need an empty memory: a leader becomes a
//! replica (unless it steps down in its group), or the log of a replica has to be cut or replaced. For such a
//! change another incarnation begins, on the same ports, with the present settings. Clients reconnect.
//!
//! Invariants
//! - An incarnation gets from the one before only the settings and the position at which the log must be cut.
//!   All incarnations share the fields of `Process`: among them the lock, the ports, and the certificates.
//! - If an incarnation is to follow, the present one does not end while the disk has no room for the restart.

mod failure;
mod incarnation;
mod loading;
mod reopening;
mod signals;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use env::{Clock, DirLock, Disk, Entropy, HeldDisk, RealClock, RealDisk, RealEntropy};
use parking_lot::Mutex;
use recovery::{
    data_directory::{Foreign, refuse_foreign, refuse_lost_settings},
    group_state::NO_GROUP,
    recover::{Mode, RecoverError},
    unfinished::{Unfinished, refuse_unfinished},
};
use replication::ProcessId;
use settings::{Key, Lasting, OPTIONS, Settings, unknown_variables};
use tokio::sync::Notify;

use crate::{
    config::possible_clients, encryption::Encryption, group::own_host, http::issuers, listen, logging,
    stop::Stop, traces::Traces, unix_door::UnixDoor,
};
use incarnation::Next;

/// Exit status when the log failed (EX_IOERR).
pub const EXIT_LOG_FAILED: i32 = 74;
/// Exit status when the data directory or its lock file was moved, replaced or removed (EX_NOINPUT).
pub const EXIT_DIRECTORY_LOST: i32 = 66;
/// The time that each worker has to answer waiting clients after the log has failed. Also the time for which
/// the end of an incarnation waits for blocking tasks.
const FAIL_GRACE: Duration = Duration::from_secs(2);
/// The time for which a start waits for the data directory if another process holds it.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two attempts of a start that waits for the data directory.
const LOCK_POLL: Duration = Duration::from_millis(20);
/// The milliseconds for which the allocator keeps unused pages. Documents are in memory for a second or two,
/// until they are saved. With the allocator's default of 10 ms, a tenth of the CPU time of `_bulk_docs` was
/// spent on getting the same memory again.
const UNUSED_KEPT_MS: u16 = 250;

/// Why the server did not start or had to stop; the message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another process uses the directory, or it cannot be locked.
    #[error("{}", .0.with_remedy("Stop it, or name another directory with --dir"))]
    Lock(#[from] env::LockError),
    /// The directory holds files of others, or cannot be read.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// A setting, or a file that it names, is wrong, or does not fit the directory or another setting.
    #[error("{0}")]
    Setting(std::io::Error),
    /// The OS has refused an address, a thread, a runtime or access to a file; or a small file of the
    /// directory is damaged or missing.
    #[error(transparent)]
    Os(#[from] std::io::Error),
    /// An import or a restore into the directory was interrupted.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// The directory is a backup, or an incomplete one.
    #[error(transparent)]
    Backup(#[from] backup::ManifestError),
    /// The directory of the indexes of document databases cannot be used.
    #[error("the indexes of documents: {0}")]
    Indexes(String),
    /// The data directory cannot be recovered.
    #[error("{0}{hint}", hint = .0.last_resort())]
    Recover(#[from] RecoverError),
    /// The log could not be closed in order.
    #[error("cannot close the log: {0}")]
    Close(storage::Error),
}

impl ServeError {
    /// Tells wrong settings from failures of the operating system.
    fn of_settings(error: std::io::Error) -> ServeError {
        match error.kind() {
            std::io::ErrorKind::InvalidInput => ServeError::Setting(error),
            _ => ServeError::Os(error),
        }
    }
}

/// Runs a server until it is told to stop. `commit` is the commit from which the binary was built; empty if
/// it is not known.
///
/// # Errors
/// See [`ServeError`].
pub fn serve(
    settings: Settings,
    lasting: Lasting,
    mode: Mode,
    commit: &'static str,
) -> Result<(), ServeError> {
    logging::start(&settings).map_err(|reason| ServeError::Setting(std::io::Error::other(reason)))?;
    lasting.report();
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    if let Some(warning) = unknown_variables(names) {
        tracing::warn!(target: "server", "{warning}");
    }
    env::allocator::keep_unused_for_ms(UNUSED_KEPT_MS);
    let process = Process::begin(&settings, lasting, commit)?;
    let ended = run_incarnations(&process, Next { settings, mode, diverged_at: None, is_first: true });
    process.traces.close();
    ended
}

fn run_incarnations(process: &Process, mut next: Next) -> Result<(), ServeError> {
    loop {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ended = runtime.block_on(incarnation::run(process, next));
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
    /// The id by which other servers notice that this process was started anew.
    id: ProcessId,
    dir: PathBuf,
    lasting: Arc<Mutex<Lasting>>,
    run_id: String,
    commit: &'static str,
    started_unix_ms: u64,
    redis: Vec<std::net::TcpListener>,
    /// The listeners of `sentinel-port`: the same service at another port.
    sentinel: Vec<std::net::TcpListener>,
    /// The listeners of `tls-port`: the same service, encrypted.
    redis_tls: Vec<std::net::TcpListener>,
    http: Vec<std::net::TcpListener>,
    /// The listeners of `http-tls-port`.
    http_tls: Vec<std::net::TcpListener>,
    encryption: Option<Arc<Encryption>>,
    /// The socket of `unixsocket`.
    unix: Option<UnixDoor>,
    disk: HeldDisk,
    stop: Arc<Stop>,
    traces: Arc<Traces>,
    /// Notified by SIGHUP.
    hangups: Arc<Notify>,
}

impl Process {
    fn begin(settings: &Settings, lasting: Lasting, commit: &'static str) -> Result<Process, ServeError> {
        let dir = PathBuf::from(settings.text(Key::Dir));
        refuse_foreign(&dir, lasting.config_file())?;
        let disk = HeldDisk::new(lock(&dir)?);
        refuse_unfinished(&RealDisk, &dir)?;
        backup::refuse_backup(&RealDisk, &dir)?;
        // Lost settings are refused before anybody can connect, because a password may be among them.
        refuse_lost_settings(&RealDisk, &dir)?;
        let unusable = |error: tls::LoadError| ServeError::Setting(std::io::Error::other(error));
        let encryption = Encryption::open(settings).map_err(unusable)?.map(Arc::new);
        issuers::read(settings).map_err(|(key, reason)| {
            ServeError::Setting(std::io::Error::other(format!("{}: {reason}", OPTIONS[key as usize].name)))
        })?;
        fit_clients(settings);
        let (bind, backlog) = (settings.text(Key::Bind), settings.integer(Key::TcpBacklog) as u32);
        // Sockets are made within a runtime, and outlive it.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let _entered = runtime.enter();
        // From here on, SIGTERM, SIGINT and SIGHUP do not end the process at once.
        let stop = Arc::<Stop>::default();
        let hangups = signals::listen(stop.clone())?;
        let port_of = |key: Key| settings.integer(key) as u16;
        let (port, http_port) = (port_of(Key::Port), port_of(Key::HttpPort));
        if port == http_port && port != 0 {
            return Err(ServeError::Setting(std::io::Error::other(format!(
                "port and http-port both name port {port}: each needs its own"
            ))));
        }
        let sentinel_port = port_of(Key::SentinelPort);
        if sentinel_port != 0 && (sentinel_port == port || sentinel_port == http_port) {
            let (name, advice) = match sentinel_port == port {
                true => ("port", "leave sentinel-port out, the port of the data answers SENTINEL too"),
                false => ("http-port", "each needs its own"),
            };
            return Err(ServeError::Setting(std::io::Error::other(format!(
                "{name} and sentinel-port both name port {sentinel_port}: {advice}"
            ))));
        }
        let (tls_port, http_tls_port) = (port_of(Key::TlsPort), port_of(Key::HttpTlsPort));
        let mut taken = [("port", port), ("http-port", http_port), ("sentinel-port", sentinel_port)].to_vec();
        for (name, port) in [("tls-port", tls_port), ("http-tls-port", http_tls_port)] {
            if let Some((other, _)) = taken.iter().find(|(_, other)| port != 0 && *other == port) {
                return Err(ServeError::Setting(std::io::Error::other(format!(
                    "{other} and {name} both name port {port}: each needs its own"
                ))));
            }
            taken.push((name, port));
        }
        if settings.switch(Key::TlsReplication)
            && (tls_port == 0 || http_tls_port == 0 || settings.text(Key::TlsCaCertFile).is_empty())
        {
            return Err(ServeError::Setting(std::io::Error::other(
                "tls-replication needs tls-port, http-tls-port (full copies go over HTTP) and tls-ca-cert-file (it \
                 signs the certificates of all servers)",
            )));
        }
        let listen_on = |key: Key| {
            let port = (OPTIONS[key as usize].name, port_of(key));
            listen::bind(bind, port, backlog).map_err(ServeError::of_settings)
        };
        let listen_if_set = |key: Key| if port_of(key) == 0 { Ok(Vec::new()) } else { listen_on(key) };
        // With another door, port 0 means that there is no plain port, as in Redis.
        let has_other_door = tls_port != 0 || !settings.text(Key::Unixsocket).is_empty();
        let redis = if has_other_door { listen_if_set(Key::Port)? } else { listen_on(Key::Port)? };
        let http = if http_tls_port == 0 { listen_on(Key::HttpPort)? } else { listen_if_set(Key::HttpPort)? };
        let (redis_tls, http_tls) = (listen_if_set(Key::TlsPort)?, listen_if_set(Key::HttpTlsPort)?);
        let sentinel = listen_if_set(Key::SentinelPort)?;
        if !matches!(settings.text(Key::Group), "" | NO_GROUP) {
            // Refused before the directory founds a group: the corrected start may be meant to join another.
            let doors = told_first(settings, &addresses(&redis)?, &addresses(&redis_tls)?);
            own_host(settings, &doors).map_err(ServeError::of_settings)?;
        }
        let unix = UnixDoor::open(settings).map_err(ServeError::of_settings)?;
        warn_of_open_door(settings, &redis, &redis_tls);
        let run_id = (0..3).map(|_| format!("{:016x}", RealEntropy.random_u64())).collect::<String>();
        let (run_id, started_unix_ms) = (run_id[..40].to_string(), RealClock.unix_ms());
        let lasting = Arc::new(Mutex::new(lasting));
        let id = ProcessId::new(RealEntropy.random_u64());
        let traces = Traces::start(settings, &run_id, Arc::new(RealClock), &RealEntropy)?;
        Ok(Process {
            id,
            dir,
            lasting,
            run_id,
            commit,
            started_unix_ms,
            redis,
            sentinel,
            redis_tls,
            http,
            http_tls,
            encryption,
            unix,
            disk,
            stop,
            traces: Arc::new(traces),
            hangups,
        })
    }
}

fn addresses(listeners: &[std::net::TcpListener]) -> std::io::Result<Vec<SocketAddr>> {
    listeners.iter().map(std::net::TcpListener::local_addr).collect()
}

/// The addresses of plain and encrypted doors, in the order in which they are preferred: this server tells
/// others only the first.
fn told_first(settings: &Settings, plain: &[SocketAddr], encrypted: &[SocketAddr]) -> Vec<SocketAddr> {
    if settings.switch(Key::TlsReplication) {
        [encrypted, plain].concat()
    } else {
        [plain, encrypted].concat()
    }
}

/// Raises the limit of open files for the clients that may come; logs a warning if it cannot be raised far
/// enough.
fn fit_clients(settings: &Settings) {
    let wanted = settings.integer(Key::Maxclients);
    let possible = possible_clients(wanted).redis;
    if possible < wanted {
        let open_files_max = env::process::open_files_max();
        tracing::warn!(
            target: "server", wanted, possible, open_files_max,
            "maxclients is lowered to fit the limit of open files"
        );
    }
}

/// Warns if the server listens beyond this machine and has no password.
fn warn_of_open_door(
    settings: &Settings,
    redis: &[std::net::TcpListener],
    redis_tls: &[std::net::TcpListener],
) {
    let is_open = |address: &SocketAddr| !address.ip().to_canonical().is_loopback();
    // Clients of a TLS port that requires certificates are no strangers, so such a port does not count.
    let asks = settings.text(Key::TlsAuthClients) == "yes";
    let open: Vec<String> = redis
        .iter()
        .chain(redis_tls.iter().filter(|_| !asks))
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
            "bind goes beyond this machine and there is no password: on other machines, clients of the Redis protocol are \
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

fn lock(dir: &Path) -> Result<DirLock, ServeError> {
    let refused = |error: std::io::Error| {
        let hint = match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                let user = env::process::user();
                format!(
                    "; the server runs as {user}: give it the directory (chown), or name another one with --dir"
                )
            }
            _ => String::new(),
        };
        let message = format!("cannot use {} as the data directory: {error}{hint}", dir.display());
        std::io::Error::new(error.kind(), message)
    };
    RealDisk.create_dir_all(dir).map_err(refused)?;
    let lock = wait_for_lock(dir)?;
    if !lock.locks_directory() {
        tracing::warn!(
            target: "server", dir = %dir.display(),
            "the file system locks no directories: only the file sheaf.lock keeps other servers out. Do not remove it"
        );
    }
    Ok(lock)
}

/// Locks the directory, and waits if another process holds it: a server that was just killed holds its locks
/// until the kernel has freed its memory.
///
/// # Errors
/// As [`DirLock::acquire`], but `Held` only after [`LOCK_PATIENCE`].
fn wait_for_lock(dir: &Path) -> Result<DirLock, env::LockError> {
    // The time is limited, not the number of attempts: an attempt takes a while itself, because tools lock
    // the directory for a moment to inspect it.
    let until_us = RealClock.monotonic_us() + LOCK_PATIENCE.as_micros() as u64;
    let mut is_told = false;
    loop {
        match DirLock::acquire(dir) {
            Err(held @ env::LockError::Held { .. }) if RealClock.monotonic_us() < until_us => {
                if !is_told {
                    let seconds = LOCK_PATIENCE.as_secs();
                    tracing::info!(target: "server", seconds, "{held}. Waiting, in case that process is ending");
                }
                is_told = true;
                std::thread::sleep(LOCK_POLL);
            }
            outcome => return outcome,
        }
    }
}
