//! The format of every key, defined once.
//!
//! Text order matters in two places: in a window's partition `#P` and `#W` come before the entries, and entries and
//! settlements sort by time. Times are zero-padded for that: 16 digits hold the microseconds until the year 2286, 12
//! digits the seconds.

use crate::codec::attribute::Item;
use aws_sdk_dynamodb::{operation::query::builders::QueryFluentBuilder, types::AttributeValue};
use purser_domain::{
    AgentId, ApprovalId, Entry, Fingerprint, KeyId, Network, ServiceId, SettlementId, Timestamp, TransactionId, TxHash,
    WindowScope,
};
use uuid::Uuid;

/// The key of an item in a table with `pk` and `sk`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) pk: String,
    pub(crate) sk: String,
}

/// The sort key of an item that is alone or first in its partition.
const ONLY: &str = "#";
/// The sort key of a policy.
pub(crate) const POLICY: &str = "#P";
/// The sort key of a window's totals.
pub(crate) const WINDOW: &str = "#W";
/// The prefix of the sort keys of settlements.
pub(crate) const SETTLEMENTS: &str = "S#";
/// The prefix of the sort keys of decisions, in the decisions table.
pub(crate) const DECISIONS: &str = "T#";
/// The prefix of the sort keys of service markers.
pub(crate) const MARKERS: &str = "SVC#";
/// The sort key of the ids of approvals that may wait for a person.
const WAITING: &str = "O#";
/// The prefix of the sort keys of window entries.
const ENTRIES: &str = "E#";

impl Key {
    fn new(pk: String, sk: impl Into<String>) -> Self {
        Self { pk, sk: sk.into() }
    }

    /// The agent's record.
    pub(crate) fn agent(agent: AgentId) -> Self {
        Self::new(agent_partition(agent), ONLY)
    }

    /// The marker that the agent has a policy for a service.
    pub(crate) fn marker(agent: AgentId, service: ServiceId) -> Self {
        Self::new(agent_partition(agent), format!("{MARKERS}{service}"))
    }

    /// An idempotency record.
    pub(crate) fn idempotency(agent: AgentId, key: &Fingerprint) -> Self {
        Self::new(agent_partition(agent), format!("I#{key}"))
    }

    /// The ids of the agent's approvals that may wait for a person.
    pub(crate) fn waiting(agent: AgentId) -> Self {
        Self::new(agent_partition(agent), WAITING)
    }

    /// A settlement.
    pub(crate) fn settlement(agent: AgentId, id: SettlementId) -> Self {
        Self::new(agent_partition(agent), format!("{SETTLEMENTS}{id}"))
    }

    /// A decision, in the decisions table.
    pub(crate) fn decision(agent: AgentId, id: TransactionId) -> Self {
        Self::new(agent_partition(agent), format!("{DECISIONS}{id}"))
    }

    /// A policy.
    pub(crate) fn policy(agent: AgentId, service: ServiceId) -> Self {
        Self::new(window_partition(WindowScope::Day { agent, service }), POLICY)
    }

    /// A window's totals.
    pub(crate) fn window(scope: WindowScope) -> Self {
        Self::new(window_partition(scope), WINDOW)
    }

    /// One entry of a window.
    pub(crate) fn entry(scope: WindowScope, at: Timestamp, settlement: SettlementId) -> Self {
        Self::new(
            window_partition(scope),
            format!("{ENTRIES}{:016}#{settlement}", at.micros()),
        )
    }

    /// An approval, in one partition with the earlier ones of the same request.
    pub(crate) fn approval(id: ApprovalId) -> Self {
        Self::new(approval_partition(id), format!("{:010}", id.sequence()))
    }

    /// The claim on a transaction hash that confirmed a settlement.
    pub(crate) fn used_transaction(network: Network, hash: TxHash) -> Self {
        Self::new(format!("X#{}#{hash}", network.name()), ONLY)
    }

    /// A preflight's replay key.
    pub(crate) fn preflight(agent: AgentId, replay_key: &Fingerprint) -> Self {
        Self::new(format!("R#{agent}#{replay_key}"), ONLY)
    }

    /// The cursor of the sweep.
    pub(crate) fn scan_cursor() -> Self {
        Self::new("RECONCILE".to_owned(), ONLY)
    }

    /// A reconcile request for a settlement.
    pub(crate) fn reconcile_request(agent: AgentId, id: SettlementId) -> Self {
        Self::new(MARKED.to_owned(), format!("{agent}#{id}"))
    }

    /// The number of wallets assigned so far.
    pub(crate) fn wallets() -> Self {
        Self::new("WALLETS".to_owned(), ONLY)
    }

    /// The key of the table's item, from an item of an index.
    pub(crate) fn of(item: &Item) -> Option<Self> {
        let (pk, sk) = part(item, "pk").zip(part(item, "sk"))?;
        Some(Self::new(pk.clone(), sk))
    }

    /// The key as DynamoDB attributes.
    pub(crate) fn attributes(&self) -> Item {
        Item::from([
            ("pk".to_owned(), AttributeValue::S(self.pk.clone())),
            ("sk".to_owned(), AttributeValue::S(self.sk.clone())),
        ])
    }

