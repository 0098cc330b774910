//! Defines the format of every key.
//!
//! IAM restricts a function to items by the prefix of the partition key (`dynamodb:LeadingKeys`), so items that
//! different functions write have different prefixes. If several functions write the same item, for example a window's
//! totals, IAM restricts each function to the function's attributes (`dynamodb:Attributes`).
//!
//! DynamoDB sorts sort keys as texts, so times are padded with zeros.

use crate::codec::attribute::Item;
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{
    Actor, Address, AgentId, ApprovalId, AuditId, AuditScope, DeliveryId, Entry, Fingerprint, FreezeTarget, KeyId,
    Network, NoticeChannel, NoticeUrlId, RuleId, ServiceId, SessionId, SettlementId, Timestamp, TransactionId, TxHash,
    UserId, WebhookId, WebhookSecretId, WindowScope,
};

/// The key of an item in a table with `pk` and `sk`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) pk: String,
    pub(crate) sk: String,
}

/// The sort key of a partition's only item, or of its first item.
const ONLY: &str = "#";
/// The partition of the wallet counter and of the KMS keys without an agent.
const WALLETS: &str = "WALLETS";
/// The sort key of a window's totals.
pub(crate) const WINDOW: &str = "#W";
/// The prefix of the sort keys of payments that a window counts.
const ENTRIES: &str = "E#";

impl Key {
    fn new(pk: String, sk: impl Into<String>) -> Self {
        Self { pk, sk: sk.into() }
    }

    pub(crate) fn agent(agent: AgentId) -> Self {
        Self::new(format!("A#{agent}"), ONLY)
    }

    pub(crate) fn idempotency(agent: AgentId, key: &Fingerprint) -> Self {
        Self::new(format!("I#{agent}"), key.to_string())
    }

    /// The key of the ids of an agent's approvals that may be pending.
    pub(crate) fn waiting_approvals(agent: AgentId) -> Self {
        Self::new(format!("O#{agent}"), ONLY)
    }

    pub(crate) fn settlement(agent: AgentId, id: SettlementId) -> Self {
        Self::new(settlement_partition(agent), id.to_string())
    }

    /// The key of a decision, in the decisions table.
    pub(crate) fn decision(agent: AgentId, id: TransactionId) -> Self {
        Self::new(decision_partition(agent), id.to_string())
    }

    /// The key of an agent's withdrawal address.
    pub(crate) fn withdrawal_record(agent: AgentId) -> Self {
        Self::new(withdrawal_partition(agent), ONLY)
    }

    /// The key of the record of a withdrawal's idempotency key. Payments have another partition for idempotency keys,
    /// so a payment and a withdrawal can't collide.
    pub(crate) fn withdrawal_key(agent: AgentId, key: &Fingerprint) -> Self {
        Self::new(withdrawal_partition(agent), format!("K#{key}"))
    }

    /// The key of the claim that assigns a wallet's address to an agent.
    pub(crate) fn wallet_claim(wallet: Address) -> Self {
        Self::new(format!("ATTESTED#{wallet:#x}"), ONLY)
    }

    /// The key of the claim that assigns an agent to a wallet.
    pub(crate) fn claim_by_wallet(agent: AgentId) -> Self {
        Self::new(format!("ATTESTED#{agent}"), ONLY)
    }

    /// The key of a row in the audit table.
    pub(crate) fn audit(actor: &Actor, id: AuditId) -> Self {
        Self::new(audit_partition(actor), id.to_string())
    }

    pub(crate) fn policy(agent: AgentId, service: ServiceId) -> Self {
        Self::new(policy_partition(agent), service.to_string())
    }

    pub(crate) fn window(scope: WindowScope) -> Self {
        Self::new(window_partition(scope), WINDOW)
    }

    /// The key of a payment that a window counts.
    pub(crate) fn counted_payment(scope: WindowScope, at: Timestamp, settlement: SettlementId) -> Self {
        Self::new(
            window_partition(scope),
            format!("{ENTRIES}{:016}#{settlement}", at.micros()),
        )
    }

    /// The key of an approval. All approvals of one request share a partition.
    pub(crate) fn approval(id: ApprovalId) -> Self {
        Self::new(approval_partition(id), format!("{:010}", id.sequence()))
    }

    /// A settlement's claim on the transaction that confirmed it. With a log index, it covers only one transfer.
    pub(crate) fn claim(network: Network, block: u64, hash: TxHash, log_index: Option<u64>) -> Self {
        let shard = hash.to_b256().first().copied().unwrap_or_default() % CLAIM_SHARDS;
        let sk = match log_index {
            None => hash.to_string(),
            Some(index) => format!("{hash}#{index}"),
        };
        Self::new(claim_partition(network, block, shard), sk)
    }

