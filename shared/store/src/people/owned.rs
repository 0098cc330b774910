//! Lists an owner's agents, and the approvals that the agents requested. The index `owner` may lag, so a new agent or
//! approval may be missing for a moment.

use crate::{
    codec::attribute::Attribute as _,
    codec::fault::store_error,
    codec::item::Item,
    codec::key::{self, Key, owned},
    codec::ledger::Ledger,
};
use aws_sdk_dynamodb::{operation::query::builders::QueryFluentBuilder, types::Select};
use purser_domain::{Agent, AgentId, Approval, ApprovalId, Error, Result, ServiceId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The position of an approval in the owner's list of approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApprovalCursor {
    /// The time at which the approval was requested.
    pub created_at: Timestamp,
    /// The id of the approval, which orders approvals with the same `created_at`.
    pub id: ApprovalId,
}

impl ApprovalCursor {
    /// Returns the position of this approval in the owner's list of approvals.
    pub const fn new(approval: &Approval) -> Self {
        Self {
            created_at: approval.created_at,
            id: approval.id,
        }
    }
}

/// A list of an owner's approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalList {
    /// Approvals that no user has decided, and that were created at or after this time.
    UndecidedSince(Timestamp),
    /// Approvals that a user has decided, and all approvals that were created before this time.
    DecidedOrBefore(Timestamp),
    /// All approvals.
    All,
}

impl ApprovalList {
    /// Returns the ranges of index sort keys that contain this list's approvals, or the approvals before a cursor. Both
    /// ends of a range are inclusive.
    fn key_ranges(self, before: Option<ApprovalCursor>) -> Vec<(String, String)> {
        let before = before.map(|place| (place.created_at, place.id));
        let undecided = |since, before| owned::undecided_approval_key_bounds(since, before);
        match self {
            Self::UndecidedSince(since) => vec![undecided(since, before)],
            Self::DecidedOrBefore(end) => {
                let end = (end, ApprovalId::from_uuid(Uuid::nil()));
                let earlier = before.map_or(end, |before| before.min(end));
                vec![
                    owned::decided_approval_key_bounds(before),
                    undecided(Timestamp::EPOCH, Some(earlier)),
                ]
            }
            Self::All => vec![
                owned::decided_approval_key_bounds(before),
                undecided(Timestamp::EPOCH, before),
            ],
        }
    }
}

/// The position of an agent in the owner's list of agents, in order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentCursor {
    /// The time at which the agent was created.
    pub created_at: Timestamp,
    /// The agent's id, which orders agents with the same `created_at`.
    pub id: AgentId,
}

/// The order of a list of agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentOrder {
    /// In order of creation.
    #[default]
    OldestFirst,
    /// In reverse order of creation.
    NewestFirst,
}

impl Ledger {
    /// Reads the agents with these distinct ids, strongly consistent, in any order. Unknown ids are skipped.
    pub async fn read_agents(&self, ids: impl IntoIterator<Item = AgentId>) -> Result<Vec<Agent>> {
        let keys: Vec<Key> = ids.into_iter().map(Key::agent).collect();
        let items = self.get_items(&keys).await?;
        items.iter().map(|item| self.read_agent_item(item)).collect()
    }

    /// Reads the ids of an owner's agents in order of creation. The caller must check the owner in each record.
    pub async fn read_agent_ids(&self, owner: &str, first: Option<usize>) -> Result<Vec<AgentId>> {
        self.read_indexed_agent_ids(owner, owned::AGENTS, first).await
    }

