//! Records when each agent key was last used: in the background, at most once a minute, ignoring failed writes.

use crate::{
    codec::attribute::Attribute as _,
    codec::item::{Draft, Row},
    codec::key,
    codec::ledger::get_all_items,
};
use aws_sdk_dynamodb::Client;
use purser_domain::{AgentId, Duration, KeyId, Result, Timestamp};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Records the time at which each agent key was last used, to the minute.
#[derive(Clone, Debug)]
pub struct KeyUses {
    db: Client,
    table: Arc<str>,
    noted: Arc<Mutex<HashMap<(AgentId, KeyId), Timestamp>>>,
}

/// An instance records the use of a key at most once in this duration.
const PRECISION: Duration = Duration::from_secs_u32(60);
/// The time after which the record of a key's last use expires: 400 days.
const RETENTION: Duration = Duration::from_secs_u32(400 * 86_400);
/// The maximum number of keys that an instance caches. When the cache is full, all keys are dropped.
const MAX_CACHED: usize = 10_000;

impl KeyUses {
    /// Creates a client that records in this DynamoDB table when each agent key was last used.
    pub fn new(db: Client, table: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: table.into(),
            noted: Arc::default(),
        }
    }

    /// Records the use of a key in the background. If Lambda suspends the instance first, the next request resumes the
    /// write.
    pub fn record_use(&self, agent: AgentId, key: KeyId, now: Timestamp) {
        if !self.try_mark_use_as_recorded(agent, key, now) {
            return;
        }
        let update = self
            .db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(
                Draft::with_partition_key(key::agent_key_use_key(agent, key)).into_item(),
            ))
            .update_expression("SET used = :now, #ttl = :ttl")
            .condition_expression("attribute_not_exists(used) OR used < :now")
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_values(":now", now.write())
            .expression_attribute_values(":ttl", now.after(RETENTION).secs().write());
        tokio::spawn(async move { update.send().await.is_ok() });
    }

    fn try_mark_use_as_recorded(&self, agent: AgentId, key: KeyId, now: Timestamp) -> bool {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let last = noted.get(&(agent, key));
        if last.is_some_and(|last| now < last.after(PRECISION)) {
            return false;
        }
        if noted.len() >= MAX_CACHED {
            noted.clear();
        }
        noted.insert((agent, key), now);
        true
    }

    /// Returns the last use of each of these keys, if known.
    pub async fn read_last_uses(&self, agent: AgentId, keys: &[KeyId]) -> Result<HashMap<KeyId, Timestamp>> {
        let item_keys = keys
            .iter()
            .map(|id| Draft::with_partition_key(key::agent_key_use_key(agent, *id)).into_item())
            .collect();
        let mut last = HashMap::new();
        for item in get_all_items(&self.db, &self.table, item_keys, false, "reading agent keys' last uses").await? {
            let found = keys.iter().find(|id| {
                let pk = item.get("pk").and_then(|pk| pk.as_s().ok());
                pk.is_some_and(|pk| *pk == key::agent_key_use_key(agent, **id))
            });
            if let Some(id) = found {
                last.insert(*id, Row::new(&self.table, &item).get("used")?);
            }
        }
        Ok(last)
    }
}
