//! Tests the log: the objects, the proofs, and the detection of changes by others.

use crate::sample::{Objects, log_of, statement, text, vectors};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ct_merkle::mem_backed_tree::MemoryBackedTree;
use proptest::prelude::*;
use purser_evidence::{
    AppendError, Edge, Hash, ProofError, ReadError, TileError, TilePath, TreeHead, build_consistency_proof,
    build_inclusion_proof, decode_entries, decode_hashes, encode_entries, encode_hashes, read_unverified_entry,
};
use sha2::Sha256;
use std::future::Future;

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn entries(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("entry {number}")).collect()
}

/// Returns the library's tree as the reference.
fn reference(entries: &[String]) -> MemoryBackedTree<Sha256, String> {
    let mut tree = MemoryBackedTree::new();
    for entry in entries {
        tree.push(entry.clone());
    }
    tree
}

#[test]
fn log_objects_match_the_test_vectors_byte_for_byte() {
    let vectors = vectors();
    let statements: Vec<_> = vectors["statements"].as_array().unwrap().iter().collect();
    let entries: Vec<_> = statements.iter().map(|statement| text(&statement["jws"])).collect();
    for size in 0..=11 {
        let (_, head) = log_of(&entries[..size]);
        assert_eq!(head.root.to_string(), text(&vectors["roots"][size]["root"]), "{size}");
    }
    let (objects, _) = log_of(&entries);
    let mut wanted = vectors["tiles"].as_object().unwrap().clone();
    wanted.remove("checkpoint");
    assert_eq!(objects.0.len(), wanted.len());
    for (path, bytes) in objects.0 {
        assert_eq!(
            STANDARD.encode(bytes),
            text(&wanted[&path.to_string()]["base64"]),
            "{path}"
        );
    }
}

#[test]
fn each_tile_path_has_exactly_one_form() {
    for (path, written) in [
        (TilePath::for_hashes(0, 0, 11), "tile/0/000.p/11"),
        (TilePath::for_hashes(0, 1_234_067, 256), "tile/0/x001/x234/067"),
        (TilePath::for_hashes(63, 999, 1), "tile/63/999.p/1"),
        (TilePath::for_hashes(1, 1_000, 255), "tile/1/x001/000.p/255"),
        (TilePath::for_entries(0, 256), "tile/entries/000"),
        (TilePath::for_entries(1_234, 11), "tile/entries/x001/234.p/11"),
        (
            TilePath::for_entries(u64::MAX, 256),
            "tile/entries/x018/x446/x744/x073/x709/x551/615",
        ),
    ] {
        let path = path.unwrap();
        assert_eq!(path.to_string(), written);
        assert_eq!(written.parse(), Ok(path));
    }
    for wrong in [
        "tile/0/0",
        "tile/0/0000",
        "tile/0/x000/001",
        "tile/00/000",
        "tile/64/000",
        "tile/0/000.p/0",
        "tile/0/000.p/256",
        "tile/0/000.p/011",
        "tile/0/001/234",
        "tile/0/x001/x234",
        "/tile/0/000",
        "tile/0/000/",
        "tile/+1/000",
        "tile/0/",
        "tile/entries/xx001/234",
        "tile/entries/x18446/744/073/709/551/616",
        "tile/8/0/000",
        "checkpoint",
        "",
    ] {
        assert!(wrong.parse::<TilePath>().is_err(), "{wrong}");
    }
    assert!(TilePath::for_hashes(64, 0, 1).is_err());
    assert!(TilePath::for_hashes(0, 0, 0).is_err());
    assert!(TilePath::for_entries(0, 257).is_err());
}

