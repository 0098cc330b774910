//! Defines the format of every key.
//!
//! IAM restricts a function to items by the prefix of their partition key (`dynamodb:LeadingKeys`), so items that
//! different functions write have different prefixes. If several functions write the same item, for example a window's
//! totals, IAM restricts each function to its attributes (`dynamodb:Attributes`).
//!
//! The order of sort keys is the order of texts: in a window's partition, `#W` sorts before the counted payments;
//! counted payments, settlements and decisions sort by time. Times are therefore zero-padded: to 16 digits for
//! microseconds, which is enough until the year 2286, and to 12 digits for seconds.

use crate::codec::attribute::Item;
use aws_sdk_dynamodb::{operation::query::builders::QueryFluentBuilder, types::AttributeValue};
use purser_domain::{
    Actor, Address, AgentId, ApprovalId, AuditId, AuditScope, DeliveryId, Entry, Fingerprint, FreezeTarget, KeyId,
    Network, NoticeChannel, NoticeUrlId, RuleId, ServiceId, SessionId, SettlementId, Timestamp, TransactionId, TxHash,
    UserId, WebhookId, WebhookSecretId, WindowScope,
};
use uuid::Uuid;

/// The key of an item in a table with `pk` and `sk`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) pk: String,
    pub(crate) sk: String,
}

