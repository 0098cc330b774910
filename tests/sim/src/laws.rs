//! Checks the invariants of `docs/data-model.md` §7 after each write: in every stored state, and in every step to the
//! next state.
//!
//! `expect.rs` and `run.rs` check I8 and I13, which are about responses.

use crate::chain::{Chain, SignedTerms};
use crate::plan::owner_of;
use crate::stored::{
    Claim, DAY, StoredState, budget_window, budgets_of, caps_under, claim, counted_at, counts_of, day_window, entry,
    horizons, remembered, rule_id,
};
use crate::tables::{DECISIONS, Item, Key, LEDGER, bytes, list, number, text};
use purser_chain::NonceKey;
use purser_domain::{Address, ApprovalId, SettlementId};
use std::collections::{BTreeMap, BTreeSet};

/// What the checks need in addition to the stored rows.
pub(crate) struct KnownFacts {
    pub(crate) nonces: NonceKey,
    /// The payee of each service.
    pub(crate) payees: BTreeMap<String, Address>,
    /// The agents whose freeze got a response and is not being ended.
    pub(crate) frozen: BTreeSet<String>,
    /// The agents that operators with a token have frozen, with the time of the response. No end of the freeze has
    /// begun since.
    pub(crate) stopped: BTreeMap<String, i64>,
    /// The expiry of each API key whose update got a response, by the key's id.
    pub(crate) ended: BTreeMap<String, End>,
    /// Pairs of an agent and a budget whose creation got a response. No removal has begun since.
    pub(crate) service_state: BTreeSet<(String, String)>,
    /// Pairs of an agent and a rule whose creation got a response. No removal has begun since.
    pub(crate) standing: BTreeSet<(String, String)>,
    /// The caller of each step of the plan.
    pub(crate) callers: BTreeMap<usize, Caller>,
    /// The steps of the plan that run `reconcile`.
    pub(crate) reconciling: BTreeSet<usize>,
    /// The steps to which a node has shown removed blocks.
    pub(crate) aside: BTreeSet<usize>,
    /// The agent of each step that concerns one agent.
    pub(crate) acting: BTreeMap<usize, String>,
    /// The steps whose calls must all be rejected, so that they write nothing.
    pub(crate) idle: BTreeSet<usize>,
    /// Settlements that may be reconciled before they are due, because an operator requested it or a confirmation was
    /// reverted.
    pub(crate) undue: BTreeSet<String>,
    /// The earlier owners of agents in an unfinished ownership transfer, with the record version that the transfer
    /// wrote. Payments decided earlier may use these owners' limit increases.
    earlier_owners: BTreeMap<String, Vec<(i64, String)>>,
}

#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) at: i64,
    /// The time at which the update began, without clock skew.
    pub(crate) since: i64,
}

pub(crate) struct Caller {
    /// The id of the API key.
    pub(crate) key: String,
    /// The time at which the call began, on the clock of the called process.
    pub(crate) from: i64,
    /// The digest by which the duplicate guard identifies the call.
    pub(crate) call: [u8; 8],
    /// The digest by which the rows of known payees identify the payee.
    pub(crate) payee: [u8; 12],
}

impl Default for KnownFacts {
    fn default() -> Self {
        Self {
            nonces: NonceKey::from_text(crate::run::NONCE_KEY).expect("a key"),
            payees: BTreeMap::new(),
            frozen: BTreeSet::new(),
            stopped: BTreeMap::new(),
            ended: BTreeMap::new(),
            service_state: BTreeSet::new(),
            standing: BTreeSet::new(),
            callers: BTreeMap::new(),
            reconciling: BTreeSet::new(),
            aside: BTreeSet::new(),
            acting: BTreeMap::new(),
            idle: BTreeSet::new(),
            undue: BTreeSet::new(),
            earlier_owners: BTreeMap::new(),
        }
    }
}

impl KnownFacts {
    /// Updates the known facts with the changes from one state to the next.
    pub(crate) fn note(&mut self, before: &StoredState, after: &StoredState) {
        let marks = after.within("MARKS", "").filter_map(|(key, _)| key.split_once('#'));
        self.undue.extend(marks.map(|(_, id)| id.to_owned()));
        for (agent, id, row) in after.settlements() {
            let was = before.settlement(agent, id);
            if text(row, "rs") == "authorized" && was.is_some_and(|was| text(was, "rs") == "confirmed") {
                self.undue.insert(id.to_owned());
            }
        }
        for ((row, _), was) in before.all("A#", "#") {
            let agent = &row[2..];
            let owner = text(was, "owner");
            if let Some(is) = after.agent(agent).filter(|is| text(is, "owner") != owner) {
                let earlier = self.earlier_owners.entry(agent.to_owned()).or_default();
                earlier.push((number(is, "ver"), owner.to_owned()));
            }
        }
    }