#[test]
fn malformed_tiles_and_bundles_are_rejected() {
    let list = vec![b"a".to_vec(), vec![7; 65_535], Vec::new()];
    let bundle = encode_entries(&list).unwrap();
    assert_eq!(decode_entries(&bundle), Ok(list));
    assert_eq!(encode_entries(&[vec![0; 65_536]]), Err(TileError::TooLong));
    for length in [1, 2, bundle.len() - 1] {
        assert_eq!(decode_entries(&bundle[..length]), Err(TileError::Bytes));
    }
    let hashes = vec![Hash::for_leaf(b"a"), Hash::for_leaf(b"b")];
    let tile = encode_hashes(&hashes);
    assert_eq!(decode_hashes(&tile), Ok(hashes));
    assert_eq!(decode_hashes(&tile[..63]), Err(TileError::Bytes));
    assert_eq!(Edge::empty().append_entries(&[""]), Err(AppendError::Entry));
    assert_eq!(
        Edge::empty().append_entries(&[vec![0; 65_536]]),
        Err(AppendError::Entry)
    );
}

/// A runtime may move a handler between threads, so the futures must be `Send`.
#[test]
fn tile_reads_can_be_awaited_on_any_thread() {
    fn is_send(_: &impl Send) {}
    let (objects, head) = log_of(&entries(3));
    is_send(&Edge::read_right_edge(&objects, &head));
    is_send(&build_inclusion_proof(&objects, &head, 0, b"entry 0"));
    is_send(&build_consistency_proof(&objects, &head, &head));
    is_send(&read_unverified_entry(&objects, 3, 0));
}

/// The example in c2sp.org/tlog-tiles: 70,000 entries.
#[test]
fn a_log_has_the_tiles_that_the_specification_defines() {
    let (objects, head) = log_of(&entries(70_000));
    let count = |prefix: &str, is_full: bool| {
        let paths = objects.0.keys().filter(|path| path.to_string().starts_with(prefix));
        paths.filter(|path| path.is_full() == is_full).count()
    };
    assert_eq!((count("tile/0/", true), count("tile/0/", false)), (273, 1));
    assert_eq!((count("tile/1/", true), count("tile/1/", false)), (1, 1));
    assert_eq!((count("tile/2/", true), count("tile/2/", false)), (0, 1));
    assert_eq!((count("tile/entries/", true), count("tile/entries/", false)), (273, 1));
    for path in [
        "tile/0/273.p/112",
        "tile/1/001.p/17",
        "tile/2/000.p/1",
        "tile/entries/273.p/112",
    ] {
        assert!(objects.0.contains_key(&path.parse().unwrap()), "{path}");
    }
    let edge: Vec<_> = Edge::object_paths(head.size).iter().map(ToString::to_string).collect();
    assert_eq!(
        edge,
        [
            "tile/0/273.p/112",
            "tile/1/001.p/17",
            "tile/2/000.p/1",
            "tile/entries/273.p/112"
        ]
    );
    run(async {
        for index in [0, 255, 256, 65_535, 65_536, 69_887, 69_888, 69_999] {
            let entry = read_unverified_entry(&objects, head.size, index).await.unwrap();
            assert_eq!(entry, format!("entry {index}").into_bytes());
            build_inclusion_proof(&objects, &head, index, &entry).await.unwrap();
        }
    });
    assert_eq!(Edge::object_paths(65_536).len(), 1);
    assert_eq!(Edge::object_paths(0), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5, failure_persistence: None, ..ProptestConfig::default() })]

    /// Batches leave additional partial objects. All other objects are the same as after one append.
    #[test]
    fn appending_in_batches_gives_the_same_log(
        sizes in prop::collection::vec(prop_oneof![0..4_usize, 0..700_usize, Just(256)], 1..12),
        is_reread in any::<bool>(),
    ) {
        let mut total = 0;
        let sizes: Vec<_> = sizes.into_iter().map_while(|size| { total += size; (total <= 2_000).then_some(size) }).collect();
        let all = entries(sizes.iter().sum());
        let (at_once, head) = log_of(&all);
        let (mut objects, mut edge, mut heads) = (Objects::default(), Edge::empty(), Vec::new());
        let mut rest = all.as_slice();
        for size in sizes {
            let (batch, later) = rest.split_at(size);
            let appended = edge.append_entries(batch).unwrap();
            objects.write(&appended);
            heads.push(appended.head);
            edge = if is_reread { run(Edge::read_right_edge(&objects, &appended.head)).unwrap() } else { appended.edge.clone() };
            prop_assert_eq!(&edge, &appended.edge);
            prop_assert_eq!(edge.tree_head(), appended.head);
            rest = later;
        }
        prop_assert_eq!(edge.tree_head(), head);
        for (path, bytes) in &at_once.0 {
            prop_assert_eq!(objects.0.get(path), Some(bytes));
        }
        prop_assert!(objects.0.keys().all(|path| at_once.0.contains_key(path) || !path.is_full()));

        let tree = reference(&all);
        let root: [u8; 32] = (*tree.root().as_bytes()).into();
        prop_assert_eq!(head.root, Hash::new(root));
        for (index, entry) in all.iter().enumerate() {
            let hashes = run(build_inclusion_proof(&objects, &head, u64::try_from(index).unwrap(), entry.as_bytes())).unwrap();
            prop_assert_eq!(encode_hashes(&hashes), tree.prove_inclusion(index).as_bytes().to_vec());
        }
        for older in &heads {
            let hashes = run(build_consistency_proof(&objects, older, &head)).unwrap();
            if older.size > 0 {
                let added = usize::try_from(head.size - older.size).unwrap();
                prop_assert_eq!(encode_hashes(&hashes), tree.prove_consistency(added).as_bytes().to_vec());
            }
        }
    }

    /// A changed bit in an object that the proof needs is detected.
    #[test]
    fn a_changed_log_object_gives_no_proof(count in 1..2_000_usize, index in any::<prop::sample::Index>(), bit in any::<prop::sample::Index>()) {
        let all = entries(count);
        let (objects, head) = log_of(&all);
        let index = index.index(count);
        let at = u64::try_from(index).unwrap();
        let good = run(build_inclusion_proof(&objects, &head, at, all[index].as_bytes())).unwrap();
        for (path, bytes) in &objects.0 {
            let mut changed = objects.clone();
            let bit = bit.index(bytes.len() * 8);
            changed.0.get_mut(path).unwrap()[bit / 8] ^= 1 << (bit % 8);
            // A proof that does not need the changed object stays the same.
            match run(build_inclusion_proof(&changed, &head, at, all[index].as_bytes())) {
                Ok(hashes) => prop_assert_eq!(&hashes, &good),
                Err(error) => prop_assert!(matches!(error, ReadError::OtherTree)),
            }
            // An append reads all partial tiles at the right edge of the tree, so it detects each change.
            if !path.is_full() {
                prop_assert!(run(Edge::read_right_edge(&changed, &head)).is_err());
            }
        }
    }
}

