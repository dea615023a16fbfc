//! Mailboxes: batches on their way from one worker to another.
//!
//! There is one mailbox per ordered pair of workers, so that senders do not contend. Each receiver has one
//! bit per sender, which is set while mail of that sender waits. The senders keep mailboxes bounded: a sender
//! whose mailbox to a receiver is full should not publish to this receiver.
//!
//! Invariants
//! - A receiver that takes the batches of all set bits never leaves a batch behind without its bit set:
//!   senders first put the batch in and then set the bit; receivers first clear the bits and then take the
//!   batches.
//! - The sender that sets the first bit of a word wakes the receiver. So the receiver is woken once per word
//!   for all batches that arrive before it takes them.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use parking_lot::Mutex;

use crate::batch::Batch;

/// Bytes of frames in one mailbox above which its sender should stop publishing.
const MAILBOX_BYTES_MAX: usize = 1 << 20;

/// Wakes a worker. Called by any worker; must not block.
pub(crate) type Wake = Box<dyn Fn() + Send + Sync>;

#[derive(Debug, Default)]
struct Mailbox {
    batches: Mutex<Vec<Batch>>,
    bytes: AtomicUsize,
}

/// The mailboxes to one worker, one from each worker.
#[derive(Default)]
pub(crate) struct Inbox {
    from: Box<[Mailbox]>,
    /// The workers whose mailboxes hold batches, as bits.
    senders: [AtomicU64; 2],
    wake: OnceLock<Wake>,
}

impl Inbox {
    pub(crate) fn new(workers: usize) -> Inbox {
        Inbox { from: (0..workers).map(|_| Mailbox::default()).collect(), ..Inbox::default() }
    }

    /// Sets the function that wakes the receiver; only the first call has an effect.
    pub(crate) fn listen(&self, wake: Wake) {
        let _ = self.wake.set(wake);
    }

    pub(crate) fn send(&self, from: usize, batch: Batch) {
        let mailbox = &self.from[from];
        mailbox.bytes.fetch_add(batch.bytes.len(), Relaxed);
        mailbox.batches.lock().push(batch);
        let before = self.senders[from / 64].fetch_or(1 << (from % 64), SeqCst);
        if before == 0 {
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Whether the mailbox from this sender is full, so that the sender should wait until the receiver has
    /// caught up.
    pub(crate) fn is_full(&self, from: usize) -> bool {
        self.from[from].bytes.load(Relaxed) > MAILBOX_BYTES_MAX
    }

    /// Whether any mailbox may hold a batch.
    pub(crate) fn has_mail(&self) -> bool {
        self.senders.iter().any(|senders| senders.load(SeqCst) != 0)
    }

    /// Takes all batches; the batches of each sender are in the order in which they were sent.
    pub(crate) fn take(&self, mut each: impl FnMut(Batch)) {
        for (word, senders) in self.senders.iter().enumerate() {
            let mut senders = if senders.load(SeqCst) == 0 { 0 } else { senders.swap(0, SeqCst) };
            while senders != 0 {
                let mailbox = &self.from[word * 64 + senders.trailing_zeros() as usize];
                senders &= senders - 1;
                let batches = std::mem::take(&mut *mailbox.batches.lock());
                for batch in batches {
                    mailbox.bytes.fetch_sub(batch.bytes.len(), Relaxed);
                    each(batch);
                }
            }
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("from", &self.from).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::{Arc, atomic::AtomicU32};

    use super::*;
    use crate::kind::Kind;

    fn batch(payload: &[u8]) -> Batch {
        let mut batch = Batch::default();
        batch.push(Kind::Channel, None, &[], b"c", payload);
        batch
    }

    #[test]
    fn a_receiver_is_woken_once_for_all_that_has_come() {
        let (inbox, woken) = (Inbox::new(100), Arc::new(AtomicU32::new(0)));
        let counter = woken.clone();
        inbox.listen(Box::new(move || {
            counter.fetch_add(1, SeqCst);
        }));
        inbox.send(3, batch(b"a"));
        inbox.send(5, batch(b"b"));
        inbox.send(3, batch(b"c"));
        assert_eq!(woken.load(SeqCst), 1);
        let mut taken = Vec::new();
        inbox.take(|batch| taken.push(batch.bytes.last_chunk::<3>().unwrap()[0]));
        assert_eq!(taken, b"acb");
        assert!(!inbox.has_mail());
        inbox.send(99, batch(b"d"));
        assert_eq!(woken.load(SeqCst), 2);
    }

    #[test]
    fn a_sender_that_is_too_far_ahead_is_told() {
        let inbox = Inbox::new(2);
        inbox.send(1, batch(&vec![b'x'; MAILBOX_BYTES_MAX]));
        assert!(inbox.is_full(1) && !inbox.is_full(0));
        inbox.take(drop);
        assert!(!inbox.is_full(1));
    }
}
