//! Formats log lines for a terminal: a short line for each request, with the decision about a payment, and a short line
//! for each warning.
//!
//! ```text
//! 12:03:04 POST /x402/authorize 200 31 ms allow $0.01
//! 12:03:09 GET /agents/{agent_id}/decisions 401 2 ms invalid_session
//! ```

use purser_api::Clock;
use purser_domain::Amount;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// Returns a subscriber that writes short lines, with colours if `is_coloured` is set.
pub fn console<W>(writer: W, is_coloured: bool) -> impl Subscriber + Send + Sync
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    Registry::default().with(Console {
        writer,
        colours: is_coloured,
    })
}

struct Console<W> {
    writer: W,
    colours: bool,
}

/// The decision about a payment, which the request's line contains.
struct DecisionText(String);

/// A colour code (ECMA-48, "select graphic rendition").
#[derive(Clone, Copy)]
struct Colour(u8);

impl Colour {
    const RED: Self = Self(31);
    const GREEN: Self = Self(32);
    const YELLOW: Self = Self(33);
    const GREY: Self = Self(90);
}

impl<W> Console<W> {
    fn in_colour(&self, colour: Colour, text: &str) -> String {
        if self.colours {
            format!("\x1b[{}m{text}\x1b[0m", colour.0)
        } else {
            text.to_owned()
        }
    }

    fn request(&self, fields: &Fields, decision: Option<&str>) -> String {
        let status = fields.value("status");
        let colour = match status.as_bytes().first() {
            Some(b'1'..=b'3') => Colour::GREEN,
            Some(b'4') => Colour::YELLOW,
            _ => Colour::RED,
        };
        let outcome = decision.unwrap_or_else(|| fields.value("error"));
        let line = format!(
            "{} {} {} {} ms {outcome}",
            fields.value("method"),
            fields.value("route"),
            self.in_colour(colour, status),
            fields.value("latency_ms"),
        );
        line.trim_end().to_owned()
    }

    fn warning(&self, level: Level, fields: &Fields) -> String {
        let colour = if level == Level::ERROR {
            Colour::RED
        } else {
            Colour::YELLOW
        };
        let mut line = self.in_colour(colour, level.as_str());
        for (name, value) in &fields.0 {
            let _ = if *name == "message" {
                write!(line, " {value}")
            } else {
                write!(line, " {name}={value}")
            };
        }
        line
    }
}

impl<W, S> Layer<S> for Console<W>
where
    W: for<'writer> MakeWriter<'writer> + 'static,
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let request = || context.event_scope(event)?.find(|span| span.name() == "request");
        let level = *event.metadata().level();
        let line = match fields.value("message") {
            "payment.decided" => {
                if let Some(span) = request() {
                    span.extensions_mut().replace(DecisionText(fields.decision()));
                }
                return;
            }
            "request" => {
                let span = request();
                let extensions = span.as_ref().map(tracing_subscriber::registry::SpanRef::extensions);
                let decided = extensions
                    .as_ref()
                    .and_then(|extensions| extensions.get::<DecisionText>());
                self.request(&fields, decided.map(|DecisionText(text)| text.as_str()))
            }
            _ if level <= Level::WARN => self.warning(level, &fields),
            _ => return,
        };
        let now = Clock::system().now().to_string();
        let time = self.in_colour(Colour::GREY, now.get(11..19).unwrap_or_default());
        let _ = writeln!(self.writer.make_writer(), "{time} {line}");
    }
}

/// The fields of a log event.
#[derive(Default)]
struct Fields(Vec<(&'static str, String)>);

impl Fields {
    /// Returns the value of a field; empty if the field is missing.
    fn value(&self, name: &str) -> &str {
        let field = self.0.iter().find(|(known, _)| *known == name);
        field.map_or("", |(_, value)| value)
    }

    fn decision(&self) -> String {
        let amount = self.value("amount").parse().ok().and_then(Amount::from_units);
        let amount = amount.map(Amount::to_dollars).unwrap_or_default();
        let reason = self.value("reason");
        format!("{} {amount} {reason}", self.value("result"))
            .trim_end()
            .to_owned()
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tracing::{info, info_span, warn};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn check(colours: bool, log: impl FnOnce(), expected: &[&str]) {
        let lines = Lines::default();
        let writer = lines.clone();
        tracing::subscriber::with_default(console(move || writer.clone(), colours), log);
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let without_time: Vec<&str> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        assert_eq!(without_time, expected);
    }

    fn request(status: u16, error: Option<&str>, within: impl FnOnce()) {
        info_span!("request").in_scope(|| {
            within();
            info!(method = %"POST", route = "/x402/authorize", status, error, latency_ms = 31, "request");
        });
    }

    #[test]
    fn each_request_logs_one_line_with_its_decision() {
        let allow = || info!(result = "allow", rule = "none", amount = %10_000, "payment.decided");
        let block = || info!(result = "block", reason = "vendor_allowlist", amount = %10_000, "payment.decided");
        let log = || {
            request(200, None, || info_span!("inner").in_scope(allow));
            request(403, Some("policy_blocked"), block);
            request(401, Some("invalid_agent_key"), || info!("unrelated"));
            request(200, None, || ());
        };
        let lines = [
            "POST /x402/authorize 200 31 ms allow $0.01",
            "POST /x402/authorize 403 31 ms block $0.01 vendor_allowlist",
            "POST /x402/authorize 401 31 ms invalid_agent_key",
            "POST /x402/authorize 200 31 ms",
        ];
        check(false, log, &lines);
    }

    #[test]
    fn console_warnings_show_their_fields() {
        check(
            false,
            || warn!(cause = %"down", "reconcile.failed"),
            &["WARN reconcile.failed cause=down"],
        );
        check(
            true,
            || request(503, None, || ()),
            &["POST /x402/authorize \x1b[31m503\x1b[0m 31 ms"],
        );
    }
}
