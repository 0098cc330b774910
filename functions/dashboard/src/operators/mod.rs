//! The pages for operators.

pub(crate) mod act_form;
pub(crate) mod acts;
pub(crate) mod agents_page;
pub(crate) mod catalog;
pub(crate) mod changes;
pub(crate) mod form;
pub(crate) mod freezes;
pub(crate) mod freezes_page;
pub(crate) mod layout;
pub(crate) mod pages;
pub(crate) mod service_page;
