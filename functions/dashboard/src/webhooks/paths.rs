//! Paths of the webhook pages.

use purser_domain::WebhookId;

/// The path of the webhook list.
pub(crate) const PAGE: &str = "/dashboard/webhooks";

/// Returns the path of a webhook's page.
pub(crate) fn webhook_path(webhook: WebhookId) -> String {
    format!("{PAGE}/{webhook}")
}
