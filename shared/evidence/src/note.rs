//! Signed notes (c2sp.org/signed-note) and the cosignatures of witnesses on notes (c2sp.org/tlog-cosignature, version
//! 1).

use crate::seed::{Seed, SeedError};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// The maximum number of signatures in a note. The specification requires at least 16.
const MAX_SIGNATURES: usize = 100;

/// The start of a signature line: an em dash (U+2014) and a space.
const DASH: &str = "\u{2014} ";

/// Why a note or a key is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// The name of a key is empty, or contains a space, a plus sign or a control character.
    #[error("the name of a key is empty, or has a space, `+` or a control character")]
    Name,
    /// The verifier key does not consist of a name, a key id and a public key of a known type.
    #[error("the verifier key is not `name+id+key` of an Ed25519 key with its id")]
    VerifierKey,
    /// The note does not consist of a text, a blank line and signature lines, each with a line break.
    #[error("the note is not text, a blank line and signature lines: {0}")]
    Format(&'static str),
    /// The note has no signature by the key.
    #[error("the note has no signature of `{0}`")]
    Unsigned(String),
    /// The note has several signatures by the same key.
    #[error("the note has several signatures of `{0}`")]
    Repeated(String),
    /// The signature by a known key is invalid.
    #[error("the signature of `{0}` is invalid")]
    Signature(String),
}

/// The kind of message that a key signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// The text of a note, signed with Ed25519 (0x01). Logs use this type.
    Ed25519,
    /// A time and a checkpoint, signed with Ed25519 (0x04). Witnesses use this type.
    Cosignature,
}

impl KeyType {
    const fn to_byte(self) -> u8 {
        match self {
            Self::Ed25519 => 0x01,
            Self::Cosignature => 0x04,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Ed25519, Self::Cosignature]
            .into_iter()
            .find(|kind| kind.to_byte() == byte)
    }
}

/// A verifier key ("vkey"): a name, a key id and a public key (c2sp.org/signed-note). The text form is `name+id+key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    kind: KeyType,
    key: [u8; 32],
}

impl VerifierKey {
    /// Creates a verifier key. Fails if the name is empty or has a Unicode space, a plus sign or a control
    /// character.
    pub fn new(name: &str, kind: KeyType, key: [u8; 32]) -> Result<Self, NoteError> {
        is_valid_note_key_name(name).then_some(()).ok_or(NoteError::Name)?;
        Ok(Self {
            name: name.to_owned(),
            kind,
            key,
        })
    }

    /// Returns the key's name, which has no Unicode spaces, plus signs or control characters.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind of message that the key signs.
    pub const fn key_type(&self) -> KeyType {
        self.kind
    }

    /// Returns the public key. Verifier keys with the same public key are the same signer, whatever their names.
    pub const fn public_key(&self) -> &[u8; 32] {
        &self.key
    }

    /// Returns the first four bytes of the SHA-256 hash of the name, a line break, the type and the key.
    fn key_id(&self) -> [u8; 4] {
        let hasher = Sha256::new().chain_update(&self.name).chain_update(b"\n");
        let [a, b, c, d, ..]: [u8; 32] = hasher
            .chain_update([self.kind.to_byte()])
            .chain_update(self.key)
            .finalize()
            .into();
        [a, b, c, d]
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.key)
            .verify(message, signature)
            .is_ok()
    }
}

/// Returns whether a key name is not empty and has no Unicode spaces, plus signs or control characters.
fn is_valid_note_key_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c == '+' || c.is_control())
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = vec![self.kind.to_byte()];
        key.extend(self.key);
        let id = u32::from_be_bytes(self.key_id());
        write!(f, "{}+{id:08x}+{}", self.name, STANDARD.encode(key))
    }
}

impl FromStr for VerifierKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        // The key's base64 may contain plus signs too, so the text is split into at most three parts.
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(_), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NoteError::VerifierKey);
        };
        let key = STANDARD.decode(key).map_err(|_| NoteError::VerifierKey)?;
        let (kind, key) = key.split_first().ok_or(NoteError::VerifierKey)?;
        let kind = KeyType::from_byte(*kind).ok_or(NoteError::VerifierKey)?;
        let key = key.try_into().map_err(|_| NoteError::VerifierKey)?;
        let read = Self::new(name, kind, key)?;
        // This comparison checks the key id, and that the text is in canonical form.
        (read.to_string() == text).then_some(read).ok_or(NoteError::VerifierKey)
    }
}

/// The signing key of a log or of a witness.
pub struct NoteSigner {
    key: Ed25519KeyPair,
    verifier: VerifierKey,
}

/// Why a signer can't be created, or can't sign.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignerError {
    /// The name or the text can't be part of a note.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The seed is not a valid key.
    #[error(transparent)]
    Seed(#[from] SeedError),
}

impl NoteSigner {
    /// Creates the signer. The name must be valid for [`VerifierKey::new`].
    pub fn new(name: &str, kind: KeyType, seed: &Seed) -> Result<Self, SignerError> {
        let key = seed.derive_ed25519()?;
        let public = key.public_key().as_ref().try_into().map_err(|_| SeedError)?;
        let verifier = VerifierKey::new(name, kind, public)?;
        Ok(Self { key, verifier })
    }

    /// Returns the verifier key for this signer.
    pub const fn verifier_key(&self) -> &VerifierKey {
        &self.verifier
    }

