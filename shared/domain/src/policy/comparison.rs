//! Compares an agent's limits before and after an update, and searches for a request that the two versions decide
//! differently.
//!
//! `widening.rs` decides whether an update widens a limit. The search for an example is incomplete: it tries only
//! values at the changed limits. An update can also widen without an example, because another limit may deny every
//! request today.

use crate::{
    Agent, Amount, CallDescription, CheckName, DecisionResult, DomainPattern, Duration, EnabledService, KeyId,
    MAX_RECENT_PRICES, Network, Operation, OperationDigest, OperationSlug, PaidPrices, PayeePrefix, RecentPayments,
    RecordedDecision, Rule, RuleId, Schedule, Service, ServiceId, ServiceSlug, Target, Timestamp, WindowMeasure,
    WindowPeriod,
    policy::{
        boundaries::Boundaries,
        replay::{EvaluationResult, Limits, RecordedInputs, ReplayedRecentPayments},
        rules::max_price_above_usual,
    },
};
use std::collections::BTreeSet;

/// The limits of one agent on one side of a comparison: before or after an update.
#[derive(Clone, Copy, Debug)]
pub struct AgentLimits<'a> {
    /// The agent, with status and rules.
    pub agent: &'a Agent,
    /// The agent's policies, at most one for each service.
    pub policies: &'a [EnabledService],
}

impl AgentLimits<'_> {
    fn find_policy(&self, service: ServiceId) -> Option<&EnabledService> {
        self.policies.iter().find(|policy| policy.service == service)
    }

    fn widens(&self, before: &Self) -> bool {
        let policies = self.policies.iter();
        let mut policies = policies.map(|policy| policy.widens(before.find_policy(policy.service)));
        self.agent.widens(before.agent) || policies.any(|widens| widens)
    }
}

/// The result of comparing an agent's limits before and after an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Whether the update may allow a request that was denied or escalated before.
    pub widens: bool,
    /// Whether the update may deny or escalate a request that was allowed before.
    pub narrows: bool,
    /// A request that the new limits treat less strictly, if the search found one.
    pub widened: Option<Counterexample>,
    /// A request that the new limits treat more strictly, if the search found one.
    pub narrowed: Option<Counterexample>,
}

/// An example request that the two versions of the limits decide differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// The slug of the service that the example request pays.
    pub service: ServiceSlug,
    /// The slug of the operation that the example request calls.
    pub operation: OperationSlug,
    /// The key that sends the example request; `None` for any key that no rule contains.
    pub key: Option<KeyId>,
    /// The amount of the example request, in micro-USDC.
    pub amount: Amount,
    /// The host of the page to fetch, if the operation fetches a page.
    pub host: Option<String>,
    /// The payments that the agent made before the example request.
    pub history: ExampleHistory,
    /// The time of the request, if the decision depends on the time.
    pub at: Option<Timestamp>,
    /// The decision about the request under the limits before the update.
    pub before: Verdict,
    /// The decision about the request under the limits after the update.
    pub now: Verdict,
}

/// An agent's earlier payments before an example request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExampleHistory {
    /// The amount that the agent spent on the service.
    pub spent: Amount,
    /// The number of calls that the agent has already paid.
    pub calls: u64,
    /// Whether the agent already paid for the same call as in the example request.
    pub is_repeated: bool,
    /// How long before the example request the agent made the payments of `spent`, `calls` and `is_repeated`.
    pub ago: Duration,
    /// Whether the agent never paid the payee.
    pub is_new_payee: bool,
    /// The price of all previous payments for the operation; `None` without previous payments.
    pub usual_price: Option<Amount>,
}

impl ExampleHistory {
    /// A history without payments and with a known payee.
    const NONE: Self = Self {
        spent: Amount::ZERO,
        calls: 0,
        is_repeated: false,
        ago: Duration::from_secs_u32(0),
        is_new_payee: false,
        usual_price: None,
    };
}

/// The decision about an example request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The result for the example request.
    pub result: DecisionResult,
    /// The reason for the result, as a decision about the request would record it.
    pub reason: String,
    /// The first check that failed; `None` if the request is allowed.
    pub check: Option<CheckName>,
}

impl Verdict {
    fn from_evaluation(result: EvaluationResult) -> Option<Self> {
        Some(Self {
            result: result.result?,
            check: result.first_failed_check(),
            reason: result.reason,
        })
    }

