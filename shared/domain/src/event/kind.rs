//! The kinds of events and the fields of their data. Tests compare them with `docs/events.md` and
//! `docs/events.schema.json`.

use crate::{
    catalog::service::named,
    event::field::{Field, Form},
};

named! {
    /// The kind of an event, whose name is the `CloudEvents` `type`. The name ends with the version of the data.
    EventKind {
        /// A payment was authorized and signed.
        PaymentAuthorized = "purser.payment.authorized.v1",
        /// A payment was found on chain.
        PaymentConfirmed = "purser.payment.confirmed.v1",
        /// A payment was released, because the chain shows that the payment can never be made.
        PaymentReleased = "purser.payment.released.v1",
        /// A payment's confirmation was reverted, because its block was removed from the chain. The payment's state is
        /// `authorized` again, as before the confirmation.
        PaymentTakenBack = "purser.payment.taken_back.v1",
        /// A payment was blocked.
        PaymentRefused = "purser.payment.refused.v1",
        /// A payment was escalated and waits for a user's approval.
        PaymentEscalated = "purser.payment.escalated.v1",
        /// An owner's withdrawal was authorized and signed.
        PayoutAuthorized = "purser.payout.authorized.v1",
        /// A withdrawal was found on chain.
        PayoutConfirmed = "purser.payout.confirmed.v1",
        /// A withdrawal was released, because the chain shows that the withdrawal can never be made.
        PayoutReleased = "purser.payout.released.v1",
        /// A withdrawal's confirmation was reverted, because its block was removed from the chain.
        PayoutTakenBack = "purser.payout.taken_back.v1",
        /// An approval was requested.
        ApprovalAsked = "purser.approval.asked.v1",
        /// A user approved or rejected the request.
        ApprovalDecided = "purser.approval.decided.v1",
        /// A user withdrew an unused approval. The request is now rejected.
        ApprovalWithdrawn = "purser.approval.withdrawn.v1",
        /// A payment used the approval.
        ApprovalUsed = "purser.approval.used.v1",
        /// The request was not decided in time, or the approval was not used in time.
        ApprovalExpired = "purser.approval.expired.v1",
        /// An agent was created.
        AgentCreated = "purser.agent.created.v1",
        /// The agent was frozen by the owner, by the owner's automatic freeze or by an operator.
        AgentFrozen = "purser.agent.frozen.v1",
        /// A freeze of the agent ended.
        AgentUnfrozen = "purser.agent.unfrozen.v1",
        /// Another user accepted the agent. The new owner receives this event.
        AgentAccepted = "purser.agent.accepted.v1",
        /// Another user accepted the agent. The previous owner receives this event.
        AgentHandedOver = "purser.agent.handed_over.v1",
        /// A key was created.
        KeyCreated = "purser.key.created.v1",
        /// A key was rotated or revoked, and ends at once or after an overlap. A key that expires because of its scope
        /// has no event.
        KeyEnded = "purser.key.ended.v1",
        /// A policy was created or updated.
        PolicyChanged = "purser.policy.changed.v1",
        /// A rule was added.
        RuleCreated = "purser.rule.created.v1",
        /// A rule was updated.
        RuleChanged = "purser.rule.changed.v1",
        /// A rule was removed.
        RuleRemoved = "purser.rule.removed.v1",
        /// A withdrawal address was set. The address can be used from `good_from` on.
        PayoutAddressNamed = "purser.payout_address.named.v1",
        /// The withdrawal address was removed.
        PayoutAddressRemoved = "purser.payout_address.removed.v1",
        /// The wallet's balance fell below `below_units`. The event occurs again only after the balance has recovered.
        WalletLow = "purser.wallet.low.v1",
        /// The service became available: from now on, users can enable the service, and agents can pay for calls.
        ServiceOpened = "purser.service.opened.v1",
        /// The service is no longer available: users can't enable the service, and agents can't pay for calls.
        ServiceClosed = "purser.service.closed.v1",
        /// The payee of an operation changed.
        ServicePayeeChanged = "purser.service.payee_changed.v1",
        /// The price of an operation changed.
        ServicePriceChanged = "purser.service.price_changed.v1",
        /// A change of an operation's payee or price was delayed until `from`. Another event is published when the
        /// change takes effect.
        ServiceChangeDelayed = "purser.service.change_delayed.v1",
        /// A delayed change was withdrawn.
        ServiceChangeWithdrawn = "purser.service.change_withdrawn.v1",
        /// Operators froze the deployment.
        DeploymentFrozen = "purser.deployment.frozen.v1",
        /// Operators ended the freeze of the deployment.
        DeploymentUnfrozen = "purser.deployment.unfrozen.v1",
        /// Operators froze all agents of an owner.
        OwnerFrozen = "purser.owner.frozen.v1",
        /// Operators ended the freeze of an owner's agents.
        OwnerUnfrozen = "purser.owner.unfrozen.v1",
        /// A user requested a test event for a webhook.
        WebhookTest = "purser.webhook.test.v1",
        /// The calls of a webhook fail. This event is only used for notifications and is never published.
        WebhookFailing = "purser.webhook.failing.v1",
    }

    /// The kind of an event's subject.
    EventTopic {
        /// An agent, identified by id.
        Agent = "agent",
        /// A service, identified by id.
        Service = "service",
        /// A user, identified by the hash of the user's id.
        Person = "person",
        /// The whole deployment, identified by the text `deployment`.
        Deployment = "deployment",
    }
}

