//! `make demo-fleet`: creates an owner with many agents, and a month of payments, denials and approvals, by API calls
//! only.

mod calls;
mod story;

use crate::stack_file::StackFile;
use calls::{Calls, Failed, STRANGER, member};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use purser_domain::{Duration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use story::{Act, PlannedAgent, Planner, Purchase, Story};

/// The maximum number of concurrent calls.
const AT_ONCE: usize = 8;
/// The number of agents created per minute, at which the owner's calls stay below the throttle's limit.
const AGENTS_PER_MINUTE: usize = 150;
/// The initial balance of a wallet in micro-USDC, which exceeds a month of payments.
const FUNDS_UNITS: u64 = 500_000_000;
const PAYOUT_UNITS: u64 = 250_000;
const JOURNAL_ATTEMPTS: usize = 120;
const DAY_SECONDS: u64 = 86_400;

/// The reason why the fleet could not be created.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The owner already has a demo fleet.
    #[error("this stack has the fleet already; stop it, and start a new one with `make run`")]
    Filled,
    /// A call failed, or its response is not the one in `story.json`.
    #[error("{0}")]
    Failed(#[from] Failed),
}

/// The size of the demo fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetSize {
    /// The number of agents.
    pub agents: usize,
    /// The number of days on which the agents pay.
    pub days: usize,
}

impl FleetSize {
    /// The minimum number of agents.
    pub const FEWEST_AGENTS: usize = 50;
    /// The maximum number of agents.
    pub const MAX_AGENTS: usize = 10_000;
    /// The maximum number of days, which is the longest range of `GET /usage`.
    pub const MAX_DAYS: usize = 31;

    /// Scales a `count` per thousand agents to this fleet. The result is at least `min`.
    fn share(self, count: usize, min: usize) -> usize {
        (self.agents.saturating_mul(count) / 1_000).max(min)
    }
}

/// The numbers of created objects and calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetCounts {
    /// The number of created agents.
    pub agents: u64,
    /// The number of authorized payments.
    pub payments: u64,
    /// The total amount of the authorized payments, in micro-USDC.
    pub units: u64,
    /// The number of payments that a provider settled.
    pub settled: u64,
    /// The number of denied calls.
    pub refusals: u64,
    /// The number of requested approvals.
    pub approvals: u64,
    /// The number of approvals that a user decided.
    pub decided: u64,
    /// The number of withdrawals.
    pub payouts: u64,
}

impl FleetCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            agents: self.agents.saturating_add(other.agents),
            payments: self.payments.saturating_add(other.payments),
            units: self.units.saturating_add(other.units),
            settled: self.settled.saturating_add(other.settled),
            refusals: self.refusals.saturating_add(other.refusals),
            approvals: self.approvals.saturating_add(other.approvals),
            decided: self.decided.saturating_add(other.decided),
            payouts: self.payouts.saturating_add(other.payouts),
        }
    }
}

impl fmt::Display for FleetCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            agents,
            payments,
            units,
            settled,
            refusals,
            approvals,
            decided,
            payouts,
        } = self;
        let (dollars, cents) = (units / 1_000_000, units % 1_000_000 / 10_000);
        write!(
            f,
            "{agents} agents, {payments} payments of ${dollars}.{cents:02} ({settled} settled), {refusals} refusals, \
             {approvals} approvals ({decided} decided), {payouts} payouts"
        )
    }
}

/// A created agent.
struct Member {
    path: String,
    key: String,
}

/// The fleet of a running stack.
struct Fleet {
    calls: Calls,
    /// An ID token of the owner, with a recent sign-in.
    token: String,
    /// The created agents by their number in the plan.
    members: BTreeMap<usize, Member>,
    counts: FleetCounts,
}

