use super::*;

const BATCH_BYTES: u64 = 4096;

/// A log of equal batches with a given end.
struct Batches {
    position: u64,
    end: u64,
    batch_bytes: u64,
}

impl Source for Batches {
    type Bytes = u64;
    type Error = ();

    fn read(&mut self, bytes_max: u64, until: Lsn) -> Result<Option<Chunk<u64>>, ()> {
        let bytes = (self.end.min(until.get()) - self.position)
            .min((bytes_max / self.batch_bytes).max(1) * self.batch_bytes);
        let start = Lsn::new(self.position);
        self.position += bytes;
        Ok((bytes > 0).then_some(Chunk { start, end: start.advance(bytes), bytes }))
    }
}

/// A relay, and the log that it ships.
struct Setting {
    relay: Relay,
    log: Batches,
    moment: Moment,
}

impl Setting {
    fn new() -> Setting {
        let log = Batches { position: 0, end: 0, batch_bytes: BATCH_BYTES };
        let (shippable, commit) = (Lsn::ZERO, Lsn::ZERO);
        let moment = Moment {
            now_ms: 0,
            unsent_bytes: 0,
            shippable,
            commit,
            epoch: 3,
            has_tick_ended: false,
            distance: 0,
        };
        Setting { relay: Relay::new(RelayOptions::default(), 3, Lsn::ZERO, 0), log, moment }
    }

    fn grow(&mut self, bytes: u64) {
        self.log.end += bytes;
        self.moment.shippable = Lsn::new(self.log.end);
        self.moment.commit = self.moment.shippable;
    }

    fn step(&mut self) -> (Vec<Frame>, RelayTurn) {
        let mut out = Vec::new();
        let turn = self.relay.step(self.moment, &mut self.log, &mut out).expect("a sound connection");
        let frames = out.iter().map(|it| Frame::decode(&it.header).expect("a frame").expect("all of it"));
        (frames.collect(), turn)
    }

    fn acks(&mut self, epoch: u32, flushed: u64, applied: u64) -> Result<Option<Acked>, Close> {
        let (flushed, applied) = (Lsn::new(flushed), Lsn::new(applied));
        let ack = Frame::Ack { epoch, flushed, applied, as_of_ms: 7 };
        self.relay.inbox().extend_from_slice(&ack.encode());
        self.relay.receive(self.moment.now_ms)
    }
}

fn log_frame(start: u64, bytes: u64, end: u64, sent_ms: u64) -> Frame {
    let (start, commit) = (Lsn::new(start), Lsn::new(end));
    Frame::Log { epoch: 3, start, bytes: bytes as u32, commit, sent_ms }
}

#[test]
fn pending_bytes_are_sent_by_the_flush_rule() {
    let flush_bytes = RelayOptions::default().flush_bytes;
    let cases = [
        ("an empty socket", BATCH_BYTES, 0, false, true),
        ("a busy socket", BATCH_BYTES, 1, false, false),
        ("the end of a tick", BATCH_BYTES, 1, true, true),
        ("enough", flush_bytes, 1, false, true),
        ("almost enough", flush_bytes - BATCH_BYTES, 1, false, false),
        ("a full socket", flush_bytes, 1 << 20, true, false),
    ];
    for (what, pending, unsent_bytes, has_tick_ended, ships) in cases {
        let mut setting = Setting::new();
        setting.grow(pending);
        setting.moment = Moment { unsent_bytes, has_tick_ended, ..setting.moment };
        let frames = setting.step().0;
        assert_eq!(frames, if ships { vec![log_frame(0, pending, pending, 0)] } else { vec![] }, "{what}");
    }
}

#[test]
fn a_step_ends_although_there_is_more() {
    let mut setting = Setting::new();
    setting.grow(5 << 20);
    let mut shipped = 0;
    while let (frames, RelayTurn::More) = setting.step() {
        let bytes: usize = frames.iter().map(Frame::payload_bytes).sum();
        assert_eq!(bytes, 1 << 20);
        shipped += bytes;
        setting.grow(4096);
        assert!(shipped < 10 << 20, "it is never done");
    }
    assert_eq!(setting.relay.position(), setting.moment.shippable);
}

