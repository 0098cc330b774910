//! The event source mappings from queues to a function, which deliver messages in any order and some twice. Invocations
//! are killed, time out, and have faults in their calls.

use crate::network::Link;
use crate::plan::Fault;
use crate::run::Run;
use crate::telling::fault;
use purser_testkit::{Rng, Sqs};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

const BATCH: u64 = 10;
/// The timeout of a function that queues invoke.
pub(crate) const TIME: Duration = Duration::from_secs(30);

/// An invocation of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Invocation {
    pub(crate) began: i64,
    pub(crate) ended: Option<i64>,
    /// Whether the invocation had a fault, or did not end normally.
    pub(crate) is_disturbed: bool,
    /// A fault, the number of calls to skip after the invocation's first mail or webhook call, and the number of calls
    /// that fail.
    pub(crate) strike: Option<(Fault, u8, u8)>,
}

/// The faults in invocations. Failures of receivers and of the mail service are separate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// No faults, and one message at a time.
    #[default]
    Calm,
    /// No faults, but concurrent batches and repeated messages.
    Quiet,
    /// Concurrent batches, and faults in the function's calls.
    Faulty,
}

/// A mapping from a queue to a function.
pub(crate) struct Mapping {
    pub(crate) queue: &'static str,
    pub(crate) most_at_once: usize,
    pub(crate) most_receipts: u32,
    /// The name of the mapping's invocations in the coverage.
    pub(crate) name: &'static str,
}

