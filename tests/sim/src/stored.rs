//! The rows of the ledger and decisions tables at one instant, read without the code under test.

use crate::laws::hex;
use crate::tables::{DECISIONS, Item, Key, LEDGER, Rows, Tables, bytes, list, number, text};
use dynoxide::types::AttributeValue;
use purser_domain::B256;
use std::ops::Bound;
use std::sync::Arc;

/// A day, in microseconds.
pub(crate) const DAY: i64 = 86_400_000_000;

/// All stored rows. A clone shares the rows.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct StoredState {
    pub(crate) ledger: Rows,
    pub(crate) decisions: Rows,
}

/// A counted payment in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry<'a> {
    pub(crate) at: i64,
    pub(crate) amount: i64,
    pub(crate) settlement: &'a str,
}

/// A rule that has a window: `budget_limit`, `count_limit` or `minimum_interval`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) kind: String,
    /// The rule's id with hyphens, as in keys.
    pub(crate) id: String,
    pub(crate) limit: i64,
    /// The duration in microseconds.
    pub(crate) duration: i64,
}

/// A settlement's claim on a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim<'a> {
    pub(crate) block: u64,
    /// The block's hash at the time of the claim.
    pub(crate) block_hash: B256,
    pub(crate) tx_hash: B256,
    /// The log index of the transfer; `None` for a claim on the whole transaction.
    pub(crate) log_index: Option<u64>,
    pub(crate) agent: &'a str,
    pub(crate) settlement: &'a str,
}

impl StoredState {
    pub(crate) fn read(tables: &Tables) -> Self {
        Self {
            ledger: tables.rows(LEDGER, None),
            decisions: tables.rows(DECISIONS, None),
        }
    }

    /// Returns the state after the rows with these keys were read again.
    pub(crate) fn refreshed(&self, tables: &Tables, keys: &[(String, Key)]) -> Self {
        let mut stored = self.clone();
        for (table, key) in keys {
            let rows = match table.as_str() {
                LEDGER => &mut stored.ledger,
                DECISIONS => &mut stored.decisions,
                _ => continue,
            };
            match tables.row(table, key) {
                Some(row) => rows.insert(key.clone(), row),
                None => rows.remove(key),
            };
        }
        stored
    }

    pub(crate) fn row(&self, pk: &str, sk: &str) -> Option<&Item> {
        self.ledger.get(&(pk.to_owned(), sk.to_owned())).map(|row| &**row)
    }