#[test]
fn each_flipped_bit_of_an_inclusion_proof_is_rejected() {
    let all = entries(300);
    let (objects, head) = log_of(&all);
    let hashes = run(build_inclusion_proof(&objects, &head, 270, all[270].as_bytes())).unwrap();
    let verified = |hashes: &[Hash]| head.verify_inclusion(all[270].as_bytes(), 270, hashes);
    assert_eq!(verified(&hashes), Ok(()));
    for bit in 0..hashes.len() * 256 {
        let mut bytes = encode_hashes(&hashes);
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(verified(&decode_hashes(&bytes).unwrap()), Err(ProofError::Hashes));
    }
    assert_eq!(verified(&hashes[1..]), Err(ProofError::Hashes));
}

#[test]
fn partial_tiles_can_be_deleted_after_full_tiles_exist() {
    let all = entries(600);
    let (mut objects, older) = log_of(&all[..500]);
    let edge = run(Edge::read_right_edge(&objects, &older)).unwrap();
    let appended = edge.append_entries(&all[500..]).unwrap();
    objects.write(&appended);
    let partial: TilePath = "tile/0/001.p/244".parse().unwrap();
    assert!(objects.0.remove(&partial).is_some());
    assert!(run(build_inclusion_proof(&objects, &older, 499, all[499].as_bytes())).is_ok());
    objects.0.remove(&partial.to_full());
    let missing = run(build_inclusion_proof(&objects, &older, 499, all[499].as_bytes()));
    assert!(matches!(missing, Err(ReadError::Missing(path)) if path == partial));
    assert!(matches!(
        run(read_unverified_entry(&objects, 600, 600)),
        Err(ReadError::Range)
    ));
}

