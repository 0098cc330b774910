//! Verifies an evidence file: JSON with the statements about one payment, their proofs, and the documents whose hashes
//! the statements contain.
//!
//! The report lists every field that no step has compared with signed data, as a JSON Pointer (RFC 6901). So a new
//! field is listed until a step verifies it.

use crate::network::Network;
use crate::provider::{ProviderObject, SignedByProvider};
use crate::verify::{DocumentError, Outcome, Step, StepName, Trust, verify_document};
use purser_evidence::{Hash, StatementKind, TlogProof, VerifiedStatement, parse_json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The part of an evidence file that a step verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The statement of the decision.
    Decision,
    /// The statement of the confirmed payment.
    Receipt,
    /// The statements about later changes to the payment.
    Changes,
    /// The provider's own objects.
    Provider,
    /// Values in the file that are copies of signed data.
    File,
}

impl Part {
    /// Returns the name of this part of an evidence file, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decision => "decision",
            Self::Receipt => "receipt",
            Self::Changes => "changes",
            Self::Provider => "provider",
            Self::File => "file",
        }
    }
}

/// A verification step, with the part of the evidence file that the step verifies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartStep {
    /// The part of the evidence file that the step verifies.
    pub part: Part,
    /// The verification step, with the outcome.
    #[serde(flatten)]
    pub step: Step,
}

/// The result of each verification step of an evidence file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvidenceReport {
    steps: Vec<PartStep>,
    decision: Option<VerifiedStatement>,
    receipt: Option<VerifiedStatement>,
    /// Whether the decision denied the payment or required an approval.
    is_denial: bool,
    unverified: Vec<String>,
    missing_dids: Vec<String>,
}

/// The fields of an evidence file that no step has compared with signed data yet.
struct UnverifiedFields {
    file: Value,
    rest: Value,
}

impl UnverifiedFields {
    fn new(file: &Value) -> Self {
        let (file, rest) = (file.clone(), file.clone());
        Self { file, rest }
    }

    /// Records that a step has compared this field with signed data.
    fn mark_verified(&mut self, pointer: &str) {
        let Some((parent, name)) = pointer.rsplit_once('/') else {
            return;
        };
        if let Some(Value::Object(fields)) = self.rest.pointer_mut(parent) {
            fields.remove(name);
        }
    }

    /// Returns the JSON Pointers (RFC 6901) of the unverified fields. A wholly unverified object has one pointer.
    fn into_pointers(self) -> Vec<String> {
        fn collect_pointers(file: &Value, rest: &Value, at: &str, pointers: &mut Vec<String>) {
            match rest {
                Value::Object(fields) if file != rest || at.is_empty() => {
                    for (name, field) in fields {
                        let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                        collect_pointers(file.get(name).unwrap_or(&Value::Null), field, &at, pointers);
                    }
                }
                Value::Array(fields) if file != rest => {
                    for (index, field) in fields.iter().enumerate() {
                        let at = format!("{at}/{index}");
                        collect_pointers(file.get(index).unwrap_or(&Value::Null), field, &at, pointers);
                    }
                }
                _ => pointers.push(at.to_owned()),
            }
        }
        let mut pointers = Vec::new();
        collect_pointers(&self.file, &self.rest, "", &mut pointers);
        pointers
    }
}

/// Returns whether a document is an evidence file, and not a statement or a proof.
pub fn is_evidence_file(document: &str) -> bool {
    document.trim_start().starts_with('{')
}

#[derive(Deserialize)]
struct File {
    decision: Option<StatedPayload>,
    receipt: Option<StatedPayload>,
    #[serde(default)]
    changes: Vec<StatedPayload>,
    #[serde(default)]
    inputs: Option<Value>,
    #[serde(default)]
    provider: Option<Provider>,
}

#[derive(Deserialize)]
struct StatedPayload {
    statement: String,
    proof: String,
    #[serde(default)]
    index: Option<u64>,
}

#[derive(Deserialize)]
struct Provider {
    #[serde(default)]
    offers: Vec<Value>,
    #[serde(default)]
    receipt: Option<Value>,
}

