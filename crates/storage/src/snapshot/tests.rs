//! Snapshots on a simulated disk: a published snapshot reads back whole in spite of failures, crashes and bit
//! rot.

#![allow(clippy::unwrap_used)]

mod crashes;
mod damage;

use std::{path::Path, sync::Arc};

use env::{Prng, SimDisk, sim::SimDiskOptions};
use lsn::Lsn;
use proptest::prelude::*;

use super::*;
use crate::Error;

const DIR: &str = "/data";
const LOG_ID: [u8; 16] = [7; 16];

/// The chunks of one part.
type PartContent = Vec<(ChunkInfo, Vec<u8>)>;

fn dir() -> &'static Path {
    Path::new(DIR)
}

fn disk() -> Arc<SimDisk> {
    SimDisk::new(SimDiskOptions { seed: 7, ..Default::default() })
}

fn meta(begin: u64) -> SnapshotMeta {
    SnapshotMeta {
        log_id: LOG_ID,
        epoch: 2,
        begin_lsn: Lsn::new(begin),
        created_unix_ms: 1_700_000_000_000,
        compression: Compression::Lz4,
    }
}

fn chunk(first_slot: u16, lsn: u64, continues: bool) -> ChunkInfo {
    ChunkInfo { first_slot, last_slot: first_slot + 1, rows: 3, lsn: Lsn::new(lsn), continues }
}

/// Two parts of four chunks each, some compressible and some not. The third chunk of each part continues the
/// second.
fn content(seed: u64, chunk_bytes: usize) -> Vec<PartContent> {
    let mut prng = Prng::new(seed);
    let mut part = |first_slot: u16| -> PartContent {
        let mut payload = |number: usize| {
            let mut bytes =
                format!("row {number} of slot {first_slot} ").repeat(chunk_bytes / 16).into_bytes();
            if number % 2 == 1 {
                prng.fill(&mut bytes);
            }
            bytes.truncate(chunk_bytes - number);
            bytes
        };
        (0..4).map(|number| (chunk(first_slot + number as u16, 9000, number == 2), payload(number))).collect()
    };
    vec![part(0), part(8192)]
}

/// Writes and publishes a snapshot.
fn write(
    disk: &Arc<SimDisk>,
    meta: SnapshotMeta,
    content: &[PartContent],
    end: u64,
) -> Result<SnapshotInfo, Error> {
    let (writer, parts) = SnapshotWriter::create(disk.clone(), dir(), meta, content.len() as u32)?;
    let mut summaries = Vec::new();
    for (mut part, chunks) in parts.into_iter().zip(content) {
        for (info, payload) in chunks {
            part.append(*info, payload)?;
        }
        summaries.push(part.finish()?);
    }
    writer.publish(summaries, Lsn::new(end))
}

/// All chunks of a snapshot, run by run.
fn read(disk: &SimDisk, info: &SnapshotInfo) -> Result<PartContent, Error> {
    let reader = SnapshotReader::open(disk, dir(), info)?;
    let mut buffers = ReadBuffers::default();
    let mut found = Vec::new();
    for run in reader.runs() {
        for chunk in run.chunks.clone() {
            found.push((reader.chunk(chunk), reader.read(chunk, &mut buffers)?.to_vec()));
        }
    }
    Ok(found)
}

fn files_on(disk: &SimDisk) -> Vec<String> {
    files(disk, &directory(dir())).unwrap()
}

#[test]
fn written_chunks_are_read_in_runs() {
    let disk = disk();
    assert_eq!(list(&*disk, dir()).unwrap(), []);
    let content = content(1, 20_000);
    let info = write(&disk, meta(4096), &content, 9000).unwrap();
    assert_eq!(list(&*disk, dir()).unwrap(), std::slice::from_ref(&info));
    assert_eq!((info.rows(), info.chunks(), info.parts.len()), (24, 8, 2));
    assert!(info.file_bytes() < info.raw_bytes(), "half of it is compressible");
    assert_eq!(read(&disk, &info).unwrap(), content.concat());
    let reader = SnapshotReader::open(&*disk, dir(), &info).unwrap();
    let ranges: Vec<_> = reader.runs().iter().map(|run| run.chunks.clone()).collect();
    assert_eq!(ranges, [0..1, 1..3, 3..4, 4..5, 5..7, 7..8]);
    assert_eq!(reader.runs().iter().map(|run| run.raw_bytes).sum::<u64>(), info.raw_bytes());
    assert_eq!(reader.runs().iter().map(|run| run.rows).sum::<u64>(), info.rows());
    assert_eq!(info.file_names().collect::<Vec<_>>().iter().rev().count(), files_on(&disk).len());
}

