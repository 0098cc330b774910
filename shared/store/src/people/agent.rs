//! An agent's record: one item with the identity, keys, status and rules, so that one read authenticates the caller. A
//! rule's version is also written to the rule's window, so that a charge is conditional on the version.

use crate::{
    audit::entry::AuditEntry,
    codec::backoff::Backoff,
    codec::fields::fields,
    codec::item::{Draft, Item},
    codec::key::{self, Key},
    codec::ledger::{Ledger, UpdateResult},
    people::{approval::ApprovalDecision, policy::GrantResult},
    transact::{Transaction, TransactionOutcome},
};
use purser_domain::{Agent, AgentId, Approval, ApprovalResolution, Error, Result, Rule, WindowScope};

/// The result of creating an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateAgentResult {
    /// The agent is stored, by this attempt or by an earlier attempt with the same record.
    Stored,
    /// Another agent with this id exists.
    Exists,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Agent,
    Wallet,
    Window,
    Approval,
    Audit,
}

/// The layout version of an agent's items (`docs/data-model.md`). Records with another version can't be read.
const LAYOUT: u32 = 1;

const MAX_CONCURRENT: usize = 32;

/// Returns whether the new version of the agent may reject a payment that the old version allowed.
fn is_narrowing_change(old: &Agent, new: &Agent) -> bool {
    let ends = |agent: &Agent| -> Vec<_> { agent.keys.iter().map(|key| (key.id, key.ends_at)).collect() };
    let added_only = ends(old).iter().all(|key| ends(new).contains(key));
    (!old.is_frozen() && new.is_frozen()) || old.rules != new.rules || !added_only
}

impl Ledger {
    /// Reads the agent's record, strongly consistent.
    pub async fn read_agent_by_id(&self, id: AgentId) -> Result<Option<Agent>> {
        let item = self.get_item(&Key::agent(id)).await?;
        item.map(|item| self.read_agent_item(&item)).transpose()
    }

