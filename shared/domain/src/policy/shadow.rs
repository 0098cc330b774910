//! A shadow policy: proposed limits that are evaluated for an agent's decisions without an effect on payments.
//!
//! A [`crate::Backtest`] evaluates the limits when a user views the shadow policy, and not during a payment.

use crate::{Agent, AgentId, Duration, EnabledService, ProposedLimits, TestedLimits, Timestamp, UserId};

/// A shadow policy of an agent. An agent has at most one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// The user who attached the shadow policy and owned the agent at that time.
    pub owner: UserId,
    /// The agent to which the shadow policy is attached.
    pub agent: AgentId,
    /// The time of the attachment. Decisions from this time on are evaluated.
    pub attached_at: Timestamp,
    /// The limits that the shadow policy proposes.
    pub terms: TestedLimits,
    /// The result of [`Shadow::count_updates`] when the shadow policy was attached.
    pub edits_before: u64,
}

impl Shadow {
    /// The duration for which a shadow policy stays attached.
    pub const DURATION: Duration = Duration::from_secs_u32(31 * 86_400);
    /// The maximum number of evaluated decisions. The newest decisions are evaluated.
    pub const MAX_DECISIONS: usize = 20_000;

    /// Returns whether the shadow policy has ended: [`Shadow::DURATION`] has passed since the attachment.
    pub fn has_ended(&self, now: Timestamp) -> bool {
        now.since(self.attached_at) >= Self::DURATION
    }

    /// Returns the number of updates of the limits that the shadow policy would replace, from the versions of the
    /// agent's record and the policies.
    pub fn count_updates(tested_limits: &TestedLimits, agent_version: u64, current_policies: &[EnabledService]) -> u64 {
        let named = current_policies
            .iter()
            .filter(|policy| tested_limits.policies.contains_key(&policy.service));
        named.fold(agent_version, |sum, policy| sum.saturating_add(policy.version))
    }

    /// Returns a version that grows with each new shadow policy and with each update of the limits that it would
    /// replace.
    pub fn if_match_version(&self, update_count: u64) -> u64 {
        u64::try_from(self.attached_at.micros())
            .unwrap_or(0)
            .saturating_add(update_count)
    }
}

impl ProposedLimits {
    /// Returns the agent and the policies under the proposed limits. Proposed policies replace the current policies for
    /// the same services.
    pub fn apply(&self, agent: &Agent, current_policies: &[EnabledService]) -> (Agent, Vec<EnabledService>) {
        let others = current_policies
            .iter()
            .filter(|policy| !self.policies.contains_key(&policy.service));
        let policies = others.chain(self.policies.values()).cloned();
        (self.apply_to_agent(agent), policies.collect())
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
            policy: SpendPolicy::spec_defaults(),
        }
    }

    #[test]
    fn the_shadow_policy_version_changes_with_the_limits() {
        let terms = TestedLimits {
            policies: [(service(1), PolicyChange::default())].into(),
            ..TestedLimits::default()
        };
        let shadow = |secs| Shadow {
            owner: UserId::parse(&"5e".repeat(32)).unwrap(),
            agent: AgentId::from_uuid(Uuid::nil()),
            attached_at: Timestamp::from_secs(secs).unwrap(),
            terms: terms.clone(),
            edits_before: 0,
        };
        let version = |secs, agent, named, other| {
            let edits = Shadow::count_updates(&terms, agent, &[policy(1, named), policy(2, other)]);
            shadow(secs).if_match_version(edits)
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
    fn a_shadow_policy_replaces_only_the_listed_policies() {
        let candidate = ProposedLimits {
            policies: [(service(2), policy(2, 9)), (service(3), policy(3, 9))].into(),
            ..ProposedLimits::default()
        };
        let agent = crate::policy::rule::tests::agent();
        let over = candidate.apply(&agent, &[policy(1, 1), policy(2, 1)]);
        assert_eq!(over, (agent, vec![policy(1, 1), policy(2, 9), policy(3, 9)]));
    }
}