    /// Records that the ownership transfer that wrote this version of the agent's record has got a response.
    pub(crate) fn handed_over(&mut self, agent: &str, version: u64) {
        if let Some(earlier) = self.earlier_owners.get_mut(agent) {
            earlier.retain(|(wrote, _)| wrote.unsigned_abs() > version);
        }
    }

    /// Returns the owner of the agent that a step concerns.
    pub(crate) fn owner_of_step(&self, step: usize) -> Option<u8> {
        let agent = self.acting.get(&step)?;
        // The last digits of an agent's id are the agent's number.
        let number = u8::from_str_radix(agent.get(34..)?, 16).ok()?;
        Some(owner_of(number))
    }

    /// Returns the authorization that a settlement's payment signs.
    pub(crate) fn signed(&self, id: &str, settlement: &Item) -> SignedTerms {
        let address = |name| text(settlement, name).parse().expect("an address");
        SignedTerms {
            from: address("wallet"),
            to: address("payto"),
            value: number(settlement, "amt").unsigned_abs(),
            valid_before: number(settlement, "vb").unsigned_abs() / 1_000_000,
            nonce: self.nonces.derive_nonce(SettlementId::parse(id).expect("an id")),
        }
    }
}

/// Returns the violated invariants of a state.
pub(crate) fn of_state(stored: &StoredState) -> Vec<String> {
    let mut found = Vec::new();
    totals_are_sums(stored, &mut found);
    entries_and_settlements_agree(stored, &mut found);
    keys_name_settlements(stored, &mut found);
    approvals_are_used_once(stored, &mut found);
    confirmations_are_claimed(stored, &mut found);
    found
}

/// Checks the first half of I1, and I10: a window's total is the sum of its counted payments, all newer than the
/// watermark.
fn totals_are_sums(stored: &StoredState, found: &mut Vec<String>) {
    for prefix in ["L#", "B#"] {
        let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
        for ((window, rest), row) in stored.all(prefix, "E#") {
            *sums.entry(window).or_default() += number(row, "amt");
            let (entry, cleared) = (entry(&rest[2..], row), stored.horizon(window));
            if entry.at < cleared {
                found.push(format!("I10 {window}: {entry:?} is older than {cleared}"));
            }
        }
        for ((window, _), row) in stored.all(prefix, "#W") {
            let (sum, total) = (sums.remove(window.as_str()).unwrap_or(0), number(row, "total"));
            if sum != total {
                found.push(format!("I1 {window}: the total is {total}, the entries sum to {sum}"));
            }
        }
        for (window, sum) in sums {
            found.push(format!("I1 {window}: entries of {sum} without a total"));
        }
    }
}

/// Checks the second half of I1, I7 and I9: the counted payments of a window are the settlements that count in the
/// window.
fn entries_and_settlements_agree(stored: &StoredState, found: &mut Vec<String>) {
    for prefix in ["L#", "B#"] {
        for ((window, rest), row) in stored.all(prefix, "E#") {
            let entry = entry(&rest[2..], row);
            let (agent, scope) = window[2..].split_once('#').expect("an agent and a scope");
            let fits = stored.settlement(agent, entry.settlement).is_some_and(|settlement| {
                let charged = if prefix == "L#" {
                    text(settlement, "svc") == scope
                } else {
                    budgets_of(settlement).iter().any(|budget| budget == scope)
                };
                let as_one = prefix == "B#" && counts_of(settlement).iter().any(|rule| rule == scope);
                // When a rule is added, earlier payments are counted, but their settlements do not list the rule.
                let budgets = stored.budgets(agent);
                let present = budgets.iter().find(|budget| prefix == "B#" && budget.id == scope);
                let as_one = as_one || !charged && present.is_some_and(|budget| budget.kind != "budget_limit");
                let charged = charged || as_one || present.is_some();
                if !charged && prefix == "B#" {
                    // A settlement that is released after a rule was removed stays counted in the rule's window.
                    let times = [number(settlement, "t"), counted_at(settlement)];
                    return times.contains(&entry.at) && [1, number(settlement, "amt")].contains(&entry.amount);
                }
                let amount = if as_one { 1 } else { number(settlement, "amt") };
                let same = counted_at(settlement) == entry.at && amount == entry.amount;
                charged && same && text(settlement, "rs") != "expired"
            });
            if !fits {
                found.push(format!("I1 {window}: {entry:?} has no settlement that it counts for"));
            }
        }
    }
    for (agent, id, settlement) in stored.settlements() {
        let day = day_window(agent, text(settlement, "svc"));
        let counted = stored.entries(&day).iter().any(|entry| entry.settlement == id);
        let expired = text(settlement, "rs") == "expired";
        let counts = text(settlement, "kind") != "payout";
        if counts && !expired && counted_at(settlement) > stored.horizon(&day) && !counted {
            found.push(format!("I9 settlement {id} is not counted"));
        }
        if expired && counted {
            found.push(format!("I7 settlement {id} has expired and counts"));
        }
        let (state, place) = (text(settlement, "rs"), text(settlement, "hs"));
        let due = format!("{:012}", number(settlement, "vb") / 1_000_000);
        let right = match state {
            "authorized" => settlement.contains_key("hp") && place.len() == due.len() && *place >= *due,
            _ => place.is_empty() && !settlement.contains_key("hp"),
        };
        if !right {
            found.push(format!("I14 settlement {id} is {state} and in the index at {place:?}"));
        }
    }
}

