//! Effects on libraries, their visibility, and captures that carry them.

use super::*;
use crate::{AccessClock, Capture, Freed, GlobalOp, Loader, Options, slot_of};

fn keyspace() -> Keyspace {
    Keyspace::new(Options { hash_seed: 1 })
}

fn library(name: &str, code: &str, functions: &[&str]) -> Library {
    let function = |name: &&str| Function {
        name: name.as_bytes().into(),
        description: name.starts_with('d').then(|| "what it does".as_bytes().into()),
        flags: FunctionFlags::NO_WRITES.or(FunctionFlags::ALLOW_STALE),
    };
    let functions = functions.iter().map(function).collect();
    Library { name: name.as_bytes().into(), code: code.as_bytes().into(), functions }
}

fn apply(guard: &mut SlotGuard<'_>, effect: &Effect<'_>) -> bool {
    guard.apply(effect, AccessClock::default(), &mut Freed::new()).changed
}

fn names(libraries: &Libraries) -> Vec<String> {
    libraries.iter().map(|library| String::from_utf8_lossy(&library.name).into_owned()).collect()
}

#[test]
fn the_empty_key_is_in_the_slot_of_libraries() {
    assert_eq!(slot_of(LIBRARIES_KEY), LIBRARIES_SLOT);
}

#[test]
fn a_change_is_seen_by_others_once_it_has_an_lsn() {
    let keyspace = keyspace();
    let library = library("lib", "code", &["F", "d"]);
    let mut guard = keyspace.lock(LIBRARIES_SLOT);
    assert!(library.with_effect(|effect| apply(&mut guard, effect)));
    assert!(!library.with_effect(|effect| apply(&mut guard, effect)), "nothing is different");
    assert_eq!((names(&guard.libraries()), keyspace.libraries().libraries.len()), (vec!["lib".into()], 0));
    guard.set_last_lsn(Lsn::new(7));
    drop(guard);
    let Published { generation, libraries, lsn } = keyspace.libraries();
    assert_eq!((generation, lsn, keyspace.libraries_generation()), (1, Lsn::new(7), 1));
    assert_eq!(**libraries.get(b"lib").expect("loaded"), library);
    assert_eq!((libraries.functions_len(), libraries.bytes()), (2, library.bytes()));
    // A later record of the slot that changes no library does not change the LSN of the libraries.
    keyspace.lock(LIBRARIES_SLOT).set_last_lsn(Lsn::new(9));
    assert_eq!((keyspace.libraries().generation, keyspace.libraries().lsn), (1, Lsn::new(7)));
}

fn after(set: &Libraries, effect: &Effect<'_>) -> Option<Libraries> {
    let Effect::Library { name, content } = *effect else { unreachable!("the effect of a library") };
    set.after(name, content)
}

#[test]
fn functions_are_found_in_any_case() {
    let none = Libraries::default();
    let loaded = library("lib", "code", &["Mixed"]).with_effect(|effect| after(&none, effect)).expect("new");
    let (found, function) = loaded.function(b"mIXED").expect("there");
    assert_eq!((&*found.name, &*function.name), (&b"lib"[..], &b"Mixed"[..]));
    assert!(loaded.function(b"mixe").is_none() && loaded.get(b"LIB").is_none());
    let flags: Vec<&str> = function.flags.names().collect();
    assert_eq!(flags, ["no-writes", "allow-stale"]);
    assert_eq!(FunctionFlags::named(b"allow-stale"), Some(FunctionFlags::ALLOW_STALE));
    assert_eq!(FunctionFlags::named(b"allow"), None);
}

#[test]
fn a_library_goes_with_its_functions() {
    let set =
        |set: Libraries, library: Library| library.with_effect(|effect| after(&set, effect)).expect("new");
    let two = set(set(Libraries::default(), library("a", "1", &["f"])), library("b", "2", &["g"]));
    let replaced = library("a", "3", &["h"]).with_effect(|effect| after(&two, effect)).expect("another");
    assert!(replaced.function(b"f").is_none() && replaced.function(b"h").is_some());
    let dropped = replaced.after(b"a", None).expect("less");
    assert_eq!(names(&dropped), ["b"]);
    assert!(dropped.function(b"h").is_none() && dropped.function(b"g").is_some());
    assert!(dropped.after(b"a", None).is_none());
}

#[test]
fn captured_libraries_are_those_of_the_moment_of_their_slot() {
    let keyspace = keyspace();
    let old = library("old", &"x".repeat(5000), &["f", "d"]);
    {
        let mut guard = keyspace.lock(LIBRARIES_SLOT);
        old.with_effect(|effect| apply(&mut guard, effect));
        guard.set_last_lsn(Lsn::new(3));
    }
    let digest = keyspace.digest();
    let mut capture = Capture::new(&keyspace, SlotId::FIRST, SlotId::LAST);
    let (mut pieces, mut piece) = (Vec::new(), Vec::new());
    while capture.fill(&mut piece, 100, 1000).is_some() {
        pieces.push(piece.clone());
        let mut guard = keyspace.lock(LIBRARIES_SLOT);
        apply(&mut guard, &Effect::Library { name: b"old", content: None });
        guard.set_last_lsn(Lsn::new(4));
    }
    assert!(pieces.len() > 3, "{} pieces", pieces.len());
    let other = self::keyspace();
    let mut loader = Loader::new(&other, AccessClock::default());
    pieces.iter().for_each(|piece| loader.feed(piece).expect("a piece"));
    assert_eq!(loader.finish().expect("all of it"), 0, "libraries are no keys");
    assert_eq!(names(&other.libraries().libraries), ["old"]);
    assert_eq!((other.libraries().lsn, other.digest()), (Lsn::new(3), digest));
    assert_ne!(keyspace.digest(), digest);
}

#[test]
fn flushall_leaves_no_library() {
    let keyspace = keyspace();
    {
        let mut guard = keyspace.lock(LIBRARIES_SLOT);
        library("lib", "code", &["f"]).with_effect(|effect| apply(&mut guard, effect));
        guard.set_last_lsn(Lsn::new(3));
    }
    let mut all = keyspace.lock_all();
    for lsn in [4, 5] {
        all.apply(&Effect::Global(GlobalOp::FlushAll), AccessClock::default(), &mut Freed::new());
        all.iter_mut().for_each(|guard| guard.set_last_lsn(Lsn::new(lsn)));
        let published = keyspace.libraries();
        assert!(published.libraries.is_empty());
        assert_eq!((published.generation, published.lsn), (2, Lsn::new(4)), "the second changes nothing");
    }
    drop(all);
    assert_eq!(keyspace.libraries().lsn, Lsn::new(4));
}
