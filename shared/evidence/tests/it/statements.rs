//! Tests which statements are accepted and which are rejected.

use crate::sample::{seed, statement_key, text, vectors};
use aws_lc_rs::digest::{Digest, SHA256};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use purser_evidence::{
    DigestSigner, EcdsaSignature, Jwk, JwkSet, MAX_STATEMENT_BYTES, SignError, StatementError, StatementKey,
    StatementKind, sign_es256,
};
use serde_json::json;

fn key_set() -> JwkSet {
    let keys = &vectors()["keys"];
    JwkSet::parse(&json!({"keys": [keys["ES256"]["public"], keys["EdDSA"]["public"]]}).to_string()).unwrap()
}

#[test]
fn statements_signed_by_another_implementation_are_verified() {
    let set = key_set();
    for statement in vectors()["statements"].as_array().unwrap() {
        let verified = set.verify(text(&statement["jws"])).unwrap();
        let payload: serde_json::Value = serde_json::from_slice(verified.payload()).unwrap();
        assert_eq!(payload, statement["payload"]);
        assert_eq!(verified.typ(), "decision+jws");
        assert_eq!(verified.kind(), None);
        let alg = text(&statement["alg"]);
        assert_eq!(verified.kid(), text(&vectors()["keys"][alg]["public"]["kid"]));
    }
}

fn with_header(header: &str, of: &str) -> String {
    let (_, rest) = of.split_once('.').unwrap();
    format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header))
}

#[test]
fn a_statement_has_one_encoding_and_two_allowed_algorithms() {
    let (set, vectors) = (key_set(), vectors());
    let [es256, eddsa] = [0, 1].map(|index| text(&vectors["statements"][index]["jws"]).to_owned());
    let kid = text(&vectors["keys"]["EdDSA"]["public"]["kid"]);
    for good in [&es256, &eddsa] {
        let (signed, signature) = good.rsplit_once('.').unwrap();
        let (header, payload) = signed.split_once('.').unwrap();
        // The last base64 character of a signature has four unused bits, which must be zero.
        let mut last = signature.to_owned();
        let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let at = letters.find(last.pop().unwrap()).unwrap();
        let spare = format!("{last}{}", &letters[at + 1..=at + 1]);
        let other = text(&vectors["statements"][2]["jws"]).split('.').nth(1).unwrap();
        for (wrong, why) in [
            (format!("{signed}.{spare}"), StatementError::Spelling),
            (format!("{good}=="), StatementError::Spelling),
            (format!("{good}\n"), StatementError::Spelling),
            (format!(" {good}"), StatementError::Spelling),
            (format!("{good}.{signature}"), StatementError::Spelling),
            (format!("{signed}."), StatementError::Spelling),
            (format!("{signed}.{}", &signature[4..]), StatementError::Spelling),
            (format!("{header}..{signature}"), StatementError::Signature),
            (signed.to_owned(), StatementError::Spelling),
            (String::new(), StatementError::Spelling),
            (format!("{header}.{other}.{signature}"), StatementError::Signature),
            (
                format!("{header}.{payload}.{}", "A".repeat(86)),
                StatementError::Signature,
            ),
        ] {
            assert_eq!(set.verify(&wrong), Err(why), "{wrong}");
        }
    }
    for (header, why) in [
        (json!({"alg": "none", "kid": kid, "typ": "t"}), StatementError::Header),
        (json!({"alg": "HS256", "kid": kid, "typ": "t"}), StatementError::Header),
        (
            json!({"alg": "Ed25519", "kid": kid, "typ": "t"}),
            StatementError::Header,
        ),
        (json!({"alg": "ES256", "kid": kid, "typ": "t"}), StatementError::Header),
        (json!({"alg": "EdDSA", "typ": "t"}), StatementError::Header),
        (
            json!({"alg": "EdDSA", "kid": kid, "typ": "t", "crit": ["b64"], "b64": false}),
            StatementError::Header,
        ),
        (
            json!({"alg": "EdDSA", "kid": kid, "typ": "t", "jwk": {}}),
            StatementError::Header,
        ),
        (
            json!({"alg": "EdDSA", "kid": "other", "typ": "t"}),
            StatementError::UnknownKey,
        ),
        (
            json!({"alg": "EdDSA", "kid": kid, "typ": "t"}),
            StatementError::Signature,
        ),
    ] {
        assert_eq!(
            set.verify(&with_header(&header.to_string(), &eddsa)),
            Err(why),
            "{header}"
        );
    }
    let twice = format!(r#"{{"alg":"EdDSA","alg":"EdDSA","kid":"{kid}","typ":"decision+jws"}}"#);
    assert_eq!(set.verify(&with_header(&twice, &eddsa)), Err(StatementError::Header));
}

/// Anybody can compute the second form, so the log contains exact bytes.
#[test]
fn both_es256_forms_of_a_signature_verify() {
    let statement = text(&vectors()["statements"][0]["jws"]).to_owned();
    let (signed, signature) = statement.rsplit_once('.').unwrap();
    let bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
    // Computes n − s byte by byte, from the right.
    let n = u128_pair("FFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551");
    let mut borrow = 0_i16;
    let mut twin = bytes.clone();
    for at in (0..32).rev() {
        let digit = i16::from(n[at]) - i16::from(bytes[32 + at]) - borrow;
        borrow = i16::from(digit < 0);
        twin[32 + at] = u8::try_from(digit.rem_euclid(256)).unwrap();
    }
    let twin = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(twin));
    assert_ne!(twin, statement);
    assert!(key_set().verify(&twin).is_ok());
}

