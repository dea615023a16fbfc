//! The rows of the commands on keys of any type.

use access::Category;
use engine::{Family, Flags, KeyUsage, Keys, Needs, Row, Treatment};

use super::{dump, existence, expiry, object, rename, walk};
use crate::help;

const READ_FAST: Flags = Flags::READONLY.or(Flags::FAST);
const WRITE_FAST: Flags = Flags::WRITE.or(Flags::FAST);
const WALK: Flags = Flags::READONLY.or(Flags::READS_ALL);

/// Shared fields of the rows.
const ROW: Row = Row {
    name: "",
    arity: 2,
    flags: READ_FAST,
    keys: Keys::First,
    family: Family::Generic,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "",
    syntax: "key",
    handler: existence::exists,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

const KEYS_TO_THE_END: Keys = Keys::Range { first: 1, last: -1, step: 1 };

const TWO_KEYS: Keys = Keys::Range { first: 1, last: 2, step: 1 };

const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };

const MOVE_COMPLEXITY: &str = "O(1); O(N) for a string of N bytes, which is copied in memory.";

const PER_KEY: &str = "O(N) where N is the number of keys.";

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "del",
        needs: Needs::each(KeyUsage::REMOVE),
        arity: -2,
        flags: Flags::WRITE,
        keys: KEYS_TO_THE_END,
        complexity: "O(N) where N is the number of keys. Large values are freed aside.",
        summary: "Removes keys.",
        syntax: "key [key ...]",
        handler: existence::del,
        ..ROW
    },
    Row {
        name: "unlink",
        needs: Needs::each(KeyUsage::REMOVE),
        arity: -2,
        flags: WRITE_FAST,
        keys: KEYS_TO_THE_END,
        since: "4.0.0",
        complexity: "O(N) where N is the number of keys. Large values are freed aside.",
        summary: "Removes keys; the same as DEL here.",
        syntax: "key [key ...]",
        handler: existence::del,
        ..ROW
    },
    Row {
        name: "exists",
        needs: Needs::each(KeyUsage::EXISTENCE),
        arity: -2,
        keys: KEYS_TO_THE_END,
        complexity: PER_KEY,
        summary: "Counts which of the given keys exist; one given twice counts twice.",
        syntax: "key [key ...]",
        ..ROW
    },
    Row {
        name: "touch",
        needs: Needs::each(KeyUsage::EXISTENCE),
        arity: -2,
        keys: KEYS_TO_THE_END,
        since: "3.2.1",
        complexity: PER_KEY,
        summary: "Counts which of the given keys exist, and makes them used just now.",
        syntax: "key [key ...]",
        handler: existence::touch,
        ..ROW
    },
    Row {
        name: "type",
        needs: Needs::each(KeyUsage::EXISTENCE),
        summary: "Replies with the type of the value at a key.",
        handler: existence::value_type,
        ..ROW
    },
    Row {
        name: "ttl",
        summary: "Replies with the seconds until a key expires; -1 for never, -2 for no key.",
        handler: expiry::ttl,
        ..ROW
    },
    Row {
        name: "pttl",
        since: "2.6.0",
        summary: "Replies with the milliseconds until a key expires; -1 for never, -2 for no key.",
        handler: expiry::pttl,
        ..ROW
    },
    Row {
        name: "expiretime",
        since: "7.0.0",
        summary: "Replies with the unix time in seconds at which a key expires; -1 for never, -2 for no key.",
        handler: expiry::expiretime,
        ..ROW
    },
    Row {
        name: "pexpiretime",
        since: "7.0.0",
        summary: "Replies with the unix time in milliseconds at which a key expires; -1 for never, -2 for no key.",
        handler: expiry::pexpiretime,
        ..ROW
    },
    Row {
        name: "expire",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -3,
        flags: WRITE_FAST,
        summary: "Lets a key expire after some seconds.",
        syntax: "key seconds [NX | XX | GT | LT]",
        handler: expiry::expire,
        ..ROW
    },
    Row {
        name: "pexpire",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -3,
        flags: WRITE_FAST,
        since: "2.6.0",
        summary: "Lets a key expire after some milliseconds.",
        syntax: "key milliseconds [NX | XX | GT | LT]",
        handler: expiry::pexpire,
        ..ROW
    },
    Row {
        name: "expireat",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -3,
        flags: WRITE_FAST,
        since: "1.2.0",
        summary: "Lets a key expire at a unix time in seconds.",
        syntax: "key unix-time-seconds [NX | XX | GT | LT]",
        handler: expiry::expireat,
        ..ROW
    },
    Row {
        name: "pexpireat",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -3,
        flags: WRITE_FAST,
        since: "2.6.0",
        summary: "Lets a key expire at a unix time in milliseconds.",
        syntax: "key unix-time-milliseconds [NX | XX | GT | LT]",
        handler: expiry::pexpireat,
        ..ROW
    },
    Row {
        name: "persist",
        needs: Needs::each(KeyUsage::UPDATE),
        flags: WRITE_FAST,
        since: "2.2.0",
        summary: "Removes the expiry of a key.",
        handler: expiry::persist,
        ..ROW
    },
    Row {
        name: "rename",
        needs: Needs::first_and_others(KeyUsage::READ_DELETE, KeyUsage::OVERWRITE),
        arity: 3,
        flags: Flags::WRITE,
        keys: TWO_KEYS,
        complexity: MOVE_COMPLEXITY,
        summary: "Gives a key another name, replacing the key that has it.",
        syntax: "key newkey",
        handler: rename::rename,
        ..ROW
    },
    Row {
        name: "renamenx",
        needs: Needs::first_and_others(KeyUsage::READ_DELETE, KeyUsage::CREATE),
        arity: 3,
        flags: WRITE_FAST,
        keys: TWO_KEYS,
        complexity: MOVE_COMPLEXITY,
        summary: "Gives a key another name unless a key has it.",
        syntax: "key newkey",
        handler: rename::renamenx,
        ..ROW
    },
    Row {
        name: "dump",
        flags: Flags::READONLY.or(Flags::WALKS),
        since: "2.6.0",
        complexity: "O(N) where N is the size of the value.",
        summary: "Replies with the value of a key in the encoding that RESTORE and migration tools read.",
        handler: dump::dump,
        ..ROW
    },
    Row {
        name: "restore",
        needs: Needs::each(KeyUsage::OVERWRITE).with(&[Category::Dangerous]),
        arity: -4,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::WALKS),
        since: "2.6.0",
        complexity: "O(N) where N is the size of the value.",
        summary: "Creates a key from a reply of DUMP.",
        syntax: "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
        handler: dump::restore,
        ..ROW
    },
    Row {
        name: "restore-asking",
        needs: Needs::each(KeyUsage::OVERWRITE).with(&[Category::Dangerous]),
        arity: -4,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::WALKS),
        since: "3.0.0",
        complexity: "O(N) where N is the size of the value.",
        summary: "Creates a key from a reply of DUMP, as RESTORE does; servers of a cluster call it.",
        syntax: "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
        handler: dump::restore,
        ..ROW
    },
    Row {
        name: "copy",
        needs: Needs::first_and_others(KeyUsage::READ, KeyUsage::OVERWRITE),
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::COPIES).or(Flags::WALKS),
        keys: TWO_KEYS,
        since: "6.2.0",
        complexity: "O(N) where N is the size of the value.",
        summary: "Copies the value and the expiry of a key to another key.",
        syntax: "source destination [DB destination-db] [REPLACE]",
        handler: rename::copy,
        ..ROW
    },
    Row {
        name: "move",
        arity: 3,
        flags: WRITE_FAST,
        complexity: MOVE_COMPLEXITY,
        summary: "Moves a key to another database unless the key exists there.",
        syntax: "key db",
        handler: rename::move_key,
        ..ROW
    },
    Row {
        name: "randomkey",
        arity: 1,
        flags: WALK,
        keys: Keys::None,
        summary: "Replies with a random key of the selected database.",
        syntax: "",
        handler: walk::randomkey,
        ..ROW
    },
    Row {
        name: "keys",
        flags: WALK.or(Flags::DANGEROUS).or(Flags::WALKS),
        keys: Keys::None,
        complexity: "O(N) where N is the number of keys in the database; of one slot if the pattern fixes it.",
        summary: "Replies with all keys that match a pattern.",
        syntax: "pattern",
        handler: walk::keys,
        ..ROW
    },
    Row {
        name: "scan",
        arity: -2,
        flags: WALK,
        keys: Keys::None,
        since: "2.8.0",
        complexity: "O(COUNT) for a call, O(N) for a whole walk over N keys.",
        summary: "Walks over the keys of the selected database, some keys with every call.",
        syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
        handler: walk::scan,
        ..ROW
    },
    Row {
        name: "object",
        needs: Needs::BY_FLAGS.without(&[Category::Keyspace, Category::Read]),
        arity: -2,
        flags: Flags::READONLY.or(Flags::CONTAINER),
        keys: Keys::None,
        since: "2.2.3",
        complexity: "Depends on the subcommand.",
        summary: "Tells how a value is kept.",
        syntax: "",
        handler: help::no_subcommand,
        subcommands: &OBJECT_ROWS,
        ..ROW
    },
];