    pub(crate) fn preflight(agent: AgentId, replay_key: &Fingerprint) -> Self {
        Self::new(format!("R#{agent}#{replay_key}"), ONLY)
    }

    /// The key of the row that stores the number of the last block whose confirmations `reconcile` has checked again.
    pub(crate) fn checked_block() -> Self {
        Self::new(CHECKPOINTS.to_owned(), ONLY)
    }

    /// The key of the row that stores the number of the last block that `reconcile` has searched for outflows.
    /// `reconcile` divides the wallets into `count` groups, and each group has a row. `index` is the number of the
    /// group, from 0.
    pub(crate) fn outflow_checkpoint(index: u8, count: u8) -> Self {
        Self::new(CHECKPOINTS.to_owned(), format!("{OUTFLOW_CHECKPOINTS}{index}#{count}"))
    }

    /// The key of the row that stores the agent whose wallet balance was checked last.
    pub(crate) fn wallet_level_checkpoint() -> Self {
        Self::new(CHECKPOINTS.to_owned(), "LEVELS")
    }

    /// The key of the row that records whether an agent's wallet balance is low.
    pub(crate) fn wallet_level(agent: AgentId) -> Self {
        Self::new(
            wallet_level_partition(wallet_shard_digit(agent) % WALLET_SHARDS),
            agent.to_string(),
        )
    }

    /// The key of an agent's row in the list of all wallets.
    pub(crate) fn wallet(agent: AgentId) -> Self {
        Self::new(
            wallet_partition(wallet_shard_digit(agent) % WALLET_SHARDS),
            agent.to_string(),
        )
    }

    /// The key of a request to reconcile a settlement.
    pub(crate) fn reconcile_request(agent: AgentId, id: SettlementId) -> Self {
        Self::new(MARKED.to_owned(), format!("{agent}#{id}"))
    }

    /// The key of a request to evict a window's expired payments.
    pub(crate) fn eviction_request(scope: WindowScope) -> Self {
        Self::new(EVICT.to_owned(), window_partition(scope))
    }

    pub(crate) fn default_services(digest: &Fingerprint) -> Self {
        Self::new(format!("START#{digest}"), ONLY)
    }

    /// The key of a copy of the operators' freezes.
    pub(crate) fn freezes(copy: u8) -> Self {
        Self::new(format!("FREEZES#{copy}"), ONLY)
    }

    /// The key of the record about a freeze of `target`: the operator, the time and the reason.
    pub(crate) fn freeze(target: &FreezeTarget) -> Self {
        let sk = match target {
            FreezeTarget::Agent(agent) => format!("{FROZEN_AGENT}{agent}"),
            FreezeTarget::Owner(owner) => format!("{FROZEN_OWNER}{owner}"),
            FreezeTarget::Deployment => FROZEN_DEPLOYMENT.to_owned(),
        };
        Self::new(FREEZE_REASONS.to_owned(), sk)
    }

    /// The key of an offer to transfer an agent to another owner.
    pub(crate) fn ownership_offer(agent: AgentId) -> Self {
        Self::new(format!("HANDOVER#{agent}"), ONLY)
    }

    /// The key of the counter of assigned wallets.
    pub(crate) fn wallets() -> Self {
        Self::new(WALLETS.to_owned(), ONLY)
    }

    /// The key of the item that lists the spare KMS keys. No agent uses a spare KMS key yet.
    pub(crate) fn spare_keys() -> Self {
        Self::new(WALLETS.to_owned(), "SPARE")
    }

    /// The key of a user's record: the identity at the issuer, and the time at which all sessions of the user were last
    /// ended.
    pub(crate) fn user(user: &UserId) -> Self {
        Self::new(user_partition(user), ONLY)
    }

    pub(crate) fn session(user: &UserId, session: &SessionId) -> Self {
        Self::new(user_partition(user), format!("{SESSIONS}{session}"))
    }

    /// The key of the list of a user's policy templates.
    pub(crate) fn templates(user: &UserId) -> Self {
        Self::new(user_partition(user), "TEMPLATES")
    }

    /// The key of a policy template's version. Version numbers are unique among all templates of a user.
    pub(crate) fn template(user: &UserId, version: u64) -> Self {
        Self::new(user_partition(user), format!("TEMPLATE#{version:020}"))
    }