/// The possible values of the field `by` in an event about a freeze of an agent.
pub const FREEZERS: &[&str] = &["owner", "operator"];
/// The decisions that a user can make on an approval request.
pub const VERDICTS: &[&str] = &["approved", "rejected"];
/// The possible statuses of an approval before it expires.
pub const UNUSED: &[&str] = &["pending", "approved"];

const TRANSFER: &[Field] = &[
    Field::required("settlement_id", Form::Uuid),
    Field::required("transaction_id", Form::Uuid),
    Field::required("network", Form::Text),
    Field::required("amount_units", Form::Number),
    Field::required("pay_to", Form::Address),
    Field::required("authorized_at", Form::Time),
];
const PURCHASE: &[Field] = &[
    Field::required("service_id", Form::Uuid),
    Field::required("operation_id", Form::Text),
    Field::required("key_id", Form::Text),
];
const APPROVAL_OF: &[Field] = &[Field::optional("approval_id", Form::Uuid)];
const VALID_BEFORE: &[Field] = &[Field::required("valid_before", Form::Time)];
const PROOF: &[Field] = &[
    Field::required("tx_hash", Form::Hash),
    Field::required("block_number", Form::Number),
    Field::required("settled_at", Form::Time),
];
const REVERSION: &[Field] = &[
    Field::required("settlement_id", Form::Uuid),
    Field::required("transaction_id", Form::Uuid),
    Field::required("amount_units", Form::Number),
    Field::required("pay_to", Form::Address),
    Field::required("authorized_at", Form::Time),
    Field::required("tx_hash", Form::Hash),
];
const REFUSAL: &[Field] = &[
    Field::required("transaction_id", Form::Uuid),
    Field::required("service_id", Form::Uuid),
    Field::optional("operation_id", Form::Text),
    Field::required("key_id", Form::Text),
    Field::required("amount_units", Form::Number),
    Field::required("pay_to", Form::Address),
    Field::required("error", Form::Text),
    Field::required("reason", Form::Text),
    Field::required("rule_triggered", Form::Text),
];
const APPROVAL: &[Field] = &[
    Field::required("approval_id", Form::Uuid),
    Field::required("transaction_id", Form::Uuid),
    Field::required("service_id", Form::Uuid),
    Field::required("operation_id", Form::Text),
    Field::required("key_id", Form::Text),
    Field::required("amount_units", Form::Number),
    Field::required("pay_to", Form::Address),
    Field::required("expires_at", Form::Time),
    Field::optional("raised_max_per_call_units", Form::Number),
    Field::optional("raised_max_per_day_units", Form::Number),
    Field::optional("raised_until", Form::Time),
];
const VERDICT: &[Field] = &[Field::required("status", Form::OneOf(VERDICTS))];
const USED: &[Field] = &[Field::required("settlement_id", Form::Uuid)];
const UNUSED_AS: &[Field] = &[Field::required("was", Form::OneOf(UNUSED))];
const AGENT: &[Field] = &[
    Field::required("name", Form::Text),
    Field::required("wallet", Form::Address),
];
const FROZEN_BY: &[Field] = &[Field::required("by", Form::OneOf(FREEZERS))];
/// The reason of an automatic freeze by the owner's rule.
const AUTOMATIC_FREEZE: &[Field] = &[Field::optional("reason", Form::Text)];
const KEY: &[Field] = &[Field::required("key_id", Form::Text)];
const KEY_EXPIRY: &[Field] = &[Field::optional("expires_at", Form::Time)];
const KEY_END: &[Field] = &[Field::required("ends_at", Form::Time)];
const POLICY: &[Field] = &[
    Field::required("service_id", Form::Uuid),
    Field::required("version", Form::Number),
    Field::required("enabled", Form::Flag),
    Field::required("max_per_call_units", Form::Number),
    Field::required("max_per_day_units", Form::Number),
    Field::required("require_approval_above_units", Form::Number),
];
const RULE: &[Field] = &[
    Field::required("rule_id", Form::Uuid),
    Field::required("kind", Form::Text),
    Field::required("version", Form::Number),
];
const PAYOUT_ADDRESS: &[Field] = &[Field::required("address", Form::Address)];
const GOOD_FROM: &[Field] = &[Field::required("good_from", Form::Time)];
const WALLET: &[Field] = &[
    Field::required("balance_units", Form::Number),
    Field::required("below_units", Form::Number),
    Field::required("network", Form::Text),
];
const SERVICE: &[Field] = &[
    Field::required("slug", Form::Text),
    Field::required("version", Form::Number),
];
const OPERATION: &[Field] = &[Field::required("operation_id", Form::Text)];
const PAYEE: &[Field] = &[
    Field::optional("pay_to", Form::Address),
    Field::optional("max_price_units", Form::Number),
];
const FROM: &[Field] = &[Field::required("from", Form::Time)];
const LABELS: &[Field] = &[Field::optional("labels", Form::Labels)];
const ENDPOINT: &[Field] = &[Field::required("endpoint_id", Form::Text)];
const FAILED_CALLS: &[Field] = &[
    Field::required("webhook_id", Form::Uuid),
    Field::required("failing_since", Form::Time),
    Field::required("failed_calls", Form::Number),
    Field::required("last_result", Form::Text),
    Field::required("disabled", Form::Flag),
];

