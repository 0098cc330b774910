//! Searches for the most that an adversary with an agent's key can take without an approval.
//!
//! Each [`Plan`] of payments runs against the real evaluator and the conditions of `shared/store`. The search moves
//! plans towards each limit's bound ([`bounds`]), and shrinks and prints a plan that exceeds one. `PURSER_SEARCH_RUNS`
//! sets the number of runs.
//!
//! Purser does not see bodies, so an adversary can state a false body hash. The amounts and the number of such calls
//! are bounded, but not their repetition.
#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops where its ground is missing"
)]

use purser_domain::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use uuid::Uuid;

/// The runs for each agent without `PURSER_SEARCH_RUNS`.
const DEFAULT_RUNS: u64 = 300;
/// The maximum number of steps and of payments in a plan.
const MAX_STEPS: usize = 16;
const MAX_CALLS: u32 = 300;
/// After this many consecutive denials, the adversary continues with the next step.
const MAX_DENIALS: u32 = 4;
/// How long a signed payment can be submitted, in seconds.
const LIFETIME: u32 = 300;
const KNOWN_PAYEE: &str = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
const NEW_PAYEE: &str = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
/// The method, the price in micro-USDC and the payee of each operation.
const OPERATIONS: [(&str, u64, &str); 3] = [
    ("GET", 700_000, KNOWN_PAYEE),
    ("POST", 10_000, KNOWN_PAYEE),
    ("GET", 700_000, NEW_PAYEE),
];
const MAX_PRICE: u64 = 2_000_000;
const WAITS: [u32; 14] = [0, 0, 1, 9, 20, 59, 60, 299, 301, 600, 3_599, 3_600, 43_200, 86_400];
const AMOUNTS: [u64; 11] = [
    1, 9_999, 10_000, 12_000, 15_000, 15_001, 700_000, 840_000, 1_000_000, 1_000_001, MAX_PRICE,
];
/// The busiest hour of each past day, in micro-USDC.
const USUAL_HOUR: u64 = 300_000;

/// The request for a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    service: usize,
    operation: usize,
    query: u32,
    /// How the URL is spelled: see [`Call::url`].
    spelling: u32,
    body: u32,
    target: u32,
    amount: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The payment moves, and the agent reports the payment.
    Reported,
    /// The payment moves, and the reconciliation finds the payment.
    Unreported,
    /// The payment is never made, and is released.
    Unpaid,
}

/// A step of a plan: several equal payments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// The seconds before the step.
    wait: u32,
    /// Whether the reconciliation runs before the step.
    reconciles: bool,
    call: Call,
    times: u32,
    /// The seconds between the payments.
    spacing: u32,
    /// Whether each payment of the step has a different query.
    rotates: bool,
    /// Whether all payments of the step are first decided on the state before the step.
    races: bool,
    fate: Fate,
}

type Plan = Vec<Step>;

impl Call {
    /// Returns the URL. The provider treats all spellings of a query alike.
    fn url(&self) -> Url {
        let path = format!("https://lab{}.example/{}", self.service, self.operation);
        let query = self.query;
        let text = match self.spelling % 6 {
            0 if query == 0 => path,
            1 if query == 0 => format!("{path}?"),
            2 if query == 0 => format!("{path}?&#{}", self.target),
            _ if query == 0 => format!("{path}#{}", self.spelling),
            0 => format!("{path}?a=1&q={query}"),
            1 => format!("{path}?q={query}&a=1"),
            2 => format!("{path}?a=1&&q={query}&"),
            _ => format!("{path}?a=1&q={query}#{}", self.spelling),
        };
        Url::parse(&text).unwrap()
    }

    /// Returns what the provider sees of the call.
    const fn effect(&self) -> (usize, usize, u32, u32) {
        let body = if self.operation == 1 { self.body } else { 0 };
        (self.service, self.operation, self.query, body)
    }

    fn offer(&self) -> Offer {
        let token = Network::BaseSepolia.token();
        let requirement = json!({
            "scheme": "exact", "network": "eip155:84532", "amount": self.amount.to_string(),
            "asset": token.address.to_string(), "payTo": OPERATIONS[self.operation].2, "maxTimeoutSeconds": 60,
            "extra": {"name": token.name, "version": token.version},
        });
        Offer::choose_cheapest(&requirement, Network::BaseSepolia).unwrap()
    }

