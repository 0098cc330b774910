//! Counts a batch of one shard.
//!
//! The counting mappings have a tumbling window, because only then does Lambda name the shard of a batch (developer
//! guide, "Implementing stateful `DynamoDB` stream processing in Lambda"). The window's state is not used.

use crate::{Shared, batch::Batch};
use purser_domain::{Result, UsageCount};
use purser_store::{SequenceNumber, Shard};
use serde_json::Value;

impl Shared {
    /// Counts a batch of a shard. On an error, part of it may be counted, and the whole batch must be repeated.
    ///
    /// Unreadable rows are not counted. The call that publishes the same records reports them.
    pub(crate) async fn count_batch(&self, shard: Shard, records: &[Value]) -> Result<()> {
        let Batch { placed, .. } = self.read_batch(records).await?;
        let counts = placed.iter().filter_map(|placed| {
            let place = SequenceNumber::parse(&placed.sequence)?;
            Some((place, UsageCount::of(&placed.event)?))
        });
        let counts: Vec<_> = counts.collect();
        let Some(end) = counts.iter().map(|(place, _)| place).max() else {
            return Ok(());
        };
        self.usage.count(&shard, &counts, end, self.clock.now()).await
    }
}

/// The shard of a batch of a tumbling window; `None` for any other event.
pub(crate) fn shard_of(event: &Value) -> Option<Shard> {
    let text = |name| event.get(name).and_then(Value::as_str);
    let (_, stream) = text("eventSourceARN")?.split_once(":table/")?;
    let (table, _) = stream.split_once("/stream/")?;
    Some(Shard {
        table: table.to_owned(),
        id: text("shardId")?.to_owned(),
    })
}
