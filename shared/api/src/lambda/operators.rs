//! Direct requests of the function `people` to `internal` for operator actions in a browser, with the responses.
//!
//! A request contains the user's id, because only `internal` maps users to operators (`BROWSER_OPERATORS`). A request
//! can't add an operation to the catalog, and can't set a payment address that no probe has reported. A rejection is a
//! variant of the response, because the page shows it.

use crate::lambda::direct::UserRequest;
use purser_domain::{
    Acting, Actor, AgentId, CatalogPayment, Error, ErrorKind, FreezeTarget, OperationUuid, OperatorName, Result,
    ServiceId, SettlementId, UserId,
};
use serde::{Deserialize, Serialize};

/// A user's request for an operator action. The function `internal` checks that the user is an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrowserAct {
    /// The signed-in user's id.
    person: String,
    source: UserRequest,
    /// The requested action.
    pub act: OperatorAct,
}

/// The action that an operator requests, with parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OperatorAct {
    /// Accepts an operation's delayed change as the second operator.
    AcceptChange(OperationAt),
    /// Withdraws an operation's delayed change.
    WithdrawChange(OperationAt),
    /// Sets an operation's price and payee in the catalog to values that a probe observed.
    PinPayment {
        /// The operation, and the service version that the operator saw.
        at: OperationAt,
        /// The price and the payee that the operator saw.
        payment: ConfirmedPayment,
    },
    /// Requests a probe of a service.
    RequestProbe {
        /// The service to probe.
        service_id: ServiceId,
    },
    /// Freezes an agent, an owner's agents, or all agents.
    Freeze {
        /// The agents to freeze.
        target: FreezeTarget,
        /// The reason, which the owners see.
        reason: String,
    },
    /// Ends a freeze, or requests the end if a second operator must confirm.
    EndFreeze {
        /// The agents whose freeze ends.
        target: FreezeTarget,
    },
    /// Offers the ownership of an agent to another user.
    OfferAgent {
        /// The agent to offer.
        agent_id: AgentId,
        /// The id of the user who may accept the agent.
        to: String,
        /// The reason, which is shown to the new owner.
        reason: String,
    },
    /// Withdraws the offer of an agent.
    WithdrawOffer {
        /// The offered agent.
        agent_id: AgentId,
    },
    /// Requests the reconciliation of a settlement.
    Reconcile {
        /// The agent that paid.
        agent_id: AgentId,
        /// The settlement to reconcile.
        settlement_id: SettlementId,
    },
}

/// An operation, and the service version that the operator saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationAt {
    /// The service to which the operation belongs.
    pub service: ServiceId,
    /// The UUID of the operation in the catalog.
    pub operation: OperationUuid,
    /// The version of the service that the operator saw. The action is rejected if the service has changed.
    pub version: u64,
}

/// The price and the payee that the operator confirmed for the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfirmedPayment {
    /// The x402 scheme.
    pub scheme: String,
    /// The name of the network.
    pub network: String,
    /// The amount, in micro-units.
    pub amount_units: u64,
    /// The payee's address.
    pub pay_to: String,
}

/// The response to an operator action in a browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OperatorResponse {
    /// The action is done. A change of an operation's payee or price may take effect later.
    Done {},
    /// The action takes effect when a second operator requests or accepts the same action.
    AwaitsSecond {},
    /// The user is not an operator, according to `BROWSER_OPERATORS` and the secret with the operators' tokens.
    NotAnOperator {},
    /// The object of the action does not exist.
    NotFound {},
    /// A value in the request is invalid.
    Invalid {
        /// The position of the first validation error, as a JSON pointer.
        path: String,
        /// The requirement that the invalid value does not meet.
        message: String,
    },
    /// The service changed after the operator saw it.
    VersionConflict {},
    /// The same operator requested the change. Another operator must accept the change.
    SecondOperatorRequired {},
    /// An operator set the freeze with a token, so only a request with a token can change or end it.
    TokenRequired {},
    /// The freeze would exceed the maximum number of frozen agents or owners.
    TooManyFreezes {
        /// The maximum number of frozen agents, and of frozen owners.
        limit: usize,
    },
}

impl BrowserAct {
    /// Creates this user's request for an action.
    pub fn new(acting: &Acting, action: OperatorAct) -> Self {
        Self {
            person: acting.actor.to_string(),
            source: UserRequest::new(&acting.source),
            act: action,
        }
    }

    /// Returns the user; `None` if the id is malformed.
    pub fn user(&self) -> Option<UserId> {
        UserId::parse(&self.person)
    }

    /// Returns the operator for the audit log, as `browser:<name>`, and the source of the request.
    pub fn browser_operator(&self, operator_name: &OperatorName) -> crate::Operator {
        let name = operator_name.browser_session_name();
        crate::Operator {
            acting: Acting {
                actor: Actor::Operator(name.clone()),
                source: self.source.to_source(),
            },
            name,
        }
    }
}

impl ConfirmedPayment {
    /// Copies the payment's scheme, network, amount and payee from the catalog.
    pub fn new(payment: &CatalogPayment) -> Self {
        Self {
            scheme: payment.scheme.clone(),
            network: payment.network.name().to_owned(),
            amount_units: payment.amount.units(),
            pay_to: payment.pay_to.to_string(),
        }
    }

    /// Returns whether `payment` has the same scheme, network, amount and payee.
    pub fn matches_payment(&self, payment: &CatalogPayment) -> bool {
        *self == Self::new(payment)
    }
}

impl OperatorResponse {
    /// Converts a rejection into a response. Returns any other error unchanged.
    pub fn from_rejection(error: Error) -> Result<Self> {
        Ok(match error.kind() {
            ErrorKind::NotFound => Self::NotFound {},
            ErrorKind::InvalidRequest(errors) => {
                let first = errors.first();
                Self::Invalid {
                    path: first.map(|message| message.path.clone()).unwrap_or_default(),
                    message: first.map(|message| message.message.clone()).unwrap_or_default(),
                }
            }
            ErrorKind::VersionConflict { .. } => Self::VersionConflict {},
            ErrorKind::SecondOperatorRequired => Self::SecondOperatorRequired {},
            ErrorKind::TooManyFreezes { limit } => Self::TooManyFreezes { limit: *limit },
            _ => return Err(error),
        })
    }
}
