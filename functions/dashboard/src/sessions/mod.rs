//! Sessions: sign-in and sign-out, the protection of forms, and the list of open sessions.

pub(crate) mod api;
pub(crate) mod authenticate;
pub(crate) mod cookie;
pub(crate) mod destination;
pub(crate) mod form_token;
pub(crate) mod operations;
pub(crate) mod origin;
pub(crate) mod page;
pub(crate) mod pending_sign_in;
pub(crate) mod session;
pub(crate) mod sign_in;
pub(crate) mod sign_in_key;