const OBJECT_ROW: Row = Row { arity: 3, flags: Flags::READONLY, keys: SECOND, since: "2.2.3", ..ROW };

const OBJECT_ROWS: [Row; 5] = [
    Row {
        name: "object|encoding",
        needs: Needs::each(KeyUsage::EXISTENCE),
        summary: "Names the form that Redis would keep a value in.",
        handler: object::encoding,
        ..OBJECT_ROW
    },
    Row {
        name: "object|freq",
        needs: Needs::each(KeyUsage::EXISTENCE),
        since: "4.0.0",
        summary: "Replies with the logarithmic access counter of a key, under an LFU policy.",
        handler: object::freq,
        ..OBJECT_ROW
    },
    Row {
        name: "object|help",
        arity: 2,
        flags: Flags::LOADING.or(Flags::STALE),
        keys: Keys::None,
        since: "6.2.0",
        summary: "Describes the subcommands.",
        syntax: "",
        handler: help::help,
        ..OBJECT_ROW
    },
    Row {
        name: "object|idletime",
        needs: Needs::each(KeyUsage::EXISTENCE),
        summary: "Replies with the seconds since a key was last used, unless under an LFU policy.",
        handler: object::idletime,
        ..OBJECT_ROW
    },
    Row {
        name: "object|refcount",
        needs: Needs::each(KeyUsage::EXISTENCE),
        summary: "Replies with the number of references to a value.",
        handler: object::refcount,
        ..OBJECT_ROW
    },
];
