//! Writes the evidence file about a payment.
//!
//! Purser never receives a provider's signed objects (x402 extension `offer-receipt`). Therefore `pay` stores them in
//! the state folder.

use crate::args::Evidence;
use crate::credentials::directory;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use purser_client::{PaymentMade, Purser};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Instructions in the evidence file for a reader without an account.
const HOW: [&str; 5] = [
    "Get the keys once from `/log/trust` of the deployment, or from whoever you trust with them, and keep them. `trust` here is a copy.",
    "`purser verify FILE --trust trust.json` lists what it verified and what nothing signed was compared with. `--node URL` of a chain's node adds the transaction.",
    "With other tools: `statement` is a JWS, which any JOSE library verifies with `jwks` of the keys; `proof` is a C2SP tlog-proof.",
    "`decision_hash` is the SHA-256 of the RFC 8785 form of the object of `transaction_id`, `settlement_id`, `approval_id`, `facts`, `result` and `reason`. The owner has the documents of `inputs`.",
    "`provider` has what the provider signed (x402 extension `offer-receipt`) and the HTTP status of its answer, as the paying client received them.",
];

/// Returns the path of the file with the provider's signed objects for a payment.
fn evidence_path(settlement: Uuid) -> Result<PathBuf, Failure> {
    let folder = directory("XDG_STATE_HOME", ".local/state")?;
    Ok(folder.join(format!("purser/payments/{settlement}.json")))
}

/// Stores the provider's signed objects for this payment, and the status of the provider's response.
pub(crate) fn store_provider_objects(payment: &PaymentMade, status: StatusCode, output: &Output) {
    let provider = &payment.provider;
    if provider.offers.is_empty() && provider.receipt.is_none() && status.is_success() {
        return;
    }
    let kept = json!({"offers": provider.offers, "receipt": provider.receipt, "http_status": status.as_u16()});
    let written = evidence_path(payment.settlement_id).and_then(|path| {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|source| file_failure(&path, source))?;
        }
        write_file(&path, &kept.to_string())
    });
    // The payment was already made, so the command continues.
    if let Err(failure) = written {
        output.print_text(&format!("What the provider signed is not kept: {failure}."));
    }
}

/// Writes the evidence file about a payment or about a decision.
pub(crate) async fn write(purser: &Purser, arguments: &Evidence, output: &Output) -> Result<Exit, Failure> {
    let (mut evidence, id) = match (arguments.settlement, arguments.decision) {
        (Some(settlement), _) => (payment_evidence(purser, settlement, arguments).await?, settlement),
        (None, Some(decision)) => (decision_evidence(purser, decision, arguments).await?, decision),
        (None, None) => return Err(Failure::Words("name a settlement or a decision".to_owned())),
    };
    let trust = purser.trust().await?;
    if let Some(fields) = evidence.as_object_mut() {
        fields.insert("how_to_check".to_owned(), json!(HOW));
        fields.insert("inputs".to_owned(), Value::Null);
        fields.insert("trust".to_owned(), trust);
    }
    let default = || PathBuf::from(format!("purser-evidence-{id}.json"));
    let path = arguments.output.clone().unwrap_or_else(default);
    let text = serde_json::to_string_pretty(&evidence).unwrap_or_default();
    write_file(&path, &text)?;
    let has_receipt = evidence.get("receipt").is_some_and(|receipt| !receipt.is_null());
    let has_payment = evidence.get("settlement_id").is_some_and(|id| !id.is_null());
    let document = json!({"file": path.display().to_string(), "has_receipt": has_receipt});
    output.print_result(&document, || {
        let lacks = match (has_payment, has_receipt) {
            (true, false) => {
                ", without a statement of the receipt: the payment is not confirmed, so it does not verify"
            }
            _ => "",
        };
        vec![format!("Wrote {}{lacks}.", path.display())]
    });
    Ok(Exit::Done)
}

async fn payment_evidence(purser: &Purser, settlement: Uuid, arguments: &Evidence) -> Result<Value, Failure> {
    let statements = purser.statements(settlement).await?;
    if statements.decision.is_none() {
        return Err(Failure::Words(
            "the decision is not in the log yet: it is stated within about a minute".to_owned(),
        ));
    }
    let receipt = purser.receipt(settlement).await?;
    Ok(json!({
        "transaction_id": statements.transaction_id,
        "settlement_id": settlement,
        "decision": statements.decision,
        "receipt": statements.receipt,
        "changes": statements.changes,
        "settlement": receipt,
        "provider": provider_objects(settlement, arguments)?,
    }))
}

/// Returns the evidence of a decision and of the decision's payment.
async fn decision_evidence(purser: &Purser, decision: Uuid, arguments: &Evidence) -> Result<Value, Failure> {
    let found = purser.decision_statement(decision).await?;
    if let Some(settlement) = found.settlement_id {
        return payment_evidence(purser, settlement, arguments).await;
    }
    Ok(json!({
        "transaction_id": found.transaction_id,
        "settlement_id": null,
        "decision": found.decision,
        "receipt": null,
        "changes": found.changes,
    }))
}

/// Returns the provider's signed objects from the command line's files, or else those that `pay` stored.
fn provider_objects(settlement: Uuid, arguments: &Evidence) -> Result<Value, Failure> {
    let kept = match fs::read(evidence_path(settlement)?) {
        Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Value::Null,
        Err(error) => {
            return Err(Failure::Words(format!(
                "what the provider signed can't be read: {error}"
            )));
        }
    };
    let mut provider = if kept.is_object() {
        kept
    } else {
        json!({"offers": [], "receipt": null, "http_status": null})
    };
    let given = arguments
        .offer
        .iter()
        .map(|path| read_file(path))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(fields) = provider.as_object_mut() {
        if !given.is_empty() {
            fields.insert("offers".to_owned(), given.into());
        }
        if let Some(path) = &arguments.receipt {
            fields.insert("receipt".to_owned(), read_file(path)?);
        }
    }
    Ok(provider)
}

fn read_file(path: &Path) -> Result<Value, Failure> {
    let unreadable = |reason: String| Failure::Words(format!("{} can't be read: {reason}", path.display()));
    let bytes = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))
}

/// Writes a file that other users can't read, because it shows what the agent bought.
fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| file_failure(path, source))
}

fn file_failure(path: &Path, source: io::Error) -> Failure {
    let message = path.display().to_string();
    Failure::Output { what: message, source }
}
