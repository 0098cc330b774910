//! Writes samples of all kinds of evidence into a new folder, for the independent tools in `tests/evidence`:
//!
//! ```text
//! evidence_sample <folder>
//! ```
//!
//! | file | content |
//! |---|---|
//! | `statement.jws` | entry 290 of 300, exactly as signed |
//! | `jwks.json` | the key set: a P-256 key that signs now, and an older Ed25519 key |
//! | `proof.txt` | the tlog-proof of the statement, with the statement in it |
//! | `vkey.txt`, `witness.txt` | the verifier keys of the log and of a witness |
//! | `older-checkpoint` | the log's checkpoint at 200 entries |
//! | `log/` | the log's objects including `checkpoint`, appended in batches |
//! | `fork/` | the objects of a fork of the log, signed with the same key, in which entry 100 differs |
//! | `trust.json` | the trust file for `purser verify` |

use aws_lc_rs::digest::{Digest, SHA256};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use purser_evidence::{
    AppendResult, Checkpoint, DigestSigner, EcdsaSignature, Edge, Jwk, JwkSet, KeyType, Note, NoteSigner, Seed,
    StatementKey, StatementKind, TilePath, TileReader, TlogProof, build_inclusion_proof, sign_es256,
};
use serde_json::json;
use std::error::Error;
use std::fs::{create_dir, create_dir_all, read, write};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const ORIGIN: &str = "log.example/decisions";
/// 2027-01-01, in seconds since the Unix epoch.
const TIME: u64 = 1_798_761_600;
/// The index of the statement in the proof.
const PROVEN: usize = 290;

/// A key that signs digests, like KMS.
struct Digests(EcdsaKeyPair);

impl DigestSigner for Digests {
    type Error = std::io::Error;

    async fn sign(&self, digest: [u8; 32]) -> Result<EcdsaSignature, Self::Error> {
        let digest = Digest::import_less_safe(&digest, &SHA256).map_err(Self::Error::other)?;
        let der = self.0.sign_digest(&digest).map_err(Self::Error::other)?;
        EcdsaSignature::from_der(der.as_ref()).ok_or_else(|| Self::Error::other("no signature"))
    }
}

/// A log whose objects are files in a folder.
struct Folder(PathBuf);

impl Folder {
    fn write(&self, result: &AppendResult) -> std::io::Result<()> {
        for (path, bytes) in result.tiles.iter().chain(&result.bundles) {
            let file = self.0.join(path.to_string());
            create_dir_all(file.parent().unwrap_or(&self.0))?;
            write(file, bytes)?;
        }
        Ok(())
    }
}

impl TileReader for Folder {
    type Error = std::io::Error;

    async fn get(&self, path: &TilePath) -> Result<Option<Vec<u8>>, Self::Error> {
        match read(self.0.join(path.to_string())) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("a folder is missing")?;
    let folder = Path::new(&folder);
    create_dir(folder)?;
    let seed = |byte: u8| Seed::new([byte; 32].into());
    let older = StatementKey::new(&seed(1))?;
    let signer = Digests(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)?);
    let current = Jwk::from_p256_point(signer.0.public_key().as_ref().try_into()?)?;
    let log = NoteSigner::new(ORIGIN, KeyType::Ed25519, &seed(2))?;
    let witness = NoteSigner::new("witness.example/1", KeyType::Cosignature, &seed(3))?;

    // The key is rotated after 250 entries.
    let mut entries = Vec::new();
    for number in 0..300_u64 {
        let (kind, verdict) = match number % 3 {
            0 => (StatementKind::Decision, "allow"),
            1 => (StatementKind::Decision, "block"),
            _ => (StatementKind::Receipt, "confirmed"),
        };
        let payload = json!({"iat": TIME.saturating_add(number), "jti": format!("{number:04}"), "verdict": verdict});
        let payload = payload.to_string();
        entries.push(if number < 250 {
            older.sign(kind, payload.as_bytes())?
        } else {
            sign_es256(&signer, &current, kind, payload.as_bytes()).await?
        });
    }

    let objects = Folder(folder.join("log"));
    let mut edge = Edge::empty();
    let mut rest = entries.as_slice();
    for size in [1, 60, 139, 57, 43] {
        let (batch, later) = rest.split_at(size);
        let appended = edge.append_entries(batch)?;
        objects.write(&appended)?;
        // As in a real deployment, the next append reads the edge from the stored objects.
        edge = Edge::read_right_edge(&objects, &appended.head).await?;
        if edge.size() == 200 {
            let note = Checkpoint::new(ORIGIN, appended.head)?.sign_as_note(&log)?;
            write(folder.join("older-checkpoint"), note)?;
        }
        rest = later;
    }
    let head = edge.tree_head();
    let note = Checkpoint::new(ORIGIN, head)?.sign_as_note(&log)?;
    let cosignature = witness.cosign_checkpoint(Note::parse(&note)?.unverified_text(), TIME)?;
    let note = format!("{note}{cosignature}");
    write(objects.0.join("checkpoint"), &note)?;

    let mut forked = entries.clone();
    forked.swap(100, 101);
    let fork = Folder(folder.join("fork"));
    let appended = Edge::empty().append_entries(&forked)?;
    fork.write(&appended)?;
    let forked = Checkpoint::new(ORIGIN, appended.head)?.sign_as_note(&log)?;
    write(fork.0.join("checkpoint"), forked)?;

    let statement = entries.get(PROVEN).ok_or("the statement is missing")?;
    let index = u64::try_from(PROVEN)?;
    let hashes = build_inclusion_proof(&objects, &head, index, statement.as_bytes()).await?;
    let proof = TlogProof::new(Some(statement.as_bytes()), index, hashes, &note)?;
    let jwks = JwkSet::new(current, [older.jwk().clone()]);
    let [vkey, witness] = [&log, &witness].map(|signer| signer.verifier_key().to_string());
    let logs = json!([{"vkey": vkey, "origin": ORIGIN}]);
    let trust = json!({"jwks": jwks, "logs": logs, "witnesses": [witness], "quorum": 1});
    for (name, text) in [
        ("statement.jws", statement.clone()),
        ("jwks.json", serde_json::to_string(&jwks)?),
        ("proof.txt", proof.to_string()),
        ("vkey.txt", vkey),
        ("witness.txt", witness),
        ("trust.json", trust.to_string()),
    ] {
        write(folder.join(name), text)?;
    }
    Ok(())
}
