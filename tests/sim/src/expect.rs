//! Computes the expected responses of authorize from the stored rows: a second implementation of `docs/decisions.md` §4
//! and §5.
//!
//! A response is one line, such as `policy_blocked:agent_frozen`. If other calls wrote meanwhile, several responses are
//! possible, because the reads of a call may be from two instants.

use crate::laws::{approval_id, hex};
use crate::people::{self, Scope};
use crate::plan::{Buy, Twist};
use crate::stored::{Budget, DAY, StoredState, budget_window, day_window, raises_of, remembered, rule_id};
use crate::tables::{Item, bytes, list, number, text};
use dynoxide::types::AttributeValue;
use purser_domain::{AgentId, ApprovalId, Fingerprint};

/// The parts of a request on which the response depends.
pub(crate) struct RequestParts<'a> {
    pub(crate) agent: &'a str,
    pub(crate) service: &'a str,
    pub(crate) category: &'a str,
    /// The id of the API key that the request uses.
    pub(crate) caller: &'a str,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) key: Fingerprint,
    pub(crate) carried: Option<ApprovalId>,
    pub(crate) buy: Buy,
    /// The digest by which the duplicate guard identifies the call.
    pub(crate) call: [u8; 8],
    /// The digest by which the rows of known payees identify the payee.
    pub(crate) payee: [u8; 12],
    pub(crate) most_waiting: usize,
    pub(crate) scope: Scope,
}

/// The times between which a call was evaluated, and the balances that the call read.
pub(crate) struct Instant<'a> {
    pub(crate) from: i64,
    pub(crate) until: i64,
    /// The time of the decision that the call stored; `None` if it stored none.
    pub(crate) recorded: Option<i64>,
    pub(crate) balances: &'a [u64],
}

/// Returns all possible responses in a stored state, in the order of the checks.
pub(crate) fn answers(stored: &StoredState, asked: &RequestParts<'_>, instant: &Instant<'_>) -> Vec<String> {
    let mut answers = Vec::new();
    if !takes(stored, asked, instant) {
        answers.push("invalid_agent_key".to_owned());
    }
    if asked.scope.forbids_paying || asked.scope.forbids == Some(asked.buy.service) {
        // The service checks a reused idempotency key before the API key's services, so both responses are possible.
        let reused = before(stored, asked, instant).into_iter().flatten();
        answers.extend(reused.filter(|answer| {
            !asked.scope.forbids_paying && (answer.starts_with("idempotency_key_reused") || answer == "not_found")
        }));
        answers.push("key_not_allowed".to_owned());
        return answers;
    }
    if let Some(answer) = before(stored, asked, instant) {
        answers.extend(answer);
        return answers;
    }
    answers.extend(refusals(stored, asked, instant));
    answers.push("allow".to_owned());
    answers
}

/// Returns whether a temporary limit increase begins or ends during the call.
pub(crate) fn raise_changes(stored: &StoredState, asked: &RequestParts<'_>, from: i64, until: i64) -> bool {
    let policy = stored.policy(asked.agent, asked.service);
    let meets = |raise: &Item| {
        ["from", "until"]
            .map(|name| number(raise, name))
            .iter()
            .any(|at| (from..=until).contains(at))
    };
    policy.iter().flat_map(raises_of).any(meets)
}

/// Returns whether the API key was valid at some time during the call.
fn takes(stored: &StoredState, asked: &RequestParts<'_>, instant: &Instant<'_>) -> bool {
    key_ends(stored, asked).is_some_and(|ends| ends.is_none_or(|ends| instant.from < ends))
}

/// Returns whether the API key may have expired by the time `until`.
pub(crate) fn may_have_ended(stored: &StoredState, asked: &RequestParts<'_>, until: i64) -> bool {
    key_ends(stored, asked).is_none_or(|ends| ends.is_some_and(|ends| until >= ends))
}

#[expect(
    clippy::option_option,
    reason = "no such key, and a key without an end, are two things"
)]
fn key_ends(stored: &StoredState, asked: &RequestParts<'_>) -> Option<Option<i64>> {
    let keys = list(stored.agent(asked.agent)?, "keys");
    keys.iter().find_map(|key| match key {
        AttributeValue::M(key) if key_id(key) == asked.caller => {
            let ends = key.contains_key("ends").then(|| number(key, "ends"));
            Some(match (ends, asked.scope.expires) {
                (Some(ends), Some(expires)) => Some(ends.min(expires)),
                (ends, expires) => ends.or(expires),
            })
        }
        _ => None,
    })
}

