use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::access::AccessStamp;
use crate::collection::{PackedLimits, Rules};
use crate::collection::{ValueBuf, View, edit as edit_any, empty};
use crate::effect::Effect;
use crate::id::DbId;
use crate::value::ValueType;

const RULES: Rules = Rules { limits: PackedLimits::DEFAULT, seed: 1 };
const PLACE: (DbId, &[u8]) = (DbId::ZERO, b"key");

fn new_stream() -> Entry {
    empty(ValueType::Stream, PLACE.1, None, AccessStamp::default())
}

fn apply(entry: &mut Entry, op: &KeyOp<'_>) -> Applied {
    let applied = edit_any(entry, op, &RULES, &mut Freed::new());
    stream_mut(entry).check();
    applied
}

fn view(entry: &Entry) -> StreamView<'_> {
    match entry.as_ref().view() {
        View::Stream(stream) => stream,
        _ => unreachable!("it is a stream"),
    }
}

const ALL: std::ops::RangeInclusive<StreamId> = StreamId::ZERO..=StreamId::MAX;

#[derive(Clone, Debug)]
enum Edit {
    Add { ms: u64, seq: u64, wide: bool },
    Trim(usize),
    Delete(Vec<usize>),
    SetHead(u64),
    PutGroup(u8, u64),
    DropGroup(u8),
    PutConsumer(u8, u8, u64),
    DropConsumer(u8, u8),
    Pend(u8, u8, Vec<u64>),
    Unpend(u8, Vec<u64>),
}

/// Fields and values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A simple model of a stream.
#[derive(Clone, PartialEq, Debug, Default)]
struct Model {
    head: StreamHead,
    entries: BTreeMap<StreamId, Pairs>,
    groups: BTreeMap<Vec<u8>, ModelGroup>,
}

#[derive(Clone, PartialEq, Debug, Default)]
struct ModelGroup {
    position: GroupPosition,
    consumers: BTreeMap<Vec<u8>, ConsumerTimes>,
    pending: BTreeMap<StreamId, (Vec<u8>, Delivery)>,
}

fn name(number: u8) -> Vec<u8> {
    format!("name-{number}").into_bytes()
}

fn pairs(seq: u64, wide: bool) -> Pairs {
    let value = if wide { vec![b'x'; 700] } else { seq.to_string().into_bytes() };
    let fields = if seq.is_multiple_of(7) { 1 } else { 2 };
    (0..fields).map(|field| (name(field), value.clone())).collect()
}

fn pending_id(number: u64) -> StreamId {
    StreamId::new(number, 0)
}