impl EventKind {
    /// Returns the kind of subject of these events.
    pub const fn topic(self) -> EventTopic {
        match self {
            Self::PaymentAuthorized
            | Self::PaymentConfirmed
            | Self::PaymentReleased
            | Self::PaymentTakenBack
            | Self::PaymentRefused
            | Self::PaymentEscalated
            | Self::PayoutAuthorized
            | Self::PayoutConfirmed
            | Self::PayoutReleased
            | Self::PayoutTakenBack
            | Self::ApprovalAsked
            | Self::ApprovalDecided
            | Self::ApprovalWithdrawn
            | Self::ApprovalUsed
            | Self::ApprovalExpired
            | Self::AgentCreated
            | Self::AgentFrozen
            | Self::AgentUnfrozen
            | Self::AgentAccepted
            | Self::AgentHandedOver
            | Self::KeyCreated
            | Self::KeyEnded
            | Self::PolicyChanged
            | Self::RuleCreated
            | Self::RuleChanged
            | Self::RuleRemoved
            | Self::PayoutAddressNamed
            | Self::PayoutAddressRemoved
            | Self::WalletLow => EventTopic::Agent,
            Self::ServiceOpened
            | Self::ServiceClosed
            | Self::ServicePayeeChanged
            | Self::ServicePriceChanged
            | Self::ServiceChangeDelayed
            | Self::ServiceChangeWithdrawn => EventTopic::Service,
            Self::OwnerFrozen | Self::OwnerUnfrozen | Self::WebhookTest | Self::WebhookFailing => EventTopic::Person,
            Self::DeploymentFrozen | Self::DeploymentUnfrozen => EventTopic::Deployment,
        }
    }

