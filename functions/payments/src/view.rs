//! The response bodies of the payment API.

use axum::Json;
use axum::response::{IntoResponse, Response};
pub(crate) use purser_api::{AuthorizeBody, CheckBody, CompleteBody, RaiseBody, UnpaidCheckBody};
use purser_api::{CheckView, DecisionView, SettlementRow, SpendView};
use purser_domain::{
    ALLOWED_REASON, Amount, Check, DocumentHash, PaymentHeader, PaymentTerms, Purchase, Settlement, SettlementState,
    X402Version,
};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// An authorized payment, with the signed payment for the provider.
#[derive(Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "the field names of the contract")]
pub(crate) struct Authorized {
    /// Always true, because a rejection is an error.
    authorized: bool,
    #[schema(example = "allow")]
    result: &'static str,
    #[schema(example = "x402_authorized")]
    reason: &'static str,
    #[schema(value_type = Uuid)]
    settlement_id: String,
    /// The id of the decision.
    #[schema(value_type = Uuid)]
    transaction_id: String,
    /// The SHA-256 hash of the decision. The decision's signed statement, which is available about a minute later, must
    /// have the same `decision_hash`. If you store the hash, you can prove that a different decision or none was
    /// logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required, nullable = false, pattern = "^[0-9a-f]{64}$")]
    decision_hash: Option<String>,
    amount_units: u64,
    /// The catalog's price, if `amount_units` is higher.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    listed_amount_units: Option<u64>,
    /// `authorized` if `payment` is present. For a repeated call, the settlement's current status.
    receipt_status: &'static str,
    #[schema(example = "base")]
    network: &'static str,
    #[schema(example = "USDC")]
    token: &'static str,
    pay_to: String,
    wallet_address: String,
    #[schema(format = DateTime)]
    authorized_at: String,
    /// The end of the payment's validity: the chain accepts the payment only in blocks before this time.
    #[schema(format = DateTime)]
    expires_at: String,
    /// The signed payment. Null once the payment is confirmed or can no longer be used.
    #[schema(required)]
    payment: Option<Payment>,
    /// Reasons for which the provider may reject the payment. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(nullable = false)]
    warnings: Vec<Warning>,
}

/// A property of the payment that may cause the provider to reject the payment.
#[derive(Serialize, ToSchema)]
pub(crate) struct Warning {
    /// The warning's code: `payment_header_large`.
    #[schema(value_type = String, example = "payment_header_large")]
    code: &'static str,
    message: String,
}

/// A header size that common servers accept, in bytes. API Gateway accepts 10,240 bytes for all headers together.
const LARGE_HEADER_BYTES: usize = 8 * 1024;

impl Warning {
    /// Lists the warnings about a payment header.
    fn list_for_payment(payment: &PaymentHeader) -> Vec<Self> {
        let bytes = payment.name.len().saturating_add(payment.value.len());
        let large = (bytes > LARGE_HEADER_BYTES).then(|| Self {
            code: "payment_header_large",
            message: format!(
                "the header `{}` has {bytes} bytes, since the provider's offer is echoed in it; many servers refuse such headers",
                payment.name
            ),
        });
        large.into_iter().collect()
    }
}

/// A signed x402 payment.
#[derive(Serialize, ToSchema)]
pub(crate) struct Payment {
    x402_version: u8,
    /// The header's name: `PAYMENT-SIGNATURE` (v2) or `X-PAYMENT` (v1).
    header_name: &'static str,
    /// The header's value. Send it with the call to the provider.
    header_value: String,
    /// The payment as JSON, which `header_value` contains in base64.
    #[schema(value_type = Object)]
    payload: Box<RawValue>,
}

impl Authorized {
    /// Builds the response with a signed payment that the agent can still send to the provider.
    pub(crate) fn with_payment(
        terms: &PaymentTerms,
        listed_price: Option<Amount>,
        version: X402Version,
        payment: PaymentHeader,
    ) -> Self {
        let warnings = Warning::list_for_payment(&payment);
        let payment = Payment {
            x402_version: version.number(),
            header_name: payment.name,
            header_value: payment.value,
            payload: payment.payload,
        };
        Self {
            warnings,
            ..Self::new(terms, listed_price, &SettlementState::Authorized, Some(payment))
        }
    }

    pub(crate) fn with_decision_hash(self, hash: Option<DocumentHash>) -> Self {
        let decision_hash = hash.map(|hash| hash.to_string());
        Self { decision_hash, ..self }
    }

    /// Builds the response for a payment that was confirmed or can no longer be used.
    pub(crate) fn without_payment(settlement: &Settlement, listed_price: Option<Amount>) -> Self {
        Self::new(
            &PaymentTerms::from_settlement_terms(&settlement.terms),
            listed_price,
            &settlement.state,
            None,
        )
    }

    fn new(
        terms: &PaymentTerms,
        listed_price: Option<Amount>,
        state: &SettlementState,
        payment: Option<Payment>,
    ) -> Self {
        Self {
            authorized: true,
            result: "allow",
            reason: ALLOWED_REASON,
            settlement_id: terms.settlement.to_string(),
            transaction_id: terms.transaction.to_string(),
            decision_hash: None,
            amount_units: terms.amount.units(),
            listed_amount_units: exceeded_catalog_price_units(listed_price, terms.amount),
            receipt_status: state.state_name(),
            network: terms.network.name(),
            token: terms.network.token_symbol(),
            pay_to: terms.pay_to.to_string(),
            wallet_address: terms.wallet.to_string(),
            authorized_at: terms.authorized_at.to_string(),
            expires_at: terms.valid_before.to_string(),
            payment,
            warnings: Vec::new(),
        }
    }
}

