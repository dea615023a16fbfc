//! The rows of the commands on streams.

use engine::{Family, Flags, KeyUsage, Keys, Needs, Row, Treatment};

use super::{acknowledge, add, claim, deliver, edit, group, info, pending, range, read, trim};
use crate::help::{help, no_subcommand};

const READ: Flags = Flags::READONLY;
const GROW: Flags = Flags::WRITE.or(Flags::DENYOOM);
const FAST: Flags = Flags::WRITE.or(Flags::FAST);
const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };

/// Shared fields of the rows.
const ROW: Row = Row {
    name: "",
    arity: -3,
    flags: Flags::WRITE,
    keys: Keys::First,
    family: Family::Stream,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "",
    syntax: "key",
    handler: add::xadd,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

const EACH_ID: &str = "O(log(N)) for each id, where N is the number of entries or of those that are pending.";

/// Shared fields of XREAD and XREADGROUP.
const READ_ON: Row = Row {
    flags: READ.or(Flags::BLOCKING),
    keys: Keys::Computed { first: None, find: read::find_keys, reads_others: |_| false },
    complexity: "O(log(N)+M) for each key, where N is the number of entries and M the number of those returned.",
    ..ROW
};

/// Shared fields of the subcommands of XGROUP.
const GROUP: Row = Row { arity: 5, keys: SECOND, ..ROW };
/// Shared fields of the subcommands of XINFO.
const INFO: Row = Row { arity: 3, flags: READ, keys: SECOND, ..ROW };
const HELP: Row = Row {
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    keys: Keys::None,
    summary: "Describes the subcommands.",
    syntax: "",
    handler: help,
    ..ROW
};
const CONTAINER: Row = Row {
    arity: -2,
    flags: Flags::CONTAINER,
    keys: Keys::None,
    complexity: "Depends on subcommand.",
    syntax: "",
    handler: no_subcommand,
    ..ROW
};

const XGROUP: &[Row] = &[
    Row {
        name: "xgroup|create",
        needs: Needs::each(KeyUsage::INSERT),
        arity: -5,
        flags: GROW,
        summary: "Makes a group of consumers that reads from an id on.",
        syntax: "key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]",
        handler: group::create,
        ..GROUP
    },
    Row {
        name: "xgroup|setid",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -5,
        summary: "Lets a group go on reading from another id.",
        syntax: "key group <id | $> [ENTRIESREAD entries-read]",
        handler: group::setid,
        ..GROUP
    },
    Row {
        name: "xgroup|destroy",
        needs: Needs::each(KeyUsage::DELETE),
        arity: 4,
        complexity: "O(N) where N is the number of pending entries.",
        summary: "Removes a group.",
        syntax: "key group",
        handler: group::destroy,
        ..GROUP
    },
    Row {
        name: "xgroup|createconsumer",
        needs: Needs::each(KeyUsage::INSERT),
        flags: GROW,
        since: "6.2.0",
        summary: "Makes a consumer of a group.",
        syntax: "key group consumer",
        handler: group::createconsumer,
        ..GROUP
    },
    Row {
        name: "xgroup|restoreconsumer",
        needs: Needs::each(KeyUsage::INSERT),
        arity: -7,
        flags: GROW,
        since: "7.2.4",
        complexity: "O(N*log(M)) where N is the number of ids and M the number of pending entries.",
        summary: "Makes a consumer with the times and the pending entries of a copied one.",
        syntax: "key group consumer seen-ms active-ms [id time-ms count [id time-ms count ...]]",
        handler: group::restoreconsumer,
        ..GROUP
    },
    Row {
        name: "xgroup|delconsumer",
        needs: Needs::each(KeyUsage::DELETE),
        complexity: "O(N) where N is the number of entries that are pending for the consumer.",
        summary: "Removes a consumer of a group with all that is pending for it.",
        syntax: "key group consumer",
        handler: group::delconsumer,
        ..GROUP
    },
    Row { name: "xgroup|help", ..HELP },
];

const XINFO: &[Row] = &[
    Row {
        name: "xinfo|consumers",
        arity: 4,
        complexity: "O(N) where N is the number of consumers.",
        summary: "Lists the consumers of a group.",
        syntax: "key group",
        handler: info::consumers,
        ..INFO
    },
    Row {
        name: "xinfo|groups",
        complexity: "O(N) where N is the number of groups.",
        summary: "Lists the groups of a stream.",
        handler: info::groups,
        ..INFO
    },
    Row {
        name: "xinfo|stream",
        arity: -3,
        complexity: "O(1), or O(N) with FULL, where N is the number of items shown.",
        summary: "Replies with information about a stream.",
        syntax: "key [FULL [COUNT count]]",
        handler: info::describe,
        ..INFO
    },
    Row { name: "xinfo|help", ..HELP },
];

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "xadd",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -5,
        flags: GROW.or(Flags::FAST),
        complexity: "O(1), and O(N) to trim, where N is the number of entries that go.",
        summary: "Adds an entry to a stream, and trims it if wanted.",
        syntax: "key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> \
                 field value [field value ...]",
        ..ROW
    },
    Row {
        name: "xlen",
        needs: Needs::each(KeyUsage::EXISTENCE),
        arity: 2,
        flags: READ.or(Flags::FAST),
        summary: "Replies with the number of entries.",
        handler: range::xlen,
        ..ROW
    },
    Row {
        name: "xrange",
        arity: -4,
        flags: READ,
        complexity: "O(log(N)+M) where N is the number of entries and M the number of those returned.",
        summary: "Replies with the entries in a range of ids.",
        syntax: "key start end [COUNT count]",
        handler: range::xrange,
        ..ROW
    },
    Row {
        name: "xrevrange",
        arity: -4,
        flags: READ,
        complexity: "O(log(N)+M) where N is the number of entries and M the number of those returned.",
        summary: "Replies with the entries in a range of ids, the last one first.",
        syntax: "key end start [COUNT count]",
        handler: range::xrevrange,
        ..ROW
    },
    Row {
        name: "xdel",
        needs: Needs::each(KeyUsage::DELETE),
        flags: FAST,
        complexity: EACH_ID,
        summary: "Removes entries.",
        syntax: "key id [id ...]",
        handler: edit::xdel,
        ..ROW
    },
    Row {
        name: "xdelex",
        needs: Needs::each(KeyUsage::DELETE),
        arity: -5,
        flags: FAST,
        since: "8.2.0",
        complexity: EACH_ID,
        summary: "Removes entries, and says what becomes of those that groups refer to.",
        syntax: "key [KEEPREF | DELREF | ACKED] IDS numids id [id ...]",
        handler: edit::xdelex,
        ..ROW
    },
    Row {
        name: "xtrim",
        needs: Needs::each(KeyUsage::DELETE),
        arity: -4,
        complexity: "O(N) where N is the number of entries that go.",
        summary: "Removes the first entries of a stream.",
        syntax: "key <MAXLEN | MINID> [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]",
        handler: trim::xtrim,
        ..ROW
    },
    Row {
        name: "xsetid",
        needs: Needs::each(KeyUsage::UPDATE),
        flags: GROW.or(Flags::FAST),
        summary: "Sets the last id of a stream.",
        syntax: "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
        handler: edit::xsetid,
        ..ROW
    },
    Row {
        name: "xread",
        treatment: Treatment { may_wait: |args| read::waits(args, false), ..Treatment::DEFAULT },
        arity: -4,
        summary: "Replies with what comes after an id in one or several streams, and waits for it if wanted.",
        syntax: "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
        handler: read::xread,
        ..READ_ON
    },
    Row {
        name: "xreadgroup",
        needs: Needs::each(KeyUsage::READ),
        treatment: Treatment { may_wait: |args| read::waits(args, true), ..Treatment::DEFAULT },
        arity: -7,
        flags: Flags::WRITE.or(Flags::BLOCKING),
        summary: "Delivers what a group has not read to one of its consumers, or again what is pending for it.",
        syntax: "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] [CLAIM min-idle-time] STREAMS key \
                 [key ...] id [id ...]",
        handler: deliver::xreadgroup,
        ..READ_ON
    },
    Row {
        name: "xack",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -4,
        flags: FAST,
        complexity: EACH_ID,
        summary: "Acknowledges entries that were delivered.",
        syntax: "key group id [id ...]",
        handler: acknowledge::xack,
        ..ROW
    },
    Row {
        name: "xackdel",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -6,
        flags: FAST,
        since: "8.2.0",
        complexity: EACH_ID,
        summary: "Acknowledges entries that were delivered, and removes them.",
        syntax: "key group [KEEPREF | DELREF | ACKED] IDS numids id [id ...]",
        handler: acknowledge::xackdel,
        ..ROW
    },
    Row {
        name: "xpending",
        flags: READ,
        complexity: "O(N) where N is the number of what is returned, or that lies in the range and is not idle for so long.",
        summary: "Replies with what was delivered to a group and not acknowledged.",
        syntax: "key group [[IDLE min-idle-time] start end count [consumer]]",
        handler: pending::xpending,
        ..ROW
    },
    Row {
        name: "xclaim",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -6,
        flags: FAST,
        complexity: EACH_ID,
        summary: "Makes entries that were delivered to other consumers pending for this one.",
        syntax: "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] \
                 [FORCE] [JUSTID] [LASTID lastid]",
        handler: claim::xclaim,
        ..ROW
    },
    Row {
        name: "xautoclaim",
        needs: Needs::each(KeyUsage::DELETE),
        arity: -6,
        flags: FAST,
        since: "6.2.0",
        summary: "Makes entries that were delivered to other consumers long ago pending for this one.",
        syntax: "key group consumer min-idle-time start [COUNT count] [JUSTID]",
        handler: claim::xautoclaim,
        ..ROW
    },
    Row { name: "xgroup", summary: "A container for commands on groups.", subcommands: XGROUP, ..CONTAINER },
    Row {
        name: "xinfo",
        summary: "A container for commands that describe streams.",
        subcommands: XINFO,
        ..CONTAINER
    },
];