/// The sort key of a partition's only or first item.
const ONLY: &str = "#";
/// The partition of the wallet counter and of the spare keys for new wallets.
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

    /// The set of ids of the agent's approvals that may be pending.
    pub(crate) fn waiting_approvals(agent: AgentId) -> Self {
        Self::new(format!("O#{agent}"), ONLY)
    }

    pub(crate) fn settlement(agent: AgentId, id: SettlementId) -> Self {
        Self::new(settlement_partition(agent), id.to_string())
    }

    /// A decision, in the decisions table.
    pub(crate) fn decision(agent: AgentId, id: TransactionId) -> Self {
        Self::new(decision_partition(agent), id.to_string())
    }

    /// The agent's withdrawal address.
    pub(crate) fn withdrawal_record(agent: AgentId) -> Self {
        Self::new(withdrawal_partition(agent), ONLY)
    }

    /// The record of a withdrawal's idempotency key. Idempotency keys of payments are in another partition, so the two
    /// can't collide.
    pub(crate) fn withdrawal_key(agent: AgentId, key: &Fingerprint) -> Self {
        Self::new(withdrawal_partition(agent), format!("K#{key}"))
    }

    /// The claim on a wallet's address by the agent for which the wallet was attested.
    pub(crate) fn wallet_claim(wallet: Address) -> Self {
        Self::new(format!("ATTESTED#{wallet:#x}"), ONLY)
    }

    /// The claim on an agent by the wallet that was attested for the agent.
    pub(crate) fn claim_by_wallet(agent: AgentId) -> Self {
        Self::new(format!("ATTESTED#{agent}"), ONLY)
    }

    /// A row of the audit log, which is a separate table.
    pub(crate) fn audit(actor: &Actor, id: AuditId) -> Self {
        Self::new(audit_partition(actor), id.to_string())
    }

    pub(crate) fn policy(agent: AgentId, service: ServiceId) -> Self {
        Self::new(policy_partition(agent), service.to_string())
    }

    pub(crate) fn window(scope: WindowScope) -> Self {
        Self::new(window_partition(scope), WINDOW)
    }

    /// One payment that a window counts.
    pub(crate) fn counted_payment(scope: WindowScope, at: Timestamp, settlement: SettlementId) -> Self {
        Self::new(
            window_partition(scope),
            format!("{ENTRIES}{:016}#{settlement}", at.micros()),
        )
    }

    /// An approval. All approvals of one request share a partition.
    pub(crate) fn approval(id: ApprovalId) -> Self {
        Self::new(approval_partition(id), format!("{:010}", id.sequence()))
    }

    /// The claim of a settlement on the transaction in this block that confirmed the settlement. With a log index, the
    /// claim is on one transfer of a transaction that has already confirmed another settlement.
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

    /// The last block whose confirmations reconcile has checked again.
    pub(crate) fn checked_block() -> Self {
        Self::new(PLACES.to_owned(), ONLY)
    }

    /// The last block that was searched for outflows of part `index` of `of` parts of the wallets.
    pub(crate) fn outflow_checkpoint(index: u8, of: u8) -> Self {
        Self::new(PLACES.to_owned(), format!("{OUTFLOW_PLACES}{index}#{of}"))
    }

    /// The agent whose wallet's balance was checked last. The next check continues after this agent.
    pub(crate) fn wallet_level_checkpoint() -> Self {
        Self::new(PLACES.to_owned(), "LEVELS")
    }

    /// The level of an agent's wallet.
    pub(crate) fn wallet_level(agent: AgentId) -> Self {
        Self::new(level_partition(wallet_digit(agent) % WALLET_SHARDS), agent.to_string())
    }

    /// An agent's row in the list of all wallets.
    pub(crate) fn wallet(agent: AgentId) -> Self {
        Self::new(wallet_partition(wallet_digit(agent) % WALLET_SHARDS), agent.to_string())
    }

    /// A request to reconcile a settlement.
    pub(crate) fn reconcile_request(agent: AgentId, id: SettlementId) -> Self {
        Self::new(MARKED.to_owned(), format!("{agent}#{id}"))
    }

    /// A request to evict a window's expired payments.
    pub(crate) fn eviction_request(scope: WindowScope) -> Self {
        Self::new(EVICT.to_owned(), window_partition(scope))
    }

    pub(crate) fn default_services(digest: &Fingerprint) -> Self {
        Self::new(format!("START#{digest}"), ONLY)
    }

    /// One copy of the operators' freezes.
    pub(crate) fn freezes(copy: u8) -> Self {
        Self::new(format!("FREEZES#{copy}"), ONLY)
    }

    /// The record of a freeze of `target`: the operator, the time and the reason.
    pub(crate) fn freeze(target: &FreezeTarget) -> Self {
        let sk = match target {
            FreezeTarget::Agent(agent) => format!("{FROZEN_AGENT}{agent}"),
            FreezeTarget::Owner(owner) => format!("{FROZEN_OWNER}{owner}"),
            FreezeTarget::Deployment => FROZEN_DEPLOYMENT.to_owned(),
        };
        Self::new(FREEZE_REASONS.to_owned(), sk)
    }

    /// The offer of an agent to another owner.
    pub(crate) fn ownership_offer(agent: AgentId) -> Self {
        Self::new(format!("HANDOVER#{agent}"), ONLY)
    }

    /// The counter of assigned wallets.
    pub(crate) fn wallets() -> Self {
        Self::new(WALLETS.to_owned(), ONLY)
    }

    /// The keys in KMS that have no agent.
    pub(crate) fn spare_keys() -> Self {
        Self::new(WALLETS.to_owned(), "SPARE")
    }

    /// A user's record: the identity at the issuer, and the time at which all sessions of the user were last ended.
    pub(crate) fn user(person: &UserId) -> Self {
        Self::new(user_partition(person), ONLY)
    }

    pub(crate) fn session(person: &UserId, session: &SessionId) -> Self {
        Self::new(user_partition(person), format!("{SESSIONS}{session}"))
    }

    /// The list of a user's policy templates.
    pub(crate) fn templates(person: &UserId) -> Self {
        Self::new(user_partition(person), "TEMPLATES")
    }

    /// A version of a policy template. Version numbers are unique among all templates of a user.
    pub(crate) fn template(person: &UserId, version: u64) -> Self {
        Self::new(user_partition(person), format!("TEMPLATE#{version:020}"))
    }

    /// A webhook in one of its owner's slots.
    pub(crate) fn webhook(person: &UserId, slot: u8) -> Self {
        Self::new(webhooks::webhooks_partition(person), slot.to_string())
    }

    pub(crate) fn webhook_secret(webhook: WebhookId, secret: WebhookSecretId) -> Self {
        Self::new(format!("K#{webhook}"), secret.to_string())
    }

    /// The marker of a removed webhook.
    pub(crate) fn gone_webhook(webhook: WebhookId) -> Self {
        Self::new(format!("G#{webhook}"), ONLY)
    }

    /// The failed calls of a webhook, in the partition of the marker.
    pub(crate) fn failed_calls(webhook: WebhookId) -> Self {
        Self::new(format!("G#{webhook}"), "FAILED")
    }

    pub(crate) fn delivery(webhook: WebhookId, id: DeliveryId) -> Self {
        Self::new(webhooks::deliveries_partition(webhook), id.to_string())
    }

    /// The marker of a delivery that waits for its next attempt.
    pub(crate) fn waiting_delivery(person: &UserId, id: DeliveryId) -> Self {
        Self::new(webhooks::waiting_deliveries_partition(person), id.to_string())
    }

    /// The long pause of a delivery.
    pub(crate) fn pause(person: &UserId, ends_at: Timestamp, id: DeliveryId) -> Self {
        Self::new(
            webhooks::pauses_partition(notices::recipient_shard(person)),
            format!("{ends_at}#{id}"),
        )
    }

    /// A user's notification settings.
    pub(crate) fn notification_settings(person: &UserId) -> Self {
        Self::new(
            notices::recipients_partition(notices::recipient_shard(person)),
            person.as_str(),
        )
    }

    /// An incoming webhook's URL to which a user's notifications are posted.
    pub(crate) fn notification_url(person: &UserId, url: NoticeUrlId) -> Self {
        Self::new(format!("U#{person}"), url.to_string())
    }

    /// The marker of a channel that can no longer deliver messages.
    pub(crate) fn ended_channel(person: &UserId, channel: NoticeChannel) -> Self {
        Self::new(notices::ended_channels_partition(person), channel.name())
    }

    /// The time from which a channel's next message may be sent.
    pub(crate) fn notification_pace(person: &UserId, channel: NoticeChannel) -> Self {
        Self::new(format!("F#{}#{person}", channel.name()), ONLY)
    }

    /// An event that waits to be sent on a channel.
    pub(crate) fn waiting_notification(person: &UserId, channel: NoticeChannel, key: &str) -> Self {
        Self::new(notices::waiting_events_partition(person, channel), key)
    }

    /// The marker of an event that was sent on a channel, or need not be sent.
    pub(crate) fn sent_notification(person: &UserId, channel: NoticeChannel, key: &str) -> Self {
        Self::new(format!("T#{}#{person}", channel.name()), key)
    }

    /// The verified payees of a service, in the usage table.
    pub(crate) fn verified_service(service: ServiceId) -> Self {
        Self::new(
            attested::verified_services_partition(attested::verified_service_shard(service)),
            service.to_string(),
        )
    }

    /// The time at which the payees of the whole catalog were first verified, in the usage table.
    pub(crate) fn first_payee_verification() -> Self {
        Self::new("PAYEES#SINCE".to_owned(), ONLY)
    }

    /// Returns the key of the table's item for an item of an index.
    pub(crate) fn from_item(item: &Item) -> Option<Self> {
        let (pk, sk) = find_text(item, "pk").zip(find_text(item, "sk"))?;
        Some(Self::new(pk.clone(), sk))
    }

    /// Converts the key to DynamoDB attributes.
    pub(crate) fn attributes(&self) -> Item {
        Item::from([
            ("pk".to_owned(), AttributeValue::S(self.pk.clone())),
            ("sk".to_owned(), AttributeValue::S(self.sk.clone())),
        ])
    }

    /// Whether this key is the item's key.
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

