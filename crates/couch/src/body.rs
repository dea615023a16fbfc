//! Reply bodies: whole, or chunk by chunk with back-pressure. Request bodies are in `request_body`.

use std::{
    fmt,
    io::{self, Write},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use documents::DocError;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc;

use super::{failure::Failure, idle_timer::IdleTimer, noted::Noted};

/// Approximate size of the chunks of a reply.
pub(super) const CHUNK_BYTES: usize = 64 << 10;
/// The maximum number of finished chunks that wait in the channel of a reply.
const CHUNKS_AHEAD: usize = 1;

/// The client has left, or the server has aborted the reply.
#[derive(Debug)]
pub(super) struct Broken;

/// The reply has begun, so an error can only be shown by ending it early, and in the server's log.
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

/// An error of a body: the reply breaks off.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a reply.
pub struct Body {
    content: Content,
    /// The notes on the request. The body counts in them the bytes that the connection takes; they are
    /// complete when the body is dropped.
    noted: Option<Box<Noted>>,
}

enum Content {
    /// The complete body.
    Whole(Option<Bytes>),
    /// A body sent chunk by chunk.
    Chunks {
        /// Bytes that are still to come, if known.
        left: Option<u64>,
        /// The rendered chunks. An error aborts the reply, so that the client sees that it is incomplete.
        chunks: mpsc::Receiver<Result<Bytes, Broken>>,
        /// The connection is not idle until the body is dropped.
        idle_timer: Rc<IdleTimer>,
    },
    /// A body that another part of the server renders: see [`Body::boxed`].
    Other(Pin<Box<dyn HttpBody<Data = Bytes, Error = io::Error>>>),
}

impl Body {
    /// The body of a reply that has none.
    pub const EMPTY: Body = Body::of(Content::Whole(None));

    const fn of(content: Content) -> Body {
        Body { content, noted: None }
    }

    /// A body that another part of the server renders.
    pub fn boxed(body: impl HttpBody<Data = Bytes, Error = io::Error> + 'static) -> Body {
        Body::of(Content::Other(Box::pin(body)))
    }

    /// The same body, with the notes on its request, which are complete when the body is dropped.
    pub(super) fn noted_in(self, noted: Box<Noted>) -> Body {
        Body { noted: Some(noted), ..self }
    }

    /// Whether a handler sends the body chunk by chunk.
    pub(super) fn is_chunked(&self) -> bool {
        matches!(self.content, Content::Chunks { .. })
    }
}

impl<B: Into<Bytes>> From<B> for Body {
    fn from(bytes: B) -> Body {
        let bytes = bytes.into();
        Body::of(Content::Whole((!bytes.is_empty()).then_some(bytes)))
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Content::Chunks { idle_timer, .. } = self {
            idle_timer.end();
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Body { content, noted } = self.get_mut();
        let frame = ready!(content.poll_frame(context));
        if let (Some(noted), Some(Ok(frame))) = (noted, &frame) {
            noted.add_bytes(frame.data_ref().map_or(0, |bytes| bytes.len() as u64));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}

impl Content {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Chunks { chunks, left, .. } => {
                let chunk = ready!(chunks.poll_recv(context));
                if let (Some(left), Some(Ok(chunk))) = (left, &chunk) {
                    *left = left.saturating_sub(chunk.len() as u64);
                }
                Poll::Ready(chunk.map(|chunk| chunk.map(Frame::data).map_err(Into::into)))
            }
            Content::Other(body) => {
                body.as_mut().poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Content::Whole(bytes) => bytes.is_none(),
            Content::Chunks { .. } => false,
            Content::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Chunks { left, .. } => left.map_or_else(SizeHint::default, SizeHint::with_exact),
            Content::Other(body) => body.size_hint(),
        }
    }
}

/// The writer of a handler whose reply is sent chunk by chunk.
pub(super) struct ChunkWriter {
    sender: mpsc::Sender<Result<Bytes, Broken>>,
    /// The next chunk; append to it, then call [`ChunkWriter::breathe`].
    pub(super) buffer: Vec<u8>,
}

impl ChunkWriter {
    /// Sends the buffer if it is large enough for a chunk, and then yields to other tasks of the thread.
    /// Waits for a slow client.
    #[inline]
    pub(super) async fn breathe(&mut self) -> Result<(), Broken> {
        if self.buffer.len() < CHUNK_BYTES {
            return Ok(());
        }
        self.send().await
    }

    /// Yields to other tasks of the thread while nothing is rendered.
    ///
    /// # Errors
    /// If the client has left.
    pub(super) async fn rest(&self) -> Result<(), Broken> {
        tokio::task::yield_now().await;
        if self.sender.is_closed() { Err(Broken) } else { Ok(()) }
    }

    /// Sends the buffer, however small.
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

    /// Sends the buffer, then these bytes without copying them.
    pub(super) async fn send_bytes(&mut self, bytes: Bytes) -> Result<(), Broken> {
        self.send().await?;
        self.sender.send(Ok(bytes)).await.map_err(|_| Broken)?;
        tokio::task::yield_now().await;
        Ok(())
    }

    pub(super) fn put(&mut self, text: fmt::Arguments<'_>) {
        self.buffer.write_fmt(text).expect("memory takes all");
    }

    /// Completes when the client has left.
    pub(super) async fn gone(&self) {
        self.sender.closed().await;
    }
}

/// A body rendered by `render` on a task of its own.
pub(super) fn chunks<R, F>(idle_timer: &Rc<IdleTimer>, render: R) -> Body
where
    R: FnOnce(ChunkWriter) -> F + 'static,
    F: Future<Output = Result<(), Broken>> + 'static,
{
    start(idle_timer, None, render)
}

/// Like [`chunks`], for a body of exactly `bytes` bytes.
pub(super) fn chunks_of<R, F>(idle_timer: &Rc<IdleTimer>, bytes: u64, render: R) -> Body
where
    R: FnOnce(ChunkWriter) -> F + 'static,
    F: Future<Output = Result<(), Broken>> + 'static,
{
    start(idle_timer, Some(bytes), render)
}

fn start<R, F>(idle_timer: &Rc<IdleTimer>, left: Option<u64>, render: R) -> Body
where
    R: FnOnce(ChunkWriter) -> F + 'static,
    F: Future<Output = Result<(), Broken>> + 'static,
{
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    let failing = sender.clone();
    let rendering = render(ChunkWriter { sender, buffer: Vec::new() });
    tokio::task::spawn_local(async move {
        if rendering.await.is_err() {
            // If the client has left, there is no receiver.
            let _ = failing.send(Err(Broken)).await;
        }
    });
    Body::of(Content::Chunks { left, chunks: receiver, idle_timer: idle_timer.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_reply_is_an_error_for_its_sender() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let idle_timer = Rc::new(IdleTimer::new(Rc::default()));
            let mut body = chunks(&idle_timer, |mut writer| async move {
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
