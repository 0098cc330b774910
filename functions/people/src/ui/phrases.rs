//! Renders sentences about decisions: the reason for a denial, the checks, and the rules.

use crate::ui::datetime::{exact_time, format_duration};
use crate::ui::labels;
use crate::ui::money::{amount_text, format_dollars};
use crate::ui::paths;
use maud::{Markup, html};
use purser_domain::{
    Amount, AskingKind, AskingLimit, Catalog, Category, Check, CheckName, CheckOutcome, HistoryEntry, IncreasedCaps,
    LimitAction, LoggedDenial, Rule, RuleKind, ServiceSlug, Timestamp, UsualPrice, Vendor, WithdrawalRejection,
    escape_hidden_characters,
};

/// Renders a sentence that explains why a payment was denied or requires approval.
pub(crate) fn rejection_sentence(refusal: &LoggedDenial) -> Markup {
    let check = |name| refusal.checks.iter().find(|check| check.name == name);
    let limit = |name| check(name).and_then(|check| check.limit);
    let used = |name| check(name).and_then(|check| check.used);
    let sum = |before: &str, name, after: &str| {
        html! { (before) @match limit(name) { Some(limit) => (amount_text(limit)), None => "the limit" } (after) }
    };
    match refusal.error.as_str() {
        "service_not_enabled" => html! { "The service is not enabled for this agent." },
        "operation_not_enabled_for_agent" => html! { "The operation is not enabled for this agent." },
        "domain_not_allowed" => html! {
            "It requested a page of " code { (refusal.hostname.as_deref().unwrap_or("a host")) }
            ", which is not an allowed domain."
        },
        "amount_exceeds_max" => sum(
            "The provider asked for more than the ",
            CheckName::MaxPayment,
            " that the agent was ready to pay.",
        ),
        "amount_exceeds_per_call_limit" => sum("Over the limit of ", CheckName::PerCall, " per call"),
        "daily_spend_limit_exceeded" => {
            let used = used(CheckName::Day);
            html! {
                (sum("Daily limit ", CheckName::Day, " exceeded"))
                @if let Some(used) = used { " (" (amount_text(used)) " used)" }
            }
        }
        "approval_required" if refusal.rule == "approval_required" => html! { "A rule requires approval" },
        "approval_required" => sum("Over the ", CheckName::Approval, " approval threshold"),
        "insufficient_usdc_balance" => sum("The wallet held only ", CheckName::Balance, ""),
        "policy_blocked" => block_reason(refusal),
        other => html! { code { (other) } },
    }
}

