//! XSUBSCRIBE and XUNSUBSCRIBE: durable channels from the log.
//!
//! What it is: the requests of these commands to the thread that reads the log.
//! What it is not: the reading (see [`pubsub::durable`]), nor the changes and replies that follow from the
//! thread's answers (see [`engine::channel_reader`]).
//!
//! A client that has sent a request waits for the thread's answer as if it were blocked
//! ([`Wait::Channels`]).

use engine::{
    ChannelReader, CommandError, Context, ReplyMode, Wait,
    audit::AUDIT_CHANNEL,
    channel_reader::{confirm, count},
};
use pubsub::{
    Kind,
    durable::{From, Request},
};
use wire::{Args, ReplyWriter};

use super::subscribe::subscriber;

/// `XSUBSCRIBE channel FROM position|$|-`
pub(super) fn xsubscribe(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if !args.at(2).eq_ignore_ascii_case(b"from") {
        return Err(CommandError::Syntax);
    }
    let Some(from) = From::parse(args.at(3)) else {
        return Err(CommandError::Text(
            "ERR invalid position: give epoch:lsn:reign, - for the oldest message, or $ for those to come",
        ));
    };
    if args.at(1) == AUDIT_CHANNEL && !cx.session.login.principal().is_some_and(|user| user.is_admin) {
        return Err(CommandError::Text("NOPERM the audit is for users who may run every command of @admin"));
    }
    if !cx.host.config.is_durable_channel(args.at(1)) {
        return Err(CommandError::Text(
            "ERR the channel is not durable: no pattern in durable-channels matches it",
        ));
    }
    let (reader, flow) = {
        let ChannelReader { id, flow } = reader(cx);
        (*id, flow.clone())
    };
    let (worker, channel) = (cx.channels().worker(), args.at(1).into());
    ask(cx, Request::Subscribe { reader, worker, flow, channel, from });
    Ok(())
}

/// `XUNSUBSCRIBE [channel [channel ...]]`
pub(super) fn xunsubscribe(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let id = subscriber(cx);
    let mut channels: Vec<Box<[u8]>> = args.skip(1).iter().map(Box::from).collect();
    if channels.is_empty() {
        channels = cx.channels().names(id, Kind::Log);
    }
    let worker = cx.channels().worker();
    match &cx.session.reader {
        Some(reader) if !channels.is_empty() => {
            let reader = reader.id;
            ask(cx, Request::Unsubscribe { reader, worker, channels });
        }
        _ => {
            let count = count(cx.channels(), id);
            // The client reads no durable channel from the log, so there is nothing to ask the thread for.
            let names = channels.iter().map(|name| Some(&**name));
            let names: Vec<Option<&[u8]>> = if channels.is_empty() { vec![None] } else { names.collect() };
            names.iter().for_each(|name| confirm(&mut cx.reply, "xunsubscribe", *name, None, count));
            if cx.session.is_silent() {
                let reply = &mut ReplyWriter::new(&mut cx.session.confirmations, cx.session.protocol);
                names.iter().for_each(|name| confirm(reply, "xunsubscribe", *name, None, count));
            }
        }
    }
    Ok(())
}

/// The reader of this session. If there is none, it is created, with a generation that no earlier reader of
/// the session had.
fn reader<'s>(cx: &'s mut Context<'_, '_>) -> &'s ChannelReader {
    let session = &mut *cx.session;
    if session.reader.is_none() {
        session.reader_generation += 1;
    }
    let (client_id, generation) = (session.client.id(), session.reader_generation);
    session.reader.get_or_insert_with(|| {
        let id = pubsub::durable::ReaderId { client_id, generation };
        Box::new(ChannelReader { id, flow: cx.host.durable_channels.new_flow() })
    })
}

fn ask(cx: &mut Context<'_, '_>, request: Request) {
    cx.session.wait = Some(Wait::Channels { is_silent: cx.session.reply_mode != ReplyMode::On });
    cx.host.durable_channels.request(request);
}

#[cfg(test)]
mod tests {
    use pubsub::durable::{Position, ReaderEvent, ReaderId};

    use super::*;
    use crate::testing::TestServer;

    const POSITION: Position = Position { epoch: 3, lsn: lsn::Lsn::new(4096), reign: 0 };

    /// Runs a command that makes a request to the thread of durable channels; returns the request.
    fn ask(server: &mut TestServer, line: &str) -> Request {
        assert_eq!(server.run(line), "", "{line}: the answer comes later");
        assert!(matches!(server.session.wait.take(), Some(Wait::Channels { is_silent: false })));
        server.host.channel_requests.lock().pop().expect("something is asked")
    }