/// Checks I3 and I9: settlements and their idempotency records refer to each other.
fn keys_name_settlements(stored: &StoredState, found: &mut Vec<String>) {
    let allows = stored.all("I#", "").filter(|(_, row)| text(row, "kind") == "allow");
    let allows = allows.map(|(key, row)| (&key.0[2..], key.1.as_str(), row));
    let of_payouts = stored
        .all("PO#", "K#")
        .map(|(key, row)| (&key.0[3..], &key.1[2..], row));
    let from_keys: BTreeSet<_> = allows
        .chain(of_payouts)
        .map(|(agent, key, row)| (agent.to_owned(), key.to_owned(), text(row, "sid").to_owned()))
        .collect();
    let from_settlements: BTreeSet<_> = stored
        .settlements()
        .map(|(agent, id, row)| (agent.to_owned(), hex(bytes(row, "idem")), id.to_owned()))
        .collect();
    for odd in from_keys.symmetric_difference(&from_settlements) {
        found.push(format!("I3 key and settlement do not name each other: {odd:?}"));
    }
}

/// Returns whether an idempotency record now names a later approval of the same request.
fn names_later_approval((was, is): (&Item, &Item)) -> bool {
    let [was, is] = [was, is].map(|row| ApprovalId::parse(text(row, "apid")));
    was.zip(is).is_some_and(|(was, is)| was.is_before(is))
}

/// Checks I4: each executed approval was used by exactly one settlement, which the approval names.
fn approvals_are_used_once(stored: &StoredState, found: &mut Vec<String>) {
    let executed = stored.all("AP#", "").filter(|(_, row)| text(row, "st") == "executed");
    let named: BTreeSet<&str> = executed.map(|(_, row)| text(row, "sid")).collect();
    let using: Vec<_> = stored
        .settlements()
        .filter(|(_, _, row)| row.contains_key("apid"))
        .collect();
    let approvals: BTreeSet<&str> = using.iter().map(|(_, _, row)| text(row, "apid")).collect();
    let users: BTreeSet<&str> = using.iter().map(|(_, id, _)| *id).collect();
    if approvals.len() != using.len() || named != users {
        found.push(format!(
            "I4 approvals name {named:?}; settlements that used one are {users:?}"
        ));
    }
}

/// Checks I5: each confirmed settlement has a claim on its transaction.
fn confirmations_are_claimed(stored: &StoredState, found: &mut Vec<String>) {
    let claimed: BTreeSet<_> = stored
        .claims()
        .map(|claim| (claim.settlement, claim.tx_hash.to_string(), claim.block))
        .collect();
    for (_, id, row) in stored
        .settlements()
        .filter(|(_, _, row)| text(row, "rs") == "confirmed")
    {
        let confirmed = (id, text(row, "txh").to_owned(), number(row, "blk").unsigned_abs());
        if !claimed.contains(&confirmed) {
            found.push(format!("I5 {confirmed:?} has no claim"));
        }
    }
}

/// Returns the rare events of settlements in a step, for the coverage.
pub(crate) fn noteworthy(before: &StoredState, after: &StoredState) -> Vec<&'static str> {
    let mut noted = Vec::new();
    for (agent, id, is) in after.settlements() {
        let Some(was) = before.settlement(agent, id) else {
            continue;
        };
        match (text(was, "rs"), text(is, "rs")) {
            ("expired", "confirmed") => noted.push("confirmed after its release"),
            ("authorized", "authorized") if text(was, "hs") != text(is, "hs") => noted.push("put off"),
            _ => {}
        }
    }
    let beside = |stored: &StoredState| stored.claims().filter(|claim| claim.log_index.is_some()).count();
    if beside(after) > beside(before) {
        noted.push("claimed beside another");
    }
    noted
}

