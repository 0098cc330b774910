//! What belongs to an owner: agents, and the approvals that they asked for.
//!
//! The index `owner` only returns keys. It may lag, so a new agent or approval may be missing for a moment; the listed
//! items are read from the table, strongly consistent.

use crate::{
    codec::attribute::Attribute as _,
    codec::fault::failed,
    codec::item::Item,
    codec::key::{self, Key, owned},
    codec::ledger::Ledger,
};
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use purser_domain::{Agent, AgentId, Approval, ApprovalId, Result, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The position of an approval among all of its owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApprovalPlace {
    /// When it was asked for.
    pub created_at: Timestamp,
    /// Distinguishes approvals of the same microsecond.
    pub id: ApprovalId,
}

impl ApprovalPlace {
    /// The position of this approval.
    pub const fn of(approval: &Approval) -> Self {
        Self {
            created_at: approval.created_at,
            id: approval.id,
        }
    }
}

impl Ledger {
    /// These agents, distinct, strongly consistent, in any order; unknown ids are skipped.
    pub async fn agents(&self, ids: impl IntoIterator<Item = AgentId>) -> Result<Vec<Agent>> {
        let keys: Vec<Key> = ids.into_iter().map(Key::agent).collect();
        let mut agents = Vec::with_capacity(keys.len());
        for item in self.get_all(&keys).await? {
            let id = key::agent_of(&item).ok_or_else(|| self.row(&item).corrupt("pk"))?;
            agents.push(self.read_agent(id, &item)?);
        }
        Ok(agents)
    }

    /// Every agent of an owner, in order of creation.
    pub async fn agents_of(&self, owner: &str) -> Result<Vec<Agent>> {
        let mut agents = self.agents(self.ids_of(owner, owned::AGENTS).await?).await?;
        agents.sort_by_key(|agent| (agent.created_at, agent.id));
        Ok(agents)
    }

    /// Every agent of an owner, in order of creation, with the ids of its approvals that may wait for a person: those
    /// that do, and maybe some that no longer do.
    pub async fn asking_of(&self, owner: &str) -> Result<Vec<(Agent, BTreeSet<ApprovalId>)>> {
        let ids = self.ids_of(owner, owned::AGENTS).await?.into_iter();
        let both: Vec<Key> = ids.flat_map(|id| [Key::agent(id), Key::waiting(id)]).collect();
        let (mut agents, mut waiting) = (Vec::new(), BTreeMap::new());
        for item in self.get_all(&both).await? {
            let id = key::agent_of(&item).ok_or_else(|| self.row(&item).corrupt("pk"))?;
            if Key::waiting(id).is_of(&item) {
                waiting.insert(id, self.may_wait(&item)?);
            } else {
                agents.push(self.read_agent(id, &item)?);
            }
        }
        agents.sort_by_key(|agent| (agent.created_at, agent.id));
        let asking = agents.into_iter().map(|agent| {
            let ids = waiting.remove(&agent.id).unwrap_or_default();
            (agent, ids)
        });
        Ok(asking.collect())
    }

    /// The approvals of an owner's agents, newest first: those before `before`, or the newest. A hundred at most.
    pub async fn approvals_of(&self, owner: &str, before: Option<ApprovalPlace>, limit: u8) -> Result<Vec<Approval>> {
        let query = self
            .owned(owner, owned::APPROVALS)
            .scan_index_forward(false)
            .limit(limit.min(100).into());
        let query = match before {
            None => query,
            Some(place) => query
                .key_condition_expression("#owner = :owner AND os BETWEEN :kind AND :before")
                .expression_attribute_values(
                    ":before",
                    owned::just_before_approval(place.id, place.created_at).write(),
                ),
        };
        let listed = query.send().await.map_err(failed(LISTING))?;
        let keys = listed.items().iter();
        let keys = keys.map(|item| Key::of(item).ok_or_else(|| self.row(item).corrupt("pk")));
        let items = self.get_all(&keys.collect::<Result<Vec<Key>>>()?).await?;
        let mut approvals = items
            .iter()
            .map(|item| self.listed_approval(item))
            .collect::<Result<Vec<Approval>>>()?;
        approvals.sort_by_key(|approval| std::cmp::Reverse(ApprovalPlace::of(approval)));
        Ok(approvals)
    }

    /// The agents of which a person has an item of this kind: the record, or an offer.
    pub(crate) async fn ids_of(&self, owner: &str, kind: &str) -> Result<Vec<AgentId>> {
        let pages = self.owned(owner, kind).into_paginator();
        let listed: Result<Vec<Item>, _> = pages.items().send().collect().await;
        let listed = listed.map_err(failed(LISTING))?;
        let ids = listed.iter();
        ids.map(|item| key::agent_of(item).ok_or_else(|| self.row(item).corrupt("pk")))
            .collect()
    }

    /// The query for an owner's items of one kind.
    fn owned(&self, owner: &str, kind: &str) -> QueryFluentBuilder {
        self.db
            .query()
            .table_name(&*self.table)
            .index_name(owned::INDEX)
            .key_condition_expression("#owner = :owner AND begins_with(os, :kind)")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":owner", owner.to_owned().write())
            .expression_attribute_values(":kind", kind.to_owned().write())
    }
}

const LISTING: &str = "listing what a user owns";
