//! The versions of agents' records, policies and services, so that a decision can be evaluated again with the original
//! inputs. The function `events` stores them about a second after the change. Until then, the current version is in the
//! ledger or the catalog.
//!
//! The digests of an agent's keys, the name and the labels are omitted, because no decision depends on them, and
//! because a name must not be stored longer than the agent's record.

use crate::{
    audit::entry::UpdateMark,
    catalog::table::{CatalogTable, partition_key},
    codec::{
        attribute::{Attribute as _, Item},
        fault::store_error,
        item::{Draft, Row},
        key::{self as keys, Key, catalog::SERVICES},
        ledger::Ledger,
        table::{Query, put_item},
    },
    people::agent::write_agent,
    stream::change::Change,
    usage::table::UsageTable,
};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{
    Agent, AgentId, AgentKey, Duration, EnabledService, InputVersions, KeyCredential, Labels, ReplayInputs, Result,
    SecretDigest, Service, ServiceId, Timestamp,
};

/// A version of an agent's record, a policy or a service.
#[derive(Clone, Debug)]
pub struct InputVersion {
    key: Key,
    at: Timestamp,
    body: Item,
}

/// The inputs of a decision, each in the version that the decision used.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredInputs {
    agent: Agent,
    service: Service,
    enabled: Option<EnabledService>,
}

impl StoredInputs {
    /// Borrows the stored agent, service and policy as the inputs of a replay.
    pub const fn as_replay_inputs(&self) -> ReplayInputs<'_> {
        ReplayInputs {
            agent: &self.agent,
            service: &self.service,
            enabled: self.enabled.as_ref(),
        }
    }
}

/// A version of an agent's record or policy.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordVersion<T> {
    /// The version number: 1 for the first version, and one more after each change.
    pub version: u64,
    /// The time of the change; `None` for a current version that the function `events` has not stored.
    pub at: Option<Timestamp>,
    /// The user and the reason of the change; empty while `at` is `None`.
    pub mark: UpdateMark,
    /// The agent's record or policy as stored in this version.
    pub record: T,
}

impl Ledger {
    /// Returns the new version of an agent's record or policy; `None` for other rows. Fails if the row can't be read.
    pub fn input_version_from_change(&self, change: &Change) -> Result<Option<InputVersion>> {
        let Some(image) = change.new.as_ref().filter(|_| *self.table == *change.table) else {
            return Ok(None);
        };
        let pk = keys::partition_key_text(image);
        let key = if pk.starts_with("A#") {
            let agent = self.read_agent_item(image)?;
            let key = Key::agent_version(agent.id, agent.version);
            return Ok(Some(InputVersion {
                key,
                at: change.at,
                body: UpdateMark::read_mark(self.item_row(image))?.write_mark(write_agent(&redacted_agent(agent))),
            }));
        } else if pk.starts_with("P#") {
            let enabled = self.read_policy(image)?;
            Key::policy_version(self.parse_agent_in_key(image)?, enabled.service, enabled.version)
        } else {
            return Ok(None);
        };
        Ok(Some(InputVersion {
            key,
            at: change.at,
            body: image.clone(),
        }))
    }
}

impl CatalogTable {
    /// Returns the new version of a service; `None` for any other row. Fails if the row can't be read.
    pub fn input_version_from_change(&self, change: &Change) -> Result<Option<InputVersion>> {
        let is_service = |image: &&Item| self.has_table(&change.table) && partition_key(image).starts_with(SERVICES);
        let Some(image) = change.new.as_ref().filter(is_service) else {
            return Ok(None);
        };
        let service = self.read_service(image)?;
        Ok(Some(InputVersion {
            key: Key::service_version(service.id, service.version),
            at: change.at,
            body: image.clone(),
        }))
    }
}

impl UsageTable {
    /// Stores a version of an agent's record, a policy or a service. Storing the version again changes nothing.
    pub async fn store_input_version(&self, version: InputVersion) -> Result<()> {
        let row = Draft::new(&version.key)
            .with("t", &version.at)
            .with_value("body", AttributeValue::M(version.body));
        put_item(&self.db, &self.table, row.into_item(), "storing an input version").await
    }

