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
    Network, NoticeChannel, NoticeUrlId, RuleId, SecretDigest, ServiceId, SessionId, SettlementId, Timestamp,
    TransactionId, TxHash, UserCode, UserId, WebhookId, WebhookSecretId, WindowScope,
};

/// The key of an item in a table with `pk` and `sk`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) pk: String,
    pub(crate) sk: String,
}

/// The sort key of a partition's only or first item.
pub(crate) const ONLY: &str = "#";
/// The partition with the counter of assigned wallets and the list of spare KMS keys.
const WALLETS: &str = "WALLETS";
/// The sort key of a window's totals.
pub(crate) const WINDOW: &str = "#W";
/// The prefix of the sort keys of payments that a window counts.
const ENTRIES: &str = "E#";

/// Declares the keys of items, each with the partition key and the sort key.
macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) = $pk:expr, $sk:expr;)*) => {
        impl $crate::codec::key::Key {$(
            $(#[$doc])*
            pub(crate) fn $name($($argument: $type),*) -> Self {
                Self::new($pk, $sk)
            }
        )*}
    };
}
pub(crate) use keys;

/// Declares the text form of partition keys and sort keys.
macro_rules! key_texts {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) = $text:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name($($argument: $type),*) -> String {
            $text
        }
    )*};
}
pub(crate) use key_texts;

