//! Callers that each make one payment, and retry failed calls as `docs/errors.md` says.

use crate::Size;
use crate::phase::Plan;
use crate::place::{Payer, Place};
use crate::report::{Call, Report};
use purser_testkit::chain::payment_of;
use purser_tests::{Answer, Request, body_of};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The time for which a caller retries a call.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The time after which a caller whose key was rotated has the new key.
const ROTATION: Duration = Duration::from_millis(100);
/// One payment out of this number is authorized but never made.
const LOST: u64 = 50;
/// The maximum number of concurrent payments.
const MAX_AT_ONCE: usize = 20_000;

/// A payment that Purser authorized.
#[derive(Clone, Debug)]
pub struct Payment {
    /// The index of the agent.
    pub payer: usize,
    pub settlement: String,
    pub units: u64,
    pub is_made: bool,
}

/// Starts each payment of the run at its time, and waits until all payments have ended.
pub async fn pay(place: &Arc<Place>, size: &Size, plan: Plan, report: &Arc<Report>) {
    let started = Instant::now();
    let mut callers = JoinSet::new();
    for number in 0..u64::from(size.rate) * u64::from(size.seconds) {
        let due = started + Duration::from_micros(number * 1_000_000 / u64::from(size.rate));
        tokio::time::sleep_until(due.into()).await;
        while let Some(ended) = callers.try_join_next() {
            ended.expect("a caller ends");
        }
        assert!(
            callers.len() < MAX_AT_ONCE,
            "this machine does not carry {} payments a second",
            size.rate
        );
        let caller = Caller {
            place: Arc::clone(place),
            report: Arc::clone(report),
            plan,
            started,
            payer: usize::try_from(number).expect("a number") % size.agents,
        };
        callers.spawn(caller.makes(number, due));
    }
    while let Some(ended) = callers.join_next().await {
        ended.expect("a caller ends");
    }
}

struct Caller {
    place: Arc<Place>,
    report: Arc<Report>,
    plan: Plan,
    started: Instant,
    payer: usize,
}

impl Caller {
    /// Makes one payment.
    async fn makes(self, number: u64, due: Instant) {
        let payer = &self.place.payers[self.payer];
        let body = body_of(self.place.world.offer(1_000 + number % 997));
        let authorizing = |key: &str| Request::post(key, "/x402/authorize", &body);
        let Some(authorized) = self.insists(Call::Authorize, due, authorizing).await else {
            return;
        };
        if authorized.status != 200 {
            let is_capped = payer.cap.is_some() && authorized.slug() == "daily_spend_limit_exceeded";
            if !is_capped {
                self.report
                    .wrong(format!("authorize: {} {}", authorized.status, authorized.body));
            }
            return;
        }
        let authorized = authorized.body;
        let settlement = authorized["settlement_id"].as_str().expect("an id").to_owned();
        let hash = (!number.is_multiple_of(LOST)).then(|| self.place.node.pay_now(&authorized));
        self.place.payments.lock().expect("not poisoned").push(Payment {
            payer: self.payer,
            settlement: settlement.clone(),
            units: payment_of(&authorized).amount.units(),
            is_made: hash.is_some(),
        });
        let Some(hash) = hash else { return };
        let path = format!("/x402/settlements/{settlement}/complete");
        let proof = json!({"payment_response_header": {"success": true, "transaction": hash}});
        let paid = Instant::now();
        let completing = |key: &str| Request::post(key, &path, &proof);
        let Some(receipt) = self.insists(Call::Complete, paid, completing).await else {
            return;
        };
        if receipt.status != 200 || receipt.body["receipt_status"] != "confirmed" {
            self.report
                .wrong(format!("complete: {} {}", receipt.status, receipt.body));
        }
    }

    /// Repeats a call until its response is final, and records the latency since `due`. Returns `None` after
    /// [`PATIENCE`].
    async fn insists(&self, call: Call, due: Instant, request: impl Fn(&str) -> Request) -> Option<Answer> {
        let phase = self.plan.at(due - self.started);
        let payer: &Payer = &self.place.payers[self.payer];
        loop {
            let key = payer.key();
            let answer = self.place.send(&request(&key)).await;
            let pause = match &answer {
                // The process crashed, and the gateway responds with 500.
                None => Duration::ZERO,
                Some(answer) => match pause_of(answer) {
                    Some(pause) => pause,
                    // The agent's key was rotated during the call.
                    None if answer.slug() == "invalid_agent_key" => ROTATION,
                    None => {
                        self.report.answered(call, phase, due.elapsed());
                        return Some(answer.clone());
                    }
                },
            };
            if (due + PATIENCE).saturating_duration_since(Instant::now()) <= pause {
                let last = answer.map_or(Value::Null, |answer| answer.body);
                let still = self.plan.at(self.started.elapsed());
                self.report
                    .gave_up(call, phase, phase.excuses() || still.excuses(), &last);
                return None;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// Returns the time before the next attempt (`docs/errors.md`, section 2); `None` if the response is final.
fn pause_of(answer: &Answer) -> Option<Duration> {
    let seconds = || {
        let header = answer.headers.get("retry-after").and_then(|value| value.to_str().ok());
        Duration::from_secs(header.and_then(|value| value.parse().ok()).unwrap_or(1))
    };
    match answer.status {
        429 | 503 => Some(seconds()),
        422 if answer.body["retryable"] == true => Some(seconds()),
        500 => Some(Duration::ZERO),
        _ => None,
    }
}
