//! Checks the invariants of `docs/data-model.md` on all stored items, without the code under test. Nothing may write
//! during a check.

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use std::collections::{BTreeMap, BTreeSet, HashMap};

type Item = HashMap<String, AttributeValue>;

/// Counted payments by the window's partition key and the settlement's id.
type Entries = BTreeMap<(String, String), Entry>;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    at: i64,
    amount: i64,
}

/// Returns the violated invariants of a ledger table.
pub async fn violations(db: &Client, table: &str) -> Vec<String> {
    let items = scan(db, table, None).await;
    let ledger = Parsed::new(&items);
    let mut found = Vec::new();
    ledger.totals_are_sums(&mut found);
    ledger.entries_are_settlements(&mut found);
    ledger.keys_name_settlements(&mut found);
    ledger.approvals_are_used_once(&mut found);
    ledger.what_waits_is_in_its_agents_set(&mut found);
    ledger.confirmations_are_claimed(&mut found);
    let indexed: BTreeSet<String> = scan(db, table, Some("hold"))
        .await
        .iter()
        .map(|item| text(item, "sk").to_owned())
        .collect();
    ledger.the_index_names(&indexed, &mut found);
    found
}

/// Asserts that a ledger table violates no invariant.
pub async fn assert_hold(db: &Client, table: &str) {
    let found = violations(db, table).await;
    assert!(found.is_empty(), "{found:#?}");
}

/// Returns the largest sum that an agent authorized for a service within any `length` microseconds (invariant I2).
pub async fn most_within(db: &Client, table: &str, service: &str, length: i64) -> i64 {
    let items = scan(db, table, None).await;
    let ledger = Parsed::new(&items);
    let counted = ledger
        .settlements
        .iter()
        .filter(|item| text(item, "svc") == service && text(item, "rs") != "expired");
    let mut spends: Vec<(i64, i64)> = counted.map(|item| (number(item, "t"), number(item, "amt"))).collect();
    spends.sort_unstable();
    let within = |until: i64| {
        spends
            .iter()
            .filter(|(at, _)| *at <= until && *at > until - length)
            .map(|(_, units)| units)
            .sum()
    };
    spends.iter().map(|(at, _)| within(*at)).max().unwrap_or(0)
}

struct Parsed<'a> {
    windows: BTreeMap<&'a str, &'a Item>,
    entries: Entries,
    settlements: Vec<&'a Item>,
    /// The kind of each existing rule, by the partition key of the rule's window.
    rule_kinds: HashMap<String, &'a str>,
    /// The settlements by id.
    by_id: HashMap<&'a str, &'a Item>,
    keys: Vec<&'a Item>,
    payout_keys: Vec<&'a Item>,
    approvals: Vec<&'a Item>,
    used: Vec<&'a Item>,
    waiting: Vec<&'a Item>,
}

