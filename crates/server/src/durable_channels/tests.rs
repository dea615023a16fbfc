//! Tests with a log on a simulated disk: messages are found at their positions between other records, and the
//! floor of retention follows the end of the log.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use engine::log_messages::Refused;
use env::{SimClock, SimDisk, SimEntropy, sim::SimDiskOptions};
use keyspace::LoggedMessage;
use lsn::Lsn;
use pubsub::durable::{From, LogSource, Position, Read};
use storage::{LogOptions, Recovery};

use super::{
    retention::{Kept, floor},
    *,
};

/// Channel and payload.
type Text<'a> = (&'a str, &'a str);

struct Server {
    disk: Arc<SimDisk>,
    clock: Arc<SimClock>,
    log: Log,
    appender: Mutex<Appender>,
}

impl Server {
    fn new() -> Server {
        let disk = SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() });
        let clock = Arc::new(SimClock::new(1_000));
        Server::open(disk, clock)
    }

    fn restart(self) -> Server {
        self.log.flush_all().unwrap();
        Server::open(self.disk, self.clock)
    }

    fn open(disk: Arc<SimDisk>, clock: Arc<SimClock>) -> Server {
        let log = Self::recover(&disk).finish(clock.clone()).unwrap();
        Server { disk, clock, appender: Mutex::new(log.appender()), log }
    }

    /// The log, read to its end.
    fn recover(disk: &Arc<SimDisk>) -> Recovery {
        let options = LogOptions {
            segment_bytes: 256 << 10,
            ring_bytes: 64 << 10,
            unwritten_bytes_max: 16 << 10,
            ..LogOptions::default()
        };
        let mut recovery =
            Recovery::open(disk.clone(), Path::new("/data"), options, &SimEntropy::new(1)).unwrap();
        while recovery.next_batch().unwrap().is_some() {}
        recovery
    }

    /// Appends a record and makes it durable; returns where it begins.
    fn append(&self, payload: &[u8], is_marked: bool) -> Lsn {
        let before = self.log.durable_lsn();
        self.appender.lock().reserve_marked(payload, is_marked).unwrap().publish();
        self.log.flush_all().unwrap();
        self.log.prepare_segment().unwrap();
        before
    }

    fn publish(&self, messages: &[Text<'_>]) -> Lsn {
        let mut payload = Vec::new();
        for (channel, text) in messages {
            LoggedMessage { channel: channel.as_bytes(), payload: text.as_bytes() }.encode_into(&mut payload);
        }
        self.append(&payload, true)
    }

    /// All messages after a position between batches.
    fn messages(&self, mut from: Lsn) -> Vec<(Position, String, String)> {
        let (mut source, mut found) = (LogMessages::new(&self.log), Vec::new());
        loop {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let read =
                source.read(from, &mut |it| found.push((it.position, text(it.channel), text(it.payload))));
            match read {
                Read::UpTo(end) => from = end,
                Read::Nothing => return found,
                Read::Forgotten(oldest) => panic!("{oldest}"),
            }
        }
    }

    fn place(&self, from: From) -> Result<(Position, Lsn), Refused> {
        LogMessages::new(&self.log).place(from, None)
    }

    fn refusal(&self, from: Position) -> String {
        self.place(From::After(from)).expect_err("it is refused").to_string()
    }

    fn position(&self, lsn: Lsn) -> Position {
        Position { epoch: self.log.epoch(), lsn, reign: self.log.reign() }
    }
}

#[test]
fn messages_are_found_between_all_else() {
    let server = Server::new();
    server.append(b"an effect", false);
    let first = server.publish(&[("a", "1"), ("b", ""), ("a", "3")]);
    server.append(&[7; 20_000], false);
    let long = "x".repeat(40_000);
    server.publish(&[("a", &long), ("", "after")]);
    let last = server.publish(&[("b", "6")]);
    let found = server.messages(Lsn::ZERO);
    let texts: Vec<Text<'_>> = found.iter().map(|(_, channel, text)| (&**channel, &**text)).collect();
    assert_eq!(texts, [("a", "1"), ("b", ""), ("a", "3"), ("a", &long), ("", "after"), ("b", "6")]);
    let places: Vec<Lsn> = found.iter().map(|(position, ..)| position.lsn).collect();
    assert_eq!(places[..3], [1, 2, 3].map(|number| first.advance(number)));
    assert_eq!((places[4], places[5]), (places[3].advance(1), last.advance(1)));
    assert!(places.is_sorted() && places[3] > first && places[4] < last);
    assert!(found.iter().all(|(position, ..)| position.epoch == server.log.epoch()));
}

