//! Tests evidence files, with signed objects of providers that the official package created.

use crate::proofs::proof_of;
use crate::sample::{ORIGIN, checkpoint, log_of, log_signer, statement_key};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use purser_evidence::{Hash, JwkSet, StatementKind};
use purser_verify::{
    DocumentError, EvidenceReport, Outcome, ProviderError, ProviderKey, ProviderKeyError, ProviderObject,
    ProviderSigner, Trust, is_evidence_file, verify_evidence,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// JSON parsers differ in which of two equal fields they use, so a repeated field is rejected.
#[test]
fn duplicate_fields_in_an_evidence_file_are_rejected() {
    let trust = trust();
    let trusted = serde_json::to_string(&json!({
        "jwks": JwkSet::new(statement_key().jwk().clone(), []), "logs": [], "providers": [{"host": "a.example", "keys": []}],
    }));
    let trusted = trusted.unwrap();
    for sample in [
        include_str!("../../../../docs/evidence/sample/receipt.json"),
        include_str!("../../../../docs/evidence/sample/block.json"),
        &trusted,
    ] {
        let is_readable = |json: &str| {
            if sample == trusted {
                Trust::parse(json).is_ok()
            } else {
                verify_evidence(json, &trust).is_ok()
            }
        };
        assert!(is_readable(sample));
        let mut doubled = 0;
        for (at, _) in sample.match_indices('"') {
            let Some((name, value)) = sample[at..].split_once(':') else {
                continue;
            };
            // Repeats a field with a short value, which ends at a comma or at the end of the object.
            let Some(end) = value.find([',', '}', ']', '{', '[']) else {
                continue;
            };
            let is_name = name.len() > 2 && name.ends_with('"') && name.matches('"').count() == 2;
            let is_field = is_name && matches!(&value[end..=end], "," | "}");
            if !is_field || serde_json::from_str::<Value>(&value[..end]).is_err() {
                continue;
            }
            let field = &sample[at..at + name.len() + 1 + end];
            let twice = format!("{}{field},{}", &sample[..at], &sample[at..]);
            assert!(serde_json::from_str::<Value>(&twice).is_ok(), "{field}");
            assert!(!is_readable(&twice), "{field}");
            doubled += 1;
        }
        assert!(doubled >= 3, "{doubled}");
    }
}

fn vectors() -> Value {
    serde_json::from_str(include_str!("../provider.json")).unwrap()
}

fn trust() -> Trust {
    let file = json!({
        "jwks": JwkSet::new(statement_key().jwk().clone(), []),
        "logs": [{"vkey": log_signer().verifier_key().to_string(), "origin": ORIGIN}],
    });
    Trust::parse(&file.to_string()).unwrap()
}

/// Returns the SHA-256 of the RFC 8785 form.
fn hash(document: &Value) -> String {
    let digest = Sha256::digest(serde_json_canonicalizer::to_vec(document).unwrap());
    digest
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// Returns an evidence file about the payment in the test vectors, with the provider's signed objects.
async fn file(provider: Value) -> Value {
    file_of("allow", provider).await
}

/// Returns the evidence file of [`file`] for a decision with this `result`.
async fn file_of(result: &str, provider: Value) -> Value {
    file_with(result, provider, &[]).await
}

/// Returns an evidence file with these later changes. Changes 4 and 6 concern another payment or decision.
async fn file_with(result: &str, provider: Value, changes: &[usize]) -> Value {
    let vectors = vectors();
    let inputs = json!({"agent": {"status": "active"}, "policy": null, "service": {"slug": "lab"}});
    let hashed = json!({
        "facts": {
            "agent_id": "a", "network": "eip155:84532", "asset": vectors["asset"], "amount_units": vectors["amount"],
            "pay_to": vectors["payTo"], "call": {"url": vectors["url"]},
        },
        "settlement_id": "s", "transaction_id": "t", "approval_id": null,
        "reason": "x402_authorized",
        "result": result,
    });
    let mut decision = json!({
        "decision_hash": hash(&hashed),
        "inputs": {
            "agent_hash": hash(&inputs["agent"]), "policy_hash": hash(&Value::Null), "service_hash": hash(&inputs["service"]),
        },
    });
    decision
        .as_object_mut()
        .unwrap()
        .extend(hashed.as_object().unwrap().clone());
    let receipt = json!({
        "settlement_id": "s", "transaction_id": "t",
        "settlement": {
            "agent_id": "a", "network": "eip155:84532", "asset": vectors["asset"], "amount_units": vectors["amount"],
            "pay_to": vectors["payTo"], "wallet": vectors["payer"], "tx_hash": vectors["transaction"],
            "settled_at": "2026-11-26T12:00:09.120000Z",
        },
    });
    let row = json!({
        "id": "s", "transaction_id": "t", "agent_id": "a", "network": "base-sepolia", "token": "USDC",
        "amount_units": vectors["amount"], "pay_to": vectors["payTo"], "receipt_status": "confirmed",
        "tx_hash": vectors["transaction"], "settled_at": "2026-11-26T12:00:09.12Z",
    });
    let sign = |kind, payload: &Value| statement_key().sign(kind, payload.to_string().as_bytes()).unwrap();
    let receipt = sign(StatementKind::Receipt, &receipt);
    let leaf = Hash::for_leaf(receipt.as_bytes());
    let leaf_hash = leaf
        .as_bytes()
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let change = |name: &str, settlement: &str, receipt: Value| {
        let change = json!({"change": name, "settlement_id": settlement, "changed_receipt": receipt});
        sign(StatementKind::Change, &change)
    };
    let approval = |hash: &Value| {
        let decided = json!({"transaction_id": "t", "decision_hash": hash});
        let change = json!({"change": "approval", "changed_decision": decided, "approval": {}});
        sign(StatementKind::Change, &change)
    };
    let entries = [
        sign(StatementKind::Decision, &decision),
        receipt,
        change("release", "s", Value::Null),
        change("reversal", "s", json!({"leaf_hash": leaf_hash})),
        change("release", "other", Value::Null),
        approval(&decision["decision_hash"]),
        approval(&json!("0")),
    ];
    let (objects, head) = log_of(&entries);
    let note = checkpoint(head);
    let mut stated = Vec::new();
    for (index, entry) in (0..).zip(&entries) {
        let proof = proof_of(&objects, &head, index, entry, &note).await;
        stated.push(json!({"statement": entry, "proof": proof.to_string(), "index": index}));
    }
    let changes: Vec<&Value> = changes.iter().map(|change| &stated[*change]).collect();
    json!({
        "settlement_id": "s", "transaction_id": "t", "how_to_check": ["ask"], "decision": stated[0], "receipt": stated[1],
        "changes": changes,
        "inputs": inputs, "settlement": row, "trust": {"jwks": {"keys": []}, "logs": []}, "provider": provider,
    })
}

fn verified(file: &Value) -> EvidenceReport {
    let text = serde_json::to_string_pretty(file).unwrap();
    assert!(is_evidence_file(&text));
    verify_evidence(&text, &trust()).unwrap()
}

#[tokio::test]
async fn a_receipt_with_a_reverted_confirmation_is_void() {
    let none = || json!({"offers": [], "receipt": null});
    for (changes, failed) in [
        (vec![2], vec![]),
        (vec![2, 3], vec!["changes payment: failed"]),
        (vec![4], vec!["changes payment: failed"]),
        (vec![5], vec![]),
        (vec![6], vec!["changes payment: failed"]),
        // A decision is not a change.
        (vec![0], vec!["changes statement: failed"]),
    ] {
        let mut file = file_with("allow", none(), &changes).await;
        let report = verified(&file);
        let pointers = report
            .unverified_pointers()
            .iter()
            .filter(|pointer| pointer.contains("changes"));
        assert_eq!(
            (not_passed(&report), report.is_verified()),
            (
                failed.iter().map(|step: &&str| (*step).to_owned()).collect(),
                failed.is_empty()
            )
        );
        assert_eq!(pointers.count() > 0, changes == [0]);
        // Without the receipt in the file, a reversal makes nothing in the file void.
        file["receipt"] = Value::Null;
        let report = verified(&file);
        assert_eq!(
            not_passed(&report).contains(&"changes payment: failed".to_owned()),
            matches!(changes[..], [4 | 6])
        );
    }
}

/// Returns the steps that did not pass, except the steps about witnesses, as `part step: outcome`.
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
fn the_signers_of_x402_offers_and_receipts_match_the_official_package() {
    for vector in vectors()["vectors"].as_array().unwrap() {
        let kind: ProviderObject = serde_json::from_value(vector["kind"].clone()).unwrap();
        let signed = kind.verify(&vector["object"], &[]).unwrap();
        let who = vector["signer"].as_str().unwrap().to_owned();
        let expected = match vector["object"]["format"].as_str().unwrap() {
            "eip712" => ProviderSigner::Address(who),
            _ if who.starts_with("did:web") => ProviderSigner::Unknown(who),
            _ => ProviderSigner::Key(who),
        };
        assert_eq!(signed.signer, expected, "{}", vector["name"]);
        assert_eq!(signed.payload["resourceUrl"], vectors()["url"]);

        // A changed payload has an invalid signature or another signer.
        let mut changed = vector["object"].clone();
        if changed["payload"].is_object() {
            changed["payload"]["network"] = json!("eip155:8453");
            let signed = kind.verify(&changed, &[]);
            assert!(signed.is_err() || signed.is_ok_and(|signed| signed.signer != expected));
        } else if matches!(expected, ProviderSigner::Key(_)) {
            let jws = changed["signature"].as_str().unwrap().to_owned();
            let (header, rest) = jws.split_once('.').unwrap();
            changed["signature"] = format!("{header}.e30.{}", rest.split_once('.').unwrap().1).into();
            assert_eq!(kind.verify(&changed, &[]), Err(ProviderError::Signature));
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
        assert!(ProviderObject::Receipt.verify(&wrong, &[]).is_err(), "{name}");
    }
    assert_eq!(
        ProviderObject::Offer.verify(&receipt, &[]),
        Err(ProviderError::Form),
        "it is no offer"
    );
}

#[tokio::test]
async fn an_evidence_file_passes_every_verification_step() {
    let provider = json!({"offers": [object("an offer by the payee")], "receipt": object("a receipt by the payee")});
    let file = file(provider).await;
    let report = verified(&file);
    assert_eq!(not_passed(&report), [""; 0]);
    assert!(report.is_verified() && report.decision_statement().is_some() && report.receipt_statement().is_some());

    assert_eq!(
        report.unverified_pointers(),
        ["/how_to_check", "/provider/offers/0/acceptIndex", "/trust"]
    );

    // The rest of the file is still verified.
    for (name, missing) in [
        ("inputs", &[][..]),
        (
            "decision",
            &["decision statement: skipped", "provider provider_receipt: skipped"],
        ),
        ("provider", &[]),
    ] {
        let mut less = file.clone();
        less[name] = Value::Null;
        if name == "decision" {
            less["provider"]["offers"] = json!([]);
        }
        let report = verified(&less);
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

/// The step that detects a change of a file, and the change.
type Change<'a> = (&'a str, &'a dyn Fn(&mut Value));

#[tokio::test]
async fn a_changed_evidence_file_is_rejected() {
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

/// The decision alone proves no payment, unless the decision denied the payment.
#[tokio::test]
async fn an_evidence_file_without_required_parts_is_not_verified() {
    for (result, is_verified) in [("allow", false), ("block", true), ("escalate", true)] {
        let mut file = file_of(result, Value::Null).await;
        file["receipt"] = Value::Null;
        file["settlement"] = Value::Null;
        let report = verified(&file);
        assert_eq!(not_passed(&report), ["receipt statement: skipped"]);
        assert_eq!(report.is_verified(), is_verified, "{result}");
    }
    // A statement without a proof has no position in the log.
    let mut file = file(Value::Null).await;
    file["receipt"]["proof"] = file["receipt"]["statement"].clone();
    assert!(!verified(&file).is_verified());
}

/// Collects the JSON Pointers of all fields and elements of a file.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let members: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, member)| (name.clone(), member)).collect(),
        Value::Array(list) => (0..)
            .zip(list)
            .map(|(index, member): (usize, _)| (index.to_string(), member))
            .collect(),
        _ => Vec::new(),
    };
    for (name, member) in members {
        let at = format!("{at}/{name}");
        found.push(at.clone());
        pointers(member, &at, found);
    }
}

/// Returns different values to replace a value with.
fn mutations(value: &Value) -> Vec<Value> {
    let mut other = vec![Value::Null, json!("x"), json!(7), json!({}), json!([]), json!({"x": 1})];
    match value {
        Value::String(text) => {
            other.push(json!(format!("{text}x")));
            other.push(json!(text.replacen(|c: char| c.is_ascii_digit(), "x", 1)));
            other.push(json!(text.chars().rev().collect::<String>()));
        }
        Value::Number(number) => other.push(json!(number.as_u64().unwrap() + 1)),
        _ => {}
    }
    other.retain(|other| other != value);
    other
}

/// Each change of a file is detected, or the changed field is listed as unverified.
#[tokio::test]
async fn each_changed_evidence_value_fails_or_is_listed_as_unverified() {
    let receipt = object("a receipt by the payee");
    let provider = json!({"offers": [object("an offer by the payee")], "receipt": receipt, "http_status": 200});
    let file = file(provider).await;
    let report = verified(&file);
    assert!(report.is_verified());
    assert_eq!(
        report.unverified_pointers(),
        [
            "/how_to_check",
            "/provider/http_status",
            "/provider/offers/0/acceptIndex",
            "/trust"
        ]
    );
    let mut without_inputs = file.clone();
    without_inputs["inputs"] = Value::Null;
    let mut denial = file_of("block", json!({"offers": [], "http_status": 402})).await;
    denial["receipt"] = Value::Null;
    for file in [file, without_inputs, denial] {
        assert_eq!(silent_changes(&file), [""; 0]);
    }
}

/// Returns the changes that are neither detected nor in a field that is listed as unverified.
fn silent_changes(file: &Value) -> Vec<String> {
    let mut all = Vec::new();
    pointers(file, "", &mut all);
    assert!(all.len() > 30, "{all:?}");
    let is_within = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut silent = Vec::new();
    for at in &all {
        for other in mutations(file.pointer(at).unwrap()) {
            let mut changed = file.clone();
            *changed.pointer_mut(at).unwrap() = other.clone();
            let Ok(report) = verify_evidence(&changed.to_string(), &trust()) else {
                continue;
            };
            let mut listed = report.unverified_pointers().iter();
            let is_listed = listed.any(|listed| is_within(at, listed) || is_within(listed, at));
            // A removed part makes no claim.
            let is_part = file.pointer(at).is_some_and(|part| part.is_object() || part.is_array());
            let is_taken_out = is_part && (other.is_null() || other == json!({}) || other == json!([]));
            if report.is_verified() && !is_listed && !is_taken_out {
                silent.push(format!("{at}: {other}"));
            }
        }
    }
    silent
}

/// Anybody can sign an object with their own key, so a signer must be bound to the payment.
#[tokio::test]
async fn provider_signers_not_bound_to_the_payee_are_skipped() {
    for (offer, receipt) in [
        ("an offer by did:web", "a receipt by another"),
        ("an offer by ES256 and did:key", "a receipt by another"),
    ] {
        let other = json!({"offers": [object(offer)], "receipt": object(receipt)});
        let report = verified(&file(other).await);
        assert_eq!(
            not_passed(&report),
            ["provider offer: skipped", "provider provider_receipt: skipped"]
        );
        assert!(report.is_verified());
        let unverified = report.unverified_pointers();
        assert!(unverified.contains(&"/provider".to_owned()), "{unverified:?}");
    }
    let mut of_another = object("an offer by the payee");
    of_another["payload"]["amount"] = json!("1");
    let offers = json!([object("an offer by ES256 and did:key"), of_another]);
    let report = verified(&file(json!({"offers": offers})).await);
    assert_eq!(
        not_passed(&report),
        ["provider offer: skipped", "provider offer: skipped"]
    );
}

/// Returns the document of the `did:web` in the vectors.
fn did_document(host: &str) -> Value {
    let did = format!("did:web:{host}");
    let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": "hR_aSWMxc4v3ZpI5Y5wqKOQBQEJ0lAF4MMhiDONUwHg"});
    json!({
        "id": did,
        "verificationMethod": [{"id": "#key-1", "type": "JsonWebKey", "controller": did, "publicKeyJwk": jwk}],
        "assertionMethod": [format!("{did}#key-1")],
    })
}

#[tokio::test]
async fn a_provider_hosts_keys_are_trusted_only_for_the_hosts_resources() {
    let provider =
        json!({"offers": [object("an offer by did:web")], "receipt": object("a receipt by EdDSA and did:jwk")});
    let file = file(provider).await.to_string();
    let steps = |providers: Vec<ProviderKey>| {
        let trust = Trust { providers, ..trust() };
        let report = verify_evidence(&file, &trust).unwrap();
        (not_passed(&report), report.missing_dids().to_vec())
    };
    let skipped = ["provider offer: skipped", "provider provider_receipt: skipped"].map(str::to_owned);
    let did = vec!["did:web:provider.example".to_owned()];
    assert_eq!(steps(Vec::new()), (skipped.to_vec(), did.clone()));
    let of_host = ProviderKey::from_did_document(&did_document("provider.example")).unwrap();
    assert_eq!(steps(of_host), (Vec::new(), Vec::new()));
    // Neither a key of another host nor a key outside `assertionMethod` counts.
    let of_another = ProviderKey::from_did_document(&did_document("attacker.example")).unwrap();
    assert_eq!(steps(of_another), (skipped.to_vec(), did.clone()));
    let mut unpublished = did_document("provider.example");
    unpublished["assertionMethod"] = json!([]);
    assert_eq!(ProviderKey::from_did_document(&unpublished), Ok(Vec::new()));
    for wrong in ["provider.example:tenant", "", "a/b"] {
        let refused = ProviderKey::from_did_document(&did_document(wrong));
        assert_eq!(refused, Err(ProviderKeyError::Did), "{wrong}");
    }
    // The trust file binds a key to one host.
    let trusted = |host: &str| {
        let key = "did:key:z6MkoQvSUGEwGvmff3C8umDgJUDQjmKZuTGjYLyXBTG7Xt71";
        let file = json!({"jwks": {"keys": []}, "providers": [{"host": host, "keys": [key]}]});
        Trust::parse(&file.to_string()).unwrap().providers
    };
    assert_eq!(
        steps(trusted("Provider.example")),
        (vec![skipped[0].clone()], did.clone())
    );
    assert_eq!(steps(trusted("other.example")), (skipped.to_vec(), did));
    assert_eq!(ProviderKey::for_host("a", "did:key:no"), Err(ProviderKeyError::Text));
}

#[test]
fn provider_objects_without_a_required_field_are_rejected() {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let jwk = json!({"crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(key.public_key())});
    let kid = format!("did:jwk:{}", URL_SAFE_NO_PAD.encode(jwk.to_string()));
    let sign = |payload: &Value| {
        let header = json!({"alg": "EdDSA", "kid": kid});
        let [header, payload] = [&header, payload].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signature = URL_SAFE_NO_PAD.encode(key.sign(format!("{header}.{payload}").as_bytes()));
        json!({"format": "jws", "signature": format!("{header}.{payload}.{signature}")})
    };
    let whole = json!({"network": "n", "resourceUrl": "u", "payer": "p", "issuedAt": 1});
    assert!(ProviderObject::Receipt.verify(&sign(&whole), &[]).is_ok());
    for name in ["network", "resourceUrl", "payer", "issuedAt"] {
        let mut less = whole.clone();
        less.as_object_mut().unwrap().remove(name);
        let refused = ProviderObject::Receipt.verify(&sign(&less), &[]);
        assert_eq!(refused, Err(ProviderError::Missing(name)));
    }
}
