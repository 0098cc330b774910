pub(crate) mod entry;
pub(crate) mod log;
