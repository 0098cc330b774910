//! Freezes by operators: of one agent, of all agents of an owner, or of the deployment. Only operators can end these
//! freezes.
//!
//! They are not in the agent's record, because operators can't write that record. The owner's own freeze is
//! [`Agent::is_frozen`].

use crate::{Agent, AgentId, AuditFields, OperatorName, Timestamp, UserId, value::line::line};
use std::collections::BTreeSet;

/// The agents that an operators' freeze affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FreezeTarget {
    /// One agent.
    Agent(AgentId),
    /// All agents of an owner, including future agents.
    Owner(UserId),
    /// All agents of the deployment.
    Deployment,
}

impl FreezeTarget {
    /// Returns what the freeze affects; `None` for a freeze by the owner.
    pub fn new(freeze: Freeze, agent: &Agent) -> Option<Self> {
        match freeze {
            Freeze::Own => None,
            Freeze::Agent => Some(Self::Agent(agent.id)),
            Freeze::Owner => UserId::parse(&agent.owner).map(Self::Owner),
            Freeze::Deployment => Some(Self::Deployment),
        }
    }

    /// Returns the scope of the freeze: `agent`, `owner` or `deployment`.
    pub const fn scope_name(&self) -> &'static str {
        match self {
            Self::Agent(_) => "agent",
            Self::Owner(_) => "owner",
            Self::Deployment => "deployment",
        }
    }
}

/// A freeze that blocks an agent's payments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// A freeze by the agent's owner, who can end it.
    Own,
    /// An operator's freeze of this agent.
    Agent,
    /// An operator's freeze of all agents of the owner.
    Owner,
    /// An operator's freeze of the deployment.
    Deployment,
}

impl Freeze {
    /// Returns the freeze that blocks the agent's payments. An operators' freeze takes precedence, because the owner
    /// can't end it.
    pub fn effective_freeze(agent: &Agent, operator_freeze: Option<Self>) -> Option<Self> {
        operator_freeze.or(agent.is_frozen().then_some(Self::Own))
    }

    /// Returns the `decision.reason` of a payment that this freeze blocks.
    pub const fn reason_text(self) -> &'static str {
        match self {
            Self::Own => "agent_frozen",
            Self::Agent => "agent_frozen:by_operator",
            Self::Owner => "agent_frozen:owner",
            Self::Deployment => "agent_frozen:deployment",
        }
    }

    /// Returns the freeze with this `decision.reason`.
    pub fn from_reason(reason: &str) -> Option<Self> {
        let all = [Self::Own, Self::Agent, Self::Owner, Self::Deployment];
        all.into_iter().find(|freeze| freeze.reason_text() == reason)
    }
}

/// All freezes by operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freezes {
    /// Whether the deployment is frozen.
    pub deployment: bool,
    /// The frozen agents: at most [`Freezes::MAX`].
    pub agents: BTreeSet<AgentId>,
    /// The frozen owners: at most [`Freezes::MAX`].
    pub owners: BTreeSet<UserId>,
}

impl Freezes {
    /// The maximum number of frozen agents, and of frozen owners. With 40 of each, the DynamoDB item stays within one
    /// read unit (4,096 bytes).
    pub const MAX: usize = 40;

    /// Returns the operators' freeze with the widest scope that applies to the agent.
    pub fn widest_for_agent(&self, agent: &Agent) -> Option<Freeze> {
        if self.deployment {
            Some(Freeze::Deployment)
        } else if self.owners.contains(agent.owner.as_str()) {
            Some(Freeze::Owner)
        } else {
            self.agents.contains(&agent.id).then_some(Freeze::Agent)
        }
    }
}

/// A freeze that an operator requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorFreeze {
    /// The agents that the freeze affects.
    pub target: FreezeTarget,
    /// The reason, which is shown to the owners of the frozen agents.
    pub reason: OperatorReason,
    /// The operator who requested the freeze.
    pub by: OperatorName,
    /// The time of the request.
    pub at: Timestamp,
    /// The operator who requested that a second operator ends the freeze.
    pub end_asked_by: Option<OperatorName>,
}

