//! Taking over the deliveries of other consumers: XCLAIM, XAUTOCLAIM.

use engine::{CommandError, Context};
use keyspace::{ConsumerTimes, Delivery, GroupPosition, GroupView, KeyOp, Listed, StreamId, StreamView};
use wire::{Args, number::parse_i64};

use super::{
    group, id,
    reply::{write_entry, write_id},
    see_consumer, stream,
};

/// XAUTOCLAIM checks at most this many pending entries for each entry that COUNT allows.
const ATTEMPTS_EACH: usize = 10;

/// The maximum size of a delivery or an id in a record, in bytes.
const DELIVERY_BYTES: u64 = 40;

/// The maximum size of the effects of a claim besides their names and ids, in bytes.
const EFFECTS_BYTES: u64 = 256;

/// The claimed deliveries, and the pending ids whose entries no longer exist.
#[derive(Default)]
struct Claimed {
    deliveries: Vec<Delivery>,
    gone: Vec<StreamId>,
}

impl Claimed {
    /// Applies the claim for a consumer. Ids of missing entries stop being pending.
    fn apply(
        &self,
        cx: &mut Context<'_, '_>,
        key: &[u8],
        (group, consumer): (&[u8], &[u8]),
        before: Option<ConsumerTimes>,
    ) -> Result<(), CommandError> {
        let ids_bytes = (self.deliveries.len() + self.gone.len()) as u64 * DELIVERY_BYTES;
        // Up to five effects: an expired key is removed, the consumer is seen, missing entries stop being
        // pending, the others are claimed, and the caller moves the group.
        let names_bytes = (5 * key.len() + 4 * group.len() + 2 * consumer.len()) as u64;
        cx.require_room(EFFECTS_BYTES + names_bytes + ids_bytes)?;
        see_consumer(cx, key, group, consumer, before, !self.deliveries.is_empty());
        if !self.gone.is_empty() {
            cx.apply(key, KeyOp::StreamUnpend { group, ids: Listed::Slices(&self.gone) });
        }
        if !self.deliveries.is_empty() {
            let deliveries = Listed::Slices(&self.deliveries);
            cx.apply(key, KeyOp::StreamPend { group, consumer, deliveries });
        }
        Ok(())
    }

    /// Writes the claimed entries, or their ids.
    fn write(&self, cx: &mut Context<'_, '_>, key: &[u8], only_ids: bool) {
        let db = cx.db();
        cx.reply.array(self.deliveries.len());
        if only_ids {
            self.deliveries.iter().for_each(|delivery| write_id(&mut cx.reply, delivery.id));
        } else if let Ok(Some(stream)) = stream(cx.unit.peek(db, key)) {
            let entries = self.deliveries.iter().filter_map(|delivery| stream.get(delivery.id));
            entries.for_each(|entry| write_entry(&mut cx.reply, &entry));
        }
    }
}

#[derive(Default)]
struct Options {
    time_ms: Option<i64>,
    count: Option<u32>,
    forces: bool,
    only_ids: bool,
    last_id: StreamId,
}

impl Options {
    fn parse(mut words: Args<'_>, now_ms: u64) -> Result<Options, CommandError> {
        let mut options = Options::default();
        while let Some(word) = words.get(0) {
            let number = |text| words.get(1).and_then(parse_i64).ok_or(CommandError::Text(text));
            let mut taken = 2;
            match word.to_ascii_lowercase().as_slice() {
                b"force" => (options.forces, taken) = (true, 1),
                b"justid" => (options.only_ids, taken) = (true, 1),
                b"idle" if words.len() > 1 => {
                    let idle_ms = number("ERR Invalid IDLE option argument for XCLAIM")?;
                    options.time_ms = Some((now_ms as i64).saturating_sub(idle_ms));
                }
                b"time" if words.len() > 1 => {
                    options.time_ms = Some(number("ERR Invalid TIME option argument for XCLAIM")?);
                }
                b"retrycount" if words.len() > 1 => {
                    let count = number("ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                    options.count =
                        u64::try_from(count).ok().map(|count| u32::try_from(count).unwrap_or(u32::MAX));
                }
                b"lastid" if words.len() > 1 => options.last_id = id::parse_id(words.at(1), 0)?,
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(CommandError::Composed(format!("ERR Unrecognized XCLAIM option '{word}'")));
                }
            }
            words = words.skip(taken);
        }
        Ok(options)
    }

    /// The delivery time of the claimed entries. Times in the future or before 1970 become now.
    fn time_ms(&self, now_ms: u64) -> u64 {
        self.time_ms.and_then(|ms| u64::try_from(ms).ok()).filter(|&ms| ms <= now_ms).unwrap_or(now_ms)
    }

