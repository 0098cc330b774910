//! Direct requests of the function `people` to `payments` about withdrawals, with the responses. A rejection is a
//! variant of the response, because the page shows it.

use purser_domain::{
    Acting, Actor, AgentId, Amount, Error, ErrorKind, Freeze, RequestSource, Result, SessionId, SettlementId,
    Submission, Timestamp, UserId, ValidationError, WithdrawalAmount, WithdrawalRejection,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An agent, the owner, and the source of the owner's request. The function `payments` checks the owner again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WithdrawalOwner {
    agent_id: Uuid,
    owner: String,
    session: Option<String>,
    address: Option<String>,
    user_agent: Option<String>,
    request_id: String,
}

/// A request for a withdrawal to the stored withdrawal address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestedWithdrawal {
    /// The agent and the owner.
    pub of: WithdrawalOwner,
    /// The amount in micro-units; `None` for the wallet's whole balance.
    amount_units: Option<u64>,
    /// The caller's idempotency key.
    pub idempotency_key: String,
}

/// A request to set the withdrawal address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewWithdrawalAddress {
    /// The agent and the owner.
    pub of: WithdrawalOwner,
    /// The address, as `0x` and 40 hexadecimal digits.
    pub address: String,
}

/// A reserved withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedWithdrawal {
    /// The settlement of the withdrawal.
    pub settlement: SettlementId,
    /// The facilitator's current response; `None` if nothing was submitted.
    pub submission: Option<Submission>,
    /// Whether an earlier request already reserved the withdrawal.
    pub replayed: bool,
}

/// The response to a request about withdrawals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WithdrawalResponse {
    /// The withdrawal address was set or removed.
    Done {},
    /// The withdrawal is reserved.
    Reserved {
        /// The settlement of the withdrawal.
        settlement_id: Uuid,
        /// The facilitator's current response.
        submission: Option<String>,
        /// Whether an earlier request already reserved the withdrawal.
        replayed: bool,
    },
    /// The user has no agent with this id.
    NotFound {},
    /// The address can't be a withdrawal address.
    WrongAddress {
        /// The requirement that the address does not meet, for example `must not be the agent's own wallet`.
        message: String,
    },
    /// The idempotency key was already used for another request.
    KeyReused {
        /// The settlement that the first request with the idempotency key reserved.
        settlement_id: Option<Uuid>,
    },
    /// The deployment has no facilitator.
    NotSetUp {},
    /// Operators have frozen the agent.
    Frozen {
        /// The reason, as in the error response.
        reason: String,
    },
    /// The agent has no withdrawal address.
    NoAddress {},
    /// The withdrawal address can't be used yet, because the delay after setting the address has not ended.
    AddressWaits {
        /// The time from which the withdrawal address can be used, in microseconds since the epoch.
        good_from: i64,
    },
    /// Another withdrawal of the agent is open.
    PayoutOpen {
        /// The settlement of the open withdrawal.
        settlement_id: Uuid,
        /// The time until which the open withdrawal is valid, in microseconds since the epoch.
        until: i64,
    },
    /// The wallet's balance is lower than the amount.
    InsufficientBalance {
        /// The wallet's balance, in micro-units.
        balance_units: u64,
    },
}

impl WithdrawalOwner {
    /// Identifies who requests a withdrawal: the agent, the acting user as the owner, and the source of the request.
    pub fn new(agent: AgentId, acting: &Acting) -> Self {
        let session = match &acting.actor {
            Actor::Person { session, .. } => session.as_ref().map(ToString::to_string),
            Actor::Operator(_) | Actor::Reconcile | Actor::Rule { .. } => None,
        };
        let source = acting.source.clone();
        Self {
            agent_id: agent.uuid(),
            owner: acting.actor.to_string(),
            session,
            address: source.address,
            user_agent: source.user_agent,
            request_id: source.request_id,
        }
    }

    /// Returns the agent, the owner and the source of the request, or `not_found` if the user id is malformed.
    pub fn parse_ids(&self) -> Result<(AgentId, UserId, Acting)> {
        let id = UserId::parse(&self.owner).ok_or(ErrorKind::NotFound)?;
        let session = self.session.as_deref();
        let session = session.map(|text| SessionId::parse(text).ok_or(ErrorKind::NotFound));
        let acting = Acting {
            actor: Actor::Person {
                id: id.clone(),
                session: session.transpose()?,
            },
            source: RequestSource::new(self.address.clone(), self.user_agent.as_deref(), &self.request_id),
        };
        Ok((AgentId::from_uuid(self.agent_id), id, acting))
    }
}

