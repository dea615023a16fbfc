//! Sorted sets: members ordered by score at one key.
//!
//! What it is: the commands on values of type zset.
//! What it is not: how sorted sets lie in memory (see `keyspace`).
//!
//! Invariants
//! - No score is NaN: a score that would be NaN is refused, or becomes 0 in a combination, as in Redis.
//! - Members that are popped, or removed by a range, are logged as ranks, or as the removal of the key if no
//!   member is left.

mod add;
mod blocking;
mod combine;
mod get;
mod pop;
mod random;
mod range;
mod remove;
mod reply;
mod rows;
mod scan;
mod span;
mod store;

use engine::{CommandError, row::counted_keys};
use keyspace::{EntryRef, View, ZsetView};
use wire::Args;

pub(super) use add::{AddOptions, Members, add_members};
pub(crate) use blocking::ROWS as BLOCKING_ROWS;
pub(crate) use rows::ROWS;
pub(super) use store::store;

/// The sorted set at a key, if there is one.
///
/// # Errors
/// If the key holds another type.
#[inline]
pub(super) fn zset(entry: Option<EntryRef<'_>>) -> Result<Option<ZsetView<'_>>, CommandError> {
    match entry.map(|entry| entry.view()) {
        None => Ok(None),
        Some(View::Zset(zset)) => Ok(Some(zset)),
        Some(_) => Err(CommandError::WrongType),
    }
}

/// The keys, whose number is the argument at `at`, and the arguments after the keys. `None` if that argument
/// is no number, is negative, or exceeds the number of arguments after it.
fn counted(args: Args<'_>, at: usize) -> Option<(Args<'_>, Args<'_>)> {
    let keys = counted_keys(args, at)?;
    Some((args.skip(keys.start).take(keys.len()), args.skip(keys.end)))
}

#[cfg(test)]
mod tests {
    use crate::testing::TestServer;
    use engine::EventClass;

    #[test]
    fn commands_on_sorted_sets_notify_each_event_once() {
        let mut server = TestServer::new();
        *server.host.event_classes.lock() = EventClass::parse("EA").expect("letters");
        for (command, expected) in [
            ("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f", "zadd z"),
            ("ZADD z 1 a", ""),
            ("ZADD z CH NX 1 a", ""),
            ("ZADD z XX 1.5 a", "zadd z"),
            ("ZADD z INCR 1 a", "zincr z"),
            ("ZINCRBY z 0 a", ""),
            ("ZREM z nobody", ""),
            ("ZREM z a nobody", "zrem z"),
            ("ZREMRANGEBYRANK z 0 0", "zremrangebyrank z"),
            ("ZREMRANGEBYSCORE z 9 9", ""),
            ("ZREMRANGEBYSCORE z 3 3", "zremrangebyscore z"),
            ("ZREMRANGEBYLEX z [d [d", "zremrangebylex z"),
            ("ZPOPMIN z 0", ""),
            ("ZPOPMIN z", "zpopmin z"),
            ("ZPOPMAX z 5", "zpopmax z, del z"),
            ("ZADD z 1 a", "zadd z"),
            ("ZREM z a", "zrem z, del z"),
            ("ZADD z 1 a", "zadd z"),
            ("ZREMRANGEBYLEX z - +", "zremrangebylex z, del z"),
            ("ZADD z 1 a", "zadd z"),
            ("ZRANGESTORE d z 0 -1", "zrangestore d"),
            ("ZUNIONSTORE d 1 z", "zunionstore d"),
            ("ZINTERSTORE d 1 z", "zinterstore d"),
            ("ZDIFFSTORE d 1 z", "zdiffstore d"),
            ("ZDIFFSTORE d 2 z z", "del d"),
            ("ZRANGESTORE d none 0 -1", ""),
            ("ZMPOP 2 none z MAX", "zpopmax z, del z"),
        ] {
            server.run(command);
            assert_eq!(server.events().join(", "), expected, "{command}");
        }
    }
}
