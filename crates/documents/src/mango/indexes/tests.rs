//! Tests of indexes over changing databases on a simulated disk: queries by index must equal a scan of all
//! documents.

use std::collections::BTreeMap;
use std::time::Duration;

use env::sim::{CrashMode, FaultKind, FaultPlan, SimDiskOptions};
use env::{SimDisk, SimEntropy};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::mango::selector::tests::{documents, selectors};
use crate::mango::{FindRequest, Plan, Query};
use crate::tests::kit::{Kit, delete, put, update};
use crate::{Database, Rev};

const DIR: &str = "/data/documents/indexes";

/// A database with its expected content, and its indexes.
struct World {
    kit: Kit,
    db: Arc<Database>,
    disk: Arc<SimDisk>,
    indexes: Indexes,
    content: BTreeMap<String, (Rev, Value<'static>)>,
}

fn open(disk: &Arc<SimDisk>, databases: &[(DbId, Lsn)]) -> Indexes {
    let cache = NodeCache::new(1 << 20);
    Indexes::open(disk.clone(), Arc::new(SimEntropy::new(3)), cache, DIR.into(), databases)
        .expect("a directory")
}

impl World {
    /// A database with one index per definition.
    fn new(indexes: &[&str]) -> World {
        let (kit, db) = Kit::with_database();
        let disk = SimDisk::new(SimDiskOptions { seed: 7, ..Default::default() });
        let opened = open(&disk, &[(db.id(), Lsn::ZERO)]);
        let world = World { kit, db, disk, indexes: opened, content: BTreeMap::new() };
        for (number, index) in indexes.iter().enumerate() {
            let body = format!(r#"{{"index":{index},"ddoc":"d{number}","name":"n{number}"}}"#);
            let definition = IndexDefinition::parse(&Value::parse(&body).expect("JSON")).expect("an index");
            let design = definition.put_into(None).expect("a design document").expect("a change");
            let text = std::str::from_utf8(&design).expect("UTF-8");
            world.kit.edit(&world.db, put(&definition.design, text)).expect("an edit");
        }
        world
    }

    fn put(&mut self, id: &str, body: &Value<'static>) {
        let text = body.to_json();
        let request = match self.content.get(id) {
            Some((rev, _)) => update(id, *rev, &text),
            None => put(id, &text),
        };
        let rev = self.kit.edit(&self.db, request).expect("an edit");
        let special =
            [("_id".into(), Value::string(id.to_owned())), ("_rev".into(), Value::string(rev.to_string()))];
        let members = body.as_object().expect("an object").iter().cloned();
        self.content
            .insert(id.to_owned(), (rev, Value::Object(special.into_iter().chain(members).collect())));
    }

    fn delete(&mut self, id: &str) {
        if let Some((rev, _)) = self.content.remove(id) {
            self.kit.edit(&self.db, delete(id, rev)).expect("an edit");
        }
    }

    fn reopen(&mut self) {
        self.indexes = open(&self.disk, &[(self.db.id(), self.db.snapshot().last_lsn())]);
    }

    /// Steps until the index is up to date.
    fn ready(&self, definition: &IndexDefinition) -> Result<(Snapshot, IndexSnapshot), DocError> {
        let (snapshot, update) = (self.db.snapshot(), IndexUpdate::default());
        loop {
            match self.indexes.step(&update, &snapshot, definition)? {
                Indexing::Ready(index) => return Ok((snapshot, index)),
                Indexing::Working(progress) => assert!(progress.percent() <= 100),
                Indexing::Behind => panic!("nobody else is there"),
            }
        }
    }

    fn reply(&self, request: &str) -> Result<Value<'static>, DocError> {
        let request = FindRequest::parse(&Value::parse(request).expect(request))?;
        let plan = Plan::choose(&request, &Indexes::definitions(&self.db.snapshot())?)?;
        let (snapshot, index) = match &plan.index {
            None => (self.db.snapshot(), None),
            Some(definition) => self.ready(definition).map(|(snapshot, index)| (snapshot, Some(index)))?,
        };
        let mut query = Query::new(snapshot, request, plan, index)?;
        let (mut reply, mut piece) = (Vec::new(), Vec::new());
        while query.step(Duration::from_millis(5), &mut piece)? {
            reply.append(&mut piece);
        }
        reply.append(&mut piece);
        let text = String::from_utf8(reply).expect("UTF-8");
        Ok(Value::parse(text.trim_end()).expect("JSON").into_owned())
    }

