//! Compares a run with the protocol model (`tests/model`): each write must be a transition that the model allows, with
//! the same result.
//!
//! Windows are left out, because their sums are too large for the model. All agents share one ledger of the model,
//! because their rows have only the claims in common.

use crate::laws::hex;
use crate::stored::{Claim, StoredState, same};
use crate::tables::{Item, Key, LEDGER, bytes, number, text};
use purser_model::flaw::Flaw;
use purser_model::law;
use purser_model::ledger::{
    Answer, ApprovalRuling, Ledger, Place, Record, Request, Reservation, Ruling, Settlement, SettlementId, State, Write,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The model that makes the same transitions as a run.
pub(crate) struct Modelled {
    ledger: Ledger,
    names: BTreeMap<(Kind, String), u8>,
    reverts: u8,
    /// The bug planted in the model, for a test of the comparison.
    pub(crate) flaw: Option<Flaw>,
}

/// The kinds of ids that become numbers in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Settlement,
    Key,
    Request,
    Transaction,
    Hash,
    Height,
    Person,
}

impl Default for Modelled {
    fn default() -> Self {
        Self {
            ledger: Ledger::new(None),
            names: BTreeMap::new(),
            reverts: 0,
            flaw: None,
        }
    }
}

/// The key of a row, and the row before and after a write.
type Change<'a> = (&'a Key, Option<&'a Item>, Option<&'a Item>);

impl Modelled {
    /// Applies a write to the model and returns the differences. Returns `None` once there are more ids than the model
    /// has numbers.
    pub(crate) fn follow(
        &mut self,
        before: &StoredState,
        after: &StoredState,
        keys: &[(String, Key)],
    ) -> Option<Vec<String>> {
        let mut changes: Vec<Change<'_>> = Vec::new();
        for (table, key) in keys {
            let (was, is) = (before.ledger.get(key), after.ledger.get(key));
            if table == LEDGER && !same(was, is) && !changes.iter().any(|(known, ..)| *known == key) {
                changes.push((key, was.map(|row: &Arc<Item>| &**row), is.map(|row| &**row)));
            }
        }
        let Some(write) = self.write_of(&changes, after)? else {
            return Some(Vec::new());
        };
        match self.ledger.apply(&write, self.flaw) {
            Answer::Refused(roles) => return Some(vec![format!("the model refuses {write:?}: {roles:?}")]),
            Answer::Done => {}
        }
        let mut found = Vec::new();
        if law::of_ledger(&self.ledger) != law::Broken::default() {
            found.push(format!("the model's state breaks its laws after {write:?}"));
        }
        for change in changes {
            if let Some(what) = self.differs(change, after)? {
                found.push(format!("{what}, after {write:?}"));
            }
        }
        Some(found)
    }

    fn name(&mut self, kind: Kind, of: impl Into<String>) -> Option<u8> {
        let key = (kind, of.into());
        if let Some(known) = self.names.get(&key) {
            return Some(*known);
        }
        let count = self.names.keys().filter(|(of, _)| *of == kind).count();
        let next = u8::try_from(count).ok().filter(|next| *next < u8::MAX)?;
        self.names.insert(key, next);
        Some(next)
    }

    fn request(&mut self, agent: &str, row: &Item) -> Option<Request> {
        self.name(Kind::Request, format!("{agent} {}", hex(bytes(row, "rh"))))
    }

    fn place(&mut self, claim: &Claim<'_>) -> Option<Place> {
        Some((
            self.name(Kind::Height, claim.block.to_string())?,
            self.name(Kind::Transaction, claim.tx_hash.to_string())?,
            claim.log_index.map(|log| u8::try_from(log).expect("few")),
        ))
    }