impl OperatorFreeze {
    /// Returns the fields of the audit row about this freeze.
    pub fn audit_log_fields(&self) -> AuditFields {
        let fields = [
            ("reason", Some(self.reason.as_str())),
            ("operator", Some(self.by.as_str())),
            ("end_asked_by", self.end_asked_by.as_ref().map(OperatorName::as_str)),
        ];
        let fields = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
        fields.collect()
    }
}

/// The authority that set an operators' freeze, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FreezeAuthority {
    /// An operator in a browser. Usually, two such operators are needed to end a freeze.
    Browser,
    /// An operator with the internal token, which no browser and no other Lambda function has.
    Token,
}

impl OperatorName {
    /// Returns the authority with which this operator sets and ends freezes.
    pub fn freeze_authority(&self) -> FreezeAuthority {
        if self.is_browser_session_name() {
            FreezeAuthority::Browser
        } else {
            FreezeAuthority::Token
        }
    }
}

/// A permitted change of a target's freeze. The store writes it only if the stored freeze still equals `before`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreezeChange {
    target: FreezeTarget,
    before: Option<OperatorFreeze>,
    after: Option<OperatorFreeze>,
}

/// The error if the stored freeze has a stronger authority than the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrongerFreeze;

impl FreezeChange {
    /// Freezes the target, and replaces a freeze of the same or a weaker authority. A pending request to end the old
    /// freeze is dropped.
    pub fn begin_freeze(stored: Option<OperatorFreeze>, freeze: OperatorFreeze) -> Result<Self, StrongerFreeze> {
        require_freeze_authority(stored.as_ref(), &freeze.by)?;
        Ok(Self {
            target: freeze.target.clone(),
            before: stored,
            after: Some(freeze),
        })
    }

    /// Ends a target's freeze. If a second operator is needed, the first call stores only the request.
    pub fn end_freeze(
        target: FreezeTarget,
        stored: Option<OperatorFreeze>,
        operator: &OperatorName,
        needs_second_operator: bool,
    ) -> Result<Self, StrongerFreeze> {
        require_freeze_authority(stored.as_ref(), operator)?;
        let is_second = |freeze: &OperatorFreeze| {
            let first = freeze.end_asked_by.as_ref();
            first.is_some_and(|first| !first.is_same_operator(operator))
        };
        let ends_alone = operator.freeze_authority() == FreezeAuthority::Token || !needs_second_operator;
        let after = stored.clone().filter(|freeze| !ends_alone && !is_second(freeze));
        let after = after.map(|freeze| OperatorFreeze {
            end_asked_by: Some(operator.clone()),
            ..freeze
        });
        Ok(Self {
            target,
            before: stored,
            after,
        })
    }

    /// Returns the agent, the owner or the deployment whose freeze changes.
    pub const fn target(&self) -> &FreezeTarget {
        &self.target
    }

    /// Returns the stored freeze on which the change is based.
    pub const fn stored_freeze(&self) -> Option<&OperatorFreeze> {
        self.before.as_ref()
    }

    /// Returns the freeze after the change; `None` if the target is no longer frozen.
    pub const fn new_freeze(&self) -> Option<&OperatorFreeze> {
        self.after.as_ref()
    }
}

fn require_freeze_authority(stored: Option<&OperatorFreeze>, operator: &OperatorName) -> Result<(), StrongerFreeze> {
    match stored {
        Some(freeze) if freeze.by.freeze_authority() > operator.freeze_authority() => Err(StrongerFreeze),
        _ => Ok(()),
    }
}

