pub(crate) mod delivery;
pub(crate) mod failed_calls;
pub(crate) mod pause;
pub(crate) mod record;
pub(crate) mod secret;
pub(crate) mod table;
pub(crate) mod waiting;