impl<'a> Parsed<'a> {
    fn new(items: &'a [Item]) -> Self {
        let of = |partition: &str, sort: &str| -> Vec<&'a Item> {
            let matches = |item: &&Item| text(item, "pk").starts_with(partition) && text(item, "sk").starts_with(sort);
            items.iter().filter(matches).collect()
        };
        let mut entries = Entries::new();
        for item in of("", "E#") {
            let (at, settlement) = text(item, "sk").trim_start_matches("E#").split_once('#').unwrap();
            let entry = Entry {
                at: at.parse().unwrap(),
                amount: number(item, "amt"),
            };
            entries.insert((text(item, "pk").to_owned(), settlement.to_owned()), entry);
        }
        Self {
            windows: of("", "#W").into_iter().map(|item| (text(item, "pk"), item)).collect(),
            entries,
            settlements: of("S#", ""),
            rule_kinds: of("A#", "#").into_iter().flat_map(rule_kinds).collect(),
            by_id: of("S#", "").into_iter().map(|item| (text(item, "sk"), item)).collect(),
            keys: of("I#", ""),
            payout_keys: of("PO#", "K#"),
            approvals: of("AP#", ""),
            used: of("X#", ""),
            waiting: of("O#", ""),
        }
    }

    fn settlement(&self, agent: &str, id: &str) -> Option<&'a Item> {
        self.by_id
            .get(id)
            .copied()
            .filter(|item| text(item, "pk") == format!("S#{agent}"))
    }

    /// Checks I15: the agent's set contains each pending approval that has not expired. The newest creation time counts
    /// as the current time.
    fn what_waits_is_in_its_agents_set(&self, found: &mut Vec<String>) {
        let mut sets: BTreeSet<(String, String)> = BTreeSet::new();
        for item in &self.waiting {
            let agent = text(item, "pk").trim_start_matches("O#");
            for set in ["ids", "incs"] {
                let ids = item.get(set).map_or(&[][..], |ids| ids.as_ss().unwrap());
                sets.extend(ids.iter().map(|id| (agent.to_owned(), id.replace('-', ""))));
            }
        }
        let of = |item: &Item| {
            let request_prefix = text(item, "pk").trim_start_matches("AP#").to_owned();
            let sequence: u32 = text(item, "sk").parse().unwrap();
            (
                text(item, "agent").to_owned(),
                format!("{request_prefix}{sequence:08x}"),
            )
        };
        let known: BTreeSet<(String, String)> = self.approvals.iter().map(|item| of(item)).collect();
        found.extend(sets.difference(&known).map(|set| format!("I15 {set:?} is no approval")));
        let newest = self.approvals.iter().map(|item| number(item, "t")).max();
        for item in &self.approvals {
            let waits = text(item, "st") == "pending" && newest.is_some_and(|newest| number(item, "ends") > newest);
            if waits && !sets.contains(&of(item)) {
                found.push(format!("I15 {:?} waits and is in no set", of(item)));
            }
        }
    }

    /// Checks the first half of I1, and I10: a window's `total` is the sum of its counted payments, all newer than the
    /// watermark.
    fn totals_are_sums(&self, found: &mut Vec<String>) {
        let mut sums: BTreeMap<&str, i64> = self.windows.keys().map(|partition| (*partition, 0)).collect();
        for ((partition, settlement), entry) in &self.entries {
            *sums.entry(partition).or_default() += entry.amount;
            let cleared = self.windows.get(partition.as_str()).map_or(0, |window| horizon(window));
            if entry.at < cleared {
                found.push(format!(
                    "I10 {partition}: entry {settlement} at {} before {cleared}",
                    entry.at
                ));
            }
        }
        for (partition, sum) in sums {
            let total = self.windows.get(partition).map(|window| number(window, "total"));
            if total != Some(sum) {
                found.push(format!("I1 {partition}: total {total:?}, the entries sum to {sum}"));
            }
        }
    }

    /// Checks the second half of I1, I7 and I9: the counted payments of a window are the settlements that count in the
    /// window.
    fn entries_are_settlements(&self, found: &mut Vec<String>) {
        for ((partition, id), entry) in &self.entries {
            let mut parts = partition.split('#');
            let (kind, agent, scope) = (parts.next(), parts.next().unwrap(), parts.next().unwrap());
            let fits = self.settlement(agent, id).is_some_and(|settlement| {
                let rule = scope.replace('-', "");
                let (counts, amount) = match kind {
                    Some("L") => (text(settlement, "svc") == scope, number(settlement, "amt")),
                    // A rule that limits the number of payments counts each payment as 1.
                    _ if rules(settlement, "counts").contains(&rule) => (true, 1),
                    _ if rules(settlement, "budgets").contains(&rule) => (true, number(settlement, "amt")),
                    // When a rule is added, earlier payments are counted, but their settlements do not list the rule.
                    _ => match self.rule_kinds.get(partition) {
                        Some(&"budget_limit") => (true, number(settlement, "amt")),
                        Some(_) => (true, 1),
                        // A settlement that is released after a rule was removed stays counted in the rule's window.
                        None => {
                            let times = [number(settlement, "t"), counted_at(settlement)];
                            let amounts = [1, number(settlement, "amt")];
                            return times.contains(&entry.at) && amounts.contains(&entry.amount);
                        }
                    },
                };
                counts
                    && text(settlement, "rs") != "expired"
                    && *entry
                        == Entry {
                            at: counted_at(settlement),
                            amount,
                        }
            });
            if !fits {
                found.push(format!(
                    "I1 {partition}: entry {id} has no settlement that it counts for"
                ));
            }
        }
        for settlement in &self.settlements {
            if text(settlement, "rs") == "expired" || text(settlement, "kind") == "payout" {
                continue;
            }
            let (agent, id) = (text(settlement, "pk").trim_start_matches("S#"), text(settlement, "sk"));
            let day = format!("L#{agent}#{}", text(settlement, "svc"));
            let cleared = self.windows.get(day.as_str()).map_or(0, |window| horizon(window));
            if counted_at(settlement) > cleared && !self.entries.contains_key(&(day, id.to_owned())) {
                found.push(format!("I9 settlement {id} is not counted"));
            }
        }
    }

    /// Checks I3 and I9: each settlement has exactly one idempotency record of kind allow, or one withdrawal key.
    fn keys_name_settlements(&self, found: &mut Vec<String>) {
        let hex = |item: &Item, name| hex(bytes(item, name));
        let pair = |agent: &str, key: &str, id: &str| (agent.to_owned(), key.to_owned(), id.to_owned());
        let allows = self.keys.iter().filter(|item| text(item, "kind") == "allow");
        let of_payouts = self.payout_keys.iter();
        let from_keys: BTreeSet<_> = allows
            .chain(of_payouts)
            .map(|item| {
                let (_, agent) = text(item, "pk").split_once('#').unwrap();
                pair(agent, text(item, "sk").trim_start_matches("K#"), text(item, "sid"))
            })
            .collect();
        let from_settlements: BTreeSet<_> = self
            .settlements
            .iter()
            .map(|item| {
                pair(
                    text(item, "pk").trim_start_matches("S#"),
                    &hex(item, "idem"),
                    text(item, "sk"),
                )
            })
            .collect();
        for odd in from_keys.symmetric_difference(&from_settlements) {
            found.push(format!("I3 key and settlement do not name each other: {odd:?}"));
        }
    }

    /// Checks I4: each executed approval was used by exactly one settlement, which the approval names.
    fn approvals_are_used_once(&self, found: &mut Vec<String>) {
        let executed = self.approvals.iter().filter(|item| text(item, "st") == "executed");
        let named: Vec<&str> = executed.map(|item| text(item, "sid")).collect();
        let using: Vec<&&Item> = self
            .settlements
            .iter()
            .filter(|item| item.contains_key("apid"))
            .collect();
        let users: BTreeSet<&str> = using.iter().map(|item| text(item, "sk")).collect();
        let approvals: BTreeSet<&str> = using.iter().map(|item| text(item, "apid")).collect();
        if approvals.len() != using.len() || named.len() != users.len() || named.iter().any(|id| !users.contains(id)) {
            found.push(format!(
                "I4 approvals name {named:?}, settlements that used one are {users:?}"
            ));
        }
    }

    /// Checks I5: each confirmed settlement has a claim on its transaction. After a crash, an unconfirmed settlement
    /// may also have a claim.
    fn confirmations_are_claimed(&self, found: &mut Vec<String>) {
        let mut claims = BTreeSet::new();
        for item in &self.used {
            let (agent, id) = (text(item, "agent"), text(item, "sid"));
            let block: i64 = text(item, "pk").split('#').nth(2).unwrap().parse().unwrap();
            let hash = text(item, "sk").split('#').next().unwrap();
            if self.settlement(agent, id).is_none() {
                found.push(format!("I5 {hash} is claimed by {id}, which is no settlement"));
            }
            if !claims.insert((id, hash, block)) {
                found.push(format!("I5 {hash} is claimed twice by {id}"));
            }
        }
        for settlement in self.settlements.iter().filter(|item| text(item, "rs") == "confirmed") {
            let id = text(settlement, "sk");
            let confirmed = (id, text(settlement, "txh"), number(settlement, "blk"));
            if !claims.contains(&confirmed) {
                found.push(format!("I5 {confirmed:?} has no claim"));
            }
        }
    }

    /// Checks I14: the index of open settlements contains exactly the authorized settlements, each with its
    /// `validBefore` or a later time.
    fn the_index_names(&self, indexed: &BTreeSet<String>, found: &mut Vec<String>) {
        for settlement in &self.settlements {
            let id = text(settlement, "sk");
            let (state, place) = (text(settlement, "rs"), text(settlement, "hs"));
            let due = format!("{:012}", number(settlement, "vb") / 1_000_000);
            let right = match state {
                "authorized" => place.len() == due.len() && *place >= *due,
                _ => place.is_empty(),
            };
            if !right || indexed.contains(id) == place.is_empty() {
                found.push(format!(
                    "I14 settlement {id} is {state} and stands in the index at {place:?}"
                ));
            }
        }
        if indexed.iter().any(|id| !self.by_id.contains_key(id.as_str())) {
            found.push(format!("I14 the index names what is no settlement: {indexed:?}"));
        }
    }
}