impl Edit {
    /// Makes the edit in the stream and in the model.
    fn make(&self, entry: &mut Entry, model: &mut Model) {
        match self {
            Edit::Add { ms, seq, wide } => {
                let last = model.head.last_id;
                let id = StreamId::new(last.ms + ms, if *ms == 0 { last.seq + seq } else { *seq });
                let fields = pairs(*seq, *wide);
                let items: Vec<&[u8]> = fields.iter().flat_map(|(name, value)| [&**name, &**value]).collect();
                let pairs = Items::Slices(&items);
                let applied = apply(entry, &KeyOp::StreamAdd { id, pairs });
                assert_eq!(applied.changed, id > last);
                if id > last {
                    model.entries.insert(id, fields);
                    model.head.last_id = id;
                    model.head.entries_added += 1;
                }
            }
            Edit::Trim(len) => {
                let excess = model.entries.len().saturating_sub(*len);
                let through = view(entry).trim_to_len(*len, false, usize::MAX);
                assert_eq!(
                    through,
                    excess.checked_sub(1).map(|at| *model.entries.keys().nth(at).expect("there"))
                );
                let whole = view(entry).trim_to_len(*len, true, usize::MAX);
                assert!(whole <= through, "whole blocks are not more");
                let Some(through) = through else { return };
                let applied = apply(entry, &KeyOp::StreamTrim { through });
                assert_eq!(applied.removed as usize, excess);
                model.entries.retain(|id, _| *id > through);
            }
            Edit::Delete(indices) => {
                let at = |index: &usize| model.entries.keys().nth(*index).copied();
                let ids: Vec<_> =
                    indices.iter().map(|index| at(index).unwrap_or(StreamId::new(3, 3))).collect();
                let removed = ids.iter().filter(|&id| {
                    let was_there = model.entries.remove(id).is_some();
                    if was_there {
                        model.head.max_deleted_id = model.head.max_deleted_id.max(*id);
                    }
                    was_there
                });
                let removed = removed.count() as u64;
                let applied = apply(entry, &KeyOp::StreamDelete { ids: Listed::Slices(&ids) });
                assert_eq!((applied.removed, applied.changed), (removed, removed > 0));
            }
            Edit::SetHead(more) => {
                let last_id = StreamId::new(model.head.last_id.ms + more, 5);
                model.head = StreamHead { last_id, entries_added: *more, ..model.head };
                let top = model.entries.keys().next_back().copied().unwrap_or_default();
                apply(entry, &KeyOp::StreamSetHead { head: model.head });
                model.head.last_id = last_id.max(top);
            }
            Edit::PutGroup(group, at) => {
                let (group, position) = (
                    name(*group),
                    GroupPosition { last_id: pending_id(*at), entries_read: at.checked_sub(3) },
                );
                apply(entry, &KeyOp::StreamPutGroup { group: &group, position });
                model.groups.entry(group).or_default().position = position;
            }
            Edit::DropGroup(group) => {
                let group = name(*group);
                let applied = apply(entry, &KeyOp::StreamDropGroup { group: &group });
                assert_eq!(applied.changed, model.groups.remove(&group).is_some());
            }
            Edit::PutConsumer(group, consumer, ms) => {
                let (group, consumer) = (name(*group), name(*consumer));
                let times = ConsumerTimes { seen_ms: *ms, active_ms: ms.checked_sub(2) };
                let op = KeyOp::StreamPutConsumer { group: &group, consumer: &consumer, times };
                let applied = apply(entry, &op);
                let Some(group) = model.groups.get_mut(&group) else { return assert!(!applied.changed) };
                assert_eq!(applied.added == 1, group.consumers.insert(consumer, times).is_none());
            }
            Edit::DropConsumer(group, consumer) => {
                let (group, consumer) = (name(*group), name(*consumer));
                let applied = apply(entry, &KeyOp::StreamDropConsumer { group: &group, consumer: &consumer });
                let Some(group) = model.groups.get_mut(&group) else { return assert!(!applied.changed) };
                let before = group.pending.len();
                group.pending.retain(|_, (owner, _)| *owner != consumer);
                assert_eq!(applied.removed as usize, before - group.pending.len());
                assert_eq!(applied.changed, group.consumers.remove(&consumer).is_some());
            }
            Edit::Pend(group, consumer, numbers) => {
                let (group, consumer) = (name(*group), name(*consumer));
                let deliveries: Vec<_> = numbers
                    .iter()
                    .map(|&number| Delivery { id: pending_id(number), time_ms: number, count: number as u32 })
                    .collect();
                let op = KeyOp::StreamPend {
                    group: &group,
                    consumer: &consumer,
                    deliveries: Listed::Slices(&deliveries),
                };
                let applied = apply(entry, &op);
                let group =
                    model.groups.get_mut(&group).filter(|group| group.consumers.contains_key(&consumer));
                let Some(group) = group else { return assert!(!applied.changed) };
                let before = group.pending.len();
                let pending = deliveries.iter().map(|delivery| (delivery.id, (consumer.clone(), *delivery)));
                group.pending.extend(pending);
                assert_eq!(applied.added as usize, group.pending.len() - before);
            }
            Edit::Unpend(group, numbers) => {
                let group = name(*group);
                let ids: Vec<_> = numbers.iter().map(|&number| pending_id(number)).collect();
                let op = KeyOp::StreamUnpend { group: &group, ids: Listed::Slices(&ids) };
                let applied = apply(entry, &op);
                let Some(group) = model.groups.get_mut(&group) else { return assert!(!applied.changed) };
                let removed = ids.iter().filter(|id| group.pending.remove(id).is_some()).count();
                assert_eq!(applied.removed as usize, removed);
            }
        }
    }
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let numbers = || prop::collection::vec(0..60u64, 1..30);
    let edit = prop_oneof![
        12 => (0..3u64, 0..20u64, prop::bool::weighted(0.1))
            .prop_map(|(ms, seq, wide)| Edit::Add { ms, seq, wide }),
        1 => (0..200usize).prop_map(Edit::Trim),
        2 => prop::collection::vec(0..250usize, 1..40).prop_map(Edit::Delete),
        1 => (0..5u64).prop_map(Edit::SetHead),
        2 => (0..3u8, 0..10u64).prop_map(|(group, at)| Edit::PutGroup(group, at)),
        1 => (0..3u8).prop_map(Edit::DropGroup),
        2 => (0..3u8, 0..3u8, 0..9u64).prop_map(|(group, name, ms)| Edit::PutConsumer(group, name, ms)),
        1 => (0..3u8, 0..3u8).prop_map(|(group, name)| Edit::DropConsumer(group, name)),
        4 => (0..3u8, 0..3u8, numbers()).prop_map(|(group, name, ids)| Edit::Pend(group, name, ids)),
        2 => (0..3u8, numbers()).prop_map(|(group, ids)| Edit::Unpend(group, ids)),
    ];
    // Some cases begin with enough entries for several blocks.
    (prop_oneof![Just(0), 200..450u64], prop::collection::vec(edit, 1..80)).prop_map(|(first, edits)| {
        let begin = (0..first).map(|seq| Edit::Add { ms: seq % 2, seq: 1 + seq % 3, wide: false });
        begin.chain(edits).collect()
    })
}

