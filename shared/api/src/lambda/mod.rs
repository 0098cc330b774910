//! A function's process: startup, configuration, clock and random bytes, AWS clients, and Lambda events.

pub(crate) mod at_most;
pub(crate) mod aws;
pub(crate) mod background;
pub(crate) mod boot;
pub(crate) mod clock;
pub(crate) mod deliveries;
pub(crate) mod direct;
pub(crate) mod env;
pub(crate) mod gateway;
pub(crate) mod invoke;
pub(crate) mod notices;
pub(crate) mod random;
pub(crate) mod schedule;
pub(crate) mod secrets;
pub(crate) mod secrets_key;
pub(crate) mod sqs;