fn u128_pair(hex: &str) -> Vec<u8> {
    (0..32)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

#[test]
fn each_flipped_bit_of_a_statement_is_rejected() {
    let key = statement_key();
    let statement = key.sign(StatementKind::Receipt, br#"{"a":1}"#).unwrap();
    let set = JwkSet::new(key.jwk().clone(), []);
    assert_eq!(set.verify(&statement).unwrap().kind(), Some(StatementKind::Receipt));
    for at in 0..statement.len() * 8 {
        let mut bytes = statement.clone().into_bytes();
        bytes[at / 8] ^= 1 << (at % 8);
        if let Ok(changed) = String::from_utf8(bytes) {
            assert!(set.verify(&changed).is_err(), "bit {at}");
        }
    }
}

#[test]
fn statements_are_at_most_as_long_as_a_log_entry() {
    let key = statement_key();
    let signed = |length: usize| key.sign(StatementKind::Decision, &vec![b'x'; length]);
    // Three bytes of the payload take four base64 characters.
    let rest = MAX_STATEMENT_BYTES - signed(0).unwrap().len();
    let longest = rest / 4 * 3 + [0, 0, 1, 2][rest % 4];
    let statement = signed(longest).unwrap();
    assert!(statement.len() > MAX_STATEMENT_BYTES - 2 && statement.len() <= MAX_STATEMENT_BYTES);
    assert!(matches!(signed(longest + 1), Err(SignError::TooLong)));
}

/// A signer like KMS: it signs a digest and returns the signature in DER.
struct Digests(EcdsaKeyPair);

impl DigestSigner for Digests {
    type Error = &'static str;

    async fn sign(&self, digest: [u8; 32]) -> Result<EcdsaSignature, Self::Error> {
        let digest = Digest::import_less_safe(&digest, &SHA256).unwrap();
        let der = self.0.sign_digest(&digest).unwrap();
        EcdsaSignature::from_der(der.as_ref()).ok_or("no signature")
    }
}

#[tokio::test]
async fn es256_statements_are_signed_by_digest() {
    let signer = Digests(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap());
    let key = Jwk::from_p256_point(signer.0.public_key().as_ref().try_into().unwrap()).unwrap();
    let set = JwkSet::new(key.clone(), []);
    for number in 0..100 {
        let payload = number.to_string();
        let statement = sign_es256(&signer, &key, StatementKind::Decision, payload.as_bytes()).await;
        let verified = set.verify(&statement.unwrap()).unwrap();
        assert_eq!(verified.payload(), payload.as_bytes());
        assert_eq!(verified.kind(), Some(StatementKind::Decision));
    }
    let other = StatementKey::new(&seed(9)).unwrap();
    let refused = sign_es256(&signer, other.jwk(), StatementKind::Decision, b"{}").await;
    assert!(matches!(refused, Err(SignError::OtherKey)));
}

#[test]
fn only_canonical_der_signatures_are_accepted() {
    let padded = |bytes: &[u8]| {
        let mut padded = vec![0; 32 - bytes.len()];
        padded.extend(bytes);
        padded
    };
    let r = [0x80; 32];
    let good = [&[0x30, 0x26, 0x02, 0x21, 0x00][..], &r, &[0x02, 0x01, 0x07]].concat();
    let wanted: [u8; 64] = [r.to_vec(), padded(&[7])].concat().try_into().unwrap();
    assert_eq!(EcdsaSignature::from_der(&good), Some(EcdsaSignature::new(wanted)));
    for (what, wrong) in [
        ("a byte after it", [&good[..], &[0]].concat()),
        ("cut", good[..good.len() - 1].to_vec()),
        (
            "a needless zero",
            [&[0x30, 0x27, 0x02, 0x21, 0x00][..], &r, &[0x02, 0x02, 0x00, 0x07]].concat(),
        ),
        (
            "negative",
            [&[0x30, 0x25, 0x02, 0x20][..], &r, &[0x02, 0x01, 0x07]].concat(),
        ),
        (
            "long form of a short length",
            [&[0x30, 0x81, 0x26, 0x02, 0x21, 0x00][..], &r, &[0x02, 0x01, 0x07]].concat(),
        ),
        (
            "33 bytes",
            [&[0x30, 0x26, 0x02, 0x21, 0x01][..], &r, &[0x02, 0x01, 0x07]].concat(),
        ),
        (
            "three integers",
            vec![0x30, 0x09, 0x02, 0x01, 0x07, 0x02, 0x01, 0x07, 0x02, 0x01, 0x07],
        ),
        ("nothing", Vec::new()),
    ] {
        assert_eq!(EcdsaSignature::from_der(&wrong), None, "{what}");
    }
}
