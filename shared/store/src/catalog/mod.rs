pub(crate) mod cache;
pub(crate) mod object;
pub(crate) mod sightings;
pub(crate) mod table;
