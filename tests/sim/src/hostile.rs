//! The calls of a hostile agent, and checks that the calls affect no other agent.
//!
//! Only an agent's own calls may cause a 429 response to the agent. Other agents' calls get their responses in time.

use crate::network::FaultsSeen;
use crate::people::agent_id;
use crate::plan::{Buy, Hostility, KEYS, SERVICES, Setting, Twist, WORKERS};
use crate::run::{Answer, Begun, Run};
use purser_domain::Timestamp;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The maximum number of calls per API key and per address in a minute, of an agent's payments in 15 minutes, and of
/// its pending approvals.
struct Limits {
    key: usize,
    address: usize,
    payments: usize,
    waiting: usize,
}

/// Limits that a run with many agents reaches.
const LOW: Limits = Limits {
    key: 40,
    address: 90,
    payments: 20,
    waiting: 6,
};

/// The service's default limits. The limit per address does not apply, because agents call without an address.
const USUAL: Limits = Limits {
    key: 600,
    address: 1_000_000,
    payments: 9_000,
    waiting: 20,
};

/// The maximum response time without concurrent calls for the same agent. A call makes about twenty sequential calls of
/// up to 13 ms.
const PROMPT: Duration = Duration::from_millis(500);
/// The maximum response time with concurrent calls for the same agent.
const IN_TIME: Duration = Duration::from_secs(10);

const fn limits_of(crowd: bool) -> Limits {
    if crowd { LOW } else { USUAL }
}

/// Returns the limits as the functions' environment variables.
pub(crate) fn limits(crowd: bool) -> [(&'static str, String); 4] {
    let Limits {
        key,
        address,
        payments,
        waiting,
    } = limits_of(crowd);
    [
        ("KEY_REQUESTS_PER_MINUTE", key),
        ("THROTTLE_PER_MINUTE", address),
        ("MAX_HOLDS_PER_AGENT", payments),
        ("MAX_OPEN_APPROVALS", waiting),
    ]
    .map(|(name, limit)| (name, limit.to_string()))
}

pub(crate) const fn most_waiting(setting: Setting) -> usize {
    limits_of(setting.crowd).waiting
}

/// Returns the address from which an owner's agents call.
pub(crate) fn address_of(owner: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, owner).into()
}

/// The earlier calls that count against a call's limits.
pub(crate) struct Counted {
    of_key: usize,
    of_address: usize,
}

impl Run {
    /// Counts an agent's call, and returns the earlier calls of the same minute. A call with a wrong secret is not
    /// counted.
    pub(crate) fn note_call(&self, worker: usize, agent: u8, key: &str) -> Counted {
        let minute = self.world.clock_of(worker) / 60_000_000;
        let is_its_own = self.agents()[usize::from(agent)].keys.iter().any(|known| known == key);
        let mut record = self.world.record();
        let mut count = |what: String| {
            let calls = record.calls.entry((what, minute)).or_default();
            *calls += 1;
            *calls - 1
        };
        Counted {
            of_key: if is_its_own { count(key.to_owned()) } else { 0 },
            of_address: count(address_of(crate::plan::owner_of(agent)).to_string()),
        }
    }

    /// Checks that the agent's own calls caused a 429 response.
    pub(crate) fn judge_limit(&self, agent: u8, counted: &Counted) {
        let limits = limits_of(self.setting.crowd);
        let id = agent_id(agent).to_string();
        let (payments, waiting, miscounted) = {
            let record = self.world.record();
            let payments = record.stored.within(&format!("S#{id}"), "").count();
            // The agents of one owner share an address.
            let same = crate::plan::agents_of(crate::plan::owner_of(agent));
            let same: Vec<String> = same.into_iter().map(|agent| agent_id(agent).to_string()).collect();
            let its_own = |step: &usize| record.known.acting.get(step).is_some_and(|agent| same.contains(agent));
            let miscounted = record.miscounted.iter().filter(|(step, _)| its_own(step));
            let miscounted: usize = miscounted.map(|(_, count)| count).sum();
            (payments, record.stored.waiting(&id, 0), miscounted)
        };
        let reached = [
            ("key", counted.of_key + miscounted >= limits.key),
            ("address", counted.of_address + miscounted >= limits.address),
            ("payments", payments + miscounted >= limits.payments),
            ("approvals", waiting >= limits.waiting),
        ];
        match reached.iter().find(|(_, is_reached)| *is_reached) {
            Some((what, _)) => self.world.count(format!("limited by its {what}")),
            None => self.world.complain(format!(
                "agent {agent} is refused after {} calls with its key and {} from its address, with {payments} payments and \
                 {waiting} approvals",
                counted.of_key, counted.of_address
            )),
        }
    }

