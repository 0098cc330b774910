//! Reads the credentials in an agent's request. `shared/store/src/people/authenticate.rs` verifies the key.

use crate::{ThrottleScope, client_ip};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use purser_domain::{ErrorKind, KeyFormatError, KeyUse, Permission, PresentedKey, Result};
use std::convert::Infallible;
use std::net::IpAddr;

/// The credentials in an agent's request, before the key is verified.
pub struct AgentCredentials {
    /// The key in the `Authorization` header, or the error for a missing or malformed key.
    pub key: Result<PresentedKey>,
    /// The address or network whose requests are throttled together.
    pub scope: ThrottleScope,
    /// The caller's IP address, as the gateway reports it.
    pub from: Option<IpAddr>,
}

impl AgentCredentials {
    /// Describes the use of a key. `permission` is the permission that the call requires; `None` if any valid key may
    /// make the call.
    pub fn key_use(&self, permission: impl Into<Option<Permission>>) -> KeyUse {
        KeyUse {
            from: self.from,
            needs: permission.into(),
        }
    }
}

/// Extraction never fails, because requests without a usable key must be throttled too.
impl<S: Sync> FromRequestParts<S> for AgentCredentials {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self {
            key: read_key(&parts.headers),
            scope: ThrottleScope::for_request(&parts.extensions),
            from: client_ip(&parts.extensions),
        })
    }
}

/// Parses the agent key in the `Authorization` header (`docs/spec.md` §5, `docs/decisions.md` §9).
pub fn read_key(headers: &HeaderMap) -> Result<PresentedKey> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Err(ErrorKind::InvalidAgentKey.into());
    };
    if values.next().is_some() {
        return Err(ErrorKind::InvalidAuthorizationHeader.into());
    }
    let text = value.to_str().map_err(|_| ErrorKind::InvalidAuthorizationHeader)?;
    PresentedKey::from_header(text).map_err(|error| match error {
        KeyFormatError::HeaderForm => ErrorKind::InvalidAuthorizationHeader.into(),
        KeyFormatError::NotAKey => ErrorKind::InvalidAgentKey.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use purser_domain::{AgentId, NewKey, Timestamp};
    use uuid::Uuid;

    #[test]
    fn missing_agent_keys_and_malformed_headers_are_different_errors() {
        let agent = AgentId::from_uuid(Uuid::from_u128(1));
        let key = format!("Bearer {}", NewKey::from_random(agent, [7; 40], Timestamp::EPOCH).text);
        let good = key.as_bytes();
        let rows: [(&[&[u8]], Option<&str>); 6] = [
            (&[good], None),
            (&[], Some("invalid_agent_key")),
            (&[b"Bearer a:b"], Some("invalid_agent_key")),
            (&[b"Bearer a"], Some("invalid_authorization_header")),
            (&[b"Bearer \xc3\xa9:b"], Some("invalid_authorization_header")),
            (&[good, good], Some("invalid_authorization_header")),
        ];
        for (values, slug) in rows {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
            }
            let problem = read_key(&headers).err().map(|error| error.kind().slug());
            assert_eq!(problem.as_deref(), slug);
        }
    }
}
