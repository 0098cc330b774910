//! Grants: a user lets an OAuth client act for an agent (OAuth 2.1, RFC 8628). The Lambda function `oauth` issues the
//! tokens.

pub(crate) mod api;
mod consent;
mod operations;
pub(crate) mod pages;
mod request;

pub(crate) use operations::DEVICE_CODES_PER_MINUTE;

/// The timeout for reading a client's metadata document.
pub(crate) const DOCUMENT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);
