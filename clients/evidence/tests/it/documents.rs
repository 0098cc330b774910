//! Verifies documents step by step.

use crate::proofs::proof_of;
use crate::sample::{ORIGIN, checkpoint, log_of, log_signer, seed, statement, statement_key, witness};
use purser_evidence::{JwkSet, KeyType, Note, NoteSigner, TlogProof};
use purser_verify::{DocumentError, Outcome, Report, Step, StepName, Trust, TrustError, verify_document};
use serde_json::{Value, json};

fn trust_file() -> Value {
    json!({
        "jwks": JwkSet::new(statement_key().jwk().clone(), []),
        "logs": [{"vkey": log_signer().verifier_key().to_string(), "origin": ORIGIN}],
        "witnesses": [witness(1).verifier_key().to_string(), witness(2).verifier_key().to_string()],
        "quorum": 1,
    })
}

fn trust_with(change: impl FnOnce(&mut Value)) -> Trust {
    let mut file = trust_file();
    change(&mut file);
    Trust::parse(&file.to_string()).unwrap()
}

async fn document() -> String {
    let entries: Vec<_> = (0..5).map(statement).collect();
    let (objects, head) = log_of(&entries);
    let note = checkpoint(head);
    let body = Note::parse(&note).unwrap().unverified_text().to_owned();
    let note = format!("{note}{}", witness(1).cosign_checkpoint(&body, 1_700_000_000).unwrap());
    proof_of(&objects, &head, 3, &entries[3], &note).await.to_string()
}

/// Returns `statement: passed` and so on, for each step.
fn outcomes(report: &Report) -> Vec<String> {
    let outcome = |step: &Step| match step.outcome {
        Outcome::Passed(_) => "passed",
        Outcome::Failed(_) => "failed",
        Outcome::Skipped(_) => "skipped",
    };
    let steps = report.steps().iter();
    steps.map(|step| format!("{}: {}", step.step, outcome(step))).collect()
}

