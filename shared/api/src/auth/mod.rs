//! Authentication: agents by key, users by session, operators by token.

pub(crate) mod agent_credentials;
pub(crate) mod issuer;
pub(crate) mod operator;
pub(crate) mod refusals;
pub(crate) mod session;