impl RequestedWithdrawal {
    /// Creates a request to withdraw this amount.
    pub fn new(owner: WithdrawalOwner, amount: WithdrawalAmount, idempotency_key: String) -> Self {
        let amount_units = match amount {
            WithdrawalAmount::Balance => None,
            WithdrawalAmount::Units(amount) => Some(amount.units()),
        };
        Self {
            of: owner,
            amount_units,
            idempotency_key,
        }
    }

    /// Returns the amount, or an error if the amount is zero.
    pub fn parse_amount(&self) -> Result<WithdrawalAmount> {
        let Some(units) = self.amount_units else {
            return Ok(WithdrawalAmount::Balance);
        };
        let amount = Amount::from_units(units).and_then(WithdrawalAmount::from_amount);
        amount.ok_or_else(|| {
            Error::invalid(vec![ValidationError::at_path(
                "/amount_units",
                "must be more than nothing",
            )])
        })
    }
}

impl From<ReservedWithdrawal> for WithdrawalResponse {
    fn from(withdrawal: ReservedWithdrawal) -> Self {
        Self::Reserved {
            settlement_id: withdrawal.settlement.uuid(),
            submission: withdrawal.submission.map(|submission| submission.name().to_owned()),
            replayed: withdrawal.replayed,
        }
    }
}

impl WithdrawalResponse {
    /// Converts a rejection into a response. Returns any other error unchanged.
    pub fn from_rejection(error: Error) -> Result<Self> {
        Ok(match error.kind() {
            ErrorKind::NotFound => Self::NotFound {},
            ErrorKind::InvalidRequest(errors) => Self::WrongAddress {
                message: errors
                    .first()
                    .map(|message| message.message.clone())
                    .unwrap_or_default(),
            },
            ErrorKind::IdempotencyKeyReused { settlement } => Self::KeyReused {
                settlement_id: settlement.map(SettlementId::uuid),
            },
            ErrorKind::PayoutRefused(rejection) => match *rejection {
                WithdrawalRejection::NotSetUp => Self::NotSetUp {},
                WithdrawalRejection::Frozen(freeze) => Self::Frozen {
                    reason: freeze.reason_text().to_owned(),
                },
                WithdrawalRejection::NoAddress => Self::NoAddress {},
                WithdrawalRejection::AddressWaits { good_from } => Self::AddressWaits {
                    good_from: good_from.micros(),
                },
                WithdrawalRejection::PayoutOpen { settlement, until } => Self::PayoutOpen {
                    settlement_id: settlement.uuid(),
                    until: until.micros(),
                },
                WithdrawalRejection::InsufficientBalance { balance } => Self::InsufficientBalance {
                    balance_units: balance.units(),
                },
            },
            _ => return Err(error),
        })
    }

    /// Returns the reserved withdrawal, or the rejection as an error.
    pub fn into_reserved(self) -> Result<ReservedWithdrawal> {
        match self {
            Self::Reserved {
                settlement_id,
                submission,
                replayed,
            } => Ok(ReservedWithdrawal {
                settlement: SettlementId::from_uuid(settlement_id),
                submission: submission
                    .map(|name| Submission::from_name(&name).ok_or_else(unexpected_response_error))
                    .transpose()?,
                replayed,
            }),
            other => Err(other.into_rejection_error()),
        }
    }

    /// Succeeds if the address was set or removed. Otherwise returns the rejection as an error.
    pub fn into_success(self) -> Result<()> {
        match self {
            Self::Done {} => Ok(()),
            other => Err(other.into_rejection_error()),
        }
    }