/// Creates the fleet. `report_progress` gets progress messages.
pub async fn fill(
    stack: StackFile,
    size: FleetSize,
    report_progress: impl Fn(&str),
) -> Result<FleetCounts, FleetError> {
    let story = Story::read().map_err(Failed::from)?;
    let calls = Calls::new(stack, story.kinds.iter().flat_map(|kind| &kind.offers)).await?;
    let mut planner = Planner::new(story, size);
    let mut fleet = Fleet {
        token: calls.sign_in().await?,
        calls,
        members: BTreeMap::new(),
        counts: FleetCounts::default(),
    };
    let agents: Vec<Value> = member(
        &fleet.owner(Method::GET, "/agents?limit=100", &Value::Null).await?,
        "/agents",
    )?;
    let is_planned = |agent: &Value| {
        planner
            .agents
            .iter()
            .any(|planned| agent.get("name") == Some(&planned.name.clone().into()))
    };
    if agents.iter().any(is_planned) {
        return Err(FleetError::Filled);
    }
    // The demo starts at midnight UTC, because `GET /usage` has UTC days.
    let days = fleet.calls.advance(0).await?.secs() / DAY_SECONDS;
    let first = Timestamp::from_secs(days.saturating_add(1).saturating_mul(DAY_SECONDS));
    let first = first.ok_or_else(|| Failed::from("the clock of the stack is out of range"))?;
    let mut start = first;
    for day in 0..size.days {
        fleet.create(&planner.agents, day, start).await?;
        for slot in planner.day(day) {
            fleet.wait_until(after(start, slot.second)).await?;
            fleet.act(slot.acts).await?;
        }
        report_progress(&format!(
            "day {} of {}: {}",
            day.saturating_add(1),
            size.days,
            fleet.counts
        ));
        start = start.after(Duration::DAY);
    }
    report_progress("waiting until the journal has everything");
    fleet.journal(first).await?;
    Ok(fleet.counts)
}

fn after(time: Timestamp, seconds: u64) -> Timestamp {
    time.after(Duration::from_secs_u32(u32::try_from(seconds).unwrap_or(u32::MAX)))
}

impl Fleet {
    /// Sends a request as the owner. A null `body` sends no body.
    async fn owner(&self, method: Method, path: &str, body: &Value) -> Result<Value, Failed> {
        self.calls.call(method, path, &self.token, body, None).await
    }

    /// Advances the clocks to this time, and signs the owner in again, because some requests need a recent sign-in.
    async fn wait_until(&mut self, time: Timestamp) -> Result<(), Failed> {
        let ahead = time.since(self.calls.advance(0).await?).secs();
        if ahead > 0 {
            self.calls.advance(ahead).await?;
        }
        self.token = self.calls.sign_in().await?;
        Ok(())
    }

    /// Creates the agents of a day, from 01:00 on.
    async fn create(&mut self, agents: &[PlannedAgent], day: usize, start: Timestamp) -> Result<(), Failed> {
        let new: Vec<_> = agents
            .iter()
            .enumerate()
            .filter(|(_, agent)| agent.created_on == day)
            .collect();
        for (some, second) in new.chunks(AGENTS_PER_MINUTE).zip((3_600..).step_by(600)) {
            self.wait_until(after(start, second)).await?;
            let created = stream::iter(
                some.iter()
                    .map(async |(index, agent)| Ok((*index, self.create_agent(agent).await?))),
            );
            let created: Vec<(usize, Member)> = created
                .buffer_unordered(AT_ONCE)
                .try_collect()
                .await
                .map_err(|error: Failed| error)?;
            self.counts.agents = self.counts.agents.saturating_add(u64::try_from(created.len())?);
            self.members.extend(created);
        }
        Ok(())
    }

    async fn create_agent(&self, agent: &PlannedAgent) -> Result<Member, Failed> {
        let created = self
            .owner(Method::POST, "/agents", &json!({"name": agent.name}))
            .await?;
        let path = format!("/agents/{}", member::<String>(&created, "/agent_id")?);
        self.owner(Method::PATCH, &path, &json!({"labels": agent.labels}))
            .await?;
        for (slug, policy) in &agent.services {
            let path = format!("{path}/services/{}", self.calls.service(slug)?);
            self.owner(Method::PATCH, &path, &self.calls.fill_amounts(policy)?)
                .await?;
        }
        for rule in &agent.rules {
            self.owner(Method::POST, &format!("{path}/rules"), &self.calls.fill_amounts(rule)?)
                .await?;
        }
        if agent.has_payouts {
            self.owner(
                Method::PUT,
                &format!("{path}/payout-address"),
                &json!({"address": STRANGER}),
            )
            .await?;
        }
        if !agent.has_no_funds {
            self.calls
                .fund(&member::<String>(&created, "/wallet_address")?, FUNDS_UNITS)
                .await?;
        }
        let key = self.owner(Method::POST, &format!("{path}/keys"), &json!({})).await?;
        Ok(Member {
            path,
            key: member(&key, "/key")?,
        })
    }

