//! Startup of a function: logs, configuration, then requests until the environment ends.

use crate::{
    Background, Clock, Entropy, Env, Routers, answer_any, answer_either, http,
    lambda::aws,
    telemetry::metrics::{Lines, NAMESPACE},
};
use aws_smithy_runtime_api::client::http::SharedHttpConnector;
use aws_types::SdkConfig;
use axum::Router;
use lambda_http::lambda_runtime::{self, LambdaEvent, service_fn};
use purser_domain::Causes;
use serde_json::value::RawValue;
use std::{any::Any, convert::Infallible, process::ExitCode, time::Instant};
use tokio::sync::OnceCell;
use tracing::{Subscriber, error, info};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// The reason that a function can't start.
pub type BootError = lambda_http::Error;

/// The inputs of a function's start.
pub struct Boot {
    /// The function's configuration.
    pub env: Env,
    /// Region, credentials, endpoints, timeouts; over `http`.
    pub aws: SdkConfig,
    /// The HTTP client for its calls.
    pub http: SharedHttpConnector,
    /// The clock.
    pub clock: Clock,
    /// The entropy.
    pub entropy: Entropy,
    /// The thread of background work during startup.
    pub background: Background,
}

impl Boot {
    /// Reads the common variables. [`Env::finish`] reports their problems together with those of the function's
    /// variables.
    pub fn new(mut env: Env, clock: Clock) -> Self {
        let http = http();
        let aws = aws::config(&mut env, http.clone());
        Self {
            env,
            aws,
            http,
            clock,
            entropy: Entropy::system(),
            background: Background::Thread,
        }
    }
}

impl From<Env> for Boot {
    fn from(env: Env) -> Self {
        Self::new(env, Clock::system())
    }
}

/// Runs a function that answers HTTP: starts it, builds its router, and serves until the end. The router is built from
/// a [`Boot`] or, if the function makes no calls, only from its [`Env`], so that the program contains no HTTP client.
///
/// `build` applies [`crate::with_middleware`] to the router, so that the local stack, which builds it with its own
/// [`Boot`], answers the same.
pub async fn serve<B: From<Env>>(build: impl AsyncFnOnce(B) -> Result<Router, BootError>) -> ExitCode {
    let served = async {
        let env = start();
        let cold_start = ColdStart::of(&env);
        let router = build(env.into()).await?;
        cold_start.over();
        lambda_runtime::run(service_fn(async |event| {
            Ok::<_, Infallible>(answer_any(router.clone(), event).await.json())
        }))
        .await
    };
    ended(served.await)
}

/// As [`serve`], for a function that may get a variable from the API's stage instead of its environment: the variable's value
/// depends on the API's address, and the API on the function. Without the variable, the first event starts the function.
pub async fn serve_with_stage(
    variable: &'static str,
    build: impl AsyncFn(Boot) -> Result<Router, BootError>,
) -> ExitCode {
    let served = async {
        let env = start();
        let cold_start = ColdStart::of(&env);
        let started = OnceCell::new();
        if env.get(variable).is_some() {
            started.get_or_try_init(async || build(env.into()).await).await?;
        }
        cold_start.over();
        lambda_runtime::run(service_fn(async |event: LambdaEvent<Box<RawValue>>| {
            let start = async || build(Env::process().with_stage(variable, &event.payload).into()).await;
            let router = started.get_or_try_init(start).await?;
            Ok::<_, BootError>(answer_any(router.clone(), event).await.json())
        }))
        .await
    };
    ended(served.await)
}

/// As [`serve`], for a function that other functions also invoke (`direct.rs`).
pub async fn serve_both<B: From<Env>>(build: impl AsyncFnOnce(B) -> Result<Routers, BootError>) -> ExitCode {
    let served = async {
        let env = start();
        let cold_start = ColdStart::of(&env);
        let routers = build(env.into()).await?;
        cold_start.over();
        lambda_runtime::run(service_fn(async |event| {
            Ok::<_, Infallible>(answer_either(routers.clone(), event).await)
        }))
        .await
    };
    ended(served.await)
}

fn ended(served: Result<(), BootError>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => stopped(&*error),
    }
}

/// Logs the reason that a function can't start or continue: the end of every function.
pub fn stopped(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    error!(cause = %Causes(error), "function.stopped");
    ExitCode::FAILURE
}

/// Starts logging and reads the environment: the first step of every function.
pub(crate) fn start() -> Env {
    let env = Env::process();
    start_logging(&env);
    env
}

/// The cold start of one environment.
pub(crate) struct ColdStart {
    function: String,
    began: Instant,
}

impl ColdStart {
    /// Begins the measurement of a function's start.
    pub(crate) fn of(env: &Env) -> Self {
        Self {
            function: env.get("AWS_LAMBDA_FUNCTION_NAME").unwrap_or("local").to_owned(),
            began: Instant::now(),
        }
    }

    /// Ends the measurement: the function has started and waits for events.
    pub(crate) fn over(self) {
        let boot_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        info!(function = self.function, boot_ms, "function.started");
    }
}

