//! Texts that explain decisions: the reason for a denial, the checks, and the rules.

use crate::ui::datetime::{exact_time, format_duration};
use crate::ui::labels;
use crate::ui::money::{amount_text, cap_text, format_dollars};
use crate::ui::paths;
use maud::{Markup, html};
use purser_domain::{
    Amount, AskingKind, AskingLimit, Caps, Catalog, Category, Check, CheckName, CheckOutcome, HistoryDenial,
    HistoryEntry, IncreasedCaps, LimitAction, Rule, RuleKind, RuleScope, RuleWindow, ServiceSlug, TemporaryCaps,
    Timestamp, UsualPrice, Vendor, WindowPeriod, WithdrawalRejection, approval_reason_for_limit,
    escape_hidden_characters,
};

/// Says in a few words why a payment was denied or requires approval.
pub(crate) fn denial_reason(entry: &HistoryEntry, denial: &HistoryDenial) -> String {
    let limit = denial.limit.map(|limit| format!(" of {}", format_dollars(limit)));
    let limit = limit.unwrap_or_default();
    let used = denial.used.filter(|used| !used.is_zero());
    let used = used.map(|used| format!(" ({} used)", format_dollars(used)));
    let used = used.unwrap_or_default();
    match denial.error.as_str() {
        "service_not_enabled" => "service not enabled".to_owned(),
        "operation_not_enabled_for_agent" => "operation not enabled".to_owned(),
        "domain_not_allowed" => {
            format!("host not allowed: {}", denial.hostname.as_deref().unwrap_or("unknown"))
        }
        "amount_exceeds_max" => format!("above the agent’s own maximum{limit}"),
        "amount_exceeds_per_call_limit" => format!("limit per call{limit} exceeded"),
        "daily_spend_limit_exceeded" => format!("daily limit{limit} exceeded{used}"),
        "approval_required" if is_denied_by_rule(denial) => "a rule requires approval".to_owned(),
        "approval_required" => format!("over the approval threshold{limit}"),
        "insufficient_usdc_balance" => format!("wallet balance{limit} too low"),
        "policy_blocked" => match entry.reason.split_once(':').unwrap_or((&entry.reason, "")) {
            ("budget_limit", _) => format!("budget{limit} exceeded{used}"),
            ("category_block", category) => format!("category {category} is blocked"),
            ("count_limit", _) => match denial.limit {
                Some(count) => format!("a rule’s {} payments within a time used up", count.units()),
                None => "a rule’s number of payments used up".to_owned(),
            },
            (rule, detail) => block_reason_text(rule, detail).unwrap_or(&entry.reason).to_owned(),
        },
        _ => entry.reason.clone(),
    }
}

fn is_denied_by_rule(denial: &HistoryDenial) -> bool {
    AskingKind::from_name(&denial.rule).is_some_and(|kind| kind != AskingKind::Threshold)
}

/// Returns the text for a `policy_blocked` reason that needs no amount, or `None` if `rule` is unknown.
/// [`denial_reason`] formats reasons with an amount or a count.
fn block_reason_text(rule: &str, detail: &str) -> Option<&'static str> {
    Some(match (rule, detail) {
        ("agent_frozen", "") => "agent frozen",
        ("agent_frozen", "owner") => "all agents of the owner frozen by an operator",
        ("agent_frozen", "deployment") => "all payments frozen by an operator",
        ("agent_frozen", _) => "agent frozen by an operator",
        ("catalog_payee", "pay_to_not_yet_accepted") => "payee or price too new in the catalog",
        ("catalog_payee", "pay_to_is_own_wallet") => "payee is the agent’s own wallet",
        ("catalog_payee", _) => "payee not in the catalog",
        ("catalog_price", _) => "price above the catalog’s maximum",
        ("catalog_payment", _) => "operation can’t be paid, according to the catalog",
        ("vendor_allowlist", _) => "vendor not on a list of allowed vendors",
        ("schedule", _) => "a rule allows payments only at other times",
        ("minimum_interval", _) => "too soon after the last payment, for a rule",
        ("duplicate_guard", _) => "a rule forbids to repeat the same call so soon",
        ("price_above_usual", _) => "price further above the usual price than a rule allows",
        ("approval_rejected", _) => "approval rejected",
        ("approval_expired", _) => "approval expired",
        ("too_many_open_approvals", _) => "approval required, but too many pending approvals",
        ("approval_request_mismatch", _) => "approval of another request",
        _ => return None,
    })
}

