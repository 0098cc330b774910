//! Checks every state of every model within its bounds, and that the models find the planted bugs.

use purser_model::{
    CheckResult, check,
    flaw::Flaw,
    law::Law,
    scenarios::{self, Bound},
};
use std::{collections::BTreeSet, time::Instant};

fn every_state(bound: Bound) {
    macro_rules! check_each {
        ($($models:ident),+) => {$(
            for model in scenarios::$models(bound) {
                let (name, started) = (model.name, Instant::now());
                let CheckResult { states, problems } = check(model, None);
                println!("{}: {name}: {states} states in {:?}", stringify!($models), started.elapsed());
                for (law, path) in &problems {
                    println!("{law}: {path}");
                }
                assert!(problems.is_empty(), "{name}");
            }
        )+};
    }
    check_each!(reserves, settles, payouts, handovers, usages, fairnesses, freezes);
}

#[test]
fn no_reachable_state_of_the_small_models_breaks_an_invariant() {
    every_state(Bound::Small);
}

#[test]
#[ignore = "takes minutes; run by `make test-all`, or by `cargo nextest run --workspace --run-ignored only -E 'package(purser-model)'`"]
fn no_reachable_state_of_the_large_models_breaks_an_invariant() {
    every_state(Bound::Large);
}

/// The planted bugs: the violated invariant, and the name of the model that finds the bug.
const PLANTED: &[(Flaw, Law, &str)] = &[
    (
        Flaw::ReserveIgnoresPolicyStamp,
        Law::Stamps,
        "payments for one place, and a lower cap",
    ),
    (
        Flaw::ReserveIgnoresAgentStamp,
        Law::Stamps,
        "the first payments at a service, and edits",
    ),
    (Flaw::ReserveIgnoresHorizon, Law::Horizon, "a budget beside the day"),
    (
        Flaw::ReserveIgnoresRoom,
        Law::Cap,
        "payments for one place, and a lower cap",
    ),
    (
        Flaw::EvictsWhatIsGone,
        Law::Totals,
        "entries that expire, and clocks that differ",
    ),
    (
        Flaw::KeyIsOverwritten,
        Law::OneSettlement,
        "payouts at once, and a repetition",
    ),
    (
        Flaw::ApprovalIsUsedTwice,
        Law::Approval,
        "a question, its approval, and those who use it",
    ),
    (
        Flaw::ApprovalHasNoEnd,
        Law::Approval,
        "a question, its approval, and those who use it",
    ),
    (
        Flaw::RulingIgnoresState,
        Law::Approval,
        "a question, its approval, and those who use it",
    ),
    (
        Flaw::AnybodyRules,
        Law::Approval,
        "an acceptance beside an edit and a ruling",
    ),
    (
        Flaw::DefaultIgnoresAgent,
        Law::Stamps,
        "the first payments at a service, and edits",
    ),
    (Flaw::EvictionLowersHorizon, Law::Evictable, "a budget beside the day"),
    (
        Flaw::EditStampsNothing,
        Law::Stamps,
        "payments for one place, and a lower cap",
    ),
    (
        Flaw::EditSkipsFence,
        Law::Stamps,
        "the first payments at a service, and edits",
    ),
    (
        Flaw::RepeatedEditSkipsFence,
        Law::Stamps,
        "the first payments at a service, and edits",
    ),
    (
        Flaw::SignsBeforeReserve,
        Law::OneSettlement,
        "payments for one place, and a lower cap",
    ),
    (
        Flaw::RepetitionDecidesAnew,
        Law::LateCommit,
        "repetitions of a key, with lost answers",
    ),
    (
        Flaw::FreezeIsNotRead,
        Law::Freeze,
        "a repeated freeze, and one by operators",
    ),
    (Flaw::ReleaseIgnoresState, Law::Moves, "a proof beside two runs"),
    (
        Flaw::ReleaseIgnoresCountedAt,
        Law::Totals,
        "a release that arrives late",
    ),
    (Flaw::ReleaseKeepsTotal, Law::Totals, "a proof beside two runs"),
    (Flaw::ReleaseByClock, Law::Unpayable, "a proof beside two runs"),
    (
        Flaw::ReleaseAsksOneEndpoint,
        Law::Unpayable,
        "an endpoint that leaves out what was paid",
    ),
    (Flaw::ConfirmIgnoresState, Law::Moves, "a proof beside two runs"),
    (Flaw::ConfirmsAtTheHead, Law::Paid, "a proof beside two runs"),
    (Flaw::ConfirmsWithoutClaim, Law::Claims, "a proof beside two runs"),
    (Flaw::RemovalIgnoresConfirmation, Law::Claims, "a proof beside two runs"),
    (Flaw::RemovalLeavesNoMark, Law::Claims, "a proof beside two runs"),
    (Flaw::FinalByNumber, Law::Paid, "a proof beside two runs"),
    (
        Flaw::MatchesWithoutNonce,
        Law::OneProof,
        "a transaction that pays two settlements",
    ),
    (
        Flaw::ClaimIsOverwritten,
        Law::Claims,
        "a transaction that pays two settlements",
    ),
    (
        Flaw::LateEntryIgnoresHorizon,
        Law::Horizon,
        "windows under a release and a late confirmation",
    ),
    (Flaw::RevertReleases, Law::Revert, "a proof beside two runs"),
    (Flaw::RevertLeavesIndex, Law::Revert, "a proof beside two runs"),
    (
        Flaw::PayoutIgnoresVersion,
        Law::Payout,
        "payouts at once, and a repetition",
    ),
    (Flaw::PayoutIgnoresWait, Law::Payout, "payouts beside a new address"),
    (
        Flaw::PayoutIgnoresLatest,
        Law::Payout,
        "payouts at once, and a repetition",
    ),
    (
        Flaw::PayoutIgnoresPerson,
        Law::Payout,
        "payouts beside a handover and a freeze",
    ),
    (
        Flaw::PayoutIgnoresHandover,
        Law::Payout,
        "payouts beside a handover and a freeze",
    ),
    (
        Flaw::HandoverIgnoresAgent,
        Law::Handover,
        "an acceptance beside an edit and a ruling",
    ),
    (
        Flaw::HandoverIgnoresOffer,
        Law::Handover,
        "offers that replace each other",
    ),
    (
        Flaw::OfferHasNoEnd,
        Law::Handover,
        "an acceptance beside an edit and a ruling",
    ),
    (
        Flaw::MoveIgnoresAgent,
        Law::Handover,
        "an acceptance beside an edit and a ruling",
    ),
    (
        Flaw::AcceptSkipsApprovals,
        Law::Handover,
        "an acceptance beside an edit and a ruling",
    ),
    (
        Flaw::EntryIgnoresSequence,
        Law::Usage,
        "records that are doubled, repeated and cut off",
    ),
    (
        Flaw::SumsIgnoreSequence,
        Law::Usage,
        "records that are doubled, repeated and cut off",
    ),
    (
        Flaw::UndecidedStaysFirst,
        Law::Liveness,
        "a tenant whose holds can't be decided",
    ),
    (Flaw::NoTurns, Law::Liveness, "a tenant whose holds can't be decided"),
    (Flaw::FreezeIgnoresAuthority, Law::Freezes, "a token and two browsers"),
    (Flaw::FreezeIgnoresWhatWasRead, Law::Freezes, "a token and two browsers"),
    (Flaw::RequestOutlivesFreeze, Law::Freezes, "a token and two browsers"),
];

