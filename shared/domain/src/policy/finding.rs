//! Findings about an agent's rules: rules that have no effect, contradict each other, or are covered by other limits.
//!
//! The search is incomplete: a rule without a finding may still have no effect.

use super::rules;
use crate::{
    AgentLimits, Amount, ApprovalException, ApprovalRequired, BudgetLimit, Caps, Catalog, Category, EnabledService,
    LimitAction, RetryAt, Rule, RuleKind, Service, ServiceId, ServiceSlug, SpendPolicy, Timestamp, Vendor,
    VendorAllowlist, WindowPeriod, catalog::service::named,
};

named! {
    /// What is wrong with a rule or a per-call cap.
    FindingKind {
        /// Other limits of the agent are at least as strict as this rule or cap.
        IsCovered = "is_covered_by",
        /// No payment meets the rule's conditions.
        NeverFires = "never_fires",
        /// The rule, alone or together with another rule, blocks every payment to which both apply.
        Contradicts = "contradicts",
    }
}

/// A finding about one of an agent's rules, or about the cap per call of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFinding {
    /// What is wrong with the rule or the cap.
    pub kind: FindingKind,
    /// The rule that the finding is about; `None` for a finding about a service's cap per call.
    pub rule: Option<Rule>,
    /// The rule that covers or contradicts this rule; `None` if no other rule is involved.
    pub other: Option<Rule>,
    /// The service whose per-call cap has no effect; `None` for a finding about a rule.
    pub service: Option<ServiceId>,
    /// The finding as a sentence for users.
    pub message: &'static str,
}

struct PaidService<'a> {
    service: &'a Service,
    caps: Caps,
}

impl PaidService<'_> {
    fn categories(&self) -> impl Iterator<Item = [Category; 2]> {
        let operations = self.service.operations.iter();
        operations.map(|operation| [operation.category, self.service.category])
    }

    fn is_blocked_by_categories(&self, categories: &[Category]) -> bool {
        self.categories()
            .all(|call| call.iter().any(|category| categories.contains(category)))
    }
}

/// Returns the findings about the rules, then about the services' caps. Schedules and limit increases are evaluated
/// from `at` on.
pub fn find_rule_findings(limits: &AgentLimits<'_>, catalog: &Catalog, at: Timestamp) -> Vec<RuleFinding> {
    let (rules, owner) = (limits.agent.rules.as_slice(), limits.agent.owner.as_str());
    let enabled = limits.policies.iter().filter(|policy| policy.enabled);
    let paid = |policy: &EnabledService| {
        let service = catalog.find_by_id(policy.service)?;
        let caps = policy.policy.caps(owner, at);
        Some(PaidService { service, caps })
    };
    let services: Vec<PaidService<'_>> = enabled.filter_map(paid).collect();
    // A budget may count earlier payments to services that are now disabled.
    let all_services: Vec<PaidService<'_>> = limits.policies.iter().filter_map(paid).collect();
    let of_rules = rules.iter().enumerate().filter_map(|(index, rule)| {
        let others = || rules.iter().enumerate().filter(move |(other, _)| *other != index);
        find_contradiction(rule, others().map(|(_, other)| other), &services, at)
            .or_else(|| find_unmet_condition(rule, &services, at))
            .or_else(|| find_rule_covered_by_another(rule, index, others()))
            .or_else(|| find_rule_covered_by_caps(rule, &services, &all_services))
    });
    let of_caps = services
        .iter()
        .filter_map(|service| find_cap_above_budget(service, rules));
    of_rules.chain(of_caps).collect()
}

fn finding(kind: FindingKind, rule: &Rule, other: Option<&Rule>, message: &'static str) -> RuleFinding {
    RuleFinding {
        kind,
        rule: Some(rule.clone()),
        other: other.cloned(),
        service: None,
        message,
    }
}

