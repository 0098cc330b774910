//! Verifying a file of evidence: the statements about one payment with their proofs, the documents that their hashes are
//! of, and the provider's own objects.
//!
//! The file is JSON: `decision` and `receipt` (each with `statement` and `proof`, or null), `inputs` (documents, or null)
//! and `provider` (`offers` and `receipt`, or missing). Other members are for people, and are ignored.

use crate::provider::{ProviderObject, ProviderSigner, SignedByProvider};
use crate::statement::{StatementKind, VerifiedStatement};
use crate::verify::{DocumentError, Outcome, Step, StepName, Trust, verify};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The part of a file of evidence that a step is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The statement of the decision.
    Decision,
    /// The statement of the confirmed payment.
    Receipt,
    /// The provider's own objects.
    Provider,
}

impl Part {
    /// The part's name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decision => "decision",
            Self::Receipt => "receipt",
            Self::Provider => "provider",
        }
    }
}

/// A step about a part of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartStep {
    /// The part.
    pub part: Part,
    /// The step and its outcome.
    #[serde(flatten)]
    pub step: Step,
}

/// The outcomes of the steps of a file of evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvidenceReport {
    steps: Vec<PartStep>,
    decision: Option<VerifiedStatement>,
    receipt: Option<VerifiedStatement>,
}

/// Whether a document is a file of evidence rather than a statement or a proof.
pub fn is_evidence(document: &str) -> bool {
    document.trim_start().starts_with('{')
}

#[derive(Deserialize)]
struct File {
    decision: Option<Stated>,
    receipt: Option<Stated>,
    #[serde(default)]
    inputs: Option<Value>,
    #[serde(default)]
    provider: Option<Provider>,
}

#[derive(Deserialize)]
struct Stated {
    statement: String,
    proof: String,
}

#[derive(Deserialize)]
struct Provider {
    #[serde(default)]
    offers: Vec<Value>,
    #[serde(default)]
    receipt: Option<Value>,
}

/// The payment that verified statements are about, to compare a provider's objects with.
struct Payment {
    url: Option<String>,
    network: Option<String>,
    asset: Option<String>,
    pay_to: Option<String>,
    amount: Option<u64>,
    wallet: Option<String>,
    tx_hash: Option<String>,
}

impl EvidenceReport {
    /// The steps, in order.
    pub fn steps(&self) -> &[PartStep] {
        &self.steps
    }

    /// Whether at least one statement is verified, and no step failed.
    pub fn is_verified(&self) -> bool {
        let failed = |step: &PartStep| matches!(step.step.outcome, Outcome::Failed(_));
        (self.decision.is_some() || self.receipt.is_some()) && !self.steps.iter().any(failed)
    }

    /// The statement of the decision, if its signature is valid and no step about it failed.
    pub const fn decision(&self) -> Option<&VerifiedStatement> {
        self.decision.as_ref()
    }

    /// The statement of the receipt, if its signature is valid and no step about it failed.
    pub const fn receipt(&self) -> Option<&VerifiedStatement> {
        self.receipt.as_ref()
    }

    /// Adds the outcome of a step.
    pub fn add(&mut self, part: Part, step: Step) {
        self.steps.push(PartStep { part, step });
    }

    /// Adds the steps of a statement, or that the file has none.
    fn add_part(
        &mut self,
        part: Part,
        kind: StatementKind,
        stated: Option<&Stated>,
        trust: &Trust,
    ) -> Option<VerifiedStatement> {
        if let Some(stated) = stated {
            return self.add_statement(part, kind, stated, trust);
        }
        let none = Outcome::Skipped("the file has none".to_owned());
        self.add(part, Step::new(StepName::Statement, none));
        None
    }

    fn add_statement(
        &mut self,
        part: Part,
        kind: StatementKind,
        stated: &Stated,
        trust: &Trust,
    ) -> Option<VerifiedStatement> {
        let report = match verify(&stated.proof, trust) {
            Ok(report) => report,
            Err(error) => {
                self.add(part, Step::new(StepName::Statement, Outcome::Failed(error.to_string())));
                return None;
            }
        };
        for step in report.steps() {
            self.add(part, step.clone());
        }
        let statement = report.statement().cloned();
        let is_kind = statement
            .as_ref()
            .is_none_or(|statement| statement.kind() == Some(kind));
        let is_same = statement.is_none() || trust.keys.verify(&stated.statement).ok() == statement;
        if !is_kind || !is_same {
            let why = if is_kind {
                "`statement` is not the statement of the proof"
            } else {
                "the statement is of another kind"
            };
            self.add(part, Step::new(StepName::Statement, Outcome::Failed(why.to_owned())));
            return None;
        }
        statement
    }
}