    const fn strictness(&self) -> u8 {
        match self.result {
            DecisionResult::Allow => 0,
            DecisionResult::Escalate => 1,
            DecisionResult::Block | DecisionResult::RevertConfirmation | DecisionResult::Payout => 2,
        }
    }
}

/// Compares an agent's limits before and after an update, and searches for example requests to `services` at the time
/// `at`.
pub fn compare_limits(
    before: &AgentLimits<'_>,
    after: &AgentLimits<'_>,
    services: &[&Service],
    network: Network,
    at: Timestamp,
) -> Comparison {
    let mut comparison = Comparison {
        widens: after.widens(before),
        narrows: before.widens(after),
        widened: None,
        narrowed: None,
    };
    let mut remaining_requests = MAX_REQUESTS;
    for service in services {
        for operation in &service.operations {
            let place = CallContext {
                service,
                operation,
                network,
                at,
            };
            add_counterexamples(before, after, &place, &mut comparison, &mut remaining_requests);
            let is_done = (!comparison.widens || comparison.widened.is_some())
                && (!comparison.narrows || comparison.narrowed.is_some());
            if is_done || remaining_requests == 0 {
                return comparison;
            }
        }
    }
    comparison
}

/// The maximum number of evaluated requests in a comparison. They take about 50 ms.
const MAX_REQUESTS: u32 = 10_000;

struct CallContext<'a> {
    service: &'a Service,
    operation: &'a Operation,
    network: Network,
    at: Timestamp,
}

impl Boundaries {
    fn from_limit_change(before: &AgentLimits<'_>, after: &AgentLimits<'_>, service: &Service, at: Timestamp) -> Self {
        let mut found = Self::default();
        let policies = [before.find_policy(service.id), after.find_policy(service.id)];
        for policy in policies.into_iter().flatten().map(|enabled| &enabled.policy) {
            found.amounts.insert(policy.max_per_call);
            found.amounts.insert(policy.require_approval_above);
            found.sums.insert(policy.max_per_day);
            for increase in &policy.raises {
                found.amounts.extend(increase.caps.max_per_call);
                found.sums.extend(increase.caps.max_per_day);
            }
        }
        let rules = before.agent.rules.iter().chain(&after.agent.rules);
        let changed = rules.filter(|rule| !(before.agent.rules.contains(rule) && after.agent.rules.contains(rule)));
        let changed: Vec<&Rule> = changed.filter(|rule| rule.kind.applies_to(service)).collect();
        for rule in &changed {
            found.keys.extend(rule.kind.scope().keys.into_iter().flatten());
            if let Some((counted, limit, period)) = rule.kind.counted_limit() {
                match counted {
                    WindowMeasure::Amounts => found.sums.insert(limit),
                    WindowMeasure::Payments => found.counts.insert(limit),
                };
                if period != WindowPeriod::Lifetime {
                    found.durations.insert(at.since(period.newest_expired_time(at)));
                }
            }
            rule.kind.parameters().add_boundaries(&mut found);
        }
        if changed.iter().any(|rule| rule.kind.is_kind::<Schedule>()) {
            let [before, after] = [before, after].map(|limits| schedules(limits.agent, service));
            found.times.extend(first_differing_minutes(&before, &after, at));
        }
        found
    }

    /// Returns the payment histories to try before an example request of this amount.
    fn example_histories(&self, amount: Amount, expected_price: Amount) -> Vec<ExampleHistory> {
        let fresh = ExampleHistory::NONE;
        let full = self.sums.iter().filter_map(|sum| sum.plus(ONE)?.minus(amount));
        let full: BTreeSet<Amount> = full.filter(|spent| !spent.is_zero()).collect();
        let spent = full.into_iter().map(|spent| ExampleHistory { spent, ..fresh });
        let counts = self.counts.iter().map(|count| ExampleHistory {
            calls: count.units(),
            ..fresh
        });
        let repeats = self.compares_calls.then_some(ExampleHistory {
            is_repeated: true,
            ..fresh
        });
        let histories = spent.chain(counts).chain(repeats);
        let times_ago = || std::iter::once(&fresh.ago).chain(&self.durations);
        let with_ages =
            histories.flat_map(|history| times_ago().map(move |ago| ExampleHistory { ago: *ago, ..history }));
        let others = [
            self.compares_payees.then_some(ExampleHistory {
                is_new_payee: true,
                ..fresh
            }),
            self.compares_prices.then_some(ExampleHistory {
                usual_price: Some(expected_price),
                ..fresh
            }),
        ];
        let others = others.into_iter().flatten();
        std::iter::once(fresh).chain(with_ages).chain(others).collect()
    }
}

