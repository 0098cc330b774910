//! Writes the latencies of a load test, by call and phase, as a table, as JSON, as HdrHistogram percentiles, and as a
//! plot.

use crate::Size;
use crate::callers::Payment;
use crate::phase::Phase;
use hdrhistogram::Histogram;
use plotters::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// The measured calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// Measured from the time at which the payment was due until the decision.
    Authorize,
    /// Measured from the transfer on the chain until the receipt.
    Complete,
}

#[derive(Default)]
pub struct Report(Mutex<Figures>);

#[derive(Default)]
struct Figures {
    latencies: BTreeMap<(Call, Phase), Histogram<u64>>,
    /// The number of calls without a final response in time.
    gave_up: BTreeMap<(Call, Phase), u64>,
    wrong: Vec<String>,
}

const PERCENTILES: [f64; 4] = [50.0, 99.0, 99.9, 100.0];

impl Report {
    pub fn answered(&self, call: Call, phase: Phase, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let mut figures = self.0.lock().expect("not poisoned");
        let latencies = figures
            .latencies
            .entry((call, phase))
            .or_insert_with(|| Histogram::new(3).expect("three digits"));
        latencies.record(micros).expect("it grows");
    }

    /// Records a caller that gave up. If `is_excused` is not set, also records an error.
    pub fn gave_up(&self, call: Call, phase: Phase, is_excused: bool, last: &Value) {
        let mut figures = self.0.lock().expect("not poisoned");
        *figures.gave_up.entry((call, phase)).or_default() += 1;
        if !is_excused {
            figures
                .wrong
                .push(format!("{call:?} in {phase:?} had no answer in time, last {last}"));
        }
    }

    pub fn wrong(&self, line: String) {
        self.0.lock().expect("not poisoned").wrong.push(line);
    }

    pub fn take_wrong(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("not poisoned").wrong)
    }

    pub fn print(&self, size: &Size, payments: &[Payment], kills: u32) {
        let figures = self.0.lock().expect("not poisoned");
        let made = payments.iter().filter(|payment| payment.is_made).count();
        println!(
            "\n{} payments a second for {} s by {} agents: {} authorized, {made} made, {kills} kills\n",
            size.rate,
            size.seconds,
            size.agents,
            payments.len()
        );
        println!(
            "{:<10} {:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8}",
            "call", "phase", "answers", "50 %", "99 %", "99.9 %", "most", "gave up"
        );
        let mut rows = Vec::new();
        for ((call, phase), latencies) in &figures.latencies {
            let millis = PERCENTILES.map(|percentile| latencies.value_at_percentile(percentile) / 1_000);
            let gave_up = figures.gave_up.get(&(*call, *phase)).copied().unwrap_or_default();
            let [half, most, nearly, all] = millis;
            let (call, phase) = (format!("{call:?}"), format!("{phase:?}"));
            println!(
                "{call:<10} {phase:<10} {:>9} {half:>9} {most:>9} {nearly:>9} {all:>9} {gave_up:>8}",
                latencies.len()
            );
            rows.push(json!({
                "call": call, "phase": phase, "answers": latencies.len(), "gave_up": gave_up, "milliseconds": millis,
            }));
        }
        println!("Latencies are in milliseconds.");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/load");
        std::fs::create_dir_all(&folder).expect("a folder");
        let report = json!({"rate": size.rate, "seconds": size.seconds, "agents": size.agents, "rows": rows});
        std::fs::write(folder.join("report.json"), report.to_string()).expect("written");
        let mut lines = Vec::new();
        for call in [Call::Authorize, Call::Complete] {
            let all = figures.latencies(call);
            let name = format!("{call:?}").to_lowercase();
            std::fs::write(folder.join(format!("{name}.hgrm")), percentiles(&all)).expect("written");
            lines.push((name, all));
        }
        plot(&folder.join("latencies.svg"), &lines).expect("drawn");
    }
}

impl Figures {
    fn latencies(&self, call: Call) -> Histogram<u64> {
        let mut all = Histogram::new(3).expect("three digits");
        for ((of, _), latencies) in &self.latencies {
            if *of == call {
                all.add(latencies).expect("the same precision");
            }
        }
        all
    }
}

/// Returns the percentiles in milliseconds, in the format of `HdrHistogram`'s plotter.
fn percentiles(latencies: &Histogram<u64>) -> String {
    let mut text = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n".to_owned();
    let mut count = 0;
    for step in latencies.iter_quantiles(5) {
        count += step.count_since_last_iteration();
        let (quantile, millis) = (step.quantile(), milliseconds(step.value_iterated_to()));
        let _ = writeln!(
            text,
            "{millis:12.3} {quantile:14.12} {count:10} {:14.2}",
            1.0 / (1.0 - quantile)
        );
    }
    text
}

#[allow(clippy::cast_precision_loss, reason = "a latency is far below 2^52 microseconds")]
fn milliseconds(micros: u64) -> f64 {
    micros as f64 / 1_000.0
}

/// Draws the latency at each percentile. Both axes are logarithmic.
fn plot(path: &PathBuf, lines: &[(String, Histogram<u64>)]) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, (900, 500)).into_drawing_area();
    area.fill(&WHITE)?;
    let most = lines.iter().map(|(_, latencies)| latencies.max()).max().unwrap_or(1);
    let mut chart = ChartBuilder::on(&area)
        .margin(20)
        .x_label_area_size(50)
        .y_label_area_size(70)
        .caption("Latency by percentile", ("sans-serif", 20))
        .build_cartesian_2d(
            (1.0..1_000_000.0).log_scale(),
            (0.1..milliseconds(most).max(1.0)).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("1 / (1 - percentile)")
        .y_desc("milliseconds")
        .draw()?;
    for ((name, latencies), color) in lines.iter().zip([BLUE, RED]) {
        let points = latencies.iter_quantiles(5).filter(|step| step.quantile() < 1.0);
        let points = points.map(|step| (1.0 / (1.0 - step.quantile()), milliseconds(step.value_iterated_to())));
        chart
            .draw_series(LineSeries::new(points, color))?
            .label(name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
    }
    chart.configure_series_labels().border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}
