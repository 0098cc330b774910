//! Metrics, which `CloudWatch` extracts from log lines in the embedded metric format (user guide, "Specification:
//! Embedded metric format").
//!
//! A log line becomes a metric if its message is in the table `METRICS`, so code that logs does not depend on metrics.
//! Ids are never dimensions, because every combination of dimension values is a billed metric.
//!
//! The lines have the level INFO, WARN or ERROR. A `LOG_LEVEL` above a line's level also drops the metrics.

use crate::Clock;
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};
use tracing::{Event, Subscriber, field::Field, field::Visit};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields,
        format::{Format, Json, Writer},
    },
    registry::LookupSpan,
};

/// The namespace of the metrics if `METRICS_NAMESPACE` is not set.
pub(crate) const NAMESPACE: &str = "Purser";

#[derive(Clone, Copy, Debug)]
struct Metric {
    /// The message of the log lines that the metric counts.
    event: &'static str,
    name: &'static str,
    count: Count,
    /// The dimension sets, which `CloudWatch` aggregates separately. The empty set aggregates all log lines.
    dimensions: &'static [&'static [Dimension]],
}

/// The value that a log line reports for a metric.
#[derive(Clone, Copy, Debug)]
enum Count {
    /// 1 for every log line.
    Line,
    /// 1 for every log line that has the named field.
    LineWith(&'static str),
    /// The number in the named field.
    Number(&'static str),
    /// The number in the named field, in milliseconds.
    Milliseconds(&'static str),
    /// The number in the named field, in seconds.
    Seconds(&'static str),
}

/// The name of a dimension. The value is the log field with the same name in lower case.
type Dimension = &'static str;

const ALL: &[&[Dimension]] = &[&[]];

const METRICS: [Metric; 29] = [
    metric(
        "payment.decided",
        "Decisions",
        Count::Line,
        &[&["Result"], &["Result", "Rule"]],
    ),
    metric(
        "payment.decided",
        "AuthorizeLatencyMs",
        Count::Milliseconds("latency_ms"),
        ALL,
    ),
    metric("payment.replayed", "Replays", Count::Line, ALL),
    metric(
        "payment.replayed",
        "AuthorizeLatencyMs",
        Count::Milliseconds("latency_ms"),
        ALL,
    ),
    metric("store.contended", "Conflicts", Count::Number("attempts"), ALL),
    metric("approval.staged", "ApprovalsStaged", Count::Line, ALL),
    metric("payment.completed", "Confirmations", Count::Line, &[&["Outcome"]]),
    metric(
        "payment.completed",
        "ConfirmationFailures",
        Count::LineWith("failure"),
        ALL,
    ),
    metric("rpc.failed", "RpcFailures", Count::Line, ALL),
    metric("balance.unavailable", "BalanceUnavailable", Count::Line, ALL),
    metric("throttle.unavailable", "ThrottleUnavailable", Count::Line, ALL),
    metric("change.seen", "ChangesSeen", Count::Line, &[&["Change"]]),
    metric("outflow.unexplained", "OutflowUnexplained", Count::Line, ALL),
    metric("event.set_aside", "EventsSetAside", Count::Line, ALL),
    metric("statement.set_aside", "StatementsSetAside", Count::Line, ALL),
    metric(
        "statements.pending",
        "StatementsPendingSeconds",
        Count::Seconds("age_seconds"),
        ALL,
    ),
    metric("payout.submitted", "PayoutsSubmitted", Count::Line, &[&["Outcome"]]),
    metric("operator.refused", "OperatorsRefused", Count::Line, ALL),
    metric("session.refused", "SessionsRefused", Count::Line, ALL),
    metric("sign_in.refused", "SignInsRefused", Count::Line, ALL),
    metric("key.not_allowed", "KeysNotAllowed", Count::Line, ALL),
    metric("probe.call", "ProbeObstacles", Count::LineWith("obstacle"), ALL),
    metric("reconcile.settlement", "Reconciliations", Count::Line, &[&["Outcome"]]),
    metric("reconcile.run", "HoldsWaiting", Count::Number("waiting"), ALL),
    metric("reconcile.run", "ReconcileFailures", Count::Number("failed"), ALL),
    metric(
        "reconcile.run",
        "ReconcileLagSeconds",
        Count::Seconds("lag_seconds"),
        ALL,
    ),
    metric("webhook.called", "WebhookCalls", Count::Line, &[&["Outcome"]]),
    metric("notice.sent", "NoticeMessages", Count::Line, &[&["Outcome"]]),
    metric("function.started", "ColdStarts", Count::Line, &[&["Function"]]),
];

const fn metric(
    event: &'static str,
    name: &'static str,
    count: Count,
    dimensions: &'static [&'static [Dimension]],
) -> Metric {
    Metric {
        event,
        name,
        count,
        dimensions,
    }
}

impl Metric {
    /// Returns the value that the line reports; `None` if the line lacks the field or number in `count`.
    fn metric_value(&self, line: &Fields) -> Option<Value> {
        match self.count {
            Count::Line => Some(1.into()),
            Count::LineWith(field) => line.find(field).map(|_| 1.into()),
            Count::Number(field) | Count::Milliseconds(field) | Count::Seconds(field) => {
                line.find(field).filter(|value| value.is_number()).cloned()
            }
        }
    }

    const fn unit(&self) -> &'static str {
        match self.count {
            Count::Line | Count::LineWith(_) | Count::Number(_) => "Count",
            Count::Milliseconds(_) => "Milliseconds",
            Count::Seconds(_) => "Seconds",
        }
    }

    /// Adds the value and the dimensions to `fields`. Returns the metric directive that refers to them.
    fn add_value_and_dimensions<'a>(
        &self,
        fields: &mut Members,
        namespace: &'a str,
        line: &Fields,
    ) -> Option<Directive<'a>> {
        let value = self.metric_value(line)?;
        let mut sets = Vec::new();
        for set in self.dimensions {
            let values: Option<Vec<&Value>> = set
                .iter()
                .map(|dimension| line.find(&dimension.to_ascii_lowercase()))
                .collect();
            let Some(values) = values else { continue };
            for (dimension, value) in set.iter().zip(values) {
                fields.insert(dimension, value.clone());
            }
            sets.push(set.to_vec());
        }
        fields.insert(self.name, value);
        Some(Directive {
            dimensions: sets,
            metrics: [MetricName {
                name: self.name,
                unit: self.unit(),
            }],
            namespace,
        })
    }
}

