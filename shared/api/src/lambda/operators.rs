//! Direct requests of the function `people` to `internal` for operator actions in a browser, with the responses.
//!
//! A request contains the user's id, because only `internal` maps users to operators (`BROWSER_OPERATORS`). A request
//! can't add an operation to the catalog, and can't set a payment address that no probe has reported. A rejection is a
//! variant of the response, because the page shows it.

use purser_domain::{
    Acting, Actor, AgentId, CatalogPayment, Error, ErrorKind, FreezeTarget, OperationUuid, OperatorName, RequestSource,
    Result, ServiceId, UserId,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An operator action in a browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrowserAct {
    /// The signed-in user's id.
    person: String,
    address: Option<String>,
    user_agent: Option<String>,
    request_id: String,
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
        service_id: Uuid,
    },
    /// Freezes an agent, an owner's agents, or all agents.
    Freeze {
        /// What to freeze.
        target: FreezeScope,
        /// The reason, which the owners see.
        reason: String,
    },
    /// Ends a freeze, or asks a second operator to end it.
    EndFreeze {
        /// What to unfreeze.
        target: FreezeScope,
    },
    /// Offers the ownership of an agent to another user.
    OfferAgent {
        /// The agent to offer.
        agent_id: Uuid,
        /// The id of the user who may accept the agent.
        to: String,
        /// The reason, which is shown to the new owner.
        reason: String,
    },
    /// Withdraws the offer of an agent.
    WithdrawOffer {
        /// The offered agent.
        agent_id: Uuid,
    },
    /// Requests the reconciliation of a settlement.
    Reconcile {
        /// The agent that paid.
        agent_id: Uuid,
        /// The settlement to reconcile.
        settlement_id: Uuid,
    },
}

/// An operation, and the service version that the operator saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationAt {
    service_id: Uuid,
    operation_id: Uuid,
    /// The version of the service that the operator saw. If the service has another version, the action is rejected.
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

/// What a freeze affects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FreezeScope {
    /// One agent.
    Agent(Uuid),
    /// All agents of the user with this id.
    Owner(String),
    /// Every agent.
    Deployment,
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
        let RequestSource {
            address,
            user_agent,
            request_id,
            reason: _,
        } = acting.source.clone();
        Self {
            person: acting.actor.to_string(),
            address,
            user_agent,
            request_id,
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
        let source = RequestSource::new(self.address.clone(), self.user_agent.as_deref(), &self.request_id);
        crate::Operator {
            acting: Acting {
                actor: Actor::Operator(name.clone()),
                source,
            },
            name,
        }
    }
}

impl OperationAt {
    /// Describes an operation at this version of its service.
    pub const fn new(service: ServiceId, operation: OperationUuid, version: u64) -> Self {
        Self {
            service_id: service.uuid(),
            operation_id: operation.uuid(),
            version,
        }
    }

    /// Returns the id of the service to which the operation belongs.
    pub const fn service(&self) -> ServiceId {
        ServiceId::from_uuid(self.service_id)
    }

    /// Returns the UUID of the operation in the catalog.
    pub const fn operation(&self) -> OperationUuid {
        OperationUuid::from_uuid(self.operation_id)
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
    pub fn describes(&self, payment: &CatalogPayment) -> bool {
        *self == Self::new(payment)
    }
}

impl FreezeScope {
    /// Converts a freeze target into the form that a request of an operator contains.
    pub fn new(target: &FreezeTarget) -> Self {
        match target {
            FreezeTarget::Agent(agent) => Self::Agent(agent.uuid()),
            FreezeTarget::Owner(owner) => Self::Owner(owner.to_string()),
            FreezeTarget::Deployment => Self::Deployment,
        }
    }

    /// Returns the freeze target, or `not_found` if the owner's id is malformed.
    pub fn freeze_target(&self) -> Result<FreezeTarget> {
        Ok(match self {
            Self::Agent(agent) => FreezeTarget::Agent(AgentId::from_uuid(*agent)),
            Self::Owner(owner) => FreezeTarget::Owner(UserId::parse(owner).ok_or(ErrorKind::NotFound)?),
            Self::Deployment => FreezeTarget::Deployment,
        })
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