#[test]
fn every_position_can_be_gone_on_from_also_after_a_restart() {
    let server = Server::new();
    (0..20).for_each(|_| _ = server.publish(&[("a", "1"), ("a", "2")]));
    let before = server.messages(Lsn::ZERO);
    let server = server.restart();
    server.publish(&[("a", "3")]);
    let all = server.messages(Lsn::ZERO);
    assert_eq!(all[..40], before, "what was shown stays where it was");
    assert!(all[40].0.epoch > before[0].0.epoch);
    for (index, (position, ..)) in all.iter().enumerate() {
        let (from, at) = server.place(From::After(*position)).unwrap();
        assert!(from == *position && at <= position.lsn);
        let behind: Vec<_> =
            server.messages(at).into_iter().filter(|(it, ..)| it.lsn > position.lsn).collect();
        assert_eq!(behind, all[index + 1..]);
    }
    let (now, at) = server.place(From::Now).unwrap();
    assert_eq!((now.lsn, at), (server.log.durable_lsn(), server.log.durable_lsn()));
    assert_eq!(server.place(From::After(now)).unwrap(), (now, at), "what is told can be gone on from");
}

#[test]
fn a_client_that_begins_now_begins_at_the_tail_of_the_others() {
    let server = Server::new();
    server.publish(&[("a", "1")]);
    let tail = server.log.durable_lsn();
    server.publish(&[("a", "2")]);
    let (position, at) = LogMessages::new(&server.log).place(From::Now, Some(tail)).unwrap();
    assert_eq!((position, at), (server.position(tail), tail));
}

#[test]
fn an_empty_log_has_a_beginning() {
    let server = Server::new();
    let oldest = server.position(server.log.start_lsn());
    for from in [From::Oldest, From::Now, From::After(oldest)] {
        assert_eq!(server.place(from).unwrap(), (oldest, oldest.lsn));
    }
}

#[test]
fn positions_of_other_logs_are_refused() {
    let server = Server::new();
    server.publish(&[("a", "1")]);
    let old = server.messages(Lsn::ZERO)[0].0;
    let server = server.restart();
    server.publish(&[("a", "2")]);
    let new = server.messages(Lsn::ZERO)[1].0;
    let end = server.log.durable_lsn();
    for foreign in [
        Position { epoch: new.epoch, ..old },
        Position { epoch: old.epoch, ..new },
        // A position of another leader that began in the same epoch.
        Position { reign: new.reign + 1, ..new },
        server.position(end.advance(1)),
        server.position(Lsn::MAX),
    ] {
        assert!(
            server
                .refusal(foreign)
                .starts_with(&format!("LOST position {foreign} is not of this log: FROM - "))
        );
    }
    let earlier = Position { reign: 0, ..new };
    assert_eq!(server.place(From::After(earlier)).unwrap().0, earlier, "as earlier versions gave it");
}

#[test]
fn a_replica_waits_for_a_position_that_it_has_not_received() {
    let server = Server::new();
    server.publish(&[("a", "1")]);
    let known = server.messages(Lsn::ZERO)[0].0;
    server.log.flush_all().unwrap();
    let end = server.log.durable_lsn();
    let (log, _mirror) = Server::recover(&server.disk).finish_as_mirror(server.clock.clone()).unwrap();
    let place = |position| LogMessages::new(&log).place(From::After(position), None);
    assert_eq!(place(known).unwrap().0, known);
    let ahead = Position { lsn: end.advance(1), ..known };
    let refused = place(ahead).expect_err("it has not arrived").to_string();
    let end = log.shippable_lsn();
    assert_eq!(
        refused,
        format!("TRYAGAIN position {ahead} has not arrived at this replica yet; it has the log up to {end}")
    );
}