/// JSON fields that are added to a log line.
type Members = BTreeMap<&'static str, Value>;

/// The fields that turn a log line into a document of the embedded metric format.
#[derive(Serialize)]
struct MetricDocument<'a> {
    #[serde(flatten)]
    members: Members,
    #[serde(rename = "_aws")]
    aws: Aws<'a>,
}

/// The field `_aws` of the embedded metric format: the time, and the metric directives.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Aws<'a> {
    #[serde(rename = "CloudWatchMetrics")]
    directives: Vec<Directive<'a>>,
    timestamp: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Directive<'a> {
    dimensions: Vec<Vec<&'static str>>,
    metrics: [MetricName; 1],
    namespace: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct MetricName {
    name: &'static str,
    unit: &'static str,
}

/// Returns the fields that turn a log line into an embedded metric format document; `None` if no metric counts the
/// line.
fn metric_document<'a>(message: &str, namespace: &'a str, line: &Fields) -> Option<MetricDocument<'a>> {
    let mut fields = Members::new();
    let metrics = METRICS.iter().filter(|metric| metric.event == message);
    let directives = metrics.filter_map(|metric| metric.add_value_and_dimensions(&mut fields, namespace, line));
    let directives: Vec<Directive<'_>> = directives.collect();
    if directives.is_empty() {
        return None;
    }
    // The system clock, because metrics need the real time and the local stack's clock may be shifted.
    let timestamp = Clock::system().now().micros().div_euclid(1_000);
    Some(MetricDocument {
        members: fields,
        aws: Aws { directives, timestamp },
    })
}

/// Formats log events as JSON lines, with their metrics and spans.
pub(crate) struct Lines {
    /// Formats a line without spans. `format_event` adds the current span, whose fields are already JSON.
    pub(crate) format: Format<Json>,
    pub(crate) namespace: String,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        let Some(line) = line.strip_prefix('{').and_then(|line| line.strip_suffix("}\n")) else {
            return writer.write_str(&line);
        };
        // Joins three JSON objects: the metric fields, the line's own fields, and the span.
        writer.write_char('{')?;
        if let Some(map) = self.metric_fields_json(event)
            && let Some(map) = map.strip_prefix('{').and_then(|map| map.strip_suffix('}'))
        {
            write!(writer, "{map},")?;
        }
        writer.write_str(line)?;
        if let Some(span) = context.parent_span()
            && let Some(fields) = span.extensions().get::<FormattedFields<N>>()
            && let Some(fields) = fields.strip_suffix('}')
        {
            let comma = if fields.len() > 1 { "," } else { "" };
            write!(writer, ",\"span\":{fields}{comma}\"name\":\"{}\"}}", span.name())?;
        }
        writer.write_str("}\n")
    }
}