fn schedules<'a>(agent: &'a Agent, service: &Service) -> Vec<&'a Schedule> {
    let rules = agent.rules.iter().filter(|rule| rule.kind.applies_to(service));
    rules.filter_map(|rule| rule.kind.as_kind()).collect()
}

/// Returns the first minute of the next seven days at which only `before` is open, and the first at which only `after`
/// is open.
fn first_differing_minutes(before: &[&Schedule], after: &[&Schedule], at: Timestamp) -> Vec<Timestamp> {
    const WEEK_IN_MINUTES: u64 = 7 * 24 * 60;
    let is_open = |schedules: &[&Schedule], at| schedules.iter().all(|schedule| schedule.is_open(at));
    let mut found = [None, None];
    let first = at.secs().div_ceil(60);
    let minutes = (first..first.saturating_add(WEEK_IN_MINUTES)).map(|minute| minute.saturating_mul(60));
    for time in minutes.filter_map(Timestamp::from_secs) {
        let [closing, opening] = &mut found;
        match (is_open(before, time), is_open(after, time)) {
            (true, false) => closing.get_or_insert(time),
            (false, true) => opening.get_or_insert(time),
            _ => continue,
        };
        if closing.is_some() && opening.is_some() {
            break;
        }
    }
    found.into_iter().flatten().collect()
}

fn add_counterexamples(
    before: &AgentLimits<'_>,
    after: &AgentLimits<'_>,
    call_context: &CallContext<'_>,
    comparison: &mut Comparison,
    remaining_requests: &mut u32,
) {
    let CallContext {
        service,
        operation,
        network,
        at,
    } = *call_context;
    let Ok(payable) = operation.payee_and_max_price(network, at) else {
        return;
    };
    let boundaries = Boundaries::from_limit_change(before, after, service, at);
    let price = operation.expected_price(at);
    let highest = boundaries
        .percents
        .iter()
        .map(|percent| max_price_above_usual(price, *percent));
    let at_limits = boundaries
        .amounts
        .iter()
        .chain(&boundaries.sums)
        .copied()
        .chain(highest);
    let at_limits = at_limits.filter_map(|limit| limit.plus(ONE));
    let at_limits: BTreeSet<Amount> = at_limits.chain([ONE]).collect();
    // Tries the listed price first, because users recognize this amount.
    let amounts = std::iter::once(price).chain(at_limits);
    let amounts: Vec<Amount> = amounts
        .filter(|amount| !amount.is_zero() && *amount <= payable.most)
        .collect();
    // `KeyId(0)` stands for any key that no rule contains.
    let keys = std::iter::once(KeyId(0)).chain(boundaries.keys.iter().copied());
    let keys: BTreeSet<KeyId> = keys.collect();
    let policies = [before.find_policy(service.id), after.find_policy(service.id)];
    let hosts = targets_distinguishing_policies(service, operation, policies.into_iter().flatten());
    for host in &hosts {
        for amount in &amounts {
            let histories = boundaries.example_histories(*amount, price).into_iter();
            let histories = histories.flat_map(|history| keys.iter().map(move |key| (history, None, *key)));
            let times = boundaries.times.iter();
            let times = times.flat_map(|at| keys.iter().map(|key| (ExampleHistory::NONE, Some(*at), *key)));
            for (history, at, key) in histories.chain(times) {
                if *remaining_requests == 0 {
                    return;
                }
                *remaining_requests = remaining_requests.saturating_sub(1);
                let request = Request {
                    place: call_context,
                    pay_to: payable.pay_to,
                    key,
                    amount: *amount,
                    host: host.as_ref(),
                    history,
                    at,
                };
                let Some((before, after)) = request.evaluate(before).zip(request.evaluate(after)) else {
                    continue;
                };
                let found = if after.strictness() < before.strictness() && comparison.widens {
                    &mut comparison.widened
                } else if after.strictness() > before.strictness() && comparison.narrows {
                    &mut comparison.narrowed
                } else {
                    continue;
                };
                found.get_or_insert_with(|| request.to_counterexample(before, after));
            }
        }
    }
}

