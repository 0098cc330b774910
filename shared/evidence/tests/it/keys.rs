//! Tests the key sets that verify statements.

use crate::sample::{seed, statement_key, text, vectors};
use purser_evidence::{Jwk, JwkError, JwkSet, StatementKey, StatementKind};
use serde_json::{Value, json};

#[test]
fn key_sets_survive_serialization_and_parsing() {
    let (current, older) = (statement_key(), StatementKey::new(&seed(9)).unwrap());
    let set = JwkSet::new(current.jwk().clone(), [older.jwk().clone(), current.jwk().clone()]);
    let json = serde_json::to_value(&set).unwrap();
    let kids: Vec<_> = json["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| text(&key["kid"]))
        .collect();
    assert_eq!(kids, [current.jwk().thumbprint(), older.jwk().thumbprint()]);
    let first = &json["keys"][0];
    assert_eq!(first["kty"], "EC");
    assert_eq!(first["crv"], "P-256");
    assert_eq!(first["alg"], "ES256");
    assert_eq!(first["use"], "sig");
    assert_eq!(first.as_object().unwrap().len(), 7, "{first}");
    let read = JwkSet::parse(&json.to_string()).unwrap();
    assert_eq!(read, set);
    // A statement signed with an older key stays valid.
    let statement = older.sign(StatementKind::Receipt, b"{}").unwrap();
    assert!(read.verify(&statement).is_ok());
}

#[test]
fn keys_are_identified_by_their_thumbprints() {
    let keys = &vectors()["keys"];
    for alg in ["ES256", "EdDSA"] {
        let public = &keys[alg]["public"];
        let set = JwkSet::parse(&json!({"keys": [public]}).to_string()).unwrap();
        assert_eq!(set.keys()[0].thumbprint(), text(&public["kid"]));
    }
}

#[test]
fn invalid_keys_are_rejected_and_other_key_types_ignored() {
    let keys = vectors()["keys"].clone();
    let [ec, ed] = ["ES256", "EdDSA"].map(|alg| keys[alg]["public"].clone());
    let with = |key: &Value, name: &str, value: Value| {
        let mut key = key.clone();
        key[name] = value;
        key
    };
    let parsed = |keys: Vec<Value>| JwkSet::parse(&json!({"keys": keys}).to_string());
    for (wrong, why) in [
        (with(&ec, "kid", json!("other")), JwkError::Kid),
        (with(&ed, "kid", Value::Null), JwkError::Kid),
        (with(&ec, "y", ec["x"].clone()), JwkError::Point),
        (with(&ec, "x", json!(format!("{}=", text(&ec["x"])))), JwkError::Point),
        (with(&ed, "x", json!("AA")), JwkError::Point),
    ] {
        assert_eq!(parsed(vec![wrong.clone()]), Err(why), "{wrong}");
    }
    assert_eq!(parsed(vec![ed.clone(), ed.clone()]), Err(JwkError::Twice));
    let rsa = json!({"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "rsa"});
    let set = parsed(vec![rsa, with(&ec, "alg", json!("ES384")), ed.clone()]).unwrap();
    assert_eq!(set.keys().len(), 1);
    assert!(matches!(JwkSet::parse("{}"), Err(JwkError::Unreadable(_))));
    assert_eq!(Jwk::from_p256_point(&[0x04; 65]), Err(JwkError::Point));
}
