//! Rows of grants: authorization codes, device requests, and the generation of each grant's refresh token. The grant
//! itself is a key in the agent's record (`agent.rs`), so no payment reads these rows. The code checks the times in a
//! row, because TTL may delete the row late.

use crate::{
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::fields::fields,
    codec::item::{Draft, Item},
    codec::key::{self, Key},
    codec::ledger::Ledger,
    codec::table::{put_item, put_request, update_request},
    transact::{Transaction, TransactionOutcome, update_with_conflict_retry, was_applied},
};
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use purser_domain::{
    AgentId, DeviceRequest, DeviceState, GrantCode, GrantRecord, KeyId, Result, SecretDigest, Timestamp, UserCode,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Source,
    Grant,
}

/// The time in seconds for which a used or expired row is kept, so that a second use is noticed.
const RETENTION_SECS: u64 = 86_400;

impl Ledger {
    /// Stores an authorization code. The code is random, so an existing row with this digest is the row of this code.
    pub async fn add_grant_code(&self, code: &GrantCode) -> Result<()> {
        put_item(
            &self.db,
            &self.table,
            write_grant_code(code),
            "storing an authorization code",
        )
        .await
    }

    /// Reads an authorization code, strongly consistent. The caller must check whether the code has expired.
    pub async fn read_grant_code(&self, digest: &SecretDigest) -> Result<Option<GrantCode>> {
        let item = self.get_item(&Key::grant_code(digest)).await?;
        item.map(|item| self.item_row(&item).read()).transpose()
    }

    /// Uses an authorization code, and stores the grant's row. Returns `false` if the code was used before.
    pub async fn redeem_grant_code(&self, code: &GrantCode, grant: &GrantRecord, now: Timestamp) -> Result<bool> {
        let update = self
            .update_item(&Key::grant_code(&code.digest))
            .update_expression("SET used = :now")
            .condition_expression("attribute_exists(pk) AND attribute_not_exists(used)")
            .expression_attribute_values(":now", now.write());
        self.redeem(update, grant).await
    }

    /// Stores the grant's row, if the code or device request `source` was not used before.
    async fn redeem(&self, source: UpdateBuilder, grant: &GrantRecord) -> Result<bool> {
        let mut transaction = Transaction::new();
        transaction.add_update(Role::Source, source)?;
        transaction.add_put(Role::Grant, self.put_new_item(write_grant(grant)))?;
        match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(true),
            // If the stored row equals `grant`, an earlier attempt has stored the row, and the response to that attempt
            // was lost.
            TransactionOutcome::Refused(rejection) => {
                let existing = rejection.existing_item(Role::Grant);
                let existing: Option<GrantRecord> = existing.map(|item| self.item_row(item).read()).transpose()?;
                Ok(existing.as_ref() == Some(grant))
            }
        }
    }

    /// Stores a device's request for a grant. Returns `false` if another request has the same user code.
    pub async fn add_device_request(&self, request: &DeviceRequest) -> Result<bool> {
        let put = put_request(&self.db, &self.table, write_device_request(request))
            .condition_expression("attribute_not_exists(pk)");
        was_applied(put.send().await, "storing a device request")
    }

    /// Reads a device's request, strongly consistent. The caller must check whether the request has expired.
    pub async fn read_device_request(&self, code: &UserCode) -> Result<Option<DeviceRequest>> {
        let item = self.get_item(&Key::device_request(code)).await?;
        item.map(|item| self.item_row(&item).read()).transpose()
    }

    /// Stores the user's decision about a pending device request. Returns `false` if the request is not pending.
    pub async fn decide_device_request(&self, code: &UserCode, decision: DeviceState, now: Timestamp) -> Result<bool> {
        let update = update_request(&self.db, &self.table, &Key::device_request(code));
        let update = match decision {
            DeviceState::Approved { agent, grant } | DeviceState::Redeemed { agent, grant } => update
                .update_expression("SET st = :state, #agent = :agent, #grant = :grant")
                .expression_attribute_names("#agent", "agent")
                .expression_attribute_names("#grant", "grant")
                .expression_attribute_values(":state", APPROVED.to_owned().write())
                .expression_attribute_values(":agent", agent.write())
                .expression_attribute_values(":grant", grant.write()),
            DeviceState::Pending | DeviceState::Denied => update
                .update_expression("SET st = :state")
                .expression_attribute_values(":state", DENIED.to_owned().write()),
        };
        let update = update
            .condition_expression("st = :pending AND expires > :now")
            .expression_attribute_values(":pending", PENDING.to_owned().write())
            .expression_attribute_values(":now", now.write());
        update_with_conflict_retry(&update, "deciding a device request").await
    }

    /// Records when a device last asked for the decision on the request.
    pub async fn record_device_poll(&self, code: &UserCode, now: Timestamp) -> Result<()> {
        let update = update_request(&self.db, &self.table, &Key::device_request(code))
            .update_expression("SET polled = :now")
            .condition_expression("attribute_exists(pk)")
            .expression_attribute_values(":now", now.write());
        update_with_conflict_retry(&update, "recording a device's poll").await?;
        Ok(())
    }

    /// Uses an approved device request, and stores the grant's row. Returns `false` if the request is not approved.
    pub async fn redeem_device_request(&self, code: &UserCode, grant: &GrantRecord) -> Result<bool> {
        let update = self
            .update_item(&Key::device_request(code))
            .update_expression("SET st = :redeemed")
            .condition_expression("st = :approved")
            .expression_attribute_values(":redeemed", REDEEMED.to_owned().write())
            .expression_attribute_values(":approved", APPROVED.to_owned().write());
        self.redeem(update, grant).await
    }

    /// Reads a grant's row, strongly consistent.
    pub async fn read_grant(&self, agent: AgentId, grant: KeyId) -> Result<Option<GrantRecord>> {
        let item = self.get_item(&Key::grant(agent, grant)).await?;
        item.map(|item| self.item_row(&item).read()).transpose()
    }

    /// Begins the next generation of the grant's refresh token. Returns `false` if the grant has ended or has another
    /// generation.
    pub async fn rotate_grant(&self, record: &GrantRecord, now: Timestamp) -> Result<bool> {
        let update = update_request(&self.db, &self.table, &Key::grant(record.agent, record.grant))
            .update_expression("SET gen = :next, rotated = :now")
            .condition_expression("gen = :generation AND attribute_not_exists(ended)")
            .expression_attribute_values(":next", record.generation.saturating_add(1).write())
            .expression_attribute_values(":generation", record.generation.write())
            .expression_attribute_values(":now", now.write());
        update_with_conflict_retry(&update, "rotating a refresh token").await
    }

    /// Ends a grant's refresh tokens. The agent's key must be ended as well, because access tokens depend only on it.
    pub async fn end_grant(&self, agent: AgentId, grant: KeyId, now: Timestamp) -> Result<()> {
        let update = update_request(&self.db, &self.table, &Key::grant(agent, grant))
            .update_expression("SET ended = :now")
            .condition_expression("attribute_exists(pk) AND attribute_not_exists(ended)")
            .expression_attribute_values(":now", now.write());
        update_with_conflict_retry(&update, "ending a grant").await?;
        Ok(())
    }
}

