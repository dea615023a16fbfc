//! Tests of trees on a simulated disk: against a model, through crashes and failures, and with damage.

mod crashes;
mod damage;
mod model;

use std::{
    collections::BTreeMap,
    ops::Bound,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Prng, SimDisk, SimEntropy, crashsafe, sim::SimDiskOptions};
use lsn::Lsn;

use super::*;

/// Number of trees in the test files.
const TREES: u8 = 3;

/// The expected contents of a tree.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;
/// The expected contents of a file.
type Models = [Model; TREES as usize];
/// Keys with their new values; `None` removes.
type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn path() -> PathBuf {
    PathBuf::from("/data/documents/1.tree")
}

fn disk() -> Arc<SimDisk> {
    let disk = SimDisk::new(SimDiskOptions { seed: 7, ..Default::default() });
    env::Disk::create_dir_all(&*disk, Path::new("/data/documents")).unwrap();
    disk
}

/// Counts entries, bytes of keys and bytes of values, and adds up a fingerprint of each entry.
fn measure(tree: TreeId, key: &[u8], value: &[u8]) -> Sums {
    let fingerprint = xxhash_rust::xxh3::xxh3_64_with_seed(key, value.len() as u64 + u64::from(tree.0)) >> 20;
    Sums([1, key.len() as u64, value.len() as u64, fingerprint])
}

/// Options with nodes so small that few entries make a deep tree.
fn options() -> Options {
    let options = Options::new(TREES, measure, NodeCache::new(64 << 10));
    Options { leaf_bytes: 200, inner_bytes: 300, ..options }
}

fn create(disk: &SimDisk) -> TreeFile {
    TreeFile::create(disk, &path(), options(), &SimEntropy::new(1), b"new", Lsn::new(1)).unwrap()
}

fn open(disk: &SimDisk) -> Result<TreeFile, TreeError> {
    TreeFile::open(disk, &path(), options(), Wanted::default())
}

/// Applies changes to a model: `None` removes.
fn change_model(model: &mut Model, changes: &[(Vec<u8>, Option<Vec<u8>>)]) {
    for (key, value) in changes {
        match value {
            Some(value) => model.insert(key.clone(), value.clone()),
            None => model.remove(key),
        };
    }
}

fn ops(changes: &[(Vec<u8>, Option<Vec<u8>>)]) -> Vec<Op<'_>> {
    changes
        .iter()
        .map(|(key, value)| Op { key, change: value.as_deref().map_or(Change::Remove, Change::Insert) })
        .collect()
}

fn sums_of(tree: TreeId, entries: impl Iterator<Item = (impl AsRef<[u8]>, impl AsRef<[u8]>)>) -> Sums {
    entries.fold(Sums::default(), |sums, (key, value)| sums + measure(tree, key.as_ref(), value.as_ref()))
}

fn entries(range: Range) -> Vec<(Vec<u8>, Vec<u8>)> {
    range.map(|entry| entry.unwrap()).collect()
}

/// Asserts that a walk over the snapshot, its sums and its sizes agree with the models.
fn assert_holds(snapshot: &TreeSnapshot, models: &Models) {
    let mut walked: Models = Models::default();
    let report = verify(
        snapshot,
        |tree, key, value| {
            walked[usize::from(tree.0)].insert(key.to_vec(), value.to_vec());
            Ok(())
        },
        |error| panic!("{error}"),
    );
    assert!(walked == *models, "other entries");
    assert_eq!(report.entries, models.iter().map(|model| model.len() as u64).sum::<u64>());
    assert_eq!(report.node_bytes, (0..TREES).map(|tree| snapshot.node_bytes(TreeId(tree))).sum::<u64>());
    for (tree, model) in (0..).map(TreeId).zip(models) {
        assert_eq!(snapshot.sums(tree), sums_of(tree, model.iter()));
    }
}

/// `count` random changes, determined by the seed, over 400 keys.
fn random_changes(prng: &mut Prng, count: u64) -> Changes {
    let change = |_| {
        let key = format!("key {:03}", prng.below(400)).into_bytes();
        let value = (!prng.chance(30)).then(|| vec![prng.below(256) as u8; prng.below(60) as usize]);
        (key, value)
    };
    (0..count).map(change).collect()
}

/// Makes a checkpoint of random changes in every tree, with a blob, and updates the models. Returns the
/// snapshot and the blob.
fn checkpoint(
    file: &mut TreeFile,
    models: &mut Models,
    prng: &mut Prng,
    count: u64,
    lsn: u64,
) -> Result<(TreeSnapshot, Pointer), TreeError> {
    let mut next = models.clone();
    let mut checkpoint = file.begin()?;
    let blob = checkpoint.put_blob(&lsn.to_le_bytes())?;
    for (tree, model) in (0..).map(TreeId).zip(&mut next) {
        let changes = random_changes(prng, count);
        checkpoint.modify(tree, &mut ops(&changes))?;
        change_model(model, &changes);
    }
    let snapshot = checkpoint.finish(&lsn.to_le_bytes(), Lsn::new(lsn))?;
    *models = next;
    Ok((snapshot, blob))
}

