//! Limits concurrent calls across all Lambda instances: each open call leases a slot of a scope, for example of an
//! agent key. If a call is killed, the slot becomes free when the lease expires. If the item can't be written, the call
//! is rejected, because the call would not be counted.

use crate::{
    codec::attribute::Attribute as _,
    codec::client::client_without_throttling_retries,
    codec::fault::store_error,
    codec::item::{Draft, Item, read_field},
    codec::key,
    codec::key::ThrottleKind,
    people::throttle::RETENTION_SECS,
    transact::was_applied,
};
use aws_sdk_dynamodb::{
    Client,
    operation::update_item::{UpdateItemError, builders::UpdateItemFluentBuilder},
    types::ReturnValuesOnConditionCheckFailure,
};
use purser_domain::{Duration, Result, Timestamp};
use std::{fmt, sync::Arc};

/// The leases of open calls per scope, for example per agent key or per provider.
#[derive(Clone, Debug)]
pub struct CallLeases {
    db: Client,
    table: Arc<str>,
    kind: ThrottleKind,
    duration: Duration,
}

/// A slot that one call has leased until a certain time.
#[derive(Debug)]
pub struct CallLease {
    scope: String,
    slot: u32,
    until: Timestamp,
}

/// The result of leasing a slot.
#[derive(Debug)]
pub enum TakeLeaseResult {
    /// The call has leased a slot, and must return the lease when the call ends.
    Taken(CallLease),
    /// Other calls have leased all slots of the scope, or took the free slots first.
    Full {
        /// The time until the first lease of the scope expires; one second if other calls took the free slots first.
        retry_after: Duration,
    },
}

/// The maximum number of attempts to lease a slot.
const ATTEMPTS: u32 = 4;
/// The pause before a retry if other calls acquired the free slots first.
const AFTER_A_RACE: Duration = Duration::from_secs_u32(1);

impl CallLeases {
    /// Creates a client for API calls, with leases in this DynamoDB table that expire after `lease_duration`.
    pub fn new(db: &Client, table: impl Into<Arc<str>>, lease_duration: Duration) -> Self {
        Self {
            db: client_without_throttling_retries(db),
            table: table.into(),
            kind: ThrottleKind::Api,
            duration: lease_duration,
        }
    }

    /// Creates a client for calls of the function `mcp`, whose leases are separate from the leases of API calls.
    pub fn for_mcp(db: &Client, table: impl Into<Arc<str>>, lease_duration: Duration) -> Self {
        Self {
            kind: ThrottleKind::Mcp,
            ..Self::new(db, table, lease_duration)
        }
    }

    /// Leases one of the first `max_calls` slots of a scope.
    pub async fn take_lease(
        &self,
        scope: impl fmt::Display,
        max_calls: u32,
        now: Timestamp,
    ) -> Result<TakeLeaseResult> {
        let scope = scope.to_string();
        let until = now.after(self.duration);
        let mut slots: Vec<u32> = (0..max_calls).collect();
        let mut ends = Vec::new();
        for _ in 0..ATTEMPTS {
            // The time selects one of the free slots, so that concurrent calls try different slots.
            let count = u64::try_from(slots.len()).unwrap_or(0);
            let chosen = now.micros().unsigned_abs().checked_rem(count);
            let chosen = chosen.and_then(|at| slots.get(usize::try_from(at).ok()?));
            let Some(slot) = chosen.copied() else { break };
            let Some(item) = self.try_lease_slot(&scope, slot, until, now).await? else {
                return Ok(TakeLeaseResult::Taken(CallLease { scope, slot, until }));
            };
            ends = Vec::new();
            slots = Vec::new();
            for slot in 0..max_calls {
                match read_field::<Timestamp>(&item, &slot_attribute_name(slot)) {
                    Some(end) if now < end => ends.push(end),
                    _ => slots.push(slot),
                }
            }
        }
        let first = ends.into_iter().min().filter(|_| slots.is_empty());
        Ok(TakeLeaseResult::Full {
            retry_after: first.map_or(AFTER_A_RACE, |end| end.since(now)),
        })
    }

    /// Ends a lease. Does nothing if the lease has expired and another call has the slot.
    pub async fn end_lease(&self, lease: CallLease) -> Result<()> {
        let update = self.slot_update_request(&lease.scope, lease.slot);
        let update = update
            .update_expression("REMOVE #slot")
            .condition_expression("#slot = :until")
            .expression_attribute_values(":until", lease.until.write());
        was_applied(update.send().await, "ending a call lease").map(|_| ())
    }

    /// Tries to lease a slot. Returns the scope's item if the slot is not free.
    async fn try_lease_slot(&self, scope: &str, slot: u32, until: Timestamp, now: Timestamp) -> Result<Option<Item>> {
        let update = self
            .slot_update_request(scope, slot)
            .update_expression("SET #slot = :until, #ttl = :ttl")
            .condition_expression("attribute_not_exists(#slot) OR #slot <= :now")
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_values(":until", until.write())
            .expression_attribute_values(":now", now.write())
            .expression_attribute_values(":ttl", until.secs().saturating_add(RETENTION_SECS).write())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let Err(error) = update.send().await else {
            return Ok(None);
        };
        match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(refused)) => {
                Ok(Some(refused.item.clone().unwrap_or_default()))
            }
            _ => Err(store_error("leasing a call slot")(error)),
        }
    }

    fn slot_update_request(&self, scope: &str, slot: u32) -> UpdateItemFluentBuilder {
        self.db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(
                Draft::with_partition_key(key::call_leases_key(self.kind, scope)).into_item(),
            ))
            .expression_attribute_names("#slot", slot_attribute_name(slot))
    }
}

fn slot_attribute_name(slot: u32) -> String {
    format!("s{slot}")
}
