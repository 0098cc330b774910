//! Verifies a statement, a proof or an evidence file offline, or with a chain node that the caller names.

use crate::args::Verify;
use crate::exit::{Exit, Failure};
use crate::files::{read_text, read_trust};
use crate::log::{LogClient, read_checkpoint};
use crate::node::{Node, connection, read_body};
use crate::output::{Output, table};
use purser_evidence::{TlogProof, VerifiedStatement, parse_json};
use purser_verify::{
    EvidenceReport, NoTransfer, NodeResponses, Outcome, Part, ProviderKey, Report, StatedTransfer, Step, StepName,
    Trust, is_evidence_file, verify_evidence,
};
use serde_json::{Value, json};
use std::path::Path;

/// The maximum length of a `did:web` document, in bytes.
const MAX_DID_BYTES: usize = 64 * 1024;

/// Verifies a document, and prints each step.
pub(crate) async fn verify(arguments: &Verify, output: &Output) -> Result<Exit, Failure> {
    let unreadable = |path: &Path, reason: &dyn std::fmt::Display| {
        Failure::Unreadable(format!("{} can't be verified: {reason}", path.display()))
    };
    let mut trust = read_trust(&arguments.trust)?;
    for path in &arguments.did {
        trust
            .providers
            .extend(provider_keys(&read_text(path)?).map_err(|reason| unreadable(path, &reason))?);
    }
    let node = arguments.node.as_deref().map(Node::for_address).transpose();
    let node = node.map_err(|reason| Failure::Words(reason.to_owned()))?;
    let document = read_text(&arguments.file)?;
    if is_evidence_file(&document) {
        let verified = |trust: &Trust| verify_evidence(&document, trust);
        let mut report = verified(&trust).map_err(|reason| unreadable(&arguments.file, &reason))?;
        if arguments.fetch_did && !report.missing_dids().is_empty() {
            for did in report.missing_dids() {
                trust.providers.extend(fetch_did(did).await?);
            }
            report = verified(&trust).map_err(|reason| unreadable(&arguments.file, &reason))?;
        }
        for (part, proof) in proofs_in_evidence(&document) {
            if let Some(outcome) = consistency(&proof, arguments, &trust).await? {
                report.add_step(part, Step::new(StepName::Consistency, outcome));
            }
        }
        return Ok(evidence(report, node.as_ref(), output).await);
    }
    let mut report =
        purser_verify::verify_document(&document, &trust).map_err(|reason| unreadable(&arguments.file, &reason))?;
    let outcome = chain(report.statement(), node.as_ref()).await;
    report.add_step(Step::new(StepName::Chain, outcome));
    if let Some(outcome) = consistency(&document, arguments, &trust).await? {
        report.add_step(Step::new(StepName::Consistency, outcome));
    }

    let payload = report.statement().map(payload_json);
    let answer = json!({"verified": report.is_verified(), "steps": report.steps(), "statement": payload});
    output.print_result(&answer, || lines(&report, payload.as_ref()));
    Ok(exit(report.is_verified()))
}

/// Checks the payment in an evidence file with the chain node, and prints each step.
async fn evidence(mut report: EvidenceReport, node: Option<&Node>, output: &Output) -> Exit {
    let outcome = chain(report.receipt_statement(), node).await;
    report.add_step(Part::Receipt, Step::new(StepName::Chain, outcome));
    let payload = |statement: Option<&VerifiedStatement>| statement.filter(|_| report.is_verified()).map(payload_json);
    let (decision, receipt) = (
        payload(report.decision_statement()),
        payload(report.receipt_statement()),
    );
    let is_verified = report.is_verified();
    let unverified = report.unverified_pointers();
    let document = json!({
        "verified": is_verified, "steps": report.steps(), "unverified": unverified,
        "decision": decision, "receipt": receipt,
    });
    output.print_result(&document, || {
        let rows = report.steps().iter().map(|step| {
            let part = step.part.name().to_owned();
            [vec![part], row(&step.step)].concat()
        });
        let mut lines = table(&["PART", "STEP", "OUTCOME", "DETAIL"], &rows.collect::<Vec<_>>());
        lines.push(result(is_verified));
        if !unverified.is_empty() {
            lines.push(format!(
                "Compared with nothing that is signed: {}",
                unverified.join(", ")
            ));
        }
        lines.extend(decision.iter().chain(&receipt).map(Value::to_string));
        lines
    });
    exit(is_verified)
}

/// Returns the keys in a `did:web` document.
fn provider_keys(document: &str) -> Result<Vec<ProviderKey>, String> {
    let document = parse_json(document.as_bytes()).map_err(|error| error.to_string())?;
    ProviderKey::from_did_document(&document).map_err(|error| error.to_string())
}

