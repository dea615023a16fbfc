//! Arbitrary bytes in a file of a snapshot: reading neither panics nor returns other data than was written;
//! without damage all data is returned.
//!
//! Input: the file and whether it is replaced (bit 7 of a u8), the place (u16), the bytes. The whole input is
//! also the payload of the first chunk.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use env::sim::SimDiskOptions;
use env::{Access, Disk, SimDisk};
use lsn::Lsn;
use storage::snapshot::{
    ChunkInfo, Compression, ReadBuffers, SnapshotMeta, SnapshotReader, SnapshotWriter, check, directory,
    list, list_begins, remove, remove_leftovers,
};

use crate::{Outcome, Seed, content};

const DIR: &str = "/data";
const REPLACE: u8 = 0x80;
const CHUNKS: usize = 4;

/// The payload of the chunk with this number; the first is the input.
fn payload(slot: u16, input: &[u8]) -> Vec<u8> {
    match slot {
        0 => input.to_vec(),
        1 => vec![b'x'; 3000],
        _ => (0..500u16).map(|byte| (byte.wrapping_mul(37) >> 3) as u8 ^ slot as u8).collect(),
    }
}

fn write_snapshot(disk: &Arc<SimDisk>, input: &[u8]) {
    let meta = SnapshotMeta {
        log_id: [1; 16],
        epoch: 1,
        begin_lsn: Lsn::new(4096),
        created_unix_ms: 1,
        compression: Compression::Lz4,
    };
    let (writer, parts) =
        SnapshotWriter::create(disk.clone(), Path::new(DIR), meta, 2).expect("the disk works");
    let mut summaries = Vec::new();
    for (number, mut part) in (0u16..).zip(parts) {
        for slot in [2 * number, 2 * number + 1] {
            let continues = slot == 3;
            let info =
                ChunkInfo { first_slot: slot, last_slot: slot, rows: 1, lsn: Lsn::new(5000), continues };
            part.append(info, &payload(slot, input)).expect("the disk works");
        }
        summaries.push(part.finish().expect("the disk works"));
    }
    writer.publish(summaries, Lsn::new(8192)).expect("the disk works");
}

/// Reads all readable chunks and checks that their payloads are right. Returns their number.
fn read_all(disk: &SimDisk, input: &[u8]) -> usize {
    let mut read = 0;
    let mut buffers = ReadBuffers::default();
    for info in list(disk, Path::new(DIR)).unwrap_or_default() {
        let Ok(reader) = SnapshotReader::open(disk, Path::new(DIR), &info) else { continue };
        for chunk in reader.runs().iter().flat_map(|run| run.chunks.clone()) {
            let slot = reader.chunk(chunk).first_slot;
            if let Ok(found) = reader.read(chunk, &mut buffers) {
                assert_eq!(found, payload(slot, input), "a payload that was never written");
                read += 1;
            }
        }
    }
    read
}

fn with_snapshot(input: &[u8]) -> Arc<SimDisk> {
    let disk = SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() });
    write_snapshot(&disk, input);
    disk
}

/// Reads, checks and removes a damaged snapshot. Accepts one that is read completely.
///
/// # Panics
/// If other data is read than was written, or an intact snapshot is not read.
pub fn snapshot(input: &[u8]) -> Outcome {
    let Some(([which, low, high], bytes)) = input.split_first_chunk::<3>() else { return Outcome::Refused };
    let disk = with_snapshot(input);
    assert_eq!(read_all(&disk, input), CHUNKS);

    let names = disk.list(&directory(Path::new(DIR))).expect("it exists");
    let path = directory(Path::new(DIR)).join(&names[usize::from(*which) % names.len()]);
    if which & REPLACE == 0 {
        let file = disk.open(&path, Access::ReadWrite).expect("it exists");
        let offset = u64::from(u16::from_le_bytes([*low, *high])) % file.len().expect("the disk works");
        file.write_all_at(bytes, offset).expect("the disk works");
    } else {
        disk.write_file(&path, bytes);
    }
    let read = read_all(&disk, input);
    assert!(read <= CHUNKS);
    let watch = |done, total| {
        assert!(done <= total);
        ControlFlow::Continue(())
    };
    let checks = check(&*disk, Path::new(DIR), watch).expect("the disk works");
    assert_eq!(checks.len(), 1);

    remove(&*disk, Path::new(DIR), Lsn::new(4096)).expect("the disk works");
    assert!(remove_leftovers(&*disk, Path::new(DIR)).expect("the disk works").is_empty());
    assert!(list_begins(&*disk, Path::new(DIR)).expect("the disk works").is_empty());
    Outcome::accepted_if(read == CHUNKS && !bytes.is_empty())
}

pub(crate) fn seeds() -> Vec<Seed> {
    let dir = directory(Path::new(DIR));
    let (one, other) = (with_snapshot(b"one"), with_snapshot(b"another payload"));
    let names = one.list(&dir).expect("it exists");
    let files = names.len() as u8;
    let beginnings = ["beginning-of-file-0", "beginning-of-file-1", "beginning-of-file-2"];
    let refused = ["refused-other-file-0", "refused-other-file-1", "refused-other-file-2"];
    let mut seeds = Vec::new();
    for (index, name) in (0..files).zip(names) {
        let [bytes, others] = [&one, &other].map(|disk| content(disk, &dir.join(&name)));
        let replacing = (REPLACE..).find(|which| which % files == index).expect("there are few files");
        if bytes == others {
            let (half, place) = (bytes.len() / 2, (bytes.len() as u16 / 2).to_le_bytes());
            seeds.push(("whole-part", [&[replacing, 0, 0][..], &bytes].concat()));
            seeds.push(("half-of-a-part", [&[index, place[0], place[1]][..], &bytes[half..]].concat()));
        } else {
            // The fixed fields at the beginning of the file do not depend on the input.
            let common = bytes.iter().zip(&others).take_while(|(a, b)| a == b).count();
            let fixed = &bytes[..common & !63];
            seeds.push((beginnings[usize::from(index)], [&[index, 0, 0][..], fixed].concat()));
            seeds.push((refused[usize::from(index)], [&[replacing, 0, 0][..], &bytes].concat()));
        }
    }
    seeds
}
