//! The OAuth secret of the deployment, from which the credentials of all grants are derived.
//!
//! No table contains a secret of a grant, so somebody who can read the tables can't create tokens. Replacing the OAuth
//! secret ends all grants.

use crate::{
    AccessToken, AgentId, ClientId, ClientMetadata, ClientReference, Duration, KeyId, Timestamp,
    oauth::grant::VerificationKey, oauth::redirect_uri::RedirectUri, policy::agent::format_key_ids,
    policy::agent::parse_key_ids,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ed25519_dalek::{Signer as _, SigningKey};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fmt;

const REFRESH_PREFIX: &str = "prt_";
const CLIENT_PREFIX: &str = "prc_";
/// The minimum length of the secret, in characters. 32 hexadecimal digits have 128 bits.
const MIN_CHARS: usize = 32;

/// The use of a derived value. The HMAC input contains the use, so a value is valid for only one use.
#[derive(Clone, Copy)]
enum Purpose {
    SigningKey,
    RefreshToken,
    ClientId,
}

impl Purpose {
    const fn name(self) -> &'static [u8] {
        match self {
            Self::SigningKey => b"purser/oauth/signing-key/v1\0",
            Self::RefreshToken => b"purser/oauth/refresh-token/v1\0",
            Self::ClientId => b"purser/oauth/client-id/v1\0",
        }
    }
}

/// The deployment's OAuth secret.
#[derive(Clone)]
pub struct OAuthKey(Hmac<Sha256>);

/// Omits the secret, because debug output may be logged.
impl fmt::Debug for OAuthKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OAuthKey(..)")
    }
}

/// A verified refresh token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshToken {
    /// The agent to which the token gives access.
    pub agent: AgentId,
    /// The id of the grant. The agent's record stores each grant as an agent key, so the id is the id of an agent key.
    pub grant: KeyId,
    /// The number of the token among the grant's refresh tokens, from 1.
    pub generation: u64,
}

impl RefreshToken {
    /// The generation of the token that the Lambda function `oauth` sends to `POST /oauth/revoke` after a client has
    /// reused a refresh token. Clients never get a token of this generation.
    pub const REUSED: u64 = 0;
}

/// The metadata in a registered client's id. Short field names keep the id short.
#[derive(Serialize, Deserialize)]
struct StoredClient {
    n: String,
    r: Vec<String>,
    /// The time of the registration, in seconds since the epoch.
    t: u64,
}

impl OAuthKey {
    /// How long the id of a registered client is valid after the registration.
    pub const CLIENT_LIFETIME: Duration = Duration::from_secs_u32(365 * 86_400);

    /// Creates the key from the secret. Returns `None` for less than 32 characters.
    pub fn from_secret(secret: &str) -> Option<Self> {
        let is_long = secret.chars().count() >= MIN_CHARS;
        Hmac::new_from_slice(secret.as_bytes())
            .ok()
            .filter(|_| is_long)
            .map(Self)
    }