/// Returns the catalog's price if the amount is higher.
fn exceeded_catalog_price_units(listed_price: Option<Amount>, amount: Amount) -> Option<u64> {
    listed_price.filter(|listed| *listed < amount).map(Amount::units)
}

impl IntoResponse for Authorized {
    fn into_response(self) -> Response {
        Json(self).into_response()
    }
}

/// The result of a check, and how much of the agent's limits is used without this payment.
#[derive(Serialize, ToSchema)]
pub(crate) struct CheckAnswer {
    /// Always true, because the response is from a check.
    check: bool,
    would_authorize: bool,
    /// The result that `POST /x402/authorize` would return: `allow`, `block` or `escalate`.
    #[schema(value_type = String)]
    result: &'static str,
    /// The reason: `x402_authorized`, the error slug that `POST /x402/authorize` would return, or a rule's own reason.
    reason: String,
    amount_units: u64,
    /// The catalog's price, if `amount_units` is higher.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    listed_amount_units: Option<u64>,
    approval_required: bool,
    /// All checks, in the order in which `POST /x402/authorize` makes the checks.
    checks: Vec<CheckView>,
    /// The decision, as in the error response of `POST /x402/authorize`. Absent if `result` is `allow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    decision: Option<DecisionView>,
    #[serde(flatten)]
    spend: SpendView,
}

impl CheckAnswer {
    /// Builds the response if authorize would allow the payment.
    pub(crate) fn for_allow(amount: Amount, listed_price: Option<Amount>, checks: &[Check], spend: SpendView) -> Self {
        Self {
            check: true,
            would_authorize: true,
            result: "allow",
            reason: ALLOWED_REASON.to_owned(),
            amount_units: amount.units(),
            listed_amount_units: exceeded_catalog_price_units(listed_price, amount),
            approval_required: false,
            checks: CheckView::list_from_checks(checks),
            decision: None,
            spend,
        }
    }

    /// Builds the response if authorize would block or escalate the payment.
    pub(crate) fn for_rejection(
        amount: Amount,
        listed_price: Option<Amount>,
        decision: DecisionView,
        spend: SpendView,
    ) -> Self {
        Self {
            check: true,
            would_authorize: false,
            result: decision.result,
            reason: decision.reason.clone(),
            amount_units: amount.units(),
            listed_amount_units: exceeded_catalog_price_units(listed_price, amount),
            approval_required: decision.result == "escalate",
            checks: decision.checks.clone(),
            decision: Some(decision),
            spend,
        }
    }
}

/// A call that the agent may make without a payment.
#[derive(Serialize, ToSchema)]
pub(crate) struct UnpaidCheckAnswer {
    /// Always true, because the response is from a check.
    pub(crate) check: bool,
    /// Always `allow`, because a rejection is an error.
    #[schema(example = "allow")]
    pub(crate) result: &'static str,
    /// The agent that may make the call.
    #[schema(value_type = uuid::Uuid)]
    pub(crate) agent_id: String,
    #[schema(value_type = uuid::Uuid)]
    pub(crate) service_id: String,
    /// The slug of the operation.
    pub(crate) operation_id: String,
}

/// A settlement that this request or an earlier request confirmed.
#[derive(Serialize, ToSchema)]
pub(crate) struct Completed {
    #[serde(flatten)]
    row: SettlementRow,
    /// How the settlement was confirmed. Always `onchain`, because Purser verifies the transfer on the chain.
    #[schema(example = "onchain")]
    confirmed_via: &'static str,
}

impl Completed {
    pub(crate) fn new(settlement: &Settlement, purchase: &Purchase) -> Self {
        Self {
            row: SettlementRow::new(settlement, purchase),
            confirmed_via: "onchain",
        }
    }
}

/// A settlement in the list of an agent's receipts.
#[derive(Serialize, ToSchema)]
pub(crate) struct SettlementItem {
    #[schema(value_type = Uuid)]
    id: String,
    #[schema(value_type = Uuid)]
    transaction_id: String,
    #[schema(value_type = Uuid)]
    service_id: String,
    operation_id: String,
    amount_units: u64,
    /// The settlement's state: `authorized`, `confirmed` or `expired`.
    receipt_status: &'static str,
    #[schema(format = DateTime)]
    authorized_at: String,
    #[schema(format = DateTime, required)]
    settled_at: Option<String>,
}

impl SettlementItem {
    pub(crate) fn new(settlement: &Settlement, purchase: &Purchase) -> Self {
        let terms = &settlement.terms;
        Self {
            id: terms.id.to_string(),
            transaction_id: terms.transaction.to_string(),
            service_id: purchase.service.to_string(),
            operation_id: purchase.operation.to_string(),
            amount_units: terms.amount.units(),
            receipt_status: settlement.state.state_name(),
            authorized_at: terms.authorized_at.to_string(),
            settled_at: settlement.settled_at().map(|at| at.to_string()),
        }
    }
}

/// The agent's settlements, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct SettlementList {
    pub(crate) settlements: Vec<SettlementItem>,
    /// The number of settlements in this response.
    pub(crate) count: usize,
}