fn key_id(key: &Item) -> String {
    match bytes(key, "id") {
        [] => text(key, "id").to_owned(),
        bytes => hex(bytes),
    }
}

/// Returns the responses that earlier calls and approval decisions determine; `None` if there are none.
fn before(stored: &StoredState, asked: &RequestParts<'_>, instant: &Instant<'_>) -> Option<Vec<String>> {
    let approval = |id: &str| {
        stored
            .all("AP#", "")
            .find(|(key, _)| approval_id(key) == id)
            .map(|(_, row)| row)
    };
    let carried = match asked.carried {
        None => None,
        Some(id) => match approval(&id.to_string()) {
            Some(row) if text(row, "agent") == asked.agent => Some((id.to_string(), row)),
            _ => return Some(vec!["not_found".to_owned()]),
        },
    };
    if let Some((id, row)) = &carried
        && text(row, "st") == "executed"
    {
        return Some(vec![format!("idempotent_replay:{id}:{}", text(row, "sid"))]);
    }
    let same = |row: &Item| bytes(row, "rh") == asked.fingerprint.as_bytes();
    let prior = stored.row(&format!("I#{}", asked.agent), &asked.key.to_string());
    match prior.map(|row| (text(row, "kind"), row)) {
        Some(("allow", row)) if same(row) => {
            return Some(vec![match stored.freeze(asked.agent) {
                Some(reason) => format!("policy_blocked:{reason}"),
                None => format!("replay:{}", text(row, "sid")),
            }]);
        }
        Some(("allow", row)) => {
            return Some(vec![format!(
                "idempotency_key_reused_for_different_request:{}",
                text(row, "sid")
            )]);
        }
        Some((_, row)) if !same(row) => return Some(vec!["idempotency_key_reused_for_different_request:".to_owned()]),
        Some((_, row))
            if asked
                .carried
                .is_none_or(|carried| is_earlier(carried, text(row, "apid"))) =>
        {
            let id = text(row, "apid");
            let row = approval(id).expect("what a key waits for is there");
            return Some(service_state(id, row, instant, stored.freeze(asked.agent), true));
        }
        _ => {}
    }
    let (id, row) = carried?;
    if !same(row) {
        return Some(vec!["policy_blocked:approval_request_mismatch".to_owned()]);
    }
    let mut answers = service_state(&id, row, instant, stored.freeze(asked.agent), false);
    let runs = answers.iter().position(|answer| answer == "runs");
    match runs {
        Some(0) if answers.len() == 1 => None,
        Some(place) => {
            answers.remove(place);
            answers.extend(refusals(stored, asked, instant));
            answers.push("allow".to_owned());
            Some(answers)
        }
        None => Some(answers),
    }
}

/// Returns whether the idempotency key is bound to a later approval than the approval in the request.
fn is_earlier(carried: ApprovalId, bound: &str) -> bool {
    ApprovalId::parse(bound).is_some_and(|bound| carried.is_before(bound))
}

/// Returns the possible responses to a request with an approval. `pinned` means that only the idempotency key names the
/// approval.
fn service_state(id: &str, row: &Item, instant: &Instant<'_>, frozen: Option<&str>, pinned: bool) -> Vec<String> {
    let waits = || match frozen {
        None => format!("approval_required:{id}"),
        Some(reason) => format!("policy_blocked:{reason}"),
    };
    let open = match text(row, "st") {
        "executed" => return vec![format!("idempotent_replay:{id}:{}", text(row, "sid"))],
        "rejected" => return vec!["policy_blocked:approval_rejected".to_owned()],
        "approved" if !pinned => "runs".to_owned(),
        _ => waits(),
    };
    let ends = number(row, "ends");
    let mut answers = Vec::new();
    if instant.from < ends {
        answers.push(open);
    }
    if instant.until >= ends {
        answers.push("policy_blocked:approval_expired".to_owned());
    }
    answers
}

/// Returns the time of the agent's last payment to the service that satisfies `is_counted`.
fn last_payment(stored: &StoredState, asked: &RequestParts<'_>, is_counted: fn(&str) -> bool) -> Option<i64> {
    let settlements = stored.settlements();
    let here = settlements.filter(|(agent, _, row)| *agent == asked.agent && text(row, "svc") == asked.service);
    here.filter(|(_, _, row)| is_counted(text(row, "rs")))
        .map(|(_, _, row)| number(row, "t"))
        .max()
}

