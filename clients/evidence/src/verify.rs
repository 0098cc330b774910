//! Verifies a document offline: a statement, or a proof that contains a statement. The report lists every step.

use crate::policy::{Policy, PolicyError};
use crate::provider::{ProviderKey, ProviderKeyError};
use purser_evidence::{JwkSet, PROOF_HEADER, ProofTextError, TlogProof, VerifiedStatement, VerifierKey, parse_json};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The trusted keys of statements, logs, witnesses and providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// The keys that verify statements.
    pub keys: JwkSet,
    /// The trusted logs and witnesses.
    pub policy: Policy,
    /// The trusted keys of providers. Each key is trusted for the resources of one host.
    pub providers: Vec<ProviderKey>,
}

/// Why a trust file is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// The file is not JSON in the form that [`Trust::parse`] describes.
    #[error("the trust file is unreadable: {0}")]
    Unreadable(String),
    /// The logs and witnesses do not form a valid policy.
    #[error("the trust file has no usable policy: {0}")]
    Policy(#[from] PolicyError),
    /// A provider's key is malformed.
    #[error("the trust file has an unusable provider: {0}")]
    Provider(#[from] ProviderKeyError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustFile {
    jwks: JwkSet,
    #[serde(default)]
    logs: Vec<LogEntry>,
    #[serde(default)]
    witnesses: Vec<String>,
    #[serde(default)]
    quorum: usize,
    #[serde(default)]
    providers: Vec<ProviderEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderEntry {
    host: String,
    keys: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogEntry {
    vkey: String,
    origin: String,
}

impl Trust {
    /// Parses a trust file: JSON with `jwks`, and optionally `logs`, `witnesses`, `quorum` and `providers`.
    pub fn parse(json: &str) -> Result<Self, TrustError> {
        let unreadable = |error: &dyn fmt::Display| TrustError::Unreadable(error.to_string());
        let file = parse_json(json.as_bytes()).and_then(TrustFile::deserialize);
        let file = file.map_err(|error| unreadable(&error))?;
        let key = |text: &String| text.parse::<VerifierKey>().map_err(|error| unreadable(&error));
        let logs = file.logs.iter().map(|log| Ok((key(&log.vkey)?, log.origin.clone())));
        let logs = logs.collect::<Result<Vec<_>, TrustError>>()?;
        let witnesses = file.witnesses.iter().map(key).collect::<Result<_, _>>()?;
        let policy = Policy::new(logs, witnesses, file.quorum)?;
        let providers = file.providers.iter().flat_map(|provider| {
            let keys = provider.keys.iter();
            keys.map(|key| ProviderKey::for_host(&provider.host, key))
        });
        Ok(Self {
            keys: file.jwks,
            policy,
            providers: providers.collect::<Result<_, _>>()?,
        })
    }
}

/// A step of the verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepName {
    /// A key of the key set signed the statement.
    Statement,
    /// The checkpoint's tree contains the statement as an entry.
    Inclusion,
    /// A trusted log signed the checkpoint.
    Checkpoint,
    /// Enough witnesses cosigned the checkpoint.
    Witnesses,
    /// The chain contains the payment. The caller adds this step, because this crate makes no network calls.
    Chain,
    /// The hashes in the decision match the decision's own parts and the enclosed documents.
    Hashes,
    /// The decision and the receipt concern the same payment.
    Payment,
    /// The fields of the evidence file that repeat signed data equal the signed statements.
    Copies,
    /// The log's tree contains all entries of an older checkpoint. The caller adds this step.
    Consistency,
    /// The provider signed an offer for this payment.
    Offer,
    /// The provider signed a receipt for this payment.
    ProviderReceipt,
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Statement => "statement",
            Self::Inclusion => "inclusion",
            Self::Checkpoint => "checkpoint",
            Self::Witnesses => "witnesses",
            Self::Chain => "chain",
            Self::Hashes => "hashes",
            Self::Payment => "payment",
            Self::Copies => "copies",
            Self::Consistency => "consistency",
            Self::Offer => "offer",
            Self::ProviderReceipt => "provider_receipt",
        })
    }
}

/// The outcome of a step. The text describes the finding or the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "snake_case")]
pub enum Outcome {
    /// The step succeeded.
    Passed(String),
    /// The step failed.
    Failed(String),
    /// The step was skipped.
    Skipped(String),
}

/// A step and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The property that the step verifies.
    pub step: StepName,
    /// Whether the step passed, failed or was skipped, with the finding or the reason.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Step {
    /// Creates a step with an outcome.
    pub const fn new(step: StepName, outcome: Outcome) -> Self {
        Self { step, outcome }
    }

    fn from_result<E: fmt::Display>(step: StepName, result: Result<String, E>) -> Self {
        Self::new(
            step,
            match result {
                Ok(found) => Outcome::Passed(found),
                Err(reason) => Outcome::Failed(reason.to_string()),
            },
        )
    }

    fn skipped(step: StepName, reason: &str) -> Self {
        Self::new(step, Outcome::Skipped(reason.to_owned()))
    }
}