    /// Returns the partition's rows whose sort key has this prefix, in order.
    pub(crate) fn within<'a>(
        &'a self,
        pk: &'a str,
        sk: &'a str,
    ) -> impl DoubleEndedIterator<Item = (&'a str, &'a Item)> {
        let from = (pk.to_owned(), sk.to_owned());
        let rows = self.ledger.range((Bound::Included(from), Bound::Unbounded));
        let rows = rows.take_while(move |(key, _)| key.0 == pk && key.1.starts_with(sk));
        rows.map(|(key, row)| (&key.1[sk.len()..], &**row))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Returns the rows whose partition key and sort key have these prefixes.
    pub(crate) fn all<'a>(&'a self, pk: &'a str, sk: &'a str) -> impl Iterator<Item = (&'a Key, &'a Item)> {
        let rows = self.ledger.range((pk.to_owned(), String::new())..);
        let rows = rows.take_while(move |(key, _)| key.0.starts_with(pk));
        rows.filter(move |(key, _)| key.1.starts_with(sk))
            .map(|(key, row)| (key, &**row))
    }

    pub(crate) fn agent(&self, agent: &str) -> Option<&Item> {
        self.row(&format!("A#{agent}"), "#")
    }

    /// Returns an agent's policy for a service. Without a row, it is the permissive policy of a default service.
    pub(crate) fn policy(&self, agent: &str, service: &str) -> Option<Item> {
        if let Some(row) = self.row(&format!("P#{agent}"), service) {
            return Some(row.clone());
        }
        let set = hex(bytes(self.agent(agent)?, "start"));
        let set = bytes(self.row(&format!("START#{set}"), "#")?, "svcs");
        let service = uuid::Uuid::parse_str(service).expect("an id");
        let no_limit = || AttributeValue::N("10000000000000".to_owned());
        let of_all = ["mpc", "mpd", "raa"].map(|name| (name.to_owned(), no_limit()));
        set.chunks(16).any(|one| one == service.as_bytes()).then(|| {
            let on = ("on".to_owned(), AttributeValue::BOOL(true));
            of_all.into_iter().chain([on]).collect()
        })
    }

    /// Returns a policy's caps per call and per day at a time, including a limit increase that the agent's current
    /// owner granted.
    pub(crate) fn caps(&self, agent: &str, policy: &Item, at: i64) -> (i64, i64) {
        let owner = self.agent(agent).map(|row| text(row, "owner"));
        caps_under(policy, at, |person| owner == Some(person))
    }

    pub(crate) fn settlement(&self, agent: &str, id: &str) -> Option<&Item> {
        self.row(&format!("S#{agent}"), id)
    }

    /// Returns every settlement with its agent and id.
    pub(crate) fn settlements(&self) -> impl Iterator<Item = (&str, &str, &Item)> {
        self.all("S#", "").map(|(key, row)| (&key.0[2..], key.1.as_str(), row))
    }

    /// Returns every claim on a transaction.
    pub(crate) fn claims(&self) -> impl Iterator<Item = Claim<'_>> {
        self.all("X#", "").map(|(key, row)| claim(key, row))
    }

    pub(crate) fn entries<'a>(&'a self, window: &'a str) -> Vec<Entry<'a>> {
        let entries = self.within(window, "E#").map(|(rest, row)| entry(rest, row));
        entries.collect()
    }

    /// Returns the time and the amount of each payment that a window counts. Before its backfill, a window also counts
    /// earlier payments.
    fn counted(&self, window: &str) -> Vec<(i64, i64)> {
        let entries = self.entries(window);
        let (agent, rule) = window[2..].split_once('#').expect("an agent and a scope");
        let budgets = self.budgets(agent);
        let budget = budgets.iter().find(|budget| budget.id == rule);
        let earlier = self.settlements().filter_map(|(whose, id, row)| {
            let is_counted = entries.iter().any(|entry| entry.settlement == id);
            let counts = text(row, "rs") != "expired" && text(row, "kind") != "payout";
            let amount = match budget?.kind.as_str() {
                "budget_limit" => number(row, "amt"),
                _ => 1,
            };
            (whose == agent && counts && !is_counted).then_some((counted_at(row), amount))
        });
        let earlier: Vec<(i64, i64)> = earlier.collect();
        let entries = entries.iter().map(|entry| (entry.at, entry.amount));
        entries.chain(earlier).collect()
    }

    /// Returns the amount that counts in a window at a time.
    pub(crate) fn live(&self, window: &str, length: i64, at: i64) -> i64 {
        let live = self.counted(window).into_iter();
        live.filter(|(counted, _)| at - counted < length)
            .map(|(_, amount)| amount)
            .sum()
    }

    /// Returns the first time from `at` on at which an amount fits into a window.
    pub(crate) fn fits_at(&self, window: &str, length: i64, amount: i64, cap: i64, at: i64) -> Option<i64> {
        let rolls_off = self.counted(window).into_iter().map(|(counted, _)| counted + length);
        let instants = std::iter::once(at).chain(rolls_off.filter(|instant| *instant > at));
        let mut fitting: Vec<i64> = instants
            .filter(|at| self.live(window, length, *at) + amount <= cap)
            .collect();
        fitting.sort_unstable();
        fitting.first().copied()
    }

    /// Returns the time up to which a window was cleared.
    pub(crate) fn horizon(&self, window: &str) -> i64 {
        let Some(row) = self.row(window, "#W") else { return 0 };
        let (agent, rule) = window[2..].split_once('#').expect("an agent and a scope");
        let length = if window.starts_with("L#") {
            Some(DAY)
        } else {
            let budget = self.budgets(agent).into_iter().find(|budget| budget.id == rule);
            budget.map(|budget| budget.duration)
        };
        match length {
            Some(length) => number(row, &format!("hz{}", length / 1_000_000)),
            None => horizons(row).map(|name| number(row, name)).max().unwrap_or(0),
        }
    }

    /// Returns whether operators have frozen an agent. The last byte of the agent's id selects the copy of the freezes.
    pub(crate) fn stopped(&self, agent: &str) -> bool {
        let id = uuid::Uuid::parse_str(agent).expect("an id").into_bytes();
        let copy = self.row(&format!("FREEZES#{}", id[15] % 4), "#");
        match copy.and_then(|row| row.get("agents")) {
            Some(AttributeValue::BS(agents)) => agents.iter().any(|agent| agent[..] == id),
            _ => false,
        }
    }

    /// Returns the reason for which a frozen agent is denied.
    pub(crate) fn freeze(&self, agent: &str) -> Option<&'static str> {
        if self.stopped(agent) {
            return Some("agent_frozen:by_operator");
        }
        let row = self.agent(agent)?;
        (text(row, "st") == "frozen").then_some("agent_frozen")
    }

    /// Returns the ids of the agent's rules.
    pub(crate) fn rules(&self, agent: &str) -> Vec<String> {
        let rules = self.agent(agent).map(|row| list(row, "rules")).unwrap_or_default();
        let ids = rules.iter().filter_map(|rule| match rule {
            AttributeValue::M(rule) => Some(rule_id(rule)),
            _ => None,
        });
        ids.collect()
    }

    pub(crate) fn waiting(&self, agent: &str, at: i64) -> usize {
        let waits = |row: &Item| text(row, "st") == "pending" && at < number(row, "ends");
        let approvals = self.all("AP#", "");
        approvals
            .filter(|(_, row)| text(row, "agent") == agent && waits(row))
            .count()
    }

    /// Returns the agent's rules that have a window.
    pub(crate) fn budgets(&self, agent: &str) -> Vec<Budget> {
        let rules = self.agent(agent).map(|row| list(row, "rules")).unwrap_or_default();
        let budgets = rules.iter().filter_map(|rule| {
            let AttributeValue::M(rule) = rule else { return None };
            let (limit, length) = match text(rule, "kind") {
                "budget_limit" => (number(rule, "limit"), number(rule, "window")),
                "count_limit" => (number(rule, "count"), number(rule, "window")),
                "minimum_interval" => (1, number(rule, "interval")),
                _ => return None,
            };
            Some(Budget {
                kind: text(rule, "kind").to_owned(),
                id: rule_id(rule),
                limit,
                duration: length * 1_000_000,
            })
        });
        budgets.collect()
    }
}