/// The reader has stored a checkpoint.
#[test]
fn log_forks_truncations_and_rewrites_are_detected() {
    let all = entries(700);
    let (objects, kept) = log_of(&all[..500]);
    let honest = run(Edge::read_right_edge(&objects, &kept))
        .unwrap()
        .append_entries(&all[500..])
        .unwrap();
    let mut grown = objects.clone();
    grown.write(&honest);
    assert!(run(build_consistency_proof(&grown, &kept, &honest.head)).is_ok());

    // One earlier entry differs, and all hashes above it are recomputed.
    for changed in [0, 255, 256, 499] {
        let mut other = all.clone();
        other[changed] = "rewritten".to_owned();
        let (rewritten, head) = log_of(&other);
        let refused = run(build_consistency_proof(&rewritten, &kept, &head));
        assert!(matches!(refused, Err(ReadError::OtherTree)), "{changed}");
        // Neither the honest proof nor any other proof is valid for the changed tree.
        let honest = run(build_consistency_proof(&grown, &kept, &honest.head)).unwrap();
        assert_eq!(head.verify_consistency(&kept, &honest), Err(ProofError::Hashes));
    }
    // An entry is removed or inserted.
    let without = [&all[..100], &all[101..]].concat();
    let between = [&all[..100], &["new".to_owned()], &all[100..]].concat();
    for other in [without, between] {
        let (objects, head) = log_of(&other);
        assert!(matches!(
            run(build_consistency_proof(&objects, &kept, &head)),
            Err(ReadError::OtherTree)
        ));
    }
    // The last entries are cut off, and the log continues from there.
    let (cut, head) = log_of(&all[..450]);
    assert!(matches!(
        run(build_consistency_proof(&cut, &kept, &head)),
        Err(ReadError::Range)
    ));
    let again: Vec<_> = (0..200).map(statement).collect();
    let forked = run(Edge::read_right_edge(&cut, &head))
        .unwrap()
        .append_entries(&again)
        .unwrap();
    let mut objects = cut;
    objects.write(&forked);
    assert!(forked.head.size > kept.size);
    assert!(matches!(
        run(build_consistency_proof(&objects, &kept, &forked.head)),
        Err(ReadError::OtherTree)
    ));
    // Two tree heads have the same size and different roots.
    let fork = TreeHead {
        root: Hash::for_leaf(b"fork"),
        ..kept
    };
    assert!(matches!(
        run(build_consistency_proof(&grown, &kept, &fork)),
        Err(ReadError::OtherTree)
    ));
    // An append rejects objects of a tree that differs from the checkpoint's tree.
    assert!(matches!(
        run(Edge::read_right_edge(&objects, &kept)),
        Err(ReadError::OtherTree | ReadError::Missing(_))
    ));
}

/// The next writer writes the objects again that the interrupted writer did not write.
#[test]
fn an_interrupted_append_loses_and_duplicates_no_entry() {
    let all = entries(900);
    let (start, head) = log_of(&all[..200]);
    let appended = run(Edge::read_right_edge(&start, &head))
        .unwrap()
        .append_entries(&all[200..])
        .unwrap();
    let written: Vec<_> = appended.tiles.iter().chain(&appended.bundles).cloned().collect();
    let mut finished = start.clone();
    finished.write(&appended);
    for stop in 0..=written.len() {
        let mut objects = start.clone();
        objects.0.extend(written[..stop].iter().cloned());
        let again = run(Edge::read_right_edge(&objects, &head))
            .unwrap()
            .append_entries(&all[200..])
            .unwrap();
        assert_eq!(again, appended);
        objects.write(&again);
        assert_eq!(objects, finished);
    }
}