pub(crate) fn withdrawal_rejection_sentence(rejection: &WithdrawalRejection) -> String {
    match rejection {
        WithdrawalRejection::NotSetUp => "Payouts are not configured.".to_owned(),
        WithdrawalRejection::Frozen(_) => "An operator has frozen this agent, so nothing was paid out.".to_owned(),
        WithdrawalRejection::NoAddress => "The payout address was removed, so nothing was paid out.".to_owned(),
        WithdrawalRejection::AddressWaits { .. } => {
            "The payout address can’t be used yet, so nothing was paid out.".to_owned()
        }
        WithdrawalRejection::PayoutOpen { .. } => "Another payout is in progress. Wait until it has ended.".to_owned(),
        WithdrawalRejection::InsufficientBalance { balance } => {
            format!(
                "The wallet holds {}, so nothing was paid out.",
                format_dollars(*balance)
            )
        }
    }
}

const fn check_label(name: CheckName) -> &'static str {
    match name {
        CheckName::ServiceEnabled => "Service is enabled",
        CheckName::AgentActive => "Agent is not frozen",
        CheckName::OperationEnabled => "Operation is allowed",
        CheckName::Domain => "Domain is allowed",
        CheckName::MaxPayment => "Within the agent’s maximum for this call",
        CheckName::PerCall => "Within the limit per call",
        CheckName::Category => "Category is not blocked",
        CheckName::Vendor => "Vendor is allowed, payee is known",
        CheckName::Schedule => "Within the allowed times",
        CheckName::Budget => "Every budget has room",
        CheckName::Count => "Number of payments has room",
        CheckName::Interval => "Last payment is long enough ago",
        CheckName::Duplicate => "Not the same call again",
        CheckName::Price => "Price is not above the usual one",
        CheckName::Payee => "Payee was paid before",
        CheckName::Day => "Daily limit has room",
        CheckName::Approval => "No approval required",
        CheckName::Balance => "Wallet can pay",
    }
}

const fn check_outcome_text_and_sign(outcome: CheckOutcome) -> (&'static str, &'static str) {
    match outcome {
        CheckOutcome::Passed => ("passed", "✓"),
        CheckOutcome::Failed => ("failed", "✕"),
        CheckOutcome::Waived => ("waived by an approval", "↑"),
        CheckOutcome::Unknown => ("not made", "–"),
    }
}

pub(crate) fn checks_table(checks: &[Check]) -> Markup {
    if checks.is_empty() {
        return html! { p.muted { "No checks were made." } };
    }
    html! {
        table.checks {
            caption.sr { "Checks, in the order in which they were made" }
            thead { tr { th scope="col" { "Check" } th.num scope="col" { "Limit" } th.num scope="col" { "Used" } } }
            tbody {
                @for check in checks {
                    @let (text, sign) = check_outcome_text_and_sign(check.outcome);
                    tr class=(check.outcome.name()) {
                        th scope="row" {
                            span.sign aria-hidden="true" { (sign) } (check_label(check.name)) span.sr { ": " (text) }
                        }
                        td.num { @if let Some(limit) = check.limit { (limit_in_check_unit(check.name, limit)) } }
                        td.num {
                            @if let Some(used) = check.used.filter(|used| !used.is_zero()) { (check_use_text(check.name, used)) }
                        }
                    }
                }
            }
        }
    }
}

