//! Authentication: agents by key, people by session, operators by their tokens.

pub(crate) mod agent_credentials;
pub(crate) mod issuer;
pub(crate) mod operator;
pub(crate) mod refusals;
pub(crate) mod session;