/// The payment in the verified statements, which is compared with the provider's objects.
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
    /// Returns the steps in order.
    pub fn steps(&self) -> &[PartStep] {
        &self.steps
    }

    /// Returns whether no step failed and the file proves a confirmed payment or a denial.
    pub fn is_verified(&self) -> bool {
        let failed = |step: &PartStep| matches!(step.step.outcome, Outcome::Failed(_));
        (self.receipt.is_some() || self.is_denial) && !self.steps.iter().any(failed)
    }

    /// Returns the JSON Pointers of the values that were not compared with signed data.
    pub fn unverified_pointers(&self) -> &[String] {
        &self.unverified
    }

    /// Returns the `did:web` identifiers of the resource's host that [`Trust::providers`] lacks.
    pub fn missing_dids(&self) -> &[String] {
        &self.missing_dids
    }

    /// Returns the signed statement of the decision, or `None` if the verification failed.
    pub const fn decision_statement(&self) -> Option<&VerifiedStatement> {
        self.decision.as_ref()
    }

    /// Returns the signed statement of the receipt, or `None` if the verification failed.
    pub const fn receipt_statement(&self) -> Option<&VerifiedStatement> {
        self.receipt.as_ref()
    }

    /// Adds a verification step that the caller made, for example [`StepName::Chain`].
    pub fn add_step(&mut self, part: Part, step: Step) {
        self.steps.push(PartStep { part, step });
    }

    /// Adds the steps for a statement, or a skipped step if the file lacks the statement.
    fn add_part(
        &mut self,
        part: Part,
        kind: StatementKind,
        payload: Option<&StatedPayload>,
        trust: &Trust,
    ) -> Option<VerifiedStatement> {
        if let Some(stated) = payload {
            return self.add_statement(part, kind, stated, trust);
        }
        let none = Outcome::Skipped("the file has none".to_owned());
        self.add_step(part, Step::new(StepName::Statement, none));
        None
    }

    fn add_statement(
        &mut self,
        part: Part,
        kind: StatementKind,
        payload: &StatedPayload,
        trust: &Trust,
    ) -> Option<VerifiedStatement> {
        // An evidence file needs the proof, because only the proof contains the statement's position in the log.
        let proof = payload.proof.parse::<TlogProof>().map_err(DocumentError::from);
        let verified = proof.and_then(|proof| Ok((proof.entry_index(), verify_document(&payload.proof, trust)?)));
        let (index, report) = match verified {
            Ok(verified) => verified,
            Err(error) => {
                self.add_step(part, Step::new(StepName::Statement, Outcome::Failed(error.to_string())));
                return None;
            }
        };
        for step in report.steps() {
            self.add_step(part, step.clone());
        }
        let statement = report.statement().cloned();
        let is_kind = statement
            .as_ref()
            .is_none_or(|statement| statement.kind() == Some(kind));
        let is_same = statement.is_none() || trust.keys.verify(&payload.statement).ok() == statement;
        let is_index = payload.index.is_none_or(|stated| stated == index);
        if !is_kind || !is_same || !is_index {
            let reason = match (is_kind, is_same) {
                (false, _) => "the statement is of another kind",
                (_, false) => "`statement` is not the statement of the proof",
                _ => "`index` is not the index of the proof",
            };
            self.add_step(part, Step::new(StepName::Statement, Outcome::Failed(reason.to_owned())));
            return None;
        }
        statement
    }
}

