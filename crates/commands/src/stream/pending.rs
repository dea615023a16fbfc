//! XPENDING: deliveries that are not acknowledged.

use std::ops::RangeInclusive;

use engine::{CommandError, Context};
use keyspace::{Delivery, GroupView, PendingView, StreamId};
use wire::{Args, ReplyWriter, number::parse_i64};

use super::{group, id, range::parse_size, reply::write_id, stream};

/// `XPENDING key group [[IDLE min-idle-time] start end count [consumer]]`
pub(super) fn xpending(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (key, now_ms) = (args.at(1), cx.now_ms());
    if args.len() == 3 {
        let stream = stream(cx.unit.read(cx.session.db, key))?;
        let group = group(stream, key, args.at(2))?;
        write_summary(&mut cx.reply, group);
        return Ok(());
    }
    let query = Query::parse(args)?;
    let stream = stream(cx.unit.read(cx.session.db, key))?;
    let group = group(stream, key, args.at(2))?;
    let deferred = cx.reply.begin_deferred();
    let mut count = 0;
    for pending in query.find(group, now_ms) {
        let Delivery { id, time_ms, count: deliveries } = pending.delivery;
        cx.reply.array(4);
        write_id(&mut cx.reply, id);
        cx.reply.bulk(pending.consumer);
        cx.reply.integer(now_ms.saturating_sub(time_ms) as i64);
        cx.reply.integer(deliveries.into());
        count += 1;
    }
    cx.reply.end_deferred(deferred, wire::Aggregate::Array, count);
    Ok(())
}

/// Writes the number of pending entries, their lowest and highest id, and their number per consumer.
fn write_summary(reply: &mut ReplyWriter<'_>, group: GroupView<'_>) {
    reply.array(4);
    reply.count(group.pending_len());
    let Some((first, last)) = group.first_pending().zip(group.last_pending()) else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    write_id(reply, first);
    write_id(reply, last);
    let consumers = || group.consumers().filter(|consumer| consumer.pending_len() > 0);
    reply.array(consumers().count());
    for consumer in consumers() {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_integer(consumer.pending_len() as i64);
    }
}

struct Query<'a> {
    idle_ms_min: u64,
    ids: RangeInclusive<StreamId>,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Query<'a> {
    fn parse(args: Args<'a>) -> Result<Query<'a>, CommandError> {
        if !(6..=9).contains(&args.len()) {
            return Err(CommandError::Syntax);
        }
        let (mut words, mut idle_ms_min) = (args.skip(3), 0);
        if words.at(0).eq_ignore_ascii_case(b"idle") {
            let idle_ms = parse_i64(words.at(1)).ok_or(CommandError::NotAnInteger)?;
            if args.len() < 8 {
                return Err(CommandError::Syntax);
            }
            idle_ms_min = u64::try_from(idle_ms).unwrap_or(0);
            words = words.skip(2);
        }
        let count = parse_size(words.at(2))?;
        let ids = id::parse_range(words.at(0), words.at(1))?;
        Ok(Query { idle_ms_min, ids, count, consumer: words.get(3) })
    }

    fn find(self, group: GroupView<'a>, now_ms: u64) -> impl Iterator<Item = PendingView<'a>> {
        let Query { idle_ms_min, ids, count, consumer: name } = self;
        let consumer = name.and_then(|name| group.consumer(name));
        let of_one = consumer.into_iter().flat_map({
            let ids = ids.clone();
            move |consumer| consumer.pending_ids(ids.clone())
        });
        let of_one = of_one.filter_map(move |id| group.pending(id));
        let of_all = name.is_none().then(|| group.pending_in(ids)).into_iter().flatten();
        let is_idle =
            move |pending: &PendingView<'_>| now_ms.saturating_sub(pending.delivery.time_ms) >= idle_ms_min;
        of_one.chain(of_all).filter(is_idle).take(count)
    }
}
