//! Commands of the Redis protocol over HTTP: `POST /_redis`, and `POST /_redis/channel` for the messages of a
//! durable channel.
//!
//! ```text
//! body -> webconsole::parse -> words -> a client of its own, logged in -> webconsole::JsonReply -> body
//! ```
//!
//! A request is one client of the Redis protocol for as long as the request lasts. Its commands have the
//! rights of this client, and their replies wait for disks and replicas like those of any client.
//!
//! Invariants
//! - Only admins are served, and no pages of other origins: a page of another origin, also one that CORS
//!   admits, can neither send a request nor read its reply. The media type must be JSON, which no page sends
//!   to another origin without a preflight.
//! - No message is shown to a user that has lost its rights since it began to wait.
//! - A request is limited in time and in the bytes of its replies, and ends when its client leaves.
//! - The n-th reply belongs to the n-th command.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header, request::Parts};
use serde::Serialize;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixStream, unix::ReadHalf},
    time::{Instant, timeout_at},
};
use webconsole::{CommandRefusal, Follow, JsonReply};
use wire::{DecodeLimits, Decoder, Value};

use super::{
    access,
    access_log::ServedUser,
    body_memory::Claim,
    cross_site,
    failure::Failure,
    redis_limits::Broken,
    reply::{self, Reply},
    request::only,
    request_body::RequestBody,
    thread::HttpThread,
    user::User,
};

/// The first segment of the paths.
pub(super) const FOLDER: &str = "_redis";
const BODY_BYTES_MAX: usize = 4 << 20;
/// Limit of the replies together.
const REPLIES_BYTES_MAX: usize = 8 << 20;
/// Limit of the values in the replies together.
const VALUES_MAX: usize = 256 << 10;
/// How long the commands may take together.
const RUN_TIME_MAX: Duration = Duration::from_secs(30);
/// The longest time that a request waits for a message.
const WAIT_MS_MAX: u64 = 25_000;
/// How long a request waits before its user is judged again.
const JUDGED_EVERY: Duration = Duration::from_millis(500);
/// How long a request gathers further messages after the first.
const GATHER_TIME: Duration = Duration::from_millis(20);
/// Limit of the messages in one reply.
const MESSAGES_MAX: usize = 500;
const READ_BYTES: usize = 64 << 10;

/// The admin that sends a request.
struct Sender {
    user: User,
    peer: SocketAddr,
}

/// Serves `/_redis` and the paths below it.
pub(super) async fn answer(
    thread: &HttpThread,
    head: &Parts,
    path: &[&str],
    body: &mut Option<RequestBody>,
    peer: SocketAddr,
) -> Result<Reply, Failure> {
    only(head, "POST")?;
    cross_site::require_own_page(&head.headers)?;
    let sender = Sender { user: access::admit_admin(thread, &peer, &head.headers).await?, peer };
    ServedUser::note(&head.extensions, &sender.user);
    cross_site::require_json(&head.method, &head.headers)?;
    let body = match body.take() {
        Some(body) => {
            let claim = Claim::new(&thread.front.bodies, false, BODY_BYTES_MAX as u64);
            body.claimed_by(claim).at_most(BODY_BYTES_MAX).whole(&head.headers).await?
        }
        None => Bytes::new(),
    };
    match path {
        [] => run(thread, &body, &sender).await,
        ["channel"] => follow(thread, &body, &sender).await,
        _ => Err(Failure::NotFound("missing")),
    }
}

/// Serves `POST /_redis`
async fn run(thread: &HttpThread, body: &Bytes, sender: &Sender) -> Result<Reply, Failure> {
    let _permit = thread.front.redis_runs.try_acquire().map_err(|_| Broken::Busy)?;
    let commands = webconsole::parse(body).map_err(|error| Failure::bad_request(error.to_string()))?;
    let table = thread.host().redis.commands();
    let refused: Vec<Option<CommandRefusal>> =
        commands.iter().map(|words| webconsole::refusal(table, words)).collect();
    let (mut request, mut count) = (Vec::new(), 0);
    for (words, _) in commands.iter().zip(&refused).filter(|(_, refused)| refused.is_none()) {
        wire::request::encode(words, &mut request);
        count += 1;
    }
    let deadline = Instant::now() + RUN_TIME_MAX;
    let replies = async {
        let mut client = Client::connect(thread, sender).await?;
        client.exchange(&request, count).await
    };
    let replies = timeout_at(deadline, replies).await.map_err(|_| Broken::Late)??;
    let mut replies = replies.into_iter();
    let all: Vec<Value> = refused
        .into_iter()
        .filter_map(|refused| match refused {
            Some(refused) => Some(Value::Error(refused.to_string().into_bytes())),
            None => replies.next(),
        })
        .collect();
    Ok(private(&all.iter().map(JsonReply).collect::<Vec<_>>()))
}