    /// The key of a webhook. Each webhook occupies one of its owner's slots.
    pub(crate) fn webhook(user: &UserId, slot: u8) -> Self {
        Self::new(webhooks::webhooks_partition(user), slot.to_string())
    }

    pub(crate) fn webhook_secret(webhook: WebhookId, secret: WebhookSecretId) -> Self {
        Self::new(format!("K#{webhook}"), secret.to_string())
    }

    /// The key of the marker that a webhook was removed.
    pub(crate) fn gone_webhook(webhook: WebhookId) -> Self {
        Self::new(format!("G#{webhook}"), ONLY)
    }

    /// The key of the row with the failed calls of a webhook. The partition also contains the marker that the webhook
    /// was removed.
    pub(crate) fn failed_calls(webhook: WebhookId) -> Self {
        Self::new(format!("G#{webhook}"), "FAILED")
    }

    pub(crate) fn delivery(webhook: WebhookId, id: DeliveryId) -> Self {
        Self::new(webhooks::deliveries_partition(webhook), id.to_string())
    }

    /// The key of the marker that a delivery waits for its next attempt.
    pub(crate) fn waiting_delivery(user: &UserId, id: DeliveryId) -> Self {
        Self::new(webhooks::waiting_deliveries_partition(user), id.to_string())
    }

    /// The key of the row for a long pause before the next attempt of a delivery.
    pub(crate) fn pause(user: &UserId, ends_at: Timestamp, id: DeliveryId) -> Self {
        Self::new(
            webhooks::pauses_partition(notices::recipient_shard(user)),
            format!("{ends_at}#{id}"),
        )
    }

    /// The key of a user's notification settings.
    pub(crate) fn notification_settings(user: &UserId) -> Self {
        Self::new(
            notices::recipients_partition(notices::recipient_shard(user)),
            user.as_str(),
        )
    }

    /// The key of a stored URL: an incoming webhook to which a user's notifications are posted.
    pub(crate) fn notification_url(user: &UserId, url: NoticeUrlId) -> Self {
        Self::new(format!("U#{user}"), url.to_string())
    }

    /// The key of the marker that a channel can no longer deliver messages.
    pub(crate) fn ended_channel(user: &UserId, channel: NoticeChannel) -> Self {
        Self::new(notices::ended_channels_partition(user), channel.name())
    }

    /// The key of the time from which a channel's next message may be sent.
    pub(crate) fn notification_pace(user: &UserId, channel: NoticeChannel) -> Self {
        Self::new(format!("F#{}#{user}", channel.name()), ONLY)
    }

    /// The key of an event that waits to be sent on a channel.
    pub(crate) fn waiting_notification(user: &UserId, channel: NoticeChannel, key: &str) -> Self {
        Self::new(notices::waiting_events_partition(user, channel), key)
    }

    /// The key of the marker that an event was sent on a channel, or need not be sent.
    pub(crate) fn sent_notification(user: &UserId, channel: NoticeChannel, key: &str) -> Self {
        Self::new(format!("T#{}#{user}", channel.name()), key)
    }

    /// The key of a service's verified payees, in the usage table.
    pub(crate) fn verified_service(service: ServiceId) -> Self {
        Self::new(
            attested::verified_services_partition(attested::verified_service_shard(service)),
            service.to_string(),
        )
    }

    /// The key of the time at which the payees of the whole catalog were first verified, in the usage table.
    pub(crate) fn first_payee_verification() -> Self {
        Self::new("PAYEES#SINCE".to_owned(), ONLY)
    }

    /// Returns the table key of an item that was read from an index.
    pub(crate) fn from_item(item: &Item) -> Option<Self> {
        let (pk, sk) = find_text(item, "pk").zip(find_text(item, "sk"))?;
        Some(Self::new(pk.clone(), sk))
    }

    pub(crate) fn attributes(&self) -> Item {
        Item::from([
            ("pk".to_owned(), AttributeValue::S(self.pk.clone())),
            ("sk".to_owned(), AttributeValue::S(self.sk.clone())),
        ])
    }

    pub(crate) fn is_key_of(&self, item: &Item) -> bool {
        find_text(item, "pk") == Some(&self.pk) && find_text(item, "sk") == Some(&self.sk)
    }
}

pub(crate) fn settlement_partition(agent: AgentId) -> String {
    format!("S#{agent}")
}

/// The partition of an agent's withdrawal address.
pub(crate) fn withdrawal_partition(agent: AgentId) -> String {
    format!("PO#{agent}")
}

