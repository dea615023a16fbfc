//! DUMP and RESTORE: values in a form that other servers understand.
//!
//! The encoding is that of [`rdb`]; it is unrelated to the storage of Sheaf.

mod stream;

pub use stream::stream_effect;

use engine::{CommandError, Context, EventClass};
use keyspace::{
    AccessPolicy, AccessStamp, DbId, Effect, Items, ItemsBuf, KeyOp, ScoredItemsBuf, Value, View,
};
use rdb::{Output, PayloadError, Writer};
use wire::{Args, number::parse_i64};

/// `DUMP key`
pub(super) fn dump(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, as_of_ms) = (cx.db(), cx.as_of_ms());
    match cx.unit.read(db, args.at(1)) {
        None => cx.reply.null(),
        // A hash whose fields have all expired counts as absent.
        Some(entry) if all_expired(entry.view(), as_of_ms) => cx.reply.null(),
        Some(entry) => cx.reply.bulk(&rdb::dump(encoded(entry.view(), as_of_ms))),
    }
    Ok(())
}

/// Whether the value is a hash with no live field.
fn all_expired(view: View<'_>, now_ms: u64) -> bool {
    match view {
        View::Hash(hash) => hash.has_deadlines() && hash.iter().all(|field| field.is_expired(now_ms)),
        _ => false,
    }
}

/// The type number and the encoded value.
pub(crate) fn encoded(view: View<'_>, now_ms: u64) -> Vec<u8> {
    let mut writer = Writer::new();
    encode(view, now_ms, &mut writer);
    writer.into_bytes()
}

/// Writes the type number and the value, without fields that have expired at `now_ms`.
pub fn encode(view: View<'_>, now_ms: u64, writer: &mut Writer<impl Output>) {
    match view {
        View::String(bytes) => writer.string_value(bytes),
        View::List(list) => {
            writer.begin_list(list.len());
            list.iter().for_each(|element| writer.string(&element));
        }
        View::Set(set) => {
            writer.begin_set(set.len());
            set.iter().for_each(|member| writer.string(&member));
        }
        View::Zset(zset) => {
            writer.begin_zset(zset.len());
            zset.iter().for_each(|(member, score)| writer.scored(&member, score));
        }
        View::Hash(hash) => {
            let fields = || hash.iter().filter(|field| !field.is_expired(now_ms));
            match fields().filter_map(|field| field.expire_at_ms).min() {
                None => {
                    writer.begin_hash(fields().count());
                    for field in fields() {
                        writer.string(&field.name);
                        writer.string(&field.value);
                    }
                }
                Some(first_ms) => {
                    writer.begin_expiring_hash(fields().count(), first_ms);
                    for field in fields() {
                        writer.expiring_field(&field.name, &field.value, field.expire_at_ms, first_ms);
                    }
                }
            }
        }
        View::Stream(stream) => stream::encode(stream, writer),
    }
}

#[derive(Default)]
struct Options {
    replaces: bool,
    is_absolute: bool,
    idle_seconds: Option<u64>,
    frequency: Option<u8>,
}

impl Options {
    fn parse(words: Args<'_>) -> Result<Options, CommandError> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.to_ascii_lowercase().as_slice() {
                b"replace" => options.replaces = true,
                b"absttl" => options.is_absolute = true,
                // IDLETIME and FREQ exclude each other.
                b"idletime" if options.frequency.is_none() => {
                    let text = "ERR Invalid IDLETIME value, must be >= 0";
                    options.idle_seconds = Some(number_in(words.next(), i64::MAX, text)?);
                }
                b"freq" if options.idle_seconds.is_none() => {
                    let text = "ERR Invalid FREQ value, must be >= 0 and <= 255";
                    options.frequency = Some(number_in(words.next(), u8::MAX.into(), text)? as u8);
                }
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(options)
    }

    /// The access stamp of the key, if the call has the option that the policy uses: IDLETIME for LRU, FREQ
    /// for LFU.
    fn stamp(&self, policy: AccessPolicy, now_ms: u64) -> Option<AccessStamp> {
        match policy {
            AccessPolicy::Lru => self.idle_seconds.map(|seconds| AccessStamp::idle(seconds, now_ms)),
            AccessPolicy::Lfu => self.frequency.map(|counter| AccessStamp::frequent(counter, now_ms)),
        }
    }
}

/// Parses a number from 0 to `max`.
fn number_in(word: Option<&[u8]>, max: i64, text: &'static str) -> Result<u64, CommandError> {
    let number = parse_i64(word.ok_or(CommandError::Syntax)?).ok_or(CommandError::NotAnInteger)?;
    let in_range = u64::try_from(number).ok().filter(|_| number <= max);
    in_range.ok_or(CommandError::Text(text))
}