/// Returns a sentence that explains why a withdrawal was rejected.
pub(crate) fn withdrawal_rejection_sentence(refusal: &WithdrawalRejection) -> String {
    match refusal {
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

fn block_reason(refusal: &LoggedDenial) -> Markup {
    let budget = refusal.checks.iter().find(|check| check.name == CheckName::Budget);
    let (rule, detail) = refusal.reason.split_once(':').unwrap_or((&refusal.reason, ""));
    match (rule, detail) {
        ("agent_frozen", "") => html! { "The agent was frozen." },
        ("agent_frozen", "owner") => html! { "An operator had frozen all agents of its owner." },
        ("agent_frozen", "deployment") => html! { "An operator had frozen all payments." },
        ("agent_frozen", _) => html! { "An operator had frozen the agent." },
        ("category_block", category) => html! { "A rule blocks the category " em { (category) } "." },
        ("catalog_payee", "pay_to_not_in_catalog") => {
            html! { "The payee is not a wallet that the catalog lists for this service." }
        }
        ("catalog_payee", "pay_to_not_yet_accepted") => {
            html! { "The payee or price changed recently in the catalog and can’t be paid yet." }
        }
        ("catalog_payee", "pay_to_is_own_wallet") => html! { "The payee is the agent’s own wallet." },
        ("catalog_price", _) => {
            html! { "The price is above the catalog’s ceiling for this operation." }
        }
        ("catalog_payment", _) => html! { "According to the catalog, calls of this operation can’t be paid." },
        ("vendor_allowlist", _) => html! { "The vendor is not on a list of allowed vendors." },
        ("budget_limit", _) => html! {
            @match budget.and_then(|check| check.used.zip(check.limit)) {
                Some((used, limit)) => { "Budget of " (amount_text(limit)) " for all services exceeded (" (amount_text(used)) " used)" },
                None => "Budget for all services exceeded",
            }
        },
        ("schedule", _) => html! { "A rule allows payments only at other times." },
        ("count_limit", _) => html! {
            @match number_limit(refusal, CheckName::Count) {
                Some(count) => { "A rule allows " (count) " payments within a time, and all were used." },
                None => "A rule’s number of payments was used up.",
            }
        },
        ("minimum_interval", _) => html! { "The last payment was too short a time ago for a rule." },
        ("duplicate_guard", _) => html! { "The same call was paid a short time ago, and a rule forbids to repeat it." },
        ("price_above_usual", _) => {
            html! { "The price is further above the usual one than a rule allows." }
        }
        ("approval_rejected", _) => html! { "A person rejected it." },
        ("approval_expired", _) => html! { "Its approval had expired." },
        ("too_many_open_approvals", _) => {
            html! { "Approval was required, but this agent already had the maximum of pending approvals." }
        }
        ("approval_request_mismatch", _) => html! { "Its approval was given for another request." },
        _ => html! { code { (refusal.reason) } },
    }
}

/// Returns a check's limit if the limit is a number of payments.
fn number_limit(refusal: &LoggedDenial, name: CheckName) -> Option<u64> {
    let check = refusal.checks.iter().find(|check| check.name == name)?;
    check.limit.map(Amount::units)
}

/// Returns the name of a check's limit, for the reason of a denial.
pub(crate) const fn limit_name(name: CheckName) -> &'static str {
    match name {
        CheckName::ServiceEnabled => "service not enabled",
        CheckName::AgentActive => "agent frozen",
        CheckName::OperationEnabled => "operation not enabled",
        CheckName::Domain => "domain not allowed",
        CheckName::MaxPayment => "the agent’s own maximum",
        CheckName::PerCall => "limit per call",
        CheckName::Category => "blocked category",
        CheckName::Vendor => "vendor not allowed",
        CheckName::Budget => "budget",
        CheckName::Schedule => "schedule",
        CheckName::Count => "number of payments",
        CheckName::Interval => "time between payments",
        CheckName::Duplicate => "repeated call",
        CheckName::Price => "unusual price",
        CheckName::Payee => "new payee",
        CheckName::Day => "daily limit",
        CheckName::Approval => "approval",
        CheckName::Balance => "wallet balance",
    }
}

/// Returns the text that describes a check in the table of checks.
const fn check_name(name: CheckName) -> &'static str {
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

const fn check_outcome(outcome: CheckOutcome) -> (&'static str, &'static str) {
    match outcome {
        CheckOutcome::Passed => ("passed", "✓"),
        CheckOutcome::Failed => ("failed", "✕"),
        CheckOutcome::Waived => ("waived by an approval", "↑"),
        CheckOutcome::Unknown => ("not made", "–"),
    }
}

/// Renders all checks of a decision, with their amounts.
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
                    @let (text, sign) = check_outcome(check.outcome);
                    tr class=(check.outcome.name()) {
                        th scope="row" {
                            span.sign aria-hidden="true" { (sign) } (check_name(check.name)) span.sr { ": " (text) }
                        }
                        td.num { @if let Some(limit) = check.limit { (check_limit(check.name, limit)) } }
                        td.num {
                            @if let Some(used) = check.used.filter(|used| !used.is_zero()) { (used_amount(check.name, used)) }
                        }
                    }
                }
            }
        }
    }
}

/// Renders a check's limit in its unit.
fn check_limit(name: CheckName, limit: Amount) -> Markup {
    match name {
        CheckName::Count | CheckName::Interval | CheckName::Duplicate => used_amount(name, limit),
        _ => crate::ui::money::cap_text(limit),
    }
}

/// Renders the used part of a check's limit in its unit.
fn used_amount(name: CheckName, used: Amount) -> Markup {
    match name {
        CheckName::Count | CheckName::Interval => html! { (used.units()) },
        CheckName::Duplicate => html! { (used.units()) " s" },
        _ => amount_text(used),
    }
}

pub(crate) fn rule_sentence(kind: &RuleKind, catalog: &Catalog) -> Markup {
    match kind {
        RuleKind::CategoryBlock { categories } => {
            html! { "Buys nothing in " (join_with_or(categories.iter().copied().map(category_name))) "." }
        }
        RuleKind::VendorAllowlist { vendors } if vendors.is_empty() => html! { "Pays nobody." },
        RuleKind::VendorAllowlist { vendors } => {
            html! { "Pays only " (join_with_or(vendors.iter().map(|vendor| match vendor {
                Vendor::Service(slug) => service_phrase(slug, catalog),
                Vendor::Wallet(wallet) => labels::short_wallet_address(*wallet),
            }))) "." }
        }
        RuleKind::BudgetLimit { limit, window } => {
            html! { "Spends at most " (amount_text(*limit)) " in any " (format_duration(*window)) ", over all services." }
        }
        RuleKind::ApprovalRequired {
            services,
            categories,
            above,
        } => html! {
            "Requires approval of every payment"
            @if let Some(above) = above { " above " (amount_text(*above)) }
            @if let Some(services) = services { " to " (join_with_or(services.iter().map(|slug| service_phrase(slug, catalog)))) }
            @if let Some(categories) = categories { " in " (join_with_or(categories.iter().copied().map(category_name))) }
            "."
        },
        RuleKind::CountLimit { count, window, .. } => html! {
            "Makes at most " (count) @if *count == 1 { " payment" } @else { " payments" }
            " in any " (format_duration(*window)) (rule_scope(kind, catalog)) "."
        },
        RuleKind::MinimumInterval { interval, .. } => {
            html! { "Waits " (format_duration(*interval)) " after each payment" (rule_scope(kind, catalog)) "." }
        }
        RuleKind::DuplicateGuard { within, action, .. } => html! {
            (action_verb(*action)) " the same call again within " (format_duration(*within)) (rule_scope(kind, catalog)) "."
        },
        RuleKind::NewPayee { .. } => html! {
            (action_verb(LimitAction::Ask)) " the first payment to each payee of a service" (rule_scope(kind, catalog)) "."
        },
        RuleKind::PriceAboveUsual {
            percent, over, action, ..
        } => html! {
            (action_verb(*action)) " a price more than " (percent) "% above "
            @match over {
                UsualPrice::Catalog => "the catalog’s",
                UsualPrice::Median(count) => { "the median of an operation’s last " (count) },
            }
            (rule_scope(kind, catalog)) "."
        },
        RuleKind::Schedule { schedule, .. } => html! {
            "Pays only on " (join_with_or(schedule.days.iter().map(|day| html! { (day.name()) })))
            " from " (schedule.from) " to " (schedule.to) " (" (schedule.zone) ")" (rule_scope(kind, catalog)) "."
        },
        RuleKind::AnomalyBrake(brake) => html! {
            "Is frozen when it pays more within an hour than " (brake.times) " times the busiest hour of a usual day, and at least "
            (amount_text(brake.at_least)) "."
        },
    }
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
        @if let Some(services) = kind.service_slugs() { ", at " (join_with_or(services.iter().map(|slug| service_phrase(slug, catalog)))) }
    }
}

