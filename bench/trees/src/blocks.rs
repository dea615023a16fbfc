//! The table of COUCHDB-1023: a group of blocks in one write per block, compared with a single write of the
//! same bytes. Each is measured without sync, with one sync per group, and with one sync per block, by the
//! same file layer as the server's.

use std::path::Path;

use env::{Clock, Disk, RealClock, RealDisk};

use crate::{Error, median};

const BLOCKS: usize = 30;
const ROUNDS: usize = 5;

#[derive(Clone, Copy, PartialEq)]
enum Sync {
    None,
    Group,
    Block,
}

pub fn compare(dir: &Path) -> Result<(), Error> {
    println!("| blocks | sync | groups/s, a write each | groups/s, one write | ratio |");
    println!("| ------ | ---- | ---------------------: | ------------------: | ----: |");
    for block_bytes in [1000, 4000] {
        for (sync, name, groups) in
            [(Sync::None, "none", 4000), (Sync::Group, "one a group", 400), (Sync::Block, "one a block", 40)]
        {
            let (mut each, mut one) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                each.push(groups_per_s(dir, block_bytes, groups, sync, false)?);
                // The comparison for one sync per block is a single write, which needs only one sync.
                let sync = if sync == Sync::Block { Sync::Group } else { sync };
                one.push(groups_per_s(dir, block_bytes, groups, sync, true)?);
            }
            let (each, one) = (median(each), median(one));
            println!("| {BLOCKS} x {block_bytes} B | {name} | {each:.0} | {one:.0} | {:.1}x |", one / each);
        }
    }
    Ok(())
}

fn groups_per_s(
    dir: &Path,
    block_bytes: usize,
    groups: usize,
    sync: Sync,
    in_one: bool,
) -> Result<f64, Error> {
    let path = dir.join("blocks");
    let file = RealDisk.create_new(&path)?;
    let group = vec![7; block_bytes * BLOCKS];
    let clock = RealClock::default();
    let begin = clock.monotonic_us();
    let mut offset = 0;
    for _ in 0..groups {
        for block in group.chunks(if in_one { group.len() } else { block_bytes }) {
            file.write_all_at(block, offset)?;
            offset += block.len() as u64;
            if sync == Sync::Block {
                file.sync_data()?;
            }
        }
        if sync == Sync::Group {
            file.sync_data()?;
        }
    }
    let elapsed_us = clock.monotonic_us() - begin;
    RealDisk.remove(&path)?;
    Ok(groups as f64 * 1e6 / elapsed_us as f64)
}