#[test]
fn an_empty_file_is_there_at_once() {
    let disk = disk();
    let file = create(&disk);
    assert_holds(file.snapshot(), &Models::default());
    drop(file);
    disk.crash(env::sim::CrashMode::LoseAll);
    let mut file = open(&disk).unwrap();
    assert_eq!((file.snapshot().metadata(), file.snapshot().applied_lsn()), (&b"new"[..], Lsn::new(1)));
    assert_eq!(file.snapshot().get(TreeId(0), b"key").unwrap(), None);
    assert_eq!(file.snapshot().get_many(TreeId(1), &[b"a", b"b"]).unwrap(), [None, None]);
    assert!(
        entries(file.snapshot().range(TreeId(2), Bound::Unbounded, Bound::Unbounded, Direction::Backward))
            .is_empty()
    );
    let begin = file.snapshot().file_end();
    let checkpoint = file.begin().unwrap();
    let snapshot = checkpoint.finish(b"", Lsn::new(2)).unwrap();
    assert_eq!(snapshot.file_end(), begin + 4096, "a checkpoint of nothing is a header");
}

#[test]
fn a_checkpoint_is_one_run_of_writes_and_one_sync() {
    let disk = disk();
    let written = Written::default();
    let options = Options { written: written.clone(), ..options() };
    let mut file = TreeFile::create(&*disk, &path(), options, &SimEntropy::new(1), b"", Lsn::ZERO).unwrap();
    let begin = file.snapshot().file_end();
    disk.enable_trace();
    let mut checkpoint = file.begin().unwrap();
    let body = vec![7; 100_000];
    (0..25).for_each(|_| {
        checkpoint.put_blob(&body).unwrap();
    });
    let keys: Vec<_> = (0..1000u32).map(u32::to_be_bytes).collect();
    for tree in 0..TREES {
        let insert = |key: &'static [u8]| Op { key, change: Change::Insert(b"value") };
        let keys: Vec<&'static [u8]> = keys.iter().map(|key| &*key.to_vec().leak()).collect();
        checkpoint.modify(TreeId(tree), &mut keys.into_iter().map(insert).collect()).unwrap();
    }
    let snapshot = checkpoint.finish(b"", Lsn::new(2)).unwrap();
    assert_eq!((written.writes(), written.bytes()), (3, snapshot.file_end() - begin), "all of it is counted");
    let trace = disk.trace();
    let (sync, writes) = trace.split_last().unwrap();
    assert_eq!(sync.kind, env::sim::IoKind::Sync);
    assert!(writes.iter().all(|io| io.kind == env::sim::IoKind::Write));
    assert_eq!(writes.len(), 3, "pieces of 1 MiB");
    assert!(writes.windows(2).all(|pair| pair[0].offset + pair[0].len as u64 == pair[1].offset), "{trace:?}");
}

#[test]
fn keys_and_values_beyond_their_limits_are_refused() {
    let disk = disk();
    let mut file = create(&disk);
    let (key, value) = (vec![b'k'; KEY_BYTES_MAX], vec![b'v'; VALUE_BYTES_MAX]);
    let (key_too_long, value_too_long) = (vec![0; KEY_BYTES_MAX + 1], vec![0; VALUE_BYTES_MAX + 1]);
    for (key, value) in [(&key, &value_too_long), (&key_too_long, &value)] {
        let mut checkpoint = file.begin().unwrap();
        let refused = checkpoint.modify(TreeId(0), &mut vec![Op { key, change: Change::Insert(value) }]);
        assert!(matches!(refused, Err(TreeError::TooLarge { .. })));
    }
    let mut checkpoint = file.begin().unwrap();
    checkpoint.modify(TreeId(0), &mut vec![Op { key: &key, change: Change::Insert(&value) }]).unwrap();
    assert!(matches!(
        checkpoint.finish(&vec![0; METADATA_BYTES_MAX + 1], Lsn::new(2)),
        Err(TreeError::TooLarge { .. })
    ));
    let mut checkpoint = file.begin().unwrap();
    checkpoint.modify(TreeId(0), &mut vec![Op { key: &key, change: Change::Insert(&value) }]).unwrap();
    let metadata = vec![1; METADATA_BYTES_MAX];
    checkpoint.finish(&metadata, Lsn::new(2)).unwrap();
    let file = open(&disk).unwrap();
    assert!(
        file.snapshot().get(TreeId(0), &key).unwrap() == Some(value)
            && file.snapshot().metadata() == metadata
    );
}

