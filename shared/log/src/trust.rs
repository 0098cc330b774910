//! The trust document: the keys that verify a deployment's statements and checkpoints.
//!
//! A verifier should keep a copy, because somebody who can replace the log could also replace this document.

use crate::witnesses::Witnesses;
use purser_domain::{Error, Result};
use purser_evidence::{Jwk, JwkSet, VerifierKey};
use serde::{Deserialize, Serialize};

/// The key of the object that contains the trust document.
pub const TRUST: &str = "trust.json";

/// The keys of a deployment. Earlier keys stay, so that earlier statements and proofs can be verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustDocument {
    /// The statement keys, the current key first.
    pub jwks: JwkSet,
    /// The log keys, the current key first.
    pub logs: Vec<LogKey>,
    /// The vkeys of the current witnesses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub witnesses: Vec<String>,
}

/// A current or former signing key of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogKey {
    /// The verifier key of the signer, in text form (c2sp.org/signed-note).
    pub vkey: String,
    /// The log's name in the checkpoints.
    pub origin: String,
}

impl TrustDocument {
    /// Parses the content of the object [`TRUST`].
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| Error::internal("reading the log's keys", error))
    }

    /// Creates the document for these current keys. The keys of `previous` are kept.
    pub fn new(
        key: &Jwk,
        log: &VerifierKey,
        origin: &str,
        witnesses: Option<&Witnesses>,
        previous: Option<&Self>,
    ) -> Self {
        let current = LogKey {
            vkey: log.to_string(),
            origin: origin.to_owned(),
        };
        let earlier = previous.iter().flat_map(|known| known.logs.clone());
        let earlier = earlier.filter(|log| *log != current).collect::<Vec<_>>();
        let older = previous.iter().flat_map(|known| known.jwks.keys().to_vec());
        Self {
            jwks: JwkSet::new(key.clone(), older),
            logs: std::iter::once(current).chain(earlier).collect(),
            witnesses: witnesses
                .iter()
                .flat_map(|all| all.keys())
                .map(VerifierKey::to_string)
                .collect(),
        }
    }

    /// Returns the log's name in checkpoints.
    pub fn origin(&self) -> Option<&str> {
        self.logs.first().map(|log| log.origin.as_str())
    }

    /// Serializes the document as JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::internal("writing the log's keys", error))
    }
}