fn model_of(stream: StreamView<'_>) -> Model {
    let fields = |entry: StreamEntry<'_>| {
        (entry.id, entry.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect())
    };
    let group = |(name, group): (&[u8], GroupView<'_>)| {
        let pending = |it: PendingView<'_>| (it.delivery.id, (it.consumer.to_vec(), it.delivery));
        let shown = ModelGroup {
            position: group.position(),
            consumers: group.consumers().map(|it| (it.name().to_vec(), it.times())).collect(),
            pending: group.pending_in(ALL).map(pending).collect(),
        };
        (name.to_vec(), shown)
    };
    Model {
        head: stream.head(),
        entries: stream.range(ALL).map(fields).collect(),
        groups: stream.groups().map(group).collect(),
    }
}

/// A stream made from its images: one, or the parts of a capture in their order. Checks that the effects that
/// fill the stream are decoded as they were encoded.
fn made_of<'i>(images: impl IntoIterator<Item = &'i StreamImage>) -> Entry {
    let mut entry = new_stream();
    for image in images {
        image.for_each_effect(PLACE.0, PLACE.1, None, |effect| match effect {
            Effect::Key { op: KeyOp::Put { value: crate::Value::Stream(head), .. }, .. } => {
                fill(&mut entry, *head);
            }
            effect => {
                let mut bytes = Vec::new();
                effect.encode_into(&mut bytes);
                let decoded =
                    Effect::decode_next(&mut &bytes[..]).expect("it was encoded").expect("one effect");
                assert_eq!(decoded, *effect);
                assert_eq!(effect.encoded_len(), bytes.len());
                let Effect::Key { op, .. } = decoded else { unreachable!("an image is of one key") };
                apply(&mut entry, &op);
            }
        });
    }
    entry
}

proptest! {
    #[test]
    fn effects_on_a_stream_match_the_model(
        edits in edits(),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
    ) {
        let (mut entry, mut model) = (new_stream(), Model::default());
        edits.iter().for_each(|edit| edit.make(&mut entry, &mut model));
        let stream = view(&entry);
        prop_assert_eq!(model_of(stream), model.clone());
        prop_assert_eq!(stream.len(), model.entries.len());
        prop_assert_eq!(stream.first().map(|it| it.id), model.entries.keys().next().copied());
        prop_assert_eq!(stream.last().map(|it| it.id), model.entries.keys().next_back().copied());
        let mut ids: Vec<_> = model.entries.keys().copied().collect();
        ids.push(StreamId::new(1, 2));
        let range = ids[from.index(ids.len())]..=ids[to.index(ids.len())];
        let expected: Vec<_> = model.entries.keys().filter(|id| range.contains(id)).copied().collect();
        prop_assert!(stream.range(range.clone()).map(|it| it.id).eq(expected.iter().copied()));
        prop_assert!(stream.range_back(range).map(|it| it.id).eq(expected.iter().rev().copied()));
        let copied = made_of([&stream.image()]);
        prop_assert_eq!(model_of(view(&copied)), model);
        prop_assert_eq!(ValueBuf::of(copied.as_ref()), ValueBuf::of(entry.as_ref()));
    }

    #[test]
    fn a_capture_is_of_the_moment_at_which_it_began(
        before in edits(),
        during in edits(),
        step_bytes in prop_oneof![Just(1usize), 100..6000usize, Just(usize::MAX)],
        abandoned in any::<bool>(),
    ) {
        let (mut entry, mut model) = (new_stream(), Model::default());
        before.iter().for_each(|edit| edit.make(&mut entry, &mut model));
        if abandoned {
            stream_mut(&mut entry).begin_capture();
            stream_mut(&mut entry).capture_step(step_bytes);
            stream_mut(&mut entry).abandon_capture();
        }
        let expected = model.clone();
        stream_mut(&mut entry).begin_capture();
        let (mut images, mut during) = (Vec::new(), during.iter());
        loop {
            during.by_ref().take(3).for_each(|edit| edit.make(&mut entry, &mut model));
            let stream = stream_mut(&mut entry);
            let (image, has_ended) = stream.capture_step(step_bytes);
            images.push(image);
            if has_ended {
                break;
            }
        }
        prop_assert!(!stream_mut(&mut entry).is_being_captured());
        prop_assert_eq!(model_of(view(&made_of(&images))), expected);
        prop_assert_eq!(model_of(view(&entry)), model);
    }
}