/// Renders a check's limit in the check's unit.
fn limit_in_check_unit(name: CheckName, limit: Amount) -> Markup {
    match name {
        CheckName::Count | CheckName::Interval | CheckName::Duplicate => check_use_text(name, limit),
        _ => cap_text(limit),
    }
}

/// Renders the used part of a check's limit in the check's unit.
fn check_use_text(name: CheckName, amount: Amount) -> Markup {
    match name {
        CheckName::Count | CheckName::Interval => html! { (amount.units()) },
        CheckName::Duplicate => html! { (amount.units()) " s" },
        _ => amount_text(amount),
    }
}

pub(crate) fn rule_sentence(kind: &RuleKind, catalog: &Catalog) -> Markup {
    match kind {
        RuleKind::CategoryBlock(rule) => {
            html! { "Buys nothing in " (join_with_or(rule.categories.iter().copied().map(category_name))) "." }
        }
        RuleKind::VendorAllowlist(rule) if rule.vendors.is_empty() => html! { "Pays nobody." },
        RuleKind::VendorAllowlist(rule) => {
            html! { "Pays only " (join_with_or(rule.vendors.iter().map(|vendor| match vendor {
                Vendor::Service(slug) => service_phrase(slug, catalog),
                Vendor::Wallet(wallet) => labels::short_wallet_address(*wallet),
            }))) "." }
        }
        RuleKind::BudgetLimit(rule) => html! {
            "Spends at most " (amount_text(rule.limit)) (window_phrase(&rule.window))
            @if kind.scope() == RuleScope::default() { ", over all services." } @else { (rule_scope(kind, catalog)) "." }
            (over_limit_approval_sentence(&rule.window))
        },
        RuleKind::ApprovalRequired(rule) => html! {
            "Requires approval of every payment"
            @if let Some(above) = rule.above { " above " (amount_text(above)) }
            @if let Some(services) = &rule.services { " to " (join_with_or(services.iter().map(|slug| service_phrase(slug, catalog)))) }
            @if let Some(categories) = &rule.categories { " in " (join_with_or(categories.iter().copied().map(category_name))) }
            "."
        },
        RuleKind::CountLimit(rule) => html! {
            "Makes at most " (rule.count) @if rule.count == 1 { " payment" } @else { " payments" }
            (window_phrase(&rule.window)) (rule_scope(kind, catalog)) "." (over_limit_approval_sentence(&rule.window))
        },
        RuleKind::MinimumInterval(rule) => {
            html! { "Waits " (format_duration(rule.interval)) " after each payment" (rule_scope(kind, catalog)) "." }
        }
        RuleKind::DuplicateGuard(rule) => html! {
            (action_verb(rule.action)) " the same call again within " (format_duration(rule.within)) (rule_scope(kind, catalog)) "."
        },
        RuleKind::NewPayee(_) => html! {
            (action_verb(LimitAction::Ask)) " the first payment to each payee of a service" (rule_scope(kind, catalog)) "."
        },
        RuleKind::PriceAboveUsual(rule) => html! {
            (action_verb(rule.action)) " a price more than " (rule.percent) "% above "
            @match rule.over {
                UsualPrice::Catalog => "the catalog’s",
                UsualPrice::Median(count) => { "the median of an operation’s last " (count) },
            }
            (rule_scope(kind, catalog)) "."
        },
        RuleKind::Schedule(schedule) => html! {
            "Pays only on " (join_with_or(schedule.periods.iter().map(|period| html! { (period) })))
            " (" (schedule.zone) ")" (rule_scope(kind, catalog)) "."
        },
        RuleKind::AutomaticFreeze(automatic_freeze) => html! {
            "Is frozen, or first stopped at one service, when it pays more within an hour than " (automatic_freeze.times) " times the busiest hour of a usual day, and at least "
            (amount_text(automatic_freeze.at_least)) "."
        },
        RuleKind::ApprovalException(exception) => html! {
            "Needs no approval of payments of at most " (amount_text(exception.max_amount)) " to "
            (labels::short_wallet_address(exception.payee))
            @if let Some(operation) = &exception.operation { " for " code { (operation) } }
            (rule_scope(kind, catalog)) ", until " (exact_time(exception.until)) ". Waives only "
            @if exception.waives_threshold { "the approval threshold" }
            @if exception.waives_threshold && !exception.waived_rules.is_empty() { " and " }
            @match exception.waived_rules.len() { 0 => {}, 1 => "one approval rule", count => { (count) " approval rules" } }
            ". Every other limit applies, and every rule that is added later."
        },
    }
}

