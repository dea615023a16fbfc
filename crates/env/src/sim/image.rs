//! `FileImage`: the contents of one simulated file, as programs see them and as the disk holds them.
//!
//! An image has sparse 4 KiB pages, the unsynced versions of their sectors, the sizes, and the set of
//! allocated pages. It has no file name. The module `crash` decides which versions survive a crash, and
//! `volume` decides which operations fail.
//!
//! Invariants
//! - An absent page is all zeros. Bytes at or after the size are zeros in every visible page.
//! - Pages are shared and copied on write: cloning an image copies references.
//! - `pending` has every sector that differs from `durable` and may still reach the disk. A sector that
//!   differs without being pending was lost by a failed sync; only the visible image still shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Prng;

pub(super) const PAGE_BYTES: usize = 4096;
pub(super) const SECTOR_BYTES: usize = 512;
pub(super) const SECTORS_PER_PAGE: usize = PAGE_BYTES / SECTOR_BYTES;

/// The maximum number of versions of a page, and of unsynced sizes of a file. Beyond it, the two oldest
/// versions are merged, or the oldest size is dropped. This limits memory, and crashes are still realistic.
const VERSIONS_MAX: usize = 16;

pub(super) type Page = [u8; PAGE_BYTES];
pub(super) type Pages = BTreeMap<u64, Arc<Page>>;

pub(super) const ZERO_PAGE: Page = [0; PAGE_BYTES];

/// A page right after one write to it.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// Orders all unsynced changes of the disk in time.
    pub(super) seq: u64,
    pub(super) page: Arc<Page>,
    /// Bit i is set if this write, or a write merged into it, has written sector i.
    pub(super) sectors: u8,
}

#[derive(Clone, Default, Debug)]
pub(super) struct FileImage {
    pub(super) visible: Pages,
    pub(super) durable: Pages,
    /// Versions per page, oldest first.
    pub(super) pending: BTreeMap<u64, Vec<Version>>,
    pub(super) size: u64,
    pub(super) durable_size: u64,
    /// Pairs of `seq` and size since the last sync, oldest first.
    pub(super) pending_sizes: Vec<(u64, u64)>,
    pub(super) allocated: PageSet,
}

impl FileImage {
    /// A file with the contents `bytes`, all durable.
    pub(super) fn durable(bytes: &[u8]) -> Self {
        let mut image = FileImage::default();
        image.write(bytes, 0, &mut 0);
        image.commit_all();
        image
    }

    /// A file after a crash: `pages` truncated to `size`, nothing pending.
    pub(super) fn reborn(mut pages: Pages, size: u64, mut allocated: PageSet) -> Self {
        cut_pages(&mut pages, size);
        allocated.remove_from(size.div_ceil(PAGE_BYTES as u64));
        FileImage {
            visible: pages.clone(),
            durable: pages,
            size,
            durable_size: size,
            allocated,
            ..FileImage::default()
        }
    }

