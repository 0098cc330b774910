//! People's webhooks: where they call, the secrets of their calls, and what came of each.

pub(crate) mod delivery;
pub(crate) mod pause;
pub(crate) mod record;
pub(crate) mod secret;
pub(crate) mod table;
pub(crate) mod waiting;