pub(crate) fn period_phrase(period: WindowPeriod) -> Markup {
    match period {
        WindowPeriod::Rolling(duration) => html! { "any " (format_duration(duration)) },
        WindowPeriod::Calendar(period, zone) => html! { "each calendar " (period.name()) " (" (zone) ")" },
        WindowPeriod::Lifetime => html! { "the agent’s lifetime" },
    }
}

fn window_phrase(window: &RuleWindow) -> Markup {
    html! { @if window.per_payee { " to each payee" } " in " (period_phrase(window.period)) }
}

fn over_limit_approval_sentence(window: &RuleWindow) -> Markup {
    html! { @if window.action == LimitAction::Ask { " Requires approval of every payment beyond." } }
}

const fn action_verb(action: LimitAction) -> &'static str {
    match action {
        LimitAction::Block => "Refuses",
        LimitAction::Ask => "Requires approval of",
    }
}

/// Renders the services to which a limit applies.
fn rule_scope(kind: &RuleKind, catalog: &Catalog) -> Markup {
    html! {
        @if let Some(services) = kind.scope().services { ", at " (join_with_or(services.iter().map(|slug| service_phrase(slug, catalog)))) }
        @if let Some(categories) = kind.scope().categories { ", at services in " (join_with_or(categories.iter().copied().map(category_name))) }
        @if let Some(keys) = kind.scope().keys { ", with the key " (join_with_or(keys.iter().map(|key| html! { code { (key.to_string()) } }))) }
    }
}

/// Says in a few words why each limit requires approval of a payment.
pub(crate) fn short_approval_reason(asking_limits: &[AskingLimit]) -> String {
    asking_limits
        .iter()
        .map(approval_reason_for_limit)
        .collect::<Vec<_>>()
        .join(" · ")
}

/// Renders the caps and the end of a temporary limit increase. `current` are the current caps.
pub(crate) fn limit_increase_phrase(increase: TemporaryCaps, current: Option<Caps>, now: Timestamp) -> Markup {
    let IncreasedCaps {
        max_per_call,
        max_per_day,
    } = increase.caps;
    let change = |current: Option<Amount>, cap| html! { @if let Some(current) = current { (cap_text(current)) " → " } (amount_text(cap)) };
    html! {
        @if let Some(cap) = max_per_call { (change(current.map(|caps| caps.per_call), cap)) " per call" }
        @if max_per_call.is_some() && max_per_day.is_some() { " and " }
        @if let Some(cap) = max_per_day { (change(current.map(|caps| caps.per_day), cap)) " per day" }
        " until " (exact_time(increase.until))
        @if let Some(current) = current { ", so at most " (cap_text(increase.max_exposure(current, now))) " in all" }
    }
}

