//! The id of a subscriber within its worker.

/// A subscriber of a worker. Valid from [`Local::join`](crate::Local::join) until
/// [`Local::leave`](crate::Local::leave) returns `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriberId(pub(crate) u32);

impl SubscriberId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn numbered(number: u32) -> SubscriberId {
        SubscriberId(number)
    }
}