/// The outcomes of all verification steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    steps: Vec<Step>,
    statement: Option<VerifiedStatement>,
}

impl Report {
    /// Returns the steps in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the statement if the signature is valid and no step failed.
    pub fn statement(&self) -> Option<&VerifiedStatement> {
        self.statement.as_ref().filter(|_| self.is_verified())
    }

    /// Returns whether the statement's signature is valid and no step failed.
    pub fn is_verified(&self) -> bool {
        let failed = |step: &Step| matches!(step.outcome, Outcome::Failed(_));
        self.statement.is_some() && !self.steps.iter().any(failed)
    }

    /// Adds a verification step that the caller made, for example [`StepName::Chain`].
    pub fn add_step(&mut self, step: Step) {
        self.steps.push(step);
    }
}

/// Why a document can't be verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The document begins like a proof but is malformed.
    #[error(transparent)]
    Proof(#[from] ProofTextError),
    /// The document begins like an evidence file but is malformed.
    #[error("the file of evidence is malformed: {0}")]
    Evidence(String),
    /// The document has none of the known formats.
    #[error("the document is neither a JWS compact serialization nor a C2SP tlog-proof")]
    Unknown,
}

/// Verifies a document: a statement, or a proof that contains the statement as `extra`.
pub fn verify_document(document: &str, trust: &Trust) -> Result<Report, DocumentError> {
    if document.starts_with(PROOF_HEADER) {
        return Ok(verify_proof(&document.parse()?, trust));
    }
    if !looks_like_statement(document) {
        return Err(DocumentError::Unknown);
    }
    let (step, statement) = verify_statement(document, trust);
    let reason = "the document is a bare statement, without a proof of the log";
    let skipped = [StepName::Inclusion, StepName::Checkpoint, StepName::Witnesses];
    let skipped = skipped.map(|step| Step::skipped(step, reason));
    Ok(Report {
        steps: std::iter::once(step).chain(skipped).collect(),
        statement,
    })
}

/// Returns whether a text looks like a JWS, regardless of padding and final line breaks.
fn looks_like_statement(document: &str) -> bool {
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_=".contains(&c));
    let document = document.trim_end_matches(['\n', '\r']);
    document.split('.').count() == 3 && document.split('.').all(is_part)
}

fn verify_statement(statement: &str, trust: &Trust) -> (Step, Option<VerifiedStatement>) {
    let verified = trust.keys.verify(statement).map_err(|error| error.to_string());
    let known = verified.and_then(|statement| match statement.kind() {
        Some(_) => Ok(statement),
        None => Err(format!("`{}` is no known kind of statement", statement.typ())),
    });
    let found = known.as_ref().map_err(Clone::clone);
    let found = found.map(|statement| format!("{}, signed by key {}", statement.typ(), statement.kid()));
    (Step::from_result(StepName::Statement, found), known.ok())
}

fn verify_proof(proof: &TlogProof, trust: &Trust) -> Report {
    let extra = proof.unverified_extra_data().map(std::str::from_utf8);
    let (statement_step, statement) = match extra {
        Some(Ok(statement)) => verify_statement(statement, trust),
        Some(Err(_)) => (
            Step::from_result(StepName::Statement, Err("`extra` is no statement")),
            None,
        ),
        None => (
            Step::from_result(StepName::Statement, Err("the proof carries no statement")),
            None,
        ),
    };
    let opened = trust.policy.open_checkpoint(proof.checkpoint_note());
    let entry = proof.unverified_extra_data();
    let inclusion = match (&opened, entry) {
        (Ok(checkpoint), Some(entry)) => match proof.verify_inclusion(entry, &checkpoint.tree_head()) {
            Ok(()) => Ok(format!(
                "entry {} of {}",
                proof.entry_index(),
                checkpoint.tree_head().size
            )),
            Err(error) => Err(error.to_string()),
        },
        (Err(_), _) => Err("there is no trusted checkpoint to prove it against".to_owned()),
        (_, None) => Err("the proof carries no statement".to_owned()),
    };
    let checkpoint = opened
        .as_ref()
        .map(|checkpoint| format!("signed by the log {}", checkpoint.origin()));
    let witnesses = match (&opened, trust.policy.verify_cosignatures(proof.checkpoint_note())) {
        (Err(_), _) => Step::from_result(StepName::Witnesses, Err("there is no trusted checkpoint to cosign")),
        (_, Ok(cosigned)) if cosigned.is_empty() => Step::skipped(
            StepName::Witnesses,
            "the trust file asks for no witness, and none that it names cosigned",
        ),
        (_, cosigned) => Step::from_result(
            StepName::Witnesses,
            cosigned.map(|cosigned| {
                let named = cosigned.iter().map(|item| format!("{} at {}", item.witness, item.time));
                format!("cosigned by {}", named.collect::<Vec<_>>().join(", "))
            }),
        ),
    };
    Report {
        steps: vec![
            statement_step,
            Step::from_result(StepName::Inclusion, inclusion),
            Step::from_result(StepName::Checkpoint, checkpoint),
            witnesses,
        ],
        statement,
    }
}
