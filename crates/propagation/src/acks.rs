//! The progress of a replica, as a position in the log.

use std::collections::VecDeque;

use lsn::Lsn;

/// The maximum number of sent pieces that await an acknowledgement. A further piece and the last one count as
/// one.
const SENT_MAX: usize = 1024;

/// How much of the stream a replica was sent, and how much it has acknowledged.
#[derive(Debug, Clone, Default)]
pub struct Acks {
    /// The ends of pieces of the stream that are not acknowledged, with the last record in each.
    sent: VecDeque<(u64, Lsn)>,
    offset: u64,
    lsn: Lsn,
}

impl Acks {
    /// Notes that the stream up to `offset` is sent, and has the records up to `lsn`.
    pub fn sent(&mut self, offset: u64, lsn: Lsn) {
        if offset <= self.offset {
            self.lsn = self.lsn.max(lsn);
            return;
        }
        let is_full = self.sent.len() == SENT_MAX;
        match self.sent.back_mut() {
            Some(last) if last.0 == offset || is_full => *last = (offset, lsn),
            _ => self.sent.push_back((offset, lsn)),
        }
    }

    /// Notes that the replica has the stream up to `offset`.
    pub fn acknowledged(&mut self, offset: u64) {
        self.offset = self.offset.max(offset);
        while let Some((_, lsn)) = self.sent.pop_front_if(|(end, _)| *end <= offset) {
            self.lsn = lsn;
        }
    }

    /// The bytes of the stream that the replica has.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The position up to which the replica has the log.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_has_the_records_whose_bytes_it_has() {
        let mut acks = Acks::default();
        let lsn = |acks: &Acks| acks.lsn().get();
        acks.sent(0, Lsn::new(10));
        assert_eq!(lsn(&acks), 10, "records without commands");
        for (offset, lsn) in [(5, 20), (9, 30), (9, 40)] {
            acks.sent(offset, Lsn::new(lsn));
        }
        assert_eq!(lsn(&acks), 10);
        acks.acknowledged(8);
        assert_eq!(lsn(&acks), 20);
        acks.acknowledged(9);
        assert_eq!(lsn(&acks), 40);
        acks.sent(9, Lsn::new(50));
        assert_eq!(lsn(&acks), 50);
        (0..2 * SENT_MAX as u64).for_each(|more| acks.sent(10 + more, Lsn::new(60 + more)));
        assert_eq!(acks.sent.len(), SENT_MAX);
        acks.acknowledged(10 + 2 * SENT_MAX as u64);
        assert_eq!(lsn(&acks), 59 + 2 * SENT_MAX as u64);
    }
}
