//! Paths of the webhook pages.

use purser_domain::WebhookId;

pub(crate) const PAGE: &str = "/dashboard/webhooks";

pub(crate) fn webhook_path(webhook: WebhookId) -> String {
    format!("{PAGE}/{webhook}")
}
