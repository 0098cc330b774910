//! Measures our code and then a reference, and writes the ratio of the medians. A ratio below 1 means that our code is
//! faster.

use criterion::Criterion;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// The results of a benchmark so far.
pub struct Table {
    file: PathBuf,
    raw: PathBuf,
    criterion: Criterion,
    rows: Vec<Value>,
}

impl Table {
    /// Creates an empty table. Removes the results of an earlier run.
    pub fn new(bench: &str) -> io::Result<Self> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
        let raw = target.join("criterion").join(bench);
        if raw.exists() {
            fs::remove_dir_all(&raw)?;
        }
        fs::create_dir_all(&raw)?;
        Ok(Self {
            file: target.join(format!("{bench}.jsonl")),
            criterion: Criterion::default()
                .output_directory(&raw)
                .warm_up_time(Duration::from_millis(300))
                .measurement_time(Duration::from_secs(1))
                .sample_size(50)
                .configure_from_args(),
            raw,
            rows: Vec::new(),
        })
    }

    /// Measures `ours` and the reference. Criterion uses `group` and `name` as directory names.
    pub fn compare<T>(
        &mut self,
        group: &str,
        name: &str,
        ours: impl FnMut() -> T,
        reference: (&str, &mut dyn FnMut()),
    ) {
        self.measure_all(group, name, None, ours, reference);
    }

    /// Calls [`Table::compare`], and checks that the ratio isn't above a maximum.
    pub fn hold<T>(
        &mut self,
        limit: f64,
        group: &str,
        name: &str,
        ours: impl FnMut() -> T,
        reference: (&str, &mut dyn FnMut()),
    ) {
        self.measure_all(group, name, Some(limit), ours, reference);
    }

    fn measure_all<T>(
        &mut self,
        group: &str,
        name: &str,
        limit: Option<f64>,
        mut ours: impl FnMut() -> T,
        reference: (&str, &mut dyn FnMut()),
    ) {
        let median = self.measure(group, name, "ours", &mut ours);
        let (reference, run) = reference;
        let other = self.measure(group, name, reference, run);
        let (Some(median), Some(other)) = (median, other) else {
            return;
        };
        let mut row = json!({
            "group": group, "name": name, "median_ns": median,
            "reference": reference, "reference_ns": other, "ratio": median / other,
        });
        if let Some(limit) = limit {
            row["limit"] = json!(limit);
        }
        self.rows.push(row);
    }

    /// Returns the median in nanoseconds; `None` if the command line excludes this measurement.
    fn measure<T>(&mut self, group: &str, name: &str, whose: &str, run: &mut dyn FnMut() -> T) -> Option<f64> {
        let plain = |c: char| c.is_ascii_alphanumeric() || " ,-_".contains(c);
        let row = format!("{group}, {name}");
        // Criterion truncates directory names to 64 bytes.
        for directory in [row.as_str(), whose] {
            assert!(directory.len() <= 64 && directory.chars().all(plain), "{directory}");
        }
        let mut measured = self.criterion.benchmark_group(&row);
        let _ = measured.bench_function(whose, |bencher| bencher.iter(&mut *run));
        measured.finish();
        let estimates = self.raw.join(row).join(whose).join("new/estimates.json");
        let estimates: Value = serde_json::from_slice(&fs::read(estimates).ok()?).ok()?;
        estimates.pointer("/median/point_estimate")?.as_f64()
    }

    /// Writes the results to `target/bench/<bench>.jsonl`, one line for each pair.
    pub fn write(self) -> io::Result<()> {
        let lines: String = self.rows.iter().map(|row| format!("{row}\n")).collect();
        fs::write(self.file, lines)
    }
}
