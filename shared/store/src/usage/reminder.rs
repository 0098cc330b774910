//! Reminders of events that happen without a write, such as an expiry.

use purser_domain::{ApprovalId, ServiceId, Timestamp};

/// A reminder to check whether an event has happened without a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reminder {
    /// The event to check for.
    pub of: ReminderKind,
    /// The time at which the event happens, unless it is prevented.
    pub at: Timestamp,
}

/// An event that happens at a time, without a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReminderKind {
    /// An approval expires, unless a payment uses the approval.
    Expiry(ApprovalId),
    /// A service's delayed payees and prices take effect, unless an operator withdraws them.
    Pricing(ServiceId),
}