/// Returns the time up to which a window was cleared.
fn horizon(totals: &Item) -> i64 {
    let horizons = totals.keys().filter(|name| name.starts_with("hz"));
    horizons.map(|name| number(totals, name)).max().unwrap_or(0)
}

/// Returns the time at which the windows count a settlement.
fn counted_at(settlement: &Item) -> i64 {
    let name = if settlement.contains_key("ct") { "ct" } else { "t" };
    number(settlement, name)
}

/// Returns the partition and the kind of each rule of an agent.
fn rule_kinds(agent: &Item) -> impl Iterator<Item = (String, &str)> {
    let id = text(agent, "pk").trim_start_matches("A#");
    let rules = agent.get("rules").map_or(&[][..], |rules| rules.as_l().unwrap());
    rules.iter().map(move |rule| {
        let rule = rule.as_m().unwrap();
        let digits = hex(bytes(rule, "id"));
        let rule_id = uuid::Uuid::parse_str(&digits).unwrap();
        (format!("B#{id}#{rule_id}"), text(rule, "kind"))
    })
}

/// Returns the ids of the rules in the settlement's list `name`, in hexadecimal.
fn rules(settlement: &Item, name: &str) -> Vec<String> {
    let Some(AttributeValue::L(rules)) = settlement.get(name) else {
        return Vec::new();
    };
    rules.iter().map(|rule| hex(rule.as_b().unwrap().as_ref())).collect()
}

