//! Walks over the keys of a database: SCAN, KEYS, RANDOMKEY.
//!
//! They lock one slot at a time, so they never stop the server. Keys that come or go meanwhile may or may not be seen; a key that
//! stays is seen by a whole walk exactly once.

use keyspace::{ScanCursor, SlotId, ValueType};
use wire::{Aggregate, Args, ReplyWriter, glob, number::parse_i64};

use crate::{CommandError, Context};

/// Keys that SCAN looks at unless it is told otherwise.
const COUNT_DEFAULT: usize = 10;
/// Keys that KEYS looks at between two looks at where it is.
const COUNT_OF_KEYS: usize = 1 << 20;

/// `RANDOMKEY`
pub(super) fn randomkey(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let mut key = Vec::new();
    let found = cx.keyspace.random_key(cx.db(), cx.unit.seed(), cx.now_ms(), &mut key);
    cx.reply.bulk_or_null(found.then_some(key.as_slice()));
    Ok(())
}

/// `KEYS pattern`
pub(super) fn keys(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, now_ms, keyspace, pattern) = (cx.db(), cx.now_ms(), cx.keyspace, args.at(1));
    let array = cx.reply.begin_deferred();
    let mut found = 0;
    let mut show = |key: &[u8]| {
        if glob::matches(pattern, key) {
            cx.reply.bulk(key);
            found += 1;
        }
    };
    if let Some(slot) = only_slot(pattern) {
        let slot = keyspace.lock(slot);
        slot.entries(db).filter(|entry| !entry.is_expired(now_ms)).for_each(|entry| show(entry.key()));
    } else {
        let mut cursor = ScanCursor::START;
        loop {
            cursor = keyspace.scan(db, cursor, COUNT_OF_KEYS, now_ms, &mut |key, _| show(key));
            if cursor == ScanCursor::START {
                break;
            }
        }
    }
    cx.reply.end_deferred(array, Aggregate::Array, found);
    Ok(())
}

/// The slot of every key that matches, if the pattern says which: it is no pattern, or begins with a whole hash tag.
fn only_slot(pattern: &[u8]) -> Option<SlotId> {
    let prefix = glob::literal_prefix(pattern);
    let open = prefix.iter().position(|byte| *byte == b'{');
    let has_tag = open.is_some_and(|open| {
        let close = prefix[open..].iter().position(|byte| *byte == b'}');
        // An empty tag is none: the slot then depends on the whole key.
        close.is_some_and(|close| close > 1)
    });
    (has_tag || glob::is_literal(pattern)).then(|| keyspace::slot_of(prefix))
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`
pub(super) fn scan(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let cursor = parse_cursor(args.at(1)).ok_or(CommandError::InvalidCursor)?;
    let filter = Filter::parse(args.skip(2))?;
    // The new cursor comes first in the reply, so the keys are kept until it is known.
    let (mut keys, mut found) = (Vec::new(), 0);
    let mut writer = ReplyWriter::new(&mut keys, cx.reply.protocol());
    let cursor = cx.keyspace.scan(cx.db(), cursor, filter.count, cx.now_ms(), &mut |key, value_type| {
        if filter.accepts(key, value_type) {
            writer.bulk(key);
            found += 1;
        }
    });
    cx.reply.array(2);
    cx.reply.bulk_display(cursor.to_u64());
    cx.reply.array(found);
    cx.reply.raw(&keys);
    Ok(())
}

/// Reads a cursor as loosely as Redis does: no digit at all is 0, a sign and leading zeros are allowed, a negative
/// number wraps.
fn parse_cursor(text: &[u8]) -> Option<ScanCursor> {
    let (negative, digits) = match text {
        [] => return Some(ScanCursor::START),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(digits).ok()?.parse::<u64>().ok()?;
    Some(ScanCursor::from_u64(if negative { number.wrapping_neg() } else { number }))
}

/// What SCAN was asked for.
struct Filter<'a> {
    pattern: Option<&'a [u8]>,
    type_name: Option<&'a [u8]>,
    count: usize,
}

impl<'a> Filter<'a> {
    fn parse(words: Args<'a>) -> Result<Filter<'a>, CommandError> {
        let mut filter = Filter { pattern: None, type_name: None, count: COUNT_DEFAULT };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words.next().ok_or(CommandError::Syntax)?;
            if word.eq_ignore_ascii_case(b"count") {
                let count = parse_i64(value).ok_or(CommandError::NotAnInteger)?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                filter.count = count.ok_or(CommandError::Syntax)?;
            } else if word.eq_ignore_ascii_case(b"match") {
                filter.pattern = (value != b"*").then_some(value);
            } else if word.eq_ignore_ascii_case(b"type") {
                filter.type_name = Some(value);
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(filter)
    }

    /// A type that there is not accepts nothing.
    fn accepts(&self, key: &[u8], value_type: ValueType) -> bool {
        self.type_name.is_none_or(|name| name.eq_ignore_ascii_case(value_type.name().as_bytes()))
            && self.pattern.is_none_or(|pattern| glob::matches(pattern, key))
    }
}