    fn intent(&self, offer: Offer) -> Intent {
        let target = (self.target > 0).then(|| format!("https://target.example/{}", self.target));
        Intent {
            offer,
            max_payment: Amount::MAX,
            request: ProviderRequest {
                method: OPERATIONS[self.operation].0.to_owned(),
                url: self.url(),
                body_hash: Some(format!("{:064x}", self.body)),
            },
            service: None,
            operation: None,
            target: target.map(|url| Target::parse(&url).unwrap()),
            metadata: Metadata::default(),
            fingerprint: Fingerprint::for_text("x"),
        }
    }
}

fn units(units: u64) -> Amount {
    Amount::from_units(units).unwrap()
}

fn seconds(secs: u32) -> Duration {
    Duration::from_secs_u32(secs)
}

/// Monday, 2026-11-23, 15:00 UTC.
fn start() -> Timestamp {
    Timestamp::parse("2026-11-23T15:00:00Z").unwrap()
}

fn service(index: usize) -> Service {
    let url = |operation| format!("https://lab{index}.example/{operation}");
    let operations = (0..).zip(OPERATIONS).map(|(number, (method, price, payee))| Operation {
        id: OperationUuid::from_uuid(Uuid::from_u128(3)),
        slug: OperationSlug::parse(&format!("lab.operation-{number}")).unwrap(),
        availability: Availability::PaidX402,
        label: String::new(),
        method: method.into(),
        endpoint: Endpoint::parse(&url(number)).unwrap(),
        category: Category::Search,
        execution: "sync".into(),
        price_model: "fixed".into(),
        estimated_price: units(price),
        max_price: Some(units(MAX_PRICE)),
        params: json!({}),
        fetches_target: None,
        next: None,
        payment: Some(CatalogPayment {
            scheme: "exact".into(),
            network: Network::BaseSepolia,
            amount: units(price),
            pay_to: parse_address(payee).unwrap(),
        }),
    });
    Service {
        id: ServiceId::from_uuid(Uuid::from_u128(10 + u128::try_from(index).unwrap())),
        version: 1,
        slug: ServiceSlug::parse(&format!("lab{index}")).unwrap(),
        name: String::new(),
        description: String::new(),
        website: Url::parse(&url(0)).unwrap(),
        logo_url: None,
        category: Category::Search,
        source: "test".into(),
        trust_status: TrustStatus::Listed,
        curated: true,
        history: ListingHistory::default(),
        operations: operations.collect(),
    }
}

fn agent(rules: Vec<RuleKind>) -> Agent {
    let rules = (7..).zip(rules).map(|(id, kind)| Rule {
        id: RuleId::from_uuid(Uuid::from_u128(id)),
        version: 1,
        kind,
    });
    Agent {
        max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
        id: AgentId::from_uuid(Uuid::from_u128(1)),
        name: String::new(),
        owner: String::new(),
        created_at: Timestamp::EPOCH,
        status: AgentStatus::Active,
        wallet: Wallet {
            key: WalletKey::Seed { index: 0 },
            address: Address::repeat_byte(1),
            attestation: WalletAttestation::from_bytes([0; 65]),
        },
        keys: vec![],
        rules: rules.collect(),
        archived: false,
        labels: Labels::default(),
        starting_set: None,
        template: None,
        former_owners: Vec::new(),
        version: 1,
    }
}

/// The settings that do not change during a run.
struct World {
    /// The caps per call and per day of each service, in micro-USDC.
    caps: (u64, u64),
    agent: Agent,
    services: Vec<Service>,
    enabled: Vec<EnabledService>,
    offers: HashMap<(usize, u64), Offer>,
}

impl World {
    fn new(caps: Option<StartingCaps>, rules: Vec<RuleKind>) -> Self {
        let services: Vec<Service> = (0..2).map(service).collect();
        let enable = |service: &Service| {
            let services = DefaultServices::new([service.id]).with_caps(caps);
            services.default_policy(service.id).unwrap()
        };
        let units = |caps: StartingCaps| (caps.max_per_call.units(), caps.max_per_day.units());
        Self {
            caps: caps.map_or((u64::MAX, u64::MAX), units),
            enabled: services.iter().map(enable).collect(),
            agent: agent(rules),
            services,
            offers: HashMap::new(),
        }
    }
}

#[derive(Clone, Debug)]
struct Payment {
    id: SettlementId,
    at: Timestamp,
    call: Call,
    fate: Fate,
    is_pending: bool,
    /// Whether a rule compared the payee and the price. The store remembers only compared values.
    remembers: (bool, bool),
    /// The median of the operation's last three paid prices at the authorization.
    usual: u64,
    is_to_new_payee: bool,
}

