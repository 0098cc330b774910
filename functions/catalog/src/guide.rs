//! `GET /llms.txt` and `GET /SKILL.md`: guides in the formats that agents look for (llmstxt.org, agentskills.io).

use crate::CACHE_CONTROL;
use axum::http::HeaderMap;
use axum::response::Response;
use purser_api::{Cacheable, endpoint};
use std::sync::LazyLock;

const PLAIN: &str = "text/plain; charset=utf-8";
const MARKDOWN: &str = "text/markdown; charset=utf-8";

static OVERVIEW: LazyLock<Cacheable> =
    LazyLock::new(|| Cacheable::text_response(PLAIN, include_str!("../guide/llms.txt")));
static SKILL: LazyLock<Cacheable> =
    LazyLock::new(|| Cacheable::text_response(MARKDOWN, include_str!("../guide/SKILL.md")));

/// Returns a description of this service with links, for language models.
#[endpoint(
    get "/llms.txt", operation_id = "llms_txt", body = String, content_type = "text/plain",
    returns = "Markdown, in the format of llmstxt.org.", cached()
)]
pub(crate) async fn read_llms_txt(headers: HeaderMap) -> Response {
    OVERVIEW.clone().respond(&headers, CACHE_CONTROL)
}

/// Returns a guide for agents: how to pay, step by step, and what to do about each error.
#[endpoint(
    get "/SKILL.md", operation_id = "skill", body = String, content_type = "text/markdown",
    returns = "An agent skill (agentskills.io).", cached()
)]
pub(crate) async fn read_agent_guide(headers: HeaderMap) -> Response {
    SKILL.clone().respond(&headers, CACHE_CONTROL)
}
