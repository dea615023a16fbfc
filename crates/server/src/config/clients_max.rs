//! The number of clients that each port may have: as many as are wanted, if the limit of open files can be
//! raised far enough.

use settings::ClientsMax;

/// Returns how many of the `wanted` clients each port can have. Raises the limit of open files if necessary,
/// and never lowers it.
pub(crate) fn possible_clients(wanted: u64) -> ClientsMax {
    ClientsMax::within(env::process::raise_open_files_limit(ClientsMax::descriptors(wanted)), wanted)
}
