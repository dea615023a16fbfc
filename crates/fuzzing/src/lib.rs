//! The checks of the fuzz targets: one function for each decoder of bytes that come from disk, network or
//! users.
//!
//! ```text
//! fuzz/fuzz_targets/NAME.rs (libFuzzer, nightly) --.
//!                                                  |--> fuzzing::NAME(input) --> decoder, assertions
//! tests/corpus (part of cargo test) ---------------'
//!    '-- corpus/NAME/*, the seeds of today's encoders, and their mutations
//! ```
//!
//! What it is: functions that panic if a decoder breaks its promise, and the valid inputs from which fuzzing
//! starts. Only for tests.
//! What it is not: a fuzzer. It chooses no inputs.
//!
//! Invariants
//! - A function depends on its input alone, so one input repeats a failure.
//! - [`Outcome::Accepted`] means that the input went through the decoder's checks: a target that
//!   refuses all inputs shows nothing.
//!
//! `cargo run -p fuzzing --example corpus` writes the seeds into `corpus/`, over the files of the same names.
//! If a format changes but its earlier form is still read, first rename the old files, so that they stay. A
//! file `refused-*` is an input that is refused.

#![forbid(unsafe_code)]

mod document_change;
mod document_json;
mod effects;
mod group_message;
mod jwt;
mod log_records;
mod propagation;
mod rdb_file;
mod rdb_values;
mod replication;
mod resp_request;
mod restore;
mod revision_merge;
mod script;
mod selector;
mod session_cookie;
mod snapshot;
mod stream_block;
mod tree_node;
mod users;

pub use self::document_change::document_change;
pub use self::document_json::document_json;
pub use self::effects::effects;
pub use self::group_message::group_message;
pub use self::jwt::{jwt, jwt_keys};
pub use self::log_records::log_records;
pub use self::propagation::propagation;
pub use self::rdb_file::rdb_file;
pub use self::replication::replication;
pub use self::resp_request::resp_request;
pub use self::restore::restore;
pub use self::revision_merge::revision_merge;
pub use self::script::{script_json, script_msgpack, script_struct};
pub use self::selector::selector;
pub use self::session_cookie::session_cookie;
pub use self::snapshot::snapshot;
pub use self::stream_block::stream_block;
pub use self::tree_node::tree_node;
pub use self::users::{user_file, user_record, user_rules};

/// The verdict of a target's decoder on an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The input was valid.
    Accepted,
    /// The input was not valid.
    Refused,
}

impl Outcome {
    fn accepted_if(accepted: bool) -> Outcome {
        if accepted { Outcome::Accepted } else { Outcome::Refused }
    }
}

/// A target: panics if the decoder breaks its promise.
pub type Target = fn(&[u8]) -> Outcome;

/// The name of an input, and the input: a valid one, unless its name begins with `refused-`.
pub type Seed = (&'static str, Vec<u8>);

/// Calls a macro with the names of all targets.
#[macro_export]
macro_rules! with_targets {
    ($call:ident) => {
        $call! {
            document_change,
            document_json,
            effects,
            group_message,
            jwt,
            jwt_keys,
            log_records,
            propagation,
            rdb_file,
            replication,
            resp_request,
            restore,
            revision_merge,
            script_json,
            script_msgpack,
            script_struct,
            selector,
            session_cookie,
            snapshot,
            stream_block,
            tree_node,
            user_file,
            user_record,
            user_rules,
        }
    };
}

macro_rules! table {
    ($($name:ident,)+) => {
        /// All targets with their names.
        pub const TARGETS: &[(&str, Target)] = &[$((stringify!($name), $name)),+];
    };
}
with_targets!(table);

/// The inputs that this code makes for a target, with today's encoders or byte by byte; the names of those
/// that are refused begin with `refused-`.
///
/// # Panics
/// If there is no such target.
pub fn seeds(target: &str) -> Vec<Seed> {
    match target {
        "document_change" => document_change::seeds(),
        "document_json" => document_json::seeds(),
        "effects" => effects::seeds(),
        "group_message" => group_message::seeds(),
        "jwt" => jwt::token_seeds(),
        "jwt_keys" => jwt::keys_seeds(),
        "log_records" => log_records::seeds(),
        "propagation" => self::propagation::seeds(),
        "rdb_file" => rdb_file::seeds(),
        "replication" => self::replication::seeds(),
        "resp_request" => resp_request::seeds(),
        "restore" => restore::seeds(),
        "revision_merge" => revision_merge::seeds(),
        "script_json" => script::json_seeds(),
        "script_msgpack" => script::msgpack_seeds(),
        "script_struct" => script::struct_seeds(),
        "selector" => selector::seeds(),
        "session_cookie" => session_cookie::seeds(),
        "snapshot" => snapshot::seeds(),
        "stream_block" => stream_block::seeds(),
        "tree_node" => tree_node::seeds(),
        "user_file" => users::file_seeds(),
        "user_record" => users::record_seeds(),
        "user_rules" => users::rules_seeds(),
        _ => panic!("{target} is no target"),
    }
}

/// The content of a file of a simulated disk.
fn content(disk: &env::SimDisk, path: &std::path::Path) -> Vec<u8> {
    let file = env::Disk::open(disk, path, env::Access::Read).expect("it exists");
    let mut bytes = vec![0; file.len().expect("the disk works") as usize];
    file.read_exact_at(&mut bytes, 0).expect("the disk works");
    bytes
}
