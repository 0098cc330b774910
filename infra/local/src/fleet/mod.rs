//! `make demo-fleet`: an owner with many agents, and a month of payments, refusals and approvals.
//!
//! Everything is made by the calls that owners, agents and providers make; nothing is written to a table. Two runs on
//! new stacks differ in ids, dates and addresses only.

mod act;
mod agent;
mod calls;
mod offer;
mod plan;
mod provider;
mod size;

use crate::stack_file::StackFile;
use act::{Act, Ending, Purchase};
use agent::{PlannedAgent, PolicyEdit, Role};
use calls::{Calls, number, text};
use plan::Plan;
use provider::{Market, settle};
use purser_domain::{Duration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinSet;

pub use calls::FleetError;
pub use size::FleetSize;

/// The number of calls that run at a time.
const AT_ONCE: usize = 8;
/// The number of agents that are created within a minute of the stack's time, below the throttle's limit: each takes up
/// to seven calls of the owner.
const AGENTS_A_MINUTE: usize = 150;
/// What every wallet gets beyond what the plan spends: one dollar.
const SPARE_UNITS: u64 = 1_000_000;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetCounts {
    /// The created agents.
    pub agents: u64,
    /// The authorized payments.
    pub payments: u64,
    /// Their amount, in micro-units.
    pub units: u64,
    /// The payments that a provider settled.
    pub settled: u64,
    /// The refused calls.
    pub refusals: u64,
    /// The requested approvals.
    pub approvals: u64,
    /// The approvals that were approved or rejected.
    pub decided: u64,
    /// The payouts.
    pub payouts: u64,
}

impl FleetCounts {
    /// The counts that `GET /usage` has too.
    fn sums(&self) -> String {
        let Self {
            payments,
            units,
            refusals,
            approvals,
            ..
        } = self;
        format!("{payments} payments of {units} units, {refusals} refusals, {approvals} approvals")
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
#[derive(Clone)]
struct Member {
    id: String,
    key: String,
}

/// The fleet of a running stack. Clones share it.
#[derive(Clone)]
struct Fleet {
    calls: Calls,
    market: Arc<Market>,
    plan: Arc<Plan>,
    /// The created agents by their place in the plan.
    members: Arc<Mutex<BTreeMap<usize, Member>>>,
    /// The ids of approvals by the serial of their purchase.
    approvals: Arc<Mutex<BTreeMap<u64, String>>>,
    counts: Arc<Mutex<FleetCounts>>,
}

/// Fills the stack. `say` receives progress messages.
pub async fn fill(stack: StackFile, size: FleetSize, say: impl Fn(&str)) -> Result<FleetCounts, FleetError> {
    let calls = Calls::new(stack);
    calls.sign_in().await?;
    let fleet = Fleet {
        market: Arc::new(Market::read(&calls).await?),
        calls,
        plan: Arc::new(Plan::new(size)),
        members: Arc::default(),
        approvals: Arc::default(),
        counts: Arc::default(),
    };
    if fleet.is_there().await? {
        return Err(FleetError::Filled);
    }
    // Days are UTC days, as in the usage.
    let now = fleet.calls.now().await?;
    let midnight = Timestamp::from_secs((now.secs() / DAY_SECONDS).saturating_add(1).saturating_mul(DAY_SECONDS));
    let first = midnight.ok_or(FleetError::Unreadable("ahead_seconds"))?;
    let mut start = first;
    for (day, slots) in fleet.plan.days.iter().enumerate() {
        fleet.create(day, start).await?;
        for slot in slots {
            fleet.calls.advance_to(after(start, slot.second)).await?;
            let mut by_agent: BTreeMap<usize, Vec<Act>> = BTreeMap::new();
            for act in &slot.acts {
                by_agent.entry(act.agent()).or_default().push(act.clone());
            }
            let works = by_agent.into_values().map(|acts| {
                let fleet = fleet.clone();
                async move {
                    for act in acts {
                        fleet.act(&act).await?;
                    }
                    Ok(())
                }
            });
            together(works).await?;
        }
        let counts = *fleet.counts();
        say(&format!("day {} of {}: {counts}", day.saturating_add(1), size.days));
        start = start.after(Duration::DAY);
    }
    say("waiting until the journal has everything");
    fleet.journal(first).await
}

const DAY_SECONDS: u64 = 86_400;

fn after(time: Timestamp, seconds: u64) -> Timestamp {
    time.after(Duration::from_secs_u32(u32::try_from(seconds).unwrap_or(u32::MAX)))
}

/// Runs all works, up to [`AT_ONCE`] at a time, until the first one fails.
async fn together(
    works: impl Iterator<Item = impl Future<Output = Result<(), FleetError>> + Send + 'static>,
) -> Result<(), FleetError> {
    let mut running = JoinSet::new();
    for work in works {
        if running.len() >= AT_ONCE
            && let Some(ended) = running.join_next().await
        {
            ended??;
        }
        running.spawn(work);
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    fn counts(&self) -> MutexGuard<'_, FleetCounts> {
        locked(&self.counts)
    }

    fn count(&self, of: impl Fn(&mut FleetCounts) -> &mut u64, more: u64) {
        let mut counts = self.counts();
        let counted = of(&mut counts);
        *counted = counted.saturating_add(more);
    }

    fn member(&self, agent: usize) -> Result<Member, FleetError> {
        locked(&self.members)
            .get(&agent)
            .cloned()
            .ok_or(FleetError::Unreadable("agent_id"))
    }

    /// Whether an earlier run has begun to fill the stack.
    async fn is_there(&self) -> Result<bool, FleetError> {
        let answer = self.calls.owner(Method::GET, "/agents?limit=100", &Value::Null).await?;
        let agents = answer.ok()?;
        let named = |agent: &Value| {
            let name = agent.get("name").and_then(Value::as_str);
            self.plan
                .agents
                .iter()
                .any(|planned| Some(planned.name.as_str()) == name)
        };
        let agents = agents.get("agents").and_then(Value::as_array);
        Ok(agents.is_some_and(|agents| agents.iter().any(named)))
    }

    /// Creates the day's agents, from one o'clock on.
    async fn create(&self, day: usize, start: Timestamp) -> Result<(), FleetError> {
        let agents = self.plan.agents.iter().enumerate();
        let new = agents.filter(|(_, agent)| agent.created_on == day);
        let new: Vec<usize> = new.map(|(place, _)| place).collect();
        let mut second = 3_600;
        for some in new.chunks(AGENTS_A_MINUTE) {
            self.calls.advance_to(after(start, second)).await?;
            second = second.saturating_add(600);
            let works = some.iter().map(|place| {
                let (fleet, place) = (self.clone(), *place);
                async move { fleet.create_agent(place).await }
            });
            together(works).await?;
        }
        Ok(())
    }

    async fn create_agent(&self, place: usize) -> Result<(), FleetError> {
        let Some(agent) = self.plan.agents.get(place) else {
            return Ok(());
        };
        let owner = async |method, path: &str, body: &Value| self.calls.owner(method, path, body).await?.ok();
        let made = owner(Method::POST, "/agents", &json!({"name": agent.name})).await?;
        let id = text(&made, "agent_id")?;
        let path = format!("/agents/{id}");
        if made.get("labels").is_some() {
            owner(Method::PATCH, &path, &json!({"labels": agent.labels})).await?;
        }
        for policy in &agent.policies {
            let service = self.market.service(policy.priced_by.service)?;
            let path = format!("{path}/services/{service}");
            owner(Method::PATCH, &path, &self.policy(policy)?).await?;
        }
        for rule in &agent.rules {
            let mut body = rule.body.clone();
            if let Some((name, offer, percent)) = rule.amount {
                set(&mut body, name, self.market.units(offer, percent)?.into());
            }
            owner(Method::POST, &format!("{path}/rules"), &body).await?;
        }
        let issued = owner(Method::POST, &format!("{path}/keys"), &json!({})).await?;
        let units = self.funds(place, agent)?;
        if units > 0 {
            self.calls.fund(&text(&made, "wallet_address")?, units).await?;
        }
        let key = text(&issued, "key")?;
        locked(&self.members).insert(place, Member { id, key });
        self.count(|counts| &mut counts.agents, 1);
        Ok(())
    }

    /// An edit of a policy, with amounts.
    fn policy(&self, edit: &PolicyEdit) -> Result<Value, FleetError> {
        let mut body = edit.other.clone();
        for (name, percent) in [
            ("max_per_call_units", edit.per_call),
            ("max_per_day_units", edit.per_day),
            ("require_approval_above_units", edit.approval_above),
        ] {
            if let Some(percent) = percent {
                set(&mut body, name, self.market.units(edit.priced_by, percent)?.into());
            }
        }
        Ok(body)
    }

    /// What an agent needs for the whole plan.
    fn funds(&self, place: usize, agent: &PlannedAgent) -> Result<u64, FleetError> {
        if agent.role == Role::NoFunds {
            return Ok(0);
        }
        let mut units = SPARE_UNITS;
        let acts = self.plan.days.iter().flatten().flat_map(|slot| &slot.acts);
        for act in acts.filter(|act| act.agent() == place) {
            let spent = match act {
                Act::PayOut { units, .. } => *units,
                // What is asked for and refused, too: the balance is not what refuses it.
                Act::Pay(purchase, _) | Act::Ask(purchase) | Act::Refused(purchase, _) => {
                    self.market.units(purchase.offer, purchase.percent)?
                }
                Act::Use(_) | Act::Decide { .. } | Act::Freeze { .. } | Act::SetPayoutAddress { .. } => 0,
            };
            units = units.saturating_add(spent);
        }
        Ok(units)
    }

    async fn act(&self, act: &Act) -> Result<(), FleetError> {
        let Member { id, key } = self.member(act.agent())?;
        let path = format!("/agents/{id}");
        match act {
            Act::Pay(purchase, ending) => self.pay(&key, purchase, *ending, None).await,
            Act::Refused(purchase, error) => {
                let request = self.market.request(&self.calls, purchase)?;
                self.calls.agent(&key, AUTHORIZE, &request).await?.refused(error)?;
                self.count(|counts| &mut counts.refusals, 1);
                Ok(())
            }
            Act::Ask(purchase) => {
                let request = self.market.request(&self.calls, purchase)?;
                let asked = self.calls.agent(&key, AUTHORIZE, &request).await?;
                let approval = text(&asked.refused("approval_required")?, "approval_id")?;
                locked(&self.approvals).insert(purchase.serial, approval);
                self.count(|counts| &mut counts.approvals, 1);
                Ok(())
            }
            Act::Decide {
                approval,
                is_approved,
                note,
                ..
            } => {
                let verdict = if *is_approved { "approve" } else { "reject" };
                let approval = self.approval(*approval)?;
                let path = format!("{path}/approvals/{approval}/{verdict}");
                let note = (!note.is_empty()).then_some(*note);
                let body = json!({"note": note});
                self.calls.owner(Method::POST, &path, &body).await?.ok()?;
                self.count(|counts| &mut counts.decided, 1);
                Ok(())
            }
            Act::Use(purchase) => {
                let approval = self.approval(purchase.serial)?;
                self.pay(&key, purchase, Ending::Completed, Some(&approval)).await
            }
            Act::Freeze { .. } => {
                let body = json!({"status": "frozen"});
                self.calls.owner(Method::PATCH, &path, &body).await?.ok()?;
                Ok(())
            }
            Act::SetPayoutAddress { .. } => {
                let body = json!({"address": PAYOUT_ADDRESS});
                let path = format!("{path}/payout-address");
                self.calls.owner(Method::PUT, &path, &body).await?.ok()?;
                Ok(())
            }
            Act::PayOut { units, .. } => {
                let key = format!("payout-{}", self.counts().payments);
                let body = json!({"amount_units": units, "idempotency_key": key});
                self.calls
                    .owner(Method::POST, &format!("{path}/payouts"), &body)
                    .await?
                    .ok()?;
                self.count(|counts| &mut counts.payouts, 1);
                Ok(())
            }
        }
    }

    fn approval(&self, serial: u64) -> Result<String, FleetError> {
        let approval = locked(&self.approvals).get(&serial).cloned();
        approval.ok_or(FleetError::Unreadable("approval_id"))
    }

    async fn pay(
        &self,
        key: &str,
        purchase: &Purchase,
        ending: Ending,
        approval: Option<&str>,
    ) -> Result<(), FleetError> {
        let mut request = self.market.request(&self.calls, purchase)?;
        if let Some(approval) = approval {
            set(&mut request, "approval_id", approval.into());
        }
        let authorized = self.calls.agent(key, AUTHORIZE, &request).await?.ok()?;
        self.count(|counts| &mut counts.payments, 1);
        self.count(|counts| &mut counts.units, number(&authorized, "amount_units")?);
        if ending == Ending::Abandoned {
            return Ok(());
        }
        let payment = authorized.get("payment").ok_or(FleetError::Unreadable("payment"))?;
        let response = settle(&self.calls.chain, &text(payment, "header_value")?).await?;
        self.count(|counts| &mut counts.settled, 1);
        if ending == Ending::Unreported {
            return Ok(());
        }
        let settlement = text(&authorized, "settlement_id")?;
        let path = format!("/x402/settlements/{settlement}/complete");
        let body = json!({"payment_response_header": response});
        self.calls.agent(key, &path, &body).await?.ok()?;
        Ok(())
    }

    /// Waits until the journal has counted all calls since `first`.
    async fn journal(&self, first: Timestamp) -> Result<FleetCounts, FleetError> {
        let counts = *self.counts();
        let day = |time: Timestamp| time.to_string().chars().take(10).collect::<String>();
        let days = Range {
            start: day(first),
            end: day(self.calls.now().await?),
        };
        let path = format!("/usage?from={}&to={}", days.start, days.end);
        let mut counted = FleetCounts::default();
        for _ in 0..JOURNAL_ATTEMPTS {
            let usage = self.calls.owner(Method::GET, &path, &Value::Null).await?.ok()?;
            let total = usage.get("total").ok_or(FleetError::Unreadable("total"))?;
            counted = FleetCounts {
                payments: number(total, "allowed")?,
                units: number(total, "authorized_units")?,
                refusals: number(total, "blocked")?,
                approvals: number(total, "escalated")?,
                ..counts
            };
            if counted == counts {
                return Ok(counts);
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        Err(FleetError::Behind(counted.sums(), counts.sums()))
    }
}

const AUTHORIZE: &str = "/x402/authorize";
/// An address of the owner: Anvil's fourth account, which nothing else uses.
const PAYOUT_ADDRESS: &str = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
const JOURNAL_ATTEMPTS: usize = 120;

fn set(body: &mut Value, name: &str, value: Value) {
    if let Some(members) = body.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}
