//! How many clients each port may have: as many as are wanted, if the limit of open files can be raised so
//! far.

use settings::ClientsMax;

/// The clients that are possible of those wanted on each port. Raises the limit of open files, never lowers
/// it.
pub(crate) fn possible_clients(wanted: u64) -> ClientsMax {
    ClientsMax::within(env::process::raise_open_files_limit(ClientsMax::descriptors(wanted)), wanted)
}
