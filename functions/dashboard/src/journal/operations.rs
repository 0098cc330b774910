//! Lists of decisions and settlements.
//!
//! A list for all agents is read from the decision history (`shared/store/src/usage`), which is some seconds behind. A
//! list for one agent is read from the agent's own rows.

use crate::caller::Caller;
use crate::journal::filter::{HistoryFilter, HistoryList};
use crate::state::People;
use purser_domain::{DecisionResult, Duration, HistoryEntry, LoggedDecision, Result, Timestamp};
use purser_store::{Filter, MAX_ROWS_PER_READ, Page, PageRequest, read_page_with_batch_size};
use uuid::Uuid;

/// The maximum number of reads for a filtered page of one agent's list, and the number of rows per read.
const READS_OF_AGENT: (u32, u32) = (2, 40);

/// The maximum difference between the clocks of two Lambda functions. A decision that was made after an ownership
/// transfer may seem to be earlier than the transfer, by at most this time.
const CLOCKS: Duration = Duration::from_secs_u32(60);

impl People {
    /// Reads a page of a list, newest first. A filtered page may be short although more pages follow.
    pub(crate) async fn read_history_page(
        &self,
        user: &Caller,
        list: HistoryList,
        filter: &HistoryFilter,
        page_request: PageRequest<Uuid>,
    ) -> Result<Page<HistoryEntry, Uuid>> {
        let request = PageRequest {
            before: filter.span.list_start_cursor(page_request.before),
            ..page_request
        };
        let is_filtered = !filter.is_unfiltered(list);
        let keep = is_filtered.then_some(|entry: &HistoryEntry| filter.filter_entry(list, entry));
        let Some(agent) = filter.agent else {
            return self
                .usage
                .read_history_page(&user.id, filter.index_partition(), request, keep)
                .await;
        };
        let owned = self.read_own_agent(user, agent).await?;
        let (name, labels) = (owned.agent().name.as_str(), &owned.agent().labels);
        let transfers = owned.agent().transfer_count();
        let before_transfer = owned
            .agent()
            .former_owners
            .last()
            .map(|former| former.until.before(CLOCKS));
        let read = |before, count| async move {
            let decisions: Vec<LoggedDecision> = match (list, filter.result) {
                (HistoryList::Settlements, _) | (_, Some(DecisionResult::Allow | DecisionResult::Payout)) => {
                    let settlements = self.ledger.read_recent_settlements(agent, before, count).await?;
                    settlements.into_iter().map(LoggedDecision::from_settlement).collect()
                }
                (_, None) if filter.reason.is_none() => self.ledger.read_decisions(agent, before, count).await?,
                _ => self.ledger.list_recorded_decisions(agent, before, count).await?,
            };
            Ok(decisions
                .iter()
                .map(|decision| (decision.transfer_count(), HistoryEntry::new(decision, name, labels)))
                .collect())
        };
        // `read` has selected the agent's rows, so only the filter's other conditions remain.
        let is_filtered = *filter
            != HistoryFilter {
                agent: Some(agent),
                ..HistoryFilter::default()
            };
        // Decisions from before the latest ownership transfer belong to previous owners.
        let keep = |(then, entry): &(u32, HistoryEntry)| match before_transfer {
            _ if *then == transfers && is_filtered => filter.filter_entry(list, entry),
            _ if *then == transfers => Filter::Keep,
            Some(end) if entry.at < end => Filter::Stop,
            Some(_) | None => Filter::Skip,
        };
        let keep = (is_filtered || before_transfer.is_some()).then_some(keep);
        let page = read_page_with_batch_size(request, READS_OF_AGENT, keep, |(_, entry)| entry.place, read).await?;
        Ok(Page {
            items: page.items.into_iter().map(|(_, entry)| entry).collect(),
            next: page.next,
        })
    }

    /// Passes decisions to `write` until it returns false. Returns the cursor at which to continue, if any.
    pub(crate) async fn export_history(
        &self,
        user: &Caller,
        list: HistoryList,
        filter: &HistoryFilter,
        mut before: Option<Uuid>,
        mut write: impl FnMut(&HistoryEntry) -> bool,
    ) -> Result<Option<Uuid>> {
        /// The maximum number of pages of the decision history that one export reads.
        const PAGES: u32 = 200;
        for _ in 0..PAGES {
            let limit = MAX_ROWS_PER_READ;
            let page = self
                .read_history_page(user, list, filter, PageRequest { before, limit })
                .await?;
            for entry in &page.items {
                if !write(entry) {
                    return Ok(Some(entry.place));
                }
            }
            before = page.next;
            if before.is_none() {
                return Ok(None);
            }
        }
        Ok(before)
    }

    /// Returns the time up to which the decision history is complete. Returns `None` if the lists and sums of the
    /// decision history are up to date.
    pub(crate) async fn read_history_completeness_time(&self) -> Option<Timestamp> {
        let until = self.usage.read_history_completeness_time(self.now()).await;
        until.unwrap_or_else(|error| {
            tracing::warn!(cause = %error, "journal.lag_not_read");
            None
        })
    }
}
