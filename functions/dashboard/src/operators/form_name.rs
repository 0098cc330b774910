//! Names the forms on the dashboard's pages for operators, so that a page can show a rejected form again.

use purser_domain::OperationUuid;
use std::fmt;

/// The name of an operator form, which is also a prefix of the inputs' ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperatorFormName {
    Accept(OperationUuid),
    Withdraw(OperationUuid),
    Pin(OperationUuid),
    Probe,
    Freeze,
    /// The form that ends the freeze in this table row.
    EndFreeze(usize),
    Offer,
    WithdrawOffer,
    Reconcile,
}

impl fmt::Display for OperatorFormName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept(operation) => write!(f, "accept-{operation}"),
            Self::Withdraw(operation) => write!(f, "withdraw-{operation}"),
            Self::Pin(operation) => write!(f, "pin-{operation}"),
            Self::Probe => f.write_str("probe"),
            Self::Freeze => f.write_str("freeze"),
            Self::EndFreeze(row) => write!(f, "end-freeze-{row}"),
            Self::Offer => f.write_str("offer"),
            Self::WithdrawOffer => f.write_str("withdraw-offer"),
            Self::Reconcile => f.write_str("reconcile"),
        }
    }
}