    /// Reads the inputs of a decision; `None` if a version is neither stored nor current. Takes about three read units.
    pub async fn read_replay_inputs(
        &self,
        ledger: &Ledger,
        catalog: &CatalogTable,
        (agent, service): (AgentId, ServiceId),
        policy_version: Option<u64>,
        versions: InputVersions,
    ) -> Result<Option<StoredInputs>> {
        let agent = self.read_agent_version(ledger, agent, versions.agent);
        let service = self.read_service_version(catalog, service, versions.service);
        let (Some(agent), Some(service)) = tokio::try_join!(agent, service)? else {
            return Ok(None);
        };
        let enabled = match policy_version {
            None => None,
            Some(version) => {
                let enabled = self.read_policy_version(ledger, &agent, service.id, version).await?;
                if enabled.is_none() {
                    return Ok(None);
                }
                enabled
            }
        };
        Ok(Some(StoredInputs {
            agent,
            service,
            enabled,
        }))
    }

    /// Reads up to `max` versions of an agent's policy before `before`, newest first. Past versions under another owner
    /// are skipped.
    pub async fn read_policy_versions(
        &self,
        ledger: &Ledger,
        agent: &Agent,
        service: ServiceId,
        (before, max): (Option<u64>, u32),
    ) -> Result<Vec<RecordVersion<EnabledService>>> {
        let partition = Key::policy_version(agent.id, service, 0).pk;
        let (current, accepted_at, items) = tokio::try_join!(
            ledger.find_enabled_service(agent.id, service),
            self.find_ownership_acceptance_time(agent),
            self.read_versions_before(&partition, before, max),
        )?;
        let mut versions = Vec::with_capacity(items.len());
        for (at, body) in &items {
            if accepted_at.is_none_or(|accepted_at| *at > accepted_at) {
                let record = ledger.read_policy(body)?;
                versions.push(RecordVersion {
                    version: record.version,
                    at: Some(*at),
                    mark: UpdateMark::read_mark(Row::new(&self.table, body))?,
                    record,
                });
            }
        }
        let current = current.map(|record| (record.version, record));
        Ok(add_current_version_if_missing(versions, current, (before, max)))
    }

    /// Reads up to `max` versions of an agent's record before `before`, newest first. Versions under another owner are
    /// skipped.
    pub async fn read_agent_versions(
        &self,
        ledger: &Ledger,
        agent: &Agent,
        (before, max): (Option<u64>, u32),
    ) -> Result<Vec<RecordVersion<Agent>>> {
        let partition = Key::agent_version(agent.id, 0).pk;
        let items = self.read_versions_before(&partition, before, max).await?;
        let mut versions = Vec::with_capacity(items.len());
        for (at, body) in &items {
            let record = ledger.read_agent_item(body)?;
            // Older versions belong to other owners or to an earlier ownership of this user, so reading ends.
            if record.owner != agent.owner {
                break;
            }
            versions.push(RecordVersion {
                version: record.version,
                at: Some(*at),
                mark: UpdateMark::read_mark(Row::new(&self.table, body))?,
                record,
            });
        }
        let current = (agent.version, redacted_agent(agent.clone()));
        Ok(add_current_version_if_missing(versions, Some(current), (before, max)))
    }

    /// Returns the time from which the agent's decisions belong to the current owner; [`Timestamp::EPOCH`] if the owner
    /// created the agent.
    pub async fn read_ownership_start(&self, agent: &Agent) -> Result<Timestamp> {
        let accepted_at = self.find_ownership_acceptance_time(agent).await?;
        // The stored time is from a stream record, which has no fraction of a second.
        let next = |at: Timestamp| at.after(Duration::from_secs_u32(1));
        Ok(accepted_at.map_or(Timestamp::EPOCH, next))
    }

