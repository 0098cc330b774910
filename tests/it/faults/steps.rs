//! The steps of an operation at which its process can be killed, and the counts of the kills.

use purser_testkit::Moment;
use purser_tests::{Answer, Process, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// The calls of a process that starts.
const START: [&str; 3] = [
    "GetItem CatalogTable",
    "GetItem CatalogTable 2",
    "BatchGetItem CatalogTable",
];

/// The calls of each operation in a new process. The calls of the same name are numbered.
pub(super) const AUTHORIZE: [&str; 8] = [
    "UpdateItem ThrottleTable",
    "BatchGetItem LedgerTable",
    "Query LedgerTable",
    "GetItem UsageTable",
    "UpdateItem ThrottleTable 2",
    "eth_chainId",
    "eth_call",
    "TransactWriteItems LedgerTable",
];
/// The first payment to a default service also writes the policy.
pub(super) const FIRST: [&str; 10] = [
    "UpdateItem ThrottleTable",
    "BatchGetItem LedgerTable",
    "Query LedgerTable",
    "GetItem UsageTable",
    "GetItem LedgerTable",
    "UpdateItem ThrottleTable 2",
    "eth_chainId",
    "eth_call",
    "TransactWriteItems LedgerTable",
    "TransactWriteItems LedgerTable 2",
];
// The replay may end before the background write.
pub(super) const REPLAY: [&str; 4] = [
    "UpdateItem ThrottleTable",
    "BatchGetItem LedgerTable",
    "Query LedgerTable",
    // Reads the settlement, whose status is in the response.
    "GetItem LedgerTable",
];
pub(super) const COMPLETE: [&str; 9] = [
    "UpdateItem ThrottleTable",
    "BatchGetItem LedgerTable",
    "UpdateItem ThrottleTable 2",
    "eth_getTransactionByHash",
    "eth_chainId",
    "eth_getBlockByNumber",
    "eth_getLogs",
    "PutItem LedgerTable",
    "UpdateItem LedgerTable",
];

/// Calls that a function makes before it needs them: the chain id at the start, and the balance.
const EARLY: [&str; 2] = ["eth_chainId", "eth_call"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stop {
    /// Before the call is forwarded, or after it took effect.
    Call(&'static str, Moment),
    /// After all calls, before the response is sent.
    Reply,
}

/// Returns every step of an operation.
pub(super) fn stops(operation: &[&'static str]) -> Vec<Stop> {
    let calls = START.iter().chain(operation);
    let both = |call: &&'static str| [Moment::Arrived, Moment::CarriedOut].map(|moment| Stop::Call(call, moment));
    calls.flat_map(both).chain([Stop::Reply]).collect()
}

/// The number of kills by operation and step.
#[derive(Clone, Default)]
pub(super) struct Kills {
    hit: Arc<Mutex<BTreeMap<(&'static str, Stop), u32>>>,
    /// The calls that each operation has made.
    seen: Arc<Mutex<BTreeSet<(&'static str, String)>>>,
}

impl Kills {
    /// Sends a request, and kills the process at this step.
    pub(super) async fn send(
        &self,
        process: &Process,
        operation: &'static str,
        stop: Stop,
        request: &Request,
    ) -> Option<Answer> {
        let mut calls: BTreeMap<(String, Moment), u32> = BTreeMap::new();
        let kills = self.clone();
        // The calls of an earlier process must not count for this process.
        process.quiet().await;
        let mut armed = true;
        process.kill_where(move |call, moment| {
            let times = calls.entry((call.to_owned(), moment)).or_default();
            *times += 1;
            let name = match times {
                1 => call.to_owned(),
                times => format!("{call} {times}"),
            };
            let here = armed && matches!(stop, Stop::Call(at, when) if at == name && when == moment);
            kills.seen.lock().unwrap().insert((operation, call.to_owned()));
            if here {
                armed = false;
                kills.count(operation, stop);
            }
            here
        });
        let before = process.killer().kills();
        if stop == Stop::Reply {
            process.kill_before_the_reply();
        }
        let answer = process.send(request).await;
        if stop == Stop::Reply && process.killer().kills() > before {
            self.count(operation, stop);
        }
        process.spare();
        answer
    }

    fn count(&self, operation: &'static str, stop: Stop) {
        *self.hit.lock().unwrap().entry((operation, stop)).or_default() += 1;
    }

    /// The total number of kills.
    pub(super) fn total(&self) -> u32 {
        self.hit.lock().unwrap().values().sum()
    }

    /// Asserts that the operation was killed at each of its steps, and made no calls besides `calls`, early calls and
    /// `repeated`.
    pub(super) fn assert_everywhere(&self, operation: &'static str, calls: &[&'static str], repeated: &[&'static str]) {
        let hit = self.hit.lock().unwrap();
        let times = |stop| hit.get(&(operation, stop)).copied().unwrap_or_default();
        println!("{operation:<16} {:<48} before   after", "killed at");
        for call in START.iter().chain(calls) {
            let both = [Moment::Arrived, Moment::CarriedOut].map(|moment| times(Stop::Call(call, moment)));
            println!("{:<16} {call:<48} {:>6} {:>7}", "", both[0], both[1]);
        }
        println!("{:<16} {:<48} {:>6}", "", "the reply", times(Stop::Reply));
        let missed: Vec<Stop> = stops(calls).into_iter().filter(|stop| times(*stop) == 0).collect();
        assert!(missed.is_empty(), "{operation} was never killed at {missed:?}");
        let known: Vec<&str> = START
            .iter()
            .chain(calls)
            .chain(repeated)
            .chain(&EARLY)
            .map(|call| call.trim_end_matches(" 2"))
            .collect();
        let seen = self.seen.lock().unwrap();
        let unknown: Vec<_> = seen
            .iter()
            .filter(|(of, call)| *of == operation && !known.contains(&call.as_str()))
            .collect();
        assert!(unknown.is_empty(), "calls that are no step of {operation}: {unknown:?}");
    }
}