    /// Reads the cursors of up to `max_rows` agents of an owner, from `from` on. The caller must check the owner in
    /// each record.
    pub async fn read_agent_cursors(
        &self,
        owner: &str,
        order: AgentOrder,
        from: Option<AgentCursor>,
        max_rows: u32,
    ) -> Result<Vec<AgentCursor>> {
        let (mut first, mut last) = (owned::AGENTS.to_owned(), owned::AFTER_AGENTS.to_owned());
        let from = from.map(|from| owned::agent_index_key(from.id, from.created_at));
        match order {
            AgentOrder::OldestFirst => first = from.unwrap_or(first),
            AgentOrder::NewestFirst => last = from.unwrap_or(last),
        }
        let query = self
            .query_owner_index(owner)
            .key_condition_expression("#owner = :owner AND os BETWEEN :first AND :last")
            .expression_attribute_values(":first", first.write())
            .expression_attribute_values(":last", last.write())
            .scan_index_forward(order == AgentOrder::OldestFirst)
            .limit(i32::try_from(max_rows).unwrap_or(i32::MAX));
        let listed = query.send().await.map_err(store_error(LISTING))?;
        let cursors = listed.items().iter().map(|item| {
            let row = self.item_row(item);
            let os: String = row.get("os")?;
            let (id, created_at) = owned::parse_agent_and_creation_time(&os).ok_or_else(|| row.corrupt_error("os"))?;
            Ok(AgentCursor { created_at, id })
        });
        cursors.collect()
    }

    /// Reads all agents of an owner, in order of creation.
    pub async fn read_owners_agents(&self, owner: &str) -> Result<Vec<Agent>> {
        let mut agents = self.read_agents(self.read_agent_ids(owner, None).await?).await?;
        agents.sort_by_key(|agent| (agent.created_at, agent.id));
        Ok(agents)
    }

