//! Reminders of events that happen without a write.

use purser_domain::{ApprovalId, ServiceId, Timestamp};

/// A reminder to check a row for an event that happens without a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reminder {
    /// The event to check for.
    pub of: ReminderKind,
    /// The time at which the event happens, unless something else happens first.
    pub at: Timestamp,
}

/// An event that happens without a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReminderKind {
    /// An approval expires, unless it is used.
    Expiry(ApprovalId),
    /// A service's delayed payees and prices take effect, unless they are withdrawn.
    Pricing(ServiceId),
}