pub(crate) fn policy_partition(agent: AgentId) -> String {
    format!("P#{agent}")
}

/// The partition of an agent's decisions, in the decisions table.
pub(crate) fn decision_partition(agent: AgentId) -> String {
    format!("A#{agent}")
}

const BY_PERSON: &str = "P#";
const BY_OPERATORS: &str = "OPERATORS";
const OUTFLOWS: &str = "OUTFLOWS";

/// The partition of an actor's audit rows. All operators share a partition, and a user's partition contains the actions
/// of the user's rules.
pub(crate) fn audit_partition(actor: &Actor) -> String {
    match actor {
        Actor::Person { id: user, .. } | Actor::Rule { owner: user } => format!("{BY_PERSON}{user}"),
        Actor::Operator(_) => BY_OPERATORS.to_owned(),
        Actor::Reconcile => OUTFLOWS.to_owned(),
    }
}

/// The partition of the audit rows that are copied to a user; `None` for actions of users and rules.
pub(crate) fn notification_partition(actor: &Actor, user: &UserId) -> Option<String> {
    match actor {
        Actor::Person { .. } | Actor::Rule { .. } => None,
        Actor::Operator(_) => Some(format!("O#{user}")),
        Actor::Reconcile => Some(format!("W#{user}")),
    }
}

pub(crate) fn audit_partitions(scope: &AuditScope) -> Vec<String> {
    match scope {
        AuditScope::Person(user) => ["P", "O", "W"].map(|kind| format!("{kind}#{user}")).into(),
        AuditScope::Operators => vec![BY_OPERATORS.to_owned()],
        AuditScope::Outflows => vec![OUTFLOWS.to_owned()],
    }
}

pub(crate) fn actor_in_key(item: &Item) -> Option<UserId> {
    UserId::parse(find_text(item, "pk")?.strip_prefix(BY_PERSON)?)
}

pub(crate) fn agent_in_key(item: &Item) -> Option<AgentId> {
    parse_agent(find_text(item, "pk")?)
}

/// Parses the agent from a partition key of an agent's record, settlements, decisions or transfer offer.
pub(crate) fn parse_agent(pk: &str) -> Option<AgentId> {
    AgentId::parse(pk.split_once('#')?.1)
}

/// Parses the user from a partition key.
pub(crate) fn parse_person(pk: &str) -> Option<UserId> {
    UserId::parse(pk.split_once('#')?.1)
}

pub(crate) const SESSIONS: &str = "SESSION#";

pub(crate) fn parse_session(sk: &str) -> Option<SessionId> {
    SessionId::parse(sk.strip_prefix(SESSIONS)?)
}

pub(crate) fn user_partition(user: &UserId) -> String {
    format!("PERSON#{user}")
}

/// Each window has a separate partition, so that a busy window does not slow down other windows.
pub(crate) fn window_partition(scope: WindowScope) -> String {
    match scope {
        WindowScope::Day { agent, service } => format!("L#{agent}#{service}"),
        WindowScope::Budget { agent, rule } => format!("B#{agent}#{rule}"),
    }
}

/// The partition with the checkpoints of the function `reconcile`.
pub(crate) const CHECKPOINTS: &str = "RECONCILE";
pub(crate) const OUTFLOW_CHECKPOINTS: &str = "OUTFLOWS#";

/// Parses the group of wallets and the number of groups from an outflow checkpoint's sort key.
pub(crate) fn parse_outflow_checkpoint(sk: &str) -> Option<(u8, u8)> {
    let (index, of) = sk.strip_prefix(OUTFLOW_CHECKPOINTS)?.split_once('#')?;
    index.parse().ok().zip(of.parse().ok())
}

/// The number of partitions with wallets: one for each concurrent run of the function `reconcile`.
pub(crate) const WALLET_SHARDS: u8 = 4;

pub(crate) fn wallet_partition(shard: u8) -> String {
    format!("WALLET#{shard}")
}

/// A partition of wallet levels. A wallet's level is whether the balance is low. A wallet and its level have the same
/// shard number.
pub(crate) fn wallet_level_partition(shard: u8) -> String {
    format!("LEVEL#{shard}")
}

/// Returns the digit that determines a wallet's shard: the last hexadecimal digit of the agent's random id.
pub(crate) fn wallet_shard_digit(agent: AgentId) -> u8 {
    let [.., last] = agent.uuid().into_bytes();
    last & 0xf
}

/// The partition of the requests to evict a window's expired payments ([`crate::EvictionRequest`]).
pub(crate) const EVICT: &str = "EVICT";

