//! Replays random paths of the models against the real store on the embedded database, and compares the rows after each
//! step.
//!
//! Each write of the model becomes a call of the store. The models here have no torn reads, no second attempts and no
//! separate evictions, because such steps can't be replayed.

use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{
    Address, Agent, AgentStatus, ApprovalId, ApprovalRequired, ApprovalResolution, B256, BlockId, BudgetLimit,
    DefaultServices, Duration, EnabledService, Fingerprint, FreezeChange, FreezeTarget, Grant, Network, NoncePrefix,
    OperatorFreeze, OperatorName, OperatorReason, OwnershipOffer, Purpose, Rule, RuleKind, Settlement, SettlementId,
    SettlementState, SettlementTerms, Timestamp, TransactionId, Transfer, UserId, WindowMeasure, WithdrawalAmount,
    WithdrawalGrant, WithdrawalInputs, WithdrawalPurpose, WithdrawalRecord, decide_withdrawal,
    find_authorized_transfer,
};
use purser_model::{
    handover::{self, Handover as HandoverModel},
    ledger::{
        self, Approval, ApprovalRuling, Entry, Ledger as Rows, Limit, Offer, Payouts, Record, Ruling, Scope, State,
        Tick, Window, Write,
    },
    reserve::{self, Act, Call, Reserve},
    settle::{self, Settle},
    world::{Flight, World},
};
use purser_store::{ApprovalDecision, Backoff, Claim, Ledger};
use purser_testkit::{
    DECISIONS, Emulator, LEDGER, Rng,
    authorize::{Request, authorize, grant},
    invariants::scan,
    sample,
};
use stateright::Model;
use std::collections::{BTreeMap, HashMap};

type Item = HashMap<String, AttributeValue>;

/// The maximum number of steps of a path.
const STEPS: usize = 40;

/// Returns the time of a tick. A tick is half a day.
fn at(tick: Tick) -> Timestamp {
    let half_days = sample::secs(43_200 * u32::from(tick.unsigned_abs()));
    if tick < 0 {
        sample::start().before(half_days)
    } else {
        sample::start().after(half_days)
    }
}

fn tick(micros: i64) -> Tick {
    Tick::try_from((micros - sample::start().micros()) / 43_200_000_000).unwrap()
}

/// Returns the id of the user with this number, in the format of the service's user ids.
fn person(number: u8) -> UserId {
    UserId::derive("https://issuer.example", &number.to_string())
}

fn owner_of(text: &str) -> u8 {
    (0..4).find(|number| person(*number).as_str() == text).unwrap()
}

/// The stored rows, and the ids that correspond to those of the model.
struct Real {
    emulator: Emulator,
    ledger: Ledger,
    /// The grants of the reservations, by the model's settlement id.
    grants: BTreeMap<u8, (Grant<'static>, SettlementTerms, Fingerprint)>,
    /// The store's id and the request of each settlement, by the model's settlement id.
    settlements: BTreeMap<u8, (SettlementId, u8)>,
    /// The records of the agent, by version.
    agents: BTreeMap<u8, Agent>,
    /// The records of withdrawals, by version.
    payouts: BTreeMap<u8, WithdrawalRecord>,
    /// The grants of the withdrawals, by the model's settlement id.
    payout_grants: BTreeMap<u8, (WithdrawalGrant, SettlementTerms)>,
    /// The amounts of the requests.
    amounts: BTreeMap<u8, i8>,
    /// The number of blocks in each fork of the chain.
    depth: u8,
}

fn key(number: u8) -> String {
    format!("key {number}")
}

fn text<'a>(item: &'a Item, name: &str) -> &'a str {
    item.get(name).map_or("", |value| value.as_s().unwrap())
}

fn number(item: &Item, name: &str) -> Option<i64> {
    item.get(name).map(|value| value.as_n().unwrap().parse().unwrap())
}

fn small<T: TryFrom<i64>>(value: i64) -> T {
    T::try_from(value).unwrap_or_else(|_| panic!("{value} is too large for a model"))
}