/// Entries that were shared with a stream, and the entries that the model had then.
struct Reading {
    shared: SharedEntries,
    expected: Vec<(StreamId, Pairs)>,
}

impl Reading {
    fn of(entry: &Entry, model: &Model, (from, to, descends, count): (u64, u64, bool, usize)) -> Reading {
        let ids = StreamId::new(from, 2)..=StreamId::new(to, u64::MAX);
        let found = model.entries.iter().filter(|(id, _)| ids.contains(id));
        let mut expected: Vec<_> = found.map(|(id, pairs)| (*id, pairs.clone())).collect();
        let order = if descends { StreamOrder::Descending } else { StreamOrder::Ascending };
        if descends {
            expected.reverse();
        }
        expected.truncate(count);
        Reading { shared: view(entry).share_any(ids, order, count), expected }
    }

    fn check(&self) {
        let mut shown = Vec::new();
        self.shared.for_each(|entry| {
            let pairs = entry.fields().map(|(name, value)| (name.to_vec(), value.to_vec()));
            shown.push((entry.id, pairs.collect::<Pairs>()));
        });
        assert_eq!(self.shared.len(), shown.len());
        assert_eq!(self.shared.is_empty(), shown.is_empty());
        assert_eq!(shown, self.expected);
    }
}

proptest! {
    #[test]
    fn shared_entries_do_not_change(
        before in edits(),
        rounds in prop::collection::vec(
            (
                (0..250u64, prop_oneof![0..250u64, Just(u64::MAX)], any::<bool>(), prop_oneof![0..300usize, Just(usize::MAX)]),
                edits(),
            ),
            1..4,
        ),
        is_captured in any::<bool>(),
    ) {
        let (mut entry, mut model) = (new_stream(), Model::default());
        before.iter().for_each(|edit| edit.make(&mut entry, &mut model));
        if is_captured {
            stream_mut(&mut entry).begin_capture();
        }
        let mut readings = Vec::new();
        for (range, edits) in &rounds {
            readings.push(Reading::of(&entry, &model, *range));
            edits.iter().for_each(|edit| edit.make(&mut entry, &mut model));
            readings.iter().for_each(Reading::check);
        }
        prop_assert_eq!(model_of(view(&entry)), model);
        drop(entry);
        readings.iter().for_each(Reading::check);
    }
}

#[test]
fn only_long_ranges_are_shared() {
    let mut entry = new_stream();
    for seq in 1..=10_000 {
        let pairs = Items::Slices(&[b"f", b"a-value-of-some-length"]);
        apply_unchecked(&mut entry, &KeyOp::StreamAdd { id: StreamId::new(1, seq), pairs });
    }
    let stream = view(&entry);
    let shared = |from, to, count| {
        let [up, down] = [StreamOrder::Ascending, StreamOrder::Descending].map(|order| {
            stream
                .share(StreamId::new(1, from)..=StreamId::new(1, to), order, count)
                .map(|shared| shared.len())
        });
        assert_eq!(up, down);
        up
    };
    assert_eq!(shared(1, 20_000, usize::MAX), Some(10_000));
    assert_eq!(shared(50, 9000, usize::MAX), Some(8951));
    assert_eq!(shared(50, 9000, 2000), Some(2000));
    assert_eq!(shared(1, 20_000, 100), None);
    assert_eq!(shared(9800, 20_000, usize::MAX), None);
    assert_eq!(shared(50, 60, usize::MAX), None);
    assert_eq!(shared(60, 50, usize::MAX), None);
    assert_eq!(shared(1, 20_000, 0), None);
}

