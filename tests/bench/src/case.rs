//! The cases to decide: an allow with every kind of check in use, and one refusal for each check.
//!
//! Each case has two forms: our facts, and plain JSON for the other engines. The JSON contains precomputed values that
//! a policy language can't express (the amount that counts in a window, the parents of a host name).

use crate::world::{NETWORK, World, authorize_body, units};
use purser_api::AuthorizeRequest;
use purser_domain::{
    Address, AgentStatus, ApprovalId, CatalogMatch, Category, Check, CheckOutcome, Decision, DomainPattern,
    EnabledService, Eviction, Facts, Intent, OperationSlug, RuleKind, Service, ServiceSlug, Target, Vendor, evaluate,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// A case to decide.
#[derive(Clone, Debug)]
pub struct Case {
    /// The check that refuses, or `allow`.
    pub name: &'static str,
    /// The state that the decision depends on.
    pub world: World,
    /// The request.
    pub intent: Intent,
}

impl Case {
    /// An allow, in a world of `services` services.
    pub fn allow(services: usize) -> Self {
        let world = World::with_services(services);
        let request = AuthorizeRequest::parse(&authorize_body(&world), NETWORK).unwrap();
        Self {
            name: "allow",
            world,
            intent: request.intent,
        }
    }

    /// The allow, and one refusal for each check.
    pub fn all() -> Vec<Self> {
        type Break = fn(&mut Case);
        let refusals: [(&'static str, Break); 12] = [
            ("service_enabled", |case| case.world.enabled = None),
            ("agent_active", |case| case.world.agent.status = AgentStatus::Frozen),
            ("enabled_operations", |case| {
                case.policy().enabled_operations = OperationSlug::parse("web.rank").map(|slug| vec![slug]);
            }),
            ("allowed_domains", |case| {
                case.intent.target = Target::parse("https://www.example.com.evil.test/").ok();
            }),
            ("max_payment_units", |case| case.intent.max_payment = units(99_999)),
            ("max_per_call_units", |case| case.policy().max_per_call = units(99_999)),
            ("category_block", |case| {
                case.rules(|kind| {
                    if let RuleKind::CategoryBlock { categories } = kind {
                        categories.push(Category::Scrape);
                    }
                });
            }),
            ("vendor_allowlist", |case| {
                case.rules(|kind| {
                    if let RuleKind::VendorAllowlist { vendors } = kind {
                        let _ = vendors.pop();
                    }
                });
            }),
            ("budget_limit", |case| {
                case.rules(|kind| {
                    if let RuleKind::BudgetLimit { limit, .. } = kind {
                        *limit = units(799_999);
                    }
                });
            }),
            ("max_per_day_units", |case| case.policy().max_per_day = units(799_999)),
            ("approval", |case| {
                case.rules(|kind| {
                    if let RuleKind::ApprovalRequired { above: Some(above), .. } = kind {
                        *above = units(99_999);
                    }
                });
            }),
            ("usdc_balance", |case| case.world.balance = units(99_999)),
        ];
        let allow = Self::allow(100);
        let refused = refusals.into_iter().map(|(name, break_it)| {
            let mut case = Self { name, ..allow.clone() };
            break_it(&mut case);
            case
        });
        std::iter::once(allow.clone()).chain(refused).collect()
    }

    fn policy(&mut self) -> &mut purser_domain::SpendPolicy {
        &mut self.world.enabled.as_mut().unwrap().policy
    }

    fn rules(&mut self, edit: fn(&mut RuleKind)) {
        self.world.agent.rules.iter_mut().for_each(|rule| edit(&mut rule.kind));
    }

    /// The catalog match of the request.
    pub fn purchase(&self) -> CatalogMatch<'_> {
        CatalogMatch::of(&self.intent, &self.world.catalog).unwrap()
    }

    /// The facts for our evaluation.
    pub fn facts(&self) -> Facts<'_> {
        self.facts_about(self.purchase(), None)
    }

    /// The facts for our evaluation, for that catalog match and with that approval.
    pub fn facts_about<'a>(&'a self, purchase: CatalogMatch<'a>, approval: Option<ApprovalId>) -> Facts<'a> {
        Facts {
            agent: &self.world.agent,
            intent: &self.intent,
            service: purchase.service,
            operation: purchase.operation,
            payee_from: None,
            network: NETWORK,
            enabled: self.world.enabled.as_ref(),
            day: &self.world.day,
            budgets: &self.world.budgets,
            frozen_by_operators: None,
            approval,
            balance: Some(self.world.balance),
            at: self.world.at,
            eviction: Eviction::Eager,
        }
    }

    /// Our answer: the names of the failed checks.
    pub fn decide(&self) -> BTreeSet<String> {
        match evaluate(&self.facts()) {
            Decision::Allow(grant) => failed_checks(grant.checks()),
            Decision::Refuse(denial) => failed_checks(&denial.checks),
            Decision::NeedsTarget => BTreeSet::from(["target_url".to_owned()]),
        }
    }

    /// The request, as plain values.
    pub fn request(&self) -> Value {
        let facts = self.facts();
        let operation = facts.operation.unwrap();
        let payees = facts
            .service
            .operations
            .iter()
            .filter_map(|operation| operation.payment.as_ref());
        let payees: BTreeSet<String> = payees.map(|payment| payment.pay_to.to_string()).collect();
        let live = |window: &purser_domain::Window| window.live(facts.at).units();
        let budgets = facts
            .budgets
            .iter()
            .map(|(rule, window)| (rule.to_string(), json!(live(window))));
        json!({
            "amount": facts.intent.offer.amount().units(),
            "max_payment": facts.intent.max_payment.units(),
            "max_price": operation.max_price.unwrap().units(),
            "pay_to": facts.intent.offer.pay_to().to_string(),
            "payees": payees,
            "service": facts.service.slug.as_str(),
            "categories": BTreeSet::from([facts.service.category.name(), operation.category.name()]),
            "operation": operation.slug.as_str(),
            "fetches": operation.fetches_target(facts.service.category),
            "hosts": host_and_parents(facts.intent.target.as_ref().unwrap()),
            "spent_today": live(facts.day),
            "spent": budgets.collect::<Map<_, _>>(),
            "approved": facts.approval.is_some(),
            "balance": facts.balance.unwrap().units(),
        })
    }

    /// The agent and its rules, as plain values.
    pub fn agent(&self) -> Value {
        let agent = &self.world.agent;
        let (mut blocks, mut allowlists, mut budgets, mut approvals) = (vec![], vec![], Map::new(), vec![]);
        for rule in &agent.rules {
            match &rule.kind {
                RuleKind::CategoryBlock { categories } => blocks.push(names(categories)),
                RuleKind::VendorAllowlist { vendors } => allowlists.push(json!({
                    "services": vendors.iter().filter_map(Vendor::service).map(ServiceSlug::as_str).collect::<Vec<_>>(),
                    "wallets": vendors.iter().filter_map(Vendor::wallet).map(text).collect::<Vec<_>>(),
                })),
                RuleKind::BudgetLimit { limit, .. } => {
                    budgets.insert(rule.id.to_string(), json!(limit.units()));
                }
                RuleKind::ApprovalRequired {
                    services,
                    categories,
                    above,
                } => {
                    let mut asked = Map::new();
                    if let Some(services) = services {
                        let services: Vec<&str> = services.iter().map(ServiceSlug::as_str).collect();
                        asked.insert("services".to_owned(), json!(services));
                    }
                    if let Some(categories) = categories {
                        asked.insert("categories".to_owned(), names(categories));
                    }
                    asked.insert("above".to_owned(), json!(above.map_or(0, purser_domain::Amount::units)));
                    approvals.push(Value::Object(asked));
                }
            }
        }
        json!({
            "status": agent.status.name(), "wallet": text(agent.wallet.address),
            "blocks": blocks, "allowlists": allowlists, "budgets": budgets, "approvals": approvals,
        })
    }

    /// The policies of the agent's services by slug, as plain values: the evaluated one, and a similar one for every
    /// other service of the catalog.
    pub fn policies(&self) -> impl Iterator<Item = (&str, Value)> {
        let bought = self.world.bought();
        let like = World::with_services(1).enabled.unwrap();
        let services = self.world.catalog.services().iter().enumerate();
        services.filter_map(move |(n, service): (usize, &Service)| {
            let enabled = if n == bought {
                self.world.enabled.as_ref()?
            } else {
                &like
            };
            Some((service.slug.as_str(), plain_policy(enabled)))
        })
    }
}