    /// Checks that a call without faults got its response in time.
    pub(crate) fn judge_wait(&self, answer: &Answer, begun: &Begun, faults_seen: &FaultsSeen) {
        let most = if begun.alone { PROMPT } else { IN_TIME };
        if faults_seen.faults.is_empty() && answer.took > most {
            self.world
                .complain(format!("an answer took {:?}, and no fault explains it", answer.took));
        }
        if begun.alone && self.setting.crowd {
            self.world.count("in time beside others");
        }
    }

    pub(crate) async fn attack(
        &self,
        number: usize,
        worker: usize,
        (agent, victim): (u8, u8),
        how: Hostility,
        begun: Begun,
    ) -> String {
        let name = format!("{how:?}");
        let name = name.split(['(', ' ']).next().unwrap_or_default();
        let may_write = matches!(
            how,
            Hostility::Questions(_) | Hostility::TheirTransaction | Hostility::Raise { .. }
        );
        if !may_write {
            self.world.record().known.idle.insert(number);
        }
        let own = self.key_of(agent, false);
        let theirs = agent_id(victim).to_string();
        let id = agent_id(agent).to_string();
        let what = match how {
            Hostility::Flood(count) => {
                let path = format!("/agents/{id}/settlements");
                self.often(number, worker, (agent, &own), &path, count).await
            }
            Hostility::Guess(count) => {
                let (public, _) = self.key_of(victim, false).split_once(':').map_or_else(
                    || unreachable!("a key has two halves"),
                    |(public, secret)| (public.to_owned(), secret.to_owned()),
                );
                let secret = own.split_once(':').map_or("", |(_, secret)| secret);
                let guessed = format!("{public}:{secret}");
                let path = format!("/agents/{theirs}/settlements");
                self.often(number, worker, (agent, &guessed), &path, count).await
            }
            Hostility::Questions(count) => self.questions(number, worker, agent, count, begun).await,
            Hostility::BadBody(which) => {
                let body = Some(bad_body(which));
                self.refused(worker, (agent, &own), "/x402/authorize", body, &[400, 413])
                    .await
            }
            Hostility::TheirSettlement => match self.first_of(victim, |memory| memory.settlement.clone()) {
                None => "nothing of theirs".to_owned(),
                Some(settlement) => {
                    let path = format!("/x402/settlements/{settlement}");
                    self.refused(worker, (agent, &own), &path, None, &[404]).await;
                    let hash = self.first_of(victim, |memory| memory.transaction);
                    let hash = hash.map_or_else(|| format!("0x{}", "ab".repeat(32)), |hash| hash.to_string());
                    let body = json!({"payment_response_header": json!({
                        "success": true, "transaction": hash, "network": crate::chain::NETWORK.caip2(),
                    }).to_string()});
                    let path = format!("{path}/complete");
                    self.workers_begin(worker, number);
                    self.refused(worker, (agent, &own), &path, Some(body.to_string()), &[404])
                        .await
                }
            },
            Hostility::TheirApproval => match self.first_of(victim, |memory| memory.approval) {
                None => "nothing of theirs".to_owned(),
                Some(approval) => {
                    let Some(key) = self.unused_key(agent) else {
                        return "no key is left".to_owned();
                    };
                    let buy = buy(agent, key, 100);
                    self.authorize_with(number, worker, buy, Some(approval), false, begun)
                        .await
                }
            },
            Hostility::TheirReceipts => {
                let path = format!("/agents/{theirs}/settlements");
                self.refused(worker, (agent, &own), &path, None, &[404]).await
            }
            Hostility::TheirTransaction => {
                let hash = self.first_of(victim, |memory| memory.transaction);
                let key = (0..u8::MAX).find(|key| self.memory(agent, *key, |memory| memory.payment.is_some()));
                match (hash, key) {
                    (Some(hash), Some(key)) => self.prove(worker, agent, key, Some(hash), begun).await,
                    _ => "nothing of theirs".to_owned(),
                }
            }
            Hostility::Raise { theirs } => {
                let of = if theirs { victim } else { agent };
                self.ask_for_raise(number, worker, (agent, &own), of, begun).await
            }
        };
        self.ended(worker);
        format!("{name} {what}")
    }

    /// Returns the first value that `of` returns for one of the agent's idempotency keys.
    fn first_of<T>(&self, agent: u8, of: impl Fn(&mut crate::run::Memory) -> Option<T>) -> Option<T> {
        (0..=u8::MAX).find_map(|key| self.memory(agent, key, &of))
    }

    /// Makes a call that must be rejected with one of these statuses, with 401 for an expired key, or with 429.
    async fn refused(
        &self,
        worker: usize,
        by: (u8, &str),
        path: &str,
        body: Option<String>,
        statuses: &[u16],
    ) -> String {
        let method = if body.is_some() { "POST" } else { "GET" };
        let Some(answer) = self.call(worker, by, method, path, body).await else {
            return "crashed".to_owned();
        };
        let faults_seen = self.ended(worker);
        let status = answer.status;
        let is_scoped = answer.body["error"] == "key_not_allowed" && !self.has_wide_key(by.0);
        let is_expected = statuses.contains(&status) || [401, 429].contains(&status) || is_scoped;
        if !is_expected && faults_seen.faults.is_empty() {
            self.world.complain(format!(
                "{path} of another agent was answered {status}: {}",
                answer.body
            ));
        }
        status.to_string()
    }