#[test]
fn parts_are_written_and_runs_read_by_threads_of_their_own() {
    let disk = disk();
    let content: Vec<PartContent> = (0..3).flat_map(|seed| content(seed, 300_000)).collect();
    let (writer, parts) = SnapshotWriter::create(disk.clone(), dir(), meta(0), 6).unwrap();
    let summaries = std::thread::scope(|scope| {
        let write = |(mut part, chunks): (PartWriter, &PartContent)| {
            chunks.iter().for_each(|(info, payload)| _ = part.append(*info, payload).unwrap());
            part.finish().unwrap()
        };
        let threads: Vec<_> =
            parts.into_iter().zip(&content).rev().map(|it| scope.spawn(move || write(it))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let info = writer.publish(summaries, Lsn::new(9000)).unwrap();
    let (reader, expected) = (SnapshotReader::open(&*disk, dir(), &info).unwrap(), content.concat());
    std::thread::scope(|scope| {
        for run in reader.runs() {
            scope.spawn(|| {
                let mut buffers = ReadBuffers::default();
                for chunk in run.chunks.clone() {
                    assert!(reader.read(chunk, &mut buffers).unwrap() == expected[chunk].1);
                }
            });
        }
    });
}

#[test]
fn a_snapshot_without_rows_is_one() {
    let disk = disk();
    let info = write(&disk, meta(0), &[Vec::new()], 0).unwrap();
    assert_eq!(read(&disk, &info).unwrap(), []);
    assert!(SnapshotReader::open(&*disk, dir(), &info).unwrap().runs().is_empty());
}

#[test]
fn only_chunks_that_shrink_by_a_tenth_are_compressed() {
    let written = |compression, payload: &[u8]| {
        let disk = disk();
        let chunks = vec![vec![(chunk(0, 0, false), payload.to_vec())]];
        let info = write(&disk, SnapshotMeta { compression, ..meta(0) }, &chunks, 0).unwrap();
        assert_eq!(read(&disk, &info).unwrap(), chunks[0]);
        info.file_bytes()
    };
    let plain = vec![b'x'; 100_000];
    let mut random = plain.clone();
    Prng::new(3).fill(&mut random);
    assert!(written(Compression::Lz4, &plain) < 20_000);
    assert_eq!(written(Compression::None, &plain), written(Compression::Lz4, &random));
}

#[test]
fn snapshots_are_listed_newest_first_and_removed_whole() {
    let disk = disk();
    for begin in [4096, 1 << 20, 8192] {
        write(&disk, meta(begin), &content(begin, 100), 1 << 20).unwrap();
    }
    let begins = || list_begins(&*disk, dir()).unwrap().into_iter().map(Lsn::get).collect::<Vec<_>>();
    assert_eq!(begins(), [1 << 20, 8192, 4096]);
    remove(&*disk, dir(), Lsn::new(8192)).unwrap();
    assert_eq!(begins(), [1 << 20, 4096]);
    assert_eq!(files_on(&disk).len(), 6);
    assert!(remove_leftovers(&*disk, dir()).unwrap().is_empty());
    let again = write(&disk, meta(4096), &content(1, 100), 1 << 20);
    assert!(matches!(again, Err(Error::Inconsistent { .. })), "it exists");
    assert_eq!(begins(), [1 << 20, 4096]);
}

#[test]
fn an_unpublished_snapshot_leaves_no_files() {
    let disk = disk();
    let (writer, mut parts) = SnapshotWriter::create(disk.clone(), dir(), meta(0), 3).unwrap();
    parts[1].append(chunk(0, 0, false), &[1; 10]).unwrap();
    assert_eq!(files_on(&disk).len(), 3);
    drop(writer);
    assert!(files_on(&disk).is_empty());
    parts[1].append(chunk(2, 0, false), &[1; 10]).unwrap();
}

#[test]
#[should_panic(expected = "captured after the end")]
fn a_snapshot_beyond_the_durable_log_is_not_published() {
    let _ = write(&disk(), meta(4096), &content(1, 100), 8999);
}

#[test]
#[should_panic(expected = "one summary of each part")]
fn a_part_is_not_forgotten() {
    let (writer, _) = SnapshotWriter::create(disk(), dir(), meta(4096), 2).unwrap();
    let _ = writer.publish(Vec::new(), Lsn::new(4096));
}

#[test]
fn a_full_disk_fails_the_snapshot_and_gives_the_space_back() {
    let disk = disk();
    let old = write(&disk, meta(0), &content(1, 1000), 9000).unwrap();
    disk.set_space_limit(Some(200 << 10));
    let Err(Error::Io { path, source, .. }) = write(&disk, meta(4096), &content(2, 300_000), 9000) else {
        panic!("there was no room");
    };
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
    assert!(path.starts_with(directory(dir())));
    assert_eq!(files_on(&disk), {
        let mut names: Vec<_> = old.file_names().collect();
        names.sort();
        names
    });
    write(&disk, meta(4096), &content(2, 1000), 9000).unwrap();
}

fn any_chunk() -> impl Strategy<Value = (ChunkInfo, Vec<u8>)> {
    let payload = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        (any::<u8>(), 0..400_000usize).prop_map(|(byte, length)| vec![byte; length]),
        (any::<u64>(), 0..400_000usize).prop_map(|(seed, length)| {
            let mut bytes = vec![0; length];
            Prng::new(seed).fill(&mut bytes);
            bytes
        }),
    ];
    let info = (any::<u16>(), any::<u16>(), any::<u32>(), 0..1u64 << 40, any::<bool>());
    (info, payload).prop_map(|((first_slot, last_slot, rows, lsn, continues), payload)| {
        (ChunkInfo { first_slot, last_slot, rows, lsn: Lsn::new(lsn), continues }, payload)
    })
}

fn any_part() -> impl Strategy<Value = PartContent> {
    proptest::collection::vec(any_chunk(), 0..12).prop_map(|mut chunks| {
        if let Some((info, _)) = chunks.first_mut() {
            info.continues = false;
        }
        chunks
    })
}

proptest! {
    #[test]
    fn written_chunks_are_read_back(
        content in proptest::collection::vec(any_part(), 1..4),
        compression in prop_oneof![Just(Compression::Lz4), Just(Compression::None)],
    ) {
        let disk = disk();
        let info = write(&disk, SnapshotMeta { compression, ..meta(8192) }, &content, 1 << 40).unwrap();
        prop_assert_eq!(&load(&*disk, dir(), Lsn::new(8192)).unwrap(), &info);
        prop_assert!(read(&disk, &info).unwrap() == content.concat());
        let rows = content.iter().flatten().map(|(info, _)| u64::from(info.rows)).sum::<u64>();
        prop_assert_eq!(info.rows(), rows);
    }
}