/// The partition of the actor's actions in the audit table: one partition for each user, including the actions of the
/// user's agents' rules, one for all operators, and one for reconcile's findings.
pub(crate) fn audit_partition(actor: &Actor) -> String {
    match actor {
        Actor::Person { id: person, .. } | Actor::Rule { owner: person } => format!("{BY_PERSON}{person}"),
        Actor::Operator(_) => BY_OPERATORS.to_owned(),
        Actor::Reconcile => OUTFLOWS.to_owned(),
    }
}

/// The partition of audit rows that inform a user of an operator's action, or of a finding by reconcile. Each function
/// that writes such rows has its own partition. `None` for actions of a user and of rules, which have only one row.
pub(crate) fn notification_partition(actor: &Actor, person: &UserId) -> Option<String> {
    match actor {
        Actor::Person { .. } | Actor::Rule { .. } => None,
        Actor::Operator(_) => Some(format!("O#{person}")),
        Actor::Reconcile => Some(format!("W#{person}")),
    }
}

/// Returns the audit log's partitions in this scope.
pub(crate) fn audit_partitions(scope: &AuditScope) -> Vec<String> {
    match scope {
        AuditScope::Person(person) => ["P", "O", "W"].map(|kind| format!("{kind}#{person}")).into(),
        AuditScope::Operators => vec![BY_OPERATORS.to_owned()],
        AuditScope::Outflows => vec![OUTFLOWS.to_owned()],
    }
}

