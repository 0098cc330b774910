//! Freezes by operators: of one agent, of all agents of an owner, or of the whole deployment. Only operators end them.
//!
//! Freezes are read with every decision. They are stored apart from the agent's record, which operators can't write.
//! The owner's own freeze is in that record: [`Agent::is_frozen`].

use crate::{Agent, AgentId, OperatorName, PersonId, Timestamp};
use std::collections::BTreeSet;

/// The target of a freeze by operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FreezeTarget {
    /// One agent.
    Agent(AgentId),
    /// All agents of a person, including future ones.
    Owner(PersonId),
    /// Every agent.
    Deployment,
}

impl FreezeTarget {
    /// The target of a freeze that applies to this agent; `None` for a freeze by its owner.
    pub fn of(freeze: Freeze, agent: &Agent) -> Option<Self> {
        match freeze {
            Freeze::Own => None,
            Freeze::Agent => Some(Self::Agent(agent.id)),
            Freeze::Owner => PersonId::parse(&agent.owner).map(Self::Owner),
            Freeze::Deployment => Some(Self::Deployment),
        }
    }

    /// The scope of the freeze: `agent`, `owner` or `deployment`.
    pub const fn scope(&self) -> &'static str {
        match self {
            Self::Agent(_) => "agent",
            Self::Owner(_) => "owner",
            Self::Deployment => "deployment",
        }
    }
}

/// The freeze because of which an agent is refused.
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
    /// The freeze because of which the agent is refused, if it is frozen; `by_operators` is from [`Freezes::of`]. The
    /// operators' freeze has precedence, since the agent's owner can't end it.
    pub fn of(agent: &Agent, by_operators: Option<Self>) -> Option<Self> {
        by_operators.or(agent.is_frozen().then_some(Self::Own))
    }

    /// The freeze's name in `decision.reason`, in snake case.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Own => "agent_frozen",
            Self::Agent => "agent_frozen:by_operator",
            Self::Owner => "agent_frozen:owner",
            Self::Deployment => "agent_frozen:deployment",
        }
    }

    /// The freeze with this name, if there is one.
    pub fn from_reason(reason: &str) -> Option<Self> {
        let all = [Self::Own, Self::Agent, Self::Owner, Self::Deployment];
        all.into_iter().find(|freeze| freeze.reason() == reason)
    }
}

/// All freezes by operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freezes {
    /// Whether the deployment is frozen.
    pub deployment: bool,
    /// The frozen agents, [`Freezes::MOST`] at most.
    pub agents: BTreeSet<AgentId>,
    /// The frozen owners, [`Freezes::MOST`] at most.
    pub owners: BTreeSet<PersonId>,
}

impl Freezes {
    /// The maximum number of frozen agents, and of frozen owners. All are in one item that each decision reads: 40
    /// agents of 16 bytes and 40 owners of 64 are 3,200, so that with names and lengths a read costs one unit, 4,096.
    pub const MOST: usize = 40;

    /// The operators' freeze with the widest scope that applies to the agent.
    pub fn of(&self, agent: &Agent) -> Option<Freeze> {
        if self.deployment {
            Some(Freeze::Deployment)
        } else if self.owners.contains(agent.owner.as_str()) {
            Some(Freeze::Owner)
        } else {
            self.agents.contains(&agent.id).then_some(Freeze::Agent)
        }
    }
}

/// A freeze as an operator requested it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorFreeze {
    /// The target.
    pub target: FreezeTarget,
    /// The reason, which the owners of the frozen agents see.
    pub reason: OperatorReason,
    /// The operator.
    pub by: OperatorName,
    /// The time.
    pub at: Timestamp,
    /// The operator who asked a second operator to end it.
    pub end_asked_by: Option<OperatorName>,
}

/// The reason for an operator's action, for the people whose agents it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorReason(String);

impl OperatorReason {
    /// The maximum length, in characters.
    pub const MAX: usize = 300;
    /// The requirement of [`OperatorReason::parse`], for the message of a problem.
    pub const FORM: &'static str = "must be a text of 1 to 300 characters without control characters";

    /// Parses a reason and trims it. `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let reason = text.trim();
        let fits = (1..=Self::MAX).contains(&reason.chars().count()) && !reason.chars().any(char::is_control);
        fits.then(|| Self(reason.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentStatus, policy::rule::tests::agent};

    /// The limit is 300 characters.
    #[test]
    fn freeze_reasons_are_short_single_line_texts() {
        let stolen = OperatorReason::parse(" stolen ");
        assert_eq!(stolen.as_ref().map(OperatorReason::as_str), Some("stolen"));
        assert!(OperatorReason::parse(&"x".repeat(300)).is_some());
        for text in ["", " \t ", "a\nb", "a\u{7f}", &"x".repeat(301)] {
            assert_eq!(OperatorReason::parse(text), None, "{text:?}");
        }
    }

    /// The widest freeze is the one that is told, and the operators' before the owner's.
    #[test]
    fn a_frozen_agent_is_told_the_widest_freeze() {
        let owner = PersonId::of("issuer", "subject");
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
            assert_eq!(freezes.of(&agent), freeze);
            assert_eq!(Freeze::of(&agent, freeze), freeze);
            assert_eq!(Freeze::of(&frozen, freeze), freeze.or(Some(Freeze::Own)));
            let of = freeze.and_then(|freeze| FreezeTarget::of(freeze, &agent));
            assert_eq!(of.as_ref().map_or("", FreezeTarget::scope), scope);
            assert_eq!(of, target);
        }
        assert_eq!(FreezeTarget::of(Freeze::Own, &agent), None);
    }
}
