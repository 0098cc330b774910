//! Withdrawals, and the facilitator that submits them to the chain. Each response is compared with one computed from
//! the stored rows.

use crate::chain::{Call, Tx};
use crate::network::World;
use crate::people::agent_id;
use crate::run::{Begun, Run, signed_in};
use crate::stored::StoredState;
use crate::tables::{bytes, number, text};
use axum::body::Body;
use axum::http::{Method, Request};
use purser_api::DirectUser;
use purser_domain::{Address, Fingerprint};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// The first index of withdrawals among an agent's idempotency keys. Purchases have lower indices.
pub(crate) const FIRST_PAYOUT: u8 = 240;

fn address(place: u8) -> Address {
    Address::repeat_byte(0xd0 + place)
}

impl World {
    /// Responds to the facilitator's `settle`: submits the transfer to the chain.
    pub(crate) fn submit_payout(&self, body: &[u8]) -> (u16, Vec<u8>) {
        let request: Value = serde_json::from_slice(body).expect("what payments writes");
        let signed = signed_in(&request["paymentPayload"]).expect("an authorization");
        let found = {
            let record = self.record();
            let mut payouts = record
                .stored
                .settlements()
                .filter(|(_, _, row)| text(row, "kind") == "payout");
            payouts.any(|(_, id, row)| record.known.signed(id, row) == signed)
        };
        if !found {
            self.complain(format!("{signed:?} is signed, and no stored payout"));
        }
        let mut chain = self.chain();
        let (hash, at) = (chain.new_hash(), chain.time());
        chain.submit(Tx {
            hash,
            calls: vec![Call::Use(signed)],
            at,
        });
        let answer =
            json!({"success": true, "transaction": hash.to_string(), "network": crate::chain::NETWORK.caip2()});
        (200, answer.to_string().into_bytes())
    }
}

impl Run {
    /// Returns the owner of an agent, who requests the withdrawal.
    /// Returns the agent's stored owner, who sends the requests.
    fn owner(&self, agent: u8) -> DirectUser {
        let stored = self.world.record().stored.clone();
        let row = stored.agent(&agent_id(agent).to_string()).expect("an owner");
        let user = json!({"id": text(row, "owner"), "request_id": "simulation"});
        serde_json::from_value(user).expect("a user")
    }

    /// Sends a direct request to a route of the agent, and returns the status and the body of the response.
    async fn ask_payments(
        &self,
        worker: usize,
        (method, route): (Method, &str),
        agent: u8,
        body: Option<Value>,
    ) -> Option<(u16, Value)> {
        let worker = &self.workers[worker];
        let request = Request::builder()
            .method(method)
            .uri(format!("/agents/{}/{route}", agent_id(agent)))
            .extension(self.owner(agent));
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = request.body(body).expect("a request");
        let calling = async {
            let response = worker.direct.clone().oneshot(request).await.expect("infallible");
            let status = response.status().as_u16();
            let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await;
            (status, serde_json::from_slice(&bytes.expect("a body")).expect("JSON"))
        };
        tokio::select! {
            biased;
            () = worker.link.crashed() => None,
            answer = calling => Some(answer),
        }
    }

    /// Sets or removes an agent's withdrawal address.
    pub(crate) async fn name_payout(&self, worker: usize, agent: u8, place: Option<u8>, begun: Begun) -> String {
        let (method, body) = match place {
            Some(place) => (Method::PUT, Some(json!({"address": address(place).to_string()}))),
            None => (Method::DELETE, None),
        };
        let answer = self.ask_payments(worker, (method, "payout-address"), agent, body).await;
        let faults_seen = self.ended(worker);
        let Some((status, answer)) = answer else {
            return "crashed".to_owned();
        };
        match name_of(status, &answer) {
            "done" => {
                let stored = self.world.record().stored.clone();
                let row = stored.row(&format!("PO#{}", agent_id(agent)), "#");
                let named = row.map_or("", |row| text(row, "addr"));
                let wanted = place.map(|place| address(place).to_string()).unwrap_or_default();
                if self.undisturbed(&begun, &faults_seen) && !named.eq_ignore_ascii_case(&wanted) {
                    self.world
                        .complain(format!("the payout address is {named:?}, and should be {wanted:?}"));
                }
                "done".to_owned()
            }
            "not set up" if !self.setting.payouts => "not set up".to_owned(),
            "not found" if !begun.alone => "not found".to_owned(),
            _ => {
                if faults_seen.faults.is_empty() {
                    self.world
                        .complain(format!("naming a payout address: {status} {answer} without cause"));
                }
                "failed".to_owned()
            }
        }
    }

