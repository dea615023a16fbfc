use lsn::Lsn;
use proptest::prelude::*;

use super::*;

fn attachment() -> impl Strategy<Value = EditAttachment> {
    let source = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..64).prop_map(|bytes| Source::Inline(bytes.into())),
        Just(Source::Kept(0)),
        any::<u64>().prop_map(|upload| Source::Upload(UploadId(upload))),
    ];
    (".*", ".*", any::<u32>(), any::<[u8; 16]>(), any::<u64>(), source).prop_map(
        |(name, content_type, revpos, digest, length, source)| {
            let length = if let Source::Inline(bytes) = &source { bytes.len() as u64 } else { length };
            EditAttachment {
                name: name.into(),
                content_type: content_type.into(),
                revpos,
                digest: Digest(digest),
                length,
                source,
            }
        },
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
    let id = || ".*".prop_map(DocId::from);
    let hashes = proptest::collection::vec(any::<[u8; 16]>(), 1..5);
    let path = (5u32.., hashes).prop_map(|(newest, hashes)| RevPath::new(newest, hashes).expect("a path"));
    let edit = (id(), any::<bool>(), path, bytes(), proptest::collection::vec(attachment(), 0..3));
    let revs = proptest::collection::vec((1u32.., any::<[u8; 16]>()), 0..4);
    prop_oneof![
        edit.prop_map(|(id, deleted, path, body, attachments)| {
            Operation::Edit(Edit { id, deleted, path, body, attachments })
        }),
        (id(), any::<u64>(), bytes()).prop_map(|(id, rev, body)| Operation::PutLocal { id, rev, body }),
        id().prop_map(|id| Operation::RemoveLocal { id }),
        (id(), revs).prop_map(|(id, revs)| {
            let revs = revs.into_iter().map(|(number, hash)| Rev::new(number, hash).expect("not 0"));
            Operation::Purge { id, revs: revs.collect() }
        }),
        bytes().prop_map(Operation::SetSecurity),
        any::<u32>().prop_map(Operation::SetRevsLimit),
        (any::<u64>(), bytes())
            .prop_map(|(upload, bytes)| Operation::Chunk { upload: UploadId(upload), bytes }),
        (any::<u64>(), any::<u64>())
            .prop_map(|(from, to)| Operation::Discard { from: UploadId(from), to: UploadId(to) }),
    ]
}

fn encoded(db: DbId, since_seq: u64, operations: &[Operation]) -> Vec<u8> {
    let mut encoder = UpdateEncoder::new(db, since_seq);
    assert!(encoder.is_empty());
    operations.iter().for_each(|operation| encoder.push(operation));
    assert_eq!(encoder.is_empty(), operations.is_empty());
    encoder.finish()
}

proptest! {
    #[test]
    fn encoded_changes_are_decoded(
        db: u64, since_seq: u64, name in ".*", operations in proptest::collection::vec(operation(), 0..6),
    ) {
        let db = DbId::new(Lsn::new(db));
        let (create, delete) = (encode_create(&name), encode_delete(db));
        prop_assert_eq!(Change::decode(&create), Ok(Change::Create { name: &name }));
        prop_assert_eq!(Change::decode(&delete), Ok(Change::Delete { db }));
        let bytes = encoded(db, since_seq, &operations);
        match Change::decode(&bytes) {
            Ok(Change::Update { db: other, since_seq: seq, operations: found }) => {
                prop_assert_eq!((other, seq), (db, since_seq));
                prop_assert_eq!(found.collect::<Result<Vec<_>, _>>(), Ok(operations));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn damage_is_refused_or_reads_as_something_with_the_same_bytes(
        operations in proptest::collection::vec(operation(), 1..4), at: prop::sample::Index, bits in 1u8.., cut: bool,
    ) {
        let mut bytes = encoded(DbId::new(Lsn::new(1)), 7, &operations);
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= bits }
        check_round_trip(&bytes);
    }
}

#[test]
fn the_bytes_are_those_that_the_module_describes() {
    let db = DbId::new(Lsn::new(0x0102));
    assert_eq!(encode_create("ab"), b"\x01\x02ab");
    assert_eq!(encode_delete(db), b"\x02\x02\x01\0\0\0\0\0\0");
    let edit = Edit {
        id: "d".into(),
        deleted: true,
        path: RevPath::new(2, vec![[1; 16]]).expect("a path"),
        body: Bytes::from_static(b"{}"),
        attachments: vec![EditAttachment {
            name: "n".into(),
            content_type: "t".into(),
            revpos: 2,
            digest: Digest([3; 16]),
            length: 9,
            source: Source::Upload(UploadId(5)),
        }],
    };
    let operations = [Operation::Edit(edit), Operation::SetRevsLimit(200)];
    let mut expected = b"\x03\x02\x01\0\0\0\0\0\0\x07\x10\x01d\x01\x02\x01".to_vec();
    expected.extend([1; 16]);
    expected.extend(b"\x02{}\x01\x01n\x01t\x02");
    expected.extend([3; 16]);
    expected.extend(b"\x09\x02\x05\x15\xc8\x01");
    assert_eq!(encoded(db, 7, &operations), expected);
}

#[test]
fn an_inline_attachment_has_the_length_it_says_and_a_kept_one_an_ancestor() {
    let with = |length, source| {
        let attachment = EditAttachment {
            name: "n".into(),
            content_type: "t".into(),
            revpos: 1,
            digest: Digest([0; 16]),
            length,
            source,
        };
        let edit = Edit {
            id: "d".into(),
            deleted: false,
            path: RevPath::new(1, vec![[1; 16]]).expect("a path"),
            body: Bytes::new(),
            attachments: vec![attachment],
        };
        let bytes = encoded(DbId::new(Lsn::ZERO), 0, &[Operation::Edit(edit)]);
        match Change::decode(&bytes) {
            Ok(Change::Update { mut operations, .. }) => operations.next().expect("one").is_ok(),
            other => panic!("{other:?}"),
        }
    };
    assert!(with(1, Source::Inline(Bytes::from_static(b"x"))));
    assert!(!with(2, Source::Inline(Bytes::from_static(b"x"))));
    assert!(with(0, Source::Kept(0)) && !with(0, Source::Kept(1)));
}