/// `RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`
pub(super) fn restore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, now_ms) = (cx.db(), args.at(1), cx.now_ms());
    let options = Options::parse(args.skip(4))?;
    cx.elements_max().require_bytes(args.size_bytes())?;
    if !options.replaces && cx.unit.exists(db, key) {
        return Err(CommandError::Text("BUSYKEY Target key name already exists."));
    }
    let ttl_ms = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    let ttl_ms =
        u64::try_from(ttl_ms).map_err(|_| CommandError::Text("ERR Invalid TTL value, must be >= 0"))?;
    let value = rdb::restore(args.at(3)).map_err(|error| match error {
        PayloadError::Footer => CommandError::Text("ERR DUMP payload version or checksum are wrong"),
        PayloadError::Value(_) => CommandError::Text("ERR Bad data format"),
    })?;
    let deadline_ms = match ttl_ms {
        0 => None,
        ttl_ms if options.is_absolute => Some(ttl_ms),
        // In Redis the sum wraps around, so that RESTORE answers OK and keeps nothing.
        ttl_ms => match ttl_ms.checked_add(now_ms) {
            Some(deadline_ms) if i64::try_from(deadline_ms).is_ok() => Some(deadline_ms),
            _ => return Err(CommandError::InvalidExpire("restore")),
        },
    };
    if deadline_ms.is_some_and(|deadline_ms| deadline_ms <= cx.as_of_ms()) {
        if cx.apply(key, KeyOp::Delete).changed {
            cx.notify(EventClass::GENERIC, "del", key);
        }
    } else {
        let replaces = cx.unit.exists(db, key);
        put(cx, db, key, &value, deadline_ms)?;
        if replaces {
            // In Redis the replaced key is removed and added again, so it counts as new.
            cx.notify(EventClass::NEW, "new", key);
        }
        let policy = cx.host.config.memory_limits().policy.access_policy();
        if let Some(stamp) = options.stamp(policy, now_ms) {
            cx.unit.set_stamp(db, key, stamp);
        }
        cx.notify(EventClass::GENERIC, "restore", key);
    }
    cx.reply.ok();
    Ok(())
}

/// Stores a decoded value, if the log has room for its record. The record can be much larger than the
/// payload, in which the value may be packed or compressed.
fn put(
    cx: &mut Context<'_, '_>,
    db: DbId,
    key: &[u8],
    value: &rdb::Value,
    expire_at_ms: Option<u64>,
) -> Result<(), CommandError> {
    let mut items = ItemsBuf::new();
    let mut members = ScoredItemsBuf::new();
    let mut deadlines = Vec::new();
    let value = match value {
        rdb::Value::String(bytes) if bytes.len() > cx.bulk_bytes_max => {
            return Err(CommandError::Text("ERR Bad data format"));
        }
        rdb::Value::String(bytes) => Value::String(bytes),
        rdb::Value::List(elements) => {
            elements.iter().for_each(|element| items.push(element));
            Value::List(items.as_items())
        }
        rdb::Value::Set(elements) => {
            elements.iter().for_each(|member| items.push(member));
            Value::Set(items.as_items())
        }
        rdb::Value::Zset(scored) => {
            scored.iter().for_each(|(score, member)| members.push(*score, member));
            Value::Zset(members.as_items())
        }
        rdb::Value::Hash(fields) => {
            for field in fields {
                items.push(&field.name);
                items.push(&field.value);
                deadlines.extend(field.expire_at_ms.map(|deadline_ms| (field.name.as_slice(), deadline_ms)));
            }
            Value::Hash(items.as_items())
        }
        rdb::Value::Stream(stream) => return stream::put(cx, db, key, stream, expire_at_ms),
    };
    let effect = KeyOp::Put { value, expire_at_ms }.on(db, key);
    let each_effect = |visit: &mut dyn FnMut(&Effect<'_>)| {
        visit(&effect);
        for &(name, deadline_ms) in &deadlines {
            let fields = Items::Slices(&[name]);
            visit(&KeyOp::HashSetExpiry { fields, expire_at_ms: Some(deadline_ms) }.on(db, key));
        }
    };
    let mut bytes = 0;
    each_effect(&mut |effect| bytes += effect.encoded_len() as u64);
    cx.require_room(bytes)?;
    each_effect(&mut |effect| _ = cx.unit.apply(effect));
    Ok(())
}

#[cfg(test)]
mod tests {
    use keyspace::{DbId, EvictionPolicy};
    use wire::Value;

    use crate::testing::{START_MS, TestServer, check};

    fn payload(server: &mut TestServer, key: &str) -> Vec<u8> {
        match server.value(&format!("DUMP {key}")) {
            Value::Bulk(bytes) => bytes,
            other => panic!("{other:?} is no payload"),
        }
    }

    #[test]
    fn dumped_values_of_every_type_are_restored() {
        let mut server = TestServer::new();
        server.check(&[
            ("SET s text", "+OK"),
            ("HSET h a 1 b two", ":2"),
            ("HSET e a 1 b two", ":2"),
            ("HPEXPIRE e 5000 FIELDS 1 a", "[:1]"),
            ("PEXPIRE s 1000", ":1"),
        ]);
        for key in ["s", "h", "e"] {
            let payload = payload(&mut server, key);
            let copy = format!("copy-{key}");
            assert_eq!(server.run_args(&[b"RESTORE", copy.as_bytes(), b"0", &payload]), "+OK");
            let content = server.content();
            let at = |key: &str| content[&(DbId::ZERO.get(), key.as_bytes().to_vec())].0.clone();
            assert_eq!(at(key), at(&copy), "{key}");
        }
        server.assert_replays();
    }

