//! Transfers the ownership of an agent: one transaction changes the agent's owner and removes the operator's offer. The
//! agent's approvals are moved afterwards, because the agent's record determines their owner.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::fields::fields,
    codec::item::{Draft, Item},
    codec::key::{self, Key, owned},
    codec::ledger::Ledger,
    people::agent::write_agent,
    transact::{Transaction, TransactionOutcome},
};
use aws_sdk_dynamodb::types::{ConditionCheck, builders::DeleteBuilder};
use purser_domain::{Agent, AgentId, Approval, FormerOwner, OwnershipOffer, Result, Rule, RuleKind, Timestamp, UserId};

/// The result of transferring an agent to a user who accepts the ownership offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferAgentResult {
    /// The agent belongs to the new owner, because of this attempt or an earlier attempt.
    Done,
    /// The agent was changed meanwhile. Nothing was written.
    Conflict,
    /// The offer was withdrawn or replaced. Nothing was written.
    NoOffer,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Agent,
    Offer,
    Approval,
    Audit,
}

impl Ledger {
    /// Stores an offer of an agent, and replaces an earlier offer of the agent.
    pub async fn store_ownership_offer(&self, offer: &OwnershipOffer, audit: &AuditEntry) -> Result<()> {
        let mut transaction = Transaction::new();
        transaction.add_put(Role::Offer, self.put_item(write_ownership_offer(offer)))?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        // If the audit row exists already, an earlier attempt has stored the offer, and the response to that attempt
        // was lost.
        let _done = transaction.send_until_outcome(&self.db, &mut Backoff::new()).await?;
        Ok(())
    }

    /// Removes an agent's offer, if there is an offer.
    pub async fn remove_ownership_offer(&self, agent: AgentId, audit: &AuditEntry) -> Result<()> {
        let mut transaction = Transaction::new();
        let delete = DeleteBuilder::default().table_name(&*self.table);
        transaction.add_delete(
            Role::Offer,
            delete.set_key(Some(Key::ownership_offer(agent).attributes())),
        )?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        // If the audit row exists already, an earlier attempt has removed the offer, and the response to that attempt
        // was lost.
        let _done = transaction.send_until_outcome(&self.db, &mut Backoff::new()).await?;
        Ok(())
    }

    /// Reads an agent's offer, strongly consistent. The caller must check whether the offer has expired.
    pub async fn read_ownership_offer(&self, agent: AgentId) -> Result<Option<OwnershipOffer>> {
        let item = self.get_item(&Key::ownership_offer(agent)).await?;
        item.map(|item| self.read_ownership_offer_item(&item)).transpose()
    }

    /// Reads the offers to a user with their agents, oldest first, including expired offers. A new offer may be missing
    /// for a moment.
    pub async fn read_offers_to_user(&self, user: &UserId) -> Result<Vec<(OwnershipOffer, Agent)>> {
        let agents = self
            .read_indexed_agent_ids(user.as_str(), owned::HANDOVERS, None)
            .await?;
        let both: Vec<Key> = agents
            .iter()
            .flat_map(|id| [Key::ownership_offer(*id), Key::agent(*id)])
            .collect();
        let items = self.get_items(&both).await?;
        let item_of = |key: &Key| items.iter().find(|item| key.is_key_of(item));
        let mut offers = Vec::with_capacity(agents.len());
        for id in agents {
            if let Some((offer, agent)) = item_of(&Key::ownership_offer(id)).zip(item_of(&Key::agent(id))) {
                offers.push((self.read_ownership_offer_item(offer)?, self.read_agent_item(agent)?));
            }
        }
        offers.retain(|(offer, _)| offer.to == *user);
        Ok(offers)
    }