impl Real {
    /// Stores the rows of a model's initial state.
    async fn new(rows: &Rows, amounts: BTreeMap<u8, i8>, depth: u8, asks: bool) -> Self {
        let emulator = Emulator::start().await;
        let ledger = emulator.ledger();
        let mut agent = sample::agent(1, Vec::new());
        agent.owner = person(0).to_string();
        if asks {
            let (services, categories, above) = (None, None, None);
            let kind = RuleKind::ApprovalRequired(ApprovalRequired {
                services,
                categories,
                above,
            });
            let (id, version) = (sample::rule_id(9), 1);
            agent.rules.push(Rule { id, version, kind });
        }
        if rows.policy.is_none() {
            let set = DefaultServices::new([sample::service_id(1)]);
            agent.starting_set = Some(ledger.store_default_services(&set).await.unwrap());
        }
        ledger.create_agent(&agent, &sample::audit()).await.unwrap();
        let mut real = Self {
            emulator,
            ledger,
            grants: BTreeMap::new(),
            settlements: BTreeMap::new(),
            agents: BTreeMap::from([(1, agent)]),
            payouts: BTreeMap::from([(0, WithdrawalRecord::default())]),
            payout_grants: BTreeMap::new(),
            amounts,
            depth,
        };
        if let Some(policy) = rows.policy {
            real.put_policy(policy).await;
        }
        if let Some(rule) = rows.agent.budget {
            real.edit_agent(1, false, Some(rule.cap)).await;
        }
        if let Some((address, by, good)) = rows.payouts.address {
            let named = WithdrawalRecord::default();
            let named = named.with_address(
                Address::repeat_byte(address),
                &person(by),
                at(good),
                Duration::from_secs_u32(0),
            );
            real.put_payouts(1, named.unwrap()).await;
        }
        for (id, of) in &rows.settlements {
            let (request, now) = (real.request(of.key, of.request, None, of.amount), at(of.at));
            let (grant, terms) = grant(&real.ledger, &request, now).await;
            real.settlements.insert(*id, (terms.id, of.request));
            let fingerprint = request.fingerprint();
            let mut backoff = Backoff::new();
            let reserved = real.ledger.reserve_payment(&grant, &terms, &fingerprint, &mut backoff);
            reserved.await.unwrap();
        }
        for (number, record) in &rows.keys {
            if let Record::Escalated { request, .. } = record {
                let asked = real.request(*number, *request, None, real.amounts[request]);
                let decided = at(rows.approvals[&(*request, 0)].ends).before(Duration::DAY);
                authorize(&real.ledger, &asked, decided).await.unwrap();
            }
        }
        real
    }

    async fn put_policy(&self, policy: Limit) {
        let most = u64::from(policy.cap.unsigned_abs());
        let threshold = if policy.asks { 0 } else { most };
        let enabled = EnabledService {
            version: policy.version.into(),
            ..sample::enabled(sample::service_id(1), most, threshold)
        };
        let audit = sample::audit();
        let stored = self.ledger.put_policy(sample::agent_id(1), &enabled, &audit);
        stored.await.unwrap();
    }

    async fn edit_agent(&mut self, old: u8, frozen: bool, budget: Option<i8>) {
        let before = self.agents[&old].clone();
        let version = before.version + 1;
        let mut rules = before.rules.clone();
        if let Some(cap) = budget {
            let limit = sample::units(u64::from(cap.unsigned_abs()));
            let same =
                |rule: &Rule| matches!(rule.kind, RuleKind::BudgetLimit(BudgetLimit { limit: of, .. }) if of == limit);
            if !rules.iter().any(same) {
                let budget = sample::budget(1, limit.units(), sample::secs(43_200));
                rules = vec![Rule { version, ..budget }];
            }
        }
        let status = if frozen {
            AgentStatus::Frozen
        } else {
            AgentStatus::Active
        };
        let agent = Agent {
            version,
            status,
            rules,
            ..before
        };
        let stored = self.ledger.put_agent(&agent, &sample::audit()).await.unwrap();
        if stored == purser_store::UpdateResult::Stored {
            self.agents.insert(old + 1, agent);
        }
    }

    async fn put_payouts(&mut self, version: u8, record: WithdrawalRecord) {
        let audit = sample::audit();
        let stored = self.ledger.put_withdrawal_record(sample::agent_id(1), &record, &audit);
        if stored.await.unwrap() == purser_store::UpdateResult::Stored {
            self.payouts.insert(version, record);
        }
    }

    fn request(&self, of: u8, request: u8, approval: Option<u8>, amount: i8) -> Request {
        let amount = u64::from(amount.unsigned_abs());
        let request = Request {
            body: request.to_string(),
            ..Request::new(sample::agent_id(1), sample::service_id(1), amount, key(of))
        };
        let approval =
            approval.map(|number| ApprovalId::derive(sample::agent_id(1), &request.fingerprint(), number.into()));
        Request { approval, ..request }
    }