/// Verifies a file of evidence. The chain is left to the caller, as in [`verify`].
pub fn verify_evidence(document: &str, trust: &Trust) -> Result<EvidenceReport, DocumentError> {
    let malformed = |error: serde_json::Error| DocumentError::Evidence(error.to_string());
    let json: Value = serde_json::from_str(document).map_err(malformed)?;
    if json.get("decision").or(json.get("receipt")).is_none() {
        let why = "it has neither `decision` nor `receipt`";
        return Err(DocumentError::Evidence(why.to_owned()));
    }
    let file = File::deserialize(json).map_err(malformed)?;
    let mut report = EvidenceReport::default();
    let decision = report.add_part(Part::Decision, StatementKind::Decision, file.decision.as_ref(), trust);
    let decided = decision.as_ref().map(payload);
    if let Some(payload) = &decided {
        report.add(
            Part::Decision,
            Step::new(StepName::Hashes, hashes(payload, file.inputs.as_ref())),
        );
    }
    let receipt = report.add_part(Part::Receipt, StatementKind::Receipt, file.receipt.as_ref(), trust);
    let paid = receipt.as_ref().map(payload);
    if let (Some(decided), Some(paid)) = (&decided, &paid) {
        report.add(Part::Receipt, Step::new(StepName::Payment, same_payment(decided, paid)));
    }
    report.decision = decision;
    report.receipt = receipt;
    let payment = Payment::of(decided.as_ref(), paid.as_ref());
    if let Some(provider) = &file.provider {
        for offer in &provider.offers {
            let outcome = payment.compare(ProviderObject::Offer, offer);
            report.add(Part::Provider, Step::new(StepName::Offer, outcome));
        }
        // A 402 may offer several ways to pay; one of them was used.
        keep_one_match(&mut report.steps);
        if let Some(receipt) = &provider.receipt {
            let outcome = payment.compare(ProviderObject::Receipt, receipt);
            report.add(Part::Provider, Step::new(StepName::ProviderReceipt, outcome));
        }
    }
    Ok(report)
}

/// The first word of the outcome of an offer that is valid and about another payment.
const OTHER: &str = "another payment: ";

/// Offers of other payments are skipped if one is of this payment, and failed if none is.
fn keep_one_match(steps: &mut [PartStep]) {
    let is_offer = |step: &&PartStep| step.step.step == StepName::Offer;
    let has_match = steps.iter().filter(is_offer).any(|step| match &step.step.outcome {
        Outcome::Passed(_) => true,
        Outcome::Skipped(why) => !why.starts_with(OTHER),
        Outcome::Failed(_) => false,
    });
    for step in steps.iter_mut().filter(|step| step.step.step == StepName::Offer) {
        if let Outcome::Skipped(why) = &step.step.outcome
            && why.starts_with(OTHER)
            && !has_match
        {
            step.step.outcome = Outcome::Failed(why.clone());
        }
    }
}

fn payload(statement: &VerifiedStatement) -> Value {
    serde_json::from_slice(statement.payload()).unwrap_or_default()
}