    /// Runs the acts of one time of day. The acts of one agent run in order, and different agents run concurrently.
    async fn act(&mut self, actions: Vec<(usize, Act)>) -> Result<(), Failed> {
        let mut by_agent: BTreeMap<usize, Vec<Act>> = BTreeMap::new();
        for (index, action) in actions {
            by_agent.entry(index).or_default().push(action);
        }
        let counts = stream::iter(by_agent.into_iter().map(async |(index, acts)| {
            let agent = self.members.get(&index).ok_or("an agent acts before it exists")?;
            let mut counts = FleetCounts::default();
            for action in acts {
                counts = counts.plus(self.act_once(agent, action).await?);
            }
            Ok::<_, Failed>(counts)
        }));
        let counts: Vec<FleetCounts> = counts.buffer_unordered(AT_ONCE).try_collect().await?;
        self.counts = counts.into_iter().fold(self.counts, FleetCounts::plus);
        Ok(())
    }

    async fn act_once(&self, agent: &Member, action: Act) -> Result<FleetCounts, Failed> {
        let mut counts = FleetCounts::default();
        match action {
            Act::Pay {
                purchase,
                is_settled,
                is_reported,
            } => {
                return self.pay(agent, &purchase, None, is_settled, is_reported).await;
            }
            Act::Refuse { purchase, error } => {
                self.authorize(agent, &purchase, None, Some(&error)).await?;
                counts.refusals = 1;
            }
            Act::Ask {
                purchase,
                decision,
                is_used,
            } => {
                let request = self
                    .authorize(agent, &purchase, None, Some("approval_required"))
                    .await?;
                let approval: String = member(&request, "/approval_id")?;
                counts.approvals = 1;
                let Some((verdict, note)) = decision else {
                    return Ok(counts);
                };
                let note = (!note.is_empty()).then_some(note);
                let path = format!("{}/approvals/{approval}/{verdict}", agent.path);
                self.owner(Method::POST, &path, &json!({"note": note})).await?;
                counts.decided = 1;
                if is_used {
                    counts = counts.plus(self.pay(agent, &purchase, Some(&approval), true, true).await?);
                }
            }
            Act::Freeze => {
                self.owner(Method::PATCH, &agent.path, &json!({"status": "frozen"}))
                    .await?;
            }
            Act::PayOut => {
                let key = format!("payout-{}", self.counts.payments);
                let body = json!({"amount_units": PAYOUT_UNITS, "idempotency_key": key});
                self.owner(Method::POST, &format!("{}/payouts", agent.path), &body)
                    .await?;
                counts.payouts = 1;
            }
        }
        Ok(counts)
    }

    async fn authorize(
        &self,
        agent: &Member,
        purchase: &Purchase,
        approval: Option<&str>,
        error: Option<&str>,
    ) -> Result<Value, Failed> {
        let request = self.calls.request(purchase, approval)?;
        self.calls
            .call(Method::POST, "/x402/authorize", &agent.key, &request, error)
            .await
    }

    async fn pay(
        &self,
        agent: &Member,
        purchase: &Purchase,
        approval: Option<&str>,
        is_settled: bool,
        is_reported: bool,
    ) -> Result<FleetCounts, Failed> {
        let authorized = self.authorize(agent, purchase, approval, None).await?;
        let units = member(&authorized, "/amount_units")?;
        let counts = FleetCounts {
            payments: 1,
            units,
            settled: u64::from(is_settled),
            ..FleetCounts::default()
        };
        if is_settled {
            let response = self
                .calls
                .settle(&member::<String>(&authorized, "/payment/header_value")?)
                .await?;
            let path = format!(
                "/x402/settlements/{}/complete",
                member::<String>(&authorized, "/settlement_id")?
            );
            if is_reported {
                let body = json!({"payment_response_header": response});
                self.calls.call(Method::POST, &path, &agent.key, &body, None).await?;
            }
        }
        Ok(counts)
    }

    /// Waits until the usage sums contain all decisions since `first`.
    async fn journal(&self, first: Timestamp) -> Result<(), Failed> {
        let day = |time: Timestamp| time.to_string().chars().take(10).collect::<String>();
        let path = format!("/usage?from={}&to={}", day(first), day(self.calls.advance(0).await?));
        let FleetCounts {
            payments,
            units,
            refusals,
            approvals,
            ..
        } = self.counts;
        let expected = json!([payments, units, refusals, approvals]);
        let mut counted = Value::Null;
        for _ in 0..JOURNAL_ATTEMPTS {
            let usage = self.owner(Method::GET, &path, &Value::Null).await?;
            let total = |name: &str| usage.get("total").and_then(|total| total.get(name));
            counted = json!([
                total("allowed"),
                total("authorized_units"),
                total("blocked"),
                total("escalated")
            ]);
            if counted == expected {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        Err(format!("after two minutes the journal counts {counted}, and the calls were {expected}").into())
    }
}
