//! The start of a function: logs, configuration, and then requests until the environment is frozen for good.

use crate::{Clock, Env, answer, aws};
use aws_types::SdkConfig;
use axum::Router;
use lambda_http::lambda_runtime::{self, service_fn};
use std::{convert::Infallible, process::ExitCode};
use tracing::{Subscriber, error};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// Why a function can't start.
pub type BootError = lambda_http::Error;

/// What a function is started with.
pub struct Boot {
    /// Its configuration.
    pub env: Env,
    /// Region, credentials, endpoints, timeouts.
    pub aws: SdkConfig,
    /// Its time.
    pub clock: Clock,
}

impl Boot {
    /// What these variables say. What is wrong with them is told by [`Env::finish`], together with the function's own.
    pub fn new(mut env: Env, clock: Clock) -> Self {
        let aws = aws::config(&mut env);
        Self { env, aws, clock }
    }
}

/// Runs a function that answers HTTP: starts it, builds its router, and serves until the end.
///
/// The router has been through [`crate::finish`] in `build`, so that the local stack, which builds it with its own
/// [`Boot`], answers the same.
pub async fn serve(build: impl AsyncFnOnce(Boot) -> Result<Router, BootError>) -> ExitCode {
    let served = async {
        let router = build(start()).await?;
        lambda_runtime::run(service_fn(async |event| {
            Ok::<_, Infallible>(answer(router.clone(), event).await)
        }))
        .await
    };
    match served.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(cause = %causes(&*error), "function.stopped");
            ExitCode::FAILURE
        }
    }
}

/// Starts logging and reads the surroundings: what [`serve`] does first, for functions that answer no HTTP.
pub fn start() -> Boot {
    let env = Env::process();
    start_logging(&env);
    Boot::new(env, Clock::system())
}

/// Sends log lines to standard output, one JSON object each, from now on.
pub fn start_logging(env: &Env) {
    // Tests may have installed another subscriber; the first one stays.
    let _ = tracing::subscriber::set_global_default(subscriber(&directives(env), std::io::stdout));
    log_panics();
}

/// Which lines are logged: ours at the configured level, everybody else's from WARN on. The SDKs' debug lines show
/// requests and answers, so they are never switched on by a level alone; `LOG_LEVEL` takes full directives for that.
fn directives(env: &Env) -> String {
    let level = env
        .get("LOG_LEVEL")
        .or_else(|| env.get("AWS_LAMBDA_LOG_LEVEL"))
        .unwrap_or("info");
    if level.contains(['=', ',']) {
        return level.to_owned();
    }
    // Lambda also knows FATAL.
    let level = if level.eq_ignore_ascii_case("fatal") {
        "error"
    } else {
        level
    };
    format!("warn,purser={}", level.to_ascii_lowercase())
}

/// One JSON object per line. Lambda's own filter reads `level` and `timestamp` at the top; without either, a line counts
/// as INFO (Lambda developer guide, "Log-level filtering").
pub(crate) fn subscriber<W>(directives: &str, writer: W) -> impl Subscriber + Send + Sync + 'static
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(directives).unwrap_or_else(|_| EnvFilter::new("warn,purser=info"));
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_env_filter(filter)
        .with_writer(writer)
        .finish()
}

/// A panic becomes one line like any other. What it means for the request is logged where the request ends.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string);
        error!(panic.at = at, panic.message = panic.payload_as_str(), "panic");
    }));
}

fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_ours_alone_and_directives_are_taken_as_they_are() {
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