/// Fetches the keys of a `did:web` without a path from the DID's host (did:web §3.2).
async fn fetch_did(did: &str) -> Result<Vec<ProviderKey>, Failure> {
    let failed = |reason: String| Failure::Words(format!("the document of {did} can't be fetched: {reason}"));
    let host = did.trim_start_matches("did:web:").replace("%3A", ":");
    let at = |scheme: &str| connection(&format!("{scheme}://{host}/.well-known/did.json"));
    let (http, url) = at("http")
        .or_else(|| at("https"))
        .ok_or_else(|| failed("it names no host".to_owned()))?;
    let broken = |error: reqwest::Error| failed(error.without_url().to_string());
    let response = http.get(url).send().await.map_err(broken)?;
    if !response.status().is_success() {
        return Err(failed(format!("HTTP {}", response.status().as_u16())));
    }
    let bytes = read_body(response, MAX_DID_BYTES).await.map_err(broken)?;
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(|| failed("it is no text, or too long".to_owned()))?;
    let keys = provider_keys(&text).map_err(failed)?;
    // A host may publish keys only for its own DID.
    Ok(keys.into_iter().filter(|key| key.belongs_to_did(did)).collect())
}

/// Returns the proofs in an evidence file.
fn proofs_in_evidence(document: &str) -> Vec<(Part, String)> {
    let file: Value = serde_json::from_str(document).unwrap_or_default();
    let parts = [Part::Decision, Part::Receipt].into_iter();
    let proofs = parts.filter_map(|part| Some((part, file.get(part.name())?.get("proof")?.as_str()?.to_owned())));
    proofs.collect()
}

/// Checks that the proof's checkpoint and the stored checkpoint (`--since`) are consistent.
async fn consistency(proof: &str, arguments: &Verify, trust: &Trust) -> Result<Option<Outcome>, Failure> {
    let (Some(since), Some(log)) = (&arguments.since, &arguments.log) else {
        return Ok(None);
    };
    let kept = read_checkpoint(since, trust)?;
    let Ok(proof) = proof.parse::<TlogProof>() else {
        return Ok(Some(Outcome::Failed("the document is no proof of the log".to_owned())));
    };
    let opened = trust.policy.open_checkpoint(proof.checkpoint_note());
    let opened = opened.map_err(|error| error.to_string()).and_then(|opened| {
        let is_log = opened.origin() == kept.origin();
        is_log
            .then_some(opened)
            .ok_or_else(|| "the checkpoints are of different logs".to_owned())
    });
    let head = match opened {
        Ok(opened) => opened.tree_head(),
        Err(reason) => return Ok(Some(Outcome::Failed(reason))),
    };
    let (kept, log) = (kept.tree_head(), LogClient::for_address(log)?);
    Ok(Some(match log.check_consistency(&kept, &head).await? {
        Ok(()) => Outcome::Passed(format!(
            "the trees of {} and {} entries are of one log",
            kept.size, head.size
        )),
        Err(reason) => Outcome::Failed(reason),
    }))
}

fn payload_json(statement: &VerifiedStatement) -> Value {
    let json = serde_json::from_slice(statement.payload());
    json.unwrap_or_else(|_| String::from_utf8_lossy(statement.payload()).into())
}

const fn exit(is_verified: bool) -> Exit {
    if is_verified { Exit::Done } else { Exit::NotVerified }
}

fn result(is_verified: bool) -> String {
    let result = if is_verified {
        "Verified; skipped steps prove nothing."
    } else {
        "Not verified."
    };
    result.to_owned()
}

/// Runs the chain step. The step fails if the caller's node is unavailable.
async fn chain(statement: Option<&VerifiedStatement>, node: Option<&Node>) -> Outcome {
    let skipped = |reason: &str| Outcome::Skipped(reason.to_owned());
    let Some(statement) = statement else {
        return skipped("there is no verified statement of a payment");
    };
    let (transfer, node) = match (StatedTransfer::from_statement(statement), node) {
        (Err(reason @ NoTransfer::Unstated), _) => return Outcome::Skipped(reason.to_string()),
        (_, None) => return skipped("no node was named (--node)"),
        (Err(reason @ NoTransfer::Malformed), Some(_)) => return Outcome::Failed(reason.to_string()),
        (Ok(transfer), Some(node)) => (transfer, node),
    };
    let found = async {
        let block = json!([transfer.block_number(), false]);
        transfer.verify_in_responses(&NodeResponses {
            chain_id: node.call("eth_chainId", json!([])).await?,
            receipt: node
                .call("eth_getTransactionReceipt", json!([transfer.tx_hash()]))
                .await?,
            block: node.call("eth_getBlockByNumber", block).await?,
        })
    };
    match found.await {
        Ok(block) => Outcome::Passed(format!("the node has the transfer, in the block {block}")),
        Err(reason) => Outcome::Failed(reason),
    }
}

fn row(step: &Step) -> Vec<String> {
    let (outcome, detail) = match &step.outcome {
        Outcome::Passed(found) => ("passed", found),
        Outcome::Failed(reason) => ("FAILED", reason),
        Outcome::Skipped(reason) => ("skipped", reason),
    };
    vec![step.step.to_string(), outcome.to_owned(), detail.clone()]
}

fn lines(report: &Report, payload: Option<&Value>) -> Vec<String> {
    let rows: Vec<_> = report.steps().iter().map(row).collect();
    let mut lines = table(&["STEP", "OUTCOME", "DETAIL"], &rows);
    lines.push(result(report.is_verified()));
    lines.extend(payload.map(Value::to_string));
    lines
}