    fn mac(&self, purpose: Purpose, text: &str) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(purpose.name());
        mac.update(text.as_bytes());
        mac
    }

    fn signing_key(&self, agent: AgentId, grant: KeyId) -> SigningKey {
        let mac = self.mac(Purpose::SigningKey, &format_key_ids(agent, grant));
        SigningKey::from_bytes(&mac.finalize().into_bytes().into())
    }

    /// Returns the key that verifies a grant's access tokens.
    pub fn verification_key(&self, agent: AgentId, grant: KeyId) -> VerificationKey {
        VerificationKey::from_bytes(self.signing_key(agent, grant).verifying_key().to_bytes())
    }

    /// Creates an access token that is valid until `expires_at`.
    pub fn sign_access_token(&self, agent: AgentId, grant: KeyId, expires_at: Timestamp) -> String {
        let text = AccessToken::signed_text(agent, grant, expires_at);
        let signature = self.signing_key(agent, grant).sign(text.as_bytes());
        AccessToken::format(agent, grant, expires_at, &signature.to_bytes())
    }

    /// Returns the text of a refresh token: `prt_<agent><grant>_<generation>_<HMAC>`.
    pub fn write_refresh_token(&self, token: RefreshToken) -> String {
        let body = format!("{}_{:x}", format_key_ids(token.agent, token.grant), token.generation);
        let mac = self.mac(Purpose::RefreshToken, &body).finalize().into_bytes();
        format!("{REFRESH_PREFIX}{body}_{}", BASE64_URL_SAFE_NO_PAD.encode(mac))
    }

    /// Parses a refresh token and verifies the HMAC. The caller must also check the grant's row
    /// ([`GrantRecord::decide_refresh`](crate::GrantRecord::decide_refresh)).
    pub fn parse_refresh_token(&self, text: &str) -> Option<RefreshToken> {
        let rest = text.strip_prefix(REFRESH_PREFIX)?;
        let mut parts = rest.splitn(3, '_');
        let (ids, generation) = (parts.next()?, parts.next()?);
        let mac = BASE64_URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
        let body = format!("{ids}_{generation}");
        self.mac(Purpose::RefreshToken, &body).verify_slice(&mac).ok()?;
        let (agent, grant) = parse_key_ids(ids)?;
        Some(RefreshToken {
            agent,
            grant,
            generation: u64::from_str_radix(generation, 16).ok()?,
        })
    }

    /// Creates the id of a registered client, which contains the metadata. `None` if the id would exceed
    /// [`ClientId::MAX`].
    pub fn register_client(&self, client: &ClientMetadata, now: Timestamp) -> Option<ClientId> {
        let stored = StoredClient {
            n: client.name.to_string(),
            r: client.redirect_uris.iter().map(ToString::to_string).collect(),
            t: now.secs(),
        };
        let body = BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&stored).ok()?);
        let mac = self.mac(Purpose::ClientId, &body).finalize().into_bytes();
        ClientId::parse(&format!("{CLIENT_PREFIX}{body}.{}", BASE64_URL_SAFE_NO_PAD.encode(mac)))
    }

    /// Returns the client with this id; `None` for an unknown or expired id.
    pub fn find_client(&self, id: &ClientId, now: Timestamp) -> Option<ClientReference> {
        if id.as_str() == ClientId::COMMAND_LINE {
            return Some(ClientReference::CommandLine);
        }
        if let Some(url) = id.document_url() {
            return Some(ClientReference::Document(url));
        }
        let (body, mac) = id.as_str().strip_prefix(CLIENT_PREFIX)?.split_once('.')?;
        let mac = BASE64_URL_SAFE_NO_PAD.decode(mac).ok()?;
        self.mac(Purpose::ClientId, body).verify_slice(&mac).ok()?;
        let stored: StoredClient = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
        let is_current = now < Timestamp::from_secs(stored.t)?.after(Self::CLIENT_LIFETIME);
        let uris = stored.r.iter().map(|uri| RedirectUri::parse(uri).ok());
        let client = ClientMetadata {
            name: crate::ClientName::from_stored(&stored.n)?,
            redirect_uris: uris.collect::<Option<_>>()?,
        };
        is_current.then_some(ClientReference::Registered(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use uuid::Uuid;

    fn key(secret: &str) -> OAuthKey {
        OAuthKey::from_secret(&secret.repeat(32)).unwrap()
    }

    fn ids() -> (AgentId, KeyId) {
        (AgentId::from_uuid(Uuid::from_u128(7)), KeyId(8))
    }

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    /// Returns the text with one changed character, once for each character.
    fn each_changed_character(text: &str) -> impl Iterator<Item = String> {
        (0..text.len()).map(|index| {
            let mut bytes = text.as_bytes().to_vec();
            bytes[index] = if bytes[index] == b'1' { b'2' } else { b'1' };
            String::from_utf8(bytes).unwrap()
        })
    }

    #[test]
    fn only_the_grant_that_signed_an_access_token_verifies_it() {
        let (agent, grant) = ids();
        let oauth = key("a");
        let text = oauth.sign_access_token(agent, grant, at(0x05f5_e100));
        assert_eq!(text.len(), 4 + 48 + 1 + 7 + 1 + 86);
        assert!(text.starts_with("pat_000000000000000000000000000000070000000000000008_5f5e100_"));
        let verifies =
            |text: &str, key: VerificationKey| AccessToken::parse(text).is_some_and(|it| it.is_signed_by(&key));
        let expected = oauth.verification_key(agent, grant);
        assert!(verifies(&text, expected));
        let others = [
            oauth.verification_key(agent, KeyId(9)),
            oauth.verification_key(AgentId::from_uuid(Uuid::from_u128(8)), grant),
            key("b").verification_key(agent, grant),
            VerificationKey::from_bytes([0; 32]),
            VerificationKey::from_bytes([0xff; 32]),
        ];
        for other in others {
            assert!(!verifies(&text, other));
        }
        for changed in each_changed_character(&text) {
            assert!(!verifies(&changed, expected), "{changed}");
        }
        for other in [
            "",
            "pat_",
            "pat_0_0_0",
            &text.replace("_5f", "_05f"),
            &format!("{text}="),
            &format!("{text}A"),
        ] {
            assert!(AccessToken::parse(other).is_none(), "{other}");
        }
    }

    /// Without strict verification, anybody can sign every text for a weak key.
    #[test]
    fn a_weak_verification_key_verifies_nothing() {
        let (agent, grant) = ids();
        let mut identity = [0; 32];
        identity[0] = 1;
        let mut signature = [0; 64];
        signature[0] = 1;
        let text = AccessToken::format(agent, grant, at(1), &signature);
        let token = AccessToken::parse(&text).unwrap();
        assert!(!token.is_signed_by(&VerificationKey::from_bytes(identity)));
    }

    #[test]
    fn a_refresh_token_is_deterministic_and_altered_tokens_are_rejected() {
        let (agent, grant) = ids();
        let oauth = key("a");
        let token = RefreshToken {
            agent,
            grant,
            generation: 17,
        };
        let text = oauth.write_refresh_token(token);
        assert_eq!(oauth.write_refresh_token(token), text);
        assert_eq!(oauth.parse_refresh_token(&text), Some(token));
        assert_eq!(key("b").parse_refresh_token(&text), None);
        for changed in each_changed_character(&text) {
            assert_eq!(oauth.parse_refresh_token(&changed), None, "{changed}");
        }
        let access = oauth.sign_access_token(agent, grant, at(1));
        for other in ["", "prt_", &access, &access.replace("pat_", "prt_")] {
            assert_eq!(oauth.parse_refresh_token(other), None, "{other}");
        }
    }

    #[test]
    fn a_registered_clients_id_contains_the_metadata_for_a_year() {
        let oauth = key("a");
        let document =
            json!({"client_name": "Ünïcode", "redirect_uris": ["https://a.example/cb", "http://127.0.0.1/"]});
        let client = ClientMetadata::from_document(document.as_object().unwrap()).unwrap();
        let id = oauth.register_client(&client, at(1_000)).unwrap();
        let registered = Some(ClientReference::Registered(client));
        let end = 1_000 + OAuthKey::CLIENT_LIFETIME.secs();
        assert_eq!(oauth.find_client(&id, at(end - 1)), registered);
        assert_eq!(oauth.find_client(&id, at(end)), None);
        assert_eq!(key("b").find_client(&id, at(1_000)), None);
        for changed in each_changed_character(id.as_str()) {
            assert_eq!(
                oauth.find_client(&ClientId::parse(&changed).unwrap(), at(1_000)),
                None,
                "{changed}"
            );
        }
        let find = |text: &str| oauth.find_client(&ClientId::parse(text).unwrap(), at(1_000));
        assert_eq!(find("purser-cli"), Some(ClientReference::CommandLine));
        assert!(matches!(
            find("https://a.example/c"),
            Some(ClientReference::Document(_))
        ));
        assert_eq!(find("prc_."), None);
    }

    #[test]
    fn a_client_with_too_much_metadata_cannot_register() {
        let uri = |n: usize| format!("https://a.example/{n}{}", "x".repeat(200));
        let document = json!({"redirect_uris": [uri(1), uri(2), uri(3), uri(4)]});
        let client = ClientMetadata::from_document(document.as_object().unwrap()).unwrap();
        assert_eq!(key("a").register_client(&client, at(1_000)), None);
    }

    #[test]
    fn a_short_oauth_secret_is_rejected() {
        assert!(OAuthKey::from_secret(&"x".repeat(31)).is_none());
        assert_eq!(format!("{:?}", key("a")), "OAuthKey(..)");
    }
}
