//! The process as commands see it: implements [`engine::Process`].

use std::sync::Arc;

use engine::{Loading, LogLevel, MemoryFigures, Process, ShutdownMode};
use env::{Entropy, RealEntropy};
use lsn::Lsn;
use storage::Log;

use crate::{info, mailbox::WorkerOrder, parts::Parts, stop::AtStop};

pub(crate) struct ServerProcess(pub(crate) Arc<Parts>);

impl Process for ServerProcess {
    fn loading(&self) -> Option<Loading> {
        self.0.progress.loading()
    }

    fn info(&self, sections: &[String]) -> (String, Lsn) {
        info::render(&self.0, sections)
    }

    fn fill_secret(&self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(size_of::<u64>()) {
            part.copy_from_slice(&RealEntropy.random_u64().to_ne_bytes()[..part.len()]);
        }
    }

    fn run_apart(&self, work: Box<dyn FnOnce() + Send>) {
        tokio::task::spawn_blocking(work);
    }

    fn reset_stats(&self) {
        self.0.reset_counters();
    }

    fn memory_figures(&self) -> MemoryFigures {
        MemoryFigures {
            resident_bytes: env::process::rss_bytes(),
            resident_bytes_max: env::process::peak_rss_bytes(),
            system_bytes: env::process::memory_total_bytes(),
            log_buffer_bytes: self.0.log.get().map_or(0, Log::ring_bytes),
            beside_data_bytes: self.0.startup.beside_data_bytes.get().copied().unwrap_or(0),
        }
    }

    fn release_unused_memory(&self) {
        let workers = self.0.mailboxes.get().into_iter().flatten();
        workers.for_each(|mailbox| mailbox.send(WorkerOrder::ReleaseMemory));
    }

    fn allocator_report(&self) -> String {
        env::allocator::report()
    }

    fn log_script(&self, level: LogLevel, message: &str) {
        match level {
            LogLevel::Debug => tracing::trace!("script: {message}"),
            LogLevel::Verbose => tracing::debug!("script: {message}"),
            LogLevel::Notice => tracing::info!("script: {message}"),
            LogLevel::Warning => tracing::warn!("script: {message}"),
        }
    }

    fn shutdown(&self, mode: ShutdownMode) -> Result<(), String> {
        let stop = &self.0.stop;
        match mode {
            ShutdownMode::Abort if stop.is_requested() => {
                return Err("ERR The shutdown in progress cannot be aborted.".into());
            }
            ShutdownMode::Abort => return Err("ERR No shutdown in progress.".into()),
            ShutdownMode::InOrder => {}
            ShutdownMode::Save => stop.set_at_stop(AtStop::Take),
            ShutdownMode::NoSave => stop.set_at_stop(AtStop::Leave),
        }
        stop.request();
        Ok(())
    }
}