/// Returns a finding if another rule is at least as strict. Of equal rules, only the later rules are covered.
/// Exceptions are not compared, because they end at different times.
fn find_rule_covered_by_another<'a>(
    rule: &Rule,
    index: usize,
    mut others: impl Iterator<Item = (usize, &'a Rule)>,
) -> Option<RuleFinding> {
    if rule.kind.is_kind::<ApprovalException>() {
        return None;
    }
    let (_, other) = others.find(|(other_index, other)| {
        let is_equal = rule.kind.is_as_strict_as(&other.kind);
        other.kind.is_as_strict_as(&rule.kind) && (!is_equal || *other_index < index)
    })?;
    let message = "another rule is at least as strict, so this rule never decides alone";
    Some(finding(FindingKind::IsCovered, rule, Some(other), message))
}

/// Returns a finding if the caps of the services make the rule ineffective.
fn find_rule_covered_by_caps(
    rule: &Rule,
    services: &[PaidService<'_>],
    all_services: &[PaidService<'_>],
) -> Option<RuleFinding> {
    let mut caps = applicable_services(rule, services)
        .map(|service| service.caps)
        .peekable();
    caps.peek()?;
    match &rule.kind {
        RuleKind::BudgetLimit(BudgetLimit { limit, window })
            if window.period == WindowPeriod::DAY || WindowPeriod::DAY.covers(window.period) =>
        {
            let mut caps = applicable_services(rule, all_services).map(|service| service.caps);
            let sum = caps.try_fold(Amount::ZERO, |sum, caps| sum.plus(caps.per_day))?;
            let message = "from the next period on: the daily caps of the services together are at most this budget";
            (sum <= *limit).then(|| finding(FindingKind::IsCovered, rule, None, message))
        }
        RuleKind::ApprovalRequired(ApprovalRequired { above: Some(above), .. }) => {
            let message = "no call may cost more than this amount, because the caps per call are at most as high";
            caps.all(|caps| caps.per_call <= *above)
                .then(|| finding(FindingKind::IsCovered, rule, None, message))
        }
        _ => None,
    }
}

/// Returns a finding if an exception has ended or no enabled service meets the rule's conditions. `None` without
/// enabled services.
fn find_unmet_condition(rule: &Rule, services: &[PaidService<'_>], at: Timestamp) -> Option<RuleFinding> {
    let has_ended = |exception: &ApprovalException| exception.until <= at;
    if rule.kind.as_kind().is_some_and(has_ended) {
        return Some(finding(FindingKind::NeverFires, rule, None, "this exception has ended"));
    }
    let categories = match &rule.kind {
        RuleKind::CategoryBlock(block) => Some(&block.categories),
        RuleKind::ApprovalRequired(limit) => limit.categories.as_ref(),
        _ => None,
    };
    let Some(categories) = categories else {
        let message = "the agent has enabled no service to which this rule applies";
        let is_unmet = !services.is_empty() && applicable_services(rule, services).next().is_none();
        return is_unmet.then(|| finding(FindingKind::NeverFires, rule, None, message));
    };
    let mut calls = applicable_services(rule, services).flat_map(PaidService::categories);
    let is_met = calls.any(|call| call.iter().any(|category| categories.contains(category)));
    let message = "no enabled service of the agent is in this rule's categories";
    (!services.is_empty() && !is_met).then(|| finding(FindingKind::NeverFires, rule, None, message))
}

fn find_contradiction<'a>(
    rule: &Rule,
    mut others: impl Iterator<Item = &'a Rule>,
    services: &[PaidService<'_>],
    at: Timestamp,
) -> Option<RuleFinding> {
    match &rule.kind {
        RuleKind::Schedule(schedule) => {
            let is_never_open =
                |also| rules::next_time_all_schedules_open(&[schedule, also].into_iter(), at) == RetryAt::Never;
            let other = others
                .find(|other| has_common_service(rule, other) && other.kind.as_kind().is_some_and(is_never_open))?;
            let message = "this schedule and another schedule are never open at the same time";
            Some(finding(FindingKind::Contradicts, rule, Some(other), message))
        }
        RuleKind::VendorAllowlist(VendorAllowlist { vendors }) => {
            let listed = |vendors: &[Vendor], service: &ServiceSlug| {
                vendors
                    .iter()
                    .any(|vendor| vendor.service_slug().is_none_or(|slug| slug == service))
            };
            let own = || services.iter().filter(|paid| listed(vendors, &paid.service.slug));
            if !services.is_empty() && own().next().is_none() {
                let message = "the agent has enabled no service of this list, so every payment is blocked";
                return Some(finding(FindingKind::Contradicts, rule, None, message));
            }
            let other = others.find(|other| match &other.kind {
                RuleKind::CategoryBlock(block) => own().all(|paid| paid.is_blocked_by_categories(&block.categories)),
                RuleKind::VendorAllowlist(list) => own().all(|paid| !listed(&list.vendors, &paid.service.slug)),
                _ => false,
            });
            let other = other.filter(|_| !services.is_empty())?;
            let message = "another rule blocks every enabled service of this list";
            Some(finding(FindingKind::Contradicts, rule, Some(other), message))
        }
        _ => None,
    }
}

/// Returns a finding if a budget is lower than the service's per-call cap. Permissive caps are ignored, because no user
/// sets them.
fn find_cap_above_budget(paid: &PaidService<'_>, rules: &[Rule]) -> Option<RuleFinding> {
    let is_lower = |budget: &BudgetLimit| {
        budget.window.action == LimitAction::Block && budget.window.keys.is_none() && budget.limit < paid.caps.per_call
    };
    let is_lower = |rule: &&Rule| rule.kind.as_kind().is_some_and(is_lower) && rule.kind.applies_to(paid.service);
    if paid.caps.per_call >= SpendPolicy::permissive().max_per_call {
        return None;
    }
    let budget = rules.iter().find(is_lower)?;
    Some(RuleFinding {
        kind: FindingKind::IsCovered,
        rule: None,
        other: Some(budget.clone()),
        service: Some(paid.service.id),
        message: "a budget is lower than the cap per call, so no call may cost as much as the cap permits",
    })
}

fn applicable_services<'a>(
    rule: &'a Rule,
    services: &'a [PaidService<'a>],
) -> impl Iterator<Item = &'a PaidService<'a>> {
    services.iter().filter(|paid| rule.kind.applies_to(paid.service))
}

fn has_common_service(rule: &Rule, other: &Rule) -> bool {
    match (rule.kind.scope().services, other.kind.scope().services) {
        (Some(slugs), Some(others)) => slugs.iter().any(|slug| others.contains(slug)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Address, Agent, AgentId, AgentStatus, Availability, CategoryBlock, Duration, Endpoint, KeyId, ListingHistory,
        NewPayee, Operation, OperationSlug, OperationUuid, RuleId, RuleWindow, Schedule, SchedulePeriod, TrustStatus,
        Url, Wallet, ZoneName,
    };
    use uuid::Uuid;

    fn units(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    fn slugs(names: &[&str]) -> Vec<ServiceSlug> {
        names.iter().map(|name| ServiceSlug::parse(name).unwrap()).collect()
    }

    fn service(number: u128, slug: &str, category: Category) -> Service {
        let operation = Operation {
            id: OperationUuid::from_uuid(Uuid::nil()),
            slug: OperationSlug::parse("a.b").unwrap(),
            availability: Availability::PaidX402,
            label: String::new(),
            method: "GET".to_owned(),
            endpoint: Endpoint::parse("https://lab.example/").unwrap(),
            category,
            execution: String::new(),
            price_model: String::new(),
            estimated_price: Amount::ZERO,
            max_price: None,
            params: serde_json::json!({}),
            fetches_target: None,
            next: None,
            payment: None,
        };
        Service {
            id: ServiceId::from_uuid(Uuid::from_u128(number)),
            version: 1,
            curated: true,
            history: ListingHistory::default(),
            slug: ServiceSlug::parse(slug).unwrap(),
            name: String::new(),
            description: String::new(),
            website: Url::parse("https://lab.example/").unwrap(),
            logo_url: None,
            category,
            source: String::new(),
            trust_status: TrustStatus::Listed,
            operations: vec![operation],
        }
    }

    /// Returns `kind rule[ by other]` for each finding. Rules are numbered from 1, and `cap <service>` is a cap.
    fn find(kinds: Vec<RuleKind>) -> Vec<String> {
        let rules = kinds.into_iter().zip(1_u128..).map(|(kind, id)| Rule {
            id: RuleId::from_uuid(Uuid::from_u128(id)),
            version: 1,
            kind,
        });
        let agent = Agent {
            id: AgentId::from_uuid(Uuid::from_u128(1)),
            name: String::new(),
            owner: "owner".to_owned(),
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
        };
        let catalog = Catalog::new(vec![
            service(1, "ai", Category::Ai),
            service(2, "data", Category::Data),
            service(3, "search", Category::Search),
        ]);
        let policy = |number, per_call, enabled| EnabledService {
            service: ServiceId::from_uuid(Uuid::from_u128(number)),
            version: 1,
            enabled,
            policy: SpendPolicy {
                max_per_call: units(per_call),
                max_per_day: units(100),
                ..SpendPolicy::permissive()
            },
        };
        let policies = [policy(1, 10, true), policy(2, 20, true), policy(3, 20, false)];
        let limits = AgentLimits {
            agent: &agent,
            policies: &policies,
        };
        let position = |rule: &Rule| rule.id.uuid().as_u128().to_string();
        let findings = find_rule_findings(&limits, &catalog, Timestamp::EPOCH).into_iter();
        let text = |finding: RuleFinding| {
            let subject = finding.rule.as_ref().map(position);
            let service = finding.service.and_then(|id| catalog.find_by_id(id));
            let subject = subject.unwrap_or_else(|| format!("cap {}", service.unwrap().slug));
            let other = finding.other.as_ref().map(|other| format!(" by {}", position(other)));
            format!("{} {subject}{}", finding.kind.name(), other.unwrap_or_default())
        };
        findings.map(text).collect()
    }

    #[test]
    fn covered_useless_and_contradicting_rules_are_found() {
        let hours = |hours: u32| Duration::from_secs_u32(hours * 3_600);
        let window = |services: Option<Vec<ServiceSlug>>, period, action| RuleWindow {
            services,
            categories: None,
            keys: None,
            per_payee: false,
            period,
            action,
        };
        let rolling = |limit, period| {
            RuleKind::BudgetLimit(BudgetLimit {
                limit: units(limit),
                window: hours(period).into(),
            })
        };
        let budget = |limit, services: &[&str], action| {
            RuleKind::BudgetLimit(BudgetLimit {
                limit: units(limit),
                window: window(Some(slugs(services)), WindowPeriod::Lifetime, action),
            })
        };
        let of_key = |mut kind: RuleKind| {
            if let RuleKind::BudgetLimit(BudgetLimit { window, .. }) = &mut kind {
                window.keys = Some(vec![KeyId(1)]);
            }
            kind
        };
        let asks = |above, services: Option<&[&str]>| {
            RuleKind::ApprovalRequired(ApprovalRequired {
                services: services.map(slugs),
                categories: None,
                above: Some(units(above)),
            })
        };
        let blocks = |categories: &[Category]| {
            RuleKind::CategoryBlock(CategoryBlock {
                categories: categories.to_vec(),
            })
        };
        let lists = |names: &[&str]| {
            RuleKind::VendorAllowlist(VendorAllowlist {
                vendors: slugs(names).into_iter().map(Vendor::Service).collect(),
            })
        };
        let wallet = RuleKind::VendorAllowlist(VendorAllowlist {
            vendors: vec![Vendor::Wallet(Address::ZERO)],
        });
        let open = |zone: &str, period: &str, services: Option<&[&str]>| {
            RuleKind::Schedule(Schedule {
                services: services.map(slugs),
                zone: ZoneName::parse(zone).unwrap(),
                periods: vec![SchedulePeriod::parse(period).unwrap()],
            })
        };
        let payee = |services: &[&str]| {
            RuleKind::NewPayee(NewPayee {
                services: Some(slugs(services)),
            })
        };
        let (block, ask) = (LimitAction::Block, LimitAction::Ask);
        let (ai, data, search) = (Category::Ai, Category::Data, Category::Search);
        let rows: [(Vec<RuleKind>, &[&str]); 27] = [
            (vec![], &[]),
            (vec![rolling(150, 48), rolling(150, 96)], &["is_covered_by 1 by 2"]),
            (vec![rolling(150, 48), rolling(160, 96)], &[]),
            (vec![rolling(150, 48), rolling(150, 48)], &["is_covered_by 2 by 1"]),
            (
                vec![budget(99, &["ai"], ask), budget(99, &["ai"], block)],
                &["is_covered_by 1 by 2"],
            ),
            (vec![budget(99, &["ai"], block), budget(98, &["data"], block)], &[]),
            // The daily caps sum to 300. The disabled service counts, because the agent may have paid it before.
            (vec![rolling(300, 24)], &["is_covered_by 1"]),
            (vec![rolling(299, 24)], &[]),
            (vec![rolling(300, 25)], &[]),
            // A budget that only requires approval can't cover a cap.
            (vec![budget(9, &["ai"], block)], &["is_covered_by cap ai by 1"]),
            (vec![budget(10, &["ai"], block)], &[]),
            (vec![budget(9, &["ai"], ask)], &[]),
            // With another key, the agent can pay up to the cap.
            (vec![of_key(budget(9, &["ai"], block))], &[]),
            (
                vec![budget(150, &["ai"], block), of_key(budget(150, &["ai"], block))],
                &["is_covered_by 2 by 1"],
            ),
            (vec![asks(20, None)], &["is_covered_by 1"]),
            (vec![asks(10, Some(&["ai"]))], &["is_covered_by 1"]),
            (vec![asks(10, None)], &[]),
            (vec![payee(&["search"])], &["never_fires 1"]),
            (vec![blocks(&[search])], &["never_fires 1"]),
            (vec![blocks(&[search, data])], &[]),
            (vec![lists(&["ai"]), blocks(&[ai])], &["contradicts 1 by 2"]),
            (vec![lists(&["ai", "data"]), blocks(&[ai])], &[]),
            (vec![lists(&["search"])], &["contradicts 1"]),
            (
                vec![lists(&["ai"]), lists(&["data"])],
                &["contradicts 1 by 2", "contradicts 2 by 1"],
            ),
            (vec![wallet, lists(&["data"])], &[]),
            (
                vec![
                    open("UTC", "monday 09:00-12:00", Some(&["ai"])),
                    open("UTC", "monday 12:00-13:00", None),
                    open("Asia/Tokyo", "monday 22:00-23:00", Some(&["data"])),
                ],
                &["contradicts 1 by 2", "contradicts 2 by 1", "contradicts 3 by 2"],
            ),
            (
                vec![
                    open("UTC", "monday 09:00-12:00", Some(&["ai"])),
                    open("UTC", "monday 12:00-13:00", Some(&["data"])),
                    open("Asia/Tokyo", "monday 20:00-21:30", Some(&["ai"])),
                ],
                &[],
            ),
        ];
        for (kinds, expected) in rows {
            assert_eq!(find(kinds.clone()), expected, "{kinds:?}");
        }
    }
}
