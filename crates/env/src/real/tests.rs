//! `RealDisk` against the machine's file systems, in temporary directories.

use std::path::PathBuf;

use super::*;
use crate::AlignedBytes;
use crate::testing::TempDir;

fn filled(byte: u8, blocks: usize) -> AlignedBytes {
    AlignedBytes::from(&vec![byte; blocks * BLOCK_BYTES][..])
}

fn contents(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn directories_and_names() {
    let temp = TempDir::new("names");
    let dir = temp.path().join("a/b");
    RealDisk.create_dir_all(&dir).unwrap();
    RealDisk.create_dir_all(&dir).unwrap();
    assert_eq!(RealDisk.create_dir_all(Path::new("")).ok(), Some(()));
    let (first, second) = (dir.join("first"), dir.join("second"));
    RealDisk.create_new(&second).unwrap().write_all_at(b"2", 0).unwrap();
    RealDisk.create_new(&first).unwrap().write_all_at(b"1", 0).unwrap();
    RealDisk.create_dir_all(&dir.join("sub")).unwrap();
    assert_eq!(RealDisk.list(&dir).unwrap(), ["first", "second"], "sorted, without directories");

    let taken = RealDisk.create_new(&first).err().unwrap();
    assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
    RealDisk.rename(&first, &second).unwrap();
    RealDisk.sync_dir(&dir).unwrap();
    assert_eq!(contents(&*RealDisk.open(&second, Access::Read).unwrap()), b"1");
    RealDisk.remove(&second).unwrap();
    assert!(RealDisk.list(&dir).unwrap().is_empty());
    assert_eq!(RealDisk.open(&second, Access::Read).err().unwrap().kind(), io::ErrorKind::NotFound);
    assert!(RealDisk.free_bytes(&dir).unwrap() > 0);
}

#[test]
fn reads_end_at_the_end_of_the_file() {
    let temp = TempDir::new("reads");
    let file = RealDisk.create_new(&temp.path().join("f")).unwrap();
    assert!(file.is_empty().unwrap());
    file.write_all_at(b"hello", 3).unwrap();
    let mut buf = [9u8; 10];
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), 8);
    assert_eq!(&buf[..8], b"\0\0\0hello");
    assert_eq!(file.read_at(&mut buf, 8).unwrap(), 0);
    assert_eq!(file.read_exact_at(&mut buf, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    file.set_len(4).unwrap();
    assert_eq!(contents(&*file), b"\0\0\0h");
}

#[test]
fn a_file_opened_for_reading_cannot_be_written() {
    let temp = TempDir::new("readonly");
    let path = temp.path().join("f");
    RealDisk.create_new(&path).unwrap();
    let file = RealDisk.open(&path, Access::Read).unwrap();
    assert!(file.write_all_at(b"x", 0).is_err());
    assert!(file.write_durable_at(&filled(1, 1), 0).is_err());
}

fn buffered_and_durable_writes_are_coherent(dir: PathBuf) {
    let path = dir.join("mixed");
    let file = RealDisk.create_new(&path).unwrap();
    file.write_all_at(&filled(1, 4), 0).unwrap();
    file.write_durable_at(&filled(2, 2), BLOCK_BYTES as u64).unwrap();
    file.write_all_at(b"tail", 4 * BLOCK_BYTES as u64).unwrap();
    let expected = [&filled(1, 1)[..], &filled(2, 2)[..], &filled(1, 1)[..], b"tail"].concat();
    assert!(contents(&*file) == expected);
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    file.drop_cache().unwrap();
    assert!(contents(&*file) == expected);
    file.write_all_at(b"zz", BLOCK_BYTES as u64).unwrap();
    assert_eq!(&contents(&*file)[BLOCK_BYTES..][..3], b"zz\x02", "a buffered write over a durable one");
}

#[test]
fn mixed_writes_on_the_temp_file_system() {
    let temp = TempDir::new("mixed");
    buffered_and_durable_writes_are_coherent(temp.path().to_owned());
}

#[test]
fn mixed_writes_in_shared_memory() {
    // Older kernels refuse O_DIRECT on a tmpfs; there this tests the fallback.
    let temp = TempDir::within(Path::new("/dev/shm"), "mixed");
    buffered_and_durable_writes_are_coherent(temp.path().to_owned());
}

#[test]
fn durable_writes_without_direct_io() {
    let temp = TempDir::new("dsync");
    let created = fs::OpenOptions::new().read(true).write(true).create_new(true).open(temp.path().join("f"));
    let file = RealFile::new(created.unwrap(), Access::ReadWrite);
    file.direct_refused.store(true, Ordering::Relaxed);
    assert!(file.direct().is_none());
    file.write_durable_at(&filled(5, 3), BLOCK_BYTES as u64).unwrap();
    assert!(contents(&file)[BLOCK_BYTES..] == filled(5, 3)[..]);
}

#[test]
fn durable_writes_follow_a_renamed_file() {
    let temp = TempDir::new("renamed");
    let (old, new) = (temp.path().join("old"), temp.path().join("new"));
    let file = RealDisk.create_new(&old).unwrap();
    RealDisk.rename(&old, &new).unwrap();
    let usurper = RealDisk.create_new(&old).unwrap();
    file.write_durable_at(&filled(7, 1), 0).unwrap();
    assert!(usurper.is_empty().unwrap(), "the second descriptor must not be opened by path");
    assert!(contents(&*RealDisk.open(&new, Access::Read).unwrap()) == filled(7, 1)[..]);
}

#[test]
fn misaligned_durable_writes_are_refused() {
    let temp = TempDir::new("aligned");
    let file = RealDisk.create_new(&temp.path().join("f")).unwrap();
    let buf = filled(1, 2);
    let cases = [(&buf[..100], 0), (&buf[..BLOCK_BYTES], 512), (&buf[8..BLOCK_BYTES + 8], 0)];
    for (bytes, offset) in cases {
        let error = file.write_durable_at(bytes, offset).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    assert!(file.is_empty().unwrap());
}

#[test]
fn a_write_of_which_the_kernel_takes_a_part_goes_on_with_the_rest() {
    let bytes: Vec<u8> = (0..5 * BLOCK_BYTES).map(|at| (at % 251) as u8).collect();
    for (step_bytes, parts) in [
        (1, vec![1, 4000, 0, 7, 9000]),
        (BLOCK_BYTES, vec![BLOCK_BYTES + 512, 512, 2 * BLOCK_BYTES - 1, BLOCK_BYTES]),
    ] {
        let (mut written, mut calls) = (vec![0; bytes.len()], 0);
        let outcome = write_all(&bytes, 8192, step_bytes, |part, at| {
            let at = at as usize - 8192;
            assert_eq!(at % step_bytes, 0);
            calls += 1;
            if calls == 2 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let taken = parts.get(calls - 1).copied().unwrap_or(usize::MAX).min(part.len());
            written[at..at + taken].copy_from_slice(&part[..taken]);
            Ok(taken)
        });
        outcome.unwrap();
        assert!(written == bytes && calls > parts.len(), "{calls} calls");
    }
}

/// A full device writes as much as it has room for, and reports only in the next call why it wrote no more.
#[test]
fn the_reason_of_a_short_write_is_reported() {
    let mut results = vec![Err(io::Error::from(io::ErrorKind::StorageFull)), Ok(512)];
    let block = [0; BLOCK_BYTES];
    let error = write_all(&block, 0, BLOCK_BYTES, |_, _| results.pop().unwrap()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    let error = write_all(&block, 0, BLOCK_BYTES, |_, _| Ok(0)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WriteZero);
}
