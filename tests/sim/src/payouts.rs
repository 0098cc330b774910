//! Withdrawals, and the facilitator that submits them to the chain. Each response is compared with one computed from
//! the stored rows.

use crate::chain::{Call, Tx};
use crate::network::World;
use crate::people::agent_id;
use crate::run::{Begun, Run, signed_in};
use crate::stored::StoredState;
use crate::tables::{bytes, number, text};
use axum::body::Body;
use axum::http::Request;
use purser_api::{
    DIRECT_PATH, NewWithdrawalAddress, PaymentsRequest, RequestedWithdrawal, ReservedWithdrawal, WithdrawalOwner,
    WithdrawalResponse,
};
use purser_domain::{
    Acting, Actor, Address, Amount, Fingerprint, RequestSource, UserId, WithdrawalAmount, WithdrawalRejection,
};
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
    fn asker(&self, agent: u8) -> WithdrawalOwner {
        let id = agent_id(agent);
        let stored = self.world.record().stored.clone();
        let owner = stored.agent(&id.to_string()).map(|row| text(row, "owner").to_owned());
        let id_of_owner = owner.as_deref().and_then(UserId::parse).expect("an owner");
        let acting = Acting {
            actor: Actor::Person {
                id: id_of_owner,
                session: None,
            },
            source: RequestSource::new(None, None, "simulation"),
        };
        WithdrawalOwner::new(id, &acting)
    }

    async fn ask_payments(
        &self,
        worker: usize,
        request: &PaymentsRequest,
    ) -> Option<(u16, Option<WithdrawalResponse>)> {
        let worker = &self.workers[worker];
        let body = json!({"version": 1, "caller": {"request_id": "simulation", "trace_id": ""}, "request": request});
        let request = Request::post(DIRECT_PATH).header("content-type", "application/json");
        let request = request.body(Body::from(body.to_string())).expect("a request");
        let calling = async {
            let response = worker.direct.clone().oneshot(request).await.expect("infallible");
            let status = response.status().as_u16();
            let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await;
            (status, serde_json::from_slice(&bytes.expect("a body")).ok())
        };
        tokio::select! {
            biased;
            () = worker.link.crashed() => None,
            answer = calling => Some(answer),
        }
    }

    /// Sets or removes an agent's withdrawal address.
    pub(crate) async fn name_payout(&self, worker: usize, agent: u8, place: Option<u8>, begun: Begun) -> String {
        let of = self.asker(agent);
        let request = match place {
            Some(place) => PaymentsRequest::NamePayoutAddress(NewWithdrawalAddress {
                of,
                address: address(place).to_string(),
            }),
            None => PaymentsRequest::RemovePayoutAddress(of),
        };
        let answer = self.ask_payments(worker, &request).await;
        let faults_seen = self.ended(worker);
        match answer {
            None => "crashed".to_owned(),
            Some((200, Some(WithdrawalResponse::Done {}))) => {
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
            Some((200, Some(WithdrawalResponse::Rejected(WithdrawalRejection::NotSetUp)))) if !self.setting.payouts => {
                "not set up".to_owned()
            }
            Some((200, Some(WithdrawalResponse::NotFound {}))) if !begun.alone => "not found".to_owned(),
            Some((status, answer)) => {
                if faults_seen.faults.is_empty() {
                    self.world
                        .complain(format!("naming a payout address: {status} {answer:?} without cause"));
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
        let amount = match units {
            0 => WithdrawalAmount::Balance,
            units => WithdrawalAmount::Units(Amount::from_units(units.into()).expect("an amount")),
        };
        let words = format!("payout {key}");
        let request = PaymentsRequest::PayOut(RequestedWithdrawal::new(self.asker(agent), amount, words.clone()));
        self.note_asker(number, &begun);
        let before = self.world.record().stored.clone();
        let answer = self.ask_payments(worker, &request).await;
        let faults_seen = self.ended(worker);
        let Some((status, answer)) = answer else {
            return "crashed".to_owned();
        };
        let Some(answer) = answer.filter(|_| status == 200) else {
            if faults_seen.faults.is_empty() && begun.alone {
                self.world.complain(format!("a payout: {status} without cause"));
            }
            return "failed".to_owned();
        };
        if let WithdrawalResponse::Reserved(reserved) = &answer {
            let id = reserved.settlement.to_string();
            let place = FIRST_PAYOUT + key;
            let known = self.memory(agent, place, |memory| {
                memory.settlement.get_or_insert_with(|| id.clone()).clone()
            });
            if known != id {
                self.world
                    .complain(format!("a second payout of one key: {known} and {id}"));
            }
        }
        let told = name_of(&answer);
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
                    .complain(format!("a payout was answered {answer:?}; expected {expected:?}"));
            }
        }
        told.to_owned()
    }
}

fn name_of(answer: &WithdrawalResponse) -> &'static str {
    match answer {
        WithdrawalResponse::Done {} => "done",
        WithdrawalResponse::Reserved(ReservedWithdrawal { replayed: false, .. }) => "reserved",
        WithdrawalResponse::Reserved(ReservedWithdrawal { replayed: true, .. }) => "replayed",
        WithdrawalResponse::NotFound {} => "not found",
        WithdrawalResponse::WrongAddress { .. } => "wrong address",
        WithdrawalResponse::KeyReused { .. } => "key reused",
        WithdrawalResponse::Rejected(rejection) => match rejection {
            WithdrawalRejection::NotSetUp => "not set up",
            WithdrawalRejection::Frozen(_) => "frozen",
            WithdrawalRejection::NoAddress => "no address",
            WithdrawalRejection::AddressWaits { .. } => "address waits",
            WithdrawalRejection::PayoutOpen { .. } => "payout open",
            WithdrawalRejection::InsufficientBalance { .. } => "insufficient balance",
        },
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
