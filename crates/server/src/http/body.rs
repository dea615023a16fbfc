//! Bodies. Of requests: read with a limit, inflated with the same limit. Of replies: whole, or chunk by chunk with
//! back-pressure.

use std::{
    fmt,
    io::{self, Write},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Bytes, HttpBody},
    http::{HeaderMap, header},
};
use documents::DocError;
use flate2::write::GzDecoder;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::{failure::Failure, patience::Patience};

/// Chunks of about this size are sent of a reply that is not whole.
pub(super) const CHUNK_BYTES: usize = 64 << 10;
/// How many of them are in memory beside the one that is being rendered.
const CHUNKS_AHEAD: usize = 1;
/// What is read of a body that nobody wants.
const DRAINED_BYTES_MAX: u64 = 256 << 10;
/// What is reserved for a body at once, whatever its length is said to be.
const RESERVED_BYTES_MAX: usize = 1 << 20;

/// The body of a request.
pub(super) struct RequestBody {
    incoming: Incoming,
    patience: Rc<Patience>,
    bytes_max: usize,
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, patience: Rc<Patience>, bytes_max: usize) -> RequestBody {
        RequestBody { incoming, patience, bytes_max }
    }

    /// The same, if it is not larger than this.
    pub(super) fn at_most(self, bytes_max: usize) -> RequestBody {
        RequestBody { bytes_max: self.bytes_max.min(bytes_max), ..self }
    }

    /// The next piece; `None` at the end.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            self.patience.await_body();
            let frame =
                std::future::poll_fn(|context| Pin::new(&mut self.incoming).poll_frame(context)).await;
            match frame {
                None => {
                    self.patience.begin();
                    return Ok(None);
                }
                Some(Err(_)) => return Err(Failure::Gone),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.patience.body_came(data.len());
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The length that the client has announced.
    pub(super) fn announced_bytes(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }

    /// Takes what nobody has asked for, so that the connection can go on with the next request. Says whether that was done: not
    /// if it is much.
    pub(super) async fn drain(mut self) -> bool {
        if self.announced_bytes().is_some_and(|bytes| bytes > DRAINED_BYTES_MAX) {
            return false;
        }
        let mut bytes = 0;
        while !self.incoming.is_end_stream() {
            match self.piece().await {
                Ok(Some(piece)) if bytes + piece.len() as u64 <= DRAINED_BYTES_MAX => {
                    bytes += piece.len() as u64
                }
                Ok(None) => return true,
                _ => return false,
            }
        }
        true
    }

    /// All of it.
    pub(super) async fn whole(mut self, headers: &HeaderMap) -> Result<Bytes, Failure> {
        if self.announced_bytes().is_some_and(|bytes| bytes > self.bytes_max as u64) {
            return Err(Failure::TooLarge);
        }
        if is_gzip(headers)? {
            return self.inflated().await;
        }
        let Some(first) = self.piece().await? else { return Ok(Bytes::new()) };
        if first.len() > self.bytes_max {
            return Err(Failure::TooLarge);
        }
        if self.incoming.is_end_stream() {
            self.patience.begin();
            return Ok(first);
        }
        let announced = self.announced_bytes().unwrap_or(0) as usize;
        let mut all = Vec::with_capacity(first.len() + announced.min(RESERVED_BYTES_MAX));
        all.extend_from_slice(&first);
        while let Some(piece) = self.piece().await? {
            if all.len() + piece.len() > self.bytes_max {
                return Err(Failure::TooLarge);
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.into())
    }

    async fn inflated(mut self) -> Result<Bytes, Failure> {
        let mut decoder = GzDecoder::new(Bounded { bytes: Vec::new(), bytes_max: self.bytes_max });
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::FileTooLarge => Failure::TooLarge,
            _ => Failure::bad_request("invalid gzip"),
        };
        while let Some(piece) = self.piece().await? {
            decoder.write_all(&piece).map_err(failed)?;
        }
        Ok(decoder.finish().map_err(failed)?.bytes.into())
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

/// What is inflated, up to a limit: a few bytes can be made to inflate to gigabytes.
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

/// The client, or the server, has given up on a reply.
#[derive(Debug)]
pub(super) struct Broken;

/// The reply has begun: that something is wrong is told by not ending it, and here.
impl From<Failure> for Broken {
    fn from(failure: Failure) -> Broken {
        let (_, _, reason) = failure.parts();
        tracing::warn!(target: "server", %reason, "a reply over HTTP was broken off");
        Broken
    }
}

impl From<DocError> for Broken {
    fn from(error: DocError) -> Broken {
        Failure::Doc(error).into()
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the reply was broken off")
    }
}

impl std::error::Error for Broken {}

/// The body of a reply.
pub(super) enum Body {
    /// All of it is there.
    Whole(Option<Bytes>),
    /// It comes chunk by chunk.
    Chunks {
        /// How many bytes are still to come, if that is known.
        left: Option<u64>,
        /// Where they come from. One that is an error breaks the reply off, so that the client sees that it is not complete.
        chunks: mpsc::Receiver<Result<Bytes, Broken>>,
        /// The connection is not idle until the last has been taken.
        patience: Rc<Patience>,
    },
    /// A body of another part of the server.
    Other(axum::body::Body),
}

impl Body {
    pub(super) const EMPTY: Body = Body::Whole(None);
}

impl<B: Into<Bytes>> From<B> for Body {
    fn from(bytes: B) -> Body {
        let bytes = bytes.into();
        Body::Whole((!bytes.is_empty()).then_some(bytes))
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Body::Chunks { patience, .. } = self {
            patience.end();
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        match self.get_mut() {
            Body::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Chunks { chunks, left, .. } => {
                let chunk = ready!(chunks.poll_recv(context));
                if let (Some(left), Some(Ok(chunk))) = (left, &chunk) {
                    *left = left.saturating_sub(chunk.len() as u64);
                }
                Poll::Ready(chunk.map(|chunk| chunk.map(Frame::data).map_err(Into::into)))
            }
            Body::Other(body) => {
                Pin::new(body).poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(bytes) => bytes.is_none(),
            Body::Chunks { .. } => false,
            Body::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Body::Chunks { left, .. } => left.map_or_else(SizeHint::default, SizeHint::with_exact),
            Body::Other(body) => body.size_hint(),
        }
    }
}

/// Where a handler writes a reply that is sent chunk by chunk.
pub(super) struct ChunkWriter {
    sender: mpsc::Sender<Result<Bytes, Broken>>,
    /// What is rendered next; write to it, then call [`ChunkWriter::breathe`].
    pub(super) buffer: Vec<u8>,
}

impl ChunkWriter {
    /// Sends what was rendered if it is enough for a chunk. Others of the thread get their turn then, and a client that takes
    /// slowly is waited for.
    #[inline]
    pub(super) async fn breathe(&mut self) -> Result<(), Broken> {
        if self.buffer.len() < CHUNK_BYTES {
            return Ok(());
        }
        self.send().await
    }

    /// Gives others of the thread their turn, while nothing is rendered.
    ///
    /// # Errors
    /// If the client has left.
    pub(super) async fn rest(&self) -> Result<(), Broken> {
        tokio::task::yield_now().await;
        if self.sender.is_closed() { Err(Broken) } else { Ok(()) }
    }

    /// Sends what was rendered.
    pub(super) async fn send(&mut self) -> Result<(), Broken> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let next = Vec::with_capacity(self.buffer.len());
        let chunk = std::mem::replace(&mut self.buffer, next);
        self.sender.send(Ok(chunk.into())).await.map_err(|_| Broken)?;
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Sends bytes as they are, behind what was rendered.
    pub(super) async fn send_bytes(&mut self, bytes: Bytes) -> Result<(), Broken> {
        self.send().await?;
        self.sender.send(Ok(bytes)).await.map_err(|_| Broken)?;
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Appends a text.
    pub(super) fn put(&mut self, text: fmt::Arguments<'_>) {
        self.buffer.write_fmt(text).expect("memory takes all");
    }

    /// Completes when the client has gone.
    pub(super) async fn gone(&self) {
        self.sender.closed().await;
    }
}

/// A body that `render` writes, on a task of its own.
pub(super) fn chunks<R, F>(patience: &Rc<Patience>, render: R) -> Body
where
    R: FnOnce(ChunkWriter) -> F + 'static,
    F: Future<Output = Result<(), Broken>> + 'static,
{
    start(patience, None, render)
}

/// As [`chunks`], of a body with so many bytes.
pub(super) fn chunks_of<R, F>(patience: &Rc<Patience>, bytes: u64, render: R) -> Body
where
    R: FnOnce(ChunkWriter) -> F + 'static,
    F: Future<Output = Result<(), Broken>> + 'static,
{
    start(patience, Some(bytes), render)
}

fn start<R, F>(patience: &Rc<Patience>, left: Option<u64>, render: R) -> Body
where
    R: FnOnce(ChunkWriter) -> F + 'static,
    F: Future<Output = Result<(), Broken>> + 'static,
{
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    let failing = sender.clone();
    let rendering = render(ChunkWriter { sender, buffer: Vec::new() });
    tokio::task::spawn_local(async move {
        if rendering.await.is_err() {
            // If the client has gone, nobody takes it.
            let _ = failing.send(Err(Broken)).await;
        }
    });
    Body::Chunks { left, chunks: receiver, patience: patience.clone() }
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn what_inflates_beyond_the_limit_is_refused_and_not_kept() {
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

    #[test]
    fn a_reply_that_breaks_off_is_an_error_for_who_sends_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let patience = Rc::new(Patience::new(Rc::default()));
            let mut body = chunks(&patience, |mut writer| async move {
                writer.buffer.extend_from_slice(b"half");
                writer.send().await?;
                Err(Broken)
            });
            let mut next =
                async || std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
            let half = next().await.unwrap().unwrap();
            assert_eq!(half.into_data().unwrap().as_ref(), b"half");
            assert!(next().await.unwrap().is_err());
        });
    }
}
