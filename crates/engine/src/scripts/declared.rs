//! The declarations of a script or function that a command calls, known before it runs: the flags of its
//! first line, or of its registration.

use keyspace::{Function, FunctionFlags};
use scripting::{Sha, Source, Traits};
use wire::Args;

use crate::{Callee, Executor, Host, Row};

/// The flags of a function. A function always counts as declaring its flags.
pub fn traits_of(function: &Function) -> Traits {
    Traits {
        declared: true,
        no_writes: function.flags.has(FunctionFlags::NO_WRITES),
        allow_oom: function.flags.has(FunctionFlags::ALLOW_OOM),
        allow_stale: function.flags.has(FunctionFlags::ALLOW_STALE),
    }
}

impl Executor {
    /// Whether a command calls a script or function that is refused as a whole when memory is scarce. A
    /// library that is not committed yet does not count.
    pub(crate) fn declares_growth(&mut self, row: &Row, args: Args<'_>, host: &Host) -> bool {
        self.declared(row, args, host).is_some_and(Traits::needs_memory)
    }

    /// Whether a command calls a script or function that declares not to write. A library that is not
    /// committed yet does not count.
    pub(crate) fn declares_no_writes(&mut self, row: &Row, args: Args<'_>, host: &Host) -> bool {
        self.declared(row, args, host).is_some_and(|traits| traits.no_writes)
    }

    /// The declarations of the script or function that a command calls; `None` if it calls none that is
    /// known.
    fn declared(&mut self, row: &Row, args: Args<'_>, host: &Host) -> Option<Traits> {
        match row.treatment.calls {
            Some(Callee::Source) => Source::of_script(args.at(1)).ok().map(|source| source.traits),
            Some(Callee::Sha) => {
                Sha::parse(args.at(1)).and_then(|sha| host.scripts.find(sha)).map(|script| script.traits)
            }
            Some(Callee::Function) => {
                let (libraries, lsn) = self.scripting.libraries.published(&self.keyspace);
                let function = libraries.function(args.at(1)).filter(|_| lsn <= self.committed_lsn());
                function.map(|(_, function)| traits_of(function))
            }
            None => None,
        }
    }
}