#[test]
fn a_batch_is_never_cut_and_one_that_fits_no_frame_ends_the_relay() {
    let mut setting = Setting::new();
    setting.log.batch_bytes = 3 << 20;
    setting.grow(6 << 20);
    assert_eq!(setting.step().0, [log_frame(0, 3 << 20, 6 << 20, 0)]);
    setting.log.batch_bytes = 9 << 20;
    setting.grow(6 << 20);
    let failed = setting.relay.step(setting.moment, &mut setting.log, &mut Vec::new());
    assert_eq!(failed, Err(RelayError::Batch(9 << 20)));
}

#[test]
fn silence_is_filled_with_heartbeats_and_a_commit_that_moves_is_told() {
    let mut setting = Setting::new();
    assert_eq!(setting.step(), (vec![], RelayTurn::Wait { until_ms: HEARTBEAT_MS }));
    setting.moment.now_ms = HEARTBEAT_MS;
    let heartbeat = |end, commit, sent_ms| Frame::Heartbeat {
        epoch: 3,
        end: Lsn::new(end),
        commit: Lsn::new(commit),
        sent_ms,
        distance: 0,
    };
    assert_eq!(setting.step(), (vec![heartbeat(0, 0, 250)], RelayTurn::Wait { until_ms: 500 }));
    // A LOG frame replaces the heartbeat.
    setting.grow(4096);
    setting.moment.commit = Lsn::ZERO;
    setting.moment.now_ms = 400;
    assert_eq!(setting.step().1, RelayTurn::Wait { until_ms: 650 });
    setting.moment.commit = setting.moment.shippable;
    setting.moment.now_ms = 410;
    setting.moment.unsent_bytes = 1;
    assert_eq!(setting.step().0, [], "it would wait behind other bytes");
    setting.moment.unsent_bytes = 0;
    assert_eq!(setting.step(), (vec![heartbeat(4096, 4096, 410)], RelayTurn::Wait { until_ms: 660 }));
    assert_eq!(setting.step().0, []);
}

#[test]
fn a_replica_that_says_nothing_is_dead() {
    let mut setting = Setting::new();
    setting.moment.now_ms = 3_000;
    assert_eq!(setting.acks(3, 0, 0).expect("a sound ack").expect("an ack").heard_ms, 3_000);
    setting.moment.now_ms = 3_000 + SILENCE_MS - 1;
    assert_eq!(setting.step().1, RelayTurn::Wait { until_ms: 3_000 + SILENCE_MS });
    setting.moment.now_ms += 1;
    let dead = setting.relay.step(setting.moment, &mut setting.log, &mut Vec::new());
    assert_eq!(dead, Err(RelayError::Close(Close::Silent)));
}

#[test]
fn acks_only_rise_and_never_pass_the_shipped_position() {
    let mut setting = Setting::new();
    setting.grow(8192);
    setting.step();
    let acked = setting.acks(3, 8192, 4096).expect("a sound ack").expect("an ack");
    assert_eq!((acked.flushed, acked.applied, acked.as_of_ms), (Lsn::new(8192), Lsn::new(4096), 7));
    let acked = setting.acks(2, 4096, 4096).expect("a sound ack").expect("an ack");
    assert_eq!(acked.flushed, Lsn::new(8192), "acks do not go back");
    let too_far = Close::NotShipped { acked: Lsn::new(12288), shipped: Lsn::new(8192) };
    assert_eq!(setting.acks(3, 12288, 0), Err(too_far));
    assert_eq!(setting.acks(3, 0, 12288), Err(too_far));
}

#[test]
fn a_higher_epoch_ends_a_leader() {
    let mut setting = Setting::new();
    assert_eq!(setting.acks(4, 0, 0), Err(Close::Fenced { epoch: 4, own: 3 }));
    let mut setting = Setting::new();
    assert_eq!(
        setting.acks(u32::MAX, 0, 0),
        Err(Close::Epoch { epoch: u32::MAX, own: 3 }),
        "and fences nobody"
    );
    // A leader that is itself a replica continues with the epoch of its own leader.
    let mut setting = Setting::new();
    setting.moment.epoch = 4;
    setting.step();
    assert!(setting.acks(4, 0, 0).is_ok());
}

#[test]
fn a_replica_that_talks_like_a_leader_is_refused() {
    let mut setting = Setting::new();
    setting.relay.inbox().extend_from_slice(&Frame::Fenced { epoch: 1 }.encode());
    assert_eq!(setting.relay.receive(0), Err(Close::Direction));
}
