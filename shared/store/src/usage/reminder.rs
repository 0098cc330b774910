//! Reminders of events that occur at a set time and write no row, such as an expiry.

use purser_domain::{ApprovalId, ServiceId, Timestamp};

/// A reminder to check, at a set time, whether an event has occurred that writes no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reminder {
    /// The event to check for, with the id of the approval or service.
    pub of: ReminderKind,
    /// The time at which the event happens, unless it is prevented.
    pub at: Timestamp,
}

/// An event that occurs at a set time and writes no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReminderKind {
    /// An approval expires, unless a payment uses the approval.
    Expiry(ApprovalId),
    /// A service's delayed payees and prices take effect, unless an operator withdraws them.
    Pricing(ServiceId),
}
