//! Request bodies: read and decompressed within a limit, as a whole or piece by piece. Nothing is parsed
//! here.

use std::{
    cell::RefCell,
    io::{self, Write},
    pin::Pin,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use flate2::write::GzDecoder;
use http::{HeaderMap, header};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::{
    body_memory::Claim,
    failure::Failure,
    idle_timer::{IdleTimer, LOGIN_S_MAX},
};

/// Limit for reading and dropping an unwanted body.
const DRAINED_BYTES_MAX: u64 = 256 << 10;
/// The same limit for a client that must log in first.
const DRAINED_OF_STRANGER_BYTES_MAX: u64 = 64 << 10;
/// The first allocation for a body is no larger than this, however large the announced length.
const RESERVED_BYTES_MAX: usize = 1 << 20;
/// Compressed bytes between two checks of the memory limit: they inflate to a thousand times their size at
/// most.
const INFLATED_PART_BYTES: usize = 4 << 10;
/// Growth factor of a full buffer.
const GROWTH: usize = 4;
/// The maximum number of buffers that a thread keeps.
const SPARE_MAX: usize = 4;
/// The largest capacity of such a buffer.
const SPARE_BYTES_MAX: usize = 2 << 20;

/// Buffers for batch bodies, kept between requests: allocating them from the OS each time would cost more
/// than parsing the body.
#[derive(Default)]
pub(super) struct Spare(RefCell<Vec<Vec<u8>>>);

impl Spare {
    /// Empty memory for a body.
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps a buffer for another body, unless it is too large or there are enough. Its contents are dropped.
    pub(super) fn keep(&self, mut memory: Vec<u8>) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < SPARE_MAX && memory.capacity() <= SPARE_BYTES_MAX {
            memory.clear();
            kept.push(memory);
        }
    }
}

/// The unread body of a request.
pub(super) struct RequestBody {
    incoming: Incoming,
    idle_timer: Rc<IdleTimer>,
    bytes_max: usize,
    /// The claim for the memory of the received bytes.
    claim: Claim,
}

impl RequestBody {
    pub(super) fn new(
        incoming: Incoming,
        idle_timer: Rc<IdleTimer>,
        bytes_max: usize,
        claim: Claim,
    ) -> RequestBody {
        RequestBody { incoming, idle_timer, bytes_max, claim }
    }

    /// Replaces the claim, after the client has been identified.
    pub(super) fn claimed_by(self, claim: Claim) -> RequestBody {
        RequestBody { claim, ..self }
    }

    /// Lowers the limit of the body.
    pub(super) fn at_most(self, bytes_max: usize) -> RequestBody {
        RequestBody { bytes_max: self.bytes_max.min(bytes_max), ..self }
    }

    /// Claims memory for bytes that the caller of [`RequestBody::piece`] keeps.
    pub(super) fn claim(&mut self, bytes: usize) -> Result<(), Failure> {
        self.claim.cover(bytes)
    }

