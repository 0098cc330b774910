//! Refresh tokens, which are replaced at each use (OAuth 2.1 §4.3.1). A token's generation is its number among the
//! grant's refresh tokens.

use crate::{AgentId, Duration, Fingerprint, KeyId, Timestamp};

/// The row of a grant, which is created with the first tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRecord {
    /// The agent to which the user gave access.
    pub agent: AgentId,
    /// The id of the grant. The agent's record stores each grant as an agent key, so the id is the id of an agent key.
    pub grant: KeyId,
    /// The fingerprint of the client's id.
    pub client: Fingerprint,
    /// The generation of the current refresh token, from 1.
    pub generation: u64,
    /// The time at which the current refresh token was first issued.
    pub rotated_at: Timestamp,
    /// The end of the grant, as chosen by the user. The grant's row may be deleted after this time.
    pub expires_at: Timestamp,
    /// The time at which the grant was ended before `expires_at`; `None` if the grant was not ended.
    pub ended_at: Option<Timestamp>,
}

/// The response to a refresh token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshDecision {
    /// The client gets the next refresh token. The write requires that the stored generation is unchanged.
    Rotate,
    /// The client presented the previous token again within [`GrantRecord::REPEAT_WINDOW`] of the rotation, probably
    /// because the response was lost. The client gets the current token again.
    Repeat,
    /// The client presented a refresh token that was replaced earlier. The grant must end, because the refresh token
    /// may be stolen.
    Reused,
    /// The grant has ended, or the token was not issued to this client.
    Invalid,
}

impl GrantRecord {
    /// The maximum time from the user's consent to the end of the grant.
    pub const MAX_LIFETIME: Duration = Duration::from_secs_u32(90 * 86_400);
    /// How long a grant may stay without a use of the refresh token.
    pub const MAX_IDLE: Duration = Duration::from_secs_u32(30 * 86_400);
    /// How long after a rotation the previous refresh token still returns the current refresh token.
    pub const REPEAT_WINDOW: Duration = Duration::from_secs_u32(60);

    /// Creates the row of a grant when the first tokens are issued.
    pub fn new(agent: AgentId, grant: KeyId, client: Fingerprint, now: Timestamp, expires_at: Timestamp) -> Self {
        Self {
            agent,
            grant,
            client,
            generation: 1,
            rotated_at: now,
            expires_at,
            ended_at: None,
        }
    }

    /// Returns whether the grant gets no more tokens: it was ended, has expired or was not used for too long.
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.ended_at.is_some() || now >= self.expires_at || now >= self.rotated_at.after(Self::MAX_IDLE)
    }

    /// Decides what a client gets for a verified refresh token. The caller also checks that the agent's key has not
    /// ended.
    pub fn decide_refresh(&self, generation: u64, client: &Fingerprint, now: Timestamp) -> RefreshDecision {
        if self.has_ended(now) || self.client != *client || generation > self.generation {
            return RefreshDecision::Invalid;
        }
        let is_previous = generation.checked_add(1) == Some(self.generation);
        if generation == self.generation {
            RefreshDecision::Rotate
        } else if is_previous && now < self.rotated_at.after(Self::REPEAT_WINDOW) {
            RefreshDecision::Repeat
        } else {
            RefreshDecision::Reused
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_replaced_refresh_token_is_accepted_for_a_minute_and_then_ends_the_grant() {
        let at = |secs| Timestamp::from_secs(secs).unwrap();
        let client = Fingerprint::for_text("client");
        let record = GrantRecord {
            agent: AgentId::from_uuid(Uuid::nil()),
            grant: KeyId(1),
            client,
            generation: 5,
            rotated_at: at(1_000),
            expires_at: at(80 * 86_400),
            ended_at: None,
        };
        let idle = 1_000 + GrantRecord::MAX_IDLE.secs();
        let rows = [
            (5, 1_001, RefreshDecision::Rotate),
            (5, idle - 1, RefreshDecision::Rotate),
            (5, idle, RefreshDecision::Invalid),
            (4, 1_059, RefreshDecision::Repeat),
            (4, 1_060, RefreshDecision::Reused),
            (3, 1_001, RefreshDecision::Reused),
            (0, 1_001, RefreshDecision::Reused),
            (6, 1_001, RefreshDecision::Invalid),
        ];
        for (generation, now, expected) in rows {
            assert_eq!(
                record.decide_refresh(generation, &client, at(now)),
                expected,
                "{generation} {now}"
            );
        }
        let other = Fingerprint::for_text("other");
        assert_eq!(record.decide_refresh(3, &other, at(1_001)), RefreshDecision::Invalid);
        let ended = GrantRecord {
            ended_at: Some(at(1_000)),
            ..record.clone()
        };
        let expired = GrantRecord {
            expires_at: at(1_001),
            ..record
        };
        for over in [ended, expired] {
            assert_eq!(over.decide_refresh(5, &client, at(1_001)), RefreshDecision::Invalid);
        }
    }
}