/// Returns every item of a table or an index.
pub async fn scan(db: &Client, table: &str, index: Option<&str>) -> Vec<Item> {
    let scan = db
        .scan()
        .table_name(table)
        .set_index_name(index.map(str::to_owned))
        // Without a limit, the embedded database reads the whole table for each page.
        .limit(1_000)
        .into_paginator()
        .items()
        .send();
    let items: Result<Vec<Item>, _> = scan.collect().await;
    items.unwrap()
}

/// Returns the size of an item in bytes, as DynamoDB counts it (developer guide, "`DynamoDB` item sizes and formats").
pub fn size(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value_size(value)).sum()
}

fn value_size(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        // A number takes a byte per two digits, plus one byte.
        AttributeValue::N(digits) => digits.len().div_ceil(2) + 1,
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::L(values) => 3 + values.iter().map(|value| 1 + value_size(value)).sum::<usize>(),
        AttributeValue::M(map) => {
            3 + map
                .iter()
                .map(|(name, value)| 1 + name.len() + value_size(value))
                .sum::<usize>()
        }
        AttributeValue::Ss(texts) => texts.iter().map(String::len).sum(),
        AttributeValue::Bool(_) => 1,
        other => panic!("nothing of ours: {other:?}"),
    }
}

fn text<'a>(item: &'a Item, name: &str) -> &'a str {
    item.get(name).map_or("", |value| value.as_s().unwrap())
}

fn bytes<'a>(item: &'a Item, name: &str) -> &'a [u8] {
    item[name].as_b().unwrap().as_ref()
}

fn number(item: &Item, name: &str) -> i64 {
    item.get(name).map_or(0, |value| value.as_n().unwrap().parse().unwrap())
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .concat()
}