impl Lines {
    fn metric_fields_json(&self, event: &Event<'_>) -> Option<String> {
        let mut message = Message::default();
        event.record(&mut message);
        if !METRICS.iter().any(|metric| metric.event == message.0) {
            return None;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let map = metric_document(&message.0, &self.namespace, &fields)?;
        serde_json::to_string(&map).ok()
    }
}

/// The fields of a log event that metrics may count.
#[derive(Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn find(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.push((field.name(), value.into()));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a `String` can't fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_clients::TestLog;
    use serde_json::json;
    use std::collections::BTreeSet;
    use tracing::{info, info_span, warn};

    /// Returns the only log line, which must be a document of the embedded metric format.
    fn line(logged: &TestLog) -> Value {
        let text = logged.take();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
        let Some(aws) = line.get("_aws") else { return line };
        assert!(aws["Timestamp"].as_u64().unwrap() > 1_700_000_000_000, "{aws}");
        for directive in aws["CloudWatchMetrics"].as_array().unwrap() {
            assert_eq!(directive["Namespace"], "Purser");
            for set in directive["Dimensions"].as_array().unwrap() {
                let set = set.as_array().unwrap();
                assert!(set.len() <= 30);
                for name in set {
                    assert!(!line[name.as_str().unwrap()].as_str().unwrap().is_empty(), "{name}");
                }
            }
            for metric in directive["Metrics"].as_array().unwrap() {
                assert!(["Count", "Milliseconds", "Seconds"].contains(&metric["Unit"].as_str().unwrap()));
                assert!(line[metric["Name"].as_str().unwrap()].is_number(), "{metric}");
            }
        }
        line
    }

    #[test]
    fn log_lines_embed_metrics_and_keep_their_fields() {
        let logged = TestLog::start();
        info!(
            result = "block",
            rule = "max_per_day_units",
            agent.id = "a",
            latency_ms = 12,
            "payment.decided"
        );
        let line = line(&logged);
        assert_eq!(
            line["_aws"]["CloudWatchMetrics"],
            json!([
                {
                    "Namespace": "Purser", "Dimensions": [["Result"], ["Result", "Rule"]],
                    "Metrics": [{"Name": "Decisions", "Unit": "Count"}],
                },
                {
                    "Namespace": "Purser", "Dimensions": [[]],
                    "Metrics": [{"Name": "AuthorizeLatencyMs", "Unit": "Milliseconds"}],
                },
            ])
        );
        let expected = [
            ("Decisions", json!(1)),
            ("AuthorizeLatencyMs", json!(12)),
            ("Result", json!("block")),
            ("Rule", json!("max_per_day_units")),
            ("agent.id", json!("a")),
            ("message", json!("payment.decided")),
            ("level", json!("INFO")),
        ];
        for (name, value) in expected {
            assert_eq!(line[name], value, "{name}");
        }
    }

