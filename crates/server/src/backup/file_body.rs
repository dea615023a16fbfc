//! A reply body that is a range of a file, read piece by piece on blocking threads, one piece ahead.
//!
//! Commands have priority: the CPU time of all bodies together has the limit of a snapshot
//! (`snapshot-cpu-percent`). Most of that time is used by the thread that serves the connection, because it
//! sends the pieces. Therefore all CPU time of that thread between two pieces is counted, including its work
//! for other connections. The reads on the blocking threads are not counted.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
    time::Duration,
};

use bytes::Bytes;
use env::File;
use http_body::{Body as HttpBody, Frame, SizeHint};
use settings::Key;
use tokio::{sync::OwnedSemaphorePermit, task::JoinHandle};

use super::{Backups, session::Session};

/// A body is read in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

/// A body that sends a range of a file and keeps its session and its transfer permit.
pub(super) struct FileBody {
    backups: Arc<Backups>,
    session: Arc<Session>,
    _transfer: OwnedSemaphorePermit,
    file: Arc<dyn File>,
    /// Offset of the next read.
    offset: u64,
    end: u64,
    /// Bytes not yet handed out, those being read included.
    left: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
    /// CPU time of the thread that serves the connection, at the last check.
    cpu_us: u64,
}

impl FileBody {
    /// The bytes `[from, end)` of a file of the session.
    pub(super) fn new(
        backups: Arc<Backups>,
        session: Arc<Session>,
        transfer: OwnedSemaphorePermit,
        file: Arc<dyn File>,
        (from, end): (u64, u64),
    ) -> FileBody {
        let mut body = FileBody {
            backups,
            session,
            _transfer: transfer,
            file,
            offset: from,
            end,
            left: end - from,
            reading: None,
            cpu_us: env::thread::cpu_time_us(),
        };
        body.read_on();
        body
    }

    /// Starts the read of the next piece, if any is left.
    fn read_on(&mut self) {
        let bytes = PIECE_BYTES.min(self.end - self.offset);
        if bytes == 0 {
            return;
        }
        let (file, session, offset) = (self.file.clone(), self.session.clone(), self.offset);
        let pause = self.pause();
        self.offset += bytes;
        // The piece is allocated on this thread, which also frees it. If another thread only allocated
        // pieces, the allocator would keep their memory reserved for that thread.
        let mut piece = vec![0; bytes as usize];
        self.reading = Some(tokio::task::spawn_blocking(move || {
            thread::sleep(pause);
            file.read_exact_at(&mut piece, offset)?;
            // The session is checked after the read: if it is still open, the bytes are those of the offered
            // file.
            if session.has_ended() {
                return Err(io::Error::other("the session has ended"));
            }
            Ok(piece.into())
        }));
    }

    /// The pause before the next piece.
    fn pause(&mut self) -> Duration {
        let used_us = env::thread::cpu_time_us() - self.cpu_us;
        self.cpu_us += used_us;
        let percent = self.backups.config.current().integer(Key::SnapshotCpuPercent);
        let us_per_second = percent * 10_000 * env::process::cores_available() as u64;
        Duration::from_micros(self.backups.sessions.pace.pause_us(
            used_us,
            us_per_second,
            self.backups.clock.monotonic_us(),
        ))
    }
}

impl HttpBody for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let piece =
            ready!(Pin::new(reading).poll(context)).unwrap_or_else(|panic| Err(io::Error::other(panic)));
        self.reading = None;
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                tracing::warn!(target: "server", %error, "a backup was cancelled");
                return Poll::Ready(Some(Err(error)));
            }
        };
        self.left -= piece.len() as u64;
        self.session.touch(self.backups.clock.monotonic_us());
        self.read_on();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }
}
