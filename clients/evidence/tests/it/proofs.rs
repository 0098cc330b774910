//! Tests the policies for the verification of proofs.

use crate::sample::{ORIGIN, Objects, checkpoint, log_of, log_signer, statement, text, vectors, witness};
use purser_evidence::{
    CheckpointError, KeyType, Note, NoteError, NoteSigner, TlogProof, TreeHead, build_inclusion_proof,
};
use purser_verify::{Policy, PolicyError, RejectedProof, WitnessError};

fn policy() -> Policy {
    let key = text(&vectors()["keys"]["log"]["vkey"]).parse().unwrap();
    Policy::new([(key, ORIGIN.to_owned())], Vec::new(), 0).unwrap()
}

/// Returns the proof of an entry, including the entry.
pub(crate) async fn proof_of(objects: &Objects, head: &TreeHead, index: u64, entry: &str, note: &str) -> TlogProof {
    let hashes = build_inclusion_proof(objects, head, index, entry.as_bytes())
        .await
        .unwrap();
    TlogProof::new(Some(entry.as_bytes()), index, hashes, note).unwrap()
}

#[test]
fn malformed_inclusion_proofs_are_rejected() {
    let vectors = vectors();
    let good = text(&vectors["inclusion"][5]["tlog_proof"]);
    let entry = text(&vectors["statements"][5]["jws"]);
    let verified = |text: &str| {
        let proof = text.parse::<TlogProof>().map_err(|error| error.to_string())?;
        policy()
            .verify_proof(&proof, entry.as_bytes())
            .map_err(|error| error.to_string())
    };
    let hash = good.lines().nth(5).unwrap();
    let last = good.lines().last().unwrap();
    assert!(verified(good).is_ok());
    assert!(verified(&format!("{good}\u{2014} witness.example AAAAAAE=\n")).is_ok());
    for (what, wrong) in [
        ("another index", good.replace("index 5", "index 4")),
        ("an index with a zero", good.replace("index 5", "index 05")),
        ("an index beyond the tree", good.replace("index 5", "index 11")),
        (
            "the largest index",
            good.replace("index 5", "index 18446744073709551615"),
        ),
        ("no index", good.replace("index 5\n", "")),
        ("another version", good.replace("proof@v1", "proof@v2")),
        ("an empty `extra`", good.replace("index 5", "extra \nindex 5")),
        (
            "`extra` below the index",
            good.replace("index 5", "index 5\nextra AA=="),
        ),
        ("CRLF", good.replace('\n', "\r\n")),
        ("no final line break", good.trim_end().to_owned()),
        ("a line break too many", format!("{good}\n")),
        (
            "url-safe base64",
            good.replace(hash, &hash.replace('/', "_").replace('+', "-")),
        ),
        ("an unpadded hash", good.replace(hash, hash.trim_end_matches('='))),
        ("spare bits in a hash", good.replace("kqo=", "kqp=")),
        ("a hash too few", good.replace(&format!("{hash}\n"), "")),
        ("a hash too many", good.replace(hash, &format!("{hash}\n{hash}"))),
        ("another root", good.replace("W7aK", "X7aK")),
        ("the log's line twice", format!("{good}{last}\n")),
        ("no checkpoint", good.split_once("\n\n").unwrap().0.to_owned()),
        ("many hashes", good.replace(hash, &vec![hash; 64].join("\n"))),
    ] {
        assert_ne!(wrong, good, "{what}");
        assert!(verified(&wrong).is_err(), "{what}");
    }
}