#[test]
fn long_keys_do_not_make_a_tree_of_single_children() {
    let disk = disk();
    let mut file = create(&disk);
    let mut models = Models::default();
    // Keys that differ at their ends only, so that no lower bound can be short.
    let key = |n: u32| [&vec![b'x'; KEY_BYTES_MAX - 4][..], &n.to_be_bytes()].concat();
    for round in 0..4 {
        let changes: Vec<_> = (0..60).map(|n| (key(n * 4 + round), Some(vec![round as u8; 10]))).collect();
        let mut checkpoint = file.begin().unwrap();
        checkpoint.modify(TreeId(1), &mut ops(&changes)).unwrap();
        checkpoint.finish(b"", Lsn::new(2)).unwrap();
        change_model(&mut models[1], &changes);
        assert_holds(file.snapshot(), &models);
    }
    assert!(file.snapshot().root(TreeId(1)).unwrap().level <= 3);
}

#[test]
fn appended_keys_leave_full_nodes_and_removed_ones_no_small_ones() {
    let disk = disk();
    let options = Options::new(TREES, measure, NodeCache::new(1 << 20));
    let mut file = TreeFile::create(&*disk, &path(), options, &SimEntropy::new(1), b"", Lsn::ZERO).unwrap();
    let keys: Vec<_> = (0..20_000u64).map(u64::to_be_bytes).collect();
    let nodes = |file: &TreeFile| verify(file.snapshot(), |_, _, _| Ok(()), |error| panic!("{error}"));
    let modify = |file: &mut TreeFile, batch: &[[u8; 8]], change: Change<'_>| {
        let mut checkpoint = file.begin().unwrap();
        checkpoint.modify(TreeId(0), &mut batch.iter().map(|key| Op { key, change }).collect()).unwrap();
        checkpoint.finish(b"", Lsn::new(1)).unwrap();
    };
    for batch in keys.chunks(333) {
        modify(&mut file, batch, Change::Insert(&[7; 40]));
    }
    let report = nodes(&file);
    assert!(report.node_bytes / report.nodes > 1700, "{report:?}");
    // Removes nine of ten entries, in an order that leaves a few in every leaf.
    let mut removed: Vec<_> =
        keys.iter().enumerate().filter(|(n, _)| n % 10 != 3).map(|(_, key)| *key).collect();
    for begin in 0..7 {
        let batch: Vec<_> = removed.iter().skip(begin).step_by(7).copied().collect();
        modify(&mut file, &batch, Change::Remove);
    }
    let report = nodes(&file);
    assert_eq!(report.entries, 2000);
    assert!(report.node_bytes / report.nodes > 600, "{report:?}");
    removed = keys;
    modify(&mut file, &removed, Change::Remove);
    assert_eq!(nodes(&file), Report::default(), "an empty tree has no nodes");
}

#[test]
fn lookups_in_a_checkpoint_change_nothing_and_find_the_stored_values() {
    let disk = disk();
    let mut file = create(&disk);
    let mut models = Models::default();
    checkpoint(&mut file, &mut models, &mut Prng::new(3), 300, 2).unwrap();
    let keys: Vec<_> = (0..400).map(|n| format!("key {n:03}").into_bytes()).collect();
    let end = file.snapshot().file_end();
    let mut seen = Vec::new();
    let mut checkpoint = file.begin().unwrap();
    let mut looks: Vec<_> = keys.iter().map(|key| Op { key, change: Change::Look }).collect();
    let see = |op: &Op<'_>, value: Option<&[u8]>| seen.push((op.key.to_vec(), value.map(<[u8]>::to_vec)));
    checkpoint.modify_seeing(TreeId(1), &mut looks, see).unwrap();
    // Inserts existing values again, and removes missing keys.
    let again: Changes = keys.iter().map(|key| (key.clone(), models[2].get(key).cloned())).collect();
    checkpoint.modify(TreeId(2), &mut ops(&again)).unwrap();
    assert_eq!(checkpoint.appended_bytes(), 0);
    let snapshot = checkpoint.finish(b"", Lsn::new(3)).unwrap();
    assert_eq!(snapshot.file_end(), end + 4096);
    assert_eq!(seen, keys.iter().map(|key| (key.clone(), models[1].get(key).cloned())).collect::<Vec<_>>());
    assert_holds(&snapshot, &models);
}