    /// Makes sequential calls. Checks that a limit stops them if they are within a minute and without faults.
    async fn often(&self, number: usize, worker: usize, by: (u8, &str), path: &str, count: u8) -> String {
        let minute = || self.world.clock_of(worker) / 60_000_000;
        let (first, mut refused, mut faults) = (minute(), 0_usize, 0);
        for _ in 0..count {
            let answer = self.call(worker, by, "GET", path, None).await;
            let faults_seen = self.ended(worker);
            faults += faults_seen.faults.len();
            match answer.map(|answer| answer.status) {
                None => return "crashed".to_owned(),
                Some(429) => refused += 1,
                Some(200 | 401) => {}
                Some(403) if !self.has_wide_key(by.0) => {}
                Some(status) if faults_seen.faults.is_empty() => self
                    .world
                    .complain(format!("one of many calls was answered {status} without cause")),
                Some(_) => {}
            }
            self.workers_begin(worker, number);
        }
        let is_own = self.agents()[usize::from(by.0)].keys.iter().any(|known| known == by.1);
        let limits = limits_of(self.setting.crowd);
        // A process stores its count of calls only sometimes, so the service may accept more calls than the limit.
        let most = if is_own {
            limits.key + 2 * WORKERS
        } else {
            limits.address
        };
        if first == minute() && faults == 0 && usize::from(count) > most + refused {
            self.world.complain(format!(
                "{count} calls within a minute, and only {refused} were refused"
            ));
        }
        if refused == 0 { "answered" } else { "limited" }.to_owned()
    }

    /// Requests many approvals, each for a different amount.
    async fn questions(&self, number: usize, worker: usize, agent: u8, count: u8, begun: Begun) -> String {
        let mut last = String::new();
        for _ in 0..count {
            let Some(key) = self.unused_key(agent) else { break };
            let begun = self.begun(worker, begun.alone, begun.owner());
            let buy = buy(agent, key, 241 + u16::from(key));
            last = self.authorize_with(number, worker, buy, None, false, begun).await;
            self.world.count(format!("Questions {last}"));
            self.workers_begin(worker, number);
        }
        last
    }

    /// Requests a temporary limit increase after a denial of the agent `of`.
    async fn ask_for_raise(&self, number: usize, worker: usize, by: (u8, &str), of: u8, begun: Begun) -> String {
        if of == by.0 && self.first_of(of, |memory| memory.refusal.clone()).is_none() {
            // A price of 600 exceeds nearly all caps per call, so the agent can request an increase.
            let Some(key) = self.unused_key(of) else {
                return "no key is left".to_owned();
            };
            self.authorize_with(number, worker, buy(of, key, 600), None, false, begun)
                .await;
            self.workers_begin(worker, number);
        }
        let Some(refusal) = self.first_of(of, |memory| memory.refusal.clone()) else {
            return "nothing refused".to_owned();
        };
        let now = Timestamp::from_micros(self.world.clock_of(worker)).expect("an instant");
        let body = json!({
            "transaction_id": refusal,
            "max_per_call_units": 5_000,
            "until": now.after(purser_domain::Duration::from_secs_u32(3_600)).to_string(),
            "reason": "a bigger order",
        });
        // A repeated request has another end time, and is therefore rejected with 400.
        let expected: &[u16] = if of == by.0 { &[200, 400] } else { &[404] };
        self.refused(worker, by, "/x402/raises", Some(body.to_string()), expected)
            .await
    }

    /// Begins the next call of the same step, without faults.
    fn workers_begin(&self, worker: usize, number: usize) {
        self.link_of(worker).begin(number, 7, Vec::new());
    }
}

fn buy(agent: u8, key: u8, units: u16) -> Buy {
    debug_assert!(key >= KEYS, "a key that no plan uses");
    Buy {
        agent,
        key,
        service: agent % SERVICES,
        units,
        secs: 300,
        twist: Twist::Plain,
    }
}

/// Returns a body that authorize rejects as invalid.
fn bad_body(which: u8) -> String {
    match which {
        0 => String::new(),
        1 => "{".to_owned(),
        2 => "[".repeat(4_000),
        3 => json!({"payment_requirement": {}, "max_payment_units": -1}).to_string(),
        4 => json!({"payment_requirement": {"accepts": vec![json!({}); 500]}, "idempotency_key": "k"}).to_string(),
        5 => json!({"idempotency_key": "k".repeat(100_000)}).to_string(),
        6 => format!("{{\"max_payment_units\": 1{}}}", "0".repeat(400)),
        _ => "\u{0}\u{feff}null".to_owned(),
    }
}
