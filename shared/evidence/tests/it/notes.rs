//! Tests notes, verifier keys, checkpoints and cosignatures.

use crate::sample::{ORIGIN, checkpoint, log_of, log_signer, seed, statement, text, vectors, witness};
use purser_evidence::{
    Checkpoint, CheckpointError, Hash, KeyType, Note, NoteError, NoteSigner, Seed, SignerError, TreeHead, VerifierKey,
};
use zeroize::Zeroizing;

fn log_key() -> VerifierKey {
    text(&vectors()["keys"]["log"]["vkey"]).parse().unwrap()
}

#[test]
fn each_verifier_key_has_exactly_one_text_form() {
    let vectors = vectors();
    let vkey = text(&vectors["keys"]["log"]["vkey"]);
    // A plus sign separates the parts of a verifier key, and can also occur in the key's base64.
    let plus = (0..=255)
        .map(|byte| {
            NoteSigner::new("a", KeyType::Cosignature, &seed(byte))
                .unwrap()
                .verifier_key()
                .to_string()
        })
        .find(|text| text.matches('+').count() > 2);
    for text in [vkey, &plus.unwrap()] {
        assert_eq!(text.parse::<VerifierKey>().unwrap().to_string(), text);
    }
    for wrong in [
        vkey.replace("+53f7f99e+", "+53f7f99f+"),
        vkey.replace("+53f7f99e+", "+53F7F99E+"),
        vkey.replace("+ATeO", "+AjeO"),
        format!("{vkey}="),
        format!("{vkey}\n"),
        vkey.replace("log.example", "log example"),
        vkey.replace(ORIGIN, ""),
        vkey.replacen('+', "", 1),
        String::new(),
    ] {
        assert!(wrong.parse::<VerifierKey>().is_err(), "{wrong}");
    }
}