    /// Reads up to the visible size and returns the number of bytes read.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let len = self.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        for (page_no, at, part) in page_parts(offset, len) {
            let page = self.visible.get(&page_no).map_or(&ZERO_PAGE, Arc::as_ref);
            buf[part.clone()].copy_from_slice(&page[at..at + part.len()]);
        }
        len
    }

    /// Writes into the visible image; everything written is pending. Each page, and each change of the size,
    /// takes the next `seq`: a long write reaches the disk page by page.
    pub(super) fn write(&mut self, buf: &[u8], offset: u64, seq: &mut u64) {
        for (page_no, at, part) in page_parts(offset, buf.len()) {
            self.allocated.insert(page_no);
            let end = offset + part.end as u64;
            self.write_page(page_no, at, &buf[part], seq);
            if end > self.size {
                self.resize(end, seq);
            }
        }
    }

    fn write_page(&mut self, page_no: u64, at: usize, bytes: &[u8], seq: &mut u64) {
        if bytes == &ZERO_PAGE[..bytes.len()] && self.is_hole(page_no) {
            return; // zeros over zeros, on the disk and in the cache
        }
        let page = self.visible.entry(page_no).or_insert_with(|| Arc::new(ZERO_PAGE));
        Arc::make_mut(page)[at..at + bytes.len()].copy_from_slice(bytes);
        let version = Version { seq: next(seq), page: page.clone(), sectors: sector_mask(at, bytes.len()) };
        self.push_version(page_no, version);
    }

    fn is_hole(&self, page_no: u64) -> bool {
        let absent = |pages: &Pages| !pages.contains_key(&page_no);
        absent(&self.visible) && absent(&self.durable) && !self.pending.contains_key(&page_no)
    }

    fn push_version(&mut self, page_no: u64, version: Version) {
        let versions = self.pending.entry(page_no).or_default();
        versions.push(version);
        if versions.len() > VERSIONS_MAX {
            // The second-oldest version also contains the writes of the oldest version, so only an
            // intermediate state is lost.
            let oldest = versions.remove(0);
            versions[0].sectors |= oldest.sectors;
        }
    }

    fn resize(&mut self, size: u64, seq: &mut u64) {
        self.size = size;
        self.pending_sizes.push((next(seq), size));
        if self.pending_sizes.len() > VERSIONS_MAX {
            self.pending_sizes.remove(0);
        }
    }

    /// Truncates or extends the visible file. The bytes cut off become zeros, pending like a write.
    pub(super) fn set_len(&mut self, len: u64, seq: &mut u64) {
        if len == self.size {
            return;
        }
        let (first_cut, keep) = (len / PAGE_BYTES as u64, (len % PAGE_BYTES as u64) as usize);
        let mut cut: Vec<u64> = self.visible.range(first_cut..).map(|(&page_no, _)| page_no).collect();
        if keep > 0 && cut.first() == Some(&first_cut) {
            self.write_page(first_cut, keep, &ZERO_PAGE[keep..], seq);
            cut.remove(0);
        }
        for page_no in cut {
            self.visible.remove(&page_no);
            self.push_version(
                page_no,
                Version { seq: next(seq), page: Arc::new(ZERO_PAGE), sectors: u8::MAX },
            );
        }
        self.allocated.remove_from(len.div_ceil(PAGE_BYTES as u64));
        self.resize(len, seq);
    }

    /// Makes everything durable, as a successful sync does.
    pub(super) fn commit_all(&mut self) {
        for page_no in std::mem::take(&mut self.pending).into_keys() {
            self.commit_page(page_no);
        }
        self.commit_size();
    }

    /// Makes the pages of this range durable after `write`, as a successful durable write does. Earlier
    /// writes to the same pages become durable with them.
    pub(super) fn commit_range(&mut self, offset: u64, len: usize) {
        for (page_no, _, _) in page_parts(offset, len) {
            if self.pending.remove(&page_no).is_some() {
                self.commit_page(page_no);
            }
        }
        let end = offset + len as u64;
        // If a crash could leave a size that ends before the range does, the present size becomes durable
        // too. Otherwise the changes of the size stay pending.
        if self.durable_size < end || self.pending_sizes.iter().any(|&(_, size)| size < end) {
            self.commit_size();
        }
    }

    fn commit_page(&mut self, page_no: u64) {
        match self.visible.get(&page_no) {
            Some(page) => self.durable.insert(page_no, page.clone()),
            None => self.durable.remove(&page_no),
        };
    }

    fn commit_size(&mut self) {
        if !self.pending_sizes.is_empty() {
            self.durable_size = self.size;
            self.pending_sizes.clear();
        }
    }

    /// The effect of a failed sync: nothing is dirty any more, a part of the data has reached the disk, and
    /// the cache still shows all of it.
    pub(super) fn lose_dirty(&mut self, prng: &mut Prng) {
        for page_no in std::mem::take(&mut self.pending).into_keys() {
            if prng.chance(50) {
                self.commit_page(page_no);
            }
        }
        if prng.chance(50) {
            self.commit_size();
        }
        self.pending_sizes.clear();
    }

    /// The effect of a durable write that failed half-way: a random set of its sectors is durable and
    /// visible, and the other sectors have their old contents.
    pub(super) fn write_some_sectors(&mut self, buf: &[u8], offset: u64, prng: &mut Prng, seq: &mut u64) {
        for (index, sector) in buf.chunks(SECTOR_BYTES).enumerate() {
            if prng.chance(50) {
                let at = offset + (index * SECTOR_BYTES) as u64;
                self.write(sector, at, seq);
                self.commit_range(at, sector.len());
            }
        }
    }

    /// Drops the page cache: data lost by a failed sync now reads as lost. Nothing may be pending.
    pub(super) fn drop_cache(&mut self) {
        self.visible = self.durable.clone();
        cut_pages(&mut self.visible, self.size);
    }

    /// Number of pages that a write to this range would allocate.
    pub(super) fn pages_missing(&self, offset: u64, len: usize) -> u64 {
        page_parts(offset, len).filter(|&(page_no, _, _)| !self.allocated.contains(page_no)).count() as u64
    }

    /// Damages one byte, on the disk and in the cache.
    pub(super) fn xor_byte(&mut self, offset: u64, xor: u8) {
        let (page_no, at) = (offset / PAGE_BYTES as u64, (offset % PAGE_BYTES as u64) as usize);
        for pages in [&mut self.visible, &mut self.durable] {
            Arc::make_mut(pages.entry(page_no).or_insert_with(|| Arc::new(ZERO_PAGE)))[at] ^= xor;
        }
    }
}

