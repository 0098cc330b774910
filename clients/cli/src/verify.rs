//! The verification of evidence: a statement or a proof, offline, and the transaction that a receipt states, if there is
//! a node to ask.

use crate::args::Verify;
use crate::exit::{Exit, Failure};
use crate::node::Node;
use crate::output::{Output, table};
use purser_evidence::{NoTransfer, Outcome, Report, StatedTransfer, Step, StepName, Trust};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// The longest file that is read, in bytes. A statement has at most 64 KiB.
const MOST_FILE_BYTES: u64 = 1024 * 1024;

/// Verifies a document, and prints each step.
pub(crate) async fn verify(arguments: &Verify, output: &Output) -> Result<Exit, Failure> {
    let unreadable = |path: &Path, why: &dyn std::fmt::Display| {
        Failure::Unreadable(format!("{} can't be verified: {why}", path.display()))
    };
    let trust = Trust::parse(&text(&arguments.trust)?).map_err(|why| unreadable(&arguments.trust, &why))?;
    let node = arguments.node.as_deref().map(Node::at).transpose();
    let node = node.map_err(|why| Failure::Words(why.to_owned()))?;
    let document = text(&arguments.file)?;
    let mut report = purser_evidence::verify(&document, &trust).map_err(|why| unreadable(&arguments.file, &why))?;
    let outcome = chain(&report, node.as_ref()).await;
    report.add(Step::new(StepName::Chain, outcome));

    let payload = report.statement().map(|statement| {
        let json = serde_json::from_slice(statement.payload());
        json.unwrap_or_else(|_| String::from_utf8_lossy(statement.payload()).into())
    });
    let answer = json!({"verified": report.is_verified(), "steps": report.steps(), "statement": payload});
    output.answer(&answer, || lines(&report, payload.as_ref()));
    Ok(if report.is_verified() {
        Exit::Done
    } else {
        Exit::NotVerified
    })
}

/// Reads a file. A statement's exact bytes matter, so nothing is trimmed.
fn text(path: &Path) -> Result<String, Failure> {
    let unreadable = |why: String| Failure::Unreadable(format!("{} can't be read: {why}", path.display()));
    let mut text = String::new();
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let length = file.take(MOST_FILE_BYTES).read_to_string(&mut text);
    let length = length.map_err(|error| unreadable(error.to_string()))?;
    if u64::try_from(length).is_ok_and(|length| length >= MOST_FILE_BYTES) {
        return Err(unreadable("it is longer than 1 MiB".to_owned()));
    }
    Ok(text)
}

/// The step of the chain. A caller who names a node wants an answer, so a node that can't be asked is a failure.
async fn chain(report: &Report, node: Option<&Node>) -> Outcome {
    let skipped = |why: &str| Outcome::Skipped(why.to_owned());
    let Some(statement) = report.statement() else {
        return skipped("the statement is not verified");
    };
    let (transfer, node) = match (StatedTransfer::of(statement), node) {
        (Err(why @ NoTransfer::Unstated), _) => return Outcome::Skipped(why.to_string()),
        (_, None) => return skipped("no node was named (--node)"),
        (Err(why @ NoTransfer::Malformed), Some(_)) => return Outcome::Failed(why.to_string()),
        (Ok(transfer), Some(node)) => (transfer, node),
    };
    let found = async {
        let chain_id = node.call("eth_chainId", &[]).await?;
        let receipt = node.call("eth_getTransactionReceipt", &[transfer.tx_hash()]).await?;
        transfer.find(&chain_id, &receipt)
    };
    match found.await {
        Ok(block) => Outcome::Passed(format!("the node has the transfer, in block {block}")),
        Err(why) => Outcome::Failed(why),
    }
}

fn lines(report: &Report, payload: Option<&Value>) -> Vec<String> {
    let row = |step: &Step| {
        let (outcome, detail) = match &step.outcome {
            Outcome::Passed(found) => ("passed", found),
            Outcome::Failed(why) => ("FAILED", why),
            Outcome::Skipped(why) => ("skipped", why),
        };
        vec![step.step.to_string(), outcome.to_owned(), detail.clone()]
    };
    let mut lines = table(
        &["STEP", "OUTCOME", "DETAIL"],
        &report.steps().iter().map(row).collect::<Vec<_>>(),
    );
    lines.push(if report.is_verified() {
        "Verified; skipped steps prove nothing.".to_owned()
    } else {
        "Not verified.".to_owned()
    });
    lines.extend(payload.map(Value::to_string));
    lines
}
