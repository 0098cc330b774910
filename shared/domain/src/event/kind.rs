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
        PaymentAuthorized = "purser.payment.authorized.v1" => "Payment allowed",
        /// A payment was found on chain.
        PaymentConfirmed = "purser.payment.confirmed.v1" => "Payment confirmed",
        /// A payment was released, because the chain shows that the payment can never be made.
        PaymentReleased = "purser.payment.released.v1" => "Payment released",
        /// The confirmation was reverted, because the block is no longer on the chain. The payment is `authorized`
        /// again.
        PaymentTakenBack = "purser.payment.taken_back.v1" => "Payment reverted",
        /// An agent's payment was blocked.
        PaymentRefused = "purser.payment.refused.v1" => "Payment blocked",
        /// A payment was escalated and waits for a user's approval.
        PaymentEscalated = "purser.payment.escalated.v1" => "Payment asked for approval",
        /// An owner's withdrawal was authorized and signed.
        PayoutAuthorized = "purser.payout.authorized.v1" => "Payout authorized",
        /// A withdrawal was found on chain.
        PayoutConfirmed = "purser.payout.confirmed.v1" => "Payout confirmed",
        /// A withdrawal was released, because the chain shows that the withdrawal can never be made.
        PayoutReleased = "purser.payout.released.v1" => "Payout released",
        /// The confirmation of a withdrawal was reverted, because the block is no longer on the chain.
        PayoutTakenBack = "purser.payout.taken_back.v1" => "Payout reverted",
        /// An agent requested an approval from the owner.
        ApprovalAsked = "purser.approval.asked.v1" => "Approval requested",
        /// A user approved or rejected the request.
        ApprovalDecided = "purser.approval.decided.v1" => "Approval decided",
        /// A user withdrew an unused approval. The request is now rejected.
        ApprovalWithdrawn = "purser.approval.withdrawn.v1" => "Approval withdrawn",
        /// A payment used the approval.
        ApprovalUsed = "purser.approval.used.v1" => "Approval used",
        /// The request was not decided in time, or the approval was not used in time.
        ApprovalExpired = "purser.approval.expired.v1" => "Approval expired",
        /// A user created an agent.
        AgentCreated = "purser.agent.created.v1" => "Agent created",
        /// The agent was frozen by the owner, by the owner's automatic freeze or by an operator.
        AgentFrozen = "purser.agent.frozen.v1" => "Agent frozen",
        /// The owner or an operator ended a freeze of the agent.
        AgentUnfrozen = "purser.agent.unfrozen.v1" => "Agent unfrozen",
        /// Another user accepted the agent. The new owner receives this event.
        AgentAccepted = "purser.agent.accepted.v1" => "Agent accepted",
        /// Another user accepted the agent. The previous owner receives this event.
        AgentHandedOver = "purser.agent.handed_over.v1" => "Agent handed over",
        /// A key with which the agent authenticates was created.
        KeyCreated = "purser.key.created.v1" => "Key created",
        /// A key was rotated or revoked. There is no event when a key reaches the scope's expiry time.
        KeyEnded = "purser.key.ended.v1" => "Key ended",
        /// An agent's policy for a service was created or updated.
        PolicyChanged = "purser.policy.changed.v1" => "Policy changed",
        /// A rule was added to the agent.
        RuleCreated = "purser.rule.created.v1" => "Rule added",
        /// One of the agent's rules was updated.
        RuleChanged = "purser.rule.changed.v1" => "Rule changed",
        /// A rule was removed and no longer applies to the agent's payments.
        RuleRemoved = "purser.rule.removed.v1" => "Rule removed",
        /// A withdrawal address was set. The address can be used from `good_from` on.
        PayoutAddressNamed = "purser.payout_address.named.v1" => "Payout address added",
        /// The withdrawal address was removed.
        PayoutAddressRemoved = "purser.payout_address.removed.v1" => "Payout address removed",
        /// The wallet's balance fell below `below_units`. The event occurs again only after the balance has recovered.
        WalletLow = "purser.wallet.low.v1" => "Wallet low",
        /// The service became available to users and agents.
        ServiceOpened = "purser.service.opened.v1" => "Service offered",
        /// The service is no longer available to users and agents.
        ServiceClosed = "purser.service.closed.v1" => "Service closed",
        /// The payee of an operation changed.
        ServicePayeeChanged = "purser.service.payee_changed.v1" => "Payee changed",
        /// The price of an operation changed.
        ServicePriceChanged = "purser.service.price_changed.v1" => "Price changed",
        /// A change of an operation's payee or price was delayed until `from`, when another event is published.
        ServiceChangeDelayed = "purser.service.change_delayed.v1" => "Change of payee or price announced",
        /// An operator withdrew a delayed change of a service's payee or price.
        ServiceChangeWithdrawn = "purser.service.change_withdrawn.v1" => "Announced change withdrawn",
        /// Operators froze the deployment.
        DeploymentFrozen = "purser.deployment.frozen.v1" => "All payments frozen",
        /// Operators ended the freeze of the deployment.
        DeploymentUnfrozen = "purser.deployment.unfrozen.v1" => "All payments unfrozen",
        /// Operators froze all agents of an owner.
        OwnerFrozen = "purser.owner.frozen.v1" => "All your agents frozen",
        /// Operators ended the freeze of an owner's agents.
        OwnerUnfrozen = "purser.owner.unfrozen.v1" => "All your agents unfrozen",
        /// A user requested a test event for a webhook.
        WebhookTest = "purser.webhook.test.v1" => "Test",
        /// The calls of a webhook fail. This event is used only for notifications and is never published.
        WebhookFailing = "purser.webhook.failing.v1" => "Webhook failing",
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
/// The reason of an automatic freeze of an agent, or of a service for an agent, by the owner's rule.
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
            Self::PolicyChanged => &[POLICY, AUTOMATIC_FREEZE],
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
