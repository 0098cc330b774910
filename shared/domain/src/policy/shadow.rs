//! A shadow: limits that judge an agent's decisions beside those in force, without effect.
//!
//! Nothing is computed when a decision is made. What the shadow would have decided is found by a [`crate::Backtest`] of
//! the decisions since it was attached, when somebody looks at it. So a repeated or late record changes nothing.

use crate::{AgentId, BacktestTerms, Candidate, Duration, EnabledService, PersonId, Timestamp};

/// Limits that judge an agent's decisions without effect. An agent has at most one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// The person who attached it and owned the agent.
    pub owner: PersonId,
    /// The agent.
    pub agent: AgentId,
    /// The time from which it judges decisions.
    pub attached_at: Timestamp,
    /// The limits.
    pub terms: BacktestTerms,
    /// The [`Shadow::edits`] at that time.
    pub edits_before: u64,
}

impl Shadow {
    /// The time after which it ends.
    pub const LASTS: Duration = Duration::from_secs_u32(31 * 86_400);
    /// The maximum number of judged decisions: the first ones.
    pub const MOST_DECISIONS: usize = 20_000;

    /// Whether it has ended.
    pub fn has_ended(&self, now: Timestamp) -> bool {
        now.since(self.attached_at) >= Self::LASTS
    }

    /// The number of edits of what it would replace: the agent's record, and its policies for the named services.
    pub fn edits(terms: &BacktestTerms, agent_version: u64, present: &[EnabledService]) -> u64 {
        let named = present
            .iter()
            .filter(|policy| terms.policies.contains_key(&policy.service));
        named.fold(agent_version, |sum, policy| sum.saturating_add(policy.version))
    }

    /// The version of the shadow together with what it would replace. It grows with each edit, and with each
    /// attachment, so an equal version means that nothing has changed.
    pub fn version(&self, edits: u64) -> u64 {
        u64::try_from(self.attached_at.micros())
            .unwrap_or(0)
            .saturating_add(edits)
    }
}

impl Candidate {
    /// The policies of an agent with those of the candidate in place of its own.
    pub fn over(&self, present: &[EnabledService]) -> Vec<EnabledService> {
        let others = present
            .iter()
            .filter(|policy| !self.policies.contains_key(&policy.service));
        others.chain(self.policies.values()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PolicyChange, ServiceId, SpendPolicy};
    use uuid::Uuid;

    fn service(number: u128) -> ServiceId {
        ServiceId::from_uuid(Uuid::from_u128(number))
    }

    fn policy(number: u128, version: u64) -> EnabledService {
        EnabledService {
            service: service(number),
            version,
            enabled: true,
            policy: SpendPolicy::column_defaults(),
        }
    }

    /// An edit of the agent or of a named service, and another attachment, each change the version; an edit of another
    /// service does not.
    #[test]
    fn the_version_tells_whether_anything_changed() {
        let terms = BacktestTerms {
            policies: [(service(1), PolicyChange::default())].into(),
            ..BacktestTerms::default()
        };
        let shadow = |secs| Shadow {
            owner: PersonId::parse(&"5e".repeat(32)).unwrap(),
            agent: AgentId::from_uuid(Uuid::nil()),
            attached_at: Timestamp::from_secs(secs).unwrap(),
            terms: terms.clone(),
            edits_before: 0,
        };
        let version = |secs, agent, named, other| {
            let edits = Shadow::edits(&terms, agent, &[policy(1, named), policy(2, other)]);
            shadow(secs).version(edits)
        };
        let first = version(10, 1, 1, 1);
        assert_eq!(version(10, 1, 1, 2), first);
        for other in [version(10, 2, 1, 1), version(10, 1, 2, 1), version(11, 1, 1, 1)] {
            assert!(other > first);
        }
        assert!(!shadow(10).has_ended(Timestamp::from_secs(10 + 31 * 86_400 - 1).unwrap()));
        assert!(shadow(10).has_ended(Timestamp::from_secs(10 + 31 * 86_400).unwrap()));
    }

    #[test]
    fn a_candidate_replaces_the_policies_that_it_names() {
        let candidate = Candidate {
            policies: [(service(2), policy(2, 9)), (service(3), policy(3, 9))].into(),
            ..Candidate::default()
        };
        let over = candidate.over(&[policy(1, 1), policy(2, 1)]);
        assert_eq!(over, [policy(1, 1), policy(2, 9), policy(3, 9)]);
    }
}
