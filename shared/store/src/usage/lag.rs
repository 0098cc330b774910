//! Records how far the decision history is behind the payments. Only a late batch stores a row.

use crate::{
    codec::{
        attribute::Attribute as _,
        fault::store_error,
        item::{Draft, Row},
        key::Key,
        table::put_item,
    },
    usage::table::UsageTable,
};
use purser_domain::{Duration, Result, Timestamp};

/// The maximum age of a batch's oldest stream record. Batches are collected for up to five seconds.
const MAX_LAG: Duration = Duration::from_secs_u32(10);
/// The time for which pages show that the history is behind. A failing batch is repeated within this time.
const WARNING_DURATION: Duration = Duration::from_secs_u32(120);

impl UsageTable {
    /// Records that the history is behind, if `oldest` (the oldest stream record of the batch) is too old.
    pub async fn report_history_lag(&self, oldest: Timestamp, now: Timestamp) -> Result<()> {
        if now.since(oldest) <= MAX_LAG {
            return Ok(());
        }
        let row = Draft::new(&Key::history_lag())
            .with("since", &oldest)
            .with("t", &now)
            .with_value("ttl", now.after(WARNING_DURATION).secs().write());
        put_item(
            &self.db,
            &self.table,
            row.into_item(),
            "writing the decision history's lag",
        )
        .await
    }

    /// Returns the time up to which the history is complete; `None` if it was not behind recently.
    pub async fn read_history_completeness_time(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        let get = self
            .db
            .get_item()
            .table_name(&*self.table)
            .set_key(Some(Key::history_lag().attributes()));
        let item = get
            .send()
            .await
            .map_err(store_error("reading the decision history's lag"))?
            .item;
        let Some(item) = item else { return Ok(None) };
        let row = Row::new(&self.table, &item);
        let (since, seen): (Timestamp, Timestamp) = (row.get("since")?, row.get("t")?);
        Ok((now.since(seen) <= WARNING_DURATION).then_some(since))
    }
}
