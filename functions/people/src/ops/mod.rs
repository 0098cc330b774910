//! What people can do, shared by the API and the pages: one file per resource, each an `impl People`.

pub(crate) mod agents;
pub(crate) mod approvals;
mod authenticate;
pub(crate) mod decisions;
pub(crate) mod keys;
pub(crate) mod owned;
pub(crate) mod rules;
pub(crate) mod services;
pub(crate) mod settlements;
pub(crate) mod several;
mod wallet;