/// Verifies an evidence file. As in [`verify_document`], the caller checks the chain.
pub fn verify_evidence(document: &str, trust: &Trust) -> Result<EvidenceReport, DocumentError> {
    let malformed = |error: serde_json::Error| DocumentError::Evidence(error.to_string());
    let json = parse_json(document.as_bytes()).map_err(malformed)?;
    if json.get("decision").or(json.get("receipt")).is_none() {
        let reason = "it has neither `decision` nor `receipt`";
        return Err(DocumentError::Evidence(reason.to_owned()));
    }
    let mut rest = UnverifiedFields::new(&json);
    let file = File::deserialize(&json).map_err(malformed)?;
    let mut report = EvidenceReport::default();
    let decision = report.add_part(Part::Decision, StatementKind::Decision, file.decision.as_ref(), trust);
    let decided = decision.as_ref().map(payload_json);
    if let Some(payload) = &decided {
        let result = payload.get("result").and_then(Value::as_str);
        report.is_denial = matches!(result, Some("block" | "escalate"));
        let outcome = check_decision_hashes(payload, file.inputs.as_ref(), &mut rest);
        report.add_step(Part::Decision, Step::new(StepName::Hashes, outcome));
    }
    let receipt = report.add_part(Part::Receipt, StatementKind::Receipt, file.receipt.as_ref(), trust);
    let paid = receipt.as_ref().map(payload_json);
    if let (Some(decided), Some(paid)) = (&decided, &paid) {
        report.add_step(
            Part::Receipt,
            Step::new(StepName::Payment, check_same_payment(decided, paid)),
        );
    }
    for (index, stated) in file.changes.iter().enumerate() {
        let change = report.add_part(Part::Changes, StatementKind::Change, Some(stated), trust);
        if let Some(change) = change.as_ref().map(payload_json) {
            let receipt = file.receipt.as_ref().filter(|_| paid.is_some());
            let outcome = if change.get("approval").is_some() {
                check_approval_decision(&change, decided.as_ref())
            } else {
                check_change(&change, paid.as_ref().or(decided.as_ref()), receipt)
            };
            report.add_step(Part::Changes, Step::new(StepName::Payment, outcome));
            for field in ["statement", "proof"].into_iter().chain(stated.index.map(|_| "index")) {
                rest.mark_verified(&format!("/changes/{index}/{field}"));
            }
        }
    }
    if file.changes.is_empty() {
        rest.mark_verified("/changes");
    }
    report.decision = decision;
    report.receipt = receipt;
    for (part, stated, is_verified) in [
        ("decision", &file.decision, decided.is_some()),
        ("receipt", &file.receipt, paid.is_some()),
    ] {
        let Some(stated) = stated else {
            rest.mark_verified(&format!("/{part}"));
            continue;
        };
        for field in ["statement", "proof"].into_iter().chain(stated.index.map(|_| "index")) {
            if is_verified {
                rest.mark_verified(&format!("/{part}/{field}"));
            }
        }
    }
    if decided.is_some() || paid.is_some() {
        let outcome = check_copies(&json, decided.as_ref(), paid.as_ref(), &mut rest);
        report.add_step(Part::File, Step::new(StepName::Copies, outcome));
    }
    if let Some(provider) = &file.provider {
        let payment = Payment::new(decided.as_ref(), paid.as_ref());
        report.add_provider(&payment, provider, trust, &mut rest);
    }
    report.unverified = rest.into_pointers();
    Ok(report)
}

impl EvidenceReport {
    fn add_provider(
        &mut self,
        payment: &Payment,
        provider: &Provider,
        trust: &Trust,
        unverified: &mut UnverifiedFields,
    ) {
        let offers = provider.offers.iter().enumerate();
        let offers = offers.map(|(index, offer)| (ProviderObject::Offer, format!("/provider/offers/{index}"), offer));
        let receipt = provider.receipt.iter();
        let receipt = receipt.map(|receipt| (ProviderObject::Receipt, "/provider/receipt".to_owned(), receipt));
        for (kind, at, object) in offers.chain(receipt) {
            let signed = kind.verify(object, &trust.providers);
            let outcome = match &signed {
                Ok(signed) => payment.check_provider_object(kind, signed, trust),
                Err(error) => Outcome::Failed(error.to_string()),
            };
            if matches!(outcome, Outcome::Passed(_)) {
                for field in kind.list_signed_members(object) {
                    unverified.mark_verified(&format!("{at}{field}"));
                }
            }
            // A host is asked only for keys of its own resources.
            if let Some((did, host)) = signed.ok().and_then(|signed| signed.signer.missing_did())
                && payment.resource_host().as_ref() == Some(&host)
                && !self.missing_dids.contains(&did)
            {
                self.missing_dids.push(did);
            }
            let step = match kind {
                ProviderObject::Offer => StepName::Offer,
                ProviderObject::Receipt => StepName::ProviderReceipt,
            };
            self.add_step(Part::Provider, Step::new(step, outcome));
        }
        // A 402 response may contain several payment requirements, of which only one was paid.
        skip_other_offers(&mut self.steps);
    }
}

/// The prefix of the skip reason for a valid offer that concerns another payment.
const OTHER: &str = "another payment: ";

/// Marks the offers of other payments as skipped if an offer of this payment exists, and as failed otherwise.
fn skip_other_offers(steps: &mut [PartStep]) {
    let is_offer = |step: &&PartStep| step.step.step == StepName::Offer;
    let has_match = steps.iter().filter(is_offer).any(|step| match &step.step.outcome {
        Outcome::Passed(_) => true,
        Outcome::Skipped(reason) => !reason.starts_with(OTHER),
        Outcome::Failed(_) => false,
    });
    for step in steps.iter_mut().filter(|step| step.step.step == StepName::Offer) {
        if let Outcome::Skipped(reason) = &step.step.outcome
            && reason.starts_with(OTHER)
            && !has_match
        {
            step.step.outcome = Outcome::Failed(reason.clone());
        }
    }
}

fn payload_json(statement: &VerifiedStatement) -> Value {
    serde_json::from_slice(statement.payload()).unwrap_or_default()
}