/// The state of the store.
#[derive(Clone)]
struct Ledger {
    days: Vec<Window>,
    windows: Vec<(RuleId, Window)>,
    recent: Vec<RecentPayments>,
    is_frozen: bool,
    /// The services that the automatic freeze disabled.
    disabled: BTreeSet<usize>,
}

/// A grant's write, with the conditions.
struct Reservation {
    at: Timestamp,
    charges: Vec<(WindowScope, Amount, Amount, Timestamp, Vec<Entry>, Timestamp)>,
    recent: Option<RecentUpdate>,
    remembers: (bool, bool),
}

struct Run<'a> {
    world: &'a mut World,
    now: Timestamp,
    ledger: Ledger,
    payments: Vec<Payment>,
    /// The hourly sums without released payments.
    sums: BTreeMap<Hour, Amount>,
    /// The hourly sums by service, as `sums`.
    service_sums: BTreeMap<Hour, BTreeMap<ServiceId, Amount>>,
    /// The hours in which the automatic freeze disabled a service, with their sums at that time.
    braked: BTreeMap<Hour, Amount>,
    /// The paid prices by service and operation.
    prices: BTreeMap<(usize, usize), Vec<u64>>,
}

fn window(scope: WindowScope, period: WindowPeriod) -> Window {
    Window {
        scope,
        period,
        total: Amount::ZERO,
        version: 1,
        stamp: 1,
        watermark: Timestamp::EPOCH,
        oldest: Vec::new(),
        complete: true,
    }
}

impl Ledger {
    /// Begins with five days of honest payments to the known payee.
    fn new(world: &World) -> Self {
        let agent = world.agent.id;
        let day = |service: &Service| {
            let service = service.id;
            window(WindowScope::Day { agent, service }, WindowPeriod::DAY)
        };
        let earlier = start().before(seconds(2 * 86_400));
        let mut recent = RecentPayments::default();
        let payee = PayeePrefix::from_address(parse_address(KNOWN_PAYEE).unwrap());
        recent.apply_update(&recent.update_for_payment(earlier, None, Some(payee), None));
        for operation in &world.services[0].operations {
            for _ in 0..3 {
                let price = (OperationDigest::from_slug(&operation.slug), operation.estimated_price);
                recent.apply_update(&recent.update_for_payment(earlier, None, None, Some(price)));
            }
        }
        let windows = world.agent.counting_rules().map(|rule| {
            (
                rule.rule.id,
                window(rule.window_scope(agent, None).unwrap(), rule.period),
            )
        });
        Self {
            days: world.services.iter().map(day).collect(),
            windows: windows.collect(),
            recent: vec![recent; world.services.len()],
            is_frozen: false,
            disabled: BTreeSet::new(),
        }
    }

    fn windows_mut(&mut self) -> impl Iterator<Item = &mut Window> {
        self.days
            .iter_mut()
            .chain(self.windows.iter_mut().map(|(_, window)| window))
    }

    /// Commits a reservation if the conditions of the store's transaction hold.
    fn commit(&mut self, service: usize, reservation: &Reservation, id: SettlementId) -> bool {
        let fits = |window: &Window| {
            let charge = reservation.charges.iter().find(|charge| charge.0 == window.scope);
            charge.is_none_or(|(_, amount, cap, horizon, evict, cleared)| {
                let evicted: u64 = evict.iter().map(|entry| entry.amount.units()).sum();
                let cleared = evict.last().map_or(*horizon, |newest| newest.at.max(*cleared));
                window.total.units() + amount.units() <= cap.units() + evicted
                    && window.watermark <= cleared
                    && evict.iter().all(|entry| window.oldest.contains(entry))
            })
        };
        let recent = &self.recent[service];
        let is_new = reservation.recent.as_ref().is_none_or(|update| {
            let time = |key: RecentKey| match key {
                RecentKey::Call(call) => recent.last_call_time(call),
                RecentKey::Payee(_) | RecentKey::Operation(_) => None,
            };
            let mark = update.call.unwrap();
            let is_old = |not_after| time(RecentKey::Call(mark.call)).is_none_or(|last| last <= not_after);
            update.is_first != recent.is_stored
                && mark.not_after.is_none_or(is_old)
                && update
                    .forget
                    .iter()
                    .all(|(key, at)| time(*key).is_none_or(|last| last == *at))
        });
        if self.is_frozen
            || self.disabled.contains(&service)
            || !is_new
            || !self.windows_mut().all(|window| fits(window))
        {
            return false;
        }
        for window in self.windows_mut() {
            let charge = reservation.charges.iter().find(|charge| charge.0 == window.scope);
            let Some((_, amount, _, _, evict, cleared)) = charge else {
                continue;
            };
            for entry in evict {
                window.oldest.retain(|kept| kept != entry);
                window.total = window.total.minus(entry.amount).unwrap();
                window.watermark = window.watermark.max(entry.at).max(*cleared);
            }
            window.total = window.total.plus(*amount).unwrap();
            let place = window.oldest.partition_point(|entry| entry.at <= reservation.at);
            let entry = Entry {
                at: reservation.at,
                amount: *amount,
                settlement: id,
            };
            window.oldest.insert(place, entry);
        }
        if let Some(update) = &reservation.recent {
            self.recent[service].apply_update(update);
        }
        true
    }

