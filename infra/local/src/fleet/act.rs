//! What the agents of the demo fleet and their owner do.

use crate::fleet::offer::Offer;

/// What is unusual about a purchase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twist {
    Nothing,
    /// The request's own ceiling is below the price.
    LowCeiling,
    /// The provider asks for more than the catalog's maximum.
    AboveCatalog,
    /// The provider names another payee than the catalog.
    OtherPayee,
    /// The page to fetch is on this host.
    Page(&'static str),
}

/// A call of a paid operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Purchase {
    /// The agent's place in the plan.
    pub(crate) agent: usize,
    pub(crate) offer: Offer,
    /// What the provider asks for, as a percentage of the listed price.
    pub(crate) percent: u64,
    pub(crate) twist: Twist,
    /// A number that only this purchase has.
    pub(crate) serial: u64,
}

/// How a payment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The provider settles, and the agent reports it.
    Completed,
    /// The provider settles, and the agent reports nothing: reconcile finds the transfer.
    Unreported,
    /// The provider never settles: reconcile releases the money.
    Abandoned,
}

/// Something that an agent or its owner does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Pay(Purchase, Ending),
    /// A call that is refused with this error.
    Refused(Purchase, &'static str),
    /// A call that waits for an approval, which later acts name by the purchase's serial.
    Ask(Purchase),
    /// The owner decides an approval.
    Decide {
        agent: usize,
        approval: u64,
        is_approved: bool,
        note: &'static str,
    },
    /// The agent repeats the approved call.
    Use(Purchase),
    Freeze {
        agent: usize,
    },
    SetPayoutAddress {
        agent: usize,
    },
    PayOut {
        agent: usize,
        units: u64,
    },
}

impl Act {
    /// The agent that acts, or whose owner does.
    pub(crate) const fn agent(&self) -> usize {
        match self {
            Self::Pay(purchase, _) | Self::Refused(purchase, _) | Self::Ask(purchase) | Self::Use(purchase) => {
                purchase.agent
            }
            Self::Decide { agent, .. }
            | Self::Freeze { agent }
            | Self::SetPayoutAddress { agent }
            | Self::PayOut { agent, .. } => *agent,
        }
    }
}

/// What happens at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The second of the day, in UTC.
    pub(crate) second: u64,
    pub(crate) acts: Vec<Act>,
}