/// Ed25519 is deterministic, so the signed note equals the note in the vectors.
#[test]
fn checkpoints_match_the_test_vectors() {
    let vectors = vectors();
    let bytes = text(&vectors["keys"]["log"]["seed_hex"]);
    let bytes: Vec<u8> = (0..32)
        .map(|at| u8::from_str_radix(&bytes[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let seed = Seed::new(Zeroizing::new(bytes.try_into().unwrap()));
    let signer = NoteSigner::new(ORIGIN, KeyType::Ed25519, &seed).unwrap();
    assert_eq!(signer.verifier_key(), &log_key());
    for size in [7, 11] {
        let note = text(&vectors["checkpoints"][size.to_string()]);
        let read = Checkpoint::from_note(&Note::parse(note).unwrap(), &log_key(), ORIGIN).unwrap();
        assert_eq!(read.tree_head().size, size);
        let root = &vectors["roots"][usize::try_from(size).unwrap()]["root"];
        assert_eq!(read.tree_head().root.to_string(), text(root));
        assert_eq!(read.sign_as_note(&signer).unwrap(), note);
    }
}

/// Includes the cases in which other implementations differ (README of the vectors).
#[test]
fn malformed_signed_notes_are_rejected() {
    let vectors = vectors();
    let good = text(&vectors["checkpoints"]["11"]);
    let log = good.lines().last().unwrap();
    let opened = |note: &str| {
        let note = Note::parse(note).map_err(CheckpointError::Note)?;
        Checkpoint::from_note(&note, &log_key(), ORIGIN)
    };
    assert!(opened(good).is_ok());
    // Signatures of unknown signers are ignored.
    assert!(opened(&format!("{good}\u{2014} witness.example AAAAAAE=\n")).is_ok());
    let (text, _) = good.split_once("\n\n").unwrap();
    for (what, wrong) in [
        ("no final line break", good.trim_end().to_owned()),
        ("the log's line twice", format!("{good}{log}\n")),
        ("CRLF", good.replace('\n', "\r\n")),
        ("another root", good.replace("W7aK", "X7aK")),
        ("another size", good.replace("\n11\n", "\n12\n")),
        ("a size with a zero", good.replace("\n11\n", "\n011\n")),
        ("a hyphen instead of the dash", good.replace('\u{2014}', "-")),
        ("an en dash", good.replace('\u{2014}', "\u{2013}")),
        ("two spaces", good.replace("\u{2014} ", "\u{2014}  ")),
        ("another signer", good.replace("\u{2014} log", "\u{2014} log2")),
        ("unpadded", good.replace("AE=\n", "AE\n")),
        ("spare bits", good.replace("AE=\n", "AF=\n")),
        (
            "a control character",
            good.replace("log.example/decisions\n11", "log.example/decisions\u{7}\n11"),
        ),
        ("an empty line at the end", format!("{good}\n")),
        ("a short signature", format!("{text}\n\n\u{2014} a AAAAAA==\n")),
        ("no signature", format!("{text}\n")),
        ("no blank line", good.replace("\n\n", "\n")),
        ("nothing", String::new()),
    ] {
        assert!(opened(&wrong).is_err(), "{what}");
    }
    let other = Checkpoint::from_note(&Note::parse(good).unwrap(), &log_key(), "log.example/other");
    assert_eq!(other, Err(CheckpointError::OtherLog(ORIGIN.to_owned())));
    let unknown = Note::parse(good).unwrap();
    let key = log_signer().verifier_key().clone();
    assert_eq!(unknown.verify(&key), Err(NoteError::Unsigned(ORIGIN.to_owned())));
}

#[test]
fn checkpoint_texts_have_exactly_three_lines() {
    let root = Hash::for_leaf(b"a").to_string();
    let empty = Hash::for_empty_tree().to_string();
    for good in [
        format!("a\n1\n{root}\n"),
        format!("a\n0\n{empty}\n"),
        format!("a b\n4611686018427387904\n{root}\n"),
    ] {
        assert_eq!(Checkpoint::parse(&good).unwrap().to_string(), good);
    }
    for wrong in [
        format!("a\n1\n{root}\nextension\n"),
        format!("a\n1\n{root}"),
        format!("a\n1\n{root}\n\n"),
        format!("\n1\n{root}\n"),
        format!("a\n+1\n{root}\n"),
        format!("a\n-1\n{root}\n"),
        format!("a\n0\n{root}\n"),
        format!("a\n4611686018427387905\n{root}\n"),
        format!("a\n18446744073709551616\n{root}\n"),
        format!("a\n1\n{}\n", root.trim_end_matches('=')),
        format!("a\n1\n{}\n", root.replace('=', "==")),
        "a\n1\nAAAA\n".to_owned(),
    ] {
        assert_eq!(Checkpoint::parse(&wrong), Err(CheckpointError::Format), "{wrong}");
    }
    let head = TreeHead {
        size: 0,
        root: Hash::for_leaf(b""),
    };
    assert_eq!(Checkpoint::new("a", head), Err(CheckpointError::Format));
    assert_eq!(Checkpoint::new("a\nb", TreeHead::empty()), Err(CheckpointError::Format));
}

#[test]
fn a_signed_note_has_a_text_of_whole_lines() {
    let signer = log_signer();
    for text in ["a\n", "a\n\nb\n", "\n"] {
        let note = signer.sign_text(text).unwrap();
        assert_eq!(Note::parse(&note).unwrap().verify(signer.verifier_key()), Ok(text));
    }
    for text in ["a\u{1}\n", "a\r\n"] {
        assert!(matches!(signer.sign_text(text), Err(SignerError::Note(_))), "{text:?}");
    }
    for name in ["", "a b", "a+b", "a\u{a0}b", "a\nb"] {
        assert!(NoteSigner::new(name, KeyType::Ed25519, &seed(1)).is_err(), "{name:?}");
    }
}

#[test]
fn witness_cosignatures_cover_time_and_checkpoint() {
    let (_, head) = log_of(&[statement(0)]);
    let note = checkpoint(head);
    let body = Note::parse(&note).unwrap().unverified_text().to_owned();
    let [first, second] = [1, 2].map(witness);
    let line = first.cosign_checkpoint(&body, 1_679_315_147).unwrap();
    let cosigned = format!("{note}{line}");
    let read = Note::parse(&cosigned).unwrap();
    assert_eq!(
        read.verified_cosignature_time_secs(first.verifier_key()),
        Ok(1_679_315_147)
    );
    assert!(matches!(
        read.verified_cosignature_time_secs(second.verifier_key()),
        Err(NoteError::Unsigned(_))
    ));
    assert!(read.verify(log_signer().verifier_key()).is_ok());
    // A cosignature is not a signature of the note's text, and a signature is not a cosignature.
    assert!(matches!(
        read.verify(first.verifier_key()),
        Err(NoteError::Signature(_))
    ));
    assert!(matches!(
        read.verified_cosignature_time_secs(log_signer().verifier_key()),
        Err(NoteError::Signature(_))
    ));

    let twice = Note::parse(&format!("{cosigned}{line}")).unwrap();
    assert!(matches!(
        twice.verified_cosignature_time_secs(first.verifier_key()),
        Err(NoteError::Repeated(_))
    ));
    let other = first
        .cosign_checkpoint(&body.replace("\n1\n", "\n2\n"), 1_679_315_147)
        .unwrap();
    let beyond = first.cosign_checkpoint(&body, 1 << 63).unwrap();
    for line in [other, beyond] {
        let wrong = Note::parse(&format!("{note}{line}")).unwrap();
        assert!(matches!(
            wrong.verified_cosignature_time_secs(first.verifier_key()),
            Err(NoteError::Signature(_))
        ));
    }
}