#[tokio::test]
async fn a_proof_with_its_statement_passes_every_verification_step() {
    let report = verify_document(&document().await, &trust_with(|_| ())).unwrap();
    let steps = [
        "statement: passed",
        "inclusion: passed",
        "checkpoint: passed",
        "witnesses: passed",
    ];
    assert_eq!(outcomes(&report), steps);
    assert!(report.is_verified());
    assert_eq!(report.statement().unwrap().payload(), br#"{"id":3}"#);
    assert_eq!(
        serde_json::to_value(report.steps()).unwrap()[1],
        json!({"step": "inclusion", "outcome": "passed", "detail": "entry 3 of 5"})
    );
}

#[test]
fn verifying_a_statement_without_proof_skips_the_log() {
    let report = verify_document(&statement(1), &trust_with(|_| ())).unwrap();
    let steps = [
        "statement: passed",
        "inclusion: skipped",
        "checkpoint: skipped",
        "witnesses: skipped",
    ];
    assert_eq!(outcomes(&report), steps);
    assert!(report.is_verified());
}

#[tokio::test]
async fn statements_of_untrusted_keys_fail() {
    let other = NoteSigner::new(ORIGIN, KeyType::Ed25519, &seed(9)).unwrap();
    let document = document().await;
    let trusts = [
        (trust_with(|file| file["jwks"]["keys"] = json!([])), "statement: failed"),
        (trust_with(|file| file["logs"] = json!([])), "checkpoint: failed"),
        (trust_with(|file| file["logs"] = json!([])), "inclusion: failed"),
        (trust_with(|file| file["logs"] = json!([])), "witnesses: failed"),
        (
            trust_with(|file| file["logs"][0]["origin"] = json!("log.example/other")),
            "checkpoint: failed",
        ),
        (
            trust_with(|file| file["logs"][0]["vkey"] = json!(other.verifier_key().to_string())),
            "checkpoint: failed",
        ),
        (trust_with(|file| file["quorum"] = json!(2)), "witnesses: failed"),
    ];
    for (trust, failed) in trusts {
        let report = verify_document(&document, &trust).unwrap();
        assert!(!report.is_verified(), "{failed}");
        assert_eq!(report.statement(), None);
        assert!(outcomes(&report).contains(&failed.to_owned()), "{:?}", report.steps());
    }
    // The log's key was rotated, and the old key still verifies.
    let rotated = trust_with(|file| {
        let old = file["logs"][0].clone();
        file["logs"] = json!([{"vkey": other.verifier_key().to_string(), "origin": ORIGIN}, old]);
    });
    assert!(verify_document(&document, &rotated).unwrap().is_verified());
    let without = trust_with(|file| (file["quorum"], file["witnesses"]) = (json!(0), json!([])));
    let report = verify_document(&document, &without).unwrap();
    assert_eq!(outcomes(&report)[3], "witnesses: skipped");
    assert!(report.is_verified());
}

#[tokio::test]
async fn a_proof_without_a_statement_fails() {
    let proof: TlogProof = document().await.parse().unwrap();
    let note = proof.to_string().split_once("\n\n").unwrap().1.to_owned();
    let without = TlogProof::new(None, 3, Vec::new(), &note).unwrap().to_string();
    let binary = TlogProof::new(Some(&[0xff]), 3, Vec::new(), &note).unwrap().to_string();
    for document in [without, binary] {
        let report = verify_document(&document, &trust_with(|_| ())).unwrap();
        assert_eq!(outcomes(&report)[..2], ["statement: failed", "inclusion: failed"]);
        assert!(!report.is_verified());
    }
}

#[tokio::test]
async fn each_flipped_bit_of_a_proof_document_is_rejected() {
    let (document, trust) = (document().await, trust_with(|_| ()));
    for at in 0..document.len() * 8 {
        let mut bytes = document.clone().into_bytes();
        bytes[at / 8] ^= 1 << (at % 8);
        let Ok(changed) = String::from_utf8(bytes) else {
            continue;
        };
        // A witness with another name is unknown, so the quorum is not reached.
        let is_verified = verify_document(&changed, &trust).is_ok_and(|report| report.is_verified());
        assert!(!is_verified, "bit {at}: {changed}");
    }
}

#[test]
fn statements_of_an_unknown_kind_fail() {
    let vectors = crate::sample::vectors();
    let keys = &vectors["keys"];
    let trust = trust_with(|file| file["jwks"]["keys"] = json!([keys["EdDSA"]["public"]]));
    let document = crate::sample::text(&vectors["statements"][1]["jws"]);
    let report = verify_document(document, &trust).unwrap();
    assert_eq!(outcomes(&report)[0], "statement: failed");
    assert!(!report.is_verified());
}

#[test]
fn noncanonical_statements_fail_and_other_documents_are_unreadable() {
    let (good, trust) = (statement(1), trust_with(|_| ()));
    for wrong in [format!("{good}\n"), format!("{good}="), good.replacen('.', "A.", 1)] {
        assert!(!verify_document(&wrong, &trust).unwrap().is_verified(), "{wrong}");
    }
    for unreadable in ["", "\n", "a.b", "a.b.c.d", "a..c", "{}", "a b.c.d"] {
        assert_eq!(
            verify_document(unreadable, &trust),
            Err(DocumentError::Unknown),
            "{unreadable}"
        );
    }
    let proof = "c2sp.org/tlog-proof@v1\nindex 0\n";
    assert!(matches!(verify_document(proof, &trust), Err(DocumentError::Proof(_))));
}

#[test]
fn verification_steps_added_by_the_caller_affect_the_evidence_report() {
    let mut report = verify_document(&statement(1), &trust_with(|_| ())).unwrap();
    report.add_step(Step::new(StepName::Chain, Outcome::Skipped("no node".to_owned())));
    assert!(report.is_verified());
    report.add_step(Step::new(StepName::Chain, Outcome::Failed("no transfer".to_owned())));
    assert!(!report.is_verified());
    assert_eq!(report.statement(), None);
}

#[test]
fn malformed_or_inconsistent_trust_files_are_rejected() {
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut file = trust_file();
        change(&mut file);
        Trust::parse(&file.to_string()).unwrap_err()
    };
    let changes: [fn(&mut Value); 5] = [
        |file| file["keys"] = json!([]),
        |file| file["jwks"] = json!([]),
        |file| file["logs"][0]["vkey"] = json!("a"),
        |file| file["quorum"] = json!(-1),
        |file| drop(file.as_object_mut().unwrap().remove("jwks")),
    ];
    for change in changes {
        assert!(matches!(refused(&change), TrustError::Unreadable(_)));
    }
    assert!(matches!(
        refused(&|file| file["quorum"] = json!(3)),
        TrustError::Policy(_)
    ));
    assert!(matches!(
        refused(&|file| file["witnesses"][1] = file["witnesses"][0].clone()),
        TrustError::Policy(_)
    ));
    let least = json!({"jwks": {"keys": []}});
    assert!(Trust::parse(&least.to_string()).is_ok());
}