/// Serves `POST /_redis/channel`: replies with the messages after a position, at once if there are any, or
/// when the first comes. If none comes in time, the reply has none.
async fn follow(thread: &HttpThread, body: &Bytes, sender: &Sender) -> Result<Reply, Failure> {
    let malformed = "The body must be {\"channel\": name, \"from\": position, \"wait_ms\": milliseconds}.";
    let request = Follow::parse(body).ok_or(Failure::bad_request(malformed))?;
    let _permit = thread.front.redis_follows.try_acquire().map_err(|_| Broken::Busy)?;
    let follower = access::begin_follow(thread, &sender.user);
    let answer = messages_after(thread, request, sender, &follower).await;
    // If the user has lost its rights, its connection may have been closed for that: the lost rights are the
    // error, not the closed connection.
    require_still_admin(thread, &follower)?;
    answer
}

/// Waits for messages. The rights of the user are checked again meanwhile.
async fn messages_after(
    thread: &HttpThread,
    request: Follow,
    sender: &Sender,
    follower: &User,
) -> Result<Reply, Failure> {
    let Follow { channel, from, wait_ms } = request;
    let deadline = Instant::now() + RUN_TIME_MAX;
    let subscribed = async {
        let mut client = Client::connect(thread, sender).await?;
        let mut request = Vec::new();
        wire::request::encode([&b"XSUBSCRIBE"[..], &channel, b"FROM", from.as_bytes()], &mut request);
        client.send(&request).await?;
        let confirmed = client.value().await?;
        Ok::<_, Broken>((client, confirmed))
    };
    let (mut client, confirmed) = timeout_at(deadline, subscribed).await.map_err(|_| Broken::Late)??;
    let (mut next, mut messages, mut lost) = match &confirmed {
        Value::Error(text) => return Ok(private(&json!({ "error": String::from_utf8_lossy(text) }))),
        Value::Push(parts) => (text(parts, 2), Vec::new(), None),
        _ => return Err(Broken::Closed.into()),
    };
    let mut until = Instant::now() + Duration::from_millis(wait_ms.min(WAIT_MS_MAX));
    while messages.len() < MESSAGES_MAX && lost.is_none() {
        let waited = timeout_at(until.min(Instant::now() + JUDGED_EVERY), client.value()).await;
        require_still_admin(thread, follower)?;
        let value = match waited {
            Ok(Err(Broken::TooLong)) if !messages.is_empty() => break,
            Ok(value) => value?,
            Err(_) if Instant::now() < until => continue,
            Err(_) => break,
        };
        if messages.is_empty() {
            until = Instant::now() + GATHER_TIME;
        }
        if let Value::Push(parts) = value {
            match parts.first() {
                Some(Value::Bulk(kind)) if kind == b"xlost" => lost = Some(text(&parts, 2)),
                _ => {
                    next = text(&parts, 2);
                    messages.push((next.clone(), parts.into_iter().nth(3).unwrap_or(Value::Null)));
                }
            }
        }
    }
    let messages: Vec<Message<'_>> = messages
        .iter()
        .map(|(position, message)| Message { position, message: JsonReply(message) })
        .collect();
    Ok(private(&json!({ "messages": messages, "next": next, "lost": lost })))
}

/// Judges again a user that waits for messages.
///
/// # Errors
/// If it is no admin any more, or its credentials have expired.
fn require_still_admin(thread: &HttpThread, user: &User) -> Result<(), Failure> {
    let has_ended = access::time_left(thread, user).is_some_and(|left| left.is_zero());
    let user = access::still(thread, user).filter(|_| !has_ended);
    user.unwrap_or_else(|| User::anonymous(false)).require_admin()
}

#[derive(Serialize)]
struct Message<'m> {
    position: &'m str,
    message: JsonReply<'m>,
}