    /// Returns a note with this text and a signature by this key. The text must end with a line break.
    pub fn sign_text(&self, text: &str) -> Result<String, SignerError> {
        let signature = self.key.try_sign(text.as_bytes()).map_err(|_| SeedError)?;
        let note = format!("{text}\n{}", self.signature_line(signature.as_ref()));
        Note::parse(&note)?;
        Ok(note)
    }

    /// Returns this witness's cosignature line for a checkpoint text. `time` is in seconds since the Unix epoch.
    pub fn cosign_checkpoint(&self, text: &str, time: u64) -> Result<String, SeedError> {
        let signed = self
            .key
            .try_sign(cosignature_message(text, time).as_bytes())
            .map_err(|_| SeedError)?;
        let mut signature = time.to_be_bytes().to_vec();
        signature.extend(signed.as_ref());
        Ok(self.signature_line(&signature))
    }

    fn signature_line(&self, signature: &[u8]) -> String {
        let mut bytes = self.verifier.key_id().to_vec();
        bytes.extend(signature);
        format!("{DASH}{} {}\n", self.verifier.name, STANDARD.encode(bytes))
    }
}

/// Omits the secret, because debug output may be logged.
impl fmt::Debug for NoteSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NoteSigner({})", self.verifier)
    }
}

/// Returns the message that a cosignature signs: two lines, then the checkpoint's text without signatures.
fn cosignature_message(text: &str, time: u64) -> String {
    format!("cosignature/v1\ntime {time}\n{text}")
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Signature {
    name: String,
    id: [u8; 4],
    bytes: Vec<u8>,
}

/// A parsed note. The text is not authentic until a signature is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    text: String,
    signatures: Vec<Signature>,
}

impl Note {
    /// Parses a note, which must end with a line break.
    pub fn parse(note: &str) -> Result<Self, NoteError> {
        if note.contains(|c: char| c < ' ' && c != '\n') {
            return Err(NoteError::Format("the note has a control character"));
        }
        let body = note.strip_suffix('\n');
        let body = body.ok_or(NoteError::Format("the note does not end with a line break"))?;
        // Splits at the last blank line, because the text may contain other blank lines.
        let (text, lines) = body
            .rsplit_once("\n\n")
            .ok_or(NoteError::Format("the blank line is missing"))?;
        let signatures = lines
            .split('\n')
            .map(parse_signature_line)
            .collect::<Result<Vec<_>, _>>()?;
        if signatures.len() > MAX_SIGNATURES {
            return Err(NoteError::Format("the note has too many signatures"));
        }
        Ok(Self {
            text: format!("{text}\n"),
            signatures,
        })
    }

    /// Returns the note's text, which ends with a line break. The blank line before the signatures is not part of the
    /// text.
    pub fn unverified_text(&self) -> &str {
        &self.text
    }

    /// Returns the signature by this key. Returns an error unless there is exactly one. Signatures by other keys are
    /// ignored.
    fn signature_by(&self, key: &VerifierKey) -> Result<&[u8], NoteError> {
        let id = key.key_id();
        let mut found = self
            .signatures
            .iter()
            .filter(|signature| signature.name == key.name && signature.id == id);
        let signature = found.next().ok_or_else(|| NoteError::Unsigned(key.name.clone()))?;
        match found.next() {
            Some(_) => Err(NoteError::Repeated(key.name.clone())),
            None => Ok(&signature.bytes),
        }
    }

    /// Verifies the signature by a log's key and returns the text.
    pub fn verify(&self, key: &VerifierKey) -> Result<&str, NoteError> {
        let signature = self.signature_by(key)?;
        let is_valid = key.kind == KeyType::Ed25519 && key.verifies(self.text.as_bytes(), signature);
        is_valid
            .then_some(self.text.as_str())
            .ok_or_else(|| NoteError::Signature(key.name.clone()))
    }

    /// Verifies the cosignature by a witness's key and returns the time of the cosignature, in seconds since the Unix
    /// epoch.
    pub fn verified_cosignature_time_secs(&self, key: &VerifierKey) -> Result<u64, NoteError> {
        let invalid = || NoteError::Signature(key.name.clone());
        let (time, signature) = self.signature_by(key)?.split_first_chunk().ok_or_else(invalid)?;
        let time = u64::from_be_bytes(*time);
        // Only a cosignature key can sign a cosignature. The specification c2sp.org/tlog-cosignature limits the time to
        // 2^63 - 1.
        let is_valid = key.kind == KeyType::Cosignature
            && i64::try_from(time).is_ok()
            && key.verifies(cosignature_message(&self.text, time).as_bytes(), signature);
        is_valid.then_some(time).ok_or_else(invalid)
    }
}

fn parse_signature_line(line: &str) -> Result<Signature, NoteError> {
    let parts = line.strip_prefix(DASH).and_then(|line| line.split_once(' '));
    let (name, encoded) = parts.ok_or(NoteError::Format("a signature has no dash, name and signature"))?;
    is_valid_note_key_name(name).then_some(()).ok_or(NoteError::Name)?;
    let decoded = STANDARD.decode(encoded);
    let decoded = decoded.map_err(|_| NoteError::Format("a signature is not base64"))?;
    let (id, bytes) = decoded
        .split_first_chunk()
        .filter(|(_, bytes)| !bytes.is_empty())
        .ok_or(NoteError::Format("a signature is too short"))?;
    Ok(Signature {
        name: name.to_owned(),
        id: *id,
        bytes: bytes.to_vec(),
    })
}