    fn into_rejection_error(self) -> Error {
        let rejection = match self {
            Self::Done {} | Self::Reserved { .. } => return unexpected_response_error(),
            Self::NotFound {} => return ErrorKind::NotFound.into(),
            Self::WrongAddress { message } => {
                return Error::invalid(vec![ValidationError::at_path("/address", message)]);
            }
            Self::KeyReused { settlement_id } => {
                let settlement = settlement_id.map(SettlementId::from_uuid);
                return ErrorKind::IdempotencyKeyReused { settlement }.into();
            }
            Self::NotSetUp {} => Some(WithdrawalRejection::NotSetUp),
            Self::Frozen { reason } => Freeze::from_reason(&reason).map(WithdrawalRejection::Frozen),
            Self::NoAddress {} => Some(WithdrawalRejection::NoAddress),
            Self::AddressWaits { good_from } => {
                Timestamp::from_micros(good_from).map(|good_from| WithdrawalRejection::AddressWaits { good_from })
            }
            Self::PayoutOpen { settlement_id, until } => {
                Timestamp::from_micros(until).map(|until| WithdrawalRejection::PayoutOpen {
                    settlement: SettlementId::from_uuid(settlement_id),
                    until,
                })
            }
            Self::InsufficientBalance { balance_units } => {
                Amount::from_units(balance_units).map(|balance| WithdrawalRejection::InsufficientBalance { balance })
            }
        };
        rejection.map_or_else(unexpected_response_error, Error::from)
    }
}

fn unexpected_response_error() -> Error {
    Error::internal("asking `payments`", "the shape of its answer is not the expected one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withdrawal_rejections_round_trip_between_functions() {
        let settlement = SettlementId::from_uuid(Uuid::max());
        let at = Timestamp::from_micros(1_795_223_340_000_001).unwrap();
        let refusals = || {
            [
                WithdrawalRejection::NotSetUp,
                WithdrawalRejection::Frozen(Freeze::Agent),
                WithdrawalRejection::Frozen(Freeze::Owner),
                WithdrawalRejection::Frozen(Freeze::Deployment),
                WithdrawalRejection::NoAddress,
                WithdrawalRejection::AddressWaits { good_from: at },
                WithdrawalRejection::PayoutOpen { settlement, until: at },
                WithdrawalRejection::InsufficientBalance {
                    balance: Amount::from_units(7).unwrap(),
                },
            ]
        };
        let kinds = refusals().map(ErrorKind::PayoutRefused).into_iter().chain([
            ErrorKind::NotFound,
            ErrorKind::IdempotencyKeyReused { settlement: None },
            ErrorKind::IdempotencyKeyReused {
                settlement: Some(settlement),
            },
            ErrorKind::InvalidRequest(vec![ValidationError::at_path("/address", "must be so")]),
        ]);
        for kind in kinds {
            let told = format!("{kind:?}");
            let answer = WithdrawalResponse::from_rejection(kind.into()).unwrap();
            let sent = serde_json::to_string(&answer).unwrap();
            let arrived: WithdrawalResponse = serde_json::from_str(&sent).unwrap();
            assert_eq!(
                format!("{:?}", arrived.clone().into_reserved().unwrap_err().kind()),
                told
            );
            assert_eq!(format!("{:?}", arrived.into_success().unwrap_err().kind()), told);
        }
        assert!(WithdrawalResponse::from_rejection(ErrorKind::Internal.into()).is_err());
    }

    #[test]
    fn the_acting_user_round_trips_between_functions() {
        let id = UserId::derive("https://issuer.example", "someone");
        for session in [None, Some(SessionId::from_secret("secret"))] {
            let acting = Acting {
                actor: Actor::Person {
                    id: id.clone(),
                    session,
                },
                source: RequestSource::new(Some("203.0.113.9".to_owned()), Some("curl"), "r"),
            };
            let owner = WithdrawalOwner::new(AgentId::from_uuid(Uuid::max()), &acting);
            let arrived: WithdrawalOwner = serde_json::from_str(&serde_json::to_string(&owner).unwrap()).unwrap();
            let read = arrived.parse_ids().unwrap();
            assert_eq!(read, (AgentId::from_uuid(Uuid::max()), id.clone(), acting));
        }
    }

    #[test]
    fn withdrawals_round_trip_between_functions() {
        for submission in [None, Some(Submission::Accepted), Some(Submission::Unanswered)] {
            let reserved = ReservedWithdrawal {
                settlement: SettlementId::from_uuid(Uuid::max()),
                submission,
                replayed: true,
            };
            let sent = serde_json::to_string(&WithdrawalResponse::from(reserved)).unwrap();
            let arrived: WithdrawalResponse = serde_json::from_str(&sent).unwrap();
            assert_eq!(arrived.into_reserved().unwrap(), reserved);
        }
    }
}