    fn release(&mut self, payment: &Payment) {
        for window in self.windows_mut() {
            let place = window.oldest.iter().position(|entry| entry.settlement == payment.id);
            if let Some(place) = place {
                let entry = window.oldest.remove(place);
                window.total = window.total.minus(entry.amount).unwrap();
            }
        }
        let calls = &mut self.recent[payment.call.service].calls;
        if calls.iter().filter(|(_, at)| *at == payment.at).count() == 1 {
            calls.retain(|(_, at)| *at != payment.at);
        }
    }
}

fn decide(world: &mut World, ledger: &Ledger, call: &Call, now: Timestamp) -> Option<Reservation> {
    let World {
        agent,
        services,
        enabled,
        offers,
        ..
    } = world;
    let offer = offers
        .entry((call.operation, call.amount))
        .or_insert_with(|| call.offer());
    let intent = call.intent(*offer);
    let service = &services[call.service];
    let day = &ledger.days[call.service];
    let windows = ledger.windows.iter().map(|(_, window)| window);
    let facts = EvaluationInputs {
        agent,
        intent: &intent,
        key: KeyId(1),
        service,
        operation: service.operations.get(call.operation),
        payee_from: None,
        network: Network::BaseSepolia,
        enabled: Some(&enabled[call.service]),
        day,
        budgets: &ledger.windows,
        recent: &ledger.recent[call.service],
        frozen_by_operators: None,
        approval: None,
        balance: None,
        at: earliest_decision_time(now, windows.chain([day])),
        eviction: Eviction::Eager,
    };
    let Decision::Allow(grant) = evaluate(&facts) else {
        return None;
    };
    let charges = grant.charges().map(|charge| {
        (
            charge.scope,
            charge.amount,
            charge.cap,
            charge.watermark,
            charge.evict.to_vec(),
            charge.cleared,
        )
    });
    let is_checked = |name| grant.checks().iter().any(|check| check.name == name);
    Some(Reservation {
        at: grant.authorized_at(),
        charges: charges.collect(),
        recent: grant.recent_payments_update().and_then(RecentUpdate::keep_only_call),
        remembers: (is_checked(CheckName::Payee), is_checked(CheckName::Price)),
    })
}

impl<'a> Run<'a> {
    fn new(world: &'a mut World) -> Self {
        let past = (2..7).map(|day| (Hour::containing(start()).hours_earlier(24 * day), units(USUAL_HOUR)));
        let prices = |service| {
            (0..)
                .zip(OPERATIONS)
                .map(move |(index, (_, price, _))| ((service, index), vec![price; 3]))
        };
        Self {
            now: start(),
            ledger: Ledger::new(world),
            payments: Vec::new(),
            sums: past.collect(),
            service_sums: BTreeMap::new(),
            braked: BTreeMap::new(),
            prices: (0..2).flat_map(prices).collect(),
            world,
        }
    }

    fn execute(world: &'a mut World, plan: &[Step]) -> Vec<Payment> {
        let mut run = Self::new(world);
        let mut calls = 0;
        for step in plan {
            run.now = run.now.after(seconds(step.wait));
            if step.reconciles {
                run.reconcile();
            }
            let before = step.races.then(|| run.ledger.clone());
            let mut denied = 0;
            for number in 0..step.times {
                calls += 1;
                if calls > MAX_CALLS {
                    return run.payments;
                }
                let mut call = step.call;
                if step.rotates {
                    call.query += number;
                }
                denied = if run.pay(call, step.fate, before.as_ref()) {
                    0
                } else {
                    denied + 1
                };
                if denied > MAX_DENIALS {
                    break;
                }
                run.now = run.now.after(seconds(step.spacing));
            }
        }
        run.payments
    }

