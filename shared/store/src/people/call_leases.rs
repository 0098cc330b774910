//! Limits concurrent calls across all Lambda instances. A call leases one slot of its scope, and returns the slot when
//! the call ends.
//!
//! A scope is one item with the end of each slot's lease. A conditional update of a free slot acquires a lease, so two
//! calls never have the same slot. If a call is killed, its slot becomes free when the lease ends. Acquiring and
//! returning a slot take one write unit each. An attempt at a slot that is not free takes one more. If the item can't
//! be written, the call is rejected, because it would not be counted.

use crate::{
    codec::attribute::Attribute as _,
    codec::client::without_throttling_pauses,
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

/// The leases of open calls per scope. A scope is, for example, an agent key or a provider.
#[derive(Clone, Debug)]
pub struct CallLeases {
    db: Client,
    table: Arc<str>,
    kind: ThrottleKind,
    duration: Duration,
}

/// A leased slot.
#[derive(Debug)]
pub struct CallLease {
    scope: String,
    slot: u32,
    until: Timestamp,
}

/// Whether a call got one of the slots of its scope.
#[derive(Debug)]
pub enum TakeLeaseResult {
    /// The call has leased this slot.
    Taken(CallLease),
    /// No slot is free.
    Full {
        /// The time until the first lease ends. A slot may become free earlier, because a call may end before its
        /// lease.
        retry_after: Duration,
    },
}

/// The maximum number of attempts to lease a slot. Each attempt tries a slot that was free in the previous response.
const ATTEMPTS: u32 = 4;
/// The pause before a retry if other calls acquired the free slots first.
const AFTER_A_RACE: Duration = Duration::from_secs_u32(1);

impl CallLeases {
    /// Creates a client that leases slots to calls of the API and stores the leases in this DynamoDB table. A lease
    /// ends when the call ends, at the latest after `lease_duration`.
    pub fn new(db: &Client, table: impl Into<Arc<str>>, lease_duration: Duration) -> Self {
        Self {
            db: without_throttling_pauses(db),
            table: table.into(),
            kind: ThrottleKind::Api,
            duration: lease_duration,
        }
    }

    /// Creates a client that leases slots to calls of the function `mcp`. The table stores these leases separately from
    /// the leases of API calls.
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
                match read_field::<Timestamp>(&item, &slot_name(slot)) {
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

    /// Ends a lease and frees the slot for another call. Does nothing if the lease has expired and another call has the
    /// slot.
    pub async fn end_lease(&self, lease: CallLease) -> Result<()> {
        let update = self.update_slot(&lease.scope, lease.slot);
        let update = update
            .update_expression("REMOVE #slot")
            .condition_expression("#slot = :until")
            .expression_attribute_values(":until", lease.until.write());
        was_applied(update.send().await, "ending an open call").map(|_| ())
    }

    /// Tries to lease a slot. Returns the scope's item if the slot is not free.
    async fn try_lease_slot(&self, scope: &str, slot: u32, until: Timestamp, now: Timestamp) -> Result<Option<Item>> {
        let update = self
            .update_slot(scope, slot)
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
            _ => Err(store_error("counting an open call")(error)),
        }
    }

    fn update_slot(&self, scope: &str, slot: u32) -> UpdateItemFluentBuilder {
        self.db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(
                Draft::with_partition_key(key::open_calls_key(self.kind, scope)).into_item(),
            ))
            .expression_attribute_names("#slot", slot_name(slot))
    }
}

fn slot_name(slot: u32) -> String {
    format!("s{slot}")
}
