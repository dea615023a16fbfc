//! How many clients each port may have, within the limit of open files.

/// Connections to the Redis port beyond the maximum number of clients, for replicas and members of the group.
pub const RESERVED_PLACES: u64 = 32;
/// Descriptors that the server needs besides the descriptors of clients.
const DESCRIPTORS_OWN: u64 = 64 + RESERVED_PLACES;

/// How many clients there may be on each port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientsMax {
    /// The maximum number of clients on the Redis port.
    pub redis: u64,
    /// The maximum number of clients on the HTTP port.
    pub http: u64,
}

impl ClientsMax {
    /// The descriptors that this many clients on each port need, with the server's own.
    pub const fn descriptors(wanted: u64) -> u64 {
        2 * wanted + DESCRIPTORS_OWN
    }

    /// As many clients as are wanted on each port, if the limit of open files (0: not known) allows it. If
    /// not, the Redis port gets at most about three quarters of the places, and HTTP the rest; each gets one
    /// at least.
    pub fn within(open_files_max: u64, wanted: u64) -> ClientsMax {
        if open_files_max == 0 {
            return ClientsMax { redis: wanted, http: wanted };
        }
        let room = open_files_max.saturating_sub(DESCRIPTORS_OWN);
        let redis = wanted.min(room - room / 4).max(1);
        ClientsMax { redis, http: wanted.min(room.saturating_sub(redis)).max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clients_together_leave_the_server_its_descriptors() {
        let max = |redis, http| ClientsMax { redis, http };
        assert_eq!(ClientsMax::within(20_096, 10_000), max(10_000, 10_000));
        assert_eq!(ClientsMax::within(20_000, 10_100), max(10_100, 9_804));
        assert_eq!(ClientsMax::within(1024, 10_000), max(696, 232));
        assert_eq!(ClientsMax::within(10, 10_000), max(1, 1));
        assert_eq!(ClientsMax::within(0, 10_000), max(10_000, 10_000), "not known");
        assert_eq!(ClientsMax::descriptors(10_000), 20_096);
    }
}