    /// Changes an agent's owner, if the agent and the offer are unchanged since they were read. The caller must call
    /// [`Ledger::fence_windows`] afterwards, because the transfer removes the agent's approval exceptions.
    pub async fn transfer_agent(
        &self,
        old: &Agent,
        offer: &OwnershipOffer,
        now: Timestamp,
        audit: &AuditEntry,
    ) -> Result<TransferAgentResult> {
        let former = FormerOwner {
            owner: old.owner.clone(),
            name: old.name.clone(),
            labels: old.labels.clone(),
            until: now,
        };
        let is_exception = |rule: &&Rule| matches!(rule.kind, RuleKind::ApprovalException(_));
        let new = Agent {
            owner: offer.to.to_string(),
            former_owners: old.former_owners.iter().cloned().chain([former]).collect(),
            // The template belongs to the earlier owner, but the agent keeps the template's limits.
            template: None,
            rules: old.rules.iter().filter(|rule| !is_exception(rule)).cloned().collect(),
            version: old.version.saturating_add(1),
            ..old.clone()
        };
        let mut transaction = Transaction::new();
        let put = self
            .put_item(audit.add_update_mark_to_item(write_agent(&new)))
            .condition_expression("ver = :old")
            .expression_attribute_values(":old", old.version.write());
        transaction.add_put(Role::Agent, put)?;
        let delete = DeleteBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(Key::ownership_offer(old.id).attributes()))
            .condition_expression("#owner = :to AND t = :at")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":to", offer.to.write())
            .expression_attribute_values(":at", offer.at.write());
        transaction.add_delete(Role::Offer, delete)?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(TransferAgentResult::Done),
            TransactionOutcome::Refused(rejection) => {
                let existing = rejection
                    .existing_item(Role::Agent)
                    .map(|item| self.read_agent_item(item));
                Ok(if existing.transpose()?.as_ref() == Some(&new) {
                    TransferAgentResult::Done
                } else if rejection.has_failed(Role::Offer) {
                    TransferAgentResult::NoOffer
                } else {
                    TransferAgentResult::Conflict
                })
            }
        }
    }

    /// Moves all open approvals of the agent to the agent's current owner.
    pub async fn move_open_approvals_to_owner(&self, agent: &Agent, now: Timestamp) -> Result<()> {
        // A batch request, because the function's IAM role permits only `BatchGetItem` for items with pending
        // approvals.
        for item in self.get_items(&[Key::waiting_approvals(agent.id)]).await? {
            for approval in self.read_approvals(self.pending_approval_ids(&item)?).await? {
                self.move_approval_to_owner(&approval, &agent.owner, now).await?;
            }
        }
        Ok(())
    }

    /// Moves an open approval to the agent's current owner. The condition prevents that a concurrent request of an
    /// earlier owner takes the approval back.
    pub async fn move_approval_to_owner(&self, approval: &Approval, owner: &str, now: Timestamp) -> Result<()> {
        if approval.owner == owner || !approval.status(now).is_open() {
            return Ok(());
        }
        // A request for a limit increase expires when the agent's owner changes.
        let expired = approval
            .raise
            .as_ref()
            .map(|_| owned::decided_approval_key(approval.id, approval.created_at));
        let update = match &expired {
            None => "SET #owner = :new",
            Some(_) => "SET #owner = :new, os = :decided",
        };
        let update = self.update_item(&Key::approval(approval.id)).update_expression(update);
        let update = match &expired {
            None => update,
            Some(place) => update.expression_attribute_values(":decided", place.write()),
        };
        let update = update
            .condition_expression("#owner = :old")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":old", approval.owner.write())
            .expression_attribute_values(":new", owner.to_owned().write());
        // The IAM role of the function `people` permits updates of approvals only in transactions.
        let mut transaction = Transaction::new();
        transaction.add_update(Role::Approval, update)?;
        let check = ConditionCheck::builder()
            .table_name(&*self.table)
            .set_key(Some(Key::agent(approval.agent).attributes()))
            .condition_expression("#owner = :new")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":new", owner.to_owned().write());
        transaction.add_check(Role::Agent, check)?;
        let _moved = transaction.send_until_outcome(&self.db, &mut Backoff::new()).await?;
        Ok(())
    }

    pub(crate) fn read_ownership_offer_item(&self, item: &Item) -> Result<OwnershipOffer> {
        self.item_row(item).read()
    }
}

fields! {
    OwnershipOffer { agent: pk(key::parse_agent), to: "owner", reason: "why", by: "by", at: "t", ends_at: "ends" }
}

pub(crate) fn write_ownership_offer(offer: &OwnershipOffer) -> Item {
    let row =
        Draft::new(&Key::ownership_offer(offer.agent)).with("os", &owned::ownership_offer_key(offer.agent, offer.at));
    row.with_fields(offer).into_item()
}