    /// Returns whether webhooks can receive events of this kind.
    pub fn is_for_webhooks(self) -> bool {
        self.topic().has_owner() && self != Self::WebhookFailing
    }

    /// Returns all fields of the event's data.
    pub fn fields(self) -> impl Iterator<Item = &'static Field> {
        self.field_groups().iter().copied().flatten()
    }

    const fn field_groups(self) -> &'static [&'static [Field]] {
        match self {
            Self::PaymentAuthorized => &[TRANSFER, PURCHASE, APPROVAL_OF, VALID_BEFORE, LABELS],
            Self::PaymentConfirmed => &[TRANSFER, PURCHASE, APPROVAL_OF, PROOF, LABELS],
            Self::PaymentReleased => &[TRANSFER, PURCHASE, APPROVAL_OF, LABELS],
            Self::PaymentTakenBack => &[REVERSION, PURCHASE, LABELS],
            Self::PaymentRefused => &[REFUSAL, LABELS],
            Self::PaymentEscalated => &[REFUSAL, APPROVAL_OF, LABELS],
            Self::PayoutAuthorized => &[TRANSFER, VALID_BEFORE],
            Self::PayoutConfirmed => &[TRANSFER, PROOF],
            Self::PayoutReleased => &[TRANSFER],
            Self::PayoutTakenBack => &[REVERSION],
            Self::ApprovalAsked | Self::ApprovalWithdrawn => &[APPROVAL],
            Self::ApprovalDecided => &[APPROVAL, VERDICT],
            Self::ApprovalUsed => &[APPROVAL, USED],
            Self::ApprovalExpired => &[APPROVAL, UNUSED_AS],
            Self::AgentCreated | Self::AgentAccepted | Self::AgentHandedOver => &[AGENT],
            Self::AgentFrozen => &[FROZEN_BY, AUTOMATIC_FREEZE],
            Self::AgentUnfrozen => &[FROZEN_BY],
            Self::KeyCreated => &[KEY, KEY_EXPIRY],
            Self::KeyEnded => &[KEY, KEY_END],
            Self::PolicyChanged => &[POLICY],
            Self::RuleCreated | Self::RuleChanged | Self::RuleRemoved => &[RULE],
            Self::PayoutAddressNamed => &[PAYOUT_ADDRESS, GOOD_FROM],
            Self::PayoutAddressRemoved => &[PAYOUT_ADDRESS],
            Self::WalletLow => &[WALLET],
            Self::ServiceOpened | Self::ServiceClosed => &[SERVICE],
            Self::ServicePayeeChanged | Self::ServicePriceChanged => &[SERVICE, OPERATION, PAYEE],
            Self::ServiceChangeDelayed => &[SERVICE, OPERATION, PAYEE, FROM],
            Self::ServiceChangeWithdrawn => &[SERVICE, OPERATION],
            Self::DeploymentFrozen | Self::DeploymentUnfrozen | Self::OwnerFrozen | Self::OwnerUnfrozen => &[],
            Self::WebhookTest => &[ENDPOINT],
            Self::WebhookFailing => &[FAILED_CALLS],
        }
    }
}

impl EventTopic {
    /// Returns whether events with this kind of subject belong to one user.
    pub const fn has_owner(self) -> bool {
        match self {
            Self::Agent | Self::Person => true,
            Self::Service | Self::Deployment => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn event_fields_have_unique_names() {
        for kind in EventKind::ALL {
            let names: Vec<_> = kind.fields().map(|field| field.name).collect();
            let distinct: BTreeSet<_> = names.iter().collect();
            assert_eq!(names.len(), distinct.len(), "{}", kind.name());
        }
    }
}