keys! {
    agent(agent: AgentId) = format!("A#{agent}"), ONLY;
    idempotency(agent: AgentId, key: &Fingerprint) = format!("I#{agent}"), key.to_string();
    /// The item with the ids of an agent's possibly pending approvals.
    waiting_approvals(agent: AgentId) = format!("O#{agent}"), ONLY;
    settlement(agent: AgentId, id: SettlementId) = settlement_partition(agent), id.to_string();
    decision(agent: AgentId, id: TransactionId) = decision_partition(agent), id.to_string();
    withdrawal_record(agent: AgentId) = withdrawal_partition(agent), ONLY;
    /// Payments record their idempotency keys in another partition, so a payment and a withdrawal can't collide.
    withdrawal_key(agent: AgentId, key: &Fingerprint) = withdrawal_partition(agent), format!("K#{key}");
    /// The claim that assigns a wallet's address to an agent.
    wallet_claim(wallet: Address) = format!("ATTESTED#{wallet:#x}"), ONLY;
    /// The claim that binds an agent to the agent's only wallet.
    wallet_claim_by_agent(agent: AgentId) = format!("ATTESTED#{agent}"), ONLY;
    audit(actor: &Actor, id: AuditId) = audit_partition(actor), id.to_string();
    policy(agent: AgentId, service: ServiceId) = policy_partition(agent), service.to_string();
    window(scope: WindowScope) = window_partition(scope), WINDOW;
    counted_payment(scope: WindowScope, at: Timestamp, settlement: SettlementId) =
        window_partition(scope), format!("{ENTRIES}{:016}#{settlement}", at.micros());
    /// The row about the agent's payments that were confirmed after the release of their reservation.
    late_payments(agent: AgentId) = format!("L#{agent}"), ONLY;
    /// All approvals of one request share a partition.
    approval(id: ApprovalId) = approval_partition(id), format!("{:010}", id.sequence());
    preflight_replay_key(agent: AgentId, replay_key: &Fingerprint) = format!("R#{agent}#{replay_key}"), ONLY;
    /// The row with the number of the last block whose confirmations `reconcile` has checked again.
    checked_block() = CHECKPOINTS, ONLY;
    /// The last block that `reconcile` has searched for outflows of the group of wallets `index`, one of `count`
    /// groups.
    outflow_checkpoint(index: u8, count: u8) = CHECKPOINTS, format!("{OUTFLOW_CHECKPOINTS}{index}#{count}");
    /// The row with the agent whose wallet balance was checked last.
    wallet_level_checkpoint() = CHECKPOINTS, "LEVELS";
    /// The row that records whether an agent's wallet balance is low.
    wallet_level(agent: AgentId) = wallet_level_partition(wallet_shard_digit(agent) % WALLET_SHARDS), agent.to_string();
    wallet(agent: AgentId) = wallet_partition(wallet_shard_digit(agent) % WALLET_SHARDS), agent.to_string();
    reconcile_request(agent: AgentId, id: SettlementId) = MARKED, format!("{agent}#{id}");
    eviction_request(scope: WindowScope) = EVICT, window_partition(scope);
    default_services(digest: &Fingerprint) = format!("START#{digest}"), ONLY;
    /// One of the items with a copy of all freezes by operators. Each decision reads one copy.
    freezes(copy: u8) = format!("FREEZES#{copy}"), ONLY;
    /// An operator's offer to transfer an agent to another owner.
    ownership_offer(agent: AgentId) = format!("HANDOVER#{agent}"), ONLY;
    /// The item that counts the assigned wallets.
    wallet_counter() = WALLETS, ONLY;
    /// The item that lists the KMS keys that no agent uses yet.
    spare_kms_keys() = WALLETS, "SPARE";
    /// A user's record: the identity at the issuer, and the time at which all sessions were last ended.
    user(user: &UserId) = user_partition(user), ONLY;
    session(user: &UserId, session: &SessionId) = user_partition(user), format!("{SESSIONS}{session}");
    /// The item that lists a user's policy templates.
    templates(user: &UserId) = user_partition(user), "TEMPLATES";
    /// A version of a policy template. Version numbers are unique among all templates of a user.
    template(user: &UserId, version: u64) = user_partition(user), format!("TEMPLATE#{version:020}");
    grant_code(digest: &SecretDigest) = format!("{GRANT_CODES}{}", digest.to_hex()), ONLY;
    device_request(code: &UserCode) = format!("{DEVICE_REQUESTS}{}", code.as_str()), ONLY;
    /// The row with the generation of a grant's refresh token.
    grant(agent: AgentId, grant: KeyId) = format!("OG#{agent}"), grant.to_string();
    /// Each webhook occupies one of the owner's slots.
    webhook(user: &UserId, slot: u8) = webhooks::webhooks_partition(user), slot.to_string();
    webhook_secret(webhook: WebhookId, secret: WebhookSecretId) = format!("K#{webhook}"), secret.to_string();
    removed_webhook(webhook: WebhookId) = format!("G#{webhook}"), ONLY;
    failed_calls(webhook: WebhookId) = format!("G#{webhook}"), "FAILED";
    delivery(webhook: WebhookId, id: DeliveryId) = webhooks::deliveries_partition(webhook), id.to_string();
    waiting_delivery(user: &UserId, id: DeliveryId) = webhooks::waiting_deliveries_partition(user), id.to_string();
    /// The row that schedules the next attempt of a delivery after a long pause.
    pause(user: &UserId, ends_at: Timestamp, id: DeliveryId) =
        webhooks::pauses_partition(notices::recipient_shard(user)), format!("{ends_at}#{id}");
    notification_settings(user: &UserId) = notices::recipients_partition(notices::recipient_shard(user)), user.as_str();
    /// The row with the URL of an incoming webhook, to which a user's notifications are posted.
    notification_url(user: &UserId, url: NoticeUrlId) = format!("U#{user}"), url.to_string();
    /// The row that marks a notification channel as unable to deliver messages.
    ended_channel(user: &UserId, channel: NoticeChannel) = notices::ended_channels_partition(user), channel.name();
    /// The row with the time from which the next message may be sent on a notification channel.
    notification_pace(user: &UserId, channel: NoticeChannel) = format!("F#{}#{user}", channel.name()), ONLY;
    waiting_notification(user: &UserId, channel: NoticeChannel, key: &str) =
        notices::waiting_events_partition(user, channel), key;
    /// The row that marks an event as sent on a notification channel, or as not to be sent.
    sent_notification(user: &UserId, channel: NoticeChannel, key: &str) = format!("T#{}#{user}", channel.name()), key;
    /// The row in the usage table with a service's verified payees.
    verified_service(service: ServiceId) =
        attested::verified_services_partition(attested::verified_service_shard(service)), service.to_string();
    /// The row in the usage table with the time at which the payees of the whole catalog were first verified.
    first_payee_verification() = "PAYEES#SINCE", ONLY;
}

