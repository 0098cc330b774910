//! JSON API under `/usage`: sums of the agents' payments.

use crate::caller::Caller;
use crate::state::People;
use crate::usage::operations::{Days, UsageBy};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use purser_api::{Failure, Query};
use purser_domain::{Day, Error, UsageTotals, ValidationError};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The sums of payments by the state that each payment has now. Each payment counts on the day of its decision.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = UsageSums)]
pub(crate) struct SumsView {
    /// The authorized amount, in micro-USDC.
    authorized_units: u64,
    /// The confirmed amount, in micro-USDC.
    confirmed_units: u64,
    /// The released amount, in micro-USDC. A payment is released when it can no longer be made.
    released_units: u64,
    /// The amount of reverted confirmations, in micro-USDC. Each counts on the day on which the confirmation was
    /// reverted.
    taken_back_units: u64,
    /// The number of authorized payments.
    allowed: u64,
    /// The number of blocked payments.
    blocked: u64,
    /// The number of payments that required approval.
    escalated: u64,
}

impl From<UsageTotals> for SumsView {
    fn from(sums: UsageTotals) -> Self {
        Self {
            authorized_units: sums.authorized.units(),
            confirmed_units: sums.confirmed.units(),
            released_units: sums.released.units(),
            taken_back_units: sums.taken_back.units(),
            allowed: sums.allowed,
            blocked: sums.blocked,
            escalated: sums.escalated,
        }
    }
}

/// The sums for one day, agent, service, label or reason. Which of these fields is present depends on the parameter
/// `by`.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = UsageRow)]
pub(crate) struct UsageRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = Date)]
    day: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = Uuid)]
    agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = Uuid)]
    service_id: Option<String>,
    /// A label as `key=value`. An agent's payments count for each of the agent's labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "team=search")]
    label: Option<String>,
    /// The error slug of the denied payments.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
    #[serde(flatten)]
    sums: SumsView,
}

impl UsageRow {
    fn new(grouping: UsageBy, group: String, sums: UsageTotals) -> Self {
        let sums = sums.into();
        let none = Self {
            sums,
            ..Self::default()
        };
        match grouping {
            UsageBy::Day => Self {
                day: Some(group),
                ..none
            },
            UsageBy::Agent => Self {
                agent_id: Some(group),
                ..none
            },
            UsageBy::Service => Self {
                service_id: Some(group),
                ..none
            },
            UsageBy::Label => Self {
                label: Some(group),
                ..none
            },
            UsageBy::Reason => Self {
                reason: Some(group),
                ..none
            },
        }
    }
}

/// The sums of payments in a range of days.
#[derive(Serialize, ToSchema)]
#[schema(as = Usage)]
pub(crate) struct UsageView {
    /// The first day, in UTC.
    #[schema(format = Date)]
    from: String,
    /// The last day, in UTC.
    #[schema(format = Date)]
    to: String,
    /// The sums of the payments in all rows. With `by=label`, a payment of an agent with several labels counts several
    /// times.
    total: SumsView,
    /// One row per day, agent, service, label or reason. Days are in chronological order, and other rows in descending
    /// order of amount. Rows without payments are omitted.
    rows: Vec<UsageRow>,
    /// The number of rows. The response contains all rows.
    count: usize,
}

/// Read your agents' spending.
///
/// The sums are a few seconds behind.
#[utoipa::path(
    get, path = "/usage", operation_id = "read_usage",
    params(
        ("from" = Option<String>, Query, format = Date, description = "The first day, in UTC. By default, the range has 30 days."),
        ("to" = Option<String>, Query, format = Date, description = "The last day, in UTC, at most 30 days after the first day. The default is today."),
        ("by" = Option<String>, Query, pattern = "^(day|agent|service|label|reason)$", description = "What each row stands for. The default is `day`. With `reason`, only denied payments count."),
    ),
    responses(
        (status = 200, body = UsageView, description = "The sums. A payment counts on the day of its decision. Withdrawals do not count."),
    )
)]
pub(crate) async fn read_usage(
    State(people): State<Arc<People>>,
    user: Caller,
    uri: Uri,
) -> Result<Json<UsageView>, Failure> {
    const DATE: &str = "must be a date such as `2026-11-21`";
    let mut query = Query::from_uri(&uri);
    let from = query.parse_with("from", Day::parse, DATE);
    let to = query.parse_with("to", Day::parse, DATE);
    let by = query.parse_with("by", UsageBy::parse, UsageBy::FORM);
    query.finish()?;
    let last = to.unwrap_or_else(|| Day::containing(people.now()));
    let first = from.unwrap_or_else(|| last.days_earlier(DEFAULT_DAYS.saturating_sub(1)));
    let days = Days { first, last };
    if last < first || days.count() > Days::MAX {
        let message = format!("must be `from` or up to {} days later", Days::MAX.saturating_sub(1));
        return Err(Error::invalid(vec![ValidationError::at_path("/to", message)]).into());
    }
    let by = by.unwrap_or(UsageBy::Day);
    let usage = people.read_usage(&user, by, days).await?;
    let total = usage.total().into();
    let rows = usage.rows.into_iter();
    let rows: Vec<UsageRow> = rows.map(|(group, sums)| UsageRow::new(by, group, sums)).collect();
    Ok(Json(UsageView {
        from: days.first.to_string(),
        to: days.last.to_string(),
        total,
        count: rows.len(),
        rows,
    }))
}

const DEFAULT_DAYS: u32 = 30;