pub(crate) fn parse_window(partition: &str) -> Option<WindowScope> {
    let (kind, ids) = partition.split_once('#')?;
    let (agent, other) = ids.split_once('#')?;
    let agent = AgentId::parse(agent)?;
    match kind {
        "L" => ServiceId::parse(other).map(|service| WindowScope::Day { agent, service }),
        "B" => RuleId::parse(other).map(|rule| WindowScope::Budget { agent, rule }),
        _ => None,
    }
}

const APPROVAL_LINEAGES: &str = "AP#";

/// The partition of all approvals that belong to the same agent and request ([`ApprovalId::lineage`]).
pub(crate) fn approval_partition(id: ApprovalId) -> String {
    format!("{APPROVAL_LINEAGES}{}", id.lineage())
}

pub(crate) fn approval_in_key(item: &Item) -> Option<ApprovalId> {
    let lineage = find_text(item, "pk")?.strip_prefix(APPROVAL_LINEAGES)?;
    ApprovalId::from_lineage(lineage, sort_key_text(item).parse().ok()?)
}

/// The number of partitions per block for claims, because a partition accepts a thousand writes a second.
pub(crate) const CLAIM_SHARDS: u8 = 4;

pub(crate) fn claim_partition(network: Network, block: u64, shard: u8) -> String {
    format!("X#{}#{block:012}#{shard}", network.name())
}

/// Parses the transaction from a claim's sort key.
pub(crate) fn parse_claim(sk: &str) -> Option<TxHash> {
    TxHash::parse(sk.split('#').next()?)
}

pub(crate) const MARKED: &str = "MARKS";

pub(crate) fn parse_reconcile_request(sk: &str) -> Option<(AgentId, SettlementId)> {
    let (agent, settlement) = sk.split_once('#')?;
    Some((AgentId::parse(agent)?, SettlementId::parse(settlement)?))
}

/// The number of copies of the operators' freezes, because a partition serves 3,000 read units a second.
pub(crate) const FREEZE_SHARDS: u8 = 4;

/// Returns which copy of the operators' freezes the agent's decisions read: an index from 0, below [`FREEZE_SHARDS`].
/// The last bits of the agent's random id determine the index.
pub(crate) fn freezes_copy_number(agent: AgentId) -> u8 {
    let [.., last] = agent.uuid().into_bytes();
    last % FREEZE_SHARDS
}

/// The partition of the rows that record which operator set each freeze, when, and why.
pub(crate) const FREEZE_REASONS: &str = "FREEZES#WHY";
const FROZEN_AGENT: &str = "agent#";
const FROZEN_OWNER: &str = "owner#";
const FROZEN_DEPLOYMENT: &str = "deployment";

pub(crate) fn parse_freeze(sk: &str) -> Option<FreezeTarget> {
    if sk == FROZEN_DEPLOYMENT {
        Some(FreezeTarget::Deployment)
    } else if let Some(agent) = sk.strip_prefix(FROZEN_AGENT) {
        AgentId::parse(agent).map(FreezeTarget::Agent)
    } else {
        UserId::parse(sk.strip_prefix(FROZEN_OWNER)?).map(FreezeTarget::Owner)
    }
}

/// Keys of the index `hold`, which lists the held settlements by the time at which they are due.
pub(crate) mod hold {
    use super::{SettlementId, Timestamp};

    pub(crate) const INDEX: &str = "hold";
    /// The number of partitions in the index `hold`.
    pub const PARTITIONS: u8 = 16;

    /// The index partition of a settlement: the last hexadecimal digit of the settlement's random id, so that the
    /// partitions fill evenly. A payment writes the index twice, and a partition accepts 1,000 writes a second. The key
    /// is short because the settlement's row contains the key and must stay below 1 KB.
    pub(crate) fn hold_partition(id: SettlementId) -> String {
        format!("{:x}", id.uuid().as_u128() & 0xf)
    }

    /// The index sort key of a hold: the time from which the chain decides the outcome (the payment's `validBefore`),
    /// or the time of the next attempt. Several holds can have the same key.
    pub(crate) fn due_key(at: Timestamp) -> String {
        format!("{:012}", at.secs())
    }

    /// Parses the time from a hold's sort key.
    pub(crate) fn parse_due_time(text: &str) -> Option<Timestamp> {
        Timestamp::from_secs(text.parse().ok()?)
    }
}