struct Change<'a> {
    before: &'a StoredState,
    after: &'a StoredState,
    known: &'a KnownFacts,
    chain: &'a Chain,
    step: usize,
    /// How far the clock of the writing process is ahead, in microseconds.
    skew: i64,
    found: Vec<String>,
}

/// Returns the invariants that a step from one state to the next violates.
pub(crate) fn of_change(
    (before, after): (&StoredState, &StoredState),
    changed: &[(String, Key)],
    known: &KnownFacts,
    chain: &Chain,
    step: usize,
    skew: i64,
) -> Vec<String> {
    let mut change = Change {
        before,
        after,
        known,
        chain,
        step,
        skew,
        found: Vec::new(),
    };
    let of = |wanted: &'static str| changed.iter().filter(move |(table, _)| table == wanted);
    for (_, key) in of(LEDGER) {
        let (was, is) = (before.ledger.get(key), after.ledger.get(key));
        let (was, is) = (was.map(|row| &**row), is.map(|row| &**row));
        change.row(key, was, is);
        change.is_its_own(key, is.or(was));
    }
    for (_, key) in of(DECISIONS) {
        if before.decisions.contains_key(key) {
            change
                .found
                .push(format!("the decision {key:?} was changed or removed"));
        }
        change.is_its_own(key, None);
    }
    change.found
}

/// Returns the agent to which a row belongs.
fn whose<'a>(key: &'a Key, row: Option<&'a Item>) -> Option<&'a str> {
    let (kind, rest) = key.0.split_once('#').unwrap_or((&key.0, ""));
    let first = |rest: &'a str| rest.split('#').next();
    match kind {
        "A" | "P" | "L" | "B" | "I" | "S" | "R" | "O" | "PO" | "HANDOVER" => first(rest),
        "AP" | "X" => row.map(|row| text(row, "agent")),
        "MARKS" => first(&key.1),
        "EVICT" => first(key.1.split_once('#')?.1),
        _ => None,
    }
}