    pub(crate) async fn pay_out(
        &self,
        number: usize,
        worker: usize,
        (agent, units, key): (u8, u16, u8),
        begun: Begun,
    ) -> String {
        let units_or_balance = Some(units).filter(|units| *units > 0);
        let words = format!("payout {key}");
        let body = json!({"amount_units": units_or_balance, "idempotency_key": words});
        self.note_asker(number, &begun);
        let before = self.world.record().stored.clone();
        let answer = self
            .ask_payments(worker, (Method::POST, "payouts"), agent, Some(body))
            .await;
        let faults_seen = self.ended(worker);
        let Some((status, answer)) = answer else {
            return "crashed".to_owned();
        };
        let told = name_of(status, &answer);
        if told == "failed" {
            if faults_seen.faults.is_empty() && begun.alone {
                self.world.complain(format!("a payout: {status} without cause"));
            }
            return "failed".to_owned();
        }
        if let Some(id) = answer["settlement"].as_str().map(str::to_owned) {
            let place = FIRST_PAYOUT + key;
            let known = self.memory(agent, place, |memory| {
                memory.settlement.get_or_insert_with(|| id.clone()).clone()
            });
            if known != id {
                self.world
                    .complain(format!("a second payout of one key: {known} and {id}"));
            }
        }
        if self.undisturbed(&begun, &faults_seen) {
            let instants = [begun.clock, self.world.clock_of(worker)];
            let expected = instants.map(|at| {
                expected(
                    &before,
                    agent,
                    units,
                    &Fingerprint::for_text(&words),
                    &faults_seen.balances,
                    at,
                )
            });
            if !expected.contains(&told) {
                self.world
                    .complain(format!("a payout was answered {answer}; expected {expected:?}"));
            }
        }
        told.to_owned()
    }
}

fn name_of(status: u16, answer: &Value) -> &'static str {
    let field = |name: &str| answer[name].as_str().unwrap_or_default();
    match (status, field("error"), field("reason")) {
        (200, ..) if answer.is_null() => "done",
        (200, ..) if answer["replayed"] == true => "replayed",
        (200, ..) => "reserved",
        (404, ..) => "not found",
        (400, ..) => "wrong address",
        (409, "idempotency_key_reused_for_different_request", _) => "key reused",
        (409, _, "not_set_up") => "not set up",
        (409, _, "no_payout_address") => "no address",
        (409, _, "payout_address_waits") => "address waits",
        (409, _, "payout_open") => "payout open",
        (409, _, "insufficient_balance") => "insufficient balance",
        (409, "payout_refused", _) => "frozen",
        _ => "failed",
    }
}

/// Returns the expected response for the stored rows.
fn expected(stored: &StoredState, agent: u8, units: u16, key: &Fingerprint, balances: &[u64], at: i64) -> &'static str {
    let id = agent_id(agent).to_string();
    let partition = format!("PO#{id}");
    if let Some(used) = stored.row(&partition, &format!("K#{key}")) {
        let same = Fingerprint::for_text(&match units {
            0 => "payout\nbalance".to_owned(),
            units => format!("payout\n{units}"),
        });
        return if bytes(used, "rh") == same.as_bytes() {
            "replayed"
        } else {
            "key reused"
        };
    }
    if stored.stopped(&id) {
        return "frozen";
    }
    let owner = stored.agent(&id).map_or("", |row| text(row, "owner"));
    let record = stored.row(&partition, "#");
    let Some(record) = record.filter(|record| record.contains_key("addr") && text(record, "by") == owner) else {
        return "no address";
    };
    if at < number(record, "good") {
        return "address waits";
    }
    let latest = stored.settlement(&id, text(record, "last"));
    if latest.is_some_and(|latest| text(latest, "rs") == "authorized") {
        return "payout open";
    }
    let asked = u64::from(units);
    if balances.iter().any(|balance| *balance < asked.max(1)) {
        return "insufficient balance";
    }
    "reserved"
}

impl Run {
    fn note_asker(&self, number: usize, begun: &Begun) {
        let who = crate::laws::Caller {
            key: String::new(),
            from: begun.clock,
            call: [0; 8],
            payee: [0; 12],
        };
        self.world.record().known.callers.insert(number, who);
    }
}
