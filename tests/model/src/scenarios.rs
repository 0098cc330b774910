//! The bounded models that are checked. Small models take seconds, and large models take minutes.

use crate::{
    fairness::Fairness,
    freezes::{self, Freezes},
    handover::{self, Handover},
    ledger::{ApprovalRuling, Limit, Scope},
    payout::{Ask, Payout},
    reserve::{Act, Call, Reserve},
    settle::Settle,
    usage::Usage,
};

/// The size of the models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// For `make test`.
    Small,
    /// For `make test-all`.
    Large,
}

const fn limit(cap: i8, asks: bool) -> Option<Limit> {
    Some(Limit { version: 1, cap, asks })
}

/// Returns a call whose request has the same number as its idempotency key.
const fn call(key: u8, amount: i8) -> Call {
    Call {
        key,
        request: key,
        amount,
        approval: None,
        skew: 0,
    }
}

/// Returns a call with the first approval of request 1.
const fn approved(key: u8) -> Call {
    Call {
        key,
        request: 1,
        amount: 2,
        approval: Some(0),
        skew: 0,
    }
}

fn reserve(name: &'static str, bound: Bound) -> Reserve {
    let (faults, attempts) = match bound {
        Bound::Small => (1, 2),
        Bound::Large => (2, 3),
    };
    Reserve {
        name,
        policy: limit(3, false),
        budget: None,
        paid: Vec::new(),
        calls: Vec::new(),
        acts: Vec::new(),
        ticks: 0,
        ttl: 2,
        faults,
        attempts,
        torn: true,
        whole: false,
        flaw: None,
    }
}

/// Returns the bounded models of `authorize`.
pub fn reserves(bound: Bound) -> Vec<Reserve> {
    let is_large = bound == Bound::Large;
    let base = |name| reserve(name, bound);
    let more = |calls: Vec<Call>, one: Call| if is_large { [calls, vec![one]].concat() } else { calls };
    let also = |acts: Vec<Act>, one: Act| if is_large { [acts, vec![one]].concat() } else { acts };
    vec![
        Reserve {
            calls: more(vec![call(1, 2), call(2, 2)], call(3, 1)),
            acts: vec![Act::Policy(1, false)],
            ..base("payments for one place, and a lower cap")
        },
        Reserve {
            calls: more(
                vec![call(1, 2), call(1, 2)],
                Call {
                    request: 2,
                    ..call(1, 1)
                },
            ),
            faults: if is_large { 3 } else { 2 },
            ..base("repetitions of a key, with lost answers")
        },
        Reserve {
            policy: None,
            calls: vec![call(1, 2), call(2, 2)],
            acts: also(vec![Act::Freeze(true)], Act::Policy(1, false)),
            attempts: 2,
            faults: 1,
            ..base("the first payments at a service, and edits")
        },
        Reserve {
            calls: vec![call(1, 2)],
            acts: also(
                vec![Act::Freeze(true), Act::Freeze(true), Act::Operators(true)],
                Act::Operators(false),
            ),
            ..base("a repeated freeze, and one by operators")
        },
        Reserve {
            policy: limit(4, true),
            calls: more(vec![call(1, 2), approved(1), approved(2)], approved(3)),
            acts: vec![
                Act::Rule(1, ApprovalRuling::Approve),
                Act::Rule(1, ApprovalRuling::Withdraw),
            ],
            torn: false,
            ticks: 2,
            faults: 1,
            ..base("a question, its approval, and those who use it")
        },
        Reserve {
            paid: vec![(-1, 1), (0, 1)],
            calls: vec![call(1, 2), Call { skew: 1, ..call(2, 2) }],
            acts: also(vec![Act::Evict(Scope::Day)], Act::Policy(2, false)),
            ticks: 2,
            torn: !is_large,
            ..base("entries that expire, and clocks that differ")
        },
        Reserve {
            budget: Some(2),
            paid: vec![(0, 1)],
            calls: vec![call(1, 1), Call { skew: -1, ..call(2, 1) }],
            acts: also(vec![Act::Budget(1), Act::Evict(Scope::Budget)], Act::Freeze(true)),
            ticks: 1,
            torn: false,
            faults: 1,
            ..base("a budget beside the day")
        },
    ]
}