/// Sort keys of the index `owner`: an owner's agents, approvals and transfer offers in order of creation.
pub(crate) mod owned {
    use purser_domain::{AgentId, ApprovalId, Timestamp};
    use uuid::Uuid;

    pub(crate) const INDEX: &str = "owner";
    pub(crate) const AGENTS: &str = "A#";
    /// The prefix of a decided approval's sort key in the index `owner`.
    const DECIDED: &str = "AP#";
    /// The prefix of the sort key of a pending or expired approval in the index `owner`.
    const UNDECIDED: &str = "AW#";

    pub(crate) fn agent_key(id: AgentId, created_at: Timestamp) -> String {
        format!("{AGENTS}{:016}#{id}", created_at.micros())
    }

    /// A sort key after all agents and before all approvals in the index `owner`.
    pub(crate) const AFTER_AGENTS: &str = "A#~";

    /// Parses the agent and the creation time from a sort key of the index `owner`.
    pub(crate) fn parse_agent_and_creation_time(sort_key: &str) -> Option<(AgentId, Timestamp)> {
        let (at, id) = sort_key.strip_prefix(AGENTS)?.split_once('#')?;
        Some((AgentId::parse(id)?, Timestamp::from_micros(at.parse().ok()?)?))
    }

    pub(crate) fn undecided_key(id: ApprovalId, created_at: Timestamp) -> String {
        approval_key(UNDECIDED, id, created_at)
    }

    pub(crate) fn decided_key(id: ApprovalId, created_at: Timestamp) -> String {
        approval_key(DECIDED, id, created_at)
    }

    fn approval_key(prefix: &str, id: ApprovalId, created_at: Timestamp) -> String {
        format!("{prefix}{:016}#{id}", created_at.micros())
    }

    /// Returns an approval's index sort key without the prefix: the creation time and the id.
    pub(crate) fn approval_index_key_suffix(key: &str) -> Option<&str> {
        key.strip_prefix(UNDECIDED).or_else(|| key.strip_prefix(DECIDED))
    }

    /// Returns the inclusive bounds of undecided approvals that were created at or after `since` and before `before`.
    /// If no key can satisfy both conditions, the first bound is greater than the second bound.
    pub(crate) fn undecided_approval_key_bounds(
        since: Timestamp,
        before: Option<(Timestamp, ApprovalId)>,
    ) -> (String, String) {
        approval_key_bounds(UNDECIDED, since, before)
    }

    /// Returns the inclusive bounds of the index sort keys of decided approvals that were created before `before`.
    pub(crate) fn decided_approval_key_bounds(before: Option<(Timestamp, ApprovalId)>) -> (String, String) {
        approval_key_bounds(DECIDED, Timestamp::EPOCH, before)
    }

    fn approval_key_bounds(
        prefix: &str,
        since: Timestamp,
        before: Option<(Timestamp, ApprovalId)>,
    ) -> (String, String) {
        let first = approval_key(prefix, ApprovalId::from_uuid(Uuid::nil()), since);
        let (at, id) = before.unwrap_or((Timestamp::MAX, ApprovalId::from_uuid(Uuid::max())));
        // The greatest id below `id`, because the bounds are inclusive.
        let previous = Uuid::from_u128(id.uuid().as_u128().saturating_sub(1));
        (first, approval_key(prefix, ApprovalId::from_uuid(previous), at))
    }

    /// The prefix of a transfer offer's sort key. The `owner` of an offer is the user who may accept the agent.
    pub(crate) const HANDOVERS: &str = "HO#";

    pub(crate) fn ownership_offer_key(agent: AgentId, offered_at: Timestamp) -> String {
        format!("{HANDOVERS}{:016}#{agent}", offered_at.micros())
    }
}

/// Parses the time and the settlement from a counted payment's sort key. Returns `None` for any other sort key.
pub(crate) fn parse_counted_payment(sk: &str) -> Option<(Timestamp, SettlementId)> {
    let (at, settlement) = sk.strip_prefix(ENTRIES)?.split_once('#')?;
    Some((
        Timestamp::from_micros(at.parse().ok()?)?,
        SettlementId::parse(settlement)?,
    ))
}

pub(crate) fn sort_key_text(item: &Item) -> &str {
    find_text(item, "sk").map_or("", String::as_str)
}

pub(crate) fn partition_key_text(item: &Item) -> &str {
    find_text(item, "pk").map_or("", String::as_str)
}

fn find_text<'a>(item: &'a Item, name: &str) -> Option<&'a String> {
    item.get(name)?.as_s().ok()
}