    fn notified(server: &mut TestServer, notified: &ReaderEvent) -> String {
        let mut out = Vec::new();
        server.executor.notify(notified, &mut server.session, &mut out);
        String::from_utf8(out).expect("text").replace("\r\n", " ")
    }

    /// Subscribes, with a simulated answer of the thread.
    fn subscribe(server: &mut TestServer, channel: &str) -> (ReaderId, String) {
        let request = ask(server, &format!("xsubscribe {channel} from -"));
        let Request::Subscribe { reader, channel, from: From::Oldest, worker: 0, .. } = request else {
            panic!("{request:?}")
        };
        (reader, notified(server, &ReaderEvent::Subscribed { reader, channel, position: POSITION }))
    }

    #[test]
    fn a_request_is_confirmed_when_its_answer_arrives() {
        let mut server = TestServer::new();
        let (reader, confirmed) = subscribe(&mut server, "durable:a");
        assert_eq!(confirmed, "*4 $10 xsubscribe $9 durable:a $6 3:4096 :1 ");
        assert!(server.session.subscribed);
        server.session.protocol = wire::Protocol::Resp3;
        let (again, confirmed) = subscribe(&mut server, "durable:b");
        assert_eq!(confirmed, ">4 $10 xsubscribe $9 durable:b $6 3:4096 :2 ");
        assert_eq!(again, reader);
        server.check(&[("pubsub numsub durable:a", "[\"durable:a\", :1]")]);
        server.check(&[("subscribe x", ">[\"subscribe\", \"x\", :3]"), ("publish durable:a m", ":1")]);
        let request = ask(&mut server, "xunsubscribe durable:b z");
        let Request::Unsubscribe { channels, .. } = request else { panic!("{request:?}") };
        let ended = notified(&mut server, &ReaderEvent::Unsubscribed { reader, channels });
        assert_eq!(ended, ">3 $12 xunsubscribe $9 durable:b :2 >3 $12 xunsubscribe $1 z :2 ");
        let lost = ReaderEvent::Lost { reader, channel: (*b"durable:a").into(), oldest: POSITION };
        assert_eq!(notified(&mut server, &lost), ">4 $5 xlost $9 durable:a $6 3:4096 :1 ");
        server.check(&[("unsubscribe", ">[\"unsubscribe\", \"x\", :0]")]);
        assert!(!server.session.subscribed);
    }

    #[test]
    fn a_refusal_changes_nothing() {
        let mut server = TestServer::new();
        let request = ask(&mut server, "xsubscribe durable from 3:77");
        let Request::Subscribe { reader, from: From::After(position), .. } = request else {
            panic!("{request:?}")
        };
        assert_eq!((position.epoch, position.lsn), (3, lsn::Lsn::new(77)));
        let error = format!("LOST position {position} is not of this log");
        assert_eq!(
            notified(&mut server, &ReaderEvent::Refused { reader, error }),
            "-LOST position 3:77 is not of this log "
        );
        assert!(!server.session.subscribed);
    }

    #[test]
    fn invalid_requests_are_refused_without_asking() {
        let mut server = TestServer::new();
        let invalid =
            "-ERR invalid position: give epoch:lsn:reign, - for the oldest message, or $ for those to come";
        let not_durable = "-ERR the channel is not durable: no pattern in durable-channels matches it";
        server.check(&[
            ("xsubscribe durable from", "-ERR wrong number of arguments for 'xsubscribe' command"),
            ("xsubscribe durable since -", "-ERR syntax error"),
            ("xsubscribe durable from x", invalid),
            ("xsubscribe durable from 4294967296:1", invalid),
            ("xsubscribe other from -", not_durable),
            ("xunsubscribe", "[\"xunsubscribe\", nil, :0]"),
            ("xunsubscribe a", "[\"xunsubscribe\", \"a\", :0]"),
            ("multi", "+OK"),
            ("xsubscribe durable from -", "-ERR Command not allowed inside a transaction"),
        ]);
        assert!(server.host.channel_requests.lock().is_empty() && server.session.wait.is_none());
    }

    #[test]
    fn a_client_gets_a_new_generation_after_reset() {
        let mut server = TestServer::new();
        let (first, _) = subscribe(&mut server, "durable");
        server.check(&[("reset", "+RESET"), ("publish durable m", ":0")]);
        let request = server.host.channel_requests.lock().pop();
        assert!(matches!(request, Some(Request::Leave { reader }) if reader == first));
        let (second, _) = subscribe(&mut server, "durable");
        assert_eq!((second.client_id, second.generation), (first.client_id, first.generation + 1));
    }
}
