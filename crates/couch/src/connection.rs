//! One connection: the socket, which reports its progress to the idle timer, and the loop of its requests.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
};

use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    access, access_log::Entry, cookie, idle_timer::IdleTimer, noted::Noted, request::Encrypted, route,
    socket::Socket, thread::HttpThread, traces::Trace,
};
use crate::Host;

/// Limit of the head of a request, and of the buffered bytes of a reply.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// The maximum number of header fields of a request.
const HEADERS_MAX: usize = 100;

/// Serves until the connection ends, `idle_timer.ended` is notified, or the thread stops and the reply is
/// sent.
pub(super) async fn serve<S: Socket>(
    thread: Rc<HttpThread>,
    stream: S::Stream,
    peer: SocketAddr,
    idle_timer: Rc<IdleTimer>,
) {
    let is_encrypted = S::is_encrypted(&stream);
    let service = service_fn(|mut request: Request<Incoming>| {
        let (thread, idle_timer) = (thread.clone(), idle_timer.clone());
        if is_encrypted {
            request.extensions_mut().insert(Encrypted);
        }
        let noted = noted_of(&thread, &mut request, peer, is_encrypted);
        async move {
            let answer = route::answer(thread.clone(), request, peer, idle_timer);
            let trace = noted.as_ref().and_then(|noted| noted.trace.as_ref());
            let mut reply = Trace::during(trace, answer).await;
            if is_encrypted {
                cookie::keep_encrypted(&mut reply);
            }
            thread.front.host.traffic.responded(reply.status());
            if let Some(mut noted) = noted {
                noted.set_status(reply.status());
                reply = reply.map(|body| body.noted_in(noted));
            }
            Ok::<_, Infallible>(reply)
        }
    });
    let io = TokioIo::new(Watched::<S> { stream, idle_timer: idle_timer.clone(), in_first_line: false });
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BUFFER_BYTES_MAX).max_headers(HEADERS_MAX);
    let mut connection = pin!(builder.serve_connection(io, service));
    let mut leaving = false;
    loop {
        tokio::select! {
            biased;
            // The connection has ended: an error cannot be reported to the client.
            _ = connection.as_mut() => return,
            () = idle_timer.ended.notified() => return,
            () = thread.stopping(), if !leaving => {
                leaving = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The notes that a request leaves behind it; `None` if it is neither logged nor traced.
fn noted_of(
    thread: &HttpThread,
    request: &mut Request<Incoming>,
    peer: SocketAddr,
    is_encrypted: bool,
) -> Option<Box<Noted>> {
    let host = thread.host();
    let traces = host.traces.as_ref();
    let trace = traces.and_then(|traces| Trace::begin(traces, &host.clock, request, is_encrypted));
    Noted::new(entry_of(host, request, peer), trace)
}

/// The entry of a request in the access log, if it is on.
fn entry_of(host: &Host, request: &mut Request<Incoming>, peer: SocketAddr) -> Option<Entry> {
    let log = host.access_log.as_ref().filter(|log| log.is_on())?;
    let given_name = access::named(request.headers());
    let head = (request.method(), request.uri());
    let entry = Entry::new(log.clone(), host.clock.clone(), peer, head, given_name);
    request.extensions_mut().insert(entry.served_user());
    Some(entry)
}

/// A socket that tells the idle timer of its progress.
struct Watched<S: Socket> {
    stream: S::Stream,
    idle_timer: Rc<IdleTimer>,
    /// Whether the bytes read so far end within the first line of a request.
    in_first_line: bool,
}

impl<S: Socket> Watched<S> {
    fn wrote(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if result.is_ready() {
            self.idle_timer.wrote();
        } else {
            self.idle_timer.was_refused(|| S::unacknowledged(&self.stream));
        }
        result
    }
}

impl<S: Socket> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.in_first_line |= self.idle_timer.is_idle();
            self.idle_timer.read();
            if self.in_first_line {
                self.in_first_line = escape_quotes(buffer, before);
            }
        }
        result
    }
}

/// Replaces quotes in the first line of a request by `%22`, if the buffer has room. People type `?key="a"`,
/// and CouchDB accepts such a line, but the parser of HTTP does not. Returns whether the line continues.
fn escape_quotes(buffer: &mut ReadBuf<'_>, from: usize) -> bool {
    let new = &buffer.filled()[from..];
    let end = memchr::memchr(b'\n', new);
    let (line, rest) = new.split_at(end.unwrap_or(new.len()));
    let count = memchr::memchr_iter(b'"', line).count();
    if count > 0 && 2 * count <= buffer.remaining() {
        let mut escaped = Vec::with_capacity(new.len() + 2 * count);
        for &byte in line {
            match byte {
                b'"' => escaped.extend_from_slice(b"%22"),
                byte => escaped.push(byte),
            }
        }
        escaped.extend_from_slice(rest);
        buffer.set_filled(from);
        buffer.put_slice(&escaped);
    }
    end.is_none()
}

impl<S: Socket> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(sent: &[u8], room: usize) -> (Vec<u8>, bool) {
        let mut memory = vec![0; sent.len() + room];
        let mut buffer = ReadBuf::new(&mut memory);
        buffer.put_slice(sent);
        let goes_on = escape_quotes(&mut buffer, 1);
        (buffer.filled().to_vec(), goes_on)
    }

    #[test]
    fn quotes_are_escaped_in_the_first_line_only() {
        let sent = b"\"GET /a?key=\"b\" HTTP/1.1\r\nETag: \"x\"\r\n";
        let expected = b"\"GET /a?key=%22b%22 HTTP/1.1\r\nETag: \"x\"\r\n";
        assert_eq!(escaped(sent, 4), (expected.to_vec(), false));
        assert_eq!(escaped(sent, 3), (sent.to_vec(), false), "there is no room");
        assert_eq!(escaped(b"xGET /a?\"", 9), (b"xGET /a?%22".to_vec(), true), "the line goes on");
        assert_eq!(escaped(b"x\r\n", 9), (b"x\r\n".to_vec(), false));
    }
}