fn plain_policy(enabled: &EnabledService) -> Value {
    let policy = &enabled.policy;
    let operations: Vec<&str> = policy
        .enabled_operations
        .iter()
        .flatten()
        .map(OperationSlug::as_str)
        .collect();
    json!({
        "max_per_call": policy.max_per_call.units(),
        "max_per_day": policy.max_per_day.units(),
        "approval_above": policy.require_approval_above.units(),
        "operations": operations,
        "domains": policy.allowed_domains.iter().map(DomainPattern::to_string).collect::<Vec<_>>(),
    })
}

fn names(categories: &[Category]) -> Value {
    json!(categories.iter().map(|category| category.name()).collect::<Vec<_>>())
}

fn text(address: Address) -> String {
    address.to_string()
}

/// The names that may allow a host: for `a.b.c` these are `a.b.c`, `b.c` and `c`.
fn host_and_parents(target: &Target) -> Vec<&str> {
    let parents = std::iter::successors(Some(target.host()), |host| {
        host.split_once('.').map(|(_, parent)| parent)
    });
    parents.collect()
}

/// The names of the failed checks.
pub fn failed_checks(checks: &[Check]) -> BTreeSet<String> {
    let failed = checks.iter().filter(|check| check.outcome == CheckOutcome::Failed);
    failed.map(|check| check.name.name().to_owned()).collect()
}