    /// Whether this is the item's key.
    pub(crate) fn is_of(&self, item: &Item) -> bool {
        part(item, "pk") == Some(&self.pk) && part(item, "sk") == Some(&self.sk)
    }
}

const AGENTS: &str = "A#";

/// The partition of everything that belongs to an agent.
pub(crate) fn agent_partition(agent: AgentId) -> String {
    format!("{AGENTS}{agent}")
}

/// The agent that an item belongs to, by its partition.
pub(crate) fn agent_of(item: &Item) -> Option<AgentId> {
    AgentId::parse(part(item, "pk")?.strip_prefix(AGENTS)?)
}

/// The partition of a window. Each window has its own, so that a busy one does not slow the others.
pub(crate) fn window_partition(scope: WindowScope) -> String {
    match scope {
        WindowScope::Day { agent, service } => format!("L#{agent}#{service}"),
        WindowScope::Budget { agent, rule } => format!("B#{agent}#{rule}"),
    }
}

const APPROVAL_LINEAGES: &str = "AP#";

/// The partition of all approvals of one request.
pub(crate) fn approval_partition(id: ApprovalId) -> String {
    format!("{APPROVAL_LINEAGES}{}", id.lineage())
}

/// The id of the approval in an item, from its key.
pub(crate) fn approval_of(item: &Item) -> Option<ApprovalId> {
    let lineage = part(item, "pk")?.strip_prefix(APPROVAL_LINEAGES)?;
    ApprovalId::of_lineage(lineage, sort_key(item).parse().ok()?)
}

/// The partition of all reconcile requests.
pub(crate) const MARKED: &str = "MARKS";

/// The agent and the settlement in a reconcile request's sort key.
pub(crate) fn parse_reconcile_request(sk: &str) -> Option<(AgentId, SettlementId)> {
    let (agent, settlement) = sk.split_once('#')?;
    Some((AgentId::parse(agent)?, SettlementId::parse(settlement)?))
}

/// The index of holds, and of confirmed settlements that are watched.
pub(crate) mod hold {
    use super::{SettlementId, Timestamp};

    /// The index.
    pub(crate) const INDEX: &str = "hold";
    /// The prefix of the index keys of confirmed settlements; those of holds don't have it.
    const WATCHED: &str = "C#";

    /// A settlement's sort key in the index: why it is there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum IndexKey {
        /// Its spend is held. It may be releasable from this time on: the payment's `validBefore`.
        Held(Timestamp),
        /// It is confirmed by a transfer in this block, and watched.
        Watched(u64),
    }

    /// The index partition of a settlement, one of 256: the last two hexadecimal digits of its id, which are random, so
    /// all are filled evenly. Every payment writes the index, and one partition takes 1,000 writes a second. The key is
    /// short, since it is part of the settlement's row, which has to stay below 1 KB.
    pub(crate) fn partition(id: SettlementId) -> String {
        format!("{:02x}", id.uuid().as_u128() & 0xff)
    }

    impl IndexKey {
        /// The key as text; several settlements may have the same one.
        pub(crate) fn text(self) -> String {
            match self {
                Self::Held(valid_before) => format!("{:012}", valid_before.secs()),
                Self::Watched(block) => format!("{WATCHED}{block:012}"),
            }
        }

        /// The key in this text.
        pub(crate) fn parse(text: &str) -> Option<Self> {
            match text.strip_prefix(WATCHED) {
                Some(block) => block.parse().ok().map(Self::Watched),
                None => Timestamp::from_secs(text.parse().ok()?).map(Self::Held),
            }
        }
    }
}

/// The index of an owner's agents and approvals, each in order of creation.
pub(crate) mod owned {
    use purser_domain::{AgentId, ApprovalId, Timestamp};
    use uuid::Uuid;

    /// The index.
    pub(crate) const INDEX: &str = "owner";
    /// The prefix of the index sort keys of agents.
    pub(crate) const AGENTS: &str = "A#";
    /// The prefix of the index sort keys of approvals.
    pub(crate) const APPROVALS: &str = "AP#";

    /// An agent's index sort key.
    pub(crate) fn agent(id: AgentId, created_at: Timestamp) -> String {
        format!("{AGENTS}{:016}#{id}", created_at.micros())
    }

    /// An approval's index sort key.
    pub(crate) fn approval(id: ApprovalId, created_at: Timestamp) -> String {
        format!("{APPROVALS}{:016}#{id}", created_at.micros())
    }

    /// The upper bound of the index sort keys before an approval's: no id lies between the two.
    pub(crate) fn just_before_approval(id: ApprovalId, created_at: Timestamp) -> String {
        let previous = Uuid::from_u128(id.uuid().as_u128().saturating_sub(1));
        approval(ApprovalId::from_uuid(previous), created_at)
    }
}

