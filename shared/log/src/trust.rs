//! The trust document: the keys that verify a deployment's statements and checkpoints, as `purser verify --trust` reads
//! it.
//!
//! A reader should download the document once and keep it, because anyone who could replace the log could also replace
//! this object.

use crate::witnesses::Witnesses;
use purser_domain::{Error, Result};
use purser_evidence::{Jwk, JwkSet, VerifierKey};
use serde::{Deserialize, Serialize};

/// The object's key.
pub const TRUST: &str = "trust.json";

/// The keys of a deployment. Earlier keys stay, so that earlier statements and proofs verify.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustDocument {
    /// The statement keys, the current key first.
    pub jwks: JwkSet,
    /// The log keys, the current key first.
    pub logs: Vec<LogKey>,
    /// The vkeys of the current witnesses. The reader sets how many cosignatures it requires as `quorum`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub witnesses: Vec<String>,
}

/// A key that signs checkpoints now or signed them earlier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogKey {
    /// The key (c2sp.org/signed-note).
    pub vkey: String,
    /// The log's name in the checkpoints.
    pub origin: String,
}

impl TrustDocument {
    /// Parses the stored document.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| Error::internal("reading the log's keys", error))
    }

    /// Returns the document for a deployment that now signs with these keys. `known` is the previous document.
    pub fn new(
        key: &Jwk,
        log: &VerifierKey,
        origin: &str,
        witnesses: Option<&Witnesses>,
        known: Option<&Self>,
    ) -> Self {
        let current = LogKey {
            vkey: log.to_string(),
            origin: origin.to_owned(),
        };
        let earlier = known.iter().flat_map(|known| known.logs.clone());
        let earlier = earlier.filter(|log| *log != current).collect::<Vec<_>>();
        let older = known.iter().flat_map(|known| known.jwks.keys().to_vec());
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

    /// Returns the log's name in its checkpoints.
    pub fn origin(&self) -> Option<&str> {
        self.logs.first().map(|log| log.origin.as_str())
    }

    /// Serializes the document as JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::internal("writing the log's keys", error))
    }
}