/// Returns the user whose action an audit row records.
pub(crate) fn actor_in_key(item: &Item) -> Option<UserId> {
    UserId::parse(find_text(item, "pk")?.strip_prefix(BY_PERSON)?)
}

/// Parses the agent from the key of its record, settlement or set of pending approvals.
pub(crate) fn agent_in_key(item: &Item) -> Option<AgentId> {
    parse_agent(find_text(item, "pk")?)
}

/// Parses the agent from the partition key of its record, settlement, decision or transfer offer.
pub(crate) fn parse_agent(pk: &str) -> Option<AgentId> {
    AgentId::parse(pk.split_once('#')?.1)
}

/// Parses the user from a partition key.
pub(crate) fn parse_person(pk: &str) -> Option<UserId> {
    UserId::parse(pk.split_once('#')?.1)
}

/// The prefix of the sort keys of sessions.
pub(crate) const SESSIONS: &str = "SESSION#";

/// Parses the session from its sort key.
pub(crate) fn parse_session(sk: &str) -> Option<SessionId> {
    SessionId::parse(sk.strip_prefix(SESSIONS)?)
}

pub(crate) fn user_partition(person: &UserId) -> String {
    format!("PERSON#{person}")
}

/// The partition of a window. Each window has its own partition, so that a busy window does not slow others.
pub(crate) fn window_partition(scope: WindowScope) -> String {
    match scope {
        WindowScope::Day { agent, service } => format!("L#{agent}#{service}"),
        WindowScope::Budget { agent, rule } => format!("B#{agent}#{rule}"),
    }
}

/// The partition of reconcile's checkpoints.
pub(crate) const PLACES: &str = "RECONCILE";
/// The prefix of the sort keys of the checkpoints of the search for outflows.
pub(crate) const OUTFLOW_PLACES: &str = "OUTFLOWS#";

/// Parses the index of a part of the wallets, and the number of parts, from a checkpoint's sort key.
pub(crate) fn parse_outflow_checkpoint(sk: &str) -> Option<(u8, u8)> {
    let (index, of) = sk.strip_prefix(OUTFLOW_PLACES)?.split_once('#')?;
    index.parse().ok().zip(of.parse().ok())
}

/// The number of partitions of the wallets. Each of four concurrent runs of reconcile reads one.
pub(crate) const WALLET_SHARDS: u8 = 4;

pub(crate) fn wallet_partition(shard: u8) -> String {
    format!("WALLET#{shard}")
}

/// A partition of the wallets' levels. Levels have the same shards as wallets.
pub(crate) fn level_partition(shard: u8) -> String {
    format!("LEVEL#{shard}")
}

/// The digit that determines a wallet's shard: the last hexadecimal digit of the agent's id, which is random.
pub(crate) fn wallet_digit(agent: AgentId) -> u8 {
    let [.., last] = agent.uuid().into_bytes();
    last & 0xf
}

/// The partition of all requests for evictions.
pub(crate) const EVICT: &str = "EVICT";

/// Parses a window from its partition key.
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

/// The partition of all approvals of one request.
pub(crate) fn approval_partition(id: ApprovalId) -> String {
    format!("{APPROVAL_LINEAGES}{}", id.lineage())
}

/// Parses the approval's id from an item's key.
pub(crate) fn approval_in_key(item: &Item) -> Option<ApprovalId> {
    let lineage = find_text(item, "pk")?.strip_prefix(APPROVAL_LINEAGES)?;
    ApprovalId::from_lineage(lineage, sort_key_text(item).parse().ok()?)
}