const ONE: Amount = match Amount::from_units(1) {
    Some(one) => one,
    None => Amount::ZERO,
};

/// Returns hosts that the policies may treat differently; one `None` if the operation fetches no page.
fn targets_distinguishing_policies<'a>(
    service: &Service,
    operation: &Operation,
    policies: impl Iterator<Item = &'a EnabledService>,
) -> Vec<Option<Target>> {
    if !operation.fetches_target(service.category) {
        return vec![None];
    }
    let patterns = policies.flat_map(|enabled| &enabled.policy.allowed_domains);
    let texts = patterns
        .map(DomainPattern::to_string)
        .chain(["*.example.org".to_owned()]);
    // Replacing each `*` of a pattern by a letter creates a host that the pattern matches.
    let hosts: BTreeSet<String> = texts.map(|text| text.replace('*', "a")).collect();
    let targets = hosts
        .iter()
        .filter_map(|host| Target::parse(&format!("https://{host}/")).ok());
    targets.map(Some).collect()
}

struct Request<'a> {
    place: &'a CallContext<'a>,
    pay_to: crate::Address,
    key: KeyId,
    amount: Amount,
    host: Option<&'a Target>,
    history: ExampleHistory,
    /// The time of the example request; `None` for the time of the [`CallContext`].
    at: Option<Timestamp>,
}