/// Returns whether the next decision may add a record of the call or payee to the daily window.
pub(crate) fn may_backfill(stored: &StoredState, asked: &RequestParts<'_>) -> bool {
    let totals = stored.row(&day_window(asked.agent, asked.service), "#W");
    let is_unknown = |kind, digest: &[u8]| totals.and_then(|row| remembered(row, kind, digest)).is_none();
    is_unknown('c', &asked.call) && last_payment(stored, asked, |state| state != "expired").is_some()
        || is_unknown('p', &asked.payee) && last_payment(stored, asked, |state| state == "confirmed").is_some()
}

/// Returns every denial that applies, in the order of the checks.
fn refusals(stored: &StoredState, asked: &RequestParts<'_>, instant: &Instant<'_>) -> Vec<String> {
    let mut refused = Vec::new();
    let RequestParts {
        agent, service, buy, ..
    } = *asked;
    let amount = i64::from(buy.units);
    let windows = std::iter::once((day_window(agent, service), DAY));
    let budgets = stored.budgets(agent);
    let windows = windows.chain(
        budgets
            .iter()
            .map(|budget| (budget_window(agent, &budget.id), budget.duration)),
    );
    let cleared = windows
        .map(|(window, length)| stored.horizon(&window) + length)
        .max()
        .unwrap_or(0);
    let at = instant.recorded.unwrap_or(instant.from).max(cleared);
    let policy = stored.policy(agent, service);
    let policy = policy
        .as_ref()
        .filter(|row| matches!(row.get("on"), Some(AttributeValue::BOOL(true))));
    if policy.is_none() {
        refused.push("service_not_enabled".to_owned());
    }
    if let Some(reason) = stored.freeze(agent) {
        refused.push(format!("policy_blocked:{reason}"));
    }
    if buy.twist == Twist::OverCeiling {
        refused.push("amount_exceeds_max".to_owned());
    }
    let caps = policy.map(|policy| stored.caps(agent, policy, at));
    if caps.is_some_and(|(per_call, _)| amount > per_call) {
        refused.push("amount_exceeds_per_call_limit".to_owned());
    }
    let rules = stored.agent(agent).map(|row| list(row, "rules")).unwrap_or_default();
    let rules: Vec<&Item> = rules
        .iter()
        .filter_map(|rule| match rule {
            AttributeValue::M(rule) => Some(rule),
            _ => None,
        })
        .collect();
    let names = |rule: &Item, list_name: &str, wanted: &str| {
        list(rule, list_name)
            .iter()
            .any(|one| matches!(one, AttributeValue::S(text) if text == wanted))
    };
    for rule in &rules {
        if text(rule, "kind") == "category_block" && names(rule, "categories", asked.category) {
            refused.push(format!("policy_blocked:category_block:{}", asked.category));
        }
    }
    if buy.twist == Twist::Stranger {
        refused.push("policy_blocked:catalog_payee:pay_to_not_in_catalog".to_owned());
    }
    for rule in &rules {
        if text(rule, "kind") == "schedule" && !is_open(at) {
            refused.push(format!("policy_blocked:schedule:{}", rule_id(rule)));
        }
    }
    let left = |budget: &Budget| budget.limit - stored.live(&budget_window(agent, &budget.id), budget.duration, at);
    let amounts = budgets.iter().filter(|budget| budget.kind == "budget_limit");
    let mut exceeded: Vec<&Budget> = amounts.filter(|budget| left(budget) < amount).collect();
    // The response names the exceeded budget with the smallest remaining amount.
    exceeded.sort_by_key(|budget| left(budget));
    let named = exceeded.into_iter();
    refused.extend(named.map(|budget| format!("policy_blocked:budget_limit:{}", budget.id)));
    for kind in ["count_limit", "minimum_interval"] {
        for rule in budgets.iter().filter(|budget| budget.kind == kind) {
            if stored.live(&budget_window(agent, &rule.id), rule.duration, at) + 1 > rule.limit {
                refused.push(format!("policy_blocked:{kind}:{}", rule.id));
            }
        }
    }
    if let Some((_, per_day)) = caps {
        let live = stored.live(&day_window(agent, service), DAY, at);
        if live + amount > per_day {
            refused.push(format!("daily_spend_limit_exceeded:{live}"));
        }
    }
    let totals = stored.row(&day_window(agent, service), "#W");
    let is_known = |kind, digest: &[u8]| totals.and_then(|row| remembered(row, kind, digest));
    let last_call = is_known('c', &asked.call).max(last_payment(stored, asked, |state| state != "expired"));
    let violated = |rule: &Item| match text(rule, "kind") {
        "duplicate_guard" => last_call.is_some_and(|last| at - last < number(rule, "within") * 1_000_000),
        "price_above_usual" => amount > people::USUAL_PRICE * (100 + number(rule, "percent")) / 100,
        _ => false,
    };
    for kind in ["duplicate_guard", "price_above_usual"] {
        let blocking = rules
            .iter()
            .filter(|rule| text(rule, "kind") == kind && text(rule, "action") == "block");
        for rule in blocking.filter(|rule| violated(rule)) {
            refused.push(format!("policy_blocked:{kind}:{}", rule_id(rule)));
        }
    }
    let asks = |rule: &&Item| match text(rule, "kind") {
        "approval_required" => amount > number(rule, "above"),
        "new_payee" => is_known('p', &asked.payee).is_none(),
        _ => text(rule, "action") == "ask" && violated(rule),
    };
    let above = policy.is_some_and(|policy| amount > number(policy, "raa"));
    let asking = rules.iter().filter(|rule| asks(rule)).map(|rule| rule_id(rule));
    let asking: Vec<String> = above.then(String::new).into_iter().chain(asking).collect();
    let waives = |row: &Item| {
        let shown = list(row, "asking");
        let shown = shown.iter().filter_map(|limit| match limit {
            AttributeValue::M(limit) if limit.contains_key("id") => Some(rule_id(limit)),
            AttributeValue::M(_) => Some(String::new()),
            _ => None,
        });
        let shown: Vec<String> = shown.collect();
        asking.iter().all(|limit| shown.contains(limit))
    };
    let is_waived = asked.carried.is_some_and(|id| {
        let mut rows = stored.all("AP#", "");
        rows.any(|(key, row)| approval_id(key) == id.to_string() && waives(row))
    });
    if !asking.is_empty() && !is_waived {
        let next = next_approval(stored, asked, at, waives).to_string();
        let is_new = !stored.all("AP#", "").any(|(key, _)| approval_id(key) == next);
        refused.push(if is_new && stored.waiting(agent, at) >= asked.most_waiting {
            "policy_blocked:too_many_open_approvals".to_owned()
        } else {
            format!("approval_required:{next}")
        });
    }
    if instant.balances.iter().any(|balance| *balance < u64::from(buy.units)) {
        refused.push("insufficient_usdc_balance".to_owned());
    }
    refused
}