    #[test]
    fn a_log_line_ends_with_the_fields_of_its_span() {
        let logged = TestLog::start();
        let ends = |logged: &TestLog, span: &str| {
            let line = logged.take();
            assert!(line.ends_with(&format!(",\"span\":{span}}}\n")), "{line}");
            assert!(serde_json::from_str::<Value>(&line).is_ok(), "{line}");
        };
        info_span!("request", path = "a\"b", id = 7).in_scope(|| info!("request"));
        ends(&logged, r#"{"id":7,"path":"a\"b","name":"request"}"#);
        info_span!("request", id = 7).in_scope(|| info!(latency_ms = 1, "payment.replayed"));
        ends(&logged, r#"{"id":7,"name":"request"}"#);
        info_span!("empty").in_scope(|| info!("request"));
        ends(&logged, r#"{"name":"empty"}"#);
        info!("request");
        assert!(!logged.take().contains("span"));
    }

    #[test]
    fn each_stack_has_its_own_metrics_namespace() {
        let logged = TestLog::start_in("Purser/dev");
        warn!("rpc.failed");
        let line: Value = serde_json::from_str(&logged.take()).unwrap();
        assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Namespace"], "Purser/dev");
    }

    #[test]
    fn only_events_in_the_metrics_table_are_counted() {
        let logged = TestLog::start();
        info!(latency_ms = 12, "request");
        assert_eq!(line(&logged).get("_aws"), None);
        info!(free = true, "probe.call");
        assert_eq!(line(&logged).get("_aws"), None);
        warn!(obstacle = "timeout", "probe.call");
        assert_eq!(line(&logged)["ProbeObstacles"], 1);
        info!(attempts = 3, "store.contended");
        assert_eq!(line(&logged)["Conflicts"], 3);
    }

    #[test]
    fn every_metric_is_emitted_without_hiding_log_fields() {
        let logged = TestLog::start();
        info!(result = "allow", rule = "none", latency_ms = 1, "payment.decided");
        let mut seen = vec![line(&logged)];
        info!(latency_ms = 1, "payment.replayed");
        seen.push(line(&logged));
        info!(attempts = 1, "store.contended");
        seen.push(line(&logged));
        info!("approval.staged");
        seen.push(line(&logged));
        info!(outcome = "mismatch", failure = true, "payment.completed");
        seen.push(line(&logged));
        warn!("rpc.failed");
        seen.push(line(&logged));
        warn!("balance.unavailable");
        seen.push(line(&logged));
        warn!("throttle.unavailable");
        seen.push(line(&logged));
        warn!(change = "payee", "change.seen");
        seen.push(line(&logged));
        warn!("outflow.unexplained");
        seen.push(line(&logged));
        warn!("event.set_aside");
        seen.push(line(&logged));
        warn!("statement.set_aside");
        seen.push(line(&logged));
        info!(age_seconds = 1, "statements.pending");
        seen.push(line(&logged));
        warn!("operator.refused");
        seen.push(line(&logged));
        info!(outcome = "accepted", "payout.submitted");
        seen.push(line(&logged));
        info!("session.refused");
        seen.push(line(&logged));
        info!("sign_in.refused");
        seen.push(line(&logged));
        warn!("key.not_allowed");
        seen.push(line(&logged));
        info!(obstacle = "timeout", "probe.call");
        seen.push(line(&logged));
        info!(outcome = "released", "reconcile.settlement");
        seen.push(line(&logged));
        info!(waiting = 1, failed = 0, lag_seconds = 2, "reconcile.run");
        seen.push(line(&logged));
        info!(outcome = "delivered", "webhook.called");
        seen.push(line(&logged));
        info!(outcome = "sent", "notice.sent");
        seen.push(line(&logged));
        info!(function = "PaymentsFunction", "function.started");
        seen.push(line(&logged));
        for metric in METRICS {
            let line = seen.iter().find(|line| line["message"] == metric.event);
            assert!(
                line.is_some_and(|line| line[metric.name].is_number()),
                "{}",
                metric.name
            );
        }
        // Log fields are in lower case, so they never have the name of a metric or dimension.
        let names = METRICS.iter().map(|metric| metric.name);
        let dimensions = METRICS
            .iter()
            .flat_map(|metric| metric.dimensions.iter().copied().flatten());
        let names: BTreeSet<&str> = names.chain(dimensions.copied()).collect();
        assert!(
            names
                .iter()
                .all(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
        );
    }

    #[test]
    fn the_log_lines_list_exactly_the_emitted_metrics() {
        let lines = include_str!("../../../../docs/log-lines.toml").lines();
        let listed: BTreeMap<&str, BTreeSet<&str>> = lines
            .filter_map(|line| line.strip_prefix('"')?.split_once("\" = "))
            .filter_map(|(event, text)| Some((event, text.split_once(". Metrics: ")?.1)))
            .map(|(event, metrics)| (event, metrics.split('`').skip(1).step_by(2).collect()))
            .collect();
        let mut expected: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for metric in METRICS {
            let words = expected.entry(metric.event).or_default();
            words.insert(metric.name);
            let dimensions = metric.dimensions.iter().copied().flatten();
            words.extend(dimensions);
        }
        assert_eq!(listed, expected);
    }
}