impl Change<'_> {
    fn wrong(&mut self, what: impl Into<String>) {
        self.found.push(what.into());
    }

    fn row(&mut self, key: &Key, was: Option<&Item>, is: Option<&Item>) {
        let (pk, sk) = (key.0.as_str(), key.1.as_str());
        match (
            pk.split('#').next().unwrap_or_default(),
            sk.split('#').next().unwrap_or_default(),
        ) {
            ("S", _) => self.settlement(&pk[2..], sk, was, is),
            ("A", _) => {
                if let Some((was, is)) = was.zip(is) {
                    self.owned(&pk[2..], was, is);
                }
            }
            ("I", _) => self.key(key, was, is),
            ("L" | "B", "E") => self.entry(pk, &sk[2..], was, is),
            ("L" | "B", "") if sk == "#W" => self.window(pk, was, is),
            ("AP", _) => self.approval(key, was, is),
            ("X", _) => self.claim(key, was, is),
            ("FREEZES", "agent") => {
                let agent = &sk["agent#".len()..];
                let is_tokens = is.is_some_and(|row| text(row, "by") == "ann");
                if self.known.stopped.contains_key(agent) && !is_tokens {
                    self.wrong(format!("the freeze of agent {agent} with a token was weakened"));
                }
            }
            _ => {}
        }
    }

    /// Checks that a step about one agent writes only this agent's rows. If the step's calls must be rejected, it
    /// writes nothing.
    fn is_its_own(&mut self, key: &Key, row: Option<&Item>) {
        let Some(acting) = self.known.acting.get(&self.step) else {
            return;
        };
        if self.known.idle.contains(&self.step) {
            self.wrong(format!("a call of {acting} that must be refused wrote {key:?}"));
        } else if whose(key, row) != Some(acting) {
            self.wrong(format!("a step of {acting} wrote {key:?}, which is not its own"));
        }
    }

    fn settlement(&mut self, agent: &str, id: &str, was: Option<&Item>, is: Option<&Item>) {
        let Some(is) = is else {
            return self.wrong(format!("settlement {id} was removed"));
        };
        let Some(was) = was else {
            return self.authorized(agent, id, is);
        };
        const MOVES: [&str; 10] = ["rs", "txh", "blk", "settled", "hp", "hs", "ct", "fp", "fph", "unc"];
        let terms = |row: &Item| -> BTreeMap<String, String> {
            let kept = row.iter().filter(|(name, _)| !MOVES.contains(&name.as_str()));
            kept.map(|(name, value)| (name.clone(), format!("{value:?}"))).collect()
        };
        if terms(was) != terms(is) {
            self.wrong(format!("the terms of settlement {id} were changed"));
        }
        let signed = self.known.signed(id, is);
        let reconciles = self.known.reconciling.contains(&self.step);
        let is_due = self.chain.was_finally_past(signed.valid_before);
        match (text(was, "rs"), text(is, "rs")) {
            ("authorized" | "expired", "confirmed") => {
                let hash = text(is, "txh").parse().expect("a hash");
                if !self.chain.was_finally_paid(&signed, hash) {
                    self.wrong(format!(
                        "settlement {id} is confirmed by {hash}, which never was its payment in a final block"
                    ));
                }
                if reconciles && !is_due && !self.known.undue.contains(id) {
                    self.wrong(format!("settlement {id} is reconciled, and not due"));
                }
                let by_proof =
                    |claim: &Claim<'_>| claim.settlement == id && claim.tx_hash == hash && claim.log_index.is_none();
                if !reconciles && !self.after.claims().any(|claim| by_proof(&claim)) {
                    self.wrong(format!(
                        "settlement {id} is confirmed by a proof of what another settlement has claimed"
                    ));
                }
                if text(was, "rs") == "expired" && !self.has_entry(agent, is, id) {
                    self.wrong(format!(
                        "settlement {id} is confirmed after its release and does not count again"
                    ));
                }
            }
            ("authorized", "expired") if self.has_entry(agent, is, id) => {
                self.wrong(format!("I7 settlement {id} is released and counts"));
            }
            ("authorized", "expired") => {
                if !self
                    .chain
                    .was_finally_unused(signed.from, signed.nonce, signed.valid_before)
                {
                    self.wrong(format!(
                        "settlement {id} is released, though no final block shows that it can't be used"
                    ));
                }
            }
            ("confirmed", "authorized") => {
                let hash = text(was, "txh").parse().expect("a hash");
                let is_misled = self.known.aside.contains(&self.step);
                if self.chain.holds_at(hash, number(was, "blk").unsigned_abs()) && !is_misled {
                    self.wrong(format!("settlement {id} is taken back, though its payment stands"));
                }
                if self.after.decisions.len() <= self.before.decisions.len() {
                    self.wrong(format!("settlement {id} is taken back, and no decision says so"));
                }
            }
            ("confirmed", "confirmed") if text(was, "txh") == text(is, "txh") => {
                if number(was, "settled") != number(is, "settled") {
                    self.wrong(format!("settlement {id} is confirmed twice"));
                }
            }
            ("authorized", "authorized") => {
                if text(was, "hs") != text(is, "hs") && !(reconciles && is_due) {
                    self.wrong(format!("settlement {id} is put off, and not due"));
                }
            }
            ("expired", "expired") => {}
            (from, to) => self.wrong(format!("I6 settlement {id} went from {from} to {to}")),
        }
    }

    fn has_entry(&self, agent: &str, settlement: &Item, id: &str) -> bool {
        let day = day_window(agent, text(settlement, "svc"));
        self.after.entries(&day).iter().any(|entry| entry.settlement == id)
    }

    /// Checks I2, I9, I10, I11 and the conditions of the authorization for a new settlement.
    fn authorized(&mut self, agent: &str, id: &str, is: &Item) {
        let (at, amount, service) = (number(is, "t"), number(is, "amt"), text(is, "svc").to_owned());
        if text(is, "rs") != "authorized" {
            self.wrong(format!("I6 settlement {id} began as {}", text(is, "rs")));
        }
        if text(is, "kind") == "payout" {
            return self.paid_out(agent, id, is);
        }
        if self.known.payees.get(&service).copied() != text(is, "payto").parse().ok() {
            self.wrong(format!("settlement {id} pays a stranger: {}", text(is, "payto")));
        }
        let policy = self.after.row(&format!("P#{agent}"), &service).cloned();
        let Some(policy) = policy else {
            return self.wrong(format!("I11 settlement {id} has no policy"));
        };
        if number(&policy, "ver") != number(is, "pver")
            || !matches!(policy.get("on"), Some(dynoxide::types::AttributeValue::BOOL(true)))
        {
            self.wrong(format!(
                "I11 settlement {id} was judged by a policy that is not the current one"
            ));
        }
        let owner = self.after.agent(agent).map(|row| text(row, "owner"));
        let (per_call, per_day) = caps_under(&policy, at, |person| {
            let mut earlier = self.known.earlier_owners.get(agent).into_iter().flatten();
            owner == Some(person) || earlier.any(|(_, owner)| owner == person)
        });
        if amount > per_call {
            self.wrong(format!("settlement {id} of {amount} is above the cap per call"));
        }
        if self.known.frozen.contains(agent) {
            self.wrong(format!("settlement {id} was authorized after its agent was frozen"));
        }
        if let (Some(caller), Some(since)) = (self.known.callers.get(&self.step), self.known.stopped.get(agent))
            && caller.from - self.skew > *since
        {
            self.wrong(format!(
                "settlement {id} was asked for after operators had frozen its agent"
            ));
        }
        // After an update got its response, reservations must use the updated record. The expiry of an API key is
        // exempt, because a key may expire between decision and reservation.
        if let Some(caller) = self.known.callers.get(&self.step)
            && let Some(end) = self.known.ended.get(&caller.key)
            && caller.from.max(end.since + self.skew) >= end.at
        {
            self.wrong(format!("settlement {id} was authorized with a key that had ended"));
        }
        let day = (day_window(agent, &service), DAY, per_day, None);
        let budgets = self.after.budgets(agent).into_iter();
        let budgets: Vec<_> = budgets
            .map(|budget| {
                (
                    budget_window(agent, &budget.id),
                    budget.duration,
                    budget.limit,
                    Some(budget.id),
                )
            })
            .collect();
        let charged: BTreeSet<String> = budgets_of(is).into_iter().chain(counts_of(is)).collect();
        self.remembered(agent, is);
        for (_, rule) in self.known.service_state.iter().filter(|(whose, _)| whose == agent) {
            if !charged.contains(rule) {
                self.found.push(format!(
                    "settlement {id} is not charged to the budget {rule}, which was there"
                ));
            }
        }
        for (window, length, cap, budget) in std::iter::once(day).chain(budgets) {
            if budget.as_ref().is_some_and(|budget| !charged.contains(budget)) {
                continue;
            }
            if at < self.before.horizon(&window) + length {
                self.wrong(format!(
                    "I10 settlement {id} at {at} lies before what {window} was cleared to"
                ));
            }
            let counted = self.after.settlements().filter(|(whose, _, other)| {
                *whose == agent
                    && text(other, "rs") != "expired"
                    && counted_at(other) > at - length
                    && text(other, "kind") != "payout"
                    && (budget.is_some() || text(other, "svc") == service)
            });
            let as_one = budget.as_ref().is_some_and(|budget| counts_of(is).contains(budget));
            let amounts = counted.map(|(_, _, other)| if as_one { 1 } else { number(other, "amt") });
            // A rule also counts earlier payments.
            let sum: i64 = amounts.sum();
            let live = self.after.live(&window, length, at);
            if live > cap || sum > cap {
                self.wrong(format!(
                    "I2 settlement {id}: {live} (of all {sum}) of {cap} in {window}"
                ));
            }
            if !self
                .after
                .entries(&window)
                .iter()
                .any(|entry| entry.settlement == id && entry.at == at)
            {
                self.wrong(format!("I9 settlement {id} has no entry in {window}"));
            }
        }
        if !text(is, "apid").is_empty() {
            let approval = self
                .before
                .all("AP#", "")
                .find(|(key, _)| approval_id(key) == text(is, "apid"));
            match approval {
                Some((_, row)) if text(row, "st") == "approved" && number(row, "ends") > at => {}
                _ => self.wrong(format!("settlement {id} used an approval that was not open")),
            }
        }
    }

    /// Checks that a withdrawal goes to the address that the owner has set, after the delay, and with no other
    /// withdrawal pending.
    fn paid_out(&mut self, agent: &str, id: &str, is: &Item) {
        let at = number(is, "t");
        let owner = self.before.agent(agent).map(|row| text(row, "owner"));
        let mut found = Vec::new();
        match self.before.row(&format!("PO#{agent}"), "#") {
            None => found.push("no address is named"),
            Some(record) => {
                if text(record, "addr") != text(is, "payto") || number(record, "good") > at {
                    found.push("it goes to an address that is not named, or must wait");
                }
                if Some(text(record, "by")) != owner || Some(text(is, "by")) != owner {
                    found.push("who has named the address, or asks for the payout, is not the owner");
                }
                let latest = self.before.settlement(agent, text(record, "last"));
                if latest.is_some_and(|latest| text(latest, "rs") == "authorized") {
                    found.push("another payout is open");
                }
            }
        }
        if number(is, "amt") <= 0 {
            found.push("it pays nothing");
        }
        if let (Some(caller), Some(since)) = (self.known.callers.get(&self.step), self.known.stopped.get(agent))
            && caller.from - self.skew > *since
        {
            found.push("operators had frozen the agent before it was asked for");
        }
        for what in found {
            self.wrong(format!("payout {id}: {what}"));
        }
    }

    /// Checks that an agent gets a new owner only by an accepted offer, which is deleted.
    fn owned(&mut self, agent: &str, was: &Item, is: &Item) {
        if text(was, "owner") == text(is, "owner") {
            return;
        }
        let offer = |stored: &StoredState| {
            let row = stored.row(&format!("HANDOVER#{agent}"), "#");
            row.map(|row| text(row, "owner").to_owned())
        };
        if offer(self.before).as_deref() != Some(text(is, "owner")) || offer(self.after).is_some() {
            self.wrong(format!("agent {agent} has a new owner without an offer"));
        }
    }

    /// Checks the records of known calls and payees, and that no guarded call is paid twice within the guard's period.
    fn remembered(&mut self, agent: &str, is: &Item) {
        let at = number(is, "t");
        let window = day_window(agent, text(is, "svc"));
        let Some(caller) = self.known.callers.get(&self.step) else {
            return;
        };
        let (call, payee) = (caller.call, caller.payee);
        let rules = self
            .after
            .agent(agent)
            .map(|row| list(row, "rules"))
            .unwrap_or_default();
        let after = self.after.row(&window, "#W");
        let is_noted = |kind, digest: &[u8]| after.and_then(|row| remembered(row, kind, digest)) == Some(at);
        let before = self
            .before
            .row(&window, "#W")
            .and_then(|row| remembered(row, 'c', &call));
        let mut found = Vec::new();
        for rule in rules {
            let dynoxide::types::AttributeValue::M(rule) = rule else {
                continue;
            };
            // A rule whose creation got no response may not be stored yet.
            if !self.known.standing.contains(&(agent.to_owned(), rule_id(rule))) {
                continue;
            }
            match text(rule, "kind") {
                "duplicate_guard" => {
                    if !is_noted('c', &call) {
                        found.push("its call is not remembered");
                    }
                    let forbids = text(rule, "action") == "block" || text(is, "apid").is_empty();
                    if forbids && before.is_some_and(|before| at - before < number(rule, "within") * 1_000_000) {
                        found.push("its call was paid before");
                    }
                }
                "new_payee" if is_noted('p', &payee) => found.push("its payee is remembered before it is paid"),
                _ => {}
            }
        }
        for what in found {
            self.wrong(format!("a settlement of {agent} at {at}: {what}"));
        }
    }

    fn key(&mut self, key: &Key, was: Option<&Item>, is: Option<&Item>) {
        let is_same_request = was.map(|row| bytes(row, "rh")) == is.map(|row| bytes(row, "rh"));
        match (was.map(|row| text(row, "kind")), is.map(|row| text(row, "kind"))) {
            (None, Some("allow" | "esc")) => {}
            (Some("esc"), Some("allow")) if is_same_request => {}
            // If the approval waives too few limits, the key is bound to a new approval of the same request.
            (Some("esc"), Some("esc")) if is_same_request && was.zip(is).is_some_and(names_later_approval) => {}
            (from, to) => self.wrong(format!("I3 key {key:?} went from {from:?} to {to:?}")),
        }
    }

    fn entry(&mut self, window: &str, rest: &str, was: Option<&Item>, is: Option<&Item>) {
        match (was, is) {
            (None, Some(_)) => {}
            (Some(was), None) => {
                let entry = entry(rest, was);
                let agent = window[2..].split('#').next().unwrap_or_default();
                let state = |stored: &StoredState| {
                    stored
                        .settlement(agent, entry.settlement)
                        .map(|row| text(row, "rs").to_owned())
                };
                let released =
                    state(self.before) != state(self.after) && state(self.after).as_deref() == Some("expired");
                if !released && entry.at > self.after.horizon(window) {
                    let what = format!("{window}: {entry:?} was removed, neither released nor rolled out");
                    self.wrong(what);
                }
            }
            _ => self.wrong(format!("{window}: the entry {rest} was changed")),
        }
    }

    fn window(&mut self, window: &str, was: Option<&Item>, is: Option<&Item>) {
        let Some(is) = is else {
            return self.wrong(format!("{window} was removed"));
        };
        let Some(was) = was else { return };
        for name in horizons(was) {
            // A backfill removes the watermarks of the window's other durations.
            let is_dropped = !is.contains_key(name) && is.get("bf") != was.get("bf");
            if number(is, name) < number(was, name) && !is_dropped {
                self.wrong(format!("I10 {window}: {name} went back"));
            }
        }
        for name in ["pver", "aver", "ver"] {
            if number(is, name) < number(was, name) {
                self.wrong(format!("{window}: {name} went back"));
            }
        }
        if number(is, "total") != number(was, "total") && number(is, "ver") == number(was, "ver") {
            self.wrong(format!("{window}: the total changed and the version did not"));
        }
    }

    fn approval(&mut self, key: &Key, was: Option<&Item>, is: Option<&Item>) {
        let is_other_open = self.after.within(&key.0, "").any(|(sequence, row)| {
            // A granted limit increase is no open request.
            let is_open = text(row, "st") == "pending" || (text(row, "st") == "approved" && !row.contains_key("raise"));
            sequence != key.1 && is_open && number(row, "ends") > is.map_or(0, |is| number(is, "t"))
        });
        match (was.map(|row| text(row, "st")), is.map(|row| text(row, "st"))) {
            (None, Some("pending")) if is_other_open => {
                self.wrong(format!("a second open approval of one request: {key:?}"));
            }
            (None, Some("pending"))
            | (Some("pending"), Some("approved" | "rejected"))
            | (Some("approved"), Some("executed")) => {}
            (Some(from @ ("pending" | "approved")), Some(to))
                if from == to && is.is_some_and(|is| self.is_replaced(key, is)) => {}
            // After an ownership transfer, the approval belongs to the agent's new owner.
            (Some(from), Some(to)) if from == to && was.zip(is).is_some_and(|(was, is)| self.is_moved(was, is)) => {}
            (from, to) => self.wrong(format!("approval {key:?} went from {from:?} to {to:?}")),
        }
    }

    /// Returns whether an approval ended because a later approval that waives more limits was requested.
    fn is_replaced(&self, key: &Key, is: &Item) -> bool {
        let mut later = self.after.within(&key.0, "");
        later.any(|(sequence, row)| {
            sequence > key.1.as_str() && text(row, "st") == "pending" && number(row, "t") == number(is, "ends")
        })
    }

    /// Returns whether an approval moved to the agent's new owner.
    fn is_moved(&self, was: &Item, is: &Item) -> bool {
        let owner = self.after.agent(text(is, "agent")).map(|row| text(row, "owner"));
        text(was, "owner") != text(is, "owner") && owner == Some(text(is, "owner"))
    }

    /// Returns whether the claim's settlement is confirmed by the claimed transaction.
    fn confirms(&self, claim: &Claim<'_>) -> bool {
        let settlement = self.after.settlement(claim.agent, claim.settlement);
        settlement.is_some_and(|row| {
            text(row, "rs") == "confirmed"
                && text(row, "txh") == claim.tx_hash.to_string()
                && number(row, "blk").unsigned_abs() == claim.block
        })
    }

    /// Checks I5: a claim is for its settlement's payment in a final block. Only a claim in a removed block may be
    /// deleted, and only if no confirmation needs it.
    fn claim(&mut self, key: &Key, was: Option<&Item>, is: Option<&Item>) {
        let (was, is) = (was.map(|row| claim(key, row)), is.map(|row| claim(key, row)));
        if let Some(is) = is {
            let signed = self
                .after
                .settlement(is.agent, is.settlement)
                .map(|row| self.known.signed(is.settlement, row));
            let places = signed.map(|signed| self.chain.final_transfers(is.block_hash, is.block, is.tx_hash, &signed));
            let fits = |places: &Vec<u64>| is.log_index.map_or(!places.is_empty(), |place| places.contains(&place));
            if !places.as_ref().is_some_and(fits) {
                self.wrong(format!("I5 {is:?} is of no payment that was final"));
            }
            if is.log_index.is_some() && !self.known.reconciling.contains(&self.step) {
                self.wrong(format!("I5 {is:?} was made by a proof"));
            }
        }
        match (was, is) {
            (Some(was), None)
                if self.chain.has(was.block_hash, was.block) && !self.known.aside.contains(&self.step) =>
            {
                self.wrong(format!("I5 {was:?} was removed, and its block is on the chain"));
            }
            (Some(was), None) if self.confirms(&was) => {
                self.wrong(format!("I5 {was:?} was removed, and its settlement is confirmed by it"));
            }
            (Some(was), Some(is)) if was.settlement != is.settlement => {
                self.wrong(format!("I5 {was:?} became {is:?}"));
            }
            _ => {}
        }
    }
}

/// Returns the id of an approval from its row's key.
pub(crate) fn approval_id(key: &Key) -> String {
    let (request_prefix, sequence) = (&key.0[3..], key.1.parse::<u32>().expect("a number"));
    uuid::Uuid::try_parse(&format!("{request_prefix}{sequence:08x}"))
        .expect("an id")
        .to_string()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