impl Key {
    pub(crate) fn new(pk: impl Into<String>, sk: impl Into<String>) -> Self {
        let (pk, sk) = (pk.into(), sk.into());
        Self { pk, sk }
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

    /// The key of the row that records which operator froze `target`, when, and why.
    pub(crate) fn freeze(target: &FreezeTarget) -> Self {
        let sk = match target {
            FreezeTarget::Agent(agent) => format!("{FROZEN_AGENT}{agent}"),
            FreezeTarget::Owner(owner) => format!("{FROZEN_OWNER}{owner}"),
            FreezeTarget::Deployment => FROZEN_DEPLOYMENT.to_owned(),
        };
        Self::new(FREEZE_REASONS.to_owned(), sk)
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

key_texts! {
    settlement_partition(agent: AgentId) = format!("S#{agent}");
    withdrawal_partition(agent: AgentId) = format!("PO#{agent}");
    policy_partition(agent: AgentId) = format!("P#{agent}");
    decision_partition(agent: AgentId) = format!("A#{agent}");
}

const BY_PERSON: &str = "P#";
const BY_OPERATORS: &str = "OPERATORS";
const OUTFLOWS: &str = "OUTFLOWS";

/// The partition of an actor's audit rows. All operators share a partition, and a user's partition contains the actions
/// of the user's rules.
pub(crate) fn audit_partition(actor: &Actor) -> String {
    match actor {
        Actor::Person { id: user, .. }
        | Actor::Rule { owner: user }
        | Actor::Client { owner: user }
        | Actor::Agent { owner: user, .. } => format!("{BY_PERSON}{user}"),
        Actor::Operator(_) => BY_OPERATORS.to_owned(),
        Actor::Reconcile => OUTFLOWS.to_owned(),
    }
}

/// The partition with the copies of audit rows for an affected user; `None` for actions of users, clients and rules,
/// which get no copy.
pub(crate) fn notification_partition(actor: &Actor, user: &UserId) -> Option<String> {
    match actor {
        Actor::Person { .. } | Actor::Rule { .. } | Actor::Client { .. } | Actor::Agent { .. } => None,
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

pub(crate) fn find_actor_id(item: &Item) -> Option<UserId> {
    UserId::parse(find_text(item, "pk")?.strip_prefix(BY_PERSON)?)
}

pub(crate) fn find_agent_id(item: &Item) -> Option<AgentId> {
    parse_agent(find_text(item, "pk")?)
}

/// Parses the agent from a partition key of an agent's record, settlements, decisions or transfer offer.
pub(crate) fn parse_agent(pk: &str) -> Option<AgentId> {
    AgentId::parse(pk.split_once('#')?.1)
}

pub(crate) fn parse_user(pk: &str) -> Option<UserId> {
    UserId::parse(pk.split_once('#')?.1)
}

const GRANT_CODES: &str = "OC#";
const DEVICE_REQUESTS: &str = "OD#";

pub(crate) fn parse_grant_code(pk: &str) -> Option<SecretDigest> {
    SecretDigest::from_hex(pk.strip_prefix(GRANT_CODES)?)
}

pub(crate) fn parse_user_code(pk: &str) -> Option<UserCode> {
    UserCode::parse(pk.strip_prefix(DEVICE_REQUESTS)?)
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

key_texts! {
    wallet_partition(shard: u8) = format!("WALLET#{shard}");
    /// A partition of the rows that record which wallet balances are low.
    wallet_level_partition(shard: u8) = format!("LEVEL#{shard}");
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

const APPROVAL_PARTITIONS: &str = "AP#";

/// The partition of all approvals that belong to the same agent and request ([`ApprovalId::request_prefix`]).
pub(crate) fn approval_partition(id: ApprovalId) -> String {
    format!("{APPROVAL_PARTITIONS}{}", id.request_prefix())
}

pub(crate) fn find_approval_id(item: &Item) -> Option<ApprovalId> {
    let request_prefix = find_text(item, "pk")?.strip_prefix(APPROVAL_PARTITIONS)?;
    ApprovalId::from_request_prefix(request_prefix, sort_key_text(item).parse().ok()?)
}

/// The number of partitions per block for claims, because a partition accepts a thousand writes a second.
pub(crate) const CLAIM_SHARDS: u8 = 4;

pub(crate) fn claim_partition(network: Network, block: u64, shard: u8) -> String {
    format!("X#{}#{block:012}#{shard}", network.name())
}

pub(crate) fn parse_claimed_tx_hash(sk: &str) -> Option<TxHash> {
    TxHash::parse(sk.split('#').next()?)
}

pub(crate) const MARKED: &str = "MARKS";

pub(crate) fn parse_reconcile_request(sk: &str) -> Option<(AgentId, SettlementId)> {
    let (agent, settlement) = sk.split_once('#')?;
    Some((AgentId::parse(agent)?, SettlementId::parse(settlement)?))
}

/// The number of copies of the operators' freezes, because a partition serves 3,000 read units a second.
pub(crate) const FREEZE_SHARDS: u8 = 4;

/// Returns which copy of the operators' freezes the agent's decisions read: an index below [`FREEZE_SHARDS`].
pub(crate) fn freeze_list_copy_index(agent: AgentId) -> u8 {
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
    /// The number of partitions in the index `hold`: one for each hexadecimal digit.
    pub const PARTITIONS: u8 = 16;

    key_texts! {
        /// The last hexadecimal digit of the settlement's random id. The key is short, because the settlement's row
        /// must stay below 1 KB.
        hold_partition(id: SettlementId) = format!("{:x}", id.uuid().as_u128() & 0xf);
        /// The index sort key of a held settlement: the due time, in seconds. Several holds can have the same key.
        due_key(at: Timestamp) = format!("{:012}", at.secs());
    }

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

    pub(crate) fn agent_index_key(id: AgentId, created_at: Timestamp) -> String {
        format!("{AGENTS}{:016}#{id}", created_at.micros())
    }

    /// A sort key after all agents and before all approvals in the index `owner`.
    pub(crate) const AFTER_AGENTS: &str = "A#~";

    /// Parses the agent and the creation time from a sort key of the index `owner`.
    pub(crate) fn parse_agent_and_creation_time(sort_key: &str) -> Option<(AgentId, Timestamp)> {
        let (at, id) = sort_key.strip_prefix(AGENTS)?.split_once('#')?;
        Some((AgentId::parse(id)?, Timestamp::from_micros(at.parse().ok()?)?))
    }

    pub(crate) fn undecided_approval_key(id: ApprovalId, created_at: Timestamp) -> String {
        approval_index_key(UNDECIDED, id, created_at)
    }

    pub(crate) fn decided_approval_key(id: ApprovalId, created_at: Timestamp) -> String {
        approval_index_key(DECIDED, id, created_at)
    }

    fn approval_index_key(prefix: &str, id: ApprovalId, created_at: Timestamp) -> String {
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
        let first = approval_index_key(prefix, ApprovalId::from_uuid(Uuid::nil()), since);
        let (at, id) = before.unwrap_or((Timestamp::MAX, ApprovalId::from_uuid(Uuid::max())));
        // The greatest id below `id`, because the bounds are inclusive.
        let previous = Uuid::from_u128(id.uuid().as_u128().saturating_sub(1));
        (first, approval_index_key(prefix, ApprovalId::from_uuid(previous), at))
    }

    /// The prefix of a transfer offer's sort key. The offer's attribute `owner` has the user who may accept the agent.
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

    key_texts! {
        probes_key(id: ServiceId) = format!("{PROBES}{id}");
        /// The prefix of the keys of the chunks of one compressed catalog.
        chunk_prefix(version: u64, digest: &Fingerprint) = format!("{CHUNKS}{version}#{digest}#");
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

    pub(crate) fn parse_webhook_slot(sk: &str) -> Option<u8> {
        sk.parse().ok().filter(|slot| *slot < Webhook::MAX)
    }

    pub(crate) fn parse_webhook(pk: &str) -> Option<WebhookId> {
        WebhookId::parse(pk.strip_prefix("D#")?)
    }

    key_texts! {
        waiting_deliveries_partition(user: &UserId) = format!("W#{user}");
        /// The partition of the rows for long pauses between delivery attempts of the users in `shard`.
        pauses_partition(shard: char) = format!("N#{shard}");
        deliveries_partition(webhook: WebhookId) = format!("D#{webhook}");
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

    key_texts! {
        ended_channels_partition(user: &UserId) = format!("X#{user}");
        waiting_events_partition(user: &UserId, channel: NoticeChannel) = format!("Q#{}#{user}", channel.name());
    }
}

key_texts! {
/// The item in the throttle table with the time at which an agent key was last used.
    agent_key_use_key(agent: AgentId, key: KeyId) = format!("K#{agent}#{key}");
/// The item in the throttle table with the leases of the open calls of one scope, for example of an agent key.
    call_leases_key(kind: ThrottleKind, scope: &str) = format!("{}#open#{scope}", kind.prefix());
/// The item that counts a scope's stored responses. Only the function `mcp` may write items with this key prefix.
    stored_responses_counter_key(scope: &str) = format!("MCP#kept#{scope}");
/// The item in the throttle table with one chunk of a stored response.
    stored_response_chunk_key(scope: &str, slot: u8, chunk: usize) =
        format!("{}#{slot}#{chunk}", stored_responses_counter_key(scope));
}

/// A kind of request counter in the throttle table. A function's IAM role can access only one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThrottleKind {
    /// Counters of requests to the API.
    Api,
    /// Counters of requests to the function `mcp` from callers without an agent key.
    Mcp,
    OAuth,
}

impl ThrottleKind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Api => "RL",
            Self::Mcp => "MCP",
            Self::OAuth => "OAUTH",
        }
    }
}

/// The partition key of the counter of a scope's requests in one minute. A scope is for example an agent key.
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
    fn window_keys_sort_the_totals_first_and_then_payments_by_age() {
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
            assert_eq!(parse_claimed_tx_hash(&claim(log_index).sk), Some(hash));
        }
        assert_ne!(claim(None), claim(Some(0)));
        for other in ["", "#", "x#y"] {
            assert_eq!(parse_claimed_tx_hash(other), None, "{other}");
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
