//! The requests of `people` to `internal`: what an operator does in a browser, and the answers. Refusals are answers
//! here, because the page shows them.
//!
//! A request names the person, not the operator: `internal` alone knows who is which operator
//! (`BROWSER_OPERATORS`). The request can't contain an address that no probe has seen, and no catalog entry.

use purser_domain::{
    Acting, Actor, AgentId, CatalogPayment, Error, ErrorKind, FreezeTarget, OperationUuid, OperatorName, PersonId,
    RequestSource, Result, ServiceId,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An operator's act in a browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrowserAct {
    /// The signed-in person, the source of their request, and its id.
    person: String,
    address: Option<String>,
    user_agent: Option<String>,
    request_id: String,
    /// The act.
    pub act: OperatorAct,
}

/// What an operator does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OperatorAct {
    /// Accepts the delayed change of an operation, as a second operator.
    AcceptChange(OperationAt),
    /// Withdraws the delayed change of an operation.
    WithdrawChange(OperationAt),
    /// Pins the payment that a probe saw.
    PinPayment {
        /// The operation.
        at: OperationAt,
        /// The payment that the operator saw.
        payment: PinnedPayment,
    },
    /// Requests a probe of a service.
    RequestProbe {
        /// The service.
        service_id: Uuid,
    },
    /// Freezes.
    Freeze {
        /// The target.
        target: FreezeOf,
        /// The reason, which the owners see.
        reason: String,
    },
    /// Ends a freeze, or asks a second operator to do so.
    EndFreeze {
        /// The target.
        target: FreezeOf,
    },
    /// Offers an agent to a person.
    OfferAgent {
        /// The agent.
        agent_id: Uuid,
        /// The person's id.
        to: String,
        /// The reason, which the person sees.
        reason: String,
    },
    /// Withdraws the offer of an agent.
    WithdrawOffer {
        /// The agent.
        agent_id: Uuid,
    },
    /// Requests the reconciliation of a settlement.
    Reconcile {
        /// The agent.
        agent_id: Uuid,
        /// One of its settlements.
        settlement_id: Uuid,
    },
}

/// An operation of a service, at the version that the operator saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationAt {
    service_id: Uuid,
    operation_id: Uuid,
    /// The version of the service.
    pub version: u64,
}

/// The payment that an operator saw and pins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinnedPayment {
    /// Its scheme.
    pub scheme: String,
    /// The name of its network.
    pub network: String,
    /// In micro-units.
    pub amount_units: u64,
    /// The payee.
    pub pay_to: String,
}

/// The target of a freeze.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FreezeOf {
    /// One agent.
    Agent(Uuid),
    /// All agents of the person with this id.
    Owner(String),
    /// Every agent.
    Deployment,
}

/// The answer to an operator's act in a browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OperatorAnswer {
    /// It is done. For a payment that is pinned, its delay may have begun.
    Done {},
    /// It takes effect once a second operator does the same, or accepts it.
    AwaitsSecond {},
    /// The person is no operator, or no longer.
    NotAnOperator {},
    /// The object does not exist.
    NotFound {},
    /// A value is invalid.
    Invalid {
        /// The place of the first problem, as a JSON pointer.
        path: String,
        /// The requirement.
        message: String,
    },
    /// The service was edited since the operator saw it.
    VersionConflict {},
    /// The operator requested the change themselves, with a token or in a browser.
    SecondOperatorRequired {},
    /// The freeze was set with a token, so it is changed and ended with a token.
    TokenRequired {},
    /// The maximum number of agents or owners is frozen.
    TooManyFreezes {
        /// The limit.
        limit: usize,
    },
}

impl BrowserAct {
    /// An act of this person.
    pub fn new(acting: &Acting, act: OperatorAct) -> Self {
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
            act,
        }
    }

    /// The person; `None` for an id in an invalid form.
    pub fn person(&self) -> Option<PersonId> {
        PersonId::parse(&self.person)
    }

    /// The operator's name in a browser, and the source of the request, for the audit log.
    pub fn acting_as(&self, registered: &OperatorName) -> crate::Operator {
        let name = registered.in_browser();
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
    /// An operation of a service at this version.
    pub const fn new(service: ServiceId, operation: OperationUuid, version: u64) -> Self {
        Self {
            service_id: service.uuid(),
            operation_id: operation.uuid(),
            version,
        }
    }

    /// The service.
    pub const fn service(&self) -> ServiceId {
        ServiceId::from_uuid(self.service_id)
    }

    /// The operation.
    pub const fn operation(&self) -> OperationUuid {
        OperationUuid::from_uuid(self.operation_id)
    }
}

impl PinnedPayment {
    /// This payment.
    pub fn of(payment: &CatalogPayment) -> Self {
        Self {
            scheme: payment.scheme.clone(),
            network: payment.network.name().to_owned(),
            amount_units: payment.amount.units(),
            pay_to: payment.pay_to.to_string(),
        }
    }

    /// Whether it is this payment.
    pub fn is(&self, payment: &CatalogPayment) -> bool {
        *self == Self::of(payment)
    }
}

impl FreezeOf {
    /// The members of a target.
    pub fn new(target: &FreezeTarget) -> Self {
        match target {
            FreezeTarget::Agent(agent) => Self::Agent(agent.uuid()),
            FreezeTarget::Owner(owner) => Self::Owner(owner.to_string()),
            FreezeTarget::Deployment => Self::Deployment,
        }
    }

    /// The target; `not_found` for an owner's id in an invalid form.
    pub fn target(&self) -> Result<FreezeTarget> {
        Ok(match self {
            Self::Agent(agent) => FreezeTarget::Agent(AgentId::from_uuid(*agent)),
            Self::Owner(owner) => FreezeTarget::Owner(PersonId::parse(owner).ok_or(ErrorKind::NotFound)?),
            Self::Deployment => FreezeTarget::Deployment,
        })
    }
}

impl OperatorAnswer {
    /// The answer to a refused request; any other error stays an error.
    pub fn of_refusal(error: Error) -> Result<Self> {
        Ok(match error.kind() {
            ErrorKind::NotFound => Self::NotFound {},
            ErrorKind::InvalidRequest(problems) => {
                let first = problems.first();
                Self::Invalid {
                    path: first.map(|problem| problem.path.clone()).unwrap_or_default(),
                    message: first.map(|problem| problem.message.clone()).unwrap_or_default(),
                }
            }
            ErrorKind::VersionConflict { .. } => Self::VersionConflict {},
            ErrorKind::SecondOperatorRequired => Self::SecondOperatorRequired {},
            ErrorKind::TooManyFreezes { limit } => Self::TooManyFreezes { limit: *limit },
            _ => return Err(error),
        })
    }
}