    /// Returns the time at which the owner accepted the agent; `None` if the owner created the agent, and
    /// [`Timestamp::MAX`] until the function `events` has stored the version with the new owner.
    async fn find_ownership_acceptance_time(&self, agent: &Agent) -> Result<Option<Timestamp>> {
        let query = self
            .query_newest_versions(&Key::agent_version(agent.id, 0).pk, None)
            .into_request()
            .filter_expression("body.#owner <> :owner")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":owner", agent.owner.write());
        let mut items = query.into_paginator().items().send();
        let Some(item) = items.next().await else {
            return Ok(None);
        };
        let item = item.map_err(store_error(READING))?;
        let last = self.parse_version_body(&item)?;
        let last: u64 = Row::new(&self.table, &last).get("ver")?;
        let next = last.checked_add(2);
        // The transfer wrote the version `last` + 1. Until this version is stored, the query finds `last`.
        let first = self
            .read_versions_before(&Key::agent_version(agent.id, 0).pk, next, 1)
            .await?;
        let first = first.into_iter().next().filter(|(_, body)| {
            Row::new(&self.table, body)
                .get("ver")
                .is_ok_and(|version: u64| version > last)
        });
        Ok(Some(first.map_or(Timestamp::MAX, |(at, _)| at)))
    }

    async fn read_versions_before(
        &self,
        partition: &str,
        before: Option<u64>,
        max_rows: u32,
    ) -> Result<Vec<(Timestamp, Item)>> {
        let query = self.query_newest_versions(partition, before);
        let response = query.limit(max_rows).send(READING).await?;
        let read = |item: &Item| Ok((Row::new(&self.table, item).get("t")?, self.parse_version_body(item)?));
        response.items().iter().map(read).collect()
    }

    fn query_newest_versions(&self, partition: &str, before: Option<u64>) -> Query {
        // The query excludes the version `before` itself. `~` sorts after every version number.
        let before = before.map_or_else(|| "~".to_owned(), |version| format!("{version:020}"));
        Query::new(&self.db, &self.table, partition).before(before).descending()
    }

    /// Returns the attribute `body` of a version's row: the item of the agent, policy or service in that version.
    fn parse_version_body(&self, item: &Item) -> Result<Item> {
        let body = item.get("body").and_then(|body| body.as_m().ok()).cloned();
        body.ok_or_else(|| Row::new(&self.table, item).corrupt_error("body"))
    }

    async fn read_agent_version(&self, ledger: &Ledger, id: AgentId, version: u64) -> Result<Option<Agent>> {
        if let Some(body) = self.read_version_body(&Key::agent_version(id, version)).await? {
            return ledger.read_agent_item(&body).map(Some);
        }
        let current = ledger.read_agent_by_id(id).await?;
        Ok(current.filter(|agent| agent.version == version).map(redacted_agent))
    }

    async fn read_service_version(
        &self,
        catalog: &CatalogTable,
        id: ServiceId,
        version: u64,
    ) -> Result<Option<Service>> {
        if let Some(body) = self.read_version_body(&Key::service_version(id, version)).await? {
            return catalog.read_service(&body).map(Some);
        }
        let current = catalog.read_service_by_id(id).await?;
        Ok(current.filter(|service| service.version == version))
    }

    /// The first version may be a default policy, which has no row before the first payment.
    async fn read_policy_version(
        &self,
        ledger: &Ledger,
        agent: &Agent,
        service: ServiceId,
        version: u64,
    ) -> Result<Option<EnabledService>> {
        if let Some(body) = self
            .read_version_body(&Key::policy_version(agent.id, service, version))
            .await?
        {
            return ledger.read_policy(&body).map(Some);
        }
        let current = ledger.find_enabled_service(agent.id, service).await?;
        if let Some(current) = current.filter(|enabled| enabled.version == version) {
            return Ok(Some(current));
        }
        let default = ledger.read_default_policy(agent, service).await?;
        Ok(default.filter(|enabled| enabled.version == version))
    }

    async fn read_version_body(&self, key: &Key) -> Result<Option<Item>> {
        let get = self
            .db
            .get_item()
            .table_name(&*self.table)
            .set_key(Some(key.attributes()));
        let item = get.send().await.map_err(store_error(READING))?.item;
        item.map(|item| self.parse_version_body(&item)).transpose()
    }
}

const READING: &str = "reading an input version";

/// Adds the current version at the start, if it belongs to this page and is not stored yet.
fn add_current_version_if_missing<T>(
    mut versions: Vec<RecordVersion<T>>,
    current: Option<(u64, T)>,
    (before, max): (Option<u64>, u32),
) -> Vec<RecordVersion<T>> {
    if let Some((version, record)) = current
        && before.is_none_or(|before| version < before)
        && versions.first().is_none_or(|newest| newest.version < version)
    {
        let (at, mark) = (None, UpdateMark::default());
        let current = RecordVersion {
            version,
            at,
            mark,
            record,
        };
        versions.insert(0, current);
        versions.truncate(usize::try_from(max).unwrap_or(usize::MAX));
    }
    versions
}

/// Removes the agent's name and labels, and replaces the credentials of the keys with zeros.
fn redacted_agent(agent: Agent) -> Agent {
    let keys = agent.keys.into_iter().map(|key| AgentKey {
        credential: KeyCredential::Secret(SecretDigest::from_bytes([0; 32])),
        ..key
    });
    Agent {
        name: String::new(),
        labels: Labels::default(),
        keys: keys.collect(),
        ..agent
    }
}
