//! The operators' acts. Each act has a form on a page and a route of the Lambda function `internal`, because `people`
//! has no permission to perform acts.

use crate::ui::form::Form;
use crate::ui::notice::PageMessage;
use purser_domain::{AuditKind, OperatorReason, SettlementId, UserId};
use serde_json::{Value, json};

/// An act, with the form that requests the act and the route that performs the act.
pub(crate) struct OperatorAct {
    /// The name of the form, and the last segment of the form's path.
    pub(crate) name: &'static str,
    pub(crate) object: ActObject,
    /// The route's method, and the route's path after the object's path.
    pub(crate) request: (&'static str, &'static str),
    pub(crate) kind: AuditKind,
    /// The text of the form's buttons.
    pub(crate) label: &'static str,
    /// The label of the checkbox, which says what the operator confirms, and the error if the box is not checked. Both
    /// are empty if the form has no checkbox.
    pub(crate) confirmation: (&'static str, &'static str),
    /// The form's inputs for text.
    pub(crate) fields: &'static [ActField],
    /// The JSON body of the request.
    pub(crate) body: fn(&Form) -> Option<Value>,
    /// The messages for a completed act, and for an act that a second operator must confirm.
    pub(crate) messages: (PageMessage, PageMessage),
}

/// The kind of object that a request for an act selects. A request for an act on an operation contains the version of
/// the service that the operator saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActObject {
    Service,
    Operation,
    Agent,
    Settlement,
    Freeze,
}

/// A required input for one line of text.
pub(crate) struct ActField {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    /// The input's name in errors.
    pub(crate) title: &'static str,
    /// The requirement for the text, in errors.
    pub(crate) requirement: &'static str,
    pub(crate) max_chars: usize,
    pub(crate) is_valid: fn(&str) -> bool,
}

impl ActField {
    const fn for_reason(label: &'static str) -> Self {
        Self {
            name: "reason",
            label,
            title: "Reason",
            requirement: OperatorReason::FORM,
            max_chars: OperatorReason::MAX,
            is_valid: |text| OperatorReason::parse(text).is_some(),
        }
    }
}

pub(crate) static PROBE: OperatorAct = OperatorAct {
    name: "probe",
    object: ActObject::Service,
    request: ("POST", "/probe"),
    kind: AuditKind::ProbeRequested,
    label: "Request a probe",
    confirmation: ("", ""),
    fields: &[],
    body: |_| None,
    messages: (PageMessage::ProbeRequested, PageMessage::ProbeRequested),
};

/// Accepts an operation's delayed change as a second operator.
pub(crate) static ACCEPT: OperatorAct = OperatorAct {
    name: "accept",
    object: ActObject::Operation,
    request: ("POST", "/accept-change"),
    kind: AuditKind::PaymentChangeAccepted,
    label: "Accept the change",
    confirmation: ("I have compared the new payee and its price", UNCOMPARED),
    fields: &[],
    body: |_| None,
    messages: (PageMessage::ChangeAccepted, PageMessage::ChangeAccepted),
};

pub(crate) static WITHDRAW: OperatorAct = OperatorAct {
    name: "withdraw",
    object: ActObject::Operation,
    request: ("POST", "/withdraw-change"),
    kind: AuditKind::PaymentChangeWithdrawn,
    label: "Withdraw the change",
    confirmation: ("The current payee and price stay in effect", UNCOMPARED),
    fields: &[],
    body: |_| None,
    messages: (PageMessage::ChangeWithdrawn, PageMessage::ChangeWithdrawn),
};

/// Sets the operation's price and payee to the probe result that the operator confirmed.
pub(crate) static PIN: OperatorAct = OperatorAct {
    name: "pin",
    object: ActObject::Operation,
    request: ("POST", "/pin"),
    kind: AuditKind::PaymentPinned,
    label: "Pin this payment",
    confirmation: ("I have verified with the provider that this is its wallet", UNCOMPARED),
    fields: &[],
    body: |form| {
        let text = |field| form.field_text(field);
        let amount = text("amount_units").parse::<u64>().ok();
        Some(json!({"payment": {
            "scheme": text("scheme"), "network": text("network"), "token": text("token"),
            "amount_units": amount, "pay_to": text("pay_to"),
        }}))
    },
    messages: (PageMessage::PaymentPinned, PageMessage::PinAwaitsSecond),
};