/// The number of partitions for the claims of one block. At a thousand payments a second, two thousand claims may be
/// made at the same time, and a partition accepts a thousand writes a second.
pub(crate) const CLAIM_SHARDS: u8 = 4;

/// A partition of the claims on transactions in one block.
pub(crate) fn claim_partition(network: Network, block: u64, shard: u8) -> String {
    format!("X#{}#{block:012}#{shard}", network.name())
}

/// Parses the transaction from a claim's sort key.
pub(crate) fn parse_claim(sk: &str) -> Option<TxHash> {
    TxHash::parse(sk.split('#').next()?)
}

/// The partition of all requests to reconcile.
pub(crate) const MARKED: &str = "MARKS";

/// Parses the agent and the settlement from a reconcile request's sort key.
pub(crate) fn parse_reconcile_request(sk: &str) -> Option<(AgentId, SettlementId)> {
    let (agent, settlement) = sk.split_once('#')?;
    Some((AgentId::parse(agent)?, SettlementId::parse(settlement)?))
}

/// The number of copies of the operators' freezes. Each decision reads one copy. A partition serves 3,000 read units a
/// second, so a thousand decisions a second should not all read the same copy.
pub(crate) const FREEZES_COPIES: u8 = 4;

/// Returns the copy that an agent's decisions read, by the last bits of the agent's id, which are random.
pub(crate) fn freezes_copy(agent: AgentId) -> u8 {
    let [.., last] = agent.uuid().into_bytes();
    last % FREEZES_COPIES
}

/// The partition of the records of freezes: the operator, the time and the reason.
pub(crate) const FREEZE_REASONS: &str = "FREEZES#WHY";
const FROZEN_AGENT: &str = "agent#";
const FROZEN_OWNER: &str = "owner#";
const FROZEN_DEPLOYMENT: &str = "deployment";

/// Parses the freeze's target from the record's sort key.
pub(crate) fn parse_freeze(sk: &str) -> Option<FreezeTarget> {
    if sk == FROZEN_DEPLOYMENT {
        Some(FreezeTarget::Deployment)
    } else if let Some(agent) = sk.strip_prefix(FROZEN_AGENT) {
        AgentId::parse(agent).map(FreezeTarget::Agent)
    } else {
        UserId::parse(sk.strip_prefix(FROZEN_OWNER)?).map(FreezeTarget::Owner)
    }
}

/// The index of holds.
pub(crate) mod hold {
    use super::{SettlementId, Timestamp};

    /// The name of the index.
    pub(crate) const INDEX: &str = "hold";
    /// The number of partitions of the index.
    pub const PARTITIONS: u8 = 16;

    /// The index partition of a settlement: the last hexadecimal digit of its id, which is random, so the partitions
    /// fill evenly. A payment writes the index twice, and one partition accepts 1,000 writes a second. The key is short
    /// because it is part of the settlement's row, which must stay below 1 KB.
    pub(crate) fn hold_partition(id: SettlementId) -> String {
        format!("{:x}", id.uuid().as_u128() & 0xf)
    }

    /// The index sort key of a hold: the time from which the chain decides the outcome (the payment's `validBefore`),
    /// or the time of the next attempt. The key is not unique.
    pub(crate) fn due_key(at: Timestamp) -> String {
        format!("{:012}", at.secs())
    }

    /// Parses the time from a hold's sort key.
    pub(crate) fn parse_due(text: &str) -> Option<Timestamp> {
        Timestamp::from_secs(text.parse().ok()?)
    }
}

/// The index of an owner's agents and approvals, each in order of creation.
pub(crate) mod owned {
    use purser_domain::{AgentId, ApprovalId, Timestamp};
    use uuid::Uuid;

    /// The name of the index.
    pub(crate) const INDEX: &str = "owner";
    /// The prefix of the index sort keys of agents.
    pub(crate) const AGENTS: &str = "A#";
    /// The prefix of the index sort keys of approvals that a user has decided.
    const DECIDED: &str = "AP#";
    /// The prefix of the index sort keys of approvals that no user has decided: pending or expired approvals.
    const UNDECIDED: &str = "AW#";

    pub(crate) fn agent_key(id: AgentId, created_at: Timestamp) -> String {
        format!("{AGENTS}{:016}#{id}", created_at.micros())
    }

