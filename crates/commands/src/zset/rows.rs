//! The rows of the commands on sorted sets.

use engine::{Family, Flags, KeyUsage, Keys, Needs, Row, Treatment};

use super::{add, combine, get, pop, random, range, remove, scan};

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = Flags::READONLY.or(Flags::FAST);
const GROW: Flags = Flags::WRITE.or(Flags::DENYOOM);
const GROW_FAST: Flags = GROW.or(Flags::FAST);
/// Flags of commands that write and are not refused when memory is scarce.
const SHRINK: Flags = Flags::WRITE;
const SHRINK_FAST: Flags = SHRINK.or(Flags::FAST);

/// Shared fields of the rows.
pub(super) const ROW: Row = Row {
    name: "",
    arity: 4,
    flags: READ,
    keys: Keys::First,
    family: Family::SortedSet,
    since: "2.0.0",
    complexity: "O(log(N)+M) where N is the number of members and M the number of those in question.",
    summary: "",
    syntax: "key min max",
    handler: range::zcount,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

const LOG_N: &str = "O(log(N)) where N is the number of members.";
const LOG_N_EACH: &str = "O(log(N)) for each member in question, where N is the number of members.";
const COUNTED: Keys = Keys::Counted { at: 1, before: None };

/// Shared fields of the commands that combine sorted sets.
const COMBINE: Row = Row {
    arity: -3,
    flags: READ.or(Flags::WALKS),
    keys: COUNTED,
    since: "6.2.0",
    complexity: "O(N)+O(M*log(M)) where N is the number of members of all inputs and M that of the result.",
    syntax: "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
    ..ROW
};

/// As [`COMBINE`], for the commands that store the result.
const COMBINE_AND_STORE: Row = Row {
    arity: -4,
    flags: GROW.or(Flags::COPIES).or(Flags::WALKS),
    keys: Keys::Counted { at: 2, before: Some(1) },
    since: "2.0.0",
    syntax: "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>]",
    ..COMBINE
};

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "zadd",
        needs: Needs::each(KeyUsage::UPDATE),
        treatment: Treatment::of_member(3),
        arity: -4,
        flags: GROW_FAST,
        since: "1.2.0",
        complexity: LOG_N_EACH,
        summary: "Adds members to a sorted set or gives them other scores, with conditions if wanted.",
        syntax: "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
        handler: add::zadd,
        ..ROW
    },
    Row {
        name: "zincrby",
        treatment: Treatment::of_member(3),
        flags: GROW_FAST,
        since: "1.2.0",
        complexity: LOG_N,
        summary: "Adds to the score of a member, which is 0 if it does not exist.",
        syntax: "key increment member",
        handler: add::zincrby,
        ..ROW
    },
    Row {
        name: "zcard",
        needs: Needs::each(KeyUsage::EXISTENCE),
        arity: 2,
        flags: READ_FAST,
        since: "1.2.0",
        complexity: "O(1)",
        summary: "Replies with the number of members.",
        syntax: "key",
        handler: get::zcard,
        ..ROW
    },
    Row {
        name: "zscore",
        treatment: Treatment::of_member(2),
        arity: 3,
        flags: READ_FAST,
        since: "1.2.0",
        complexity: "O(1)",
        summary: "Replies with the score of a member.",
        syntax: "key member",
        handler: get::zscore,
        ..ROW
    },
    Row {
        name: "zmscore",
        treatment: Treatment::of_member(2),
        arity: -3,
        flags: READ_FAST,
        since: "6.2.0",
        complexity: "O(N) where N is the number of members in question.",
        summary: "Replies with the scores of several members.",
        syntax: "key member [member ...]",
        handler: get::zmscore,
        ..ROW
    },
    Row {
        name: "zrank",
        treatment: Treatment::of_member(2),
        arity: -3,
        flags: READ_FAST,
        complexity: LOG_N,
        summary: "Replies with how many members are before a member, in order of score.",
        syntax: "key member [WITHSCORE]",
        handler: get::zrank,
        ..ROW
    },
    Row {
        name: "zrevrank",
        treatment: Treatment::of_member(2),
        arity: -3,
        flags: READ_FAST,
        complexity: LOG_N,
        summary: "Replies with how many members are after a member, in order of score.",
        syntax: "key member [WITHSCORE]",
        handler: get::zrevrank,
        ..ROW
    },
    Row {
        name: "zcount",
        flags: READ_FAST,
        complexity: LOG_N,
        summary: "Replies with how many members have a score in a range.",
        ..ROW
    },
    Row {
        name: "zlexcount",
        flags: READ_FAST,
        since: "2.8.9",
        complexity: LOG_N,
        summary: "Replies with how many members lie in a range of byte strings, where all have one score.",
        handler: range::zlexcount,
        ..ROW
    },
    Row {
        name: "zrange",
        arity: -4,
        since: "1.2.0",
        summary: "Replies with members in a range of ranks, scores or byte strings.",
        syntax: "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        handler: range::zrange,
        ..ROW
    },
    Row {
        name: "zrevrange",
        arity: -4,
        since: "1.2.0",
        summary: "Replies with members in a range of ranks, the highest score first.",
        syntax: "key start stop [WITHSCORES]",
        handler: range::zrevrange,
        ..ROW
    },
    Row {
        name: "zrangebyscore",
        arity: -4,
        since: "1.0.5",
        summary: "Replies with members in a range of scores.",
        syntax: "key min max [WITHSCORES] [LIMIT offset count]",
        handler: range::zrangebyscore,
        ..ROW
    },
    Row {
        name: "zrevrangebyscore",
        arity: -4,
        since: "2.2.0",
        summary: "Replies with members in a range of scores, the highest score first.",
        syntax: "key max min [WITHSCORES] [LIMIT offset count]",
        handler: range::zrevrangebyscore,
        ..ROW
    },
    Row {
        name: "zrangebylex",
        arity: -4,
        since: "2.8.9",
        summary: "Replies with members in a range of byte strings, where all have one score.",
        syntax: "key min max [LIMIT offset count]",
        handler: range::zrangebylex,
        ..ROW
    },
    Row {
        name: "zrevrangebylex",
        arity: -4,
        since: "2.8.9",
        summary: "Replies with members in a range of byte strings, where all have one score, the last one first.",
        syntax: "key max min [LIMIT offset count]",
        handler: range::zrevrangebylex,
        ..ROW
    },
    Row {
        name: "zrangestore",
        needs: Needs::first_and_others(KeyUsage::OVERWRITE, KeyUsage::READ),
        arity: -5,
        flags: GROW.or(Flags::COPIES),
        keys: Keys::Range { first: 1, last: 2, step: 1 },
        since: "6.2.0",
        summary: "Stores the members in a range of another sorted set.",
        syntax: "dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
        handler: range::zrangestore,
        ..ROW
    },
    Row {
        name: "zrem",
        needs: Needs::each(KeyUsage::DELETE),
        treatment: Treatment::of_member(2),
        arity: -3,
        flags: SHRINK_FAST,
        since: "1.2.0",
        complexity: LOG_N_EACH,
        summary: "Removes members from a sorted set.",
        syntax: "key member [member ...]",
        handler: remove::zrem,
        ..ROW
    },
    Row {
        name: "zremrangebyrank",
        needs: Needs::each(KeyUsage::DELETE),
        flags: SHRINK,
        summary: "Removes the members in a range of ranks.",
        syntax: "key start stop",
        handler: remove::zremrangebyrank,
        ..ROW
    },
    Row {
        name: "zremrangebyscore",
        needs: Needs::each(KeyUsage::DELETE),
        flags: SHRINK,
        since: "1.2.0",
        summary: "Removes the members in a range of scores.",
        handler: remove::zremrangebyscore,
        ..ROW
    },
    Row {
        name: "zremrangebylex",
        needs: Needs::each(KeyUsage::DELETE),
        flags: SHRINK,
        since: "2.8.9",
        summary: "Removes the members in a range of byte strings, where all have one score.",
        handler: remove::zremrangebylex,
        ..ROW
    },
    Row {
        name: "zpopmin",
        needs: Needs::each(KeyUsage::READ_DELETE),
        arity: -2,
        flags: SHRINK_FAST,
        since: "5.0.0",
        complexity: LOG_N_EACH,
        summary: "Removes the members with the lowest scores and replies with them.",
        syntax: "key [count]",
        handler: pop::zpopmin,
        ..ROW
    },
    Row {
        name: "zpopmax",
        needs: Needs::each(KeyUsage::READ_DELETE),
        arity: -2,
        flags: SHRINK_FAST,
        since: "5.0.0",
        complexity: LOG_N_EACH,
        summary: "Removes the members with the highest scores and replies with them.",
        syntax: "key [count]",
        handler: pop::zpopmax,
        ..ROW
    },
    Row {
        name: "zmpop",
        needs: Needs::each(KeyUsage::READ_DELETE),
        arity: -4,
        flags: SHRINK,
        keys: COUNTED,
        since: "7.0.0",
        complexity: "O(K)+O(M*log(N)) where K is the number of keys, N the number of members and M of those popped.",
        summary: "Removes the first or last members of the first sorted set that exists and replies with them.",
        syntax: "numkeys key [key ...] <MIN | MAX> [COUNT count]",
        handler: pop::zmpop,
        ..ROW
    },
    Row {
        name: "zunion",
        summary: "Replies with the members that any of several sorted sets has.",
        handler: combine::zunion,
        ..COMBINE
    },
    Row {
        name: "zinter",
        summary: "Replies with the members that all of several sorted sets have.",
        handler: combine::zinter,
        ..COMBINE
    },
    Row {
        name: "zdiff",
        summary: "Replies with the members of a sorted set that no other one has.",
        syntax: "numkeys key [key ...] [WITHSCORES]",
        handler: combine::zdiff,
        ..COMBINE
    },
    Row {
        name: "zunionstore",
        needs: Needs::first_and_others(KeyUsage::OVERWRITE, KeyUsage::READ),
        summary: "Stores the members that any of several sorted sets has.",
        handler: combine::zunionstore,
        ..COMBINE_AND_STORE
    },
    Row {
        name: "zinterstore",
        needs: Needs::first_and_others(KeyUsage::OVERWRITE, KeyUsage::READ),
        summary: "Stores the members that all of several sorted sets have.",
        handler: combine::zinterstore,
        ..COMBINE_AND_STORE
    },
    Row {
        name: "zdiffstore",
        needs: Needs::first_and_others(KeyUsage::OVERWRITE, KeyUsage::READ),
        since: "6.2.0",
        summary: "Stores the members of a sorted set that no other one has.",
        syntax: "destination numkeys key [key ...]",
        handler: combine::zdiffstore,
        ..COMBINE_AND_STORE
    },
    Row {
        name: "zintercard",
        since: "7.0.0",
        complexity: "O(N*K) where N is the number of members of the smallest of K inputs.",
        summary: "Replies with how many members all of several sorted sets have.",
        syntax: "numkeys key [key ...] [LIMIT limit]",
        handler: combine::zintercard,
        ..COMBINE
    },
    Row {
        name: "zrandmember",
        arity: -2,
        since: "6.2.0",
        complexity: "O(M*log(N)) where N is the number of members and M of those in question.",
        summary: "Replies with members at random.",
        syntax: "key [count [WITHSCORES]]",
        handler: random::zrandmember,
        ..ROW
    },
    Row {
        name: "zscan",
        arity: -3,
        since: "2.8.0",
        complexity: "O(1) for every call. O(N) for a whole walk, where N is the number of members.",
        summary: "Walks over the members with their scores, some at each call.",
        syntax: "key cursor [MATCH pattern] [COUNT count]",
        handler: scan::zscan,
        ..ROW
    },
];
