pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod settings;
