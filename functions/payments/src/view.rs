//! The response bodies of the payment API.

use axum::Json;
use axum::response::{IntoResponse, Response};
pub(crate) use purser_api::{AuthorizeBody, CheckBody, CompleteBody, RaiseBody, UnpaidCheckBody};
use purser_api::{CheckView, DecisionView, SettlementRow, SpendView, view};
use purser_domain::{
    ALLOWED_REASON, AgentId, Amount, Check, DocumentHash, PaymentHeader, PaymentTerms, Purchase, ServiceId, Settlement,
    SettlementId, SettlementState, Timestamp, TransactionId, X402Version,
};
use serde_json::value::RawValue;

purser_api::views! {
    /// An authorized payment, with the signed payment for the provider.
    #[expect(clippy::struct_field_names, reason = "the field names of the contract")]
    pub(crate) struct Authorized {
        fn new(terms: &PaymentTerms, listed_price: Option<Amount>, state: &SettlementState, payment: Option<Payment>);

        /// Always true, because a rejection is an error.
        authorized: bool = true,
        #[schema(example = "allow")]
        result: &'static str = "allow",
        #[schema(example = "x402_authorized")]
        reason: &'static str = ALLOWED_REASON,
        settlement_id: SettlementId = terms.settlement,
        /// The id of the decision.
        transaction_id: TransactionId = terms.transaction,
        /// The SHA-256 hash of the decision. The decision's signed statement, which is available about a minute later,
        /// must have the same `decision_hash`. If you store the hash, you can prove that a different decision or none
        /// was logged.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(required, nullable = false, pattern = "^[0-9a-f]{64}$")]
        decision_hash: Option<String> = None,
        amount_units: u64 = terms.amount.units(),
        /// The catalog's price, if `amount_units` is higher.
        #[omit_none]
        listed_amount_units: Option<u64> = catalog_price_units_if_exceeded(listed_price, terms.amount),
        /// `authorized` if `payment` is present. For a repeated call, the settlement's current status.
        receipt_status: &'static str = state.state_name(),
        #[schema(example = "base")]
        network: &'static str = terms.network.name(),
        #[schema(example = "USDC")]
        token: &'static str = terms.network.token_symbol(),
        pay_to: String = terms.pay_to.to_string(),
        wallet_address: String = terms.wallet.to_string(),
        authorized_at: Timestamp = terms.authorized_at,
        /// The end of the payment's validity: the chain accepts the payment only in blocks before this time.
        expires_at: Timestamp = terms.valid_before,
        /// The signed payment. Null once the payment is confirmed or can no longer be used.
        payment: Option<Payment>,
        /// Reasons for which the provider may reject the payment. Absent if there are none.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schema(nullable = false)]
        warnings: Vec<Warning> = Vec::new(),
    }
}

/// A property of the payment that may cause the provider to reject the payment.
#[view]
pub(crate) struct Warning {
    /// The warning's code: `payment_header_large`.
    #[schema(value_type = String, example = "payment_header_large")]
    code: &'static str,
    message: String,
}

/// A header size that common servers accept, in bytes. API Gateway accepts 10,240 bytes for all headers together.
const LARGE_HEADER_BYTES: usize = 8 * 1024;

impl Warning {
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
#[view]
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
}

/// Returns the catalog's price if `amount` is higher; otherwise `None`.
fn catalog_price_units_if_exceeded(listed_price: Option<Amount>, amount: Amount) -> Option<u64> {
    listed_price.filter(|listed| *listed < amount).map(Amount::units)
}

impl IntoResponse for Authorized {
    fn into_response(self) -> Response {
        Json(self).into_response()
    }
}

purser_api::views! {
    /// The result of a check, and how much of the agent's limits is used without this payment.
    pub(crate) struct CheckAnswer {
        /// Builds the response if authorize would allow the payment.
        pub(crate) fn for_allow(amount: Amount, listed_price: Option<Amount>, checks: &[Check], spend: SpendView);

        /// Always true, because the response is from a check.
        check: bool = true,
        would_authorize: bool = true,
        /// The result that `POST /x402/authorize` would return: `allow`, `block` or `escalate`.
        #[schema(value_type = String)]
        result: &'static str = "allow",
        /// The reason: `x402_authorized`, the error slug that `POST /x402/authorize` would return, or a rule's own
        /// reason.
        reason: String = ALLOWED_REASON.to_owned(),
        amount_units: u64 = amount.units(),
        /// The catalog's price, if `amount_units` is higher.
        #[omit_none]
        listed_amount_units: Option<u64> = catalog_price_units_if_exceeded(listed_price, amount),
        approval_required: bool = false,
        /// All checks, in the order in which `POST /x402/authorize` makes the checks.
        checks: Vec<CheckView> = CheckView::list_from_checks(checks),
        /// The decision, as in the error response of `POST /x402/authorize`. Absent if `result` is `allow`.
        #[omit_none]
        decision: Option<DecisionView> = None,
        #[serde(flatten)]
        spend: SpendView,
    }
}

impl CheckAnswer {
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
            listed_amount_units: catalog_price_units_if_exceeded(listed_price, amount),
            approval_required: decision.result == "escalate",
            checks: decision.checks.clone(),
            decision: Some(decision),
            spend,
        }
    }
}

/// A call that the agent may make without a payment.
#[view]
pub(crate) struct UnpaidCheckAnswer {
    /// Always true, because the response is from a check.
    pub(crate) check: bool,
    /// Always `allow`, because a rejection is an error.
    #[schema(example = "allow")]
    pub(crate) result: &'static str,
    /// The agent that may make the call.
    pub(crate) agent_id: AgentId,
    pub(crate) service_id: ServiceId,
    /// The slug of the operation.
    pub(crate) operation_id: String,
}

purser_api::views! {
    /// A settlement that this request or an earlier request confirmed.
    pub(crate) struct Completed {
        pub(crate) fn new(settlement: &Settlement, purchase: &Purchase);

        #[serde(flatten)]
        row: SettlementRow = SettlementRow::new(settlement, purchase),
        /// How the settlement was confirmed. Always `onchain`, because Purser verifies the transfer on the chain.
        #[schema(example = "onchain")]
        confirmed_via: &'static str = "onchain",
    }

    /// A settlement in the list of an agent's receipts.
    pub(crate) struct SettlementItem {
        pub(crate) fn new(settlement: &Settlement, purchase: &Purchase);
        let terms = &settlement.terms;

        id: SettlementId = terms.id,
        transaction_id: TransactionId = terms.transaction,
        service_id: ServiceId = purchase.service,
        operation_id: String = purchase.operation.to_string(),
        amount_units: u64 = terms.amount.units(),
        /// The settlement's state: `authorized`, `confirmed` or `expired`.
        receipt_status: &'static str = settlement.state.state_name(),
        authorized_at: Timestamp = terms.authorized_at,
        settled_at: Option<Timestamp> = settlement.settled_at(),
    }
}

/// The agent's settlements, newest first.
#[view]
pub(crate) struct SettlementList {
    pub(crate) settlements: Vec<SettlementItem>,
    /// The number of settlements in this response.
    pub(crate) count: usize,
}
