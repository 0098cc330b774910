//! Tests the text format of proofs (c2sp.org/tlog-proof).

use crate::sample::{text, vectors};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use purser_evidence::{Hash, ProofError, TlogProof, TreeHead};
use serde_json::Value;

fn hashes(value: &Value) -> Vec<Hash> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|hash| text(hash).parse().unwrap())
        .collect()
}

fn head(vectors: &Value, size: usize) -> TreeHead {
    TreeHead {
        size: size.try_into().unwrap(),
        root: text(&vectors["roots"][size]["root"]).parse().unwrap(),
    }
}

#[test]
fn inclusion_proofs_match_the_test_vectors() {
    let vectors = vectors();
    for (index, proof) in vectors["inclusion"].as_array().unwrap().iter().enumerate() {
        let entry = text(&vectors["statements"][index]["jws"]).as_bytes();
        for (name, extra) in [("tlog_proof", None), ("tlog_proof_with_extra", Some(entry))] {
            let written = text(&proof[name]);
            let read: TlogProof = written.parse().unwrap();
            assert_eq!(read.to_string(), written);
            assert_eq!(read.unverified_extra_data(), extra);
            assert_eq!(read.verify_inclusion(entry, &head(&vectors, 11)), Ok(()));
            assert_eq!(usize::try_from(read.entry_index()).unwrap(), index);
            let note = text(&vectors["checkpoints"]["11"]);
            let made = TlogProof::new(extra, read.entry_index(), hashes(&proof["hashes"]), note).unwrap();
            assert_eq!(made, read);
        }
    }
}

#[test]
fn a_log_leaf_is_the_hash_of_the_exact_statement() {
    let vectors = vectors();
    for statement in vectors["statements"].as_array().unwrap() {
        let hash = Hash::for_leaf(text(&statement["jws"]).as_bytes());
        assert_eq!(hash.to_string(), text(&statement["leaf_hash"]));
    }
    let read: TlogProof = text(&vectors["inclusion"][5]["tlog_proof"]).parse().unwrap();
    let entry = text(&vectors["statements"][5]["jws"]);
    for wrong in [format!("{entry}\n"), format!("{entry}=="), entry[1..].to_owned()] {
        let verified = read.verify_inclusion(wrong.as_bytes(), &head(&vectors, 11));
        assert_eq!(verified, Err(ProofError::Hashes));
    }
    let other = text(&vectors["statements"][4]["jws"]);
    assert!(read.verify_inclusion(other.as_bytes(), &head(&vectors, 11)).is_err());
}

#[test]
fn consistency_proofs_match_the_test_vectors() {
    let vectors = vectors();
    for proof in vectors["consistency_all"].as_array().unwrap() {
        let size = |name: &str| usize::try_from(proof[name].as_u64().unwrap()).unwrap();
        let (old, new) = (head(&vectors, size("old")), head(&vectors, size("new")));
        let hashes = hashes(&proof["hashes"]);
        assert_eq!(new.verify_consistency(&old, &hashes), Ok(()));
        let forked = TreeHead {
            root: Hash::for_leaf(b"fork"),
            ..old
        };
        assert_eq!(new.verify_consistency(&forked, &hashes), Err(ProofError::Hashes));
        let longer = [hashes.clone(), vec![old.root]].concat();
        assert_eq!(new.verify_consistency(&old, &longer), Err(ProofError::Hashes));
        if old.size < new.size {
            assert_eq!(old.verify_consistency(&new, &hashes), Err(ProofError::Range));
        }
    }
    let empty = head(&vectors, 0);
    assert_eq!(empty, TreeHead::empty());
    for size in 0..=11 {
        assert_eq!(head(&vectors, size).verify_consistency(&empty, &[]), Ok(()));
    }
    let huge = TreeHead {
        size: u64::MAX,
        ..empty
    };
    assert_eq!(huge.verify_consistency(&empty, &[]), Err(ProofError::Range));
    assert_eq!(huge.verify_inclusion(b"", 1, &[]), Err(ProofError::Range));
    assert_eq!(empty.verify_inclusion(b"", 0, &[]), Err(ProofError::Range));
}

#[test]
fn each_hash_has_exactly_one_text_form() {
    let hash = Hash::for_leaf(b"a");
    let text = hash.to_string();
    assert_eq!(text.parse(), Ok(hash));
    let bytes = STANDARD.decode(&text).unwrap();
    for wrong in [
        format!("{text}\n"),
        text.replace('=', ""),
        STANDARD.encode(&bytes[1..]),
        String::new(),
    ] {
        assert!(wrong.parse::<Hash>().is_err(), "{wrong}");
    }
}
