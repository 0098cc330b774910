//! The `$default` route: every path and method that no other function answers. It reads nothing and has no permissions.

use axum::Router;
use purser_api::{ApiSettings, BootError, Env};

/// The fallback: a router without routes, which answers 404 `not_found` in our envelope.
#[expect(clippy::unused_async, reason = "built like every other function")]
pub async fn router(mut env: Env) -> Result<Router, BootError> {
    let api = ApiSettings::from_env(&mut env);
    Ok(purser_api::with_middleware(Router::new(), env.finish(api)?))
}
