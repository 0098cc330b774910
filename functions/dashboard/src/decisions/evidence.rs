//! The evidence file for one decision: the signed statements, the documents that they hash, and instructions.

use crate::agents::owned::require_id;
use crate::sessions::session::PageSession;
use crate::state::PeopleState;
use axum::Json;
use axum::extract::Path;
use axum::http::header::CONTENT_DISPOSITION;
use axum::response::IntoResponse as _;
use purser_api::Reply;
use purser_domain::{AgentId, LoggedDecision, TransactionId};
use serde_json::json;

/// Instructions for verifying the file without an account.
const HOW: [&str; 5] = [
    "Get the keys once from `/log/trust` of the deployment, or from whoever you trust with them, and keep them.",
    "`purser verify FILE --trust trust.json`: the signatures, the places in the log, the checkpoints and the hashes.",
    "With `--node URL` of a chain's node, `purser verify` also compares the receipt with the transaction on the chain.",
    "With other tools: `statement` is a JWS, which any JOSE library verifies with `jwks` of the keys; `proof` is a C2SP tlog-proof.",
    "The hashes in the decision's `inputs` are SHA-256 of the RFC 8785 form of the members of `inputs` here; `decision_hash` is that of the object of `transaction_id`, `settlement_id`, `approval_id`, `facts`, `result` and `reason`.",
];

pub(crate) async fn download_evidence(
    people: PeopleState,
    session: PageSession,
    Path((agent, transaction)): Path<(String, String)>,
) -> Reply {
    let agent = require_id(AgentId::parse(&agent))?;
    let id = require_id(TransactionId::parse(&transaction))?;
    let (_, decision) = people.read_own_decision(&session.person, agent, id).await?;
    let (found, inputs) = tokio::try_join!(
        people.read_statements(&decision),
        people.read_input_documents(&decision)
    )?;
    // `decision` is null for a reversal or a withdrawal, because `changes` already contains the statement.
    let is_of_purchase = matches!(decision, LoggedDecision::Allowed(_) | LoggedDecision::Refused(_));
    let evidence = json!({
        "transaction_id": id.to_string(),
        "how_to_check": HOW,
        "decision": found.statement.filter(|_| is_of_purchase),
        "receipt": found.payment.receipt,
        "changes": found.payment.changes,
        "inputs": inputs.map(|documents| documents.to_json()),
    });
    let disposition = format!("attachment; filename=\"purser-evidence-{id}.json\"");
    Ok(([(CONTENT_DISPOSITION, disposition)], Json(evidence)).into_response())
}