const PENDING: &str = "pending";
const APPROVED: &str = "approved";
const DENIED: &str = "denied";
const REDEEMED: &str = "redeemed";

fields! {
    GrantCode {
        digest: pk(key::parse_grant_code),
        agent: "agent",
        grant: "grant",
        client: "client",
        redirect_uri: "uri",
        challenge: "challenge",
        expires_at: "expires",
        used_at: "used" optional,
    }

    DeviceRequest {
        user_code: pk(key::parse_user_code),
        digest: "digest",
        client: "client",
        client_name: "name",
        expires_at: "expires",
        polled_at: "polled" optional,
        state: part,
    }

    GrantRecord {
        agent: pk(key::parse_agent),
        grant: sk(KeyId::parse),
        client: "client",
        generation: "gen",
        rotated_at: "rotated",
        expires_at: "expires",
        ended_at: "ended" optional,
    }

    enum DeviceState by "st" {
        "pending" => Pending {},
        "denied" => Denied {},
        "approved" => Approved { agent: "agent", grant: "grant" },
        "redeemed" => Redeemed { agent: "agent", grant: "grant" },
    }
}

pub(crate) fn write_grant_code(code: &GrantCode) -> Item {
    let ttl = code.expires_at.secs().saturating_add(RETENTION_SECS);
    Draft::new(&Key::grant_code(&code.digest))
        .with_fields(code)
        .with("ttl", &ttl)
        .into_item()
}

pub(crate) fn write_device_request(request: &DeviceRequest) -> Item {
    let ttl = request.expires_at.secs().saturating_add(RETENTION_SECS);
    Draft::new(&Key::device_request(&request.user_code))
        .with_fields(request)
        .with("ttl", &ttl)
        .into_item()
}

pub(crate) fn write_grant(record: &GrantRecord) -> Item {
    let ttl = record.expires_at.secs().saturating_add(RETENTION_SECS);
    Draft::new(&Key::grant(record.agent, record.grant))
        .with_fields(record)
        .with("ttl", &ttl)
        .into_item()
}