line! {
    /// The reason for an operator's action, which is shown to the agents' owners: one line of at most 300 characters.
    OperatorReason, 300
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentStatus, policy::rule::tests::agent};

    /// In the table, `None` is a rejection, and `true` means that the target is frozen afterwards.
    #[test]
    fn browser_operators_cannot_replace_or_end_a_freeze_set_with_a_token() {
        let name = |text: &str| OperatorName::from_stored(text).unwrap();
        let freeze = |by: &str, end_asked_by: Option<&str>| OperatorFreeze {
            target: FreezeTarget::Deployment,
            reason: OperatorReason::parse(by).unwrap(),
            by: name(by),
            at: Timestamp::from_secs(1).unwrap(),
            end_asked_by: end_asked_by.map(name),
        };
        let (ada, bob, token) = ("browser:ada", "browser:bob", "ada");
        let stored = [
            None,
            Some(freeze(ada, None)),
            Some(freeze(ada, Some(ada))),
            Some(freeze(ada, Some(bob))),
            Some(freeze(token, None)),
            // An operator can't store such a freeze.
            Some(freeze(token, Some(bob))),
        ];
        for (stored, by, needs_second) in stored
            .iter()
            .flat_map(|stored| [ada, bob, token, "bob"].map(|by| (stored, by)))
            .flat_map(|(stored, by)| [true, false].map(|needs_second| (stored, by, needs_second)))
        {
            let is_weaker =
                by.starts_with("browser:") && stored.as_ref().is_some_and(|freeze| freeze.by == name(token));
            let begun = FreezeChange::begin_freeze(stored.clone(), freeze(by, None));
            assert_eq!(begun.is_err(), is_weaker, "{stored:?} {by}");
            let after = begun.ok().map(|change| change.new_freeze().cloned());
            assert!(after.is_none_or(|after| after == Some(freeze(by, None))));
            let ended = FreezeChange::end_freeze(FreezeTarget::Deployment, stored.clone(), &name(by), needs_second);
            assert_eq!(ended.is_err(), is_weaker, "{stored:?} {by}");
            let Ok(ended) = ended else { continue };
            let first = stored.as_ref().and_then(|freeze| freeze.end_asked_by.as_ref());
            let is_second = first.is_some_and(|first| *first != name(by));
            let ends = stored.is_none() || by == token || by == "bob" || !needs_second || is_second;
            let asked = stored.clone().filter(|_| !ends).map(|stored| OperatorFreeze {
                end_asked_by: Some(name(by)),
                ..stored
            });
            assert_eq!(
                (ended.stored_freeze(), ended.new_freeze()),
                (stored.as_ref(), asked.as_ref()),
                "{by}"
            );
        }
    }

    #[test]
    fn a_frozen_agent_sees_the_widest_freeze() {
        let owner = UserId::derive("issuer", "subject");
        let agent = Agent {
            owner: owner.to_string(),
            ..agent()
        };
        let own = Freezes {
            agents: BTreeSet::from([agent.id]),
            ..Freezes::default()
        };
        let owners = Freezes {
            owners: BTreeSet::from([owner.clone()]),
            ..own.clone()
        };
        let all = Freezes {
            deployment: true,
            ..owners.clone()
        };
        let rows = [
            (Freezes::default(), None, None, ""),
            (own, Some(Freeze::Agent), Some(FreezeTarget::Agent(agent.id)), "agent"),
            (owners, Some(Freeze::Owner), Some(FreezeTarget::Owner(owner)), "owner"),
            (
                all,
                Some(Freeze::Deployment),
                Some(FreezeTarget::Deployment),
                "deployment",
            ),
        ];
        let frozen = Agent {
            status: AgentStatus::Frozen,
            ..agent.clone()
        };
        for (freezes, freeze, target, scope) in rows {
            assert_eq!(freezes.widest_for_agent(&agent), freeze);
            assert_eq!(Freeze::effective_freeze(&agent, freeze), freeze);
            assert_eq!(Freeze::effective_freeze(&frozen, freeze), freeze.or(Some(Freeze::Own)));
            let of = freeze.and_then(|freeze| FreezeTarget::new(freeze, &agent));
            assert_eq!(of.as_ref().map_or("", FreezeTarget::scope_name), scope);
            assert_eq!(of, target);
        }
        assert_eq!(FreezeTarget::new(Freeze::Own, &agent), None);
    }
}
