//! The style sheet, the script and the icons. Their URLs contain a hash, so browsers can cache them for a year.

use crate::digest::{entity_tag, response_or_not_modified, short_body_digest};
use axum::{
    Router,
    http::{HeaderMap, HeaderValue, header},
    response::Response,
    routing::get,
};
use std::sync::LazyLock;

struct Asset {
    text: &'static str,
    kind: &'static str,
    path: String,
    tag: String,
}

impl Asset {
    fn new(path: &str, text: &'static str, kind: &'static str) -> Self {
        let version = short_body_digest(text);
        Self {
            text,
            kind,
            path: format!("{path}?v={version}"),
            tag: entity_tag(&version),
        }
    }

    fn asset_response(&self, request: &HeaderMap) -> Response {
        let mut response = response_or_not_modified(request, &self.tag, self.text);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=31536000, immutable"),
        );
        response
    }
}

static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(
        "/dashboard/style.css",
        include_str!("../../assets/style.css"),
        "text/css; charset=utf-8",
    )
});

static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(
        "/dashboard/script.js",
        include_str!("../../assets/script.js"),
        "text/javascript; charset=utf-8",
    )
});

pub(crate) fn style_path() -> &'static str {
    &STYLE.path
}

pub(crate) fn script_path() -> &'static str {
    &SCRIPT.path
}

/// The logo, a purse that is also a padlock, drawn in `currentColor`.
pub(crate) const MARK: &str = "<svg class=\"mark\" viewBox=\"0 0 24 24\" aria-hidden=\"true\" focusable=\"false\">\
    <path d=\"M8 8V7a4 4 0 0 1 8 0v1\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\" stroke-linecap=\"round\"/>\
    <path d=\"M6.6 8h10.8a2 2 0 0 1 1.9 1.5l1.2 5.2A5 5 0 0 1 15.6 21H8.4a5 5 0 0 1-4.9-6.3l1.2-5.2A2 2 0 0 1 6.6 8Z\" \
    fill=\"currentColor\"/>\
    <circle cx=\"12\" cy=\"14.2\" r=\"2.4\" fill=\"var(--surface)\"/></svg>";

/// The logo as a favicon, with its own colour because a favicon has no style sheet.
pub(crate) const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'%3E\
    %3Cpath d='M8 8V7a4 4 0 0 1 8 0v1' fill='none' stroke='%230b6b57' stroke-width='2' stroke-linecap='round'/%3E\
    %3Cpath d='M6.6 8h10.8a2 2 0 0 1 1.9 1.5l1.2 5.2A5 5 0 0 1 15.6 21H8.4a5 5 0 0 1-4.9-6.3l1.2-5.2A2 2 0 0 1 6.6 8Z' \
    fill='%230b6b57'/%3E%3Ccircle cx='12' cy='14.2' r='2.4' fill='%23fff'/%3E%3C/svg%3E";

/// The routes of the assets, which need no session.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route(
            "/dashboard/style.css",
            get(|headers: HeaderMap| async move { STYLE.asset_response(&headers) }),
        )
        .route(
            "/dashboard/script.js",
            get(|headers: HeaderMap| async move { SCRIPT.asset_response(&headers) }),
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    /// A browser that already has the asset receives 304.
    #[test]
    fn asset_urls_depend_on_their_content() {
        let one = Asset::new("/a.css", "a{}", "text/css");
        assert_ne!(one.path, Asset::new("/a.css", "b{}", "text/css").path);
        assert!(one.path.starts_with("/a.css?v="));
        let mut headers = HeaderMap::new();
        assert_eq!(one.asset_response(&headers).status(), StatusCode::OK);
        headers.insert(header::IF_NONE_MATCH, HeaderValue::from_str(&one.tag).unwrap());
        let again = one.asset_response(&headers);
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(
            again.headers()[header::CACHE_CONTROL],
            "public, max-age=31536000, immutable"
        );
    }

    #[test]
    fn dashboard_assets_load_nothing_from_other_hosts() {
        for text in [STYLE.text, SCRIPT.text] {
            assert!(!text.contains("http:") && !text.contains("https:") && !text.contains("@import"));
        }
    }
}
