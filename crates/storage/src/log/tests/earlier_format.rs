//! Directories of earlier versions, whose batches are not chained: they are read and continued.

use env::Access;

use super::*;
use crate::{
    Control, LogReader, Start,
    log::{
        footer::{FOOTER_BYTES, Footer, seed_of},
        record, segment,
    },
};

/// Rewrites the log on this disk into the form that commit d08a10d wrote: footers without links, and a
/// control file of version 3.
fn make_earlier(disk: &Arc<SimDisk>) {
    let dir = Path::new(DIR);
    let mut reader = LogReader::open(disk.clone(), dir, Access::ReadWrite).unwrap();
    let control = *reader.control();
    let mut ends = Vec::new();
    while let Ok(batch) = reader.next_batch().unwrap() {
        let records = batch.records().map(|record| record.occupied_bytes()).sum();
        ends.push((batch.start.advance(records), batch.end));
    }
    for (records_end, end) in ends {
        let segment = reader.segments().iter().find(|it| it.start < end && end <= it.end).unwrap();
        let mut space = vec![0; end.bytes_since(records_end) as usize];
        assert!(segment.start <= records_end, "the test has no batch end in two segments");
        segment.file.read_exact_at(&mut space, segment.offset(records_end)).unwrap();
        let footer = Footer { link: None, ..Footer::decode(&space, end).unwrap() };
        record::encode_batch_end(&mut space, &footer);
        segment.file.write_all_at(&space, segment.offset(records_end)).unwrap();
    }
    // Of the batches before the log start, nothing but the footer of the last one is ever read.
    let begin = control.log_start;
    if let Some(footer) = reader.footer_before(begin).unwrap() {
        let segment = reader.segments().iter().find(|it| it.start < begin && begin <= it.end).unwrap();
        let at = segment.offset(Lsn::new(begin.get() - FOOTER_BYTES as u64));
        segment.file.write_all_at(&Footer { link: None, ..footer }.encode(), at).unwrap();
    }
    let mut bytes = control.encode()[..64].to_vec();
    bytes[8] = 3;
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    disk.write_file(&Control::path(dir), &bytes);
}

fn last_footer(disk: &SimDisk, end: Lsn) -> Footer {
    let path = Path::new(DIR).join(segment::file_name(Lsn::ZERO));
    let mut bytes = [0; FOOTER_BYTES];
    let offset = SEGMENT_HEADER_BYTES + end.get() - FOOTER_BYTES as u64;
    disk.open(&path, Access::Read).unwrap().read_exact_at(&mut bytes, offset).unwrap();
    Footer::decode(&bytes, end).unwrap()
}

#[test]
fn an_earlier_log_is_read_and_the_next_batch_is_chained_to_it() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let mut payloads = numbered(20);
    write_batches(&log, &payloads);
    log.close().unwrap();
    let (end, id) = (log.durable_lsn(), log.id());
    drop(log);
    make_earlier(&disk);
    let earlier = last_footer(&disk, end);
    assert_eq!((earlier.link, earlier.reign()), (None, 0));
    let checked = check(disk.clone(), Path::new(DIR), |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!((checked.tail.end, checked.end_chain), (end, Some(earlier.chain())));

    let (found, log) = recover(&disk).unwrap();
    assert_eq!(found, payloads);
    assert_eq!(log.chain_at(end).unwrap(), Some(earlier.chain()));
    assert!(log.reign() > 0 && log.token(end) > end.get(), "tokens rise over the change");
    let first = numbered(1);
    let new_end = write_batches(&log, &first)[0];
    payloads.extend(first);
    assert_eq!(last_footer(&disk, new_end).link.unwrap().before, earlier.chain());
    log.close().unwrap();
    drop(log);
    let control = Control::load(&*disk, Path::new(DIR)).unwrap().unwrap();
    assert_eq!(control.start, Start { reign: 0, chain: Some(seed_of(&id)) });
    assert_eq!(recover(&disk).unwrap().0, payloads);
}

#[test]
fn an_earlier_log_whose_front_is_forgotten_goes_on_as_well() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    let payloads = numbered(20);
    let ends = write_batches(&log, &payloads);
    log.truncate_before(ends[9]).unwrap();
    log.close().unwrap();
    drop(log);
    make_earlier(&disk);
    let (found, log) = recover(&disk).unwrap();
    assert_eq!(found, payloads[10..]);
    write_batches(&log, &numbered(1));
    log.close().unwrap();
    drop(log);
    assert_eq!(recover(&disk).unwrap().0.len(), 11);
}

/// An earlier server that writes after chained batches does not continue the chain.
#[test]
fn an_earlier_batch_behind_a_chained_one_is_damage() {
    let disk = disk();
    let (_, log) = recover(&disk).unwrap();
    write_batches(&log, &numbered(3));
    log.close().unwrap();
    let end = log.durable_lsn();
    let footer = last_footer(&disk, end);
    let mut space = vec![0; end.bytes_since(footer.start) as usize];
    record::encode_batch_end(&mut space, &Footer { link: None, ..footer });
    let path = Path::new(DIR).join(segment::file_name(Lsn::ZERO));
    let file = disk.open(&path, Access::ReadWrite).unwrap();
    file.write_all_at(&space, SEGMENT_HEADER_BYTES + footer.start.get()).unwrap();
    let Err(error) = recover(&disk).map(drop) else { panic!("it was taken") };
    assert!(error.to_string().contains("reign"), "{error}");
}
