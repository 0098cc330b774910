//! How often each of an agent's rules decided about payments, by version of the agent's record.

use crate::{
    Agent, Amount, BudgetLimit, Catalog, Category, ChangedDecisionExample, Check, CheckName, CheckOutcome,
    DecisionResult, LimitUse, LoggedDecision, LoggedDenial, Purchase, Rule, RuleId, RuleKind, Service, Vendor,
};
use std::collections::BTreeMap;

/// The decisions of one rule in one group of versions of the agent's record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleDecisions {
    /// The number of payments that the rule blocked.
    pub blocked: u64,
    /// The number of payments for which this rule was the first to require an approval.
    pub escalated: u64,
    /// The number of allowed payments after which this budget was the limit closest to its maximum.
    pub tightest: u64,
    /// The newest payments that the rule blocked or escalated: at most [`RuleDecisions::MAX_EXAMPLES`].
    pub examples: Vec<ChangedDecisionExample>,
}

impl RuleDecisions {
    /// The maximum number of examples.
    pub const MAX_EXAMPLES: usize = 3;

    fn count_denial(&mut self, denial: &LoggedDenial) {
        let count = match denial.result {
            DecisionResult::Escalate => &mut self.escalated,
            _ => &mut self.blocked,
        };
        *count = count.saturating_add(1);
        if self.examples.len() < Self::MAX_EXAMPLES {
            self.examples.push(ChangedDecisionExample {
                agent: denial.agent,
                transaction: denial.transaction,
                at: denial.at,
                service: denial.service,
                amount: denial.amount,
            });
        }
    }
}

/// Counts each rule's decisions by group of versions of the agent's record. `versions` has the record and the
/// group number of each version. Decisions in other versions are not counted. `decisions` must be sorted,
/// newest first.
pub fn count_rule_decisions<'a>(
    versions: impl Iterator<Item = (&'a Agent, u64)>,
    decisions: &[LoggedDecision],
    catalog: &Catalog,
) -> BTreeMap<(u64, RuleId), RuleDecisions> {
    let versions: BTreeMap<u64, (&Agent, u64)> = versions.map(|group| (group.0.version, group)).collect();
    let mut counts: BTreeMap<(u64, RuleId), RuleDecisions> = BTreeMap::new();
    for decision in decisions {
        let service = decision.service_id().and_then(|service| catalog.find_by_id(service));
        match decision {
            LoggedDecision::Refused(denial) => {
                let Some((agent, group)) = denial.inputs.and_then(|inputs| versions.get(&inputs.agent)) else {
                    continue;
                };
                if let Some(rule) = find_deciding_rule(denial, &agent.rules, service) {
                    let rule = counts.entry((*group, rule.id)).or_default();
                    rule.count_denial(denial);
                }
            }
            LoggedDecision::Allowed(settlement) => {
                let purchase = settlement.terms.purchase();
                let agent = purchase.and_then(|purchase| versions.get(&purchase.inputs.agent));
                let Some(((purchase, (agent, group)), service)) = purchase.zip(agent).zip(service) else {
                    continue;
                };
                if let Some(rule) = find_tightest_budget(purchase, settlement.terms.amount, &agent.rules, service) {
                    let rule = counts.entry((*group, rule.id)).or_default();
                    rule.tightest = rule.tightest.saturating_add(1);
                }
            }
            LoggedDecision::ConfirmationReverted(_) | LoggedDecision::PaidOut(_) => {}
        }
    }
    counts
}

/// Returns the rule that denied the payment or required the approval. A denial may contain only the rule's kind, so the
/// rule with the failed check's limit is preferred.
fn find_deciding_rule<'a>(denial: &LoggedDenial, rules: &'a [Rule], service: Option<&Service>) -> Option<&'a Rule> {
    let detail = denial.reason.split_once(':').map(|(_, detail)| detail);
    if let Some(rule) = rules.iter().find(|rule| detail == Some(&rule.id.to_string())) {
        return Some(rule);
    }
    let escalates = denial.result == DecisionResult::Escalate;
    let operation = service.zip(denial.operation.as_ref());
    let operation = operation.and_then(|(service, slug)| service.find_operation(slug));
    let categories = [
        operation.map(|operation| operation.category),
        service.map(|service| service.category),
    ];
    // If the service has left the catalog, the categories are unknown.
    let is_in_categories = |listed: &Vec<Category>| {
        service.is_none() || categories.iter().flatten().any(|category| listed.contains(category))
    };
    let is_of_kind = |rule: &&Rule| {
        rule.kind.name() == denial.rule
            && service.is_none_or(|service| rule.kind.applies_to_payment(service, denial.key))
            && match &rule.kind {
                RuleKind::CategoryBlock(block) => {
                    block.categories.iter().any(|category| detail == Some(category.name()))
                }
                RuleKind::VendorAllowlist(list) => !list.vendors.iter().any(|vendor| match vendor {
                    Vendor::Service(slug) => detail == Some(slug.as_str()),
                    Vendor::Wallet(wallet) => *wallet == denial.pay_to,
                }),
                // A block of this kind is due to the request's approval or too many open approvals, not to a
                // rule.
                RuleKind::ApprovalRequired(limit) => {
                    escalates
                        && limit.above.is_none_or(|above| denial.amount > above)
                        && limit.categories.as_ref().is_none_or(is_in_categories)
                }
                _ => true,
            }
    };
    let failed = denial.checks.iter().find(|check| check.outcome == CheckOutcome::Failed);
    let limit = failed.and_then(|check| check.limit);
    let has_limit = |rule: &&Rule| rule.kind.counted_limit().is_some_and(|(_, own, _)| Some(own) == limit);
    let mut exact = rules.iter().filter(is_of_kind).filter(has_limit);
    exact.next().or_else(|| rules.iter().find(is_of_kind))
}