    #[test]
    fn expiries_are_relative_unless_told_otherwise() {
        let mut server = TestServer::new();
        server.check(&[("SET s text", "+OK")]);
        let payload = payload(&mut server, "s");
        let absolute = (START_MS + 700).to_string();
        let past = (START_MS - 1).to_string();
        assert_eq!(server.run_args(&[b"RESTORE", b"a", b"500", &payload]), "+OK");
        assert_eq!(server.run_args(&[b"RESTORE", b"b", absolute.as_bytes(), &payload, b"absttl"]), "+OK");
        let replace = [b"RESTORE".as_slice(), b"a", past.as_bytes(), &payload, b"ABSTTL", b"REPLACE"];
        server.check(&[("PTTL a", ":500"), ("PTTL b", ":700")]);
        assert_eq!(server.run_args(&replace), "+OK");
        server.check(&[("EXISTS a", ":0")]);
        let longest = i64::MAX as u64 - START_MS;
        let restore =
            |ttl: u64| [b"RESTORE".to_vec(), b"c".to_vec(), ttl.to_string().into_bytes(), payload.clone()];
        let [too_long, longest] = [longest + 1, longest].map(restore);
        let too_long = server.run_args(&too_long.each_ref().map(Vec::as_slice));
        assert_eq!(too_long, "-ERR invalid expire time in 'restore' command");
        assert_eq!(server.run_args(&longest.each_ref().map(Vec::as_slice)), "+OK");
        server.check(&[("PEXPIRETIME c", ":9223372036854775807")]);
        server.assert_replays();
    }

    #[test]
    fn the_past_of_a_key_is_restored_as_the_policy_takes_notice_of_it() {
        let mut server = TestServer::new();
        server.check(&[("SET s text", "+OK")]);
        let payload = payload(&mut server, "s");
        let restore = |server: &mut TestServer, option: &[u8], number: &[u8]| {
            let call = [b"RESTORE".as_slice(), b"a", b"0", &payload, b"REPLACE", option, number];
            assert_eq!(server.run_args(&call), "+OK");
        };
        restore(&mut server, b"IDLETIME", b"1000");
        server.check(&[("OBJECT IDLETIME a", ":1000"), ("GET a", "\"text\""), ("OBJECT IDLETIME a", ":0")]);
        restore(&mut server, b"FREQ", b"100");
        server.check(&[("OBJECT IDLETIME a", ":0")]);
        server.host.set_policy(EvictionPolicy::AllKeysLfu);
        restore(&mut server, b"FREQ", b"100");
        server.check(&[("OBJECT FREQ a", ":100"), ("DEL a", ":1")]);
        restore(&mut server, b"IDLETIME", b"1000");
        server.check(&[("OBJECT FREQ a", ":5")]);
    }

    #[test]
    fn bad_payloads_and_options_are_refused() {
        let mut server = TestServer::new();
        server.check(&[("SET s text", "+OK")]);
        let payload = payload(&mut server, "s");
        let mut broken = payload.clone();
        broken[1] ^= 1;
        let empty_set = rdb::dump(vec![2, 0]);
        let cases: &[(&[&[u8]], &str)] = &[
            (&[b"s", b"0", &payload], "-BUSYKEY Target key name already exists."),
            (&[b"k", b"0", &broken], "-ERR DUMP payload version or checksum are wrong"),
            (&[b"k", b"0", b"short"], "-ERR DUMP payload version or checksum are wrong"),
            (&[b"k", b"0", &empty_set], "-ERR Bad data format"),
            (&[b"k", b"-1", &payload], "-ERR Invalid TTL value, must be >= 0"),
            (&[b"k", b"x", &payload], "-ERR value is not an integer or out of range"),
            (&[b"k", b"0", &payload, b"FREQ", b"256"], "-ERR Invalid FREQ value, must be >= 0 and <= 255"),
            (&[b"k", b"0", &payload, b"IDLETIME", b"-1"], "-ERR Invalid IDLETIME value, must be >= 0"),
            (&[b"k", b"0", &payload, b"IDLETIME", b"1", b"FREQ", b"1"], "-ERR syntax error"),
            (&[b"k", b"0", &payload, b"FREQ", b"1", b"IDLETIME", b"1"], "-ERR syntax error"),
            (&[b"k", b"0", &payload, b"NOW"], "-ERR syntax error"),
        ];
        for (args, expected) in cases {
            let mut call = vec![b"RESTORE".as_slice()];
            call.extend_from_slice(args);
            assert_eq!(server.run_args(&call), *expected);
        }
        server.check(&[("EXISTS k", ":0")]);
    }

    #[test]
    fn dump_of_an_absent_or_expired_value_is_nil() {
        check(&[
            ("DUMP nokey", "nil"),
            ("HSET h f v", ":1"),
            ("HPEXPIRE h 10 FIELDS 1 f", "[:1]"),
            ("after 10", ""),
            ("DUMP h", "nil"),
        ]);
    }
}
