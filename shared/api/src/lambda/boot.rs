//! Starts a function: logging, configuration, then requests until Lambda ends the instance.

use crate::{
    Background, Clock, Entropy, Env, Routers, handle_any_event, handle_gateway_or_direct_event,
    lambda::aws,
    pooled_http_client,
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

/// Why a function can't start.
pub type BootError = lambda_http::Error;

/// The resources of every function at startup.
pub struct Boot {
    /// The function's environment variables.
    pub env: Env,
    /// The AWS configuration: region, credentials, endpoints and timeouts.
    pub aws: SdkConfig,
    /// The HTTP client for AWS and the blockchain node.
    pub http: SharedHttpConnector,
    /// The source of the current time.
    pub clock: Clock,
    /// The source of random bytes.
    pub entropy: Entropy,
    /// Where background work at startup runs.
    pub background: Background,
}

impl Boot {
    /// Reads the variables that all functions have. [`Env::finish`] reports their errors.
    pub fn new(mut env: Env, clock: Clock) -> Self {
        let http = pooled_http_client();
        let aws = aws::aws_config(&mut env, http.clone());
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

/// Runs a function that serves HTTP requests until Lambda ends the instance. `B` is [`Boot`], or [`Env`] for a function
/// that makes no calls.
///
/// `build` must apply [`crate::with_middleware`] to the router.
pub async fn serve<B: From<Env>>(build: impl AsyncFnOnce(B) -> Result<Router, BootError>) -> ExitCode {
    let served = async {
        let env = read_env_and_start_logging();
        let cold_start = ColdStart::begin(&env);
        let router = build(env.into()).await?;
        cold_start.log_duration();
        lambda_runtime::run(service_fn(async |event| {
            Ok::<_, Infallible>(handle_any_event(router.clone(), event).await.to_json())
        }))
        .await
    };
    exit_code(served.await)
}

/// Runs a function like [`serve`]. A missing environment variable `variable` is read from the API's stage variables in
/// the first event.
///
/// The template can't set the environment variable, because it depends on the API's URL and the API depends on the
/// function.
pub async fn serve_with_stage_variable(
    variable: &'static str,
    build: impl AsyncFn(Boot) -> Result<Router, BootError>,
) -> ExitCode {
    let served = async {
        let env = read_env_and_start_logging();
        let cold_start = ColdStart::begin(&env);
        let started = OnceCell::new();
        if env.get(variable).is_some() {
            started.get_or_try_init(async || build(env.into()).await).await?;
        }
        cold_start.log_duration();
        lambda_runtime::run(service_fn(async |event: LambdaEvent<Box<RawValue>>| {
            let start = async || build(Env::from_process().with_stage_variable(variable, &event.payload).into()).await;
            let router = started.get_or_try_init(start).await?;
            Ok::<_, BootError>(handle_any_event(router.clone(), event).await.to_json())
        }))
        .await
    };
    exit_code(served.await)
}

/// Runs a function like [`serve`] that also handles direct requests from other functions (`direct.rs`).
pub async fn serve_all_events<B: From<Env>>(build: impl AsyncFnOnce(B) -> Result<Routers, BootError>) -> ExitCode {
    let served = async {
        let env = read_env_and_start_logging();
        let cold_start = ColdStart::begin(&env);
        let routers = build(env.into()).await?;
        cold_start.log_duration();
        lambda_runtime::run(service_fn(async |event| {
            Ok::<_, Infallible>(handle_gateway_or_direct_event(routers.clone(), event).await)
        }))
        .await
    };
    exit_code(served.await)
}

fn exit_code(result: Result<(), BootError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => log_fatal_error(&*error),
    }
}

/// Logs why a function can't start or continue. Returns the exit code of a failure.
pub fn log_fatal_error(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    error!(cause = %Causes(error), "function.stopped");
    ExitCode::FAILURE
}

/// Starts logging and reads the environment variables. Every function calls this first.
pub(crate) fn read_env_and_start_logging() -> Env {
    let env = Env::from_process();
    start_logging(&env);
    env
}

/// Measures the duration of an instance's cold start.
pub(crate) struct ColdStart {
    function: String,
    began: Instant,
}

impl ColdStart {
    /// Starts the measurement for the Lambda function, which has the name `local` outside Lambda.
    pub(crate) fn begin(env: &Env) -> Self {
        Self {
            function: env.get("AWS_LAMBDA_FUNCTION_NAME").unwrap_or("local").to_owned(),
            began: Instant::now(),
        }
    }

    pub(crate) fn log_duration(self) {
        let boot_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        info!(function = self.function, boot_ms, "function.started");
    }
}

/// Starts logging to standard output, one JSON object per line.
pub fn start_logging(env: &Env) {
    let namespace = env.get("METRICS_NAMESPACE").unwrap_or(NAMESPACE);
    start_logging_to(json_subscriber(&log_directives(env), namespace, std::io::stdout));
}

/// Starts passing all log events and panics to a subscriber.
pub fn start_logging_to(subscriber: impl Subscriber + Send + Sync) {
    let _ = tracing::subscriber::set_global_default(subscriber);
    log_panics();
}

/// Starts logging to a writer, one JSON object per line. Has no effect if logging has already started.
pub fn log_to<W>(directives: &str, writer: W)
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let _ = tracing::subscriber::set_global_default(json_subscriber(directives, NAMESPACE, writer));
}

/// Returns the log filter: this service's lines at the configured level, and WARN for dependencies. Debug lines of the
/// SDKs contain requests, so only directives in `LOG_LEVEL` enable them.
fn log_directives(env: &Env) -> String {
    let level = env
        .get("LOG_LEVEL")
        .or_else(|| env.get("AWS_LAMBDA_LOG_LEVEL"))
        .unwrap_or("info");
    if level.contains(['=', ',']) {
        return level.to_owned();
    }
    // This service's log filter has no level FATAL.
    let level = if level.eq_ignore_ascii_case("fatal") {
        "error"
    } else {
        level
    };
    format!("warn,purser={}", level.to_ascii_lowercase())
}

/// Creates a subscriber that writes one JSON object per line, including metrics. Lambda's log filter reads `level` and
/// `timestamp` (Lambda developer guide, "Log-level filtering").
pub(crate) fn json_subscriber<W>(
    directives: &str,
    namespace: &str,
    writer: W,
) -> impl Subscriber + Send + Sync + 'static
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

/// Logs each panic as one line, in addition to the request's log line.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string);
        error!(panic.at = at, panic.message = panic_text(panic.payload()), "panic");
    }));
}

/// Returns the panic's message if it is a constant. A formatted message may contain secrets.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> Option<&'static str> {
    payload.downcast_ref::<&'static str>().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_clients::TestLog;

    #[test]
    fn a_cold_start_is_logged_and_counted() {
        let logged = TestLog::start();
        let env: Env = [("AWS_LAMBDA_FUNCTION_NAME", "purser-PaymentsFunction-1")]
            .into_iter()
            .collect();
        ColdStart::begin(&env).log_duration();
        let line: serde_json::Value = serde_json::from_str(&logged.take()).unwrap();
        assert_eq!(line["ColdStarts"], 1);
        assert_eq!(line["Function"], "purser-PaymentsFunction-1");
        assert!(line["boot_ms"].is_u64(), "{line}");
    }

    #[test]
    fn panics_are_logged_without_formatted_values() {
        let logged = TestLog::start();
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

    /// A list of directives in `LOG_LEVEL` is used unchanged.
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
            assert_eq!(log_directives(&variables.iter().copied().collect()), expected);
        }
    }
}