/// Returns whether the named model finds the bug through this invariant.
fn is_found(flaw: Flaw, law: Law, name: &str) -> bool {
    macro_rules! look {
        ($($models:ident, $module:ident, $model:ident;)+) => {$(
            if purser_model::$module::LAWS.contains(&law) {
                let models = [Bound::Small, Bound::Large].map(scenarios::$models).concat();
                if let Some(model) = models.into_iter().find(|model| model.name == name) {
                    let flaw = Some(flaw);
                    let checked = check(purser_model::$module::$model { flaw, ..model }, Some(law));
                    if checked.problems.iter().any(|(words, _)| *words == law.words()) {
                        return true;
                    }
                }
            }
        )+};
    }
    look!(
        reserves, reserve, Reserve;
        settles, settle, Settle;
        payouts, payout, Payout;
        handovers, handover, Handover;
        usages, usage, Usage;
        fairnesses, fairness, Fairness;
        freezes, freezes, Freezes;
    );
    false
}

#[test]
fn every_planted_model_bug_breaks_the_expected_invariant() {
    let planted: BTreeSet<Flaw> = PLANTED.iter().map(|(flaw, ..)| *flaw).collect();
    assert_eq!(planted.len(), Flaw::ALL.len(), "an error without a row");
    let missed: Vec<_> = PLANTED
        .iter()
        .filter(|(flaw, law, name)| !is_found(*flaw, *law, name))
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn every_model_transition_names_its_store_function() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let named = purser_model::ledger::IMPLEMENTATIONS.iter();
    let named = named.chain(&purser_model::usage::IMPLEMENTATIONS);
    let named = named.chain(&purser_model::fairness::IMPLEMENTATIONS);
    let named = named.chain(&purser_model::freezes::IMPLEMENTATIONS);
    for (name, file, function) in named {
        let source = std::fs::read_to_string(format!("{root}/{file}")).unwrap();
        let is_there = ["(", "<"]
            .iter()
            .any(|next| source.contains(&format!("fn {function}{next}")));
        assert!(is_there, "{name}: {file} has no {function}");
    }
    // `Write::name` contains the names of all transitions.
    let source = include_str!("../src/ledger.rs");
    let names = source
        .lines()
        .filter_map(|line| line.trim().split_once("=> \"")?.1.strip_suffix("\","));
    let names: BTreeSet<&str> = names.collect();
    let known: BTreeSet<&str> = purser_model::ledger::IMPLEMENTATIONS
        .iter()
        .map(|(name, ..)| *name)
        .collect();
    assert_eq!(names, known);
}
