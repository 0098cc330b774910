//! Requests that the function `reconcile` evicts expired payments from a window. A lost request is harmless, because
//! the next payment or page that needs the eviction stores another request.

use crate::{
    codec::attribute::Attribute as _,
    codec::item::Draft,
    codec::key::{self, Key},
    codec::ledger::Ledger,
    codec::table::{Query, put_request},
    transact::was_applied,
};
use purser_domain::{Result, Timestamp, Window, WindowPeriod, WindowScope};

/// A request to evict the expired payments of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionRequest {
    /// The window with the expired payments.
    pub scope: WindowScope,
    /// The time of the first request for the window.
    pub requested_at: Timestamp,
}

impl Ledger {
    /// Stores a request to evict a window's expired payments, unless it exists. Takes 1 write unit.
    pub async fn request_eviction(&self, scope: WindowScope, now: Timestamp) -> Result<()> {
        let row = Draft::new(&Key::eviction_request(scope)).with("t", &now);
        let put = put_request(&self.db, &self.table, row.into_item()).condition_expression("attribute_not_exists(pk)");
        was_applied(put.send().await, "requesting an eviction").map(|_| ())
    }

    /// Reads up to one query page of the stored requests (thousands). An unreadable row is returned as an error.
    pub async fn read_eviction_requests(&self) -> Result<Vec<Result<EvictionRequest>>> {
        let response = Query::new(&self.db, &self.table, key::EVICT)
            .consistent()
            .send("reading eviction requests")
            .await?;
        let requests = response.items().iter().map(|item| {
            let row = self.item_row(item);
            Ok(EvictionRequest {
                scope: key::parse_window(key::sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?,
                requested_at: row.get("t")?,
            })
        });
        Ok(requests.collect())
    }

    /// Reads the window of an eviction request, with the version of the current rule. `None` if the rule was removed.
    pub async fn read_window_to_evict(&self, scope: WindowScope) -> Result<Option<Window>> {
        let (period, version) = match scope {
            WindowScope::Day { .. } => (WindowPeriod::DAY, None),
            WindowScope::Budget { agent, rule } => {
                let agent = self.read_agent_by_id(agent).await?;
                let budget = agent.iter().flat_map(purser_domain::Agent::counting_rules);
                // A payee's window has an id derived from rule and payee. The row contains the rule's id (`rid`).
                let totals = self.get_item(&Key::window(scope)).await?;
                let base = totals
                    .map(|item| self.item_row(&item).get_optional("rid"))
                    .transpose()?;
                let rule = base.flatten().unwrap_or(rule);
                let budget = budget.filter(|budget| budget.rule.id == rule).last();
                match budget {
                    Some(budget) => (budget.period, Some(budget.rule.version)),
                    None => return Ok(None),
                }
            }
        };
        let window = self.read_window_head(scope, period).await?;
        let version = version.unwrap_or(window.stamp);
        Ok(Some(Window {
            stamp: version,
            ..window
        }))
    }

    /// Removes a request, unless the request was stored again after it was read.
    pub async fn clear_eviction_request(&self, request: &EvictionRequest) -> Result<()> {
        let delete = self
            .db
            .delete_item()
            .table_name(&*self.table)
            .set_key(Some(Key::eviction_request(request.scope).attributes()))
            .condition_expression("t = :asked")
            .expression_attribute_values(":asked", request.requested_at.write());
        was_applied(delete.send().await, "removing an eviction request").map(|_| ())
    }
}