/// Returns the SHA-256 of the document's canonical form (RFC 8785), in hexadecimal.
fn json_hash(document: &Value) -> String {
    let canonical = serde_json_canonicalizer::to_vec(document).unwrap_or_default();
    hexadecimal(&Sha256::digest(canonical))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits = bytes.iter();
    digits.fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// Compares the hashes in a decision with the documents.
fn check_decision_hashes(payload: &Value, inputs: Option<&Value>, unverified: &mut UnverifiedFields) -> Outcome {
    let field = |name: &str| payload.get(name).cloned().unwrap_or_default();
    let hashed = json!({
        "transaction_id": field("transaction_id"),
        "settlement_id": field("settlement_id"),
        "approval_id": field("approval_id"),
        "facts": field("facts"),
        "result": field("result"),
        "reason": field("reason"),
    });
    if payload.get("decision_hash").and_then(Value::as_str) != Some(json_hash(&hashed).as_str()) {
        return Outcome::Failed("`decision_hash` is another".to_owned());
    }
    let Some(inputs) = inputs.filter(|inputs| !inputs.is_null()) else {
        unverified.mark_verified("/inputs");
        return Outcome::Passed("`decision_hash`; the file has no documents of the inputs".to_owned());
    };
    for name in ["agent", "policy", "service"] {
        let stated = payload.pointer(&format!("/inputs/{name}_hash")).and_then(Value::as_str);
        let document = inputs.get(name).cloned().unwrap_or_default();
        if stated != Some(json_hash(&document).as_str()) {
            return Outcome::Failed(format!("the hash of the input `{name}` is another"));
        }
        unverified.mark_verified(&format!("/inputs/{name}"));
    }
    Outcome::Passed("`decision_hash`, and those of the agent, the policy and the service".to_owned())
}

/// Checks that a change concerns this payment and does not invalidate the receipt.
fn check_change(change: &Value, payment: Option<&Value>, receipt: Option<&StatedPayload>) -> Outcome {
    let text = |at: &str| change.pointer(at).and_then(Value::as_str);
    if payment.is_some_and(|payment| payment.get("settlement_id") != change.get("settlement_id")) {
        return Outcome::Failed("the change is of another payment".to_owned());
    }
    let leaf = receipt.map(|receipt| Hash::for_leaf(receipt.statement.as_bytes()));
    if leaf.is_some_and(|leaf| text("/changed_receipt/leaf_hash") == Some(hexadecimal(leaf.as_bytes()).as_str())) {
        return Outcome::Failed("the receipt is void, because its confirmation was reverted".to_owned());
    }
    Outcome::Passed(text("/change").unwrap_or_default().to_owned())
}

/// Checks that an approval decision concerns the decision in the file.
fn check_approval_decision(change: &Value, decision: Option<&Value>) -> Outcome {
    let is_of = |name: &str| {
        let changed = change.get("changed_decision").and_then(|changed| changed.get(name));
        changed.is_some() && decision.and_then(|decided| decided.get(name)) == changed
    };
    if !is_of("transaction_id") || !is_of("decision_hash") {
        return Outcome::Failed("the approval decision is about another decision".to_owned());
    }
    let name = change.get("change").and_then(Value::as_str);
    Outcome::Passed(name.unwrap_or_default().to_owned())
}

/// Checks that the decision and the receipt concern the same payment.
fn check_same_payment(decision: &Value, payment: &Value) -> Outcome {
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
        .find(|(of_decision, of_receipt)| decision.pointer(of_decision) != payment.pointer(of_receipt));
    match differs {
        Some((of_decision, _)) => Outcome::Failed(format!("`{of_decision}` of the decision is another")),
        None => Outcome::Passed("the decision and the receipt are about one payment".to_owned()),
    }
}

/// Compares the fields of the file that repeat signed data with the statements.
fn check_copies(
    file: &Value,
    decision: Option<&Value>,
    payment: Option<&Value>,
    unverified: &mut UnverifiedFields,
) -> Outcome {
    let stated = |of_receipt: &str, of_decision: &str| {
        let of_receipt = payment.and_then(|payload| payload.pointer(of_receipt));
        of_receipt.or_else(|| decision.and_then(|payload| payload.pointer(of_decision)))
    };
    let mut compared = Vec::new();
    let ids = ["transaction_id", "settlement_id"].map(|name| (format!("/{name}"), format!("/{name}")));
    let row = file.get("settlement").and_then(Value::as_object).into_iter();
    let row = row
        .flat_map(serde_json::Map::keys)
        .filter(|name| !name.contains(['/', '~']));
    let row = row.map(|name| {
        let signed = match name.as_str() {
            "id" => "/settlement_id".to_owned(),
            "transaction_id" => "/transaction_id".to_owned(),
            "token" => "/settlement/asset".to_owned(),
            name => format!("/settlement/{name}"),
        };
        (format!("/settlement/{name}"), signed)
    });
    for (at, signed) in ids.into_iter().chain(row) {
        let Some(shown) = file.pointer(&at) else { continue };
        let is_same = match at.as_str() {
            // A receipt is signed only for a confirmed payment.
            "/settlement/receipt_status" => payment.map(|_| shown.as_str() == Some("confirmed")),
            _ => stated(&signed, &signed.replace("/settlement/", "/facts/")).map(|signed| is_copy(&at, shown, signed)),
        };
        match is_same {
            Some(true) => compared.push(at),
            Some(false) => return Outcome::Failed(format!("`{at}` of the file is not what the statement has")),
            // No statement contains this field, so it stays unverified.
            None => {}
        }
    }
    if compared.is_empty() {
        return Outcome::Skipped("the file repeats nothing of its statements".to_owned());
    }
    for at in &compared {
        unverified.mark_verified(at);
    }
    Outcome::Passed(format!("{} members of the file are as they are stated", compared.len()))
}

/// Returns whether a displayed field equals the signed field. The API displays the names of networks and tokens.
fn is_copy(at: &str, shown: &Value, signed: &Value) -> bool {
    let (Some(shown_text), Some(signed_text)) = (shown.as_str(), signed.as_str()) else {
        return shown == signed;
    };
    let network = |text: &str| Network::from_name(text).map(|network| network.chain_id);
    // Times in RFC 3339 are equal if they differ only in trailing zeros of the fraction.
    let time = |text: &str| {
        let text = text.strip_suffix('Z')?;
        let text = if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.')
        } else {
            text
        };
        Some(text.to_owned())
    };
    match at {
        "/settlement/network" => network(shown_text).is_some_and(|shown| network(signed_text) == Some(shown)),
        "/settlement/token" => {
            let is_usdc = Network::ALL
                .iter()
                .any(|network| network.usdc.eq_ignore_ascii_case(signed_text));
            shown_text == "USDC" && is_usdc
        }
        "/settlement/authorized_at" | "/settlement/settled_at" => {
            time(shown_text).is_some_and(|shown| time(signed_text) == Some(shown))
        }
        _ => shown_text == signed_text,
    }
}