    fn claim(
        &self,
        (stream, group): (StreamView<'_>, GroupView<'_>),
        ids: &[StreamId],
        idle_ms_min: u64,
        now_ms: u64,
    ) -> Claimed {
        let mut claimed = Claimed::default();
        for &id in ids {
            // An id may be named twice.
            let again = claimed.deliveries.iter().rev().find(|delivery| delivery.id == id).copied();
            let before = again.or(group.pending(id).map(|pending| pending.delivery));
            if stream.get(id).is_none() {
                claimed.gone.extend(before.map(|_| id));
                continue;
            }
            let is_busy = |before: Delivery| now_ms.saturating_sub(before.time_ms) < idle_ms_min;
            let before = match before {
                Some(before) if is_busy(before) => continue,
                Some(before) => before.count,
                None if self.forces => 1,
                None => continue,
            };
            let count = self.count.unwrap_or(before.saturating_add((!self.only_ids).into()));
            claimed.deliveries.push(Delivery { id, time_ms: self.time_ms(now_ms), count });
        }
        claimed
    }
}

/// `XCLAIM key group consumer min-idle-time id [id ...] [IDLE ms] [TIME ms] [RETRYCOUNT count] [FORCE]
/// [JUSTID] [LASTID id]`
pub(super) fn xclaim(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, name, consumer, now_ms) = (cx.db(), args.at(1), args.at(2), args.at(3), cx.now_ms());
    let stream = stream(cx.unit.get(db, key))?;
    let group = group(stream, key, name)?;
    let idle_ms_min = idle_ms(args.at(4), "ERR Invalid min-idle-time argument for XCLAIM")?;
    let words = args.skip(5);
    let ids: Vec<_> = words.iter().map_while(|word| id::parse_id(word, 0).ok()).collect();
    let options = Options::parse(words.skip(ids.len()), now_ms)?;
    let claimed = stream
        .map_or_else(Claimed::default, |stream| options.claim((stream, group), &ids, idle_ms_min, now_ms));
    let position = group.position();
    let before = group.consumer(consumer).map(|consumer| consumer.times());
    claimed.apply(cx, key, (name, consumer), before)?;
    if options.last_id > position.last_id {
        let position = GroupPosition { last_id: options.last_id, ..position };
        cx.apply(key, KeyOp::StreamPutGroup { group: name, position });
    }
    claimed.write(cx, key, options.only_ids);
    Ok(())
}

fn idle_ms(word: &[u8], error: &'static str) -> Result<u64, CommandError> {
    let number = parse_i64(word).ok_or(CommandError::Text(error))?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// `XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]`
pub(super) fn xautoclaim(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, name, consumer, now_ms) = (cx.db(), args.at(1), args.at(2), args.at(3), cx.now_ms());
    let idle_ms_min = idle_ms(args.at(4), "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let start = id::parse_start(args.at(5))?;
    let (count, only_ids) = parse_options(args.skip(6))?;
    let stream = stream(cx.unit.get(db, key))?;
    let group = group(stream, key, name)?;
    let mut pending = group.pending_in(start..=StreamId::MAX);
    let mut claimed = Claimed::default();
    let mut attempts = count.saturating_mul(ATTEMPTS_EACH);
    while attempts > 0 && claimed.deliveries.len() + claimed.gone.len() < count {
        let Some(next) = pending.next() else { break };
        attempts -= 1;
        let Delivery { id, time_ms, count } = next.delivery;
        if stream.is_none_or(|stream| stream.get(id).is_none()) {
            claimed.gone.push(id);
        } else if now_ms.saturating_sub(time_ms) >= idle_ms_min {
            let count = count.saturating_add((!only_ids).into());
            claimed.deliveries.push(Delivery { id, time_ms: now_ms, count });
        }
    }
    let cursor = pending.next().map_or(StreamId::ZERO, |next| next.delivery.id);
    let before = group.consumer(consumer).map(|consumer| consumer.times());
    drop(pending);
    claimed.apply(cx, key, (name, consumer), before)?;
    cx.reply.array(3);
    write_id(&mut cx.reply, cursor);
    claimed.write(cx, key, only_ids);
    cx.reply.array(claimed.gone.len());
    claimed.gone.iter().for_each(|&id| write_id(&mut cx.reply, id));
    Ok(())
}

/// Parses `[COUNT count] [JUSTID]`.
fn parse_options(mut words: Args<'_>) -> Result<(usize, bool), CommandError> {
    /// The default of COUNT.
    const COUNT: usize = 100;
    /// The maximum of COUNT, as in Redis: that many ids of 16 bytes have at most `i64::MAX` bytes.
    const COUNT_MAX: i64 = i64::MAX / 16;
    let (mut count, mut only_ids) = (COUNT, false);
    while let Some(word) = words.get(0) {
        if word.eq_ignore_ascii_case(b"justid") {
            only_ids = true;
            words = words.skip(1);
        } else if word.eq_ignore_ascii_case(b"count") && words.len() > 1 {
            let number = parse_i64(words.at(1)).filter(|number| (1..=COUNT_MAX).contains(number));
            count = number.ok_or(CommandError::Text("ERR COUNT must be > 0"))? as usize;
            words = words.skip(2);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok((count, only_ids))
}
