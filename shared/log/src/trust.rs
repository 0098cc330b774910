//! What verifies the statements and the checkpoints of a deployment, as `purser verify --trust` reads it.
//!
//! A reader should get it once and keep it: whoever could replace the log could replace this object too.

use purser_domain::{Error, Result};
use purser_evidence::JwkSet;
use serde::{Deserialize, Serialize};

/// The object's key.
pub const TRUST: &str = "trust.json";

/// The keys of a deployment: the current one of statements, older ones, and that of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustDocument {
    /// The keys of statements, the current one first.
    pub jwks: JwkSet,
    /// The key of the log's checkpoints (c2sp.org/signed-note).
    pub vkey: String,
    /// The log's name in its checkpoints.
    pub origin: String,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    jwks: JwkSet,
    logs: Vec<StoredLog>,
}

#[derive(Serialize, Deserialize)]
struct StoredLog {
    vkey: String,
    origin: String,
}

impl TrustDocument {
    /// Parses the stored document.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        const READING: &str = "reading the log's keys";
        let stored: Stored = serde_json::from_slice(bytes).map_err(|error| Error::internal(READING, error))?;
        let log = stored.logs.into_iter().next();
        let log = log.ok_or_else(|| Error::internal(READING, "it names no log"))?;
        Ok(Self {
            jwks: stored.jwks,
            vkey: log.vkey,
            origin: log.origin,
        })
    }

    /// The document's JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let stored = Stored {
            jwks: self.jwks.clone(),
            logs: vec![StoredLog {
                vkey: self.vkey.clone(),
                origin: self.origin.clone(),
            }],
        };
        serde_json::to_vec(&stored).map_err(|error| Error::internal("writing the log's keys", error))
    }
}