#[test]
fn a_position_that_was_removed_is_lost() {
    let server = Server::new();
    let first = server.position(server.publish(&[("a", "1")]).advance(1));
    (0..100).for_each(|_| _ = server.append(&[1; 10_000], false));
    let boundary = server.log.durable_lsn();
    assert!(server.log.truncate_before(boundary).unwrap());
    let oldest = server.position(server.log.start_lsn());
    assert!(oldest.lsn > first.lsn);
    assert_eq!(
        server.refusal(first),
        format!("LOST position {first} is no longer kept; the oldest is {oldest}")
    );
    let never = Position { epoch: oldest.epoch + 1, ..first };
    assert!(server.refusal(never).starts_with(&format!("LOST position {never} is not of this log: FROM - ")));
    assert_eq!(server.place(From::Oldest).unwrap(), (oldest, oldest.lsn));
    assert_eq!(server.place(From::After(oldest)).unwrap(), (oldest, oldest.lsn));
    let read = LogMessages::new(&server.log).read(Lsn::ZERO, &mut |_| panic!("nothing is left there"));
    assert_eq!(read, Read::Forgotten(oldest));
}

/// Damages the byte of the log at this position on disk.
fn damage(server: &Server, at: Lsn) {
    let (segment_bytes, header_bytes) = (server.log.segment_bytes(), 4096);
    let start = at.align_down(segment_bytes);
    let path = format!("/data/log-{:016x}.seg", start.get());
    server.disk.corrupt(Path::new(&path), header_bytes + at.bytes_since(start), 0xFF).unwrap();
}

#[test]
fn behind_damage_the_next_batch_that_can_be_read_is_gone_on_from() {
    for damages_footer in [false, true] {
        let server = Server::new();
        let text = "x".repeat(10_000);
        let starts: Vec<Lsn> = (0..60).map(|_| server.publish(&[("a", &text)])).collect();
        let all = server.messages(Lsn::ZERO);
        let next = starts[6];
        damage(&server, if damages_footer { Lsn::new(next.get() - 8) } else { starts[5].advance(100) });
        let (mut source, mut read, mut from) = (LogMessages::new(&server.log), Vec::new(), Lsn::ZERO);
        let gap = loop {
            match source.read(from, &mut |it| read.push(it.position)) {
                Read::UpTo(end) => from = end,
                Read::Forgotten(behind) => break behind,
                Read::Nothing => panic!("the damage was not noticed"),
            }
        };
        let positions: Vec<Position> = all.iter().map(|(position, ..)| *position).collect();
        assert_eq!((read, from), (positions[..5].to_vec(), starts[5]), "what is before the damage comes");
        assert_eq!(gap, server.position(next));
        assert_eq!(server.place(From::After(gap)).unwrap(), (gap, next), "it can be gone on from");
        assert_eq!(server.messages(next), all[6..]);
    }
}

#[test]
fn the_floor_follows_the_end_by_bytes_and_by_time() {
    let server = Server::new();
    let mut ends = vec![Lsn::ZERO];
    for _ in 0..50 {
        server.append(&[1; 5_000], false);
        ends.push(server.log.durable_lsn());
        server.clock.advance_ms(1_000);
    }
    let now_ms = 51_000;
    let floor = |bytes, ms| floor(&server.log, Kept { bytes, ms }, now_ms).unwrap();
    let batch = 8192;
    assert_eq!(floor(u64::MAX, 0), Lsn::ZERO);
    assert_eq!(floor(0, 0), ends[50]);
    assert_eq!(floor(1, 0), ends[49], "a whole batch");
    assert_eq!(floor(10 * batch, 0), ends[40]);
    assert_eq!(floor(u64::MAX, 1), ends[50]);
    // The clock starts at 1 s, so batch n, counted from 0, was closed at 1 + n seconds.
    assert_eq!(floor(u64::MAX, 10_000), ends[40]);
    assert_eq!(floor(u64::MAX, 10_001), ends[40]);
    assert_eq!(floor(u64::MAX, 1_000_000), Lsn::ZERO);
    assert_eq!((floor(5 * batch, 10_000), floor(20 * batch, 10_000)), (ends[45], ends[40]));
}
