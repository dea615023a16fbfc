//! Tests of `sheaf check`.

use std::path::PathBuf;

use env::Disk;

use super::files::{disk, history};
use super::kit::*;
use crate::*;

fn dir() -> PathBuf {
    directory("/data".as_ref())
}

fn checked(disk: &dyn Disk) -> (CheckReport, Vec<String>) {
    let (mut told, mut last) = (Vec::new(), (0, 0));
    let report =
        check(disk, &dir(), |what| told.push(what), |read, all| last = (read, all)).expect("a catalog");
    assert_eq!((last.0, report.damaged), (last.1, told.len() as u64));
    (report, told)
}

#[test]
fn every_byte_that_is_in_use_is_looked_at() {
    let disk = disk();
    assert_eq!(checked(&*disk).0, CheckReport::default());
    let kit = Kit::open(&disk, &[]).expect("empty");
    history(&kit).expect("a good disk");
    let (report, told) = checked(&*disk);
    assert_eq!(told, [""; 0]);
    let sums = kit.documents.database("a").expect("there").snapshot().info().sums;
    assert_eq!(report.documents, sums.documents + sums.deleted);
    assert!(report.blobs > report.documents && report.databases >= 1);

    let db = kit.documents.database("a").expect("there");
    let mut compaction = kit.documents.begin_compaction(&db).expect("readable").expect("begun");
    while compaction.step().expect("a good disk") == Step::More {}
    kit.save().expect("a good disk");
    let path = dir().join(format!("{}-1.tree", db.id()));
    let len = disk.read_file(&path).expect("there").len() as u64;
    let mut found = 0;
    let places: Vec<u64> = (0..len).step_by(97).collect();
    for at in &places {
        let disk = disk.clone_state();
        disk.corrupt(&path, *at, 0x10).expect("there");
        let (report, told) = checked(&*disk);
        assert!(told.iter().all(|what| what.contains(&*path.to_string_lossy())), "{told:?}");
        found += u64::from(report.damaged > 0);
    }
    // Almost all of a compacted file is in use, except its first header and the padding.
    assert!(found > places.len() as u64 * 8 / 10, "{found} of {}", places.len());
}
