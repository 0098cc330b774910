//! Grants (OAuth 2.1), with which users let client programs use their agents: tokens, clients, authorization codes and
//! device codes.

pub(crate) mod access_token;
pub(crate) mod client;
pub(crate) mod device;
pub(crate) mod grant;
pub(crate) mod grant_code;
pub(crate) mod key;
pub(crate) mod redirect_uri;
pub(crate) mod refresh;
pub(crate) mod resource;