impl Payment {
    fn new(decision: Option<&Value>, payment: Option<&Value>) -> Self {
        let find = |of_decision: &str, of_receipt: &str| {
            let of_decision = decision.and_then(|payload| payload.pointer(of_decision));
            of_decision.or_else(|| payment.and_then(|payload| payload.pointer(of_receipt)))
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

    /// Returns the host of the paid resource, with the port unless it is the scheme's default port.
    fn resource_host(&self) -> Option<String> {
        let (_, rest) = self.url.as_ref()?.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        let host = authority.rsplit('@').next()?;
        Some(host.to_ascii_lowercase())
    }

    fn check_provider_object(&self, kind: ProviderObject, signed: &SignedByProvider, trust: &Trust) -> Outcome {
        let text = |name: &str| signed.payload.get(name).and_then(Value::as_str);
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
        let (mut unstated, mut remark) = (None, "");
        for (name, stated) in known {
            let found = text(name).unwrap_or_default();
            // Providers may omit the transaction, for privacy.
            if name == "transaction" && found.is_empty() {
                remark = "; it names no transaction, so it may be about another payment by this wallet for this URL";
                continue;
            }
            let Some(stated) = stated else {
                unstated = unstated.or(Some(name));
                continue;
            };
            // Addresses and hashes may be in upper or lower case.
            let is_same = if name == "resourceUrl" {
                found == stated
            } else {
                found.eq_ignore_ascii_case(stated)
            };
            if !is_same {
                let reason = format!("{OTHER}its `{name}` is `{found}`");
                return match kind {
                    ProviderObject::Offer => Outcome::Skipped(reason),
                    ProviderObject::Receipt => Outcome::Failed(reason),
                };
            }
        }
        let (name, author) = (kind.name(), &signed.signer);
        if let Some(unstated) = unstated {
            return Outcome::Skipped(format!(
                "the file's statements have nothing to compare the `{unstated}` of the {name} with"
            ));
        }
        match signed.find_authority(
            self.pay_to.as_deref(),
            self.resource_host().as_deref(),
            &trust.providers,
        ) {
            Some(authority) => Outcome::Passed(format!("{authority}, signed the {name}{remark}")),
            None => Outcome::Skipped(format!(
                "{author} signed the {name}: it is neither the payee nor a known key of the resource's host"
            )),
        }
    }
}