    /// Records the decision on which a write is based, when the model sends the write.
    async fn sent(&mut self, flight: &Flight, call: Option<Call>, now: Tick) {
        match &flight.write {
            Write::Reserve(of) if !self.settlements.contains_key(&of.id) => {
                let asked = self.request(of.key, of.request, of.approval, of.amount);
                self.decide(of.id, of.request, &asked, now + call.unwrap().skew).await;
            }
            Write::Default { .. } if call.is_some() => {
                let asked = call.unwrap();
                let request = self.request(asked.key, asked.request, asked.approval, asked.amount);
                let id = flight.by * 8;
                if !self.settlements.contains_key(&id) {
                    self.decide(id, asked.request, &request, now + asked.skew).await;
                }
            }
            Write::PayOut {
                id,
                key,
                seen,
                by,
                at: tick,
                ..
            } if !self.settlements.contains_key(id) => {
                let record = self.payouts[seen].clone();
                let facts = WithdrawalInputs {
                    agent: sample::agent_id(1),
                    owner: &person(*by),
                    record: &record,
                    frozen_by_operators: None,
                    open: None,
                    balance: sample::units(9),
                    asked: WithdrawalAmount::from_amount(sample::units(1)).unwrap(),
                    now: at(*tick),
                };
                let grant = decide_withdrawal(&facts).unwrap();
                let random = getrandom::u64().unwrap().to_be_bytes();
                let terms = SettlementTerms {
                    id: SettlementId::new_at(grant.decided_at(), random),
                    transaction: TransactionId::new_at(grant.decided_at(), random),
                    agent: grant.agent_id(),
                    wallet: sample::wallet(1),
                    network: Network::BaseSepolia,
                    amount: grant.amount(),
                    pay_to: grant.recipient(),
                    authorized_at: grant.decided_at(),
                    valid_before: grant.decided_at().after(Duration::from_secs_u32(300)),
                    idempotency_key: Fingerprint::for_text(&self::key(*key)),
                    nonce_prefix: NoncePrefix::from_nonce(B256::repeat_byte(0x11)),
                    transfers: 0,
                    purpose: Purpose::Payout(WithdrawalPurpose { by: person(*by) }),
                };
                self.settlements.insert(*id, (terms.id, 0));
                self.payout_grants.insert(*id, (grant, terms));
            }
            _ => {}
        }
    }

    async fn decide(&mut self, id: u8, of: u8, request: &Request, now: Tick) {
        let (grant, terms) = grant(&self.ledger, request, at(now)).await;
        self.settlements.insert(id, (terms.id, of));
        self.grants.insert(id, (grant, terms, request.fingerprint()));
    }

    /// Returns a settlement as a process of the model has read it.
    async fn settlement(&self, id: u8, state: Option<SettlementState>, counted_at: Option<Tick>) -> Settlement {
        let real = self.settlements[&id].0;
        let stored = self
            .ledger
            .read_settlement_by_id(sample::agent_id(1), real)
            .await
            .unwrap()
            .unwrap();
        Settlement {
            state: state.unwrap_or(stored.state),
            counted_at: counted_at.map_or(stored.counted_at, at),
            ..stored
        }
    }

    /// Returns a settlement's transfer in this transaction and block.
    fn transfer(&self, settlement: &Settlement, tx: u8, log: u8, block: u8) -> Transfer {
        let mut logs = sample::transaction(settlement, sample::tx_hash(tx + 1));
        logs.block = self.block(block);
        for of in &mut logs.logs {
            of.index += u64::from(log) * 2;
        }
        find_authorized_transfer(&sample::expected(settlement), &logs).unwrap()
    }

    fn height(&self, block: u8) -> u8 {
        if block == 0 { 0 } else { (block - 1) % self.depth + 1 }
    }

    fn block(&self, block: u8) -> BlockId {
        BlockId {
            number: u64::from(self.height(block)),
            hash: B256::repeat_byte(block),
        }
    }

