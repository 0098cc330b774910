//! The catalog table, and the cache of the catalog in each instance.

pub(crate) mod cache;
pub(crate) mod object;
pub(crate) mod sightings;
pub(crate) mod table;
