//! JSON types that more than one Lambda function returns.

pub(crate) mod approval;
pub(crate) mod audit;
pub(crate) mod call;
pub(crate) mod decision;
pub(crate) mod labels;
pub(crate) mod policy;
pub(crate) mod rule;
pub(crate) mod settlement;
pub(crate) mod spend;
