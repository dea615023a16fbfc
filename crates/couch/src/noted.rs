//! The notes about a request, until its reply has ended: its entry in the access log, and its trace.

use http::StatusCode;

use super::{access_log::Entry, traces::Trace};

/// A request that is being answered. Dropping this writes the entry and ends the trace.
pub(super) struct Noted {
    pub(super) entry: Option<Entry>,
    pub(super) trace: Option<Trace>,
    status: Option<StatusCode>,
    bytes: u64,
}

impl Noted {
    /// `None` if nothing accompanies the request.
    pub(super) fn new(entry: Option<Entry>, trace: Option<Trace>) -> Option<Box<Noted>> {
        let is_noted = entry.is_some() || trace.is_some();
        is_noted.then(|| Box::new(Noted { entry, trace, status: None, bytes: 0 }))
    }

    /// The reply begins.
    pub(super) fn set_status(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    /// Counts bytes of the reply's body that the connection takes to send.
    pub(super) fn add_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let status = self.status.map(|status| status.as_u16());
        if let Some(entry) = self.entry.take() {
            entry.end(status, self.bytes);
        }
        if let Some(trace) = self.trace.take() {
            trace.end(status, self.bytes);
        }
    }
}