/// A query for the newest items of a kind in an agent's partition, whose sort keys end in a `UUIDv7`; only those before
/// `before`, if it is given.
pub(crate) fn newest(
    query: QueryFluentBuilder,
    agent: AgentId,
    kind: &str,
    before: Option<Uuid>,
    limit: u32,
) -> QueryFluentBuilder {
    let query = query
        .expression_attribute_values(":pk", AttributeValue::S(agent_partition(agent)))
        .scan_index_forward(false)
        .limit(i32::try_from(limit).unwrap_or(i32::MAX));
    let kind_text = AttributeValue::S(kind.to_owned());
    match before {
        None => query
            .key_condition_expression("pk = :pk AND begins_with(sk, :kind)")
            .expression_attribute_values(":kind", kind_text),
        // `BETWEEN` is inclusive, so the upper bound is the id before.
        Some(before) => query
            .key_condition_expression("pk = :pk AND sk BETWEEN :kind AND :before")
            .expression_attribute_values(":kind", kind_text)
            .expression_attribute_values(":before", AttributeValue::S(just_before(kind, before))),
    }
}

/// The text that sorts directly before an id.
fn just_before(kind: &str, id: Uuid) -> String {
    let previous = Uuid::from_u128(id.as_u128().saturating_sub(1));
    format!("{kind}{previous}")
}

/// The time and settlement in an entry's sort key. `None` for any other sort key.
pub(crate) fn parse_entry(sk: &str) -> Option<(Timestamp, SettlementId)> {
    let (at, settlement) = sk.strip_prefix(ENTRIES)?.split_once('#')?;
    Some((
        Timestamp::from_micros(at.parse().ok()?)?,
        SettlementId::parse(settlement)?,
    ))
}

/// An item's sort key.
pub(crate) fn sort_key(item: &Item) -> &str {
    part(item, "sk").map_or("", String::as_str)
}

fn part<'a>(item: &'a Item, name: &str) -> Option<&'a String> {
    item.get(name)?.as_s().ok()
}

/// The key of an entry.
pub(crate) fn of_entry(scope: WindowScope, entry: &Entry) -> Key {
    Key::entry(scope, entry.at, entry.settlement)
}

/// The catalog table's keys.
pub(crate) mod catalog {
    use purser_domain::{ServiceId, ServiceSlug};

    /// The row that counts the catalog's versions.
    pub(crate) const VERSION: &str = "VERSION";
    /// The prefix of the keys of services.
    pub(crate) const SERVICES: &str = "SVC#";
    /// The prefix of the keys of probe records.
    pub(crate) const PROBES: &str = "PROBE#";

    /// A service.
    pub(crate) fn service(id: ServiceId) -> String {
        format!("{SERVICES}{id}")
    }

    /// The probe record of a service.
    pub(crate) fn probes(id: ServiceId) -> String {
        format!("{PROBES}{id}")
    }

    /// The claim on a slug.
    pub(crate) fn slug(slug: &ServiceSlug) -> String {
        format!("SLUG#{slug}")
    }
}

/// The throttle table's key for the latest use of an agent key.
pub(crate) fn key_use(agent: AgentId, key: KeyId) -> String {
    format!("K#{agent}#{key}")
}

/// The throttle table's key for one scope in one minute.
pub(crate) fn throttle(scope: &str, minute: u64) -> String {
    format!("RL#{scope}#{minute}")
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
    fn a_window_is_read_in_the_order_policy_totals_oldest_entry() {
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        let settlement = SettlementId::from_uuid(Uuid::max());
        let entry = |micros| Key::entry(scope(), at(micros), settlement).sk;
        let order = [
            POLICY.to_owned(),
            WINDOW.to_owned(),
            entry(0),
            entry(9),
            entry(10),
            entry(1_795_223_340_000_001),
        ];
        assert!(order.is_sorted());
        assert_eq!(parse_entry(&entry(10)), Some((at(10), settlement)));
        for other in [POLICY, WINDOW, "", "E#", "E#1", "S#1#2"] {
            assert_eq!(parse_entry(other), None, "{other}");
        }
    }

    #[test]
    fn approvals_of_one_request_are_neighbours_in_order() {
        let agent = AgentId::from_uuid(Uuid::nil());
        let keys = [0, 9, 10, u32::MAX].map(|n| Key::approval(ApprovalId::of(agent, &Fingerprint::of_text("x"), n)));
        assert!(keys.iter().all(|key| key.pk == keys[0].pk && key.sk.len() == 10));
        assert!(keys.map(|key| key.sk).is_sorted());
    }

    #[test]
    fn a_place_in_the_index_tells_a_hold_from_a_confirmed_one() {
        let at = Timestamp::from_secs(1_795_223_340).unwrap();
        for place in [
            hold::IndexKey::Held(at),
            hold::IndexKey::Watched(0),
            hold::IndexKey::Watched(31_415_926),
        ] {
            assert_eq!(hold::IndexKey::parse(&place.text()), Some(place));
        }
        for other in ["", "C#", "D#1", "1#", "C##1", "-1"] {
            assert_eq!(hold::IndexKey::parse(other), None, "{other}");
        }
        let ids = [0, 0x0f, 0x1ff].map(|id| SettlementId::from_uuid(Uuid::from_u128(id)));
        assert_eq!(ids.map(hold::partition), ["00", "0f", "ff"]);
    }

    #[test]
    fn a_mark_names_its_settlement() {
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
