use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use keyspace::{DbId, Keyspace};

use super::*;
use crate::{Event, EventClass, Interests, WorkerStats, row::samples};

/// A log whose state the test sets.
#[derive(Default)]
struct TestLog {
    committed: Cell<u64>,
    /// The position to which the log moves while the tick asks for a wake-up.
    moves_to: Cell<Option<u64>>,
    needs_flush: Cell<bool>,
    is_full: Cell<bool>,
    wake_ups: RefCell<Vec<u64>>,
}

impl LogView for TestLog {
    fn committed_lsn(&self) -> Lsn {
        at(self.committed.get())
    }

    fn wait_for(&self, gate: Lsn) -> bool {
        if let Some(moved) = self.moves_to.take() {
            self.committed.set(moved);
        }
        let waits = gate > self.committed_lsn();
        self.wake_ups.borrow_mut().extend(waits.then_some(gate.get()));
        waits
    }

    fn wait_for_room(&self) -> bool {
        self.is_full.get()
    }

    fn needs_flush(&self) -> bool {
        self.needs_flush.get()
    }
}

type Actions = Vec<Action<&'static str>>;

fn at(position: u64) -> Lsn {
    Lsn::new(position)
}

fn parked(gates: &[(u64, &'static str)]) -> Tick<&'static str> {
    let mut tick = Tick::default();
    gates.iter().for_each(|(gate, connection)| tick.park(at(*gate), *connection));
    tick
}

fn event(gate: u64) -> Notice {
    let (classes, name) = (EventClass::STRING, "set");
    Notice::Event(Event { classes, name, db: DbId::ZERO, key: (*b"k").into(), gate: at(gate) })
}

/// All actions up to the next look at the sockets, or to the end.
fn actions(tick: &mut Tick<&'static str>, log: &TestLog) -> Actions {
    if !tick.is_ending() {
        tick.begin_end();
    }
    let mut actions = Vec::new();
    while let Some(action) = tick.next_action(log) {
        let looks = action == Action::LookAgain;
        actions.push(action);
        if looks {
            break;
        }
    }
    actions
}

/// The connections released by the end of a tick.
fn released(tick: &mut Tick<&'static str>, log: &TestLog) -> Vec<&'static str> {
    let name = |action| match action {
        Action::Release(connection, committed) => {
            assert_eq!(committed, log.committed_lsn());
            Some(connection)
        }
        _ => None,
    };
    actions(tick, log).into_iter().filter_map(name).collect()
}

#[test]
fn connections_are_released_in_order_and_not_before_their_gates() {
    let (mut tick, log) = (parked(&[(8, "a"), (16, "b"), (8, "c")]), TestLog::default());
    log.committed.set(7);
    assert_eq!(released(&mut tick, &log), [""; 0]);
    log.committed.set(8);
    assert_eq!(released(&mut tick, &log), ["a"], "the smaller gate behind waits");
    log.committed.set(16);
    assert_eq!(released(&mut tick, &log), ["b", "c"]);
    assert_eq!(log.wake_ups.take(), [8, 16], "one wake-up at a time");
}

#[test]
fn a_log_that_moves_before_it_can_wake_anybody_is_looked_at_again() {
    let (mut tick, log) = (parked(&[(8, "a"), (16, "b")]), TestLog::default());
    log.moves_to.set(Some(8));
    assert_eq!(released(&mut tick, &log), ["a"]);
    assert_eq!(log.wake_ups.take(), [16]);
}

#[test]
fn a_single_writer_writes_by_itself() {
    let flush = |tick: &mut Tick<_>, needs_flush| {
        let log = TestLog::default();
        log.needs_flush.set(needs_flush);
        tick.begin_end();
        tick.next_action(&log)
    };
    assert_eq!(flush(&mut parked(&[]), true), Some(Action::WakeFlusher), "nobody waits");
    assert_eq!(flush(&mut parked(&[(8, "a")]), true), Some(Action::FlushHere), "and without another look");
    assert_eq!(flush(&mut parked(&[(8, "a")]), false), Some(Action::WakeFlusher), "somebody writes");
    assert_eq!(flush(&mut parked(&[(8, "a"), (8, "b")]), false), Some(Action::WakeFlusher));
}

#[test]
fn writes_are_gathered_as_long_as_there_are_more() {
    let log = TestLog::default();
    log.needs_flush.set(true);
    let mut tick = parked(&[(8, "a"), (16, "b")]);
    assert_eq!(actions(&mut tick, &log), [Action::LookAgain]);
    assert_eq!(actions(&mut tick, &log), [Action::WakeFlusher, Action::Deliver], "nobody came");
    for name in ["c", "d", "e"] {
        assert_eq!(actions(&mut tick, &log), [Action::LookAgain]);
        tick.park(at(24), name);
    }
    assert_eq!(actions(&mut tick, &log), [Action::WakeFlusher, Action::Deliver], "at most three looks");
}

#[test]
fn the_last_waiting_reply_after_a_release_is_flushed_at_once() {
    let (mut tick, log) = (parked(&[(8, "a"), (16, "b")]), TestLog::default());
    log.needs_flush.set(true);
    log.committed.set(8);
    assert_eq!(actions(&mut tick, &log), [Action::Release("a", at(8)), Action::FlushHere, Action::Deliver]);
}

#[test]
fn notices_leave_before_replies_and_in_order() {
    let (mut tick, log) = (parked(&[(8, "a")]), TestLog::default());
    assert!(tick.notices.hold(vec![event(8), event(16), event(0)]));
    log.committed.set(8);
    let publish = Action::Publish(vec![event(8)]);
    let expected =
        [Action::WakeFlusher, publish, Action::Deliver, Action::Release("a", at(8)), Action::Deliver];
    assert_eq!(actions(&mut tick, &log), expected);
    assert_eq!(log.wake_ups.take(), [16]);
    log.committed.set(16);
    let publish = Action::Publish(vec![event(16), event(0)]);
    let expected = [Action::WakeFlusher, publish, Action::Deliver, Action::Deliver];
    assert_eq!(actions(&mut tick, &log), expected);
}

#[test]
fn commands_that_wait_for_room_are_resumed_once_there_is_some() {
    let (mut tick, log) = (parked(&[]), TestLog::default());
    tick.awaiting_room.extend(["a", "b"]);
    log.is_full.set(true);
    assert_eq!(actions(&mut tick, &log), [Action::WakeFlusher, Action::Deliver]);
    log.is_full.set(false);
    tick.begin_end();
    assert_eq!(tick.next_action(&log), Some(Action::WakeFlusher));
    assert_eq!(tick.next_action(&log), Some(Action::Resume("a")));
    tick.awaiting_room.push_back("a");
    let rest = [Action::Resume("b"), Action::Deliver];
    assert_eq!(actions(&mut tick, &log), rest, "a second time only at the end of another tick");
    assert_eq!(actions(&mut tick, &log)[1], Action::Resume("a"));
}

#[test]
fn messages_are_gathered_while_several_clients_publish() {
    let (mut tick, log) = (parked(&[]), TestLog::default());
    tick.publishing_rounds = 1;
    assert_eq!(actions(&mut tick, &log), [Action::WakeFlusher, Action::Deliver], "one is not delayed");
    tick.publishing_rounds = 2;
    assert_eq!(actions(&mut tick, &log), [Action::WakeFlusher, Action::LookAgain]);
    tick.publishing_rounds += 1;
    assert_eq!(actions(&mut tick, &log), [Action::WakeFlusher, Action::LookAgain]);
    assert_eq!(actions(&mut tick, &log), [Action::WakeFlusher, Action::Deliver], "nobody published more");
    assert_eq!(tick.publishing_rounds, 0);
}

#[test]
fn the_end_of_a_round_decides_whether_the_tick_ends() {
    let keyspace = Arc::new(Keyspace::new(keyspace::Options { hash_seed: 0 }));
    let (interests, stats) = (Arc::<Interests>::default(), Arc::<WorkerStats>::default());
    let mut executor = Executor::new(samples::table(), keyspace, interests, stats, 1);
    let (mut tick, log) = (Tick::default(), TestLog::default());
    let idle = ConversationState::Idle;
    assert!(!tick.after_round(&mut executor, &"a", None, idle).ends_tick, "nothing waits");
    assert!(tick.after_round(&mut executor, &"a", Some(at(8)), idle).ends_tick);
    assert!(!tick.after_round(&mut executor, &"b", Some(at(8)), idle).ends_tick, "it is due already");
    executor.wrote = true;
    assert!(!tick.after_own_changes(&mut executor) && !executor.wrote);
    assert_eq!(actions(&mut tick, &log)[0], Action::WakeFlusher);
    assert!(tick.after_round(&mut executor, &"c", None, ConversationState::WaitForLog).ends_tick);
    assert_eq!(actions(&mut tick, &log), [Action::WakeFlusher, Action::Resume("c"), Action::Deliver]);
    assert!(!tick.after_long_unit(&mut executor, Vec::new(), false).ends_tick);
    assert!(tick.after_long_unit(&mut executor, vec![event(8)], false).ends_tick);
}

#[test]
fn replies_that_replicas_have_not_acknowledged_in_time_are_taken_out() {
    let (mut tick, log) = (parked(&[(8, "a"), (24, "b"), (16, "c")]), TestLog::default());
    assert_eq!(tick.take_overdue(at(16)), ["a", "c"]);
    log.committed.set(24);
    assert_eq!(released(&mut tick, &log), ["b"]);
}

#[test]
fn a_cleared_tick_has_no_actions() {
    let (mut tick, log) = (parked(&[(8, "a"), (8, "b")]), TestLog::default());
    log.needs_flush.set(true);
    assert_eq!(actions(&mut tick, &log), [Action::LookAgain]);
    tick.clear();
    assert_eq!(tick.next_action(&log), None);
}