    fn found(&self, request: &str) -> Vec<String> {
        let reply = self.reply(request).expect(request);
        let docs = reply.get("docs").and_then(Value::as_array).expect("documents");
        docs.iter()
            .map(|document| document.get("_id").and_then(Value::as_str).expect("an id").to_owned())
            .collect()
    }
}

fn json(text: &str) -> Value<'static> {
    Value::parse(text).expect(text).into_owned()
}

fn numbered(count: usize) -> World {
    let mut world = World::new(&[r#"{"fields":["n"]}"#]);
    for number in 0..count {
        world.put(&format!("{number:04}"), &json(&format!(r#"{{"n":{},"x":"y"}}"#, number % 50)));
    }
    world
}

#[test]
fn an_index_follows_its_database() {
    let mut world = World::new(&[r#"{"fields":["a"]}"#]);
    world.put("x", &json(r#"{"a":1}"#));
    world.put("y", &json(r#"{"a":2}"#));
    world.put("z", &json(r#"{"b":2}"#));
    let request = r#"{"selector":{"a":{"$gt":0}}}"#;
    assert_eq!(world.found(request), ["x", "y"]);
    world.put("x", &json(r#"{"a":3}"#));
    world.put("z", &json(r#"{"a":0.5}"#));
    assert_eq!(world.found(request), ["z", "y", "x"]);
    world.delete("y");
    world.put("x", &json("{}"));
    assert_eq!(world.found(request), ["z"]);
    world.put("y", &json(r#"{"a":9}"#));
    assert_eq!(world.found(r#"{"selector":{},"sort":[{"a":"desc"}],"use_index":"d0"}"#), ["y", "z"]);
}

#[test]
fn replies_have_the_members_of_couchdb() {
    let world = numbered(120);
    let reply =
        world.reply(r#"{"selector":{"n":7},"fields":["_id","n"],"execution_stats":true}"#).expect("a reply");
    assert_eq!(
        reply.get("docs").expect("documents").to_json(),
        r#"[{"_id":"0007","n":7},{"_id":"0057","n":7},{"_id":"0107","n":7}]"#
    );
    let stats = r#"{"total_keys_examined":0,"total_docs_examined":3,"total_quorum_docs_examined":0,"results_returned":3,"execution_time_ms":5.000}"#;
    assert_eq!(reply.get("execution_stats").expect("figures").to_json(), stats);
    assert!(reply.get("warning").is_none());
    let reply = world.reply(r#"{"selector":{"n":{"$gt":1},"x":"z"}}"#).expect("a reply");
    assert_eq!(reply.get("docs").expect("documents").to_json(), "[]");
    assert_eq!(reply.get("bookmark"), Some(&Value::string("nil")));
    let warning = reply.get("warning").and_then(Value::as_str).expect("a warning");
    assert!(warning.starts_with("The number of documents examined is high in proportion"), "{warning}");
    let reply = world.reply(r#"{"selector":{"_id":"0003"}}"#).expect("a reply");
    let rev = &world.content["0003"].0;
    assert_eq!(
        reply.get("docs").expect("documents").to_json(),
        format!(r#"[{{"_id":"0003","_rev":"{rev}","n":3,"x":"y"}}]"#)
    );
    let warning = "No matching index found, create an index to optimize query time.";
    assert_eq!(reply.get("warning"), Some(&Value::string(warning)));
    assert_eq!(world.found(r#"{"selector":{},"limit":0}"#).len(), 0);
    assert_eq!(world.found(r#"{"selector":{}}"#).len(), 25, "design documents are not found");
}

#[test]
fn pages_together_are_the_whole_result() {
    let world = numbered(130);
    for rest in [
        r#""selector":{"n":{"$gte":3}}"#,
        r#""selector":{},"sort":[{"n":"desc"}]"#,
        r#""selector":{"x":"y"}"#,
        r#""selector":{},"sort":[{"_id":"desc"}]"#,
    ] {
        let all = world.found(&format!("{{{rest},\"limit\":1000}}"));
        let mut paged = Vec::new();
        let mut bookmark = String::from("nil");
        loop {
            let request = format!("{{{rest},\"limit\":17,\"bookmark\":\"{bookmark}\"}}");
            let page = world.found(&request);
            let reply = world.reply(&request).expect("a reply");
            bookmark = reply.get("bookmark").and_then(Value::as_str).expect("a bookmark").to_owned();
            if page.is_empty() {
                break;
            }
            paged.extend(page);
        }
        assert_eq!(paged, all, "{rest}");
        assert_eq!(world.found(&format!("{{{rest},\"limit\":1000,\"skip\":100}}")), all[100..]);
    }
}

#[test]
fn large_databases_take_several_steps() {
    let world = numbered(2 * STEP_DOCUMENTS + 10);
    let snapshot = world.db.snapshot();
    let [definition] = &Indexes::definitions(&snapshot).expect("readable")[..] else { panic!("one index") };
    let update = IndexUpdate::default();
    let Ok(Indexing::Working(first)) = world.indexes.step(&update, &snapshot, definition) else {
        panic!("more to do")
    };
    assert_eq!((first.seq, first.update_seq, first.percent()), (1000, snapshot.update_seq(), 49));
    assert_eq!(world.indexes.progress(), [first]);
    assert_eq!(world.found(r#"{"selector":{"n":49},"limit":100}"#).len(), 40);
    assert_eq!(world.indexes.progress(), []);
}

#[test]
fn an_update_that_is_given_up_is_shown_no_longer() {
    let world = numbered(2 * STEP_DOCUMENTS + 10);
    let snapshot = world.db.snapshot();
    let [definition] = &Indexes::definitions(&snapshot).expect("readable")[..] else { panic!("one index") };
    let step = |update| world.indexes.step(update, &snapshot, definition);
    let [first, second] = [IndexUpdate::default(), IndexUpdate::default()];
    assert!(matches!(step(&first), Ok(Indexing::Working(_))));
    assert!(matches!(step(&second), Ok(Indexing::Working(_))));
    drop(first);
    assert_eq!(world.indexes.progress().len(), 1, "the other one goes on");
    drop(second);
    assert_eq!(world.indexes.progress(), []);
}

#[test]
fn an_older_snapshot_is_reported_as_behind_the_index() {
    let mut world = numbered(3);
    let old = world.db.snapshot();
    let [definition] = &Indexes::definitions(&old).expect("readable")[..] else { panic!("one index") };
    world.put("new", &json(r#"{"n":1}"#));
    world.ready(definition).expect("an index");
    let update = IndexUpdate::default();
    assert!(matches!(world.indexes.step(&update, &old, definition), Ok(Indexing::Behind)));
    // A file ahead of the database is rebuilt: it has entries of a lost history.
    world.reopen();
    let Ok(Indexing::Ready(_)) = world.indexes.step(&update, &old, definition) else { panic!("made anew") };
}

/// The path of the only index.
fn path(world: &World) -> PathBuf {
    let mut names = env::Disk::list(&*world.disk, Path::new(DIR)).expect("a directory");
    names.retain(|name| name.ends_with(".index"));
    let [name] = &names[..] else { panic!("{names:?}") };
    Path::new(DIR).join(name)
}

#[test]
fn a_damaged_file_is_made_anew() {
    let mut world = numbered(300);
    let request = r#"{"selector":{"n":3},"limit":100}"#;
    let found = world.found(request);
    let path = path(&world);
    for offset in 0..world.disk.read_file(&path).expect("a file").len() as u64 {
        if offset % 61 != 0 {
            continue;
        }
        world.disk.corrupt(&path, offset, 0x55).expect("a file");
        world.reopen();
        // Damage may be met in the middle of a reply. That reply fails, and the next one rebuilds the index.
        match world.reply(request) {
            Ok(_) => {}
            Err(DocError::Storage(reason)) => assert!(reason.contains("is damaged at offset"), "{reason}"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(world.found(request), found, "{offset}");
    }
    world.disk.write_file(&path, b"something else");
    world.reopen();
    assert_eq!(world.found(request), found);
}

#[test]
fn a_file_that_cannot_be_read_any_more_is_made_anew() {
    let request = r#"{"selector":{"n":3},"limit":100}"#;
    let mut world = numbered(300);
    let found = world.found(request);
    let path = path(&world);
    // Opened again, with an empty cache.
    world.reopen();
    let definitions = Indexes::definitions(&world.db.snapshot()).expect("readable");
    drop(world.indexes.as_it_is(&world.db.snapshot(), &definitions[0]).expect("it is as it was"));
    let length = world.disk.read_file(&path).expect("a file").len() as u64;
    for offset in (0..length).step_by(64) {
        world.disk.corrupt(&path, offset, 0xff).expect("a file");
    }
    let _ = world.reply(request);
    assert_eq!(world.found(request), found);
    world.reopen();
    assert_eq!(world.found(request), found);
    world.disk.truncate(&path, 1).expect("a file");
    world.reopen();
    assert_eq!(world.found(request), found);
}

#[test]
fn the_query_after_any_fault_is_complete() {
    let request = r#"{"selector":{"n":3},"limit":100}"#;
    let world = numbered(150);
    let before = world.disk.io_count();
    let expected = world.found(request);
    for io in before..world.disk.io_count() {
        for kind in [None, Some(FaultKind::Eio), Some(FaultKind::ShortWrite)] {
            let mut world = numbered(150);
            world.disk.set_fault_plan(match kind {
                None => FaultPlan { crash_at_io: Some(io), ..Default::default() },
                Some(kind) => FaultPlan { fail_io: Some((io, kind)), ..Default::default() },
            });
            assert!(matches!(world.reply(request), Err(DocError::Storage(_))), "{io} {kind:?}");
            if kind.is_none() {
                world.disk.crash(CrashMode::Random);
                world.reopen();
            }
            assert_eq!(world.found(request), expected, "{io} {kind:?}");
        }
    }
}

#[test]
fn files_go_with_definitions_and_databases() {
    let world = World::new(&[r#"{"fields":["a"]}"#, r#"{"fields":["b"]}"#]);
    let definitions = Indexes::definitions(&world.db.snapshot()).expect("readable");
    definitions.iter().for_each(|definition| drop(world.ready(definition).expect("an index")));
    let files = || env::Disk::list(&*world.disk, Path::new(DIR)).expect("a directory").len();
    assert_eq!(files(), 2);
    world.indexes.retain(world.db.id(), &definitions[1..]).expect("removed");
    assert_eq!(files(), 1);
    open(&world.disk, &[(world.db.id(), world.db.snapshot().last_lsn())]);
    assert_eq!(files(), 1);
    open(&world.disk, &[]);
    assert_eq!(files(), 0);
}

#[test]
fn all_files_are_removed_with_the_history_that_they_have_seen() {
    let mut world = numbered(5);
    world.disk.write_file(&Path::new(DIR).join("other"), b"not an index");
    assert_eq!(world.found(r#"{"selector":{"n":3}}"#), ["0003"]);
    Indexes::remove_all(&*world.disk, Path::new(DIR)).expect("removed");
    assert_eq!(env::Disk::list(&*world.disk, Path::new(DIR)).expect("a directory"), ["other"]);
    Indexes::remove_all(&*world.disk, Path::new("/none")).expect("nothing to do");
    world.reopen();
    assert_eq!(world.found(r#"{"selector":{"n":3}}"#), ["0003"]);
}

#[test]
fn an_index_with_changes_that_are_lost_is_removed_at_the_start() {
    let number = [r#"{"fields":["n"]}"#];
    let mut before = World::new(&number);
    before.put("a", &json(r#"{"n":1}"#));
    before.put("b", &json(r#"{"n":2}"#));
    assert_eq!(before.found(r#"{"selector":{"n":2}}"#), ["b"]);
    before.reopen();
    let kept = || env::Disk::list(&*before.disk, Path::new(DIR)).expect("a directory").len();
    assert_eq!(kept(), 1, "it has nothing that is lost");
    // The same database, whose log has lost the second document in a crash.
    let mut after = World::new(&number);
    assert_eq!(after.db.id(), before.db.id());
    after.disk = before.disk.clone();
    after.put("a", &json(r#"{"n":1}"#));
    after.reopen();
    // With this change, the database has as many changes as the old index. Then the index is opened again.
    after.put("c", &json(r#"{"n":3}"#));
    assert_eq!(after.db.snapshot().update_seq(), before.db.snapshot().update_seq());
    after.reopen();
    let found = |number| after.found(&format!(r#"{{"selector":{{"n":{number}}}}}"#));
    assert_eq!([found(1), found(2), found(3)], [vec!["a".to_owned()], vec![], vec!["c".to_owned()]]);
}

#[test]
fn a_file_of_the_past_is_copied() {
    let mut world = World::new(&[r#"{"fields":["a"]}"#]);
    let long = "x".repeat(900);
    let mut sizes = Vec::new();
    for turn in 10..18 {
        for number in 0..1500 {
            world.put(&format!("{number:04}"), &json(&format!(r#"{{"a":"{turn}-{number:04}-{long}"}}"#)));
        }
        assert_eq!(world.found(r#"{"selector":{"a":{"$gt":null}},"limit":3000}"#).len(), 1500);
        sizes.push(world.disk.read_file(&path(&world)).expect("a file").len());
    }
    assert!(!sizes.is_sorted(), "{sizes:?}");
    assert_eq!(
        world.found(r#"{"selector":{"a":{"$beginsWith":"17-0007"},"_id":{"$gt":""}},"limit":3000}"#),
        ["0007"]
    );
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, Value<'static>),
    Delete(u8),
    Reopen,
    Crash(u64),
    Find(Value<'static>, &'static str),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sort = prop::sample::select(vec!["[]", r#"["a"]"#, r#"[{"a":"desc"}]"#, r#"["b","a"]"#]);
    let step = prop_oneof![
        6 => (0u8..12, documents()).prop_map(|(id, body)| Step::Put(id, body)),
        2 => (0u8..12).prop_map(Step::Delete),
        1 => Just(Step::Reopen),
        1 => any::<u64>().prop_map(Step::Crash),
        4 => (selectors(), sort).prop_map(|(selector, sort)| Step::Find(selector, sort)),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #[test]
    fn indexes_find_the_same_documents_as_a_full_scan(steps in steps(), hint: Index) {
        let mut world = World::new(&[r#"{"fields":["a"]}"#, r#"{"fields":["b","a"]}"#, r#"{"fields":["a.b"]}"#]);
        let hint = format!("d{}", hint.index(3));
        for step in steps {
            match step {
                Step::Put(id, body) => world.put(&id.to_string(), &body),
                Step::Delete(id) => world.delete(&id.to_string()),
                Step::Reopen => world.reopen(),
                Step::Crash(seed) => {
                    world.disk.reseed(seed);
                    world.disk.crash(CrashMode::Random);
                    world.reopen();
                }
                Step::Find(selector, sort) => {
                    let request = format!(r#"{{"selector":{},"sort":{sort},"use_index":"{hint}","limit":99}}"#, selector.to_json());
                    let mut found = world.found(&request);
                    let FindRequest { selector: read, sort: sorted, .. } =
                        FindRequest::parse(&Value::parse(&request).expect("JSON")).expect("a request");
                    let mut expected: Vec<String> = world.content.iter()
                        // In CouchDB, a selector that is only an empty list of conditions finds nothing.
                        .filter(|(_, (_, document))| !read.is_empty_list() && read.matches(document))
                        .filter(|(_, (_, document))| sorted.fields.iter().all(|path| path.find(document).is_some()))
                        .map(|(id, _)| id.clone())
                        .collect();
                    found.sort();
                    expected.sort();
                    prop_assert_eq!(found, expected, "{}", request);
                }
            }
        }
    }
}