/// Returns the budget that the purchase's budget check recorded; `None` if the payment left the daily cap at
/// least as near to the maximum, in the order of [`LimitUse`].
fn find_tightest_budget<'a>(
    purchase: &Purchase,
    amount: Amount,
    rules: &'a [Rule],
    service: &Service,
) -> Option<&'a Rule> {
    let of_check = |name| {
        let mut checks = purchase.checks.iter().filter(|check: &&Check| check.name == name);
        LimitUse::for_nearest_limit(std::slice::from_ref(checks.next()?), amount)
    };
    let budget = of_check(CheckName::Budget)?;
    let is_tightest = of_check(CheckName::Day).is_none_or(|day| budget > day);
    let mut rules = rules.iter().filter(|_| is_tightest);
    rules.find(|rule| {
        let own: Option<&BudgetLimit> = rule.kind.as_kind();
        own.is_some_and(|own| own.limit == budget.limit) && rule.kind.applies_to_payment(service, purchase.key)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Address, AgentId, ApprovalRequired, CallDescription, KeyId, ListingHistory, Metadata, ProviderRequest,
        ServiceId, ServiceSlug, Timestamp, TransactionId, TrustStatus, Url,
    };
    use uuid::Uuid;

    #[test]
    fn an_approval_is_required_by_a_rule_of_the_calls_category() {
        let rule = |number, categories: Option<&[Category]>| Rule {
            id: RuleId::from_uuid(Uuid::from_u128(number)),
            version: 1,
            kind: RuleKind::ApprovalRequired(ApprovalRequired {
                services: None,
                categories: categories.map(<[_]>::to_vec),
                above: None,
            }),
        };
        let rules = [
            rule(1, Some(&[Category::Finance])),
            rule(2, Some(&[Category::Ai])),
            rule(3, None),
        ];
        let denial = LoggedDenial {
            transaction: TransactionId::from_uuid(Uuid::nil()),
            agent: AgentId::from_uuid(Uuid::nil()),
            transfers: 0,
            key: KeyId(1),
            service: ServiceId::from_uuid(Uuid::nil()),
            operation: None,
            amount: Amount::ONE,
            pay_to: Address::ZERO,
            call: CallDescription {
                request: ProviderRequest {
                    method: "GET".to_owned(),
                    url: Url::parse("https://lab.example/").unwrap(),
                    body_hash: None,
                },
                target_url: None,
                metadata: Metadata::default(),
                catalog_price: None,
            },
            at: Timestamp::EPOCH,
            result: DecisionResult::Escalate,
            error: "approval_required".to_owned(),
            reason: "approval_required".to_owned(),
            rule: ApprovalRequired::NAME.to_owned(),
            hostname: None,
            policy_version: None,
            inputs: None,
            approval: None,
            checks: Vec::new(),
            latency_ms: 1,
        };
        let service = Service {
            id: denial.service,
            version: 1,
            curated: true,
            history: ListingHistory::default(),
            slug: ServiceSlug::parse("lab").unwrap(),
            name: String::new(),
            description: String::new(),
            website: denial.call.request.url.clone(),
            logo_url: None,
            category: Category::Ai,
            source: String::new(),
            trust_status: TrustStatus::Listed,
            operations: Vec::new(),
        };
        for (category, position) in [(Category::Finance, 0), (Category::Ai, 1), (Category::Data, 2)] {
            let service = Service {
                category,
                ..service.clone()
            };
            assert_eq!(
                find_deciding_rule(&denial, &rules, Some(&service)),
                Some(&rules[position])
            );
        }
        assert_eq!(find_deciding_rule(&denial, &rules, None), Some(&rules[0]));
    }
}