    /// Makes a payment, and returns whether it was authorized.
    fn pay(&mut self, call: Call, fate: Fate, before: Option<&Ledger>) -> bool {
        let id = SettlementId::from_uuid(Uuid::from_u128(100 + u128::try_from(self.payments.len()).unwrap()));
        // If the write fails, the handler decides again on the current state.
        let first = before.and_then(|ledger| decide(self.world, ledger, &call, self.now));
        let mut committed = first.filter(|reservation| self.ledger.commit(call.service, reservation, id));
        if committed.is_none() {
            let again = decide(self.world, &self.ledger, &call, self.now);
            committed = again.filter(|reservation| self.ledger.commit(call.service, reservation, id));
        }
        let Some(reservation) = committed else {
            return false;
        };
        let mut last: Vec<u64> = self.prices[&(call.service, call.operation)]
            .iter()
            .rev()
            .take(3)
            .copied()
            .collect();
        last.sort_unstable();
        self.payments.push(Payment {
            id,
            at: reservation.at,
            call,
            fate,
            is_pending: true,
            remembers: reservation.remembers,
            usual: last[1],
            is_to_new_payee: OPERATIONS[call.operation].2 == NEW_PAYEE,
        });
        let hour = Hour::containing(reservation.at);
        let sum = self.sums.entry(hour).or_insert(Amount::ZERO);
        *sum = sum.plus(units(call.amount)).unwrap();
        let services = self.service_sums.entry(hour).or_default();
        let sum = services
            .entry(self.world.services[call.service].id)
            .or_insert(Amount::ZERO);
        *sum = sum.plus(units(call.amount)).unwrap();
        self.freeze_if_unusual(reservation.at);
        if fate == Fate::Reported {
            self.confirm(self.payments.len() - 1);
        }
        true
    }

    fn freeze_if_unusual(&mut self, at: Timestamp) {
        let hour = Hour::containing(at);
        let previous = hour.hours_earlier(1);
        let sum_in = |sums: &BTreeMap<Hour, Amount>, hour| sums.get(&hour).copied().unwrap_or(Amount::ZERO);
        let sum = |hour| sum_in(&self.sums, hour).saturating_minus(sum_in(&self.braked, hour));
        let before = if self.braked.contains_key(&hour) {
            Amount::ZERO
        } else {
            sum(previous)
        };
        let estimate = AutomaticFreeze::estimated_sliding_hour_sum(at, sum(hour), before);
        let Some(brake) = AutomaticFreeze::find_in_rules(&self.world.agent.rules) else {
            return;
        };
        let Some(anomaly) = brake.find_anomaly(hour, estimate, &self.sums) else {
            return;
        };
        let none = BTreeMap::new();
        let services = |hour| self.service_sums.get(&hour).unwrap_or(&none);
        let (now, before) = ((sum(hour), services(hour)), (before, services(previous)));
        let service = brake.find_unusual_service(at, now, before, anomaly.usual);
        let service = service.filter(|_| self.braked.keys().all(|freeze| *freeze < hour.hours_earlier(24)));
        match self.world.services.iter().position(|known| Some(known.id) == service) {
            Some(service) => {
                self.ledger.disabled.insert(service);
                self.braked.insert(hour, self.sums[&hour]);
            }
            None => self.ledger.is_frozen = true,
        }
    }

    fn confirm(&mut self, index: usize) {
        let payment = &mut self.payments[index];
        let call = payment.call;
        payment.is_pending = false;
        self.prices
            .get_mut(&(call.service, call.operation))
            .unwrap()
            .push(call.amount);
        let recent = &mut self.ledger.recent[call.service];
        let slug = &self.world.services[call.service].operations[call.operation].slug;
        let payee = PayeePrefix::from_address(parse_address(OPERATIONS[call.operation].2).unwrap());
        let (payee, price) = (
            payment.remembers.0.then_some(payee),
            payment
                .remembers
                .1
                .then_some((OperationDigest::from_slug(slug), units(call.amount))),
        );
        let update = recent.update_for_payment(payment.at, None, payee, price);
        recent.apply_update(&update);
    }