/// Links to the limit that denied a payment; `None` if the owner can't change the limit.
pub(crate) fn denying_limit_url(entry: &HistoryEntry) -> Option<String> {
    let denial = entry.refusal.as_ref()?;
    let page = paths::agent_path(entry.agent);
    let service = || Some(format!("{page}#service-{}", entry.service?));
    let (rule, detail) = entry.reason.split_once(':').unwrap_or((&entry.reason, ""));
    match denial.error.as_str() {
        "service_not_enabled" => Some(format!("{page}#services")),
        "approval_required" if is_denied_by_rule(denial) => Some(format!("{page}#rules")),
        "operation_not_enabled_for_agent"
        | "domain_not_allowed"
        | "amount_exceeds_per_call_limit"
        | "daily_spend_limit_exceeded"
        | "approval_required" => service(),
        "insufficient_usdc_balance" => Some(format!("{page}#wallet")),
        "policy_blocked" => match (rule, detail) {
            (
                "category_block" | "vendor_allowlist" | "budget_limit" | "schedule" | "count_limit"
                | "minimum_interval" | "duplicate_guard" | "price_above_usual",
                _,
            ) => Some(format!("{page}#rules")),
            ("agent_frozen", "") => Some(page),
            _ => None,
        },
        _ => None,
    }
}

/// Renders a line for each limit that requires approval of a payment.
pub(crate) fn approval_reason(asking_limits: &[AskingLimit], rules: &[Rule], catalog: &Catalog) -> Markup {
    html! {
        @for (index, limit) in asking_limits.iter().enumerate() { @if index > 0 { br; } (approval_requirement_text(*limit, rules, catalog)) }
    }
}

fn approval_requirement_text(
    AskingLimit {
        rule: id,
        above: threshold,
        ..
    }: AskingLimit,
    rules: &[Rule],
    catalog: &Catalog,
) -> Markup {
    let Some(id) = id else {
        return html! { "Over the " (amount_text(threshold)) " approval threshold of this service." };
    };
    let Some(found) = rules.iter().find(|rule| rule.id == id) else {
        return html! { "A rule that has since been removed required approval above " (amount_text(threshold)) "." };
    };
    html! { "A rule of this agent: " q { (rule_sentence(&found.kind, catalog)) } }
}

fn service_phrase(slug: &ServiceSlug, catalog: &Catalog) -> Markup {
    let Some(service) = catalog.find_by_reference(slug.as_str()) else {
        return html! { code { (slug) } };
    };
    html! { strong title=(slug) { (escape_hidden_characters(&service.name)) } }
}

fn category_name(category: Category) -> Markup {
    html! { em { (category.name()) } }
}

