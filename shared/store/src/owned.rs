//! What a user owns: agents, and the approvals that those asked for.
//!
//! The index `owner` tells only the keys. It may lag behind, so a new agent or approval may be missing for a moment; what
//! is listed is read from the ledger itself, as of now.

use crate::{
    attribute::Attribute as _,
    fault::failed,
    item::Item,
    key::{self, Key, owned},
    ledger::Ledger,
};
use purser_domain::{Agent, Approval, ApprovalId, Result, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Where an approval stands among all of its owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApprovalPlace {
    /// When it was asked for.
    pub created_at: Timestamp,
    /// Tells approvals of one microsecond apart.
    pub id: ApprovalId,
}

impl ApprovalPlace {
    /// The place of this approval.
    pub const fn of(approval: &Approval) -> Self {
        Self {
            created_at: approval.created_at,
            id: approval.id,
        }
    }
}

impl Ledger {
    /// Every agent of a user, in the order of their creation.
    pub async fn agents_of(&self, owner: &str) -> Result<Vec<Agent>> {
        let mut agents = Vec::new();
        let mut from = None;
        loop {
            let (keys, last) = self.owned(owner, owned::AGENTS, None, from, PAGE, true).await?;
            for item in self.get_all(&keys).await? {
                let id = key::agent_of(&item).ok_or_else(|| self.row(&item).corrupt("pk"))?;
                agents.push(self.read_agent(id, &item)?);
            }
            from = last;
            if from.is_none() {
                break;
            }
        }
        agents.sort_by_key(|agent| (agent.created_at, agent.id));
        Ok(agents)
    }

    /// Every agent of a user, in the order of their creation, with the ids of its approvals that may wait for a person:
    /// those that do, and maybe some that no longer do.
    pub async fn asking_of(&self, owner: &str) -> Result<Vec<(Agent, BTreeSet<ApprovalId>)>> {
        let mut asking = Vec::new();
        let mut from = None;
        loop {
            // Of each agent two items are read.
            let (keys, last) = self.owned(owner, owned::AGENTS, None, from, PAGE / 2, true).await?;
            let ids = keys.iter().filter_map(|key| key::agent_of(&key.attributes()));
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
            asking.extend(agents.into_iter().map(|agent| {
                let ids = waiting.remove(&agent.id).unwrap_or_default();
                (agent, ids)
            }));
            from = last;
            if from.is_none() {
                break;
            }
        }
        asking.sort_by_key(|(agent, _)| (agent.created_at, agent.id));
        Ok(asking)
    }

    /// The approvals that a user's agents asked for, newest first: those before `before`, or the newest. A hundred at most.
    pub async fn approvals_of(&self, owner: &str, before: Option<ApprovalPlace>, limit: u8) -> Result<Vec<Approval>> {
        let before = before.map(|place| owned::just_before_approval(place.id, place.created_at));
        let limit = i32::from(limit.min(100));
        let (keys, _) = self.owned(owner, owned::APPROVALS, before, None, limit, false).await?;
        let items = self.get_all(&keys).await?;
        let mut approvals = items
            .iter()
            .map(|item| self.listed_approval(item))
            .collect::<Result<Vec<Approval>>>()?;
        approvals.sort_by_key(|approval| std::cmp::Reverse(ApprovalPlace::of(approval)));
        Ok(approvals)
    }

    async fn owned(
        &self,
        owner: &str,
        kind: &str,
        before: Option<String>,
        from: Option<Item>,
        limit: i32,
        forward: bool,
    ) -> Result<(Vec<Key>, Option<Item>)> {
        let query = self
            .db
            .query()
            .table_name(&*self.table)
            .index_name(owned::INDEX)
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":owner", owner.to_owned().write())
            .expression_attribute_values(":kind", kind.to_owned().write())
            .set_exclusive_start_key(from)
            .scan_index_forward(forward)
            .limit(limit);
        let query = match before {
            None => query.key_condition_expression("#owner = :owner AND begins_with(os, :kind)"),
            Some(before) => query
                .key_condition_expression("#owner = :owner AND os BETWEEN :kind AND :before")
                .expression_attribute_values(":before", before.write()),
        };
        let answer = query.send().await.map_err(failed("listing what a user owns"))?;
        let keys = answer
            .items()
            .iter()
            .map(|item| Key::of(item).ok_or_else(|| self.row(item).corrupt("pk")));
        Ok((keys.collect::<Result<_>>()?, answer.last_evaluated_key))
    }
}

/// The most keys of one `BatchGetItem` (API reference).
const PAGE: i32 = 100;