    /// An index sort key between the keys of all agents and the keys of approvals.
    pub(crate) const AFTER_AGENTS: &str = "A#~";

    /// Parses the agent and its creation time from an index sort key; `None` for any other key.
    pub(crate) fn parse_agent(os: &str) -> Option<(AgentId, Timestamp)> {
        let (at, id) = os.strip_prefix(AGENTS)?.split_once('#')?;
        Some((AgentId::parse(id)?, Timestamp::from_micros(at.parse().ok()?)?))
    }

    /// The index sort key of an approval that no user has decided.
    pub(crate) fn undecided_key(id: ApprovalId, created_at: Timestamp) -> String {
        approval_key(UNDECIDED, id, created_at)
    }

    /// The index sort key of a decided approval.
    pub(crate) fn decided_key(id: ApprovalId, created_at: Timestamp) -> String {
        approval_key(DECIDED, id, created_at)
    }

    fn approval_key(prefix: &str, id: ApprovalId, created_at: Timestamp) -> String {
        format!("{prefix}{:016}#{id}", created_at.micros())
    }

    /// Returns the part of an approval's index sort key with time and id. These parts sort by time.
    pub(crate) fn approval_index_position(os: &str) -> Option<&str> {
        os.strip_prefix(UNDECIDED).or_else(|| os.strip_prefix(DECIDED))
    }

    /// Returns the inclusive bounds of the index sort keys of undecided approvals that were created from `since` on and
    /// before `before`. If there are no such keys, the first bound is greater than the second.
    pub(crate) fn undecided_bounds(since: Timestamp, before: Option<(Timestamp, ApprovalId)>) -> (String, String) {
        bounds_between(UNDECIDED, since, before)
    }

    /// Returns the inclusive bounds of the index sort keys of decided approvals that were created before `before`.
    pub(crate) fn decided_bounds(before: Option<(Timestamp, ApprovalId)>) -> (String, String) {
        bounds_between(DECIDED, Timestamp::EPOCH, before)
    }

    fn bounds_between(prefix: &str, since: Timestamp, before: Option<(Timestamp, ApprovalId)>) -> (String, String) {
        let first = approval_key(prefix, ApprovalId::from_uuid(Uuid::nil()), since);
        let (at, id) = before.unwrap_or((Timestamp::MAX, ApprovalId::from_uuid(Uuid::max())));
        // The largest id before `id`.
        let previous = Uuid::from_u128(id.uuid().as_u128().saturating_sub(1));
        (first, approval_key(prefix, ApprovalId::from_uuid(previous), at))
    }

    /// The prefix of the index sort keys of offers of agents. The `owner` of an offer is the user who may accept it.
    pub(crate) const HANDOVERS: &str = "HO#";

    pub(crate) fn ownership_offer_key(agent: AgentId, offered_at: Timestamp) -> String {
        format!("{HANDOVERS}{:016}#{agent}", offered_at.micros())
    }
}

/// Adds to a query that it reads the newest items of a partition whose sort keys are `UUIDv7`s, before `before` if
/// given.
pub(crate) fn newest_first(
    query: QueryFluentBuilder,
    partition: String,
    before: Option<Uuid>,
    limit: u32,
) -> QueryFluentBuilder {
    let query = query
        .expression_attribute_values(":pk", AttributeValue::S(partition))
        .scan_index_forward(false)
        .limit(i32::try_from(limit).unwrap_or(i32::MAX));
    match before {
        None => query.key_condition_expression("pk = :pk"),
        Some(before) => query
            .key_condition_expression("pk = :pk AND sk < :before")
            .expression_attribute_values(":before", AttributeValue::S(before.to_string())),
    }
}

/// Parses the time and the settlement from the sort key of a counted payment; `None` for any other sort key.
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

/// The key of a counted payment.
pub(crate) fn counted_payment_key(scope: WindowScope, entry: &Entry) -> Key {
    Key::counted_payment(scope, entry.at, entry.settlement)
}

/// The keys of the catalog table.
pub(crate) mod catalog {
    use purser_domain::{Fingerprint, ServiceId, ServiceSlug};