    /// Applies a write through the store.
    async fn make(&mut self, write: &Write, read: Option<(State, Tick)>, log: u8, now: Tick, beside: bool) {
        let ledger = self.ledger.clone();
        let audit = sample::audit();
        match write.clone() {
            Write::Default { agent } => {
                let agent = self.agents[&agent].clone();
                ledger
                    .try_write_default_policy(&agent, sample::service_id(1))
                    .await
                    .unwrap();
            }
            Write::Reserve(of) => {
                let (grant, terms, fingerprint) = &self.grants[&of.id];
                let mut backoff = Backoff::new();
                let reserved = ledger.reserve_payment(grant, terms, fingerprint, &mut backoff);
                reserved.await.unwrap();
            }
            Write::Escalate { key, request, new, .. } => {
                let amount = self.amounts[&request];
                let asked = self.request(key, request, None, amount);
                // The model's approval expires one day after the request, so the request's time is one day earlier.
                let decided = at(new.unwrap().1).before(Duration::DAY);
                authorize(&ledger, &asked, decided).await.unwrap();
            }
            Write::Rule {
                approval: (request, number),
                by,
                at: tick,
                ruling,
            } => {
                let asked = self.request(0, request, Some(number), self.amounts[&request]);
                let ruled = ApprovalResolution {
                    at: at(tick),
                    by: person(by).to_string(),
                    note: None,
                };
                let id = asked.approval.unwrap();
                match ruling {
                    ApprovalRuling::Approve => {
                        ledger
                            .resolve_approval(id, ApprovalDecision::Approve, &ruled, &audit)
                            .await
                    }
                    ApprovalRuling::Reject => {
                        ledger
                            .resolve_approval(id, ApprovalDecision::Reject, &ruled, &audit)
                            .await
                    }
                    ApprovalRuling::Withdraw => ledger.withdraw_approval(id, &ruled, &audit).await,
                }
                .unwrap();
            }
            Write::EditAgent { old, frozen, budget } => self.edit_agent(old, frozen, budget).await,
            Write::Fence { agent } => ledger.fence_windows(&self.agents[&agent]).await.unwrap(),
            Write::EditPolicy { old, cap, asks } => {
                let version = old + 1;
                self.put_policy(Limit { version, cap, asks }).await;
            }
            Write::Freeze(frozen) => {
                let target = FreezeTarget::Agent(sample::agent_id(1));
                let stored = ledger.read_operator_freeze(&target).await.unwrap();
                let freeze = OperatorFreeze {
                    target: target.clone(),
                    reason: OperatorReason::parse("why").unwrap(),
                    by: OperatorName::parse("ann").unwrap(),
                    at: at(now),
                    end_asked_by: None,
                };
                let by = freeze.by.clone();
                let change = if frozen {
                    FreezeChange::begin_freeze(stored, freeze)
                } else {
                    FreezeChange::end_freeze(target, stored, &by, false)
                };
                ledger.change_freeze(&change.unwrap(), &audit).await.unwrap();
            }
            Write::Claim {
                settlement,
                place: (_, tx, _),
                block,
            }
            | Write::ConfirmReleased {
                settlement,
                place: (_, tx, _),
                block,
                ..
            }
            | Write::Move {
                settlement,
                place: (_, tx, _),
                block,
            } => {
                let (state, counted_at) = read.unwrap();
                let confirmed = match state {
                    State::Authorized => SettlementState::Authorized,
                    State::Expired => SettlementState::Expired,
                    State::Confirmed { tx, block } => self.confirmed(tx, block),
                };
                let of = self.settlement(settlement, Some(confirmed), Some(counted_at)).await;
                let transfer = self.transfer(&of, tx, log, block);
                if let SettlementState::Confirmed { .. } = of.state {
                    ledger.update_confirmation_block(&of, &transfer).await.unwrap();
                } else {
                    let claim = if beside { Claim::Transfer } else { Claim::Transaction };
                    ledger.confirm_settlement(&of, &transfer, claim, at(now)).await.unwrap();
                }
            }
            // The store confirms a withdrawal and stores its claim in one call.
            Write::Confirm {
                settlement,
                place: (_, tx, _),
            } => {
                let of = self.settlement(settlement, None, None).await;
                let transfer = self.transfer(&of, tx, 0, 1);
                ledger
                    .confirm_settlement(&of, &transfer, Claim::Transfer, at(now))
                    .await
                    .unwrap();
            }
            Write::Release {
                settlement, counted_at, ..
            } => {
                let of = self
                    .settlement(settlement, Some(SettlementState::Authorized), Some(counted_at))
                    .await;
                ledger.release_hold(&of, &sample::unusable(&of)).await.unwrap();
            }
            Write::Revert {
                settlement,
                tx,
                decision,
            } => {
                let block = match read {
                    Some((State::Confirmed { block, .. }, _)) => block,
                    _ => 1,
                };
                let of = self.settlement(settlement, Some(self.confirmed(tx, block)), None).await;
                let decision = TransactionId::new_at(at(0), [decision; 8]);
                let gone = sample::transfer_gone(&of);
                let reverted = ledger.revert_confirmation(&of, &gone, decision, at(now));
                reverted.await.unwrap();
            }
            Write::RemoveClaim {
                place: (height, tx, log),
                block,
            } => {
                let claims = ledger
                    .read_claims_in_block(Network::BaseSepolia, height.into())
                    .await
                    .unwrap();
                // A transaction can have a claim as a whole, and further claims for single transfers.
                let (_, (by, _)) = claim_rows(&scan(&self.emulator.client, LEDGER, None).await, |id| self.id_of(id))
                    .into_iter()
                    .find(|(place, _)| *place == (height, tx, log))
                    .unwrap();
                let gone = claims.iter().filter(|claim| {
                    claim.tx_hash == sample::tx_hash(tx + 1)
                        && claim.block_hash == B256::repeat_byte(block)
                        && claim.settlement == self.settlements[&by].0
                });
                for claim in gone {
                    ledger.try_remove_claim(claim).await.unwrap();
                }
            }
            Write::PutPayouts { old, address, .. } => {
                let before = self.payouts[&old].clone();
                let next = match address {
                    Some((to, by, good)) => {
                        let named = at(good).before(sample::secs(43_200));
                        before.with_address(Address::repeat_byte(to), &person(by), named, sample::secs(43_200))
                    }
                    None => before.without_address(),
                };
                self.put_payouts(old + 1, next.unwrap()).await;
            }
            Write::PayOut { id, .. } => {
                let (grant, terms) = &self.payout_grants[&id];
                let fingerprint = Fingerprint::for_text("request");
                let mut backoff = Backoff::new();
                let reserved = ledger.reserve_withdrawal(grant, terms, &fingerprint, &audit, &mut backoff);
                if reserved.await.unwrap() == purser_store::ReserveWithdrawalResult::Done {
                    let record = ledger.read_withdrawal_record(sample::agent_id(1)).await.unwrap();
                    self.payouts.insert(small(record.version.try_into().unwrap()), record);
                }
            }
            Write::Offer { to, at: tick, ends } => {
                ledger
                    .store_ownership_offer(&offer(to, tick, ends), &audit)
                    .await
                    .unwrap();
            }
            Write::TakeBack => ledger
                .remove_ownership_offer(sample::agent_id(1), &audit)
                .await
                .unwrap(),
            Write::HandOver { old, to, at: tick } => {
                let agent = self.agents[&old.version].clone();
                let handed = ledger
                    .transfer_agent(&agent, &offer(to, tick, 100), at(tick), &audit)
                    .await
                    .unwrap();
                if handed == purser_store::TransferAgentResult::Done {
                    let next = ledger.read_agent_by_id(agent.id).await.unwrap().unwrap();
                    self.agents.insert(old.version + 1, next);
                }
            }
            Write::MoveApproval {
                approval: (request, number),
                old,
                new,
            } => {
                let asked = self.request(0, request, Some(number), self.amounts[&request]);
                let mut approval = ledger
                    .read_approval_by_id(asked.approval.unwrap())
                    .await
                    .unwrap()
                    .unwrap();
                approval.owner = person(old).to_string();
                ledger
                    .move_approval_to_owner(&approval, person(new).as_str(), at(0))
                    .await
                    .unwrap();
            }
            Write::Evict { .. } | Write::ConfirmClaimed { .. } => {
                panic!("{write:?} is part of another call")
            }
        }
    }