/// Removes the bytes at or after `size`.
fn cut_pages(pages: &mut Pages, size: u64) {
    pages.split_off(&size.div_ceil(PAGE_BYTES as u64));
    let keep = (size % PAGE_BYTES as u64) as usize;
    if keep > 0
        && let Some(last) = pages.get_mut(&(size / PAGE_BYTES as u64))
    {
        Arc::make_mut(last)[keep..].fill(0);
    }
}

/// Splits a byte range at page boundaries: page number, offset in the page, range in the caller's buffer.
fn page_parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let position = offset + done as u64;
        let at = (position % PAGE_BYTES as u64) as usize;
        let part = done..len.min(done + PAGE_BYTES - at);
        done = part.end;
        (!part.is_empty()).then_some((position / PAGE_BYTES as u64, at, part))
    })
}

/// Bit mask of the sectors of a page that `len > 0` bytes at `at` touch.
fn sector_mask(at: usize, len: usize) -> u8 {
    let (first, last) = (at / SECTOR_BYTES, (at + len - 1) / SECTOR_BYTES);
    (first..=last).fold(0, |mask, sector| mask | 1 << sector)
}

pub(super) fn next(seq: &mut u64) -> u64 {
    *seq += 1;
    *seq
}

/// A set of page numbers, as a bitmap.
#[derive(Clone, Default, Debug)]
pub(super) struct PageSet {
    words: Vec<u64>,
}

impl PageSet {
    fn contains(&self, page_no: u64) -> bool {
        let (word, bit) = (page_no as usize / 64, page_no % 64);
        self.words.get(word).is_some_and(|word| word >> bit & 1 == 1)
    }

    fn insert(&mut self, page_no: u64) {
        let (word, bit) = (page_no as usize / 64, page_no % 64);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << bit;
    }

    /// Removes `first` and all later page numbers.
    fn remove_from(&mut self, first: u64) {
        let (word, bit) = (first as usize / 64, first % 64);
        self.words.truncate(word + 1);
        if let Some(last) = self.words.get_mut(word) {
            *last &= (1 << bit) - 1;
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_set_counts_and_cuts() {
        let mut set = PageSet::default();
        [0, 63, 64, 200].iter().for_each(|&page_no| set.insert(page_no));
        set.insert(63);
        assert_eq!(set.len(), 4);
        set.remove_from(64);
        assert_eq!((set.len(), set.contains(63), set.contains(64)), (2, true, false));
        set.remove_from(0);
        assert_eq!(set.len(), 0);
    }

    #[test]
    fn page_parts_cover_the_range_once() {
        let parts: Vec<_> = page_parts(4000, 5000).collect();
        assert_eq!(parts, [(0, 4000, 0..96), (1, 0, 96..4192), (2, 0, 4192..5000)]);
        assert_eq!(page_parts(4096, 0).count(), 0);
    }

    #[test]
    fn sector_masks() {
        assert_eq!(sector_mask(0, 1), 0b1);
        assert_eq!(sector_mask(511, 2), 0b11);
        assert_eq!(sector_mask(0, PAGE_BYTES), u8::MAX);
    }

    #[test]
    fn zeros_cost_nothing_and_merged_versions_keep_the_newest_state() {
        let mut image = FileImage::default();
        image.write(&vec![0; 1 << 20], 0, &mut 0);
        assert!(image.visible.is_empty() && image.pending.is_empty());
        assert_eq!(image.allocated.len(), 256);

        let mut seq = 0;
        image.write(b"first sector", 0, &mut seq);
        (0..3 * VERSIONS_MAX as u8).for_each(|round| image.write(&[round + 1], 600, &mut seq));
        let versions = &image.pending[&0];
        assert_eq!(versions.len(), VERSIONS_MAX);
        assert_eq!(versions[0].sectors, 0b11, "the first write lives on in the oldest version that is left");
        assert_eq!(&versions[0].page[..5], b"first");
    }
}