    /// The row that counts the catalog's versions.
    pub(crate) const VERSION: &str = "VERSION";
    /// The prefix of the keys of services.
    pub(crate) const SERVICES: &str = "SVC#";
    /// The prefix of the keys of probe records.
    pub(crate) const PROBES: &str = "PROBE#";
    /// The summary of all probe results.
    pub(crate) const SIGHTINGS: &str = "SIGHTINGS";
    /// The head of the catalog's object.
    pub(crate) const OBJECT: &str = "OBJECT";
    /// The prefix of the keys of the object's chunks.
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

    /// Parses the version from a chunk's key.
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

    /// The number of partitions. A partition serves 3,000 read units a second, and each instance of `payments` reads a
    /// service's row once for each catalog version.
    pub(crate) const SHARDS: u8 = 4;

    pub(crate) fn verified_services_partition(shard: u8) -> String {
        format!("PAYEES#{shard}")
    }

    /// Returns the shard of a service, by the last bits of its id, which are random.
    pub(crate) fn verified_service_shard(service: ServiceId) -> u8 {
        let [.., last] = service.uuid().into_bytes();
        last % SHARDS
    }
}

/// The partitions of the webhooks table.
pub(crate) mod webhooks {
    use super::{UserId, WebhookId};
    use purser_domain::Webhook;

    pub(crate) fn webhooks_partition(person: &UserId) -> String {
        format!("P#{person}")
    }

    /// Parses the slot from a webhook's sort key.
    pub(crate) fn parse_slot(sk: &str) -> Option<u8> {
        sk.parse().ok().filter(|slot| *slot < Webhook::MAX)
    }

    /// Parses the webhook from the partition key of its deliveries.
    pub(crate) fn parse_webhook(pk: &str) -> Option<WebhookId> {
        WebhookId::parse(pk.strip_prefix("D#")?)
    }

    /// The partition of a user's deliveries that wait for their next attempt.
    pub(crate) fn waiting_deliveries_partition(person: &UserId) -> String {
        format!("W#{person}")
    }

    /// The partition of long pauses for one shard of users.
    pub(crate) fn pauses_partition(part: char) -> String {
        format!("N#{part}")
    }

    pub(crate) fn deliveries_partition(webhook: WebhookId) -> String {
        format!("D#{webhook}")
    }
}

/// The partitions of notifications, in the webhooks table.
pub(crate) mod notices {
    use super::{NoticeChannel, UserId};

    /// The partition of one shard of notification settings. There are sixteen shards, by the first digit of the user's
    /// id, so that all recipients can be listed.
    pub(crate) fn recipients_partition(shard: char) -> String {
        format!("R#{shard}")
    }

    pub(crate) fn recipient_shard(person: &UserId) -> char {
        person.as_str().chars().next().unwrap_or('0')
    }

    /// The partition of a user's channels that can no longer deliver messages.
    pub(crate) fn ended_channels_partition(person: &UserId) -> String {
        format!("X#{person}")
    }

    /// The partition of the events that wait to be sent on a channel.
    pub(crate) fn waiting_events_partition(person: &UserId, channel: NoticeChannel) -> String {
        format!("Q#{}#{person}", channel.name())
    }
}

/// The throttle table's key for the last use of an agent key.
pub(crate) fn key_use(agent: AgentId, key: KeyId) -> String {
    format!("K#{agent}#{key}")
}

/// The throttle table's key for the open calls of a scope.
pub(crate) fn open_calls(kind: ThrottleKind, scope: &str) -> String {
    format!("{}#open#{scope}", kind.prefix())
}

/// The throttle table's key for the counter of a scope's stored responses, under the prefix of `mcp`.
pub(crate) fn stored_responses(scope: &str) -> String {
    format!("MCP#kept#{scope}")
}

/// The throttle table's key for a chunk of a stored response.
pub(crate) fn stored_response(scope: &str, slot: u8, chunk: usize) -> String {
    format!("{}#{slot}#{chunk}", stored_responses(scope))
}

/// A kind of counter. A function's IAM role can access only one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThrottleKind {
    /// The counters of the API.
    Api,
    /// The counters of `mcp`, for callers without a key.
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

/// The throttle table's key for one scope in one minute.
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
