//! JSON API under `/usage`: sums of the agents' payments.

use crate::caller::Caller;
use crate::state::PeopleState;
use crate::usage::operations::{Days, UsageBy};
use axum::Json;
use axum::http::Uri;
use purser_api::{Query, Reply, endpoint, view};
use purser_domain::{Day, Error, UsageTotals, ValidationError};

purser_api::views! {
    /// The sums of payments by the state that each payment has now. Each payment counts on the day of its decision.
    #[derive(Default)]
    pub(crate) struct SumsView as UsageSums {
        fn from(sums: UsageTotals);

        /// The authorized amount, in micro-USDC.
        authorized_units: u64 = sums.authorized.units(),
        /// The confirmed amount, in micro-USDC.
        confirmed_units: u64 = sums.confirmed.units(),
        /// The released amount, in micro-USDC. A payment is released when it can no longer be made.
        released_units: u64 = sums.released.units(),
        /// The amount of reverted confirmations, in micro-USDC. Each counts on the day on which the confirmation was
        /// reverted.
        taken_back_units: u64 = sums.taken_back.units(),
        /// The number of authorized payments.
        allowed: u64 = sums.allowed,
        /// The number of blocked payments.
        blocked: u64 = sums.blocked,
        /// The number of payments that required approval.
        escalated: u64 = sums.escalated,
    }

    /// The sums for one day, agent, service, label or reason. Which of these fields is present depends on the parameter
    /// `by`.
    #[omit_none]
    pub(crate) struct UsageRow {
        fn new(grouping: UsageBy, group: &str, sums: UsageTotals);
        let group_by = |by| (grouping == by).then(|| group.to_owned());

        #[schema(format = Date)]
        day: Option<String> = group_by(UsageBy::Day),
        #[schema(format = Uuid)]
        agent_id: Option<String> = group_by(UsageBy::Agent),
        #[schema(format = Uuid)]
        service_id: Option<String> = group_by(UsageBy::Service),
        /// A label as `key=value`. An agent's payments count for each of the agent's labels.
        #[schema(example = "team=search")]
        label: Option<String> = group_by(UsageBy::Label),
        /// The error slug of the denied payments.
        reason: Option<String> = group_by(UsageBy::Reason),
        #[serde(flatten)]
        sums: SumsView = sums.into(),
    }
}

/// The sums of payments in a range of days.
#[view]
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
#[endpoint(
    get "/usage",
    params(
        ("from" = Option<String>, Query, format = Date, description = "The first day, in UTC. By default, the range has 30 days."),
        ("to" = Option<String>, Query, format = Date, description = "The last day, in UTC, at most 30 days after the first day. The default is today."),
        ("by" = Option<String>, Query, pattern = "^(day|agent|service|label|reason)$", description = "What each row stands for. The default is `day`. With `reason`, only denied payments count."),
    ),
    returns = "The sums. A payment counts on the day of its decision. Withdrawals do not count."
)]
pub(crate) async fn read_usage(people: PeopleState, user: Caller, uri: Uri) -> Reply<Json<UsageView>> {
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
    let rows: Vec<UsageRow> = rows.map(|(group, sums)| UsageRow::new(by, &group, sums)).collect();
    Ok(Json(UsageView {
        from: days.first.to_string(),
        to: days.last.to_string(),
        total,
        count: rows.len(),
        rows,
    }))
}

const DEFAULT_DAYS: u32 = 30;
