//! The rows of the commands on idempotence.

use engine::{Family, Flags, Keys, Needs, Row, Treatment, row::WRAPPED_AT};

use super::{find_keys, idemp, reads_others};
use crate::is_secret_of_call;

pub(crate) const ROWS: &[Row] = &[Row {
    name: "idemp",
    arity: -4,
    flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::NOSCRIPT).or(Flags::RUNS_SCRIPTS).or(Flags::WRAPS),
    keys: Keys::Computed { first: Some(1), find: find_keys, reads_others },
    family: Family::Transactions,
    since: "7.2.4",
    complexity: "That of the command.",
    summary: "Runs a command once: a repetition under the same key gets the first reply.",
    syntax: "key milliseconds command [arg [arg ...]]",
    handler: idemp,
    subcommands: &[],
    treatment: Treatment::of_secrets(|args, index| is_secret_of_call(args, WRAPPED_AT, index)),
    needs: Needs::BY_FLAGS,
}];