pub(crate) fn counted_payment_key(scope: WindowScope, entry: &Entry) -> Key {
    Key::counted_payment(scope, entry.at, entry.settlement)
}

pub(crate) mod catalog {
    use purser_domain::{Fingerprint, ServiceId, ServiceSlug};

    /// The key of the catalog's version counter.
    pub(crate) const VERSION: &str = "VERSION";
    pub(crate) const SERVICES: &str = "SVC#";
    pub(crate) const PROBES: &str = "PROBE#";
    /// The key of the item that summarizes all probe results.
    pub(crate) const SIGHTINGS: &str = "SIGHTINGS";
    /// The key of the first item of the catalog's compressed object.
    pub(crate) const OBJECT: &str = "OBJECT";
    pub(crate) const CHUNKS: &str = "CHUNK#";

    pub(crate) fn service_key(id: ServiceId) -> String {
        format!("{SERVICES}{id}")
    }

    pub(crate) fn parse_service(pk: &str) -> Option<ServiceId> {
        ServiceId::parse(pk.strip_prefix(SERVICES)?)
    }

    pub(crate) fn probes_key(id: ServiceId) -> String {
        format!("{PROBES}{id}")
    }

    /// The prefix of the keys of an object's chunks.
    pub(crate) fn chunk_prefix(version: u64, digest: &Fingerprint) -> String {
        format!("{CHUNKS}{version}#{digest}#")
    }

    pub(crate) fn parse_chunk_version(key: &str) -> Option<u64> {
        key.strip_prefix(CHUNKS)?.split('#').next()?.parse().ok()
    }

    pub(crate) fn slug_key(slug: &ServiceSlug) -> String {
        format!("SLUG#{slug}")
    }
}

/// The partitions of verified payees, in the usage table.
pub(crate) mod attested {
    use super::ServiceId;

    /// The number of partitions with verified payees, because a partition serves 3,000 read units a second.
    pub(crate) const SHARDS: u8 = 4;

    pub(crate) fn verified_services_partition(shard: u8) -> String {
        format!("PAYEES#{shard}")
    }

    pub(crate) fn verified_service_shard(service: ServiceId) -> u8 {
        let [.., last] = service.uuid().into_bytes();
        last % SHARDS
    }
}

pub(crate) mod webhooks {
    use super::{UserId, WebhookId};
    use purser_domain::Webhook;

    pub(crate) fn webhooks_partition(user: &UserId) -> String {
        format!("P#{user}")
    }

    /// Parses the slot from a webhook's sort key.
    pub(crate) fn parse_slot(sk: &str) -> Option<u8> {
        sk.parse().ok().filter(|slot| *slot < Webhook::MAX)
    }

    pub(crate) fn parse_webhook(pk: &str) -> Option<WebhookId> {
        WebhookId::parse(pk.strip_prefix("D#")?)
    }

    /// The partition of a user's deliveries that wait for their next attempt.
    pub(crate) fn waiting_deliveries_partition(user: &UserId) -> String {
        format!("W#{user}")
    }

    /// The partition of the rows for long pauses between delivery attempts. Each shard of users has its own partition.
    pub(crate) fn pauses_partition(shard: char) -> String {
        format!("N#{shard}")
    }

    pub(crate) fn deliveries_partition(webhook: WebhookId) -> String {
        format!("D#{webhook}")
    }
}

pub(crate) mod notices {
    use super::{NoticeChannel, UserId};

    /// The partition with the notification settings of the users whose id starts with `shard`.
    pub(crate) fn recipients_partition(shard: char) -> String {
        format!("R#{shard}")
    }

    pub(crate) fn recipient_shard(user: &UserId) -> char {
        user.as_str().chars().next().unwrap_or('0')
    }

    /// The partition of a user's channels that can no longer deliver messages.
    pub(crate) fn ended_channels_partition(user: &UserId) -> String {
        format!("X#{user}")
    }

    /// The partition of the events that wait to be sent on a channel.
    pub(crate) fn waiting_events_partition(user: &UserId, channel: NoticeChannel) -> String {
        format!("Q#{}#{user}", channel.name())
    }
}

/// The key of an agent key's last use, in the throttle table.
pub(crate) fn agent_key_use_key(agent: AgentId, key: KeyId) -> String {
    format!("K#{agent}#{key}")
}

/// The key of a scope's open calls, in the throttle table.
pub(crate) fn open_calls_key(kind: ThrottleKind, scope: &str) -> String {
    format!("{}#open#{scope}", kind.prefix())
}

