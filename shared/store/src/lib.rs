//! Stores data in DynamoDB: items, keys, conditions, and transactions.
//!
//! Invariants:
//! - A write that follows a decision is conditional on the state and version on which the decision was based.
//! - A payment is one transaction: the window, its counted payment, the settlement, the idempotency key and the
//!   approval change together or not at all.
//! - The `total` of a window is the sum of the existing counted payments, and a counted payment exists exactly while it
//!   counts.
//! - The reads of a decision are strongly consistent and never cached, and a condition detects any inconsistent read.
//! - No item that affects spending expires by TTL, and no decision reads an index.
//! - A change by a user or an operator writes an audit row in the same transaction.
//!
//! ```text
//! decision_inputs ─(evaluate)─▶ reserve ─▶ confirm ─▶ revert_confirmation   key.rs      the format of every key
//!             │              └────▶ release                item.rs     an item becomes a domain type, or is `Corrupt`
//!             ├────────▶ escalate ─▶ resolve               transact.rs transactions and cancellation reasons
//!             └────────▶ record
//! ```

mod audit;
mod catalog;
mod codec;
mod notices;
mod page;
mod payments;
mod people;
mod reconcile;
mod stream;
mod transact;
mod usage;
mod webhooks;

pub use audit::entry::{AuditEntry, UpdateMark};
pub use audit::log::{AuditLog, AuditRow};
pub use catalog::cache::{CatalogCache, CatalogVersion};
pub use catalog::object::ObjectStored;
pub use catalog::sightings::ProbeSummary;
pub use catalog::table::{CatalogTable, StoreServiceResult};
pub use codec::backoff::Backoff;
pub use codec::client::dynamodb_client;
pub use codec::fault::Fault;
pub use codec::item::Corrupt;
pub use codec::key::hold::PARTITIONS;
pub use codec::ledger::{Ledger, UpdateResult};
pub use notices::pending::Waiting;
pub use notices::settings::{NewNotificationUrl, USER_SHARDS};
pub use page::{Filter, MAX_ROWS_PER_READ, Page, PageRequest, READS, read_page, read_page_with_batch_size};
pub use payments::decision::{LogPage, LogRange, PastPayments};
pub use payments::decision_inputs::{DecisionInputs, DecisionKeys, Reader, ServiceState};
pub use payments::escalate::EscalateResult;
pub use payments::hold_limit::HoldLimit;
pub use payments::idempotency::IdempotencyRecord;
pub use payments::payout::{ReserveWithdrawalResult, StoredWithdrawalInputs, WithdrawalKey};
pub use payments::preflight::ReplayKey;
pub use payments::raise::LimitIncreaseRequestResult;
pub use payments::reserve::ReserveResult;
pub use payments::settle::{Claim, ConfirmResult, StoredClaim, TransitionResult};
pub use payments::wallet_claim::WalletClaim;
pub use payments::window::EvictResult;
pub use people::agent::CreateAgentResult;
pub use people::approval::{ApprovalDecision, ResolveResult};
pub use people::authenticate::{AuthenticatedCaller, Authenticator, UnverifiedCall};
pub use people::call_leases::{CallLease, CallLeases, TakeLeaseResult};
pub use people::freezes::ChangeFreezeResult;
pub use people::handover::TransferAgentResult;
pub use people::kept_responses::KeptResponses;
pub use people::key_limit::KeyLimit;
pub use people::key_use::KeyUses;
pub use people::owned::{AgentCursor, AgentOrder, ApprovalCursor, ApprovalList};
pub use people::policy::GrantResult;
pub use people::session::{Identity, StartSessionResult};
pub use people::spare_key::SpareKey;
pub use people::throttle::Throttle;
pub use reconcile::evictions::EvictionRequest;
pub use reconcile::holds::{HeldSettlement, IndexPosition, ReconcileRequest};
pub use reconcile::outflows::WalletPart;
pub use stream::approvals::DecidedApproval;
pub use stream::change::{Change, Unreadable};
pub use stream::fact::{ChangeEvent, ChangeEventOwner};
pub use stream::owners::{OwnedAgent, Owners};
pub use stream::payments::{HistoryChange, HistorySource};
pub use stream::row_hash::RowHash;
pub use stream::sequence::SequenceNumber;
pub use stream::signs::Sign;
pub use usage::backtest::{BacktestReads, NewestDecisions};
pub use usage::backtests::WaitingBacktest;
pub use usage::day::{AgentLimit, AgentSums, DaySums, Reasons};
pub use usage::journal::JOURNAL_READS;
pub use usage::key::HistoryPart;
pub use usage::rebuild::RebuildResult;
pub use usage::reminder::{Reminder, ReminderKind};
pub use usage::reminders::{QuarantinedRow, ReminderCursor, Reminders};
pub use usage::table::UsageTable;
pub use usage::versions::{InputVersion, RecordVersion, StoredInputs};
pub use webhooks::pause::Pause;
pub use webhooks::secret::NewWebhookSecret;
pub use webhooks::table::WebhooksTable;

#[cfg(test)]
#[path = "../tests/rows/mod.rs"]
mod rows;