    /// Returns whether this service is enabled for any agent of an owner, by a policy or as a default service.
    pub async fn has_service_enabled(&self, owner: &str, service: ServiceId) -> Result<bool> {
        const MAX_PER_READ: usize = 50;
        for ids in self.read_agent_ids(owner, None).await?.chunks(MAX_PER_READ) {
            let policies: Vec<Key> = ids.iter().map(|id| Key::policy(*id, service)).collect();
            let mut decided = BTreeSet::new();
            for item in self.get_items(&policies).await? {
                if self.read_policy(&item)?.enabled {
                    return Ok(true);
                }
                decided.extend(
                    ids.iter()
                        .zip(&policies)
                        .filter(|(_, key)| key.is_key_of(&item))
                        .map(|(id, _)| *id),
                );
            }
            let undecided = ids.iter().copied().filter(|id| !decided.contains(id));
            for agent in self.read_agents(undecided).await? {
                if agent.owner == owner
                    && self
                        .read_default_services(&agent)
                        .await?
                        .default_policy(service)
                        .is_some_and(|record| record.enabled)
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Reads these agents in order of creation, each with the ids of the approvals that may be pending.
    pub async fn read_agents_with_approvals(&self, ids: Vec<AgentId>) -> Result<Vec<(Agent, BTreeSet<ApprovalId>)>> {
        let ids = ids.into_iter();
        let both: Vec<Key> = ids
            .flat_map(|id| [Key::agent(id), Key::waiting_approvals(id)])
            .collect();
        let (mut agents, mut waiting) = (Vec::new(), BTreeMap::new());
        for item in self.get_items(&both).await? {
            let id = key::find_agent_id(&item).ok_or_else(|| self.item_row(&item).corrupt_error("pk"))?;
            if Key::waiting_approvals(id).is_key_of(&item) {
                waiting.insert(id, self.pending_approval_ids(&item)?);
            } else {
                agents.push(self.read_agent_item(&item)?);
            }
        }
        agents.sort_by_key(|agent| (agent.created_at, agent.id));
        let asking_limits = agents.into_iter().map(|agent| {
            let ids = waiting.remove(&agent.id).unwrap_or_default();
            (agent, ids)
        });
        Ok(asking_limits.collect())
    }

    /// Reads the newest approvals of a list before the cursor `before`: at most `limit`, and at most a hundred.
    pub async fn read_owners_approvals(
        &self,
        owner: &str,
        list: ApprovalList,
        before: Option<ApprovalCursor>,
        limit: u8,
    ) -> Result<Vec<Approval>> {
        let max = limit.min(100);
        let mut listed: Vec<(String, Key)> = Vec::new();
        for (first, last) in list.key_ranges(before) {
            if first > last {
                continue;
            }
            let query = self
                .query_owner_index(owner)
                .key_condition_expression("#owner = :owner AND os BETWEEN :first AND :last")
                .expression_attribute_values(":first", first.write())
                .expression_attribute_values(":last", last.write())
                .scan_index_forward(false)
                .limit(max.into());
            for item in query.send().await.map_err(store_error(LISTING))?.items() {
                let row = self.item_row(item);
                let os: String = row.get("os")?;
                let index = owned::approval_index_key_suffix(&os).ok_or_else(|| row.corrupt_error("os"))?;
                let key = Key::from_item(item).ok_or_else(|| row.corrupt_error("pk"))?;
                listed.push((index.to_owned(), key));
            }
        }
        listed.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        // The index may contain an approval twice for a moment, because a decision moves the approval from the
        // undecided to the decided list.
        listed.dedup_by(|(a, _), (b, _)| a == b);
        listed.truncate(max.into());
        let keys: Vec<Key> = listed.into_iter().map(|(_, key)| key).collect();
        let items = self.get_items(&keys).await?;
        let approvals: Result<Vec<Approval>> = items.iter().map(|item| self.read_listed_approval(item)).collect();
        let mut approvals = approvals?;
        approvals.sort_by_key(|approval| std::cmp::Reverse(ApprovalCursor::new(approval)));
        Ok(approvals)
    }

    /// Counts an owner's undecided approvals since `since`, up to `max`. A very recent decision may be missing.
    pub async fn count_undecided_approvals(&self, owner: &str, since: Timestamp, max: u8) -> Result<usize> {
        let (first, last) = owned::undecided_approval_key_bounds(since, None);
        let query = self
            .query_owner_index(owner)
            .key_condition_expression("#owner = :owner AND os BETWEEN :first AND :last")
            .expression_attribute_values(":first", first.write())
            .expression_attribute_values(":last", last.write())
            .select(Select::Count)
            .limit(max.into());
        let counted = query.send().await.map_err(store_error(LISTING))?.count;
        usize::try_from(counted).map_err(|error| Error::internal(LISTING, error))
    }

    /// Returns up to `first` agents that the index lists for a user. `kind` selects agents or transfer offers.
    pub(crate) async fn read_indexed_agent_ids(
        &self,
        owner: &str,
        kind: &str,
        first: Option<usize>,
    ) -> Result<Vec<AgentId>> {
        let max = first.map(|first| i32::try_from(first).unwrap_or(i32::MAX));
        let query = self.query_owner_index_by_kind(owner, kind).set_limit(max);
        let listed = if first.is_some() {
            // One response is enough, because keys are short and one response contains hundreds of keys.
            query
                .send()
                .await
                .map_err(store_error(LISTING))?
                .items
                .unwrap_or_default()
        } else {
            let listed: Result<Vec<Item>, _> = query.into_paginator().items().send().collect().await;
            listed.map_err(store_error(LISTING))?
        };
        let ids = listed.iter();
        ids.map(|item| key::find_agent_id(item).ok_or_else(|| self.item_row(item).corrupt_error("pk")))
            .collect()
    }

    fn query_owner_index_by_kind(&self, owner: &str, kind: &str) -> QueryFluentBuilder {
        self.query_owner_index(owner)
            .key_condition_expression("#owner = :owner AND begins_with(os, :kind)")
            .expression_attribute_values(":kind", kind.to_owned().write())
    }

    /// Creates a query of an owner's items in the index `owner`, without a key condition.
    fn query_owner_index(&self, owner: &str) -> QueryFluentBuilder {
        self.db
            .query()
            .table_name(&*self.table)
            .index_name(owned::INDEX)
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":owner", owner.to_owned().write())
    }
}

const LISTING: &str = "listing a user's records";