impl Request<'_> {
    fn evaluate(&self, limits: &AgentLimits<'_>) -> Option<Verdict> {
        let CallContext {
            service,
            operation,
            network,
            at,
        } = *self.place;
        let at = self.at.unwrap_or(at);
        let decision = RecordedDecision {
            result: DecisionResult::Allow,
            reason: String::new(),
            checks: Vec::new(),
            operation: Some(operation.slug.clone()),
            amount: self.amount,
            pay_to: self.pay_to,
            key: self.key,
            network,
            call: CallDescription {
                target_url: self.host.map(|target| target.url().clone()),
                ..CallDescription::without_agent_data(operation)
            },
            at,
            policy_version: None,
            inputs: None,
        };
        let used = |counted, period: WindowPeriod| {
            let used = match counted {
                WindowMeasure::Amounts => Some(self.history.spent),
                WindowMeasure::Payments => Amount::from_units(self.history.calls),
            };
            let is_counted = at.before(self.history.ago) > period.newest_expired_time(at);
            used.filter(|_| is_counted).unwrap_or(Amount::ZERO)
        };
        let windows = limits.agent.counting_rules();
        let windows = windows.map(|rule| (rule.rule.id, used(rule.counted, rule.period)));
        let windows: Vec<(RuleId, Amount)> = windows.collect();
        let inputs = RecordedInputs::for_possible_call(&decision, service, operation);
        let recent = ReplayedRecentPayments {
            payments: self.recent_payments(&inputs, at),
            has_recorded_prices: false,
        };
        Verdict::from_evaluation(inputs.evaluate_under(&Limits {
            agent: limits.agent,
            enabled: limits.find_policy(service.id),
            day: used(WindowMeasure::Amounts, WindowPeriod::DAY),
            windows: &windows,
            recent: Some(&recent),
        }))
    }

    fn recent_payments(&self, inputs: &RecordedInputs<'_>, at: Timestamp) -> RecentPayments {
        let ExampleHistory {
            is_repeated,
            ago,
            is_new_payee,
            usual_price,
            ..
        } = self.history;
        let payee = (!is_new_payee).then(|| (PayeePrefix::from_address(self.pay_to), at));
        let call = inputs
            .call_digest()
            .filter(|_| is_repeated)
            .map(|call| (call, at.before(ago)));
        let prices = usual_price.map(|price| {
            let prices = vec![price; MAX_RECENT_PRICES];
            (
                OperationDigest::from_slug(&self.place.operation.slug),
                PaidPrices { at, prices },
            )
        });
        RecentPayments {
            calls: call.into_iter().collect(),
            payees: payee.into_iter().collect(),
            prices: prices.into_iter().collect(),
            ..RecentPayments::default()
        }
    }

    fn to_counterexample(&self, before: Verdict, after: Verdict) -> Counterexample {
        Counterexample {
            service: self.place.service.slug.clone(),
            operation: self.place.operation.slug.clone(),
            key: Some(self.key).filter(|key| *key != KeyId(0)),
            amount: self.amount,
            host: self.host.map(|target| target.host().to_owned()),
            history: self.history,
            at: self.at,
            before,
            now: after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Address, AgentId, AgentStatus, ApprovalException, ApprovalRequired, Availability, BudgetLimit, CatalogPayment,
        Category, CategoryBlock, CountLimit, DuplicateGuard, Endpoint, LimitAction, ListingHistory, MinimumInterval,
        NewPayee, OperationUuid, PriceAboveUsual, RuleKind, RuleWindow, SchedulePeriod, SpendPolicy, TrustStatus, Url,
        UsualPrice, Vendor, VendorAllowlist, Wallet, ZoneName,
    };
    use uuid::Uuid;

    fn units(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    /// A service whose two operations cost 50, or at most 1,000.
    fn service() -> Service {
        let url = Url::parse("https://lab.example/").unwrap();
        let operation = |slug: &str, category| Operation {
            id: OperationUuid::from_uuid(Uuid::from_u128(3)),
            slug: OperationSlug::parse(slug).unwrap(),
            availability: Availability::PaidX402,
            label: String::new(),
            method: "GET".into(),
            endpoint: Endpoint::parse(&format!("https://lab.example/{slug}")).unwrap(),
            category,
            execution: "sync".into(),
            price_model: "fixed".into(),
            estimated_price: units(50),
            max_price: Some(units(1_000)),
            params: serde_json::Value::Null,
            fetches_target: None,
            next: None,
            payment: Some(CatalogPayment {
                scheme: "exact".into(),
                network: Network::BaseSepolia,
                amount: units(50),
                pay_to: Address::repeat_byte(7),
            }),
        };
        Service {
            id: ServiceId::from_uuid(Uuid::from_u128(2)),
            version: 1,
            slug: ServiceSlug::parse("lab").unwrap(),
            name: String::new(),
            description: String::new(),
            website: url,
            logo_url: None,
            category: Category::Search,
            source: "test".into(),
            trust_status: TrustStatus::Listed,
            curated: true,
            history: ListingHistory::default(),
            operations: vec![
                operation("lab.current", Category::Search),
                operation("lab.scrape", Category::Scrape),
            ],
        }
    }

    #[test]
    fn the_policy_comparison_finds_an_example_request_for_each_kind_of_rule() {
        let hours = |hours: u32| Duration::from_secs_u32(hours * 3_600);
        let counts = |count, window| {
            RuleKind::CountLimit(CountLimit {
                count,
                window: hours(window).into(),
            })
        };
        let keyed = |count| {
            RuleKind::CountLimit(CountLimit {
                count,
                window: RuleWindow {
                    keys: Some(vec![KeyId(9)]),
                    ..hours(1).into()
                },
            })
        };
        let interval = |interval| {
            RuleKind::MinimumInterval(MinimumInterval {
                services: None,
                interval: hours(interval),
            })
        };
        let guard = |within, action| {
            RuleKind::DuplicateGuard(DuplicateGuard {
                services: None,
                within: hours(within),
                action,
            })
        };
        let price = |percent, over| {
            RuleKind::PriceAboveUsual(PriceAboveUsual {
                services: None,
                percent,
                over,
                action: LimitAction::Block,
            })
        };
        let bounded = |max_amount, until, keys| {
            RuleKind::ApprovalException(ApprovalException {
                services: None,
                operation: None,
                keys,
                payee: Address::repeat_byte(7),
                max_amount: units(max_amount),
                until: Timestamp::from_secs(until).unwrap(),
                waives_threshold: true,
                waived_rules: Vec::new(),
            })
        };
        let exception = |max_amount, until| bounded(max_amount, until, None);
        // The example requests are on a Monday: 1970-01-12T13:46:40Z.
        let open = |from: &str, to: &str| {
            RuleKind::Schedule(Schedule {
                services: None,
                zone: ZoneName::UTC,
                periods: vec![SchedulePeriod::parse(&format!("monday-sunday {from}-{to}")).unwrap()],
            })
        };
        let (block, ask) = (LimitAction::Block, LimitAction::Ask);
        let rows: [(Option<RuleKind>, RuleKind, &str, &str); 18] = [
            (
                None,
                keyed(3),
                "none",
                "50 with 0000000000000009 after 3 calls: allowed to count_limit",
            ),
            (None, counts(3, 1), "none", "50 after 3 calls: allowed to count_limit"),
            (
                Some(counts(3, 1)),
                counts(5, 1),
                "50 after 3 calls: count_limit to allowed",
                "none",
            ),
            (
                Some(counts(3, 1)),
                counts(3, 2),
                "none",
                "50 after 3 calls 1 h ago: allowed to count_limit",
            ),
            (
                None,
                interval(1),
                "none",
                "50 after 1 calls: allowed to minimum_interval",
            ),
            (
                Some(interval(2)),
                interval(1),
                "50 after 1 calls 1 h ago: minimum_interval to allowed",
                "none",
            ),
            (None, guard(1, block), "none", "50 again: allowed to duplicate_guard"),
            (
                Some(guard(1, block)),
                guard(1, ask),
                "50 again: duplicate_guard to duplicate_guard",
                "none",
            ),
            (
                Some(guard(1, block)),
                guard(2, block),
                "none",
                "50 again 1 h ago: allowed to duplicate_guard",
            ),
            (
                None,
                RuleKind::NewPayee(NewPayee { services: None }),
                "none",
                "50 to a new payee: allowed to new_payee",
            ),
            (
                None,
                price(40, UsualPrice::Catalog),
                "none",
                "71: allowed to price_above_usual",
            ),
            (
                Some(price(20, UsualPrice::Median(3))),
                price(40, UsualPrice::Median(3)),
                "61 usually 50: price_above_usual to allowed",
                "none",
            ),
            (
                None,
                price(40, UsualPrice::Median(3)),
                "none",
                "71 usually 50: allowed to price_above_usual",
            ),
            (None, exception(90, 2_000_000), "81: approval to allowed", "none"),
            (
                None,
                bounded(90, 2_000_000, Some(vec![KeyId(9)])),
                "81 with 0000000000000009: approval to allowed",
                "none",
            ),
            (
                Some(exception(90, 2_000_000)),
                exception(85, 3_000_000),
                "81 at 1970-01-24T03:33:20.000000Z: approval to allowed",
                "86: allowed to approval",
            ),
            (
                None,
                open("09:00", "17:00"),
                "none",
                "50 at 1970-01-12T17:00:00.000000Z: allowed to schedule",
            ),
            (
                Some(open("09:00", "17:00")),
                open("10:00", "18:00"),
                "50 at 1970-01-12T17:00:00.000000Z: schedule to allowed",
                "50 at 1970-01-13T09:00:00.000000Z: allowed to schedule",
            ),
        ];
        let policies = [enabled(true, policy())];
        for (before, now, widened, narrowed) in rows {
            let row = format!("{before:?} {now:?}");
            let before: Vec<RuleKind> = before.into_iter().collect();
            let found = compared((&before, &policies), (&[now], &policies));
            for (example, expected) in [(&found.widened, widened), (&found.narrowed, narrowed)] {
                let expected = match expected {
                    "none" => "none".to_owned(),
                    expected => format!("lab.current {expected}"),
                };
                assert_eq!(shown(example.as_ref()), expected, "{row}");
            }
        }
    }

    fn agent(rules: Vec<RuleKind>) -> Agent {
        let rules = rules.into_iter().zip(1_u128..).map(|(kind, id)| Rule {
            id: RuleId::from_uuid(Uuid::from_u128(id)),
            version: 1,
            kind,
        });
        Agent {
            id: AgentId::from_uuid(Uuid::from_u128(1)),
            name: String::new(),
            owner: String::new(),
            created_at: Timestamp::EPOCH,
            status: AgentStatus::Active,
            wallet: Wallet {
                key: crate::WalletKey::Seed { index: 0 },
                address: Address::ZERO,
                attestation: crate::WalletAttestation::from_bytes([0; 65]),
            },
            keys: Vec::new(),
            rules: rules.collect(),
            archived: false,
            labels: crate::Labels::default(),
            starting_set: None,
            template: None,
            max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
            former_owners: Vec::new(),
            version: 1,
        }
    }

    fn policy() -> SpendPolicy {
        SpendPolicy {
            max_per_call: units(100),
            max_per_day: units(500),
            require_approval_above: units(80),
            enabled_operations: None,
            allowed_domains: vec![DomainPattern::parse("example.com").unwrap()],
            raises: Vec::new(),
        }
    }

    fn enabled(enabled: bool, policy: SpendPolicy) -> EnabledService {
        EnabledService {
            service: ServiceId::from_uuid(Uuid::from_u128(2)),
            version: 1,
            enabled,
            policy,
        }
    }

    fn compared(before: (&[RuleKind], &[EnabledService]), now: (&[RuleKind], &[EnabledService])) -> Comparison {
        let agents = [before.0, now.0].map(|rules| agent(rules.to_vec()));
        let limits = |index: usize, policies| AgentLimits {
            agent: &agents[index],
            policies,
        };
        let (before, now) = (limits(0, before.1), limits(1, now.1));
        compare_limits(
            &before,
            &now,
            &[&service()],
            Network::BaseSepolia,
            Timestamp::from_secs(1_000_000).unwrap(),
        )
    }

    /// Returns `<operation> <amount>[ to <host>][ after <spent>[ <hours> h ago]]: <before> to <now>`.
    fn shown(example: Option<&Counterexample>) -> String {
        let Some(example) = example else {
            return "none".to_owned();
        };
        let check = |verdict: &Verdict| verdict.check.map_or("allowed", CheckName::name);
        let host = example
            .host
            .as_ref()
            .map(|host| format!(" to {host}"))
            .unwrap_or_default();
        let history = example.history;
        let hours = history.ago.secs() / 3_600;
        let ago = if hours == 0 {
            String::new()
        } else {
            format!(" {hours} h ago")
        };
        let spent = match (history.spent.is_zero(), history.calls, history.is_repeated) {
            (true, 0, false) => String::new(),
            (false, ..) => format!(" after {}{ago}", history.spent),
            (_, 0, true) => format!(" again{ago}"),
            (_, calls, _) => format!(" after {calls} calls{ago}"),
        };
        let payee = if history.is_new_payee { " to a new payee" } else { "" };
        let usual = history.usual_price.map(|price| format!(" usually {price}"));
        let at = example.at.map(|at| format!(" at {at}"));
        let spent = [
            spent,
            payee.to_owned(),
            usual.unwrap_or_default(),
            at.unwrap_or_default(),
        ]
        .concat();
        let (before, now) = (check(&example.before), check(&example.now));
        let key = example.key.map(|key| format!(" with {key}")).unwrap_or_default();
        format!(
            "{} {}{key}{host}{spent}: {before} to {now}",
            example.operation, example.amount
        )
    }

    #[test]
    fn every_policy_change_has_an_example_of_a_changed_decision() {
        type Edit = fn(&mut SpendPolicy);
        let rows: [(&str, Edit, &str, &str); 8] = [
            ("nothing", |_| {}, "none", "none"),
            (
                "a higher threshold",
                |policy| policy.require_approval_above = units(90),
                "lab.current 81: approval to allowed",
                "none",
            ),
            (
                "a lower limit per call",
                |policy| policy.max_per_call = units(40),
                "none",
                "lab.current 50: allowed to max_per_call_units",
            ),
            (
                "a higher daily limit",
                |policy| policy.max_per_day = units(600),
                "lab.current 50 after 451: max_per_day_units to allowed",
                "none",
            ),
            (
                "a lower threshold, and a higher limit per call",
                |policy| (policy.require_approval_above, policy.max_per_call) = (units(40), units(200)),
                "lab.current 101: max_per_call_units to approval",
                "lab.current 50: allowed to approval",
            ),
            (
                "another domain",
                |policy| policy.allowed_domains = vec![DomainPattern::parse("*.example.net").unwrap()],
                "lab.scrape 50 to a.example.net: allowed_domains to allowed",
                "lab.scrape 50 to example.com: allowed to allowed_domains",
            ),
            (
                "one operation",
                |policy| policy.enabled_operations = Some(vec![OperationSlug::parse("lab.scrape").unwrap()]),
                "none",
                "lab.current 50: allowed to enabled_operations",
            ),
            (
                "a daily limit above every price, behind a lower threshold",
                |policy| (policy.max_per_day, policy.require_approval_above) = (units(400), units(2_000)),
                "lab.current 81: approval to allowed",
                "lab.current 50 after 351: allowed to max_per_day_units",
            ),
        ];
        for (name, edit, widened, narrowed) in rows {
            let mut edited = policy();
            edit(&mut edited);
            let (before, now) = (enabled(true, policy()), enabled(true, edited));
            let found = compared((&[], &[before]), (&[], &[now]));
            assert_eq!(shown(found.widened.as_ref()), widened, "{name}");
            assert_eq!(shown(found.narrowed.as_ref()), narrowed, "{name}");
            let expected = (widened != "none", narrowed != "none");
            assert_eq!((found.widens, found.narrows), expected, "{name}");
        }
        let off = compared((&[], &[enabled(true, policy())]), (&[], &[enabled(false, policy())]));
        assert_eq!((off.widens, off.narrows), (false, true));
        assert_eq!(
            shown(off.narrowed.as_ref()),
            "lab.current 50: allowed to service_enabled"
        );
        let new = compared((&[], &[]), (&[], &[enabled(true, policy())]));
        assert_eq!((new.widens, new.narrows), (true, false));
        assert_eq!(
            shown(new.widened.as_ref()),
            "lab.current 50: service_enabled to allowed"
        );
    }

    #[test]
    fn every_rule_change_has_an_example_of_a_changed_decision() {
        let budget = |limit, hours: u32| {
            RuleKind::BudgetLimit(BudgetLimit {
                limit: units(limit),
                window: Duration::from_secs_u32(hours * 3_600).into(),
            })
        };
        let asks = |above: Option<u64>| {
            RuleKind::ApprovalRequired(ApprovalRequired {
                services: None,
                categories: None,
                above: above.map(units),
            })
        };
        let blocks = |category| {
            RuleKind::CategoryBlock(CategoryBlock {
                categories: vec![category],
            })
        };
        let lists = |slug| {
            RuleKind::VendorAllowlist(VendorAllowlist {
                vendors: vec![Vendor::Service(ServiceSlug::parse(slug).unwrap())],
            })
        };
        let rows: [(Option<RuleKind>, Option<RuleKind>, &str, &str); 8] = [
            (
                None,
                Some(budget(300, 1)),
                "none",
                "lab.current 50 after 251: allowed to budget_limit",
            ),
            (
                Some(budget(300, 1)),
                Some(budget(400, 1)),
                "lab.current 50 after 251: budget_limit to allowed",
                "none",
            ),
            (
                Some(budget(300, 1)),
                Some(budget(300, 2)),
                "none",
                "lab.current 50 after 251 1 h ago: allowed to budget_limit",
            ),
            (
                Some(budget(300, 2)),
                Some(budget(200, 1)),
                "lab.current 50 after 251 1 h ago: budget_limit to allowed",
                "lab.current 50 after 151: allowed to budget_limit",
            ),
            (
                None,
                Some(asks(Some(60))),
                "none",
                "lab.current 61: allowed to approval",
            ),
            (
                Some(asks(None)),
                Some(asks(Some(60))),
                "lab.current 50: approval to allowed",
                "none",
            ),
            (
                None,
                Some(blocks(Category::Scrape)),
                "none",
                "lab.scrape 50 to example.com: allowed to category_block",
            ),
            (
                Some(lists("other")),
                Some(lists("lab")),
                "lab.current 50: vendor_allowlist to allowed",
                // The service `other` is not tested, so no example is found.
                "none",
            ),
        ];
        let policies = [enabled(true, policy())];
        for (before, now, widened, narrowed) in rows {
            let [before, now]: [Vec<RuleKind>; 2] = [before, now].map(|rule| rule.into_iter().collect());
            let found = compared((&before, &policies), (&now, &policies));
            assert_eq!(shown(found.widened.as_ref()), widened, "{before:?} {now:?}");
            assert_eq!(shown(found.narrowed.as_ref()), narrowed, "{before:?} {now:?}");
            assert!(found.widens || widened == "none", "{before:?} {now:?}");
            assert!(found.narrows || narrowed == "none", "{before:?} {now:?}");
        }
    }
}
