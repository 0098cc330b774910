//! Formats a payment for the output.

use purser_client::{PaymentMade, ReceiptState};
use serde_json::{Value, json};

/// Returns a payment and the receipt's status as JSON.
pub(crate) fn as_json(payment: &PaymentMade) -> Value {
    let hash = match &payment.receipt {
        ReceiptState::Confirmed(settlement) => settlement.tx_hash.as_deref(),
        _ => None,
    };
    json!({
        "settlement_id": payment.settlement_id,
        "transaction_id": payment.transaction_id,
        "decision_hash": payment.decision_hash,
        "amount_units": payment.amount,
        "listed_amount_units": payment.listed,
        "warnings": payment.warnings,
        "pay_to": payment.pay_to,
        "receipt_status": payment.receipt.as_str(),
        "tx_hash": hash,
    })
}

/// Returns a warning if the payment was sent and the receipt is not final.
pub(crate) fn warn_if_not_final(payment: &PaymentMade) -> Option<String> {
    let id = payment.settlement_id;
    (!payment.receipt.is_settled()).then(|| {
        format!("The payment may have been taken: do not pay again. `purser receipt {id}` says whether it was.")
    })
}