#[test]
fn few_long_entries_are_shared() {
    let mut entry = new_stream();
    for seq in 1..=3 {
        let pairs = Items::Slices(&[b"f", &[b'x'; 10_000]]);
        let op = KeyOp::StreamAdd { id: StreamId::new(1, seq), pairs };
        apply(&mut entry, &op);
    }
    let shared = |count| view(&entry).share(ALL, StreamOrder::Ascending, count).map(|shared| shared.len());
    assert_eq!([shared(0), shared(1), shared(2), shared(9)], [None, Some(1), Some(2), Some(3)]);
}

#[test]
fn whole_blocks_are_trimmed_up_to_a_limit() {
    let mut entry = new_stream();
    for seq in 1..=1000 {
        let id = StreamId::new(1, seq);
        apply(&mut entry, &KeyOp::StreamAdd { id, pairs: Items::Slices(&[b"f", b"v"]) });
    }
    let stream = view(&entry);
    let id = |seq| Some(StreamId::new(1, seq));
    assert_eq!(stream.blocks_len(), 10);
    assert_eq!(stream.trim_to_len(450, true, usize::MAX), id(500));
    assert_eq!(stream.trim_to_len(450, true, 250), id(200));
    assert_eq!(stream.trim_to_len(950, true, usize::MAX), None);
    assert_eq!(stream.trim_to_len(950, false, usize::MAX), id(50));
    assert_eq!(stream.trim_to_len(0, true, usize::MAX), id(1000));
    assert_eq!(stream.trim_to_len(1000, false, usize::MAX), None);
    assert_eq!(stream.trim_to_id(StreamId::new(1, 450), true, usize::MAX), id(400));
    assert_eq!(stream.trim_to_id(StreamId::new(1, 450), true, 399), id(300));
    assert_eq!(stream.trim_to_id(StreamId::new(1, 450), false, usize::MAX), id(449));
    assert_eq!(stream.trim_to_id(StreamId::new(1, 1), false, usize::MAX), None);
    assert_eq!(stream.trim_to_id(StreamId::new(2, 0), true, usize::MAX), id(1000));
}

#[test]
fn entries_take_little_more_than_their_values() {
    let mut entry = new_stream();
    let names: [&[u8]; 5] = [b"customer", b"product", b"amount", b"currency", b"note"];
    for seq in 0..50_000u64 {
        let id = StreamId::new(1_700_000_000_000 + seq, 0);
        let number = seq.to_string();
        let values: [&[u8]; 5] = [number.as_bytes(), b"a-product-name", b"1250", b"EUR", b"nothing to say"];
        let items: Vec<&[u8]> = names.iter().zip(values).flat_map(|(name, value)| [*name, value]).collect();
        apply_unchecked(&mut entry, &KeyOp::StreamAdd { id, pairs: Items::Slices(&items) });
    }
    let bytes = entry.as_ref().allocated_bytes() as f64 / 50_000.0;
    assert!(bytes < 45.0, "{bytes} bytes for an entry with values of 40");
}

#[test]
fn no_block_but_the_last_has_room_to_spare() {
    let mut entry = new_stream();
    let mut used = 0;
    for seq in 0..5_000u64 {
        let id = StreamId::new(1, seq + 1);
        let value = vec![b'x'; 10 + seq as usize % 300];
        let items: [&[u8]; 2] = [b"field", &value];
        apply_unchecked(&mut entry, &KeyOp::StreamAdd { id, pairs: Items::Slices(&items) });
        used += value.len();
    }
    let (stream, bytes) = (view(&entry), entry.as_ref().allocated_bytes());
    assert!(
        stream.blocks().all(|block| block.bytes().len() <= 4096 - 16),
        "each fits into 4,096 with its counters"
    );
    let most = used * 21 / 20 + stream.blocks_len() * (BLOCK_BYTES + 16 + 10) + 3 * 4096;
    assert!(bytes < most, "{bytes} bytes for {used} of values in {} blocks", stream.blocks_len());
}

/// As `apply`, but without the check of all entries.
fn apply_unchecked(entry: &mut Entry, op: &KeyOp<'_>) {
    edit_any(entry, op, &RULES, &mut Freed::new());
}