/// Returns the bounded models of settlement.
pub fn settles(bound: Bound) -> Vec<Settle> {
    let is_large = bound == Bound::Large;
    let base = |name| Settle {
        name,
        settlements: 1,
        payments: vec![(0, &[0])],
        depth: 3,
        ends: 2,
        proofs: Vec::new(),
        runs: 2,
        liar: false,
        spends: false,
        ticks: 0,
        faults: 1,
        fork: false,
        whole: false,
        flaw: None,
    };
    let late = Settle {
        proofs: vec![(0, 0)],
        fork: true,
        ticks: 1,
        ..base("a release that arrives late")
    };
    let models = vec![
        Settle {
            proofs: vec![(0, 0)],
            faults: u8::from(is_large),
            ..base("a proof beside two runs")
        },
        Settle {
            proofs: vec![(0, 1), (1, 0)],
            settlements: 2,
            payments: vec![(0, &[0, 1]), (1, &[1])],
            runs: if is_large { 2 } else { 1 },
            faults: 0,
            depth: if is_large { 3 } else { 2 },
            ends: if is_large { 2 } else { 3 },
            ..base("a transaction that pays two settlements")
        },
        Settle {
            liar: true,
            proofs: vec![(0, 0)],
            faults: u8::from(is_large),
            ..base("an endpoint that leaves out what was paid")
        },
        Settle {
            spends: true,
            ticks: 2,
            runs: if is_large { 3 } else { 2 },
            faults: 0,
            ..base("windows under a release and a late confirmation")
        },
    ];
    if is_large {
        [models, vec![late]].concat()
    } else {
        models
    }
}

/// Returns the bounded models of withdrawals.
pub fn payouts(bound: Bound) -> Vec<Payout> {
    let is_large = bound == Bound::Large;
    let base = |name| Payout {
        name,
        asks: Vec::new(),
        ends: if is_large { 3 } else { 2 },
        handover: false,
        freeze: false,
        ticks: 1,
        faults: if is_large { 2 } else { 1 },
        flaw: None,
    };
    vec![
        Payout {
            asks: vec![Ask::PayOut(0, 1), Ask::PayOut(0, 2), Ask::PayOut(0, 1)],
            ..base("payouts at once, and a repetition")
        },
        Payout {
            asks: vec![Ask::PayOut(0, 1), Ask::PayOut(0, 2), Ask::Name(0, 2), Ask::Remove(0)],
            ends: 1,
            faults: u8::from(is_large),
            ..base("payouts beside a new address")
        },
        Payout {
            asks: vec![Ask::PayOut(0, 1), Ask::PayOut(1, 2), Ask::Name(1, 3)],
            handover: true,
            freeze: true,
            ends: 1,
            ..base("payouts beside a handover and a freeze")
        },
    ]
}

/// Returns the bounded models of ownership transfers.
pub fn handovers(bound: Bound) -> Vec<Handover> {
    use handover::Act;
    let is_large = bound == Bound::Large;
    let base = |name| Handover {
        name,
        acts: Vec::new(),
        asked: true,
        ticks: 2,
        faults: u8::from(is_large),
        flaw: None,
    };
    vec![
        Handover {
            acts: vec![Act::Offer(1, 1), Act::Accept(1), Act::Approve(0, 1), Act::Freeze(0)],
            ..base("an acceptance beside an edit and a ruling")
        },
        Handover {
            acts: vec![
                Act::Offer(1, 2),
                Act::Offer(2, 2),
                Act::TakeBack,
                Act::Accept(1),
                Act::Accept(2),
            ],
            asked: is_large,
            ..base("offers that replace each other")
        },
        Handover {
            acts: vec![
                Act::Offer(1, 2),
                Act::Accept(1),
                Act::Ask(2),
                Act::Approve(0, 2),
                Act::Approve(1, 2),
            ],
            ticks: 0,
            ..base("a question under a handover")
        },
    ]
}

/// Returns the bounded models of the decision history.
pub fn usages(bound: Bound) -> Vec<Usage> {
    let records = vec![(0, 3), (1, 5), (0, 0), (0, 3)];
    let name = "records that are doubled, repeated and cut off";
    let (records, batches) = match bound {
        Bound::Small => (records[..3].to_vec(), 3),
        Bound::Large => (records, 4),
    };
    vec![Usage {
        name,
        records,
        batches,
        flaw: None,
    }]
}

/// Returns the bounded models of fairness between tenants.
pub fn fairnesses(bound: Bound) -> Vec<Fairness> {
    let hostile = if bound == Bound::Large { 4 } else { 3 };
    vec![Fairness {
        name: "a tenant whose holds can't be decided",
        hostile,
        honest: 3,
        most: 3,
        calls: 2,
        runs: 10,
        flaw: None,
    }]
}

/// Returns the bounded models of operators' freezes.
pub fn freezes(bound: Bound) -> Vec<Freezes> {
    use freezes::Operator::{Browser, Token};
    let mut requests = vec![
        (Browser(0), true),
        (Token, true),
        (Browser(0), false),
        (Browser(1), false),
        (Browser(1), true),
    ];
    if bound == Bound::Large {
        requests.extend([(Token, false), (Token, true)]);
    }
    let model = |name, needs_second| Freezes {
        name,
        requests: requests.clone(),
        needs_second,
        flaw: None,
    };
    vec![
        model("a token and two browsers", true),
        model("a token and two browsers, each of which ends alone", false),
    ]
}