fn text(parts: &[Value], index: usize) -> String {
    match parts.get(index) {
        Some(Value::Bulk(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

/// A reply that no cache keeps.
fn private(content: &impl Serialize) -> Reply {
    let mut reply = reply::value(StatusCode::OK, content);
    let headers = reply.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

/// A connection of the Redis protocol, logged in.
struct Client {
    stream: UnixStream,
    replies: Replies,
}

/// The bytes that the server has sent, and the values in them.
struct Replies {
    received: Vec<u8>,
    /// Bytes of `received` that belong to values which were taken.
    taken: usize,
    decoder: Decoder,
    /// Bytes that may still be received.
    bytes_left: usize,
    /// Values that may still be decoded.
    values_left: usize,
}

impl Client {
    /// A connection in the name of the sender, in RESP3.
    async fn connect(thread: &HttpThread, sender: &Sender) -> Result<Client, Broken> {
        let redis = &thread.host().redis;
        let stream = redis.connect(sender.peer, sender.user.name.as_deref()).map_err(Broken::NotServed)?;
        let stream = UnixStream::from_std(stream).map_err(|_| Broken::Busy)?;
        let mut client = Client { stream, replies: Replies::new() };
        let mut hello = Vec::new();
        wire::request::encode(&["HELLO", "3", "SETNAME", "http"], &mut hello);
        client.send(&hello).await?;
        match client.value().await? {
            Value::Error(text) => Err(Broken::NotServed(String::from_utf8_lossy(&text).into_owned())),
            _ => Ok(client),
        }
    }

    async fn send(&mut self, request: &[u8]) -> Result<(), Broken> {
        self.stream.write_all(request).await.map_err(|_| Broken::Closed)
    }

    /// Sends commands, and receives their replies meanwhile: the server reads no more while too many replies
    /// are unread.
    async fn exchange(&mut self, request: &[u8], count: usize) -> Result<Vec<Value>, Broken> {
        let Client { stream, replies } = self;
        let (mut reading, mut writing) = stream.split();
        let send = async { writing.write_all(request).await.map_err(|_| Broken::Closed) };
        let receive = async {
            let mut values = Vec::with_capacity(count);
            while values.len() < count {
                values.push(replies.value(&mut reading).await?);
            }
            Ok::<_, Broken>(values)
        };
        let ((), values) = tokio::try_join!(send, receive)?;
        Ok(values)
    }

    /// The next value that the server sends. If the call is cancelled, nothing received is lost.
    async fn value(&mut self) -> Result<Value, Broken> {
        let (mut reading, _) = self.stream.split();
        self.replies.value(&mut reading).await
    }
}

impl Replies {
    fn new() -> Replies {
        Replies {
            received: Vec::new(),
            taken: 0,
            decoder: Decoder::new(),
            bytes_left: REPLIES_BYTES_MAX,
            values_left: VALUES_MAX,
        }
    }

    /// The next value, once it has arrived whole.
    async fn value(&mut self, reading: &mut ReadHalf<'_>) -> Result<Value, Broken> {
        loop {
            if let Some(value) = self.take()? {
                return Ok(value);
            }
            self.read(reading).await?;
        }
    }

    /// Takes a value out of the received bytes, if all of it is there.
    fn take(&mut self) -> Result<Option<Value>, Broken> {
        let limits =
            DecodeLimits { bytes_max: REPLIES_BYTES_MAX, elements_max: self.values_left, nesting_max: 64 };
        let decoded = self.decoder.decode(&self.received[self.taken..], &limits);
        let Some((value, bytes)) = decoded.map_err(|_| Broken::TooLong)? else { return Ok(None) };
        self.taken += bytes;
        self.values_left -= value.elements();
        if self.taken == self.received.len() {
            self.received.clear();
            self.taken = 0;
        }
        Ok(Some(value))
    }

    async fn read(&mut self, reading: &mut ReadHalf<'_>) -> Result<(), Broken> {
        self.received.reserve(READ_BYTES.min(self.bytes_left));
        let mut bounded = reading.take(self.bytes_left as u64);
        let count = bounded.read_buf(&mut self.received).await.map_err(|_| Broken::Closed)?;
        self.bytes_left -= count;
        match count {
            0 if self.bytes_left == 0 => Err(Broken::TooLong),
            0 => Err(Broken::Closed),
            _ => Ok(()),
        }
    }
}
