//! The effect of a crash: random choices over all unsynced changes.
//!
//! This module computes the state after the crash from the state before it, for one file and for the names.
//! Durable data survives, unless a later change that is kept replaces it.
//!
//! Invariants
//! - Every sector becomes its durable state, one of its versions, or (only with `CrashMode::Random`) a torn
//!   mix of two of these.
//! - A rename is kept whole or lost whole.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::image::{FileImage, Page, SECTOR_BYTES, SECTORS_PER_PAGE, Version, ZERO_PAGE};
use super::volume::{InodeId, NameOp};
use crate::Prng;

/// How a crash treats unsynced changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashMode {
    /// Nothing unsynced survives.
    LoseAll,
    /// All that was written survives, as if the cache had been flushed just before.
    KeepAll,
    /// Anything may survive, chosen by the disk's seed. Either all changes of the whole disk up to some time
    /// survive, or the choice is made for each file, and once for all names. It then is everything, nothing,
    /// or a random choice per sector or name, with old versions and torn sectors.
    Random,
}

/// The percentage of unsynced sectors that are torn inside, under `Luck::Percent`.
const TORN_PERCENT: u64 = 5;

/// How the crash treats one file or the names.
#[derive(Clone, Copy, Debug)]
enum Luck {
    LoseAll,
    KeepAll,
    /// Changes up to this `seq` survive, as on a disk that keeps the order of writes.
    UpTo(u64),
    /// Each sector, size and name survives independently with this probability.
    Percent(u64),
}

/// The random choices of one crash.
pub(super) struct Lottery<'a> {
    prng: &'a mut Prng,
    /// The luck of the whole disk; `None` if luck is drawn for each file, and once for all names.
    common: Option<Luck>,
}

impl<'a> Lottery<'a> {
    /// `moments` are the `seq`s of all unsynced changes.
    pub(super) fn new(mode: CrashMode, prng: &'a mut Prng, moments: &[u64]) -> Self {
        let common = match mode {
            CrashMode::LoseAll => Some(Luck::LoseAll),
            CrashMode::KeepAll => Some(Luck::KeepAll),
            CrashMode::Random if !moments.is_empty() && prng.chance(30) => {
                Some(Luck::UpTo(moments[prng.below(moments.len() as u64) as usize]))
            }
            CrashMode::Random => None,
        };
        Lottery { prng, common }
    }

    fn luck(&mut self) -> Luck {
        self.common.unwrap_or_else(|| match self.prng.below(5) {
            0 => Luck::LoseAll,
            1 => Luck::KeepAll,
            2 => Luck::Percent(10),
            3 => Luck::Percent(50),
            _ => Luck::Percent(90),
        })
    }

    /// Chooses which version survives, out of the versions with these `seqs` (oldest first). Returns the
    /// index of the version, or `None` for the durable state.
    fn choose(&mut self, luck: Luck, seqs: &[u64]) -> Option<usize> {
        let last = seqs.len().checked_sub(1)?;
        match luck {
            Luck::LoseAll => None,
            Luck::KeepAll => Some(last),
            Luck::UpTo(moment) => seqs.iter().rposition(|&seq| seq <= moment),
            Luck::Percent(percent) if !self.prng.chance(percent) => None,
            Luck::Percent(_) if self.prng.chance(50) => Some(last),
            Luck::Percent(_) => Some(self.prng.below(seqs.len() as u64) as usize),
        }
    }

    pub(super) fn file_after(&mut self, before: &FileImage) -> FileImage {
        let luck = self.luck();
        let mut pages = before.durable.clone();
        for (&page_no, versions) in &before.pending {
            let page = pages.entry(page_no).or_insert_with(|| Arc::new(ZERO_PAGE));
            self.settle_page(luck, Arc::make_mut(page), versions);
        }
        let moments: Vec<u64> = before.pending_sizes.iter().map(|&(seq, _)| seq).collect();
        let size =
            self.choose(luck, &moments).map_or(before.durable_size, |index| before.pending_sizes[index].1);
        FileImage::reborn(pages, size, before.allocated.clone())
    }

    /// Chooses the outcome of each sector of a page; `page` holds the durable state and receives the result.
    fn settle_page(&mut self, luck: Luck, page: &mut Page, versions: &[Version]) {
        for sector in 0..SECTORS_PER_PAGE {
            let touching: Vec<&Version> = versions.iter().filter(|v| v.sectors >> sector & 1 == 1).collect();
            let seqs: Vec<u64> = touching.iter().map(|version| version.seq).collect();
            let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            if let Some(index) = self.choose(luck, &seqs) {
                page[range.clone()].copy_from_slice(&touching[index].page[range.clone()]);
            }
            if matches!(luck, Luck::Percent(_)) && !touching.is_empty() && self.prng.chance(TORN_PERCENT) {
                let torn = touching[self.prng.below(touching.len() as u64) as usize];
                let split = range.start + self.prng.below(SECTOR_BYTES as u64) as usize;
                page[range.start..split].copy_from_slice(&torn.page[range.start..split]);
            }
        }
    }

    pub(super) fn names_after(
        &mut self,
        durable: &BTreeMap<PathBuf, InodeId>,
        pending: &[NameOp],
    ) -> BTreeMap<PathBuf, InodeId> {
        let luck = self.luck();
        let mut names = durable.clone();
        for op in pending {
            if self.keeps(luck, op.seq) {
                op.apply(&mut names);
            }
        }
        names
    }

    fn keeps(&mut self, luck: Luck, seq: u64) -> bool {
        match luck {
            Luck::LoseAll => false,
            Luck::KeepAll => true,
            Luck::UpTo(moment) => seq <= moment,
            Luck::Percent(percent) => self.prng.chance(percent),
        }
    }
}