    /// The next piece; `None` at the end.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            self.idle_timer.await_body();
            let frame =
                std::future::poll_fn(|context| Pin::new(&mut self.incoming).poll_frame(context)).await;
            match frame {
                None => {
                    self.idle_timer.begin();
                    return Ok(None);
                }
                Some(Err(_)) => return Err(Failure::Gone),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.idle_timer.body_came(data.len());
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The announced length of the unread rest of the body, if it is known.
    pub(super) fn announced_bytes(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }

    /// Reads and drops an unwanted body, so that the connection can be reused. Returns false if the body is
    /// longer than [`DRAINED_BYTES_MAX`], or broken.
    pub(super) async fn drain(self) -> bool {
        self.drain_at_most(DRAINED_BYTES_MAX).await
    }

    /// As [`RequestBody::drain`], with a lower limit and for a short time only: for a client that must log in
    /// first.
    pub(super) async fn drain_of_stranger(self) -> bool {
        let limit = Duration::from_secs(LOGIN_S_MAX.into());
        timeout(limit, self.drain_at_most(DRAINED_OF_STRANGER_BYTES_MAX)).await.unwrap_or(false)
    }

    async fn drain_at_most(mut self, bytes_max: u64) -> bool {
        if self.announced_bytes().is_some_and(|bytes| bytes > bytes_max) {
            return false;
        }
        let mut bytes = 0;
        while !self.incoming.is_end_stream() {
            match self.piece().await {
                Ok(Some(piece)) if bytes + piece.len() as u64 <= bytes_max => bytes += piece.len() as u64,
                Ok(None) => return true,
                _ => return false,
            }
        }
        true
    }

    /// Reads and decompresses the whole body, within its limit.
    pub(super) async fn whole(mut self, headers: &HeaderMap) -> Result<Bytes, Failure> {
        self.require_fits(self.announced_bytes().unwrap_or(0))?;
        if is_gzip(headers)? {
            return Ok(self.all_inflated(Vec::new()).await?.into());
        }
        let Some(first) = self.piece().await? else { return Ok(Bytes::new()) };
        if self.incoming.is_end_stream() {
            self.require_fits(first.len() as u64)?;
            self.idle_timer.begin();
            return Ok(first);
        }
        Ok(self.all_behind(&first, Vec::new()).await?.into())
    }

    /// The whole body, in this empty buffer.
    pub(super) async fn whole_in(self, headers: &HeaderMap, memory: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.require_fits(self.announced_bytes().unwrap_or(0))?;
        if is_gzip(headers)? { self.all_inflated(memory).await } else { self.all_behind(&[], memory).await }
    }

    async fn all_behind(mut self, first: &[u8], memory: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let all = self.behind(first, memory).await?;
        self.idle_timer.hold(self.claim);
        Ok(all)
    }

    async fn all_inflated(mut self, memory: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let all = self.inflated(memory).await?;
        self.idle_timer.hold(self.claim);
        Ok(all)
    }

    /// `first` and the rest of the body after it.
    async fn behind(&mut self, first: &[u8], mut all: Vec<u8>) -> Result<Vec<u8>, Failure> {
        // The buffer grows in few steps, because each step needs the old and the new buffer in memory. It
        // does not grow beyond the announced length.
        let bytes_max =
            self.announced_bytes().map_or(self.bytes_max, |announced| first.len() + announced as usize);
        self.claim.cover(all.capacity())?;
        let reserved = bytes_max.min(RESERVED_BYTES_MAX);
        self.grow(&mut all, first.len(), reserved)?;
        all.extend_from_slice(first);
        while let Some(piece) = self.piece().await? {
            self.require_fits((all.len() + piece.len()) as u64)?;
            let capacity = (GROWTH * all.capacity()).min(bytes_max);
            self.grow(&mut all, piece.len(), capacity)?;
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    /// Makes room for `more` bytes; a full buffer gets at least `capacity` in all.
    fn grow(&mut self, all: &mut Vec<u8>, more: usize, capacity: usize) -> Result<(), Failure> {
        let needed = all.len() + more;
        if needed > all.capacity() {
            let capacity = capacity.max(needed);
            self.claim.cover(capacity)?;
            all.reserve_exact(capacity - all.len());
        }
        Ok(())
    }

    fn require_fits(&self, bytes: u64) -> Result<(), Failure> {
        if bytes > self.bytes_max as u64 { Err(Failure::TooLarge) } else { Ok(()) }
    }

    async fn inflated(&mut self, memory: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let mut decoder = GzDecoder::new(Bounded { bytes: memory, bytes_max: self.bytes_max });
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::FileTooLarge => Failure::TooLarge,
            _ => Failure::bad_request("invalid gzip"),
        };
        while let Some(piece) = self.piece().await? {
            // The piece is inflated in small parts, because it may grow to a thousand times its size.
            for part in piece.chunks(INFLATED_PART_BYTES) {
                decoder.write_all(part).map_err(failed)?;
                self.claim.cover(decoder.get_ref().bytes.capacity())?;
            }
        }
        Ok(decoder.finish().map_err(failed)?.bytes)
    }
}

/// Whether the body is compressed with gzip.
pub(super) fn is_gzip(headers: &HeaderMap) -> Result<bool, Failure> {
    match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()) {
        None | Some(b"identity" | b"") => Ok(false),
        Some(b"gzip" | b"x-gzip") => Ok(true),
        Some(_) => Err(Failure::BadContentEncoding),
    }
}

/// The output of decompression, with a limit: a few bytes can inflate to gigabytes.
struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn memory_is_kept_within_limits() {
        let spare = Spare::default();
        spare.keep(Vec::with_capacity(SPARE_BYTES_MAX + 1));
        assert_eq!(spare.take().capacity(), 0, "too large");
        (0..=SPARE_MAX).for_each(|_| spare.keep(vec![7; 100]));
        for _ in 0..SPARE_MAX {
            let memory = spare.take();
            assert!(memory.is_empty() && memory.capacity() >= 100);
        }
        assert_eq!(spare.take().capacity(), 0, "too many");
    }

    #[test]
    fn a_body_that_inflates_beyond_the_limit_is_refused_and_not_kept() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![b'x'; 4 << 20]).unwrap();
        let bomb = encoder.finish().unwrap();
        assert!(bomb.len() < 8 << 10);
        let mut decoder = GzDecoder::new(Bounded { bytes: Vec::new(), bytes_max: 1 << 20 });
        let error = decoder.write_all(&bomb).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(decoder.get_ref().bytes.len() <= 1 << 20);

        let mut decoder = GzDecoder::new(Bounded { bytes: Vec::new(), bytes_max: 4 << 20 });
        decoder.write_all(&bomb).unwrap();
        assert_eq!(decoder.finish().unwrap().bytes.len(), 4 << 20, "the limit itself is allowed");
    }
}