/// Renders, in a few words, each limit that requires approval of a payment.
pub(crate) fn short_approval_reason(asking: &[AskingLimit]) -> Markup {
    html! {
        @for (index, limit) in asking.iter().enumerate() { @if index > 0 { " · " } (short_limit(*limit)) }
    }
}

fn short_limit(AskingLimit { above, kind, .. }: AskingLimit) -> Markup {
    match kind {
        AskingKind::Threshold => html! { "Over the " (amount_text(above)) " approval threshold" },
        AskingKind::ApprovalRequired if above.is_zero() => html! { "Approval rule for every payment" },
        AskingKind::ApprovalRequired => html! { "Over the " (amount_text(above)) " of an approval rule" },
        AskingKind::DuplicateGuard => html! { "The same call again" },
        AskingKind::PriceAboveUsual => html! { "Over the usual price, at most " (amount_text(above)) },
        AskingKind::NewPayee => html! { "The first payment to this payee" },
    }
}

/// Renders the caps and the end of a temporary limit increase, as part of a sentence.
pub(crate) fn limit_increase_phrase(caps: IncreasedCaps, until: Timestamp) -> Markup {
    html! {
        @if let Some(most) = caps.max_per_call { (amount_text(most)) " per call" }
        @if caps.max_per_call.is_some() && caps.max_per_day.is_some() { " and " }
        @if let Some(most) = caps.max_per_day { (amount_text(most)) " per day" }
        " until " (exact_time(until))
    }
}

/// Returns the URL at which the owner can change the limit that denied a payment. Returns `None` if the limit is not
/// the owner's.
pub(crate) fn limit_link(entry: &HistoryEntry) -> Option<String> {
    let refusal = entry.refusal.as_ref()?;
    let page = paths::agent_path(entry.agent);
    let service = || Some(format!("{page}#service-{}", entry.service?));
    let (rule, detail) = entry.reason.split_once(':').unwrap_or((&entry.reason, ""));
    match refusal.error.as_str() {
        "service_not_enabled" => Some(format!("{page}#services")),
        "approval_required"
            if AskingKind::from_name(&refusal.rule).is_some_and(|kind| kind != AskingKind::Threshold) =>
        {
            Some(format!("{page}#rules"))
        }
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
pub(crate) fn approval_reason(asking: &[AskingLimit], rules: &[Rule], catalog: &Catalog) -> Markup {
    html! {
        @for (index, limit) in asking.iter().enumerate() { @if index > 0 { br; } (limit_reason(*limit, rules, catalog)) }
    }
}

fn limit_reason(AskingLimit { rule: id, above, .. }: AskingLimit, rules: &[Rule], catalog: &Catalog) -> Markup {
    let Some(id) = id else {
        return html! { "Over the " (amount_text(above)) " approval threshold of this service." };
    };
    let Some(found) = rules.iter().find(|rule| rule.id == id) else {
        return html! { "A rule that has since been removed required approval above " (amount_text(above)) "." };
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
    use purser_domain::{Labels, LoggedDecision};
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
            assert_eq!(limit_link(&entry), expected, "{error} {reason}");
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
            let told = short_approval_reason(&asking).into_string();
            let words: String = told
                .split('<')
                .enumerate()
                .fold(String::new(), |mut words, (place, part)| {
                    // The text for screen readers also contains the units, which this comparison ignores.
                    let part = if place == 0 {
                        part
                    } else {
                        part.split_once('>').map_or("", |(_, text)| text)
                    };
                    words.push_str(part.split(" (").next().unwrap_or_default());
                    words
                });
            assert_eq!(words, expected);
        }
    }
}