const UNCOMPARED: &str = "Compare the payee and the price, and check the box.";

pub(crate) static FREEZE: OperatorAct = OperatorAct {
    name: "freeze",
    object: ActObject::Freeze,
    request: ("PUT", ""),
    kind: AuditKind::FreezeSet,
    label: "Freeze",
    confirmation: (
        "Refuse these payments at once",
        "Check the box: a freeze refuses payments at once.",
    ),
    fields: &[ActField::for_reason("Reason, which the owners see")],
    body: |form| Some(json!({"reason": form.field_text("reason")})),
    messages: (PageMessage::OperatorFroze, PageMessage::OperatorFroze),
};

pub(crate) static END_FREEZE: OperatorAct = OperatorAct {
    name: "end",
    object: ActObject::Freeze,
    request: ("DELETE", ""),
    kind: AuditKind::FreezeEnded,
    label: "End the freeze",
    confirmation: (
        "Allow these payments again",
        "Check the box: payments are allowed again.",
    ),
    fields: &[],
    body: |_| None,
    messages: (PageMessage::OperatorUnfroze, PageMessage::UnfreezeAwaitsSecond),
};

pub(crate) static OFFER: OperatorAct = OperatorAct {
    name: "offer",
    object: ActObject::Agent,
    request: ("PUT", "/handover"),
    kind: AuditKind::HandoverOffered,
    label: "Offer to another owner",
    confirmation: (
        "I have compared the person’s ID. Whoever accepts the agent decides about its money",
        "Compare the person’s ID and check the box.",
    ),
    fields: &[
        ActField {
            name: "to",
            label: "ID of the new owner, from their sessions page",
            title: "New owner",
            requirement: "enter the person’s ID, 64 hexadecimal digits",
            max_chars: 64,
            is_valid: |text| UserId::parse(text).is_some(),
        },
        ActField::for_reason("Reason, which the person sees"),
    ],
    body: |form| Some(json!({"to": form.field_text("to"), "reason": form.field_text("reason")})),
    messages: (PageMessage::AgentOffered, PageMessage::OfferAwaitsSecond),
};

pub(crate) static WITHDRAW_OFFER: OperatorAct = OperatorAct {
    name: "withdraw-offer",
    object: ActObject::Agent,
    request: ("DELETE", "/handover"),
    kind: AuditKind::HandoverTakenBack,
    label: "Withdraw the offer",
    confirmation: ("The agent stays with its owner", "Check the box."),
    fields: &[],
    body: |_| None,
    messages: (PageMessage::OfferWithdrawn, PageMessage::OfferWithdrawn),
};

pub(crate) static RECONCILE: OperatorAct = OperatorAct {
    name: "reconcile",
    object: ActObject::Settlement,
    request: ("POST", "/reconcile"),
    kind: AuditKind::ReconcileRequested,
    label: "Check a settlement with the chain",
    confirmation: ("", ""),
    fields: &[ActField {
        name: "settlement",
        label: "ID of the settlement",
        title: "Settlement",
        requirement: "enter its ID, a UUID",
        max_chars: 36,
        is_valid: |text| SettlementId::parse(text).is_some(),
    }],
    body: |_| None,
    messages: (PageMessage::ReconcileRequested, PageMessage::ReconcileRequested),
};

pub(crate) static ACTS: [&OperatorAct; 9] = [
    &PROBE,
    &ACCEPT,
    &WITHDRAW,
    &PIN,
    &FREEZE,
    &END_FREEZE,
    &OFFER,
    &WITHDRAW_OFFER,
    &RECONCILE,
];
