//! The building blocks of pages.

pub(crate) mod asset;
pub(crate) mod bar;
pub(crate) mod call;
pub(crate) mod chart;
pub(crate) mod count;
pub(crate) mod datetime;
pub(crate) mod error_page;
pub(crate) mod form;
pub(crate) mod labels;
pub(crate) mod layout;
pub(crate) mod list;
pub(crate) mod money;
pub(crate) mod notice;
pub(crate) mod paths;
pub(crate) mod phrases;
pub(crate) mod report;
