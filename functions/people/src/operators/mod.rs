//! The pages for operators: the catalog, delayed changes and freezes.

pub(crate) mod catalog;
pub(crate) mod changes;
pub(crate) mod freezes;
pub(crate) mod freezes_page;
pub(crate) mod layout;
pub(crate) mod pages;