/// Renders a list such as `a, b or c`.
fn join_with_or(items: impl ExactSizeIterator<Item = Markup>) -> Markup {
    let last = items.len().saturating_sub(1);
    html! {
        @for (position, item) in items.enumerate() {
            @if position > 0 { @if position == last { " or " } @else { ", " } }
            (item)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::{
        Address, AgentId, CallDescription, DecisionResult, KeyId, Metadata, ProviderRequest, RuleId, ServiceId,
        Timestamp, TransactionId, Url,
    };
    use purser_domain::{Labels, LoggedDecision, LoggedDenial};
    use uuid::Uuid;

    fn refusal(error: &str, reason: &str, rule: &str) -> LoggedDenial {
        LoggedDenial {
            transaction: TransactionId::from_uuid(Uuid::nil()),
            agent: AgentId::from_uuid(Uuid::from_u128(1)),
            transfers: 0,
            key: KeyId(1),
            service: ServiceId::from_uuid(Uuid::from_u128(2)),
            operation: None,
            amount: Amount::ZERO,
            pay_to: Address::ZERO,
            call: CallDescription {
                request: ProviderRequest {
                    method: "GET".to_owned(),
                    url: Url::parse("https://a.example/").unwrap(),
                    body_hash: None,
                },
                target_url: None,
                metadata: Metadata::default(),
                catalog_price: None,
            },
            at: Timestamp::EPOCH,
            result: DecisionResult::Block,
            error: error.to_owned(),
            reason: reason.to_owned(),
            rule: rule.to_owned(),
            hostname: None,
            policy_version: None,
            inputs: None,
            approval: None,
            checks: Vec::new(),
            latency_ms: 0,
        }
    }

    #[test]
    fn a_denied_payment_links_to_the_limit_that_denied_it() {
        let page = paths::agent_path(AgentId::from_uuid(Uuid::from_u128(1)));
        let service = format!("#service-{}", ServiceId::from_uuid(Uuid::from_u128(2)));
        let rows = [
            ("service_not_enabled", "", "", Some("#services")),
            ("amount_exceeds_per_call_limit", "", "", Some(service.as_str())),
            ("daily_spend_limit_exceeded", "", "", Some(&service)),
            ("domain_not_allowed", "", "", Some(&service)),
            ("operation_not_enabled_for_agent", "", "", Some(&service)),
            ("approval_required", "", "require_approval_above", Some(&service)),
            ("approval_required", "", "approval_required", Some("#rules")),
            ("policy_blocked", "category_block:finance", "", Some("#rules")),
            ("policy_blocked", "budget_limit", "", Some("#rules")),
            ("policy_blocked", "schedule:1", "", Some("#rules")),
            ("approval_required", "", "new_payee", Some("#rules")),
            ("policy_blocked", "agent_frozen", "", Some("")),
            ("policy_blocked", "agent_frozen:owner", "", None),
            ("policy_blocked", "catalog_price", "", None),
            ("insufficient_usdc_balance", "", "", Some("#wallet")),
            ("amount_exceeds_max", "", "", None),
        ];
        for (error, reason, rule, expected) in rows {
            let expected = expected.map(|anchor| format!("{page}{anchor}"));
            let refusal = LoggedDecision::Refused(refusal(error, reason, rule));
            let entry = HistoryEntry::new(&refusal, "", &Labels::default());
            assert_eq!(denying_limit_url(&entry), expected, "{error} {reason}");
        }
    }

    #[test]
    fn a_denial_is_explained_in_a_few_words() {
        let rows = [
            (
                "policy_blocked",
                "agent_frozen:owner",
                "",
                "all agents of the owner frozen by an operator",
            ),
            (
                "policy_blocked",
                "category_block:finance",
                "",
                "category finance is blocked",
            ),
            (
                "policy_blocked",
                "catalog_payee:pay_to_is_own_wallet",
                "",
                "payee is the agent’s own wallet",
            ),
            (
                "policy_blocked",
                "count_limit:1",
                "",
                "a rule’s number of payments used up",
            ),
            (
                "policy_blocked",
                "schedule:1",
                "",
                "a rule allows payments only at other times",
            ),
            ("policy_blocked", "future_reason:1", "", "future_reason:1"),
            ("approval_required", "", "new_payee", "a rule requires approval"),
            (
                "approval_required",
                "",
                "require_approval_above",
                "over the approval threshold",
            ),
        ];
        for (error, reason, rule, expected) in rows {
            let decision = LoggedDecision::Refused(refusal(error, reason, rule));
            let entry = HistoryEntry::new(&decision, "", &Labels::default());
            let denial = entry.refusal.as_ref().unwrap();
            assert_eq!(denial_reason(&entry, denial), expected, "{error} {reason}");
        }
    }

    #[test]
    fn a_required_approval_is_explained_in_a_few_words() {
        let units = |units| Amount::from_units(units).unwrap();
        let id = RuleId::from_uuid(Uuid::nil());
        let limit = |rule, above, kind| AskingLimit {
            rule,
            above: units(above),
            kind,
        };
        let threshold = limit(None, 5_000, AskingKind::Threshold);
        let asking = |above| limit(Some(id), above, AskingKind::ApprovalRequired);
        let duplicate = limit(Some(id), 0, AskingKind::DuplicateGuard);
        let payee = limit(Some(id), 0, AskingKind::NewPayee);
        for (asking, expected) in [
            (vec![threshold], "Over the $0.005 approval threshold"),
            (vec![asking(2_000_000)], "Over the $2.00 of an approval rule"),
            (vec![asking(0)], "Approval rule for every payment"),
            (
                vec![duplicate, payee],
                "The same call again · The first payment to this payee",
            ),
        ] {
            assert_eq!(short_approval_reason(&asking), expected);
        }
    }
}