impl Mapping {
    pub(crate) const fn new(queue: &'static str, most_at_once: usize, most_receipts: u32, name: &'static str) -> Self {
        Self {
            queue,
            most_at_once,
            most_receipts,
            name,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Batch {
    /// The event for the function.
    pub(crate) event: Value,
    /// Whether the batch is delivered twice.
    pub(crate) is_doubled: bool,
}

pub(crate) struct Troubles {
    /// The faults of the invocation, each with the number of the call that fails.
    pub(crate) faults: Vec<(u8, Fault)>,
    /// The seed for the delays of the invocation's calls, as in [`crate::plan::Step`].
    pub(crate) pace: u16,
    /// The fault after the first mail or webhook call, as in [`Invocation`].
    strike: Option<(Fault, u8, u8)>,
}

impl Troubles {
    /// Draws the faults of an invocation. In one of `odds` invocations, a fault follows the first mail or webhook call.
    pub(crate) fn draw(mode: Mode, odds: u64, rng: &mut Rng) -> Self {
        let mut faults = Vec::new();
        if mode == Mode::Faulty && rng.one_in(3) {
            let (fault, length, first) = (fault(rng), length(rng), rng.small(16));
            faults.extend((first..first + length).map(|call| (call, fault)));
        }
        let pace = match mode {
            Mode::Calm => 0,
            _ => u16::try_from(rng.below(60_000)).expect("below 65,536"),
        };
        let is_struck = mode == Mode::Faulty && rng.one_in(odds);
        let strike = is_struck.then(|| (fault(rng), rng.small(4), length(rng)));
        Self { faults, pace, strike }
    }

    pub(crate) const fn invocation(&self, began: i64) -> Invocation {
        Invocation {
            began,
            ended: None,
            is_disturbed: false,
            strike: self.strike,
        }
    }
}

/// Draws the number of failing calls. The SDK makes three attempts, so the function sees only three or more failures.
fn length(rng: &mut Rng) -> u8 {
    *rng.pick(&[1, 3, 3, 8])
}

/// A function's mappings, and the invocations in progress.
pub(crate) struct Mappings {
    all: &'static [Mapping],
    mode: Mode,
    /// The number of invocations in progress, by mapping.
    busy: Vec<usize>,
    /// The bodies of unreadable messages, by queue.
    poison: BTreeMap<&'static str, Vec<String>>,
}

impl Mappings {
    pub(crate) fn new(all: &'static [Mapping], mode: Mode) -> Self {
        Self {
            all,
            mode,
            busy: vec![0; all.len()],
            poison: BTreeMap::new(),
        }
    }

    pub(crate) const fn mapping(&self, mapping: usize) -> &'static Mapping {
        &self.all[mapping]
    }

    pub(crate) const fn count(&self) -> usize {
        self.all.len()
    }

    fn has_room(&self, mapping: usize) -> bool {
        let most = match self.mode {
            Mode::Calm => 1,
            _ => self.all[mapping].most_at_once,
        };
        self.busy[mapping] < most
    }

    /// Returns the earliest time at which a mapping can start another invocation.
    pub(crate) fn next_visible(&self, sqs: &Sqs) -> Option<i64> {
        let ready = (0..self.all.len()).filter(|mapping| self.has_room(*mapping));
        let visible = ready.filter_map(|mapping| sqs.next_visible(self.all[mapping].queue));
        visible.min()
    }

    /// Receives a batch, if the mapping may start another invocation.
    pub(crate) fn receive(&self, mapping: usize, sqs: &Sqs, rng: &mut Rng) -> Option<Batch> {
        if !self.has_room(mapping) {
            return None;
        }
        let queue = self.all[mapping].queue;
        let size = match self.mode {
            Mode::Calm => 1,
            _ => 1 + rng.below(BATCH),
        };
        if self.mode != Mode::Calm {
            sqs.shuffle(queue, || rng.draw());
        }
        let event = sqs.receive(queue, usize::try_from(size).expect("small"))?;
        Some(Batch {
            event,
            is_doubled: self.mode != Mode::Calm && rng.one_in(8),
        })
    }

    pub(crate) fn begin(&mut self, mapping: usize) {
        self.busy[mapping] += 1;
    }

    /// Ends an invocation, and deletes the processed messages. In faulty mode, messages sometimes stay.
    pub(crate) fn end(&mut self, run: &Run, (mapping, batch): (usize, &Value), end: &End, rng: &mut Rng) {
        self.busy[mapping] -= 1;
        if self.mode == Mode::Faulty && rng.one_in(20) {
            run.world.count("messages done and not removed");
        } else {
            let queue = self.all[mapping].queue;
            run.world.queues.sqs.delete_done(queue, batch, end.answer.as_ref());
        }
    }

    pub(crate) fn send_poison(&mut self, queue: &'static str, sqs: &Sqs) {
        let body = serde_json::json!({"detail": {"specversion": "1.0"}}).to_string();
        sqs.send(queue, &body);
        self.poison.entry(queue).or_default().push(body);
    }

    pub(crate) fn is_poison(&self, queue: &str, body: &str) -> bool {
        let poison = self.poison.get(queue);
        poison.is_some_and(|poison| poison.iter().any(|poison| poison == body))
    }

    /// Returns what is wrong with the queues at the end of a run.
    pub(crate) fn found(&self, run: &Run) -> Vec<String> {
        let (sqs, mut found) = (&run.world.queues.sqs, Vec::new());
        for Mapping { queue, .. } in self.all {
            let left = sqs.bodies(queue);
            if !left.is_empty() {
                found.push(format!("{left:?} is left in {queue}"));
            }
            let expected = self.poison.get(queue).cloned().unwrap_or_default();
            let set_aside = sqs.set_aside(queue);
            if set_aside != expected {
                found.push(format!("{set_aside:?} of {queue} was set aside"));
            }
            if !set_aside.is_empty() {
                run.world.count("set aside");
            }
        }
        found
    }
}

pub(crate) struct End {
    /// The function's response; `None` if the process was killed or timed out.
    pub(crate) answer: Option<Value>,
    pub(crate) what: &'static str,
    pub(crate) faults: Vec<Fault>,
}

impl End {
    /// Invokes a function with its timeout.
    pub(crate) async fn invoke(link: &Link, operation: impl Future<Output = purser_domain::Result<Value>>) -> Self {
        let ended = tokio::select! {
            biased;
            () = link.crashed() => None,
            answer = timeout(TIME, operation) => Some(answer),
        };
        let faults = link.end().faults;
        let (answer, what) = match ended {
            None => (None, "crashed"),
            Some(Err(_)) => (None, "out of time"),
            Some(Ok(Err(_))) => (None, "failed"),
            Some(Ok(Ok(answer))) if answer["batchItemFailures"][0].is_object() => (Some(answer), "in part"),
            Some(Ok(Ok(answer))) => (Some(answer), "done"),
        };
        Self { answer, what, faults }
    }

    /// Returns whether the process can handle further invocations.
    pub(crate) fn is_alive(&self) -> bool {
        self.what != "crashed" && self.what != "out of time"
    }

    /// Returns whether the invocation had a fault or no response.
    pub(crate) const fn is_disturbed(&self) -> bool {
        !self.faults.is_empty() || self.answer.is_none()
    }
}

impl Run {
    /// Counts an invocation in the coverage. Checks that an invocation without a response had a fault.
    pub(crate) fn note_end(&self, name: &str, end: &End) {
        self.world.count(format!("{name} {}", end.what));
        for fault in &end.faults {
            let name = format!("{fault:?}");
            self.world
                .count(format!("fault {}", name.split('(').next().unwrap_or_default()));
        }
        if end.faults.is_empty() && end.answer.is_none() {
            self.world.complain(format!("{name} ended without cause: {}", end.what));
        }
    }
}