/// Sends log lines to standard output, one JSON object each, from now on.
pub fn start_logging(env: &Env) {
    let namespace = env.get("METRICS_NAMESPACE").unwrap_or(NAMESPACE);
    start_logging_to(subscriber(&directives(env), namespace, std::io::stdout));
}

/// Passes all log events and panics to a subscriber, from now on.
pub fn start_logging_to(subscriber: impl Subscriber + Send + Sync) {
    let _ = tracing::subscriber::set_global_default(subscriber);
    log_panics();
}

/// Sends log lines to a writer, one JSON object each, from now on. If a test has already set one, that one stays.
pub fn log_to<W>(directives: &str, writer: W)
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let _ = tracing::subscriber::set_global_default(subscriber(directives, NAMESPACE, writer));
}

/// The filter of log lines: our own at the configured level, those of dependencies from WARN on. The SDKs' debug lines
/// contain requests and answers, so a level alone never enables them; `LOG_LEVEL` accepts full directives for that.
fn directives(env: &Env) -> String {
    let level = env
        .get("LOG_LEVEL")
        .or_else(|| env.get("AWS_LAMBDA_LOG_LEVEL"))
        .unwrap_or("info");
    if level.contains(['=', ',']) {
        return level.to_owned();
    }
    // Lambda also has FATAL.
    let level = if level.eq_ignore_ascii_case("fatal") {
        "error"
    } else {
        level
    };
    format!("warn,purser={}", level.to_ascii_lowercase())
}

/// One JSON object per line, metrics among them. Lambda's own filter reads `level` and `timestamp` at the top; without
/// either, a line counts as INFO (Lambda developer guide, "Log-level filtering").
pub(crate) fn subscriber<W>(directives: &str, namespace: &str, writer: W) -> impl Subscriber + Send + Sync + 'static
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(directives).unwrap_or_else(|_| EnvFilter::new("warn,purser=info"));
    let format = tracing_subscriber::fmt::format()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false);
    tracing_subscriber::fmt()
        .json()
        .event_format(Lines {
            format,
            namespace: namespace.to_owned(),
        })
        .with_env_filter(filter)
        .with_writer(writer)
        .finish()
}

/// Logs a panic as one line like any other. Its effect on the request is logged where the request ends.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string);
        error!(panic.at = at, panic.message = panic_text(panic.payload()), "panic");
    }));
}

/// The panic's message, if it is constant. A formatted message may contain any data: those of the standard library
/// include the sliced text or the unwrapped value.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> Option<&'static str> {
    payload.downcast_ref::<&'static str>().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_clients::Logged;

    #[test]
    fn a_cold_start_is_told_and_counted() {
        let logged = Logged::start();
        let env: Env = [("AWS_LAMBDA_FUNCTION_NAME", "purser-PaymentsFunction-1")]
            .into_iter()
            .collect();
        ColdStart::of(&env).over();
        let line: serde_json::Value = serde_json::from_str(&logged.take()).unwrap();
        assert_eq!(line["ColdStarts"], 1);
        assert_eq!(line["Function"], "purser-PaymentsFunction-1");
        assert!(line["boot_ms"].is_u64(), "{line}");
    }

    #[test]
    fn panics_are_logged_without_formatted_values() {
        let logged = Logged::start();
        let before = std::panic::take_hook();
        log_panics();
        let told = |panics: fn()| -> serde_json::Value {
            std::panic::catch_unwind(panics).unwrap_err();
            serde_json::from_str(&logged.take()).unwrap()
        };
        let fixed = told(|| panic!("a bug"));
        let put_together = told(|| {
            let key = "gak_sec_0123".to_owned();
            panic!("no key: {key}")
        });
        std::panic::set_hook(before);
        for line in [&fixed, &put_together] {
            assert_eq!((&line["level"], &line["message"]), (&"ERROR".into(), &"panic".into()));
            assert!(line["panic.at"].as_str().unwrap().contains("boot.rs:"), "{line}");
        }
        assert_eq!(fixed["panic.message"], "a bug");
        assert!(!put_together.to_string().contains("0123"), "{put_together}");
    }

    /// `LOG_LEVEL` takes precedence, and a list of directives is used unchanged.
    #[test]
    fn log_levels_apply_only_to_own_crates() {
        let rows: [(&[(&str, &str)], &str); 5] = [
            (&[], "warn,purser=info"),
            (&[("AWS_LAMBDA_LOG_LEVEL", "DEBUG")], "warn,purser=debug"),
            (
                &[("AWS_LAMBDA_LOG_LEVEL", "FATAL"), ("LOG_LEVEL", "")],
                "warn,purser=error",
            ),
            (
                &[("AWS_LAMBDA_LOG_LEVEL", "INFO"), ("LOG_LEVEL", "trace")],
                "warn,purser=trace",
            ),
            (&[("LOG_LEVEL", "info,hyper=debug")], "info,hyper=debug"),
        ];
        for (variables, expected) in rows {
            assert_eq!(directives(&variables.iter().copied().collect()), expected);
        }
    }
}