    /// Stores a new agent, and adds the agent's wallet to the wallets whose outflows are compared with settlements.
    pub async fn create_agent(&self, agent: &Agent, audit: &AuditEntry) -> Result<CreateAgentResult> {
        let mut transaction = Transaction::new();
        transaction.add_put(
            Role::Agent,
            self.put_new_item(audit.add_update_mark_to_item(write_agent(agent))),
        )?;
        let wallet = Draft::new(&Key::wallet(agent.id)).with("address", &agent.wallet.address);
        transaction.add_put(Role::Wallet, self.put_item(wallet.into_item()))?;
        self.add_window_version_updates(&mut transaction, agent, &[])?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(CreateAgentResult::Stored),
            TransactionOutcome::Refused(rejection) => {
                let existing = rejection
                    .existing_item(Role::Agent)
                    .map(|item| self.read_agent_item(item))
                    .transpose()?;
                Ok(if existing.as_ref() == Some(agent) {
                    CreateAgentResult::Stored
                } else {
                    CreateAgentResult::Exists
                })
            }
        }
    }

    /// Replaces an agent's record with the next version.
    ///
    /// After a narrowing change has returned, no payment is authorized under an earlier version.
    pub async fn put_agent(&self, agent: &Agent, audit: &AuditEntry) -> Result<UpdateResult> {
        Ok(match self.put_agent_and_approve(agent, None, audit).await? {
            GrantResult::Done => UpdateResult::Stored,
            GrantResult::Conflict | GrantResult::NotPending => UpdateResult::Conflict,
        })
    }

    /// Replaces an agent's record like [`Ledger::put_agent`], and approves the pending request `approved`.
    pub async fn put_agent_and_approve(
        &self,
        agent: &Agent,
        approved: Option<(&Approval, &ApprovalResolution)>,
        audit: &AuditEntry,
    ) -> Result<GrantResult> {
        let Some(old) = self.read_agent_by_id(agent.id).await? else {
            return Ok(GrantResult::Conflict);
        };
        let updated = if old == *agent {
            GrantResult::Done
        } else {
            self.replace_agent(&old, agent, approved, audit).await?
        };
        if updated == GrantResult::Done && (old == *agent || is_narrowing_change(&old, agent)) {
            self.fence_windows(agent).await?;
        }
        Ok(updated)
    }

    async fn replace_agent(
        &self,
        old: &Agent,
        agent: &Agent,
        approved: Option<(&Approval, &ApprovalResolution)>,
        audit: &AuditEntry,
    ) -> Result<GrantResult> {
        if old.version.checked_add(1) != Some(agent.version) {
            return Ok(GrantResult::Conflict);
        }
        let mut transaction = Transaction::new();
        let put = self
            .put_item(audit.add_update_mark_to_item(write_agent(agent)))
            .condition_expression("ver = :old")
            .expression_attribute_values(":old", crate::codec::attribute::Attribute::write(&old.version));
        transaction.add_put(Role::Agent, put)?;
        if let Some((request, resolution)) = approved {
            let update = self.pending_approval_decision_update(request, ApprovalDecision::Approve, resolution);
            transaction.add_update(Role::Approval, update)?;
        }
        self.add_window_version_updates(&mut transaction, agent, &old.rules)?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(GrantResult::Done),
            TransactionOutcome::Refused(rejection) => {
                let existing = rejection
                    .existing_item(Role::Agent)
                    .map(|item| self.read_agent_item(item))
                    .transpose()?;
                Ok(if existing.as_ref() == Some(agent) {
                    GrantResult::Done
                } else if rejection.has_failed(Role::Approval) {
                    GrantResult::NotPending
                } else {
                    GrantResult::Conflict
                })
            }
        }
    }

    /// Makes the agent's day windows reject decisions that are based on an earlier version of the agent's record. The
    /// version in `agent` must already be stored. Must be called after an ownership transfer, and after a narrowing
    /// change that an interrupted request has stored.
    pub async fn fence_windows(&self, agent: &Agent) -> Result<()> {
        let services = self.read_services_with_policy(agent.id).await?;
        for batch in services.chunks(MAX_CONCURRENT) {
            let mut writes = tokio::task::JoinSet::new();
            for service in batch {
                let (ledger, version) = (self.clone(), agent.version);
                let scope = WindowScope::Day {
                    agent: agent.id,
                    service: *service,
                };
                writes.spawn(async move { ledger.fence_older_versions(scope, version).await });
            }
            while let Some(written) = writes.join_next().await {
                written.map_err(|error| Error::internal("closing a window", error))??;
            }
        }
        Ok(())
    }

    /// Writes the version of each new or changed counting rule to the rule's window.
    fn add_window_version_updates(
        &self,
        transaction: &mut Transaction<Role>,
        agent: &Agent,
        old: &[Rule],
    ) -> Result<()> {
        for budget in agent.counting_rules() {
            let rule = budget.rule;
            let before = old.iter().find(|before| before.id == rule.id);
            if before.is_some_and(|before| before.version == rule.version) {
                if before != Some(rule) {
                    let words = crate::Fault::new("a changed rule has the same version as before");
                    return Err(Error::internal("updating an agent", words));
                }
                continue;
            }
            // A rule that counts each payee alone has no single window: the backfill starts the window for each payee.
            if let Some(scope) = budget.window_scope(agent.id, None) {
                let version = self.window_version_update(scope, rule.version, agent.version);
                transaction.add_update(Role::Window, version)?;
            }
        }
        Ok(())
    }

    pub(crate) fn read_agent_item(&self, item: &Item) -> Result<Agent> {
        let row = self.item_row(item);
        if row.get::<u32>("lay")? != LAYOUT {
            return Err(row.corrupt_error("lay"));
        }
        row.read()
    }
}

fields! {
    Agent {
        id: pk(key::parse_agent),
        name: "name",
        owner: "owner",
        created_at: "created",
        status: "st",
        wallet: "wallet",
        keys: "keys",
        rules: "rules",
        archived: "archived" or_default,
        labels: "labels" or_default,
        starting_set: "start" optional,
        template: "tpl" optional,
        max_increase_factor: "incf",
        former_owners: "former" or_default,
        version: "ver",
    }
}

pub(crate) fn write_agent(agent: &Agent) -> Item {
    let row = Draft::new(&Key::agent(agent.id)).with("lay", &LAYOUT);
    row.with("os", &key::owned::agent_index_key(agent.id, agent.created_at))
        .with_fields(agent)
        .into_item()
}
