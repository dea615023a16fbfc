//! Arguments without passwords, as SLOWLOG and MONITOR show them.

use wire::Args;

use crate::Row;

const REDACTED: &[u8] = b"(redacted)";

/// The arguments of a call, the name first, with every password replaced.
pub fn shown_args<'a>(row: &'static Row, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
    (0..args.len())
        .map(move |index| if (row.treatment.is_secret)(args, index) { REDACTED } else { args.at(index) })
}