    /// Confirms payments that moved, and releases payments that can no longer move.
    fn reconcile(&mut self) {
        for index in 0..self.payments.len() {
            let payment = self.payments[index].clone();
            if !payment.is_pending {
                continue;
            }
            if payment.fate == Fate::Unreported {
                self.confirm(index);
            } else if payment.at.after(seconds(LIFETIME)) <= self.now {
                self.payments[index].is_pending = false;
                self.ledger.release(&payment);
                let sum = self.sums.get_mut(&Hour::containing(payment.at)).unwrap();
                *sum = sum.minus(units(payment.call.amount)).unwrap();
                let services = self.service_sums.get_mut(&Hour::containing(payment.at)).unwrap();
                let sum = services.get_mut(&self.world.services[payment.call.service].id).unwrap();
                *sum = sum.minus(units(payment.call.amount)).unwrap();
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Bound {
    name: String,
    reached: u64,
    limit: u64,
}

impl Bound {
    const fn is_exceeded(&self) -> bool {
        self.reached > self.limit
    }

    fn is_further_than(&self, other: &Self) -> bool {
        u128::from(self.reached) * u128::from(other.limit.max(1))
            > u128::from(other.reached) * u128::from(self.limit.max(1))
    }
}

/// The safe template has only rolling windows.
fn rolling(window: &RuleWindow) -> Duration {
    match window.period {
        WindowPeriod::Rolling(duration) => duration,
        other => panic!("{other:?} is not rolling"),
    }
}

/// Returns the maximum sum of the weights within a duration.
fn peak(weights: impl Iterator<Item = (Timestamp, u64)>, length: Duration) -> u64 {
    let mut weights: Vec<(Timestamp, u64)> = weights.collect();
    weights.sort_unstable();
    let (mut first, mut sum, mut most) = (0, 0, 0);
    for (at, weight) in &weights {
        sum += weight;
        while weights[first].0.after(length) <= *at {
            sum -= weights[first].1;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

/// Returns each limit's bound, and how far the payments that moved went.
fn bounds(world: &World, payments: &[Payment]) -> Vec<Bound> {
    let moved: Vec<&Payment> = payments.iter().filter(|payment| payment.fate != Fate::Unpaid).collect();
    let amounts = || moved.iter().map(|payment| (payment.at, payment.call.amount));
    let ones = || moved.iter().map(|payment| (payment.at, 1));
    let most = |reached: &dyn Fn(&Payment) -> u64| moved.iter().map(|payment| reached(payment)).max().unwrap_or(0);
    let mut bounds = Vec::new();
    let mut add = |name: String, reached, limit| bounds.push(Bound { name, reached, limit });
    let (max_per_call, max_per_day) = world.caps;
    add(
        "the cap per call".into(),
        most(&|payment| payment.call.amount),
        max_per_call,
    );
    for service in 0..world.services.len() {
        let here = moved.iter().filter(|payment| payment.call.service == service);
        let amounts = here.map(|payment| (payment.at, payment.call.amount));
        add(
            format!("the daily cap of service {service}"),
            peak(amounts, Duration::DAY),
            max_per_day,
        );
    }
    for rule in &world.agent.rules {
        let name = rule.kind.name().to_owned();
        match &rule.kind {
            RuleKind::BudgetLimit(BudgetLimit { limit, window }) => {
                let duration = rolling(window);
                add(
                    format!("{name} of {} s", duration.secs()),
                    peak(amounts(), duration),
                    limit.units(),
                );
            }
            RuleKind::CountLimit(CountLimit { count, window, .. }) => {
                add(name, peak(ones(), rolling(window)), (*count).into());
            }
            RuleKind::MinimumInterval(MinimumInterval { interval, .. }) => add(name, peak(ones(), *interval), 1),
            RuleKind::DuplicateGuard(DuplicateGuard { within, .. }) => {
                let mut equal: BTreeMap<_, Vec<(Timestamp, u64)>> = BTreeMap::new();
                for payment in &moved {
                    equal.entry(payment.call.effect()).or_default().push((payment.at, 1));
                }
                let peaks = equal.into_values().map(|times| peak(times.into_iter(), *within));
                add(name, peaks.max().unwrap_or(0), 1);
            }
            RuleKind::NewPayee(_) => add(name, most(&|payment| payment.is_to_new_payee.into()), 0),
            RuleKind::PriceAboveUsual(PriceAboveUsual { percent, over, .. }) => {
                let usual = |payment: &Payment| match over {
                    UsualPrice::Catalog => OPERATIONS[payment.call.operation].1,
                    UsualPrice::Median(_) => payment.usual,
                };
                let reached = most(&|payment| (payment.call.amount * 100).div_ceil(usual(payment)));
                add(name, reached, u64::from(*percent) + 100);
            }
            RuleKind::Schedule(_) => {
                // 1970 began on a Thursday.
                let is_open =
                    |at: Timestamp| (at.secs() / 86_400 + 3) % 7 < 5 && (9..17).contains(&(at.secs() / 3_600 % 24));
                add(name, most(&|payment| (!is_open(payment.at)).into()), 0);
            }
            RuleKind::AutomaticFreeze(brake) => {
                let of_hour = brake.at_least.units().max(USUAL_HOUR * u64::from(brake.times));
                // The rule disables a service and then freezes the agent, each after a payment that may exceed the
                // threshold.
                add(name, peak(amounts(), seconds(3_600)), 2 * (2 * of_hour + MAX_PRICE));
            }
            RuleKind::CategoryBlock(_)
            | RuleKind::VendorAllowlist(_)
            | RuleKind::ApprovalRequired(_)
            | RuleKind::ApprovalException(_) => {}
        }
    }
    bounds
}

/// A deterministic random generator (`SplitMix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    fn number(&mut self, limit: u32) -> u32 {
        u32::try_from(self.below(limit.try_into().unwrap())).unwrap()
    }

    fn choice<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    fn step(&mut self) -> Step {
        let times = self.choice(&[1, 1, 1, 1, 1, 2, 2, 8, 20, 40, 201]);
        Step {
            wait: self.choice(&WAITS),
            reconciles: self.below(3) == 0,
            call: Call {
                service: self.below(2),
                operation: self.choice(&[0, 0, 1, 1, 2]),
                query: self.number(3),
                spelling: self.number(6),
                body: self.number(2),
                target: self.number(3),
                amount: self.choice(&AMOUNTS),
            },
            times,
            spacing: self.choice(&[0, 0, 1, 18, 60, 150]),
            rotates: self.below(2) == 0,
            races: self.below(3) == 0,
            fate: self.choice(&[Fate::Reported, Fate::Unreported, Fate::Unpaid]),
        }
    }

    fn change(&mut self, step: &mut Step) {
        let other = self.step();
        match self.below(13) {
            0 => step.wait = other.wait,
            1 => step.reconciles = other.reconciles,
            2 => step.call.service = other.call.service,
            3 => step.call.operation = other.call.operation,
            4 => step.call.query = other.call.query,
            5 => step.call.spelling = other.call.spelling,
            6 => step.call.body = other.call.body,
            7 => step.call.target = other.call.target,
            8 => step.call.amount = other.call.amount,
            9 => step.times = other.times,
            10 => step.spacing = other.spacing,
            11 => (step.rotates, step.races) = (other.rotates, other.races),
            _ => step.fate = other.fate,
        }
    }

    fn mutation(&mut self, plan: &[Step], other: &[Step]) -> Plan {
        let mut plan = plan.to_vec();
        for _ in 0..=self.below(3) {
            let index = self.below(plan.len());
            match self.below(8) {
                0 => plan.insert(index, self.step()),
                1 if plan.len() > 1 => {
                    plan.remove(index);
                }
                2 | 3 => {
                    let mut step = plan[index];
                    self.change(&mut step);
                    plan.insert(index + 1, step);
                }
                4 => {
                    let start = self.below(other.len());
                    plan.extend_from_slice(&other[start..]);
                }
                _ => self.change(&mut plan[index]),
            }
        }
        plan.truncate(MAX_STEPS);
        plan
    }
}

fn simpler_steps(step: Step) -> Vec<Step> {
    let mut simpler = vec![step; 12];
    simpler[0].wait = 0;
    simpler[1].times = step.times / 2;
    simpler[2].times = step.times.saturating_sub(1);
    simpler[3].spacing = 0;
    simpler[4].rotates = false;
    simpler[5].races = false;
    simpler[6].reconciles = false;
    simpler[7].fate = Fate::Reported;
    simpler[8].call.spelling = 0;
    simpler[9].call.target = 0;
    simpler[10].call.body = 0;
    simpler[11].call.query = 0;
    simpler.retain(|simpler| *simpler != step && simpler.times > 0);
    simpler
}

/// Simplifies the plan as long as it exceeds the bound.
fn shrink(world: &mut World, mut plan: Plan, bound: usize) -> Plan {
    let mut exceeds = |plan: &[Step]| {
        let payments = Run::execute(world, plan);
        bounds(world, &payments)[bound].is_exceeded()
    };
    loop {
        let shorter = (0..plan.len()).map(|index| [&plan[..index], &plan[index + 1..]].concat());
        let simpler = plan.iter().enumerate().flat_map(|(index, step)| {
            let plan = &plan;
            simpler_steps(*step).into_iter().map(move |step| {
                let mut plan = plan.clone();
                plan[index] = step;
                plan
            })
        });
        match shorter.chain(simpler).find(|plan| exceeds(plan)) {
            Some(smaller) => plan = smaller,
            None => return plan,
        }
    }
}

/// Returns the first plans: payments as fast as the limits allow, and a repeated payment.
fn first_plans() -> Vec<Plan> {
    let call = |service, operation, amount| Call {
        service,
        operation,
        query: 0,
        spelling: 0,
        body: 0,
        target: 0,
        amount,
    };
    let step = |call, times, spacing| Step {
        wait: 0,
        reconciles: false,
        call,
        times,
        spacing,
        rotates: true,
        races: false,
        fate: Fate::Reported,
    };
    vec![
        vec![step(call(0, 0, 1_000_000), 10, 30), step(call(1, 0, 1_000_000), 10, 30)],
        vec![step(call(0, 1, 10_000), 201, 18)],
        vec![step(call(0, 1, 10_000), 2, 300)],
        vec![step(call(0, 0, 840_000), 10, 60)],
    ]
}

/// Searches plans against these limits, and returns the furthest plan for each bound.
fn search(caps: Option<StartingCaps>, rules: Vec<RuleKind>) -> Vec<Bound> {
    let runs = std::env::var_os("PURSER_SEARCH_RUNS").and_then(|runs| runs.to_str()?.parse().ok());
    let mut world = World::new(caps, rules);
    let mut random = Random(runs.unwrap_or(0));
    let mut best: Vec<(Plan, Bound)> = Vec::new();
    for run in 0..runs.unwrap_or(DEFAULT_RUNS) {
        let index = usize::try_from(run).unwrap();
        let plan = match first_plans().get(index) {
            Some(plan) => plan.clone(),
            None if random.below(8) == 0 => vec![random.step(), random.step(), random.step()],
            None => {
                let (other, _) = &best[random.below(best.len())];
                random.mutation(&best[index % best.len()].0, other)
            }
        };
        let payments = Run::execute(&mut world, &plan);
        for (index, bound) in bounds(&world, &payments).into_iter().enumerate() {
            if bound.is_exceeded() {
                let plan = shrink(&mut world, plan, index);
                let payments = Run::execute(&mut world, &plan);
                let bound = &bounds(&world, &payments)[index];
                let steps: Vec<String> = plan.iter().map(|step| format!("{step:?}")).collect();
                panic!("run {run} exceeds {bound:?}:\n{}", steps.join("\n"));
            }
            match best.get_mut(index) {
                None => best.push((plan.clone(), bound)),
                Some((best, reached)) => {
                    if bound.is_further_than(reached) || (!reached.is_further_than(&bound) && random.below(4) == 0) {
                        (*best, *reached) = (plan.clone(), bound);
                    }
                }
            }
        }
    }
    best.into_iter().map(|(_, bound)| bound).collect()
}

/// Asserts that the search reached each bound, so that it really tests the limits.
fn assert_reached(bounds: &[Bound], names: &[&str]) {
    for name in names {
        let bound = bounds.iter().find(|bound| bound.name == *name).unwrap();
        assert!(bound.reached * 10 >= bound.limit * 9, "{bound:?}");
    }
}

/// The safe limits of `docs/policies/safe.yaml` allow 1 USDC a call, 10 USDC a day per service and 20 USDC a day.
#[test]
fn no_sequence_of_payments_exceeds_the_safe_starting_limits() {
    let safe = StartingLimits::Safe;
    let bounds = search(safe.to_caps(), safe.to_rules());
    assert_reached(
        &bounds,
        &[
            "the cap per call",
            "the daily cap of service 0",
            "budget_limit of 86400 s",
            "count_limit",
            "duplicate_guard",
            "price_above_usual",
        ],
    );
}

#[test]
fn no_sequence_of_payments_evades_interval_or_price_or_schedule_or_freeze_rules() {
    let services = None;
    let rules = vec![
        RuleKind::MinimumInterval(MinimumInterval {
            services: None,
            interval: seconds(60),
        }),
        RuleKind::DuplicateGuard(DuplicateGuard {
            services: None,
            within: seconds(7_200),
            action: LimitAction::Block,
        }),
        RuleKind::PriceAboveUsual(PriceAboveUsual {
            services,
            percent: 20,
            over: UsualPrice::Median(3),
            action: LimitAction::Block,
        }),
        RuleKind::Schedule(Schedule {
            services: None,
            zone: ZoneName::UTC,
            periods: vec![SchedulePeriod::parse("monday-friday 09:00-17:00").unwrap()],
        }),
        RuleKind::AutomaticFreeze(AutomaticFreeze {
            times: 10,
            at_least: units(2_000_000),
        }),
    ];
    let bounds = search(None, rules);
    assert_reached(&bounds, &["minimum_interval", "duplicate_guard", "price_above_usual"]);
}
