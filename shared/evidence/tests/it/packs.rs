//! Files of evidence, and the signed objects of providers in them. The objects are those of the official package.

use crate::sample::{ORIGIN, checkpoint, log_of, log_signer, proof_of, statement_key};
use purser_evidence::{
    DocumentError, EvidenceReport, JwkSet, Outcome, ProviderError, ProviderObject, ProviderSigner, StatementKind,
    Trust, is_evidence, verify_evidence,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../provider.json")).unwrap()
}

fn trust() -> Trust {
    let file = json!({
        "jwks": JwkSet::new(statement_key().jwk().clone(), []),
        "logs": [{"vkey": log_signer().verifier().to_string(), "origin": ORIGIN}],
    });
    Trust::parse(&file.to_string()).unwrap()
}

/// The SHA-256 of the RFC 8785 form.
fn hash(document: &Value) -> String {
    let digest = Sha256::digest(serde_json_canonicalizer::to_vec(document).unwrap());
    digest
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// A file about the payment of the vectors, with these provider's objects.
async fn file(provider: Value) -> Value {
    let vectors = vectors();
    let inputs = json!({"agent": {"status": "active"}, "policy": null, "service": {"slug": "lab"}});
    let hashed = json!({
        "facts": {
            "agent_id": "a", "network": "eip155:84532", "asset": vectors["asset"], "amount_units": vectors["amount"],
            "pay_to": vectors["payTo"], "call": {"url": vectors["url"]},
        },
        "inputs": {
            "agent_hash": hash(&inputs["agent"]), "policy_hash": hash(&Value::Null), "service_hash": hash(&inputs["service"]),
        },
        "reason": "x402_authorized",
        "result": "allow",
    });
    let mut decision = json!({"settlement_id": "s", "transaction_id": "t", "decision_hash": hash(&hashed)});
    decision
        .as_object_mut()
        .unwrap()
        .extend(hashed.as_object().unwrap().clone());
    let receipt = json!({
        "settlement_id": "s", "transaction_id": "t",
        "settlement": {
            "agent_id": "a", "network": "eip155:84532", "asset": vectors["asset"], "amount_units": vectors["amount"],
            "pay_to": vectors["payTo"], "wallet": vectors["payer"], "tx_hash": vectors["transaction"],
        },
    });
    let sign = |kind, payload: &Value| statement_key().sign(kind, payload.to_string().as_bytes()).unwrap();
    let entries = [
        sign(StatementKind::Decision, &decision),
        sign(StatementKind::Receipt, &receipt),
    ];
    let (objects, head) = log_of(&entries);
    let note = checkpoint(head);
    let mut stated = Vec::new();
    for (index, entry) in (0..).zip(&entries) {
        let proof = proof_of(&objects, &head, index, entry, &note).await;
        stated.push(json!({"statement": entry, "proof": proof.to_string(), "index": index}));
    }
    json!({"how_to_check": [], "decision": stated[0], "receipt": stated[1], "inputs": inputs, "provider": provider})
}

fn verified(file: &Value) -> EvidenceReport {
    let text = serde_json::to_string_pretty(file).unwrap();
    assert!(is_evidence(&text));
    verify_evidence(&text, &trust()).unwrap()
}

/// The steps that neither passed nor are about witnesses, as `part step: outcome`.
fn not_passed(report: &EvidenceReport) -> Vec<String> {
    let steps = report.steps().iter();
    let steps = steps.filter(|step| step.step.step.to_string() != "witnesses");
    let told = steps.filter_map(|step| {
        let outcome = match step.step.outcome {
            Outcome::Passed(_) => return None,
            Outcome::Failed(_) => "failed",
            Outcome::Skipped(_) => "skipped",
        };
        Some(format!("{} {}: {outcome}", step.part.name(), step.step.step))
    });
    told.collect()
}

fn object(name: &str) -> Value {
    let vectors = vectors();
    let mut all = vectors["vectors"].as_array().unwrap().iter();
    all.find(|vector| vector["name"] == name).unwrap()["object"].clone()
}

#[test]
fn objects_of_providers_have_the_signer_that_the_official_package_finds() {
    for vector in vectors()["vectors"].as_array().unwrap() {
        let kind: ProviderObject = serde_json::from_value(vector["kind"].clone()).unwrap();
        let signed = kind.verify(&vector["object"]).unwrap();
        let who = vector["signer"].as_str().unwrap().to_owned();
        let expected = match vector["object"]["format"].as_str().unwrap() {
            "eip712" => ProviderSigner::Address(who),
            _ if who.starts_with("did:web") => ProviderSigner::Unknown(who),
            _ => ProviderSigner::Key(who),
        };
        assert_eq!(signed.signer, expected, "{}", vector["name"]);
        assert_eq!(signed.payload["resourceUrl"], vectors()["url"]);

        // A changed payload has no valid signature, or that of somebody else.
        let mut changed = vector["object"].clone();
        if changed["payload"].is_object() {
            changed["payload"]["network"] = json!("eip155:8453");
            let signed = kind.verify(&changed);
            assert!(signed.is_err() || signed.is_ok_and(|signed| signed.signer != expected));
        } else if matches!(expected, ProviderSigner::Key(_)) {
            let jws = changed["signature"].as_str().unwrap().to_owned();
            let (header, rest) = jws.split_once('.').unwrap();
            changed["signature"] = format!("{header}.e30.{}", rest.split_once('.').unwrap().1).into();
            assert_eq!(kind.verify(&changed), Err(ProviderError::Signature));
        }
    }
    let receipt = object("a receipt by the payee");
    for (name, value) in [
        ("signature", json!("0x00")),
        ("signature", json!("no")),
        ("payload", json!({})),
        ("format", json!("xml")),
    ] {
        let mut wrong = receipt.clone();
        wrong[name] = value;
        assert!(ProviderObject::Receipt.verify(&wrong).is_err(), "{name}");
    }
    assert_eq!(
        ProviderObject::Offer.verify(&receipt),
        Err(ProviderError::Form),
        "it is no offer"
    );
}

#[tokio::test]
async fn a_file_of_evidence_passes_each_step() {
    let provider = json!({"offers": [object("an offer by the payee")], "receipt": object("a receipt by the payee")});
    let file = file(provider).await;
    let report = verified(&file);
    assert_eq!(not_passed(&report), [""; 0]);
    assert!(report.is_verified() && report.decision().is_some() && report.receipt().is_some());

    // Without the documents of the inputs, the receipt or the provider's objects, the rest is verified.
    for name in ["inputs", "receipt", "provider"] {
        let mut less = file.clone();
        less[name] = Value::Null;
        let report = verified(&less);
        let missing: &[&str] = if name == "receipt" {
            &["receipt statement: skipped"]
        } else {
            &[]
        };
        assert_eq!(not_passed(&report), missing);
        assert!(report.is_verified(), "{name}");
    }
    let neither = json!({"decision": null, "receipt": null});
    assert!(!verified(&neither).is_verified());
    for malformed in ["{", "{}", r#"{"decision": 1}"#] {
        let refused = verify_evidence(malformed, &trust());
        assert!(matches!(refused, Err(DocumentError::Evidence(_))), "{malformed}");
    }
}

/// The step that finds a change of a file, and the change.
type Change<'a> = (&'a str, &'a dyn Fn(&mut Value));

#[tokio::test]
async fn a_changed_file_of_evidence_is_refused() {
    let provider = json!({"offers": [object("an offer by the payee")], "receipt": object("a receipt by the payee")});
    let file = file(provider).await;
    let swapped = |file: &mut Value| {
        let decision = file["decision"].take();
        file["decision"] = file["receipt"].take();
        file["receipt"] = decision;
    };
    let cases: [Change<'_>; 6] = [
        ("decision hashes: failed", &|file| {
            file["inputs"]["agent"]["status"] = json!("frozen");
        }),
        ("decision statement: failed", &|file| {
            file["decision"]["statement"] = file["receipt"]["statement"].clone();
        }),
        ("receipt statement: failed", &swapped),
        ("receipt statement: failed", &|file| {
            file["receipt"]["proof"] = json!("no proof");
        }),
        ("provider offer: failed", &|file| {
            file["provider"]["offers"][0]["payload"]["amount"] = json!("10001");
        }),
        ("provider provider_receipt: failed", &|file| {
            file["provider"]["receipt"]["payload"]["transaction"] = json!("0x00");
        }),
    ];
    for (step, change) in cases {
        let mut changed = file.clone();
        change(&mut changed);
        let report = verified(&changed);
        assert!(
            not_passed(&report).contains(&step.to_owned()),
            "{step}: {:?}",
            not_passed(&report)
        );
        assert!(!report.is_verified(), "{step}");
    }
}

/// A signature by an unknown signer proves nothing, and says so; one of several offers is enough.
#[tokio::test]
async fn signers_that_are_not_the_payee_are_named() {
    let other = json!({"offers": [object("an offer by did:web")], "receipt": object("a receipt by another")});
    let report = verified(&file(other).await);
    assert_eq!(
        not_passed(&report),
        ["provider offer: skipped", "provider provider_receipt: skipped"]
    );
    assert!(report.is_verified());

    let mut of_another = object("an offer by the payee");
    of_another["payload"]["amount"] = json!("1");
    let offers = json!([object("an offer by ES256 and did:key"), of_another]);
    let report = verified(&file(json!({"offers": offers})).await);
    assert_eq!(not_passed(&report), ["provider offer: skipped"]);
    assert!(report.is_verified());
    let named = report.steps().iter().any(|step| match &step.step.outcome {
        Outcome::Passed(found) => found.contains("did:key:z") && found.contains("ask whose key it is"),
        _ => false,
    });
    assert!(named);
}
