//! The positions for which replies about one document wait.

use bytes::Bytes;
use env::sim::CrashMode;
use proptest::prelude::*;

use super::files::disk;
use super::history::{DOCUMENTS, Step, name, run, step};
use super::kit::*;

#[derive(Debug, Clone)]
enum Move {
    Step(Step),
    Secure(bool),
    Save,
    Reopen,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        12 => step().prop_map(Move::Step),
        1 => any::<bool>().prop_map(Move::Secure),
        2 => Just(Move::Save),
        1 => Just(Move::Reopen),
    ];
    proptest::collection::vec(one, 1..60)
}

proptest! {
    #[test]
    fn the_position_of_a_document_is_that_of_its_last_change(moves in moves()) {
        let disk = disk();
        let mut kit = Kit::open(&disk, &[]).expect("empty");
        kit.create("db").expect("created");
        // The update sequence of each document, and the position of the last change of it.
        let mut last = [(None, kit.end()); DOCUMENTS as usize];
        let (mut security, mut secured, mut saved) = (Bytes::new(), kit.end(), kit.end());
        for one in &moves {
            let db = kit.documents.database("db").expect("there");
            match one {
                Move::Step(step) => run(&kit, &db, step),
                Move::Secure(one) => {
                    let object = if *one { r#"{"admins":{}}"# } else { "{}" };
                    kit.write(&db, |writer| writer.set_security(object.into())).expect("short");
                }
                Move::Save => {
                    kit.save().expect("a good disk");
                    saved = kit.end();
                }
                Move::Reopen => {
                    let log = kit.log.lock().expect("whole").clone();
                    disk.crash(CrashMode::LoseAll);
                    kit = Kit::open(&disk, &log).expect("files and log fit");
                }
            }
            let snapshot = kit.documents.database("db").expect("there").snapshot();
            if security != *snapshot.security() {
                (security, secured) = (snapshot.security().clone(), snapshot.last_lsn());
            }
            for (id, last) in (0..DOCUMENTS).map(name).zip(&mut last) {
                let seq = snapshot.document(&id).expect("readable").map(|info| info.seq);
                if seq != last.0 {
                    *last = (seq, snapshot.last_lsn());
                }
                let (changed, position) = (last.1.max(secured), snapshot.document_lsn(&id));
                prop_assert!(position >= changed, "{id} {position} {changed}");
                // The file does not say which record made a change. Of a purged document, only the absence is
                // known.
                let latest = if seq.is_some() { changed.max(saved) } else { snapshot.last_lsn() };
                prop_assert!(position <= latest, "{id} {position} {latest}");
            }
        }
    }
}