#[test]
fn of_several_operations_on_a_key_the_last_one_counts() {
    let disk = disk();
    let mut file = create(&disk);
    let mut checkpoint = file.begin().unwrap();
    let op = |key, change| Op { key, change };
    let mut ops = vec![
        op(b"b", Change::Insert(b"1")),
        op(b"a", Change::Remove),
        op(b"b", Change::Insert(b"2")),
        op(b"a", Change::Insert(b"3")),
        op(b"b", Change::Insert(b"4")),
        op(b"c", Change::Insert(b"5")),
        op(&b"c"[..], Change::Remove),
    ];
    checkpoint.modify(TreeId(0), &mut ops).unwrap();
    let snapshot = checkpoint.finish(b"", Lsn::new(2)).unwrap();
    let all = entries(snapshot.range(TreeId(0), Bound::Unbounded, Bound::Unbounded, Direction::Forward));
    assert_eq!(all, [(b"a".to_vec(), b"3".to_vec()), (b"b".to_vec(), b"4".to_vec())]);
}

#[test]
fn opening_at_an_older_position_cuts_off_later_checkpoints() {
    let disk = disk();
    let mut file = create(&disk);
    let (mut models, mut prng) = (Models::default(), Prng::new(5));
    let mut history = vec![models.clone()];
    for lsn in 2..8 {
        checkpoint(&mut file, &mut models, &mut prng, 50, lsn * 10).unwrap();
        history.push(models.clone());
    }
    drop(file);
    for at_most in [5, 20, 25, 49, 70, 1000] {
        let wanted = Wanted { at_most: Lsn::new(at_most), ..Wanted::default() };
        let (snapshot, passed_over) = TreeSnapshot::open(&*disk, &path(), options(), wanted).unwrap();
        assert_eq!(passed_over, None);
        let expected = (at_most / 10).saturating_sub(1).min(6) as usize;
        assert_holds(&snapshot, &history[expected]);
    }
    let wanted = Wanted { at_most: Lsn::new(0), ..Wanted::default() };
    let refused = TreeSnapshot::open(&*disk, &path(), options(), wanted).unwrap_err();
    assert!(matches!(refused, TreeError::NoCheckpoint { newest: None, .. }), "{refused}");
    let wanted = Wanted { at_least: Lsn::new(71), ..Wanted::default() };
    let refused = TreeFile::open(&*disk, &path(), options(), wanted).unwrap_err();
    assert!(
        matches!(refused, TreeError::NoCheckpoint { newest: Some(lsn), .. } if lsn == Lsn::new(70)),
        "{refused}"
    );

    let wanted = Wanted { at_most: Lsn::new(40), ..Wanted::default() };
    let mut file = TreeFile::open(&*disk, &path(), options(), wanted).unwrap();
    models = history[3].clone();
    checkpoint(&mut file, &mut models, &mut prng, 5, 45).unwrap();
    drop(file);
    let file = open(&disk).unwrap();
    assert_eq!(file.snapshot().applied_lsn(), Lsn::new(45));
    assert_holds(file.snapshot(), &models);
    assert_eq!(disk.read_file(&path()).unwrap().len() as u64, file.snapshot().file_end());
}

#[test]
fn an_abandoned_checkpoint_leaves_nothing() {
    let disk = disk();
    let mut file = create(&disk);
    let (mut models, mut prng) = (Models::default(), Prng::new(5));
    checkpoint(&mut file, &mut models, &mut prng, 100, 2).unwrap();
    let mut abandoned = file.begin().unwrap();
    abandoned.put_blob(&vec![3; 3 << 20]).unwrap();
    abandoned.modify(TreeId(0), &mut vec![Op { key: b"gone", change: Change::Insert(b"") }]).unwrap();
    drop(abandoned);
    assert_holds(file.snapshot(), &models);
    checkpoint(&mut file, &mut models, &mut prng, 3, 3).unwrap();
    assert_eq!(disk.read_file(&path()).unwrap().len() as u64, file.snapshot().file_end());
    assert_holds(open(&disk).unwrap().snapshot(), &models);
}

#[test]
#[should_panic(expected = "changed once")]
fn a_tree_is_changed_once_in_a_checkpoint() {
    let disk = disk();
    let mut file = create(&disk);
    let mut checkpoint = file.begin().unwrap();
    checkpoint.modify(TreeId(0), &mut Vec::new()).unwrap();
    let _ = checkpoint.modify(TreeId(0), &mut Vec::new());
}

/// Builds a file from the models, beside the file at `path()`, as compaction does.
fn build(disk: &SimDisk, models: &Models, lsn: u64) -> Result<(TreeFile, Pointer), TreeError> {
    let tmp = crashsafe::tmp_path(&path());
    let mut builder = Builder::create(disk, &tmp, options(), &SimEntropy::new(lsn))?;
    let mut blob = None;
    for (tree, model) in (0..).map(TreeId).zip(models) {
        for (key, value) in model {
            builder.append(tree, key, value)?;
        }
        blob = Some(builder.put_blob(&lsn.to_le_bytes())?);
    }
    Ok((builder.finish(&lsn.to_le_bytes(), Lsn::new(lsn))?, blob.unwrap()))
}