/// The SHA-256 of the RFC 8785 form, in hexadecimal.
fn hash(document: &Value) -> String {
    let canonical = serde_json_canonicalizer::to_vec(document).unwrap_or_default();
    let hash = Sha256::digest(canonical);
    hash.iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The step of the hashes of a decision.
fn hashes(payload: &Value, inputs: Option<&Value>) -> Outcome {
    let member = |name: &str| payload.get(name).cloned().unwrap_or_default();
    let hashed = json!({
        "facts": member("facts"),
        "inputs": member("inputs"),
        "result": member("result"),
        "reason": member("reason"),
    });
    if payload.get("decision_hash").and_then(Value::as_str) != Some(hash(&hashed).as_str()) {
        return Outcome::Failed("`decision_hash` is another".to_owned());
    }
    let Some(inputs) = inputs.filter(|inputs| !inputs.is_null()) else {
        return Outcome::Passed("`decision_hash`; the file has no documents of the inputs".to_owned());
    };
    for name in ["agent", "policy", "service"] {
        let stated = payload.pointer(&format!("/inputs/{name}_hash")).and_then(Value::as_str);
        let document = inputs.get(name).cloned().unwrap_or_default();
        if stated != Some(hash(&document).as_str()) {
            return Outcome::Failed(format!("the hash of the input `{name}` is another"));
        }
    }
    Outcome::Passed("`decision_hash`, and those of the agent, the policy and the service".to_owned())
}

/// Whether both statements are about one payment.
fn same_payment(decided: &Value, paid: &Value) -> Outcome {
    let pairs = [
        ("/settlement_id", "/settlement_id"),
        ("/transaction_id", "/transaction_id"),
        ("/facts/agent_id", "/settlement/agent_id"),
        ("/facts/network", "/settlement/network"),
        ("/facts/asset", "/settlement/asset"),
        ("/facts/pay_to", "/settlement/pay_to"),
        ("/facts/amount_units", "/settlement/amount_units"),
    ];
    let differs = pairs
        .iter()
        .find(|(of_decision, of_receipt)| decided.pointer(of_decision) != paid.pointer(of_receipt));
    match differs {
        Some((of_decision, _)) => Outcome::Failed(format!("`{of_decision}` of the decision is another")),
        None => Outcome::Passed("the decision and the receipt are about one payment".to_owned()),
    }
}

impl Payment {
    fn of(decided: Option<&Value>, paid: Option<&Value>) -> Self {
        let find = |of_decision: &str, of_receipt: &str| {
            let of_decision = decided.and_then(|payload| payload.pointer(of_decision));
            of_decision.or_else(|| paid.and_then(|payload| payload.pointer(of_receipt)))
        };
        let text = |of_decision: &str, of_receipt: &str| {
            let found = find(of_decision, of_receipt).and_then(Value::as_str);
            found.map(str::to_owned)
        };
        Self {
            url: text("/facts/call/url", "/-"),
            network: text("/facts/network", "/settlement/network"),
            asset: text("/facts/asset", "/settlement/asset"),
            pay_to: text("/facts/pay_to", "/settlement/pay_to"),
            amount: find("/facts/amount_units", "/settlement/amount_units").and_then(Value::as_u64),
            wallet: text("/-", "/settlement/wallet"),
            tx_hash: text("/-", "/settlement/tx_hash"),
        }
    }

    /// The step of a provider's object.
    fn compare(&self, kind: ProviderObject, object: &Value) -> Outcome {
        let SignedByProvider { payload, signer } = match kind.verify(object) {
            Ok(signed) => signed,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        let text = |name: &str| payload.get(name).and_then(Value::as_str);
        // What the statements do not say is not compared.
        let amount = self.amount.map(|amount| amount.to_string());
        let known = match kind {
            ProviderObject::Offer => vec![
                ("resourceUrl", &self.url),
                ("network", &self.network),
                ("asset", &self.asset),
                ("payTo", &self.pay_to),
                ("amount", &amount),
            ],
            ProviderObject::Receipt => vec![
                ("resourceUrl", &self.url),
                ("network", &self.network),
                ("payer", &self.wallet),
                ("transaction", &self.tx_hash),
            ],
        };
        for (name, expected) in known {
            let (Some(expected), Some(found)) = (expected, text(name)) else {
                continue;
            };
            // Providers may leave the transaction out for privacy. Addresses have no one case.
            let is_left_out = name == "transaction" && found.is_empty();
            let is_same = if name == "resourceUrl" {
                found == expected
            } else {
                found.eq_ignore_ascii_case(expected)
            };
            if !is_same && !is_left_out {
                let why = format!("{OTHER}its `{name}` is `{found}`");
                return match kind {
                    ProviderObject::Offer => Outcome::Skipped(why),
                    ProviderObject::Receipt => Outcome::Failed(why),
                };
            }
        }
        let name = kind.name();
        match signer {
            ProviderSigner::Address(address) => match &self.pay_to {
                Some(pay_to) if pay_to.eq_ignore_ascii_case(&address) => {
                    Outcome::Passed(format!("the payee {address} signed the {name}"))
                }
                _ => Outcome::Skipped(format!(
                    "the signature of the {name} recovers {address}, which is not the payee: ask whose it is"
                )),
            },
            ProviderSigner::Key(id) => Outcome::Passed(format!("the {name} is signed by {id}: ask whose key it is")),
            ProviderSigner::Unknown(id) => Outcome::Skipped(format!("the key {id} of the {name} has to be fetched")),
        }
    }
}
