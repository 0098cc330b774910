//! Paths of the pages of webhooks.

use purser_domain::WebhookId;

/// The list of webhooks.
pub(crate) const PAGE: &str = "/dashboard/webhooks";

/// The page of a webhook.
pub(crate) fn path_of(webhook: WebhookId) -> String {
    format!("{PAGE}/{webhook}")
}