    /// Returns the model's transition for these changes, if any.
    #[expect(clippy::option_option, reason = "no transition, and no more numbers, are two things")]
    fn write_of(&mut self, changes: &[Change<'_>], after: &StoredState) -> Option<Option<Write>> {
        let of = |prefix: &str| changes.iter().copied().find(|(key, ..)| key.0.starts_with(prefix));
        if let Some((key, was, Some(is))) = of("S#") {
            let agent = &key.0[2..];
            if let Some(write) = self.settlement(agent, &key.1, was, is, after)? {
                return Some(Some(write));
            }
        }
        if let Some((key, was, is)) = of("X#") {
            let claim = crate::stored::claim(key, is.or(was).expect("a change"));
            let (place, block) = (
                self.place(&claim)?,
                self.name(Kind::Hash, claim.block_hash.to_string())?,
            );
            let settlement = self.name(Kind::Settlement, claim.settlement)?;
            return Some(Some(match is {
                Some(_) => Write::Claim {
                    settlement,
                    place,
                    block,
                },
                None => Write::RemoveClaim { place, block },
            }));
        }
        if let Some((key, was, Some(is))) = of("I#")
            && text(is, "kind") == "esc"
        {
            let agent = &key.0[2..];
            let request = self.request(agent, is)?;
            let mut new = None;
            for (key, was, approval) in changes.iter().filter(|(key, ..)| key.0.starts_with("AP#")) {
                match (was, approval) {
                    (None, Some(approval)) => new = Some((self.name(Kind::Person, text(approval, "owner"))?, 1)),
                    // A new approval that waives more limits ends the earlier approval of the request.
                    _ => self.set_end((request, key.1.parse().expect("few")), false),
                }
            }
            return Some(Some(Write::Escalate {
                key: self.name(Kind::Key, format!("{agent} {}", key.1))?,
                request,
                number: sequence(text(is, "apid")),
                new,
                rebinds: was.is_some(),
            }));
        }
        // Requests for limit increases are left out, because they approve no payment.
        if let Some((key, Some(was), Some(is))) = of("AP#")
            && !is.contains_key("raise")
        {
            let ruling = match (text(was, "st"), text(is, "st")) {
                ("pending", "approved") => ApprovalRuling::Approve,
                ("pending", "rejected") => ApprovalRuling::Reject,
                ("approved", "rejected") => ApprovalRuling::Withdraw,
                // The only other change of an approval is the move to a new owner.
                _ => {
                    let approval = (self.request(text(is, "agent"), is)?, key.1.parse().expect("few"));
                    let owner = self.name(Kind::Person, text(is, "owner"))?;
                    if let Some(approval) = self.ledger.approvals.get_mut(&approval) {
                        approval.owner = owner;
                    }
                    return Some(None);
                }
            };
            let approval = (self.request(text(is, "agent"), is)?, key.1.parse().expect("few"));
            self.set_end(approval, number(is, "ends") > number(is, "resolved"));
            return Some(Some(Write::Rule {
                approval,
                by: self.name(Kind::Person, text(is, "owner"))?,
                at: 0,
                ruling,
            }));
        }
        Some(None)
    }

    /// Returns the model's transition for a change of a settlement, if any.
    #[expect(clippy::option_option, reason = "no transition, and no more numbers, are two things")]
    fn settlement(
        &mut self,
        agent: &str,
        id: &str,
        was: Option<&Item>,
        is: &Item,
        after: &StoredState,
    ) -> Option<Option<Write>> {
        let settlement = self.name(Kind::Settlement, id)?;
        if was.is_none() && text(is, "kind") == "payout" {
            self.pay_out(agent, settlement, is)?;
            return Some(None);
        }
        let Some(was) = was else {
            return self.reservation(agent, settlement, is, after).map(Some);
        };
        let claim = after.claims().find(|claim| {
            claim.settlement == id
                && claim.tx_hash.to_string() == text(is, "txh")
                && claim.block == number(is, "blk").unsigned_abs()
        });
        let confirmed = match (&claim, text(is, "rs")) {
            (Some(claim), "confirmed") => {
                let hash = self.name(Kind::Hash, claim.block_hash.to_string())?;
                Some((self.place(claim)?, hash))
            }
            _ => None,
        };
        Some(match (text(was, "rs"), text(is, "rs"), confirmed) {
            ("authorized", "confirmed", Some((place, block))) => Some(if was.contains_key("unc") {
                Write::ConfirmClaimed {
                    settlement,
                    place,
                    block,
                }
            } else {
                Write::Confirm { settlement, place }
            }),
            ("expired", "confirmed", Some((place, block))) => Some(Write::ConfirmReleased {
                settlement,
                place,
                block,
                counted_at: 0,
                scopes: Vec::new(),
            }),
            ("confirmed", "confirmed", Some((place, block))) if number(was, "blk") != number(is, "blk") => {
                Some(Write::Move {
                    settlement,
                    place,
                    block,
                })
            }
            ("authorized", "expired", _) => Some(Write::Release {
                settlement,
                counted_at: 0,
                scopes: Vec::new(),
            }),
            ("confirmed", "authorized", _) => {
                self.reverts = self.reverts.checked_add(1)?;
                Some(Write::Revert {
                    settlement,
                    tx: self.name(Kind::Transaction, text(was, "txh"))?,
                    decision: self.reverts,
                })
            }
            _ => None,
        })
    }

    /// Adds a withdrawal. `laws.rs` checks its conditions, because the model has only one withdrawal record.
    fn pay_out(&mut self, agent: &str, id: SettlementId, is: &Item) -> Option<()> {
        let key = self.name(Kind::Key, format!("payout {agent} {}", hex(bytes(is, "idem"))))?;
        let payout = Settlement {
            key,
            request: 0,
            approval: None,
            amount: 0,
            at: 0,
            counted_at: 0,
            scopes: Vec::new(),
            payout_to: Some(1),
            state: State::Authorized,
            held: true,
            unclaimed: false,
        };
        self.ledger.settlements.insert(id, payout);
        self.ledger.payout_keys.insert(key, id);
        Some(())
    }

    fn reservation(&mut self, agent: &str, id: SettlementId, is: &Item, after: &StoredState) -> Option<Write> {
        let key = hex(bytes(is, "idem"));
        let request = match after.row(&format!("I#{agent}"), &key) {
            Some(record) => self.request(agent, record)?,
            // Without a key, the placeholder makes the comparison fail.
            None => self.name(Kind::Request, "none")?,
        };
        let approval = (!text(is, "apid").is_empty()).then(|| sequence(text(is, "apid")));
        if let Some(approval) = approval {
            let is_it = |key: &Key| crate::laws::approval_id(key) == text(is, "apid");
            let row = after.all("AP#", "").find(|(key, _)| is_it(key));
            let is_open = row.is_some_and(|(_, row)| number(row, "ends") > number(is, "t"));
            self.set_end((request, approval), is_open);
        }
        Some(Write::Reserve(Reservation {
            id,
            key: self.name(Kind::Key, format!("{agent} {key}"))?,
            request,
            approval,
            amount: 0,
            at: 0,
            agent: 1,
            charges: Vec::new(),
        }))
    }

    /// The model's time is always 0. An open approval ends at 1, and any other approval at 0.
    fn set_end(&mut self, approval: (Request, u8), is_open: bool) {
        if let Some(approval) = self.ledger.approvals.get_mut(&approval) {
            approval.ends = i8::from(is_open);
        }
    }

    /// Returns the difference between a stored row and the row of the model, if any.
    #[expect(clippy::option_option, reason = "no difference, and no more numbers, are two things")]
    fn differs(&mut self, (key, _, is): Change<'_>, after: &StoredState) -> Option<Option<String>> {
        let (kind, rest) = key.0.split_once('#').unwrap_or_default();
        let told = match (kind, is) {
            ("S", Some(is)) => {
                let settlement = self.name(Kind::Settlement, key.1.as_str())?;
                let stored = (self.state(is)?, is.contains_key("hp"), is.contains_key("unc"));
                let of = |of: &Settlement| (of.state, of.held, of.unclaimed);
                let model = self.ledger.settlements.get(&settlement).map(of);
                (model != Some(stored)).then(|| format!("settlement {} is {stored:?}, the model has {model:?}", key.1))
            }
            ("X", _) => {
                let was = self.names.len();
                let claims: Vec<Claim<'_>> = after.claims().collect();
                let mut stored = BTreeMap::new();
                for claim in &claims {
                    let by = self.name(Kind::Settlement, claim.settlement)?;
                    let hash = self.name(Kind::Hash, claim.block_hash.to_string())?;
                    stored.insert(self.place(claim)?, (by, hash));
                }
                let is_new = was != self.names.len();
                (is_new || stored != self.ledger.claims)
                    .then(|| format!("the claims are {stored:?}, the model has {:?}", self.ledger.claims))
            }
            ("I", Some(is)) => {
                let request = self.request(rest, is)?;
                let stored = if text(is, "kind") == "allow" {
                    let settlement = self.name(Kind::Settlement, text(is, "sid"))?;
                    Record::Allow { request, settlement }
                } else {
                    let approval = sequence(text(is, "apid"));
                    Record::Escalated { request, approval }
                };
                let number = self.name(Kind::Key, format!("{rest} {}", key.1))?;
                let model = self.ledger.keys.get(&number);
                (model != Some(&stored)).then(|| format!("key {} is {stored:?}, the model has {model:?}", key.1))
            }
            ("AP", Some(is)) if !is.contains_key("raise") => {
                let stored = match text(is, "st") {
                    "pending" => Ruling::Pending,
                    "approved" => Ruling::Approved,
                    "rejected" => Ruling::Rejected,
                    _ => Ruling::Executed(self.name(Kind::Settlement, text(is, "sid"))?),
                };
                let approval = (self.request(text(is, "agent"), is)?, key.1.parse().expect("few"));
                let model = self.ledger.approvals.get(&approval).map(|approval| approval.ruling);
                (model != Some(stored)).then(|| format!("approval {key:?} is {stored:?}, the model has {model:?}"))
            }
            _ => None,
        };
        Some(told)
    }

    fn state(&mut self, row: &Item) -> Option<State> {
        Some(match text(row, "rs") {
            "authorized" => State::Authorized,
            "expired" => State::Expired,
            _ => State::Confirmed {
                tx: self.name(Kind::Transaction, text(row, "txh"))?,
                block: self.name(Kind::Height, number(row, "blk").to_string())?,
            },
        })
    }
}

/// Returns the number of an approval among the approvals of its request, from its id.
fn sequence(approval: &str) -> u8 {
    let digits = approval.get(approval.len().saturating_sub(8)..).unwrap_or_default();
    u8::from_str_radix(digits.trim_start_matches('0'), 16).unwrap_or(0)
}