#[tokio::test]
async fn proofs_need_the_required_number_of_witnesses() {
    let entries = [statement(0), statement(1)];
    let (objects, head) = log_of(&entries);
    let note = checkpoint(head);
    let body = Note::parse(&note).unwrap().unverified_text().to_owned();
    let witnesses = [1, 2, 3].map(witness);
    let keys: Vec<_> = witnesses.iter().map(|witness| witness.verifier_key().clone()).collect();
    let log = || [(log_signer().verifier_key().clone(), ORIGIN.to_owned())];
    let [first, second, _] = witnesses
        .each_ref()
        .map(|witness| witness.cosign_checkpoint(&body, 7).unwrap());
    let unknown = witness(9).cosign_checkpoint(&body, 7).unwrap();
    let verified = |lines: &[&str], quorum: usize| {
        let note = format!("{note}{}", lines.concat());
        let policy = Policy::new(log(), keys.clone(), quorum).unwrap();
        let (objects, entries) = (objects.clone(), entries.clone());
        async move {
            let proof = proof_of(&objects, &head, 1, &entries[1], &note).await;
            let proven = policy.verify_proof(&proof, entries[1].as_bytes());
            proven.map(|proven| proven.witnesses.len())
        }
    };
    assert_eq!(verified(&[], 0).await, Ok(0));
    assert_eq!(verified(&[&second, &unknown, &first], 2).await, Ok(2));
    let too_few = |cosigned, quorum| Err(RejectedProof::Witnesses(WitnessError::TooFew { cosigned, quorum }));
    assert_eq!(verified(&[&first, &unknown], 2).await, too_few(1, 2));
    assert!(matches!(
        verified(&[&first, &first], 1).await,
        Err(RejectedProof::Witnesses(WitnessError::Note(_)))
    ));
    // An invalid cosignature by a known witness makes the note invalid, although there are enough others.
    let invalid = witnesses[2].cosign_checkpoint("other\n", 7).unwrap();
    assert!(verified(&[&first, &second, &invalid], 2).await.is_err());

    let other_type = NoteSigner::new(ORIGIN, KeyType::Cosignature, &crate::sample::seed(2)).unwrap();
    let policy = |logs, witnesses, quorum| Policy::new(logs, witnesses, quorum);
    let renamed = NoteSigner::new("other.example", KeyType::Cosignature, &crate::sample::seed(101)).unwrap();
    for (refused, why) in [
        (
            policy([(keys[0].clone(), ORIGIN.to_owned())], vec![], 0),
            PolicyError::Log,
        ),
        (
            policy(log(), vec![log_signer().verifier_key().clone()], 0),
            PolicyError::Witness,
        ),
        (
            policy(log(), vec![other_type.verifier_key().clone()], 0),
            PolicyError::Witness,
        ),
        (
            policy(log(), vec![keys[0].clone(), renamed.verifier_key().clone()], 2),
            PolicyError::Witness,
        ),
        (policy(log(), keys.clone(), 4), PolicyError::Quorum),
    ] {
        assert_eq!(refused, Err(why));
    }
}

#[test]
fn a_log_may_have_several_keys() {
    let (_, head) = log_of(&[statement(0)]);
    let (note, new) = (
        checkpoint(head),
        NoteSigner::new(ORIGIN, KeyType::Ed25519, &crate::sample::seed(9)).unwrap(),
    );
    let keys = [new.verifier_key(), log_signer().verifier_key()].map(|key| (key.clone(), ORIGIN.to_owned()));
    let policy = Policy::new(keys.clone(), Vec::new(), 0).unwrap();
    let opened = |note: &str| policy.open_checkpoint(&Note::parse(note).unwrap());
    let line_on = |text: &str| new.sign_text(text).unwrap().lines().last().unwrap().to_owned();
    let text = Note::parse(&note).unwrap().unverified_text().to_owned();
    assert!(opened(&note).is_ok());
    assert!(opened(&format!("{note}{}\n", line_on(&text))).is_ok());
    // A valid signature does not compensate for an invalid signature by another trusted key.
    let refused = CheckpointError::Note(NoteError::Signature(ORIGIN.to_owned()));
    assert_eq!(opened(&format!("{note}{}\n", line_on("other\n"))), Err(refused));
    let only = Policy::new([keys[0].clone()], Vec::new(), 0).unwrap();
    let unsigned = CheckpointError::Note(NoteError::Unsigned(ORIGIN.to_owned()));
    assert_eq!(only.open_checkpoint(&Note::parse(&note).unwrap()), Err(unsigned));
}
