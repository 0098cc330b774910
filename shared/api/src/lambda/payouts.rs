//! Direct requests of the function `people` to `payments` about withdrawals, with the responses. A rejection is a
//! variant of the response, because the page shows it.

use crate::lambda::direct::UserRequest;
use purser_domain::{
    Acting, Actor, AgentId, Amount, Error, ErrorKind, Result, SessionId, SettlementId, Submission, UserId,
    ValidationError, WithdrawalAmount, WithdrawalRejection,
};
use serde::{Deserialize, Serialize};

/// An agent, the owner, and the source of the owner's request. The function `payments` checks the owner again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WithdrawalOwner {
    agent_id: AgentId,
    owner: String,
    session: Option<SessionId>,
    source: UserRequest,
}

/// A request for a withdrawal to the stored withdrawal address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestedWithdrawal {
    /// The agent and the owner.
    pub of: WithdrawalOwner,
    /// The amount; `None` for the wallet's whole balance.
    amount_units: Option<Amount>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// The withdrawal is reserved, now or by an earlier request with the same idempotency key.
    Reserved(ReservedWithdrawal),
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
        settlement: Option<SettlementId>,
    },
    /// The withdrawal is rejected.
    Rejected(WithdrawalRejection),
}

impl WithdrawalOwner {
    /// Identifies who requests a withdrawal: the agent, the acting user as the owner, and the source of the request.
    pub fn new(agent: AgentId, acting: &Acting) -> Self {
        let session = match &acting.actor {
            Actor::Person { session, .. } => session.clone(),
            Actor::Operator(_) | Actor::Reconcile | Actor::Rule { .. } | Actor::Client { .. } | Actor::Agent { .. } => {
                None
            }
        };
        Self {
            agent_id: agent,
            owner: acting.actor.to_string(),
            session,
            source: UserRequest::new(&acting.source),
        }
    }

    /// Returns the agent, the owner and the source of the request, or `not_found` if the user id is malformed.
    pub fn parse_ids(&self) -> Result<(AgentId, UserId, Acting)> {
        let id = UserId::parse(&self.owner).ok_or(ErrorKind::NotFound)?;
        let acting = Acting {
            actor: Actor::Person {
                id: id.clone(),
                session: self.session.clone(),
            },
            source: self.source.to_source(),
        };
        Ok((self.agent_id, id, acting))
    }
}

impl RequestedWithdrawal {
    /// Creates a request to withdraw this amount.
    pub fn new(owner: WithdrawalOwner, amount: WithdrawalAmount, idempotency_key: String) -> Self {
        let amount_units = match amount {
            WithdrawalAmount::Balance => None,
            WithdrawalAmount::Units(amount) => Some(amount),
        };
        Self {
            of: owner,
            amount_units,
            idempotency_key,
        }
    }

    /// Returns the amount, or an error if the amount is zero.
    pub fn parse_amount(&self) -> Result<WithdrawalAmount> {
        let Some(amount) = self.amount_units else {
            return Ok(WithdrawalAmount::Balance);
        };
        WithdrawalAmount::from_amount(amount).ok_or_else(|| {
            Error::invalid(vec![ValidationError::at_path(
                "/amount_units",
                "must be more than nothing",
            )])
        })
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
                settlement: *settlement,
            },
            ErrorKind::PayoutRefused(rejection) => Self::Rejected(*rejection),
            _ => return Err(error),
        })
    }

    /// Returns the reserved withdrawal, or the rejection as an error.
    pub fn into_reserved_withdrawal(self) -> Result<ReservedWithdrawal> {
        match self {
            Self::Reserved(withdrawal) => Ok(withdrawal),
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
        match self {
            Self::Done {} | Self::Reserved(_) => unexpected_response_error(),
            Self::NotFound {} => ErrorKind::NotFound.into(),
            Self::WrongAddress { message } => Error::invalid(vec![ValidationError::at_path("/address", message)]),
            Self::KeyReused { settlement } => ErrorKind::IdempotencyKeyReused { settlement }.into(),
            Self::Rejected(rejection) => rejection.into(),
        }
    }
}

fn unexpected_response_error() -> Error {
    Error::internal("calling `payments`", "the response has an unexpected format")
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::{Freeze, RequestSource, Timestamp};
    use uuid::Uuid;

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
                format!("{:?}", arrived.clone().into_reserved_withdrawal().unwrap_err().kind()),
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
            let sent = serde_json::to_string(&WithdrawalResponse::Reserved(reserved)).unwrap();
            let arrived: WithdrawalResponse = serde_json::from_str(&sent).unwrap();
            assert_eq!(arrived.into_reserved_withdrawal().unwrap(), reserved);
        }
    }
}