/// Returns whether a plan's schedule allows payments: from 22:00 to 02:30 in Berlin.
fn is_open(at: i64) -> bool {
    let secs = at / 1_000_000;
    let year = year_of(secs.div_euclid(86_400));
    let change = |month_end: i64| {
        let end = days(year) + month_end + i64::from(is_leap(year));
        // The first day of 1970 was a Thursday.
        let last_sunday = end - (end + 4).rem_euclid(7);
        last_sunday * 86_400 + 3_600
    };
    // March ends with the 90th day of a year, and October with the 304th.
    let is_summer = (change(89)..change(303)).contains(&secs);
    let minutes = (secs + if is_summer { 7_200 } else { 3_600 }).rem_euclid(86_400) / 60;
    let closed = 2 * 60 + 30..22 * 60;
    !closed.contains(&minutes)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days(year: i64) -> i64 {
    (1970..year).map(|year| 365 + i64::from(is_leap(year))).sum()
}

fn year_of(day: i64) -> i64 {
    (1970..).find(|year| day < days(year + 1)).expect("a year")
}

/// Returns the id of the approval that the request is bound to or would create.
fn next_approval(
    stored: &StoredState,
    asked: &RequestParts<'_>,
    at: i64,
    waives: impl Fn(&Item) -> bool,
) -> ApprovalId {
    let agent = AgentId::parse(asked.agent).expect("an id");
    let of = |sequence| ApprovalId::derive(agent, &asked.fingerprint, sequence);
    let partition = format!("AP#{}", of(0).request_prefix());
    let newest = stored.within(&partition, "").next_back();
    newest.map_or(of(0), |(sequence, row)| {
        let sequence: u32 = sequence.parse().expect("a number");
        let open = matches!(text(row, "st"), "pending" | "approved") && at < number(row, "ends");
        of(if open && waives(row) { sequence } else { sequence + 1 })
    })
}

/// Returns the expected `retry_at` of a denial by the daily window: the earliest time at which the amount fits.
pub(crate) fn retry_at(stored: &StoredState, asked: &RequestParts<'_>, at: i64) -> Option<i64> {
    let window = day_window(asked.agent, asked.service);
    let (_, cap) = stored.caps(asked.agent, &stored.policy(asked.agent, asked.service)?, at);
    stored.fits_at(&window, DAY, i64::from(asked.buy.units), cap, at)
}
