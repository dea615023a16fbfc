//! Random operations on one file, compared with a plain byte vector: what is read, what a sync preserves, and
//! what a crash may leave of unsynced writes.

use super::*;
use crate::Prng;

/// The expected state of the file.
#[derive(Default)]
struct Model {
    visible: Vec<u8>,
    synced: Vec<u8>,
    /// For each byte, its values since the last sync, including the one at the sync.
    possible: Vec<BTreeSet<u8>>,
}

impl Model {
    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        self.visible.resize(self.visible.len().max(end), 0);
        self.visible[offset..end].copy_from_slice(bytes);
        self.note();
    }

    fn set_len(&mut self, len: usize) {
        self.visible.resize(len, 0);
        self.note();
    }

    fn note(&mut self) {
        let len = self.possible.len().max(self.visible.len());
        self.possible.resize_with(len, || [0].into());
        for (index, values) in self.possible.iter_mut().enumerate() {
            values.insert(self.visible.get(index).copied().unwrap_or(0));
        }
    }

    fn sync(&mut self) {
        self.synced = self.visible.clone();
        self.possible = self.visible.iter().map(|&byte| [byte].into()).collect();
    }
}

const FILE_BYTES: u64 = 4 * BLOCK_BYTES as u64;

fn step(file: &dyn File, model: &mut Model, prng: &mut Prng) {
    let offset = prng.below(FILE_BYTES) as usize;
    match prng.below(10) {
        0 => {
            file.set_len(offset as u64).unwrap();
            model.set_len(offset);
        }
        1 => {
            file.sync_data().unwrap();
            model.sync();
        }
        2 => {
            file.drop_cache().unwrap();
            model.sync();
        }
        _ => {
            let mut bytes = vec![0; prng.below(3000) as usize];
            if prng.chance(80) {
                prng.fill(&mut bytes);
            }
            file.write_all_at(&bytes, offset as u64).unwrap();
            if !bytes.is_empty() {
                model.write(&bytes, offset);
            }
        }
    }
}

#[test]
fn reads_syncs_and_crashes_agree_with_a_byte_vector() {
    for seed in 0..40 {
        let mut prng = Prng::new(seed);
        let (disk, file) = disk_with_file("/d/f");
        let mut model = Model::default();
        for _ in 0..60 {
            step(&*file, &mut model, &mut prng);
            assert!(contents(&disk, "/d/f").unwrap() == model.visible, "seed {seed}");
        }
        assert!(after(&disk, CrashMode::LoseAll, "/d/f").unwrap() == model.synced, "seed {seed}");
        assert!(after(&disk, CrashMode::KeepAll, "/d/f").unwrap() == model.visible, "seed {seed}");
        for crash_seed in 0..10 {
            let copy = disk.clone_state();
            copy.reseed(crash_seed);
            copy.crash(CrashMode::Random);
            let found = contents(&copy, "/d/f").unwrap();
            let explained = found.iter().zip(&model.possible).all(|(byte, values)| values.contains(byte));
            assert!(explained && found.len() <= model.possible.len(), "seeds {seed}, {crash_seed}");
        }
    }
}

#[test]
fn durable_writes_survive_among_unsynced_writes() {
    for seed in 0..200 {
        let mut prng = Prng::new(seed);
        let (disk, file) = disk_with_file("/d/f");
        let mut model = Model::default();
        (0..10).for_each(|_| step(&*file, &mut model, &mut prng));
        let block = prng.below(4) * BLOCK_BYTES as u64;
        file.write_durable_at(&blocks(0xAB, 1), block).unwrap();
        // Later unsynced writes elsewhere do not endanger the durable block.
        let elsewhere = (block + BLOCK_BYTES as u64) % FILE_BYTES;
        file.write_all_at(&[1; 100], elsewhere).unwrap();
        disk.crash(CrashMode::Random);
        let found = contents(&disk, "/d/f").unwrap();
        assert!(found[block as usize..][..BLOCK_BYTES] == blocks(0xAB, 1)[..], "seed {seed}");
    }
}