/// Returns the time from which a settlement counts: its authorization, or a confirmation after its release.
pub(crate) fn counted_at(settlement: &Item) -> i64 {
    number(settlement, if settlement.contains_key("ct") { "ct" } else { "t" })
}

/// Returns the ids of the budgets against which a settlement counts.
pub(crate) fn budgets_of(settlement: &Item) -> Vec<String> {
    ids(settlement, "budgets")
}

/// Returns the ids of the rules that count a settlement as one payment.
pub(crate) fn counts_of(settlement: &Item) -> Vec<String> {
    ids(settlement, "counts")
}

fn ids(row: &Item, name: &str) -> Vec<String> {
    let ids = list(row, name).iter().map(|id| match id {
        AttributeValue::B(bytes) => uuid_text(bytes, ""),
        AttributeValue::S(text) => text.clone(),
        other => panic!("not an id: {other:?}"),
    });
    ids.collect()
}

/// Returns the id of a rule with hyphens, as in keys.
pub(crate) fn rule_id(rule: &Item) -> String {
    uuid_text(bytes(rule, "id"), text(rule, "id"))
}

/// Returns the recorded time of a call or payee in the totals of a daily window.
pub(crate) fn remembered(totals: &Item, kind: char, digest: &[u8]) -> Option<i64> {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    match totals.get("recent")? {
        AttributeValue::M(recent) => {
            let name = format!("{kind}{}", URL_SAFE_NO_PAD.encode(digest));
            recent.contains_key(&name).then(|| number(recent, &name))
        }
        _ => None,
    }
}

/// Returns the names of a window's watermark attributes, one for each duration that the window has had.
pub(crate) fn horizons(totals: &Item) -> impl Iterator<Item = &String> {
    totals.keys().filter(|name| name.starts_with("hz"))
}

pub(crate) fn day_window(agent: &str, service: &str) -> String {
    format!("L#{agent}#{service}")
}

pub(crate) fn budget_window(agent: &str, rule: &str) -> String {
    format!("B#{agent}#{rule}")
}

/// Parses a counted payment. `rest` is the sort key after `E#`.
pub(crate) fn entry<'a>(rest: &'a str, row: &Item) -> Entry<'a> {
    let (at, settlement) = rest.split_once('#').expect("a time and a settlement");
    Entry {
        at: at.parse().expect("a time"),
        amount: number(row, "amt"),
        settlement,
    }
}

/// Parses a claim from its key `X#<network>#<block>#<shard>`, the transaction's hash, and a transfer's log index if
/// given.
pub(crate) fn claim<'a>(key: &Key, row: &'a Item) -> Claim<'a> {
    let block = key.0.split('#').nth(2).and_then(|digits| digits.parse().ok());
    let (hash, place) = match key.1.split_once('#') {
        Some((hash, place)) => (hash, Some(place.parse().expect("a place"))),
        None => (key.1.as_str(), None),
    };
    Claim {
        block: block.expect("a block"),
        block_hash: B256::from_slice(bytes(row, "bh")),
        tx_hash: hash.parse().expect("a hash"),
        log_index: place,
        agent: text(row, "agent"),
        settlement: text(row, "sid"),
    }
}

fn uuid_text(bytes: &[u8], text: &str) -> String {
    uuid::Uuid::from_slice(bytes).map_or_else(|_| text.to_owned(), |id| id.to_string())
}

pub(crate) fn same(a: Option<&Arc<Item>>, b: Option<&Arc<Item>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
        (None, None) => true,
        _ => false,
    }
}

pub(crate) fn raises_of(policy: &Item) -> impl Iterator<Item = &Item> {
    let raises: &[AttributeValue] = match policy.get("raises") {
        Some(AttributeValue::L(raises)) => raises,
        _ => &[],
    };
    raises.iter().filter_map(|raise| match raise {
        AttributeValue::M(raise) => Some(raise),
        _ => None,
    })
}

/// Returns a policy's caps per call and per day at a time. A limit increase counts if `applies` is true for its
/// grantor.
pub(crate) fn caps_under(policy: &Item, at: i64, applies: impl Fn(&str) -> bool) -> (i64, i64) {
    let is_active =
        |raise: &&Item| number(raise, "from") <= at && at < number(raise, "until") && applies(text(raise, "by"));
    let cap = |name| {
        let raises = raises_of(policy).filter(is_active);
        let raised = raises
            .filter(|raise| raise.contains_key(name))
            .map(|raise| number(raise, name));
        raised.fold(number(policy, name), i64::max)
    };
    (cap("mpc"), cap("mpd"))
}