    fn confirmed(&self, tx: u8, block: u8) -> SettlementState {
        SettlementState::Confirmed {
            tx_hash: sample::tx_hash(tx + 1),
            block_number: block.into(),
            settled_at: at(0),
        }
    }

    fn id_of(&self, text: &str) -> u8 {
        let found = self.settlements.iter().find(|(_, (real, _))| real.to_string() == text);
        *found.unwrap_or_else(|| panic!("settlement {text}")).0
    }

    /// Converts the stored rows to those of a model.
    async fn rows(&self, model: &Rows) -> Rows {
        let items = scan(&self.emulator.client, LEDGER, None).await;
        let of = |pk: &str, sk: &str| -> Vec<&Item> {
            let fits = |item: &&Item| text(item, "pk").starts_with(pk) && text(item, "sk").starts_with(sk);
            items.iter().filter(fits).collect()
        };
        let id_of = |text: &str| self.id_of(text);
        let key_of = |bytes: &[u8]| -> u8 {
            let fits = |number: &u8| Fingerprint::for_text(&key(*number)).to_string() == hex(bytes);
            (0..=u8::MAX).find(fits).unwrap()
        };
        let agent = self
            .ledger
            .read_agent_by_id(sample::agent_id(1))
            .await
            .unwrap()
            .unwrap();
        let mut rules = agent.counting_rules();
        let budget = rules.find(|rule| rule.counted == WindowMeasure::Amounts);
        let budget = budget.map(|budget| Limit {
            version: small(budget.rule.version.try_into().unwrap()),
            cap: small(budget.limit.units().try_into().unwrap()),
            asks: false,
        });
        let policy = of("P#", "").first().map(|item| {
            let most = number(item, "mpd").unwrap();
            Limit {
                version: small(number(item, "ver").unwrap()),
                cap: if most > 100 { 100 } else { small(most) },
                asks: number(item, "raa") == Some(0),
            }
        });
        let mut windows = BTreeMap::new();
        for (scope, prefix, horizon) in [(Scope::Day, "L#", "hz86400"), (Scope::Budget, "B#", "hz43200")] {
            let Some(totals) = of(prefix, "#W").first().copied() else {
                continue;
            };
            let mut entries: Vec<Entry> = of(prefix, "E#")
                .iter()
                .map(|item| {
                    let (at, id) = text(item, "sk")[2..].split_once('#').unwrap();
                    Entry {
                        at: tick(at.parse().unwrap()),
                        settlement: id_of(id),
                        amount: small(number(item, "amt").unwrap()),
                    }
                })
                .collect();
            entries.sort_unstable();
            let window = Window {
                total: small(number(totals, "total").unwrap_or(0)),
                stamp: small(number(totals, "pver").unwrap()),
                agent: small(number(totals, "aver").unwrap_or(0)),
                // The store initializes the watermark of a new window with a time before the model's first tick.
                watermark: number(totals, horizon).map(tick).filter(|tick| *tick >= 0),
                entries,
            };
            windows.insert(scope, window);
        }
        let mut settlements = BTreeMap::new();
        for item in of("S#", "") {
            let id = id_of(text(item, "sk"));
            let state = match text(item, "rs") {
                "authorized" => State::Authorized,
                "expired" => State::Expired,
                _ => State::Confirmed {
                    tx: tx_of(text(item, "txh")),
                    block: small(number(item, "blk").unwrap()),
                },
            };
            let approval = item.get("apid").map(|_| 0);
            let is_payout = text(item, "kind") == "payout";
            let mut scopes = if is_payout { Vec::new() } else { vec![Scope::Day] };
            if item
                .get("budgets")
                .is_some_and(|budgets| !budgets.as_l().unwrap().is_empty())
            {
                scopes.push(Scope::Budget);
            }
            let authorized_at = number(item, "t").unwrap();
            let settlement = ledger::Settlement {
                key: key_of(item["idem"].as_b().unwrap().as_ref()),
                request: self.settlements[&id].1,
                approval,
                amount: small(number(item, "amt").unwrap()),
                at: tick(authorized_at),
                counted_at: tick(number(item, "ct").unwrap_or(authorized_at)),
                scopes,
                payout_to: is_payout.then(|| payee(text(item, "payto"))),
                state,
                held: !text(item, "hs").is_empty(),
                unclaimed: item.contains_key("unc"),
            };
            settlements.insert(id, settlement);
        }
        // Returns the request and the number of the approval with this id.
        let request_of = |id: &str| -> (u8, u8) {
            let mut known = self.amounts.keys();
            let request = known.find(|request| {
                let asked = self.request(0, **request, Some(0), self.amounts[request]);
                asked
                    .approval
                    .unwrap()
                    .to_string()
                    .replace('-', "")
                    .starts_with(&id.replace('-', "")[..24])
            });
            (*request.unwrap(), 0)
        };
        let keys = of("I#", "").into_iter().map(|item| {
            let digits = text(item, "sk");
            let number = (0..=u8::MAX).find(|number| Fingerprint::for_text(&key(*number)).to_string() == digits);
            let record = if text(item, "kind") == "allow" {
                let settlement = id_of(text(item, "sid"));
                let request = self.settlements[&settlement].1;
                Record::Allow { request, settlement }
            } else {
                let (request, approval) = request_of(text(item, "apid"));
                Record::Escalated { request, approval }
            };
            (number.unwrap(), record)
        });
        let approvals = of("AP#", "").into_iter().map(|item| {
            let ruling = match text(item, "st") {
                "pending" => Ruling::Pending,
                "approved" => Ruling::Approved,
                "rejected" => Ruling::Rejected,
                _ => Ruling::Executed(id_of(text(item, "sid"))),
            };
            let id = request_of(&text(item, "pk")[3..]);
            let approval = Approval {
                request: id.0,
                owner: owner_of(text(item, "owner")),
                ends: tick(number(item, "ends").unwrap()),
                ruling,
            };
            (id, approval)
        });
        let claims = claim_rows(&items, id_of);
        let record = self.ledger.read_withdrawal_record(agent.id).await.unwrap();
        let payouts = Payouts {
            address: record.address.map(|of| {
                let by = owner_of(of.named_by.as_str());
                (of.address.as_slice()[0], by, tick(of.good_from.micros()))
            }),
            latest: record.latest.map(|id| id_of(&id.to_string())),
            version: small(record.version.try_into().unwrap()),
        };
        let payout_keys = of("PO#", "K#").into_iter().map(|item| {
            let digits = &text(item, "sk")[2..];
            let number = (0..=u8::MAX).find(|number| Fingerprint::for_text(&key(*number)).to_string() == digits);
            (number.unwrap(), id_of(text(item, "sid")))
        });
        let offer = self
            .ledger
            .read_ownership_offer(agent.id)
            .await
            .unwrap()
            .map(|offer| Offer {
                to: owner_of(offer.to.as_str()),
                at: tick(offer.at.micros()),
                ends: tick(offer.ends_at.micros()),
            });
        let decisions = scan(&self.emulator.client, DECISIONS, None).await;
        let reverts = decisions
            .iter()
            .filter(|item| text(item, "result") == "take_back")
            .count();
        assert_eq!(reverts, model.reverts.len());
        let freezes = self.ledger.read_effective_freezes().await.unwrap();
        Rows {
            agent: ledger::Agent {
                version: small(agent.version.try_into().unwrap()),
                frozen: agent.is_frozen(),
                owner: owner_of(&agent.owner),
                budget,
            },
            policy,
            windows,
            keys: keys.collect(),
            payout_keys: payout_keys.collect(),
            settlements,
            approvals: approvals.collect(),
            frozen: freezes.agents.contains(&sample::agent_id(1)),
            claims: claims.into_iter().collect(),
            payouts,
            offer,
            reverts: model.reverts.clone(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .concat()
}

fn tx_of(hash: &str) -> u8 {
    u8::from_str_radix(&hash[2..4], 16).unwrap() - 1
}

fn payee(address: &str) -> u8 {
    u8::from_str_radix(&address[2..4], 16).unwrap()
}

fn offer(to: u8, tick: Tick, ends: Tick) -> OwnershipOffer {
    OwnershipOffer {
        agent: sample::agent_id(1),
        to: person(to),
        reason: OperatorReason::parse("why").unwrap(),
        by: OperatorName::parse("ann").unwrap(),
        at: at(tick),
        ends_at: at(ends),
    }
}

/// Returns the writes that an action applies without a separate step, from the states before and after the action.
type Direct<M> = fn(&<M as Model>::State, &<M as Model>::Action, &<M as Model>::State) -> Vec<Write>;

/// How an action of the model is replayed against the store.
enum Kind {
    /// Applies the write at this index.
    Land(usize),
    /// The action can't be replayed.
    Skip,
    /// Any other action.
    Other,
}

/// Replays a random path of a model. Returns the number of writes.
#[expect(clippy::too_many_arguments, reason = "each is what one model has of its own")]
async fn replay<M: Model>(
    model: &M,
    seed: u64,
    mut real: Real,
    world: fn(&M::State) -> &World,
    kind: fn(&M::Action) -> Kind,
    call: impl Fn(u8) -> Option<Call>,
    judged: impl Fn(&M::State, &Flight) -> Option<(State, Tick, u8, bool)>,
    direct: Direct<M>,
) -> usize
where
    M::Action: std::fmt::Debug + Clone,
    M::State: std::fmt::Debug,
{
    let mut rng = Rng::from_seed(seed + 1);
    let mut draw = |most: usize| usize::try_from(rng.below(u64::try_from(most).unwrap())).unwrap();
    let states = model.init_states();
    let mut state = states.into_iter().next().unwrap();
    let mut path = Vec::new();
    let mut made = 0;
    assert_eq!(
        real.rows(&world(&state).ledger).await,
        world(&state).ledger,
        "at the beginning"
    );
    for _ in 0..STEPS {
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        actions.retain(|action| !matches!(kind(action), Kind::Skip));
        if actions.is_empty() {
            break;
        }
        let action = actions.swap_remove(draw(actions.len()));
        let Some(next) = model.next_state(&state, action.clone()) else {
            continue;
        };
        path.push(format!("{action:?}"));
        let now = world(&state).now;
        let mut before = world(&state).flights.clone();
        if let Kind::Land(index) = kind(&action) {
            let flight = before.remove(index);
            let (read, log, beside) = match judged(&state, &flight) {
                Some((paid, counted_at, log, beside)) => (Some((paid, counted_at)), log, beside),
                None => (None, 0, false),
            };
            real.make(&flight.write, read, log, now, beside).await;
            made += 1;
        }
        for write in direct(&state, &action, &next) {
            real.make(&write, None, 0, now, false).await;
            made += 1;
        }
        for flight in &world(&next).flights {
            if let Some(old) = before.iter().position(|known| known == flight) {
                before.remove(old);
            } else {
                real.sent(flight, call(flight.by), world(&next).now).await;
            }
        }
        let (is, should) = (real.rows(&world(&next).ledger).await, &world(&next).ledger);
        assert_eq!(is, *should, "seed {seed}, after {path:#?}");
        state = next;
    }
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn model_traces_of_payments_and_updates_replay_on_the_store() {
    let mut made = 0;
    for model in purser_model::scenarios::reserves(purser_model::scenarios::Bound::Small) {
        let evicts = |act: &Act| matches!(act, Act::Evict(_));
        let model = Reserve {
            acts: model.acts.iter().copied().filter(|act| !evicts(act)).collect(),
            attempts: 1,
            torn: false,
            whole: true,
            ..model
        };
        for seed in 0..4 {
            let amounts = model.calls.iter().map(|call| (call.request, call.amount)).collect();
            let rows = &model.init_states()[0].world.ledger;
            let real = Real::new(rows, amounts, 1, false).await;
            let land = |action: &reserve::Action| match action {
                reserve::Action::Land(index) => Kind::Land(*index),
                // The store updates the agent and its window in one call, so a crash between both can't be replayed.
                reserve::Action::KillAct(_) => Kind::Skip,
                _ => Kind::Other,
            };
            let call = |by: u8| model.calls.get(usize::from(by)).copied();
            let none = |_: &reserve::State, _: &reserve::Action, _: &reserve::State| Vec::new();
            made += replay(&model, seed, real, |state| &state.world, land, call, |_, _| None, none).await;
        }
    }
    assert!(made > 50, "{made} writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn model_traces_of_settlements_replay_on_the_store() {
    let mut made = 0;
    for model in purser_model::scenarios::settles(purser_model::scenarios::Bound::Small) {
        let model = Settle {
            faults: 0,
            spends: false,
            whole: true,
            ticks: 1,
            fork: true,
            ..model
        };
        for seed in 0..12 {
            let rows = &model.init_states()[0].world.ledger;
            let amounts = (0..model.settlements).map(|id| (id, 2)).collect();
            let real = Real::new(rows, amounts, model.depth, false).await;
            let land = |action: &settle::Action| match action {
                settle::Action::Land(index) => Kind::Land(*index),
                _ => Kind::Other,
            };
            let judged = |state: &settle::State, flight: &Flight| {
                let tx = match flight.write {
                    Write::Claim { place: (_, tx, _), .. }
                    | Write::ConfirmReleased { place: (_, tx, _), .. }
                    | Write::Move { place: (_, tx, _), .. } => tx,
                    _ => 0,
                };
                model.judged(state, flight.by, tx)
            };
            let none = |_: &settle::State, _: &settle::Action, _: &settle::State| Vec::new();
            made += replay(&model, seed, real, |state| &state.world, land, |_| None, judged, none).await;
        }
    }
    assert!(made > 30, "{made} writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn model_traces_of_withdrawals_replay_on_the_store() {
    let mut made = 0;
    for model in purser_model::scenarios::payouts(purser_model::scenarios::Bound::Small) {
        for seed in 0..8 {
            let rows = &model.init_states()[0].world.ledger;
            let real = Real::new(rows, BTreeMap::new(), 1, false).await;
            let land = |action: &purser_model::payout::Action| match action {
                purser_model::payout::Action::Land(index) => Kind::Land(*index),
                _ => Kind::Other,
            };
            made += replay(
                &model,
                seed,
                real,
                |state| &state.world,
                land,
                |_| None,
                |_, _| None,
                ends,
            )
            .await;
        }
    }
    assert!(made > 50, "{made} writes");
}

/// Returns the claims among these rows, each with its settlement and its block.
fn claim_rows(items: &[Item], id_of: impl Fn(&str) -> u8) -> Vec<(ledger::Place, (u8, u8))> {
    let claims = items.iter().filter(|item| text(item, "pk").starts_with("X#"));
    let claim = |item: &Item| {
        let height: u8 = text(item, "pk").split('#').nth(2).unwrap().parse().unwrap();
        let (hash, log) = match text(item, "sk").split_once('#') {
            Some((hash, log)) => (hash, Some(log.parse::<u8>().unwrap() / 2)),
            None => (text(item, "sk"), None),
        };
        let block = item["bh"].as_b().unwrap().as_ref()[0];
        ((height, tx_of(hash), log), (id_of(text(item, "sid")), block))
    };
    claims.map(claim).collect()
}

/// Returns the withdrawal model's writes that no request sends.
fn ends(
    before: &purser_model::payout::State,
    action: &purser_model::payout::Action,
    after: &purser_model::payout::State,
) -> Vec<Write> {
    use purser_model::payout::Action;
    match action {
        Action::End(settlement, true) => vec![Write::Confirm {
            settlement: *settlement,
            place: (1, *settlement, None),
        }],
        Action::End(settlement, false) => vec![Write::Release {
            settlement: *settlement,
            counted_at: before.world.ledger.settlements[settlement].counted_at,
            scopes: Vec::new(),
        }],
        Action::Revert(settlement) => {
            let decisions = after.world.ledger.reverts.difference(&before.world.ledger.reverts);
            let revert = |decision: &u8| Write::Revert {
                settlement: *settlement,
                tx: *settlement,
                decision: *decision,
            };
            decisions.map(revert).collect()
        }
        Action::HandOver => {
            let (to, at, ends) = (1, 0, 1);
            let old = before.world.ledger.agent.clone();
            vec![Write::Offer { to, at, ends }, Write::HandOver { old, to, at }]
        }
        Action::Freeze => vec![Write::Freeze(true)],
        _ => Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn model_traces_of_ownership_transfers_replay_on_the_store() {
    let mut made = 0;
    let models = purser_model::scenarios::handovers(purser_model::scenarios::Bound::Small);
    // The store reads the agent's owner in the call that requests an approval, so this separate read can't be replayed.
    let asks = |model: &HandoverModel| model.acts.iter().any(|act| matches!(act, handover::Act::Ask(_)));
    for model in models.into_iter().filter(|model| !asks(model)) {
        for seed in 0..12 {
            let rows = &model.init_states()[0].world.ledger;
            let real = Real::new(rows, BTreeMap::from([(1, 2)]), 1, true).await;
            let land = |action: &handover::Action| match action {
                handover::Action::Land(index) => Kind::Land(*index),
                _ => Kind::Other,
            };
            let none = |_: &handover::State, _: &handover::Action, _: &handover::State| Vec::new();
            made += replay(
                &model,
                seed,
                real,
                |state| &state.world,
                land,
                |_| None,
                |_, _| None,
                none,
            )
            .await;
        }
    }
    assert!(made > 50, "{made} writes");
}
