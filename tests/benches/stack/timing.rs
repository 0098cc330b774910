//! Times our function and the bare calls alternately, and reports the medians.

use crate::bare::{Asker, Bare};
use crate::function::Function;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// The name of the reference in the results.
const FLOOR: &str = "the same calls, bare";

/// A request to our function, and the bare calls for the same request.
pub struct Turn {
    pub event: Vec<u8>,
    pub status: u16,
    pub floor: Bare,
}

/// A row of the results.
pub struct Row {
    pub group: &'static str,
    pub name: String,
    pub median: Duration,
    /// The name of the reference, and its time.
    pub reference: &'static str,
    pub reference_median: Duration,
    /// The maximum ratio.
    pub limit: Option<f64>,
    /// The database's read and write units; `None` if the row reports none.
    pub units: Option<(f64, f64)>,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.median.as_secs_f64() / self.reference_median.as_secs_f64()
    }

    fn line(&self) -> Value {
        let mut line = json!({
            "group": self.group,
            "name": self.name,
            "median_ns": u64::try_from(self.median.as_nanos()).expect("short"),
            "reference": self.reference,
            "reference_ns": u64::try_from(self.reference_median.as_nanos()).expect("short"),
            "ratio": (self.ratio() * 1000.0).round() / 1000.0,
        });
        if let Some(limit) = self.limit {
            line["limit"] = limit.into();
        }
        if let Some((read, write)) = self.units {
            line["units"] = json!({"read": read, "write": write});
        }
        line
    }
}

/// Prints each row immediately, and writes the rows for `make bench`.
pub struct Report(File);

impl Report {
    /// Starts the report of a bench in `infra/bench.py`.
    pub fn start(bench: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
        fs::create_dir_all(&folder).expect("a folder");
        Self(File::create(folder.join(format!("{bench}.jsonl"))).expect("a file"))
    }

    /// Adds the medians of our function and of the bare calls.
    pub fn beside_floor(
        &mut self,
        group: &'static str,
        name: &str,
        limit: Option<f64>,
        (median, reference_median): (Duration, Duration),
    ) {
        self.add(&Row {
            group,
            name: name.to_owned(),
            median,
            reference: FLOOR,
            reference_median,
            limit,
            units: None,
        });
    }

    pub fn add(&mut self, row: &Row) {
        println!(
            "{:<10} {:<44} {:>10.1} us {:>10.1} us {:>7.3}",
            row.group,
            row.name,
            row.median.as_secs_f64() * 1e6,
            row.reference_median.as_secs_f64() * 1e6,
            row.ratio()
        );
        writeln!(self.0, "{}", row.line()).expect("written");
    }
}

/// Returns the medians of our function and of the bare calls, with one caller. The calls alternate, so that other load
/// on the machine affects both equally.
pub async fn in_turns(function: &Function, asker: &Asker, turns: Vec<Turn>) -> (Duration, Duration) {
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for (n, Turn { event, status, floor }) in turns.into_iter().enumerate() {
        let mut floor = Some(floor);
        for first in [true, false] {
            let began = Instant::now();
            if (n % 2 == 0) == first {
                let answered = function.call(&event).await;
                ours.push(began.elapsed());
                answered.expect(status);
            } else if let Some(floor) = floor.take() {
                floor.ask(asker).await;
                floors.push(began.elapsed());
            }
        }
    }
    (median(&mut ours), median(&mut floors))
}

/// Returns the median times per request of our function and of the bare calls, with many concurrent callers.
pub async fn crowded(function: &Function, asker: &Asker, rounds: Vec<Vec<Vec<Turn>>>) -> (Duration, Duration) {
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for (n, callers) in rounds.into_iter().enumerate() {
        let (mut events, mut bare) = (Vec::new(), Vec::new());
        for turns in callers {
            let (of_events, of_bare): (Vec<_>, Vec<_>) = turns
                .into_iter()
                .map(|turn| ((turn.event, turn.status), turn.floor))
                .unzip();
            events.push(of_events);
            bare.push(of_bare);
        }
        let (mut events, mut bare) = (Some(events), Some(bare));
        for first in [true, false] {
            if (n % 2 == 0) == first {
                let events = events.take().expect("once");
                let function = function.clone();
                let call = move |(event, status): (Vec<u8>, u16)| {
                    let function = function.clone();
                    async move { function.call(&event).await.expect(status) }
                };
                ours.push(all(events, call).await);
            } else {
                let bare = bare.take().expect("once");
                let asker = asker.clone();
                let ask = move |bare: Bare| {
                    let asker = asker.clone();
                    async move { bare.ask(&asker).await }
                };
                floors.push(all(bare, ask).await);
            }
        }
    }
    (median(&mut ours), median(&mut floors))
}

/// Processes each caller's items in order, and the callers concurrently. Returns the time per item.
pub async fn all<T, F>(callers: Vec<Vec<T>>, work: impl Fn(T) -> F + Clone + Send + 'static) -> Duration
where
    T: Send + 'static,
    F: Future<Output = ()> + Send,
{
    let items: usize = callers.iter().map(Vec::len).sum();
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for caller in callers {
        let work = work.clone();
        tasks.spawn(async move {
            for item in caller {
                work(item).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("it did not panic");
    }
    began.elapsed() / u32::try_from(items).expect("few")
}

pub fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