/// The key of the counter of a scope's stored responses, in the throttle table. The prefix belongs to `mcp`.
pub(crate) fn stored_responses_counter_key(scope: &str) -> String {
    format!("MCP#kept#{scope}")
}

/// The key of a chunk of a stored response, in the throttle table.
pub(crate) fn stored_response_chunk_key(scope: &str, slot: u8, chunk: usize) -> String {
    format!("{}#{slot}#{chunk}", stored_responses_counter_key(scope))
}

/// A kind of request counter in the throttle table. A function's IAM role can access only one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThrottleKind {
    /// Counters of requests to the API.
    Api,
    /// Counters of requests to the function `mcp` from callers without an agent key.
    Mcp,
}

impl ThrottleKind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Api => "RL",
            Self::Mcp => "MCP",
        }
    }
}

/// Counts the requests of a scope, for example of an agent key, in one minute.
pub(crate) fn throttle_key(kind: ThrottleKind, scope: &str, minute: u64) -> String {
    format!("{}#{scope}#{minute}", kind.prefix())
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn scope() -> WindowScope {
        let nil = Uuid::nil();
        WindowScope::Day {
            agent: AgentId::from_uuid(nil),
            service: ServiceId::from_uuid(nil),
        }
    }

    #[test]
    fn window_keys_sort_totals_before_payments_by_age() {
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        let settlement = SettlementId::from_uuid(Uuid::max());
        let entry = |micros| Key::counted_payment(scope(), at(micros), settlement).sk;
        let order = [
            WINDOW.to_owned(),
            entry(0),
            entry(9),
            entry(10),
            entry(1_795_223_340_000_001),
        ];
        assert!(order.is_sorted());
        assert_eq!(parse_counted_payment(&entry(10)), Some((at(10), settlement)));
        for other in [WINDOW, "", "E#", "E#1", "S#1#2"] {
            assert_eq!(parse_counted_payment(other), None, "{other}");
        }
    }

    #[test]
    fn approval_keys_of_one_request_are_adjacent_and_ordered() {
        let agent = AgentId::from_uuid(Uuid::nil());
        let keys =
            [0, 9, 10, u32::MAX].map(|n| Key::approval(ApprovalId::derive(agent, &Fingerprint::for_text("x"), n)));
        assert!(keys.iter().all(|key| key.pk == keys[0].pk && key.sk.len() == 10));
        assert!(keys.map(|key| key.sk).is_sorted());
    }

    #[test]
    fn hold_index_keys_sort_by_due_time() {
        let due = |secs| hold::due_key(Timestamp::from_secs(secs).unwrap());
        assert!([due(9), due(10), due(1_795_223_340)].is_sorted());
        let ids = [0, 0x0f, 0x1fe].map(|id| SettlementId::from_uuid(Uuid::from_u128(id)));
        assert_eq!(ids.map(hold::hold_partition), ["0", "f", "e"]);
    }

    #[test]
    fn a_transaction_claim_key_contains_the_transaction() {
        let hash = TxHash::from_b256(purser_domain::B256::repeat_byte(7));
        let claim = |log_index| Key::claim(Network::Base, 31_415_926, hash, log_index);
        assert_eq!(claim(None).pk, "X#base#000031415926#3");
        for log_index in [None, Some(0), Some(12)] {
            assert_eq!(parse_claim(&claim(log_index).sk), Some(hash));
        }
        assert_ne!(claim(None), claim(Some(0)));
        for other in ["", "#", "x#y"] {
            assert_eq!(parse_claim(other), None, "{other}");
        }
    }

    #[test]
    fn an_eviction_request_key_contains_its_window() {
        let agent = AgentId::from_uuid(Uuid::max());
        let rule = RuleId::from_uuid(Uuid::nil());
        for scope in [scope(), WindowScope::Budget { agent, rule }] {
            assert_eq!(parse_window(&Key::eviction_request(scope).sk), Some(scope));
        }
        for other in ["", "L#", "L#x#y", "S#1#2"] {
            assert_eq!(parse_window(other), None, "{other}");
        }
    }

    #[test]
    fn a_reconcile_request_key_contains_its_settlement() {
        let (agent, id) = (AgentId::from_uuid(Uuid::nil()), SettlementId::from_uuid(Uuid::max()));
        assert_eq!(
            parse_reconcile_request(&Key::reconcile_request(agent, id).sk),
            Some((agent, id))
        );
        for other in ["", "#", "x#y"] {
            assert_eq!(parse_reconcile_request(other), None, "{other}");
        }
    }
}
