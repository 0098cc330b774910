//! The witnesses that cosign the log's checkpoints (c2sp.org/tlog-witness).
//!
//! A witness cosigns only trees that extend the tree that it cosigned last, so cosigned logs are neither forked nor
//! truncated. The log does not wait for a failing witness.

use crate::objects::ObjectStore;
use futures_util::future::join_all;
use purser_evidence::{
    Hash, KeyType, TreeHead, VerifierKey, build_add_checkpoint_body, build_consistency_proof, find_cosignature,
    parse_cosigned_size, read_unverified_root,
};
use reqwest::{Client, StatusCode, Url};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The timeout of a request for a cosignature.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How long a failed witness gets no requests, so that a failing witness delays the log at most once per pause.
const PAUSE: Duration = Duration::from_mins(5);
/// The maximum size of a witness's response, in bytes.
const MAX_RESPONSE: usize = 16 * 1024;

/// A deployment's witnesses.
#[derive(Debug)]
pub struct Witnesses {
    http: Client,
    all: Vec<Witness>,
}

#[derive(Debug)]
struct Witness {
    key: VerifierKey,
    /// The URL for `add-checkpoint` requests.
    url: Url,
    paused_until: Mutex<Option<Instant>>,
}

enum NotCosigned {
    /// The witness did not respond, or the response is invalid.
    Failed(String),
    /// The witness has cosigned a tree that this log does not extend.
    Contradicts(String),
}

impl Witnesses {
    /// The maximum number of witnesses.
    pub const MAX: usize = 8;

    /// Parses a list of `<vkey> <URL>`, separated by spaces. Returns `None` for a malformed or repeated witness, a URL
    /// that is neither `https` nor local, or more than [`Self::MAX`] witnesses.
    pub fn parse(list: &str, http: Client) -> Option<Self> {
        let message: Vec<&str> = list.split_whitespace().collect();
        let (pairs, rest) = message.as_chunks::<2>();
        let all: Vec<Witness> = pairs.iter().map(Witness::parse).collect::<Option<_>>()?;
        let mut keys: Vec<_> = all.iter().map(|witness| witness.key.public_key()).collect();
        keys.sort_unstable();
        keys.dedup();
        (rest.is_empty() && keys.len() == all.len() && all.len() <= Self::MAX).then_some(Self { http, all })
    }

    /// Returns the keys that verify the cosignatures of the witnesses.
    pub fn keys(&self) -> impl Iterator<Item = &VerifierKey> {
        self.all.iter().map(|witness| &witness.key)
    }

    /// Returns the checkpoint `signed` with the valid cosignatures in `current`, and requested cosignatures
    /// of the other witnesses. `older_size` is the size of the previous tree.
    pub(crate) async fn add_cosignatures(
        &self,
        objects: &ObjectStore,
        signed: &str,
        tree: &TreeHead,
        older_size: u64,
        current: &str,
    ) -> String {
        let cosignatures = self
            .all
            .iter()
            .map(async |witness| match find_cosignature(current, &witness.key, signed) {
                None if tree.size > 0 => {
                    witness
                        .request_cosignature(&self.http, objects, signed, tree, older_size)
                        .await
                }
                present => present,
            });
        let cosignatures = join_all(cosignatures).await.into_iter().flatten();
        std::iter::once(signed.to_owned()).chain(cosignatures).collect()
    }
}

impl Witness {
    fn parse([key, url]: &[&str; 2]) -> Option<Self> {
        let key: VerifierKey = key.parse().ok()?;
        let mut url = Url::parse(url).ok()?;
        let is_local = matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
        let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_local);
        url.path_segments_mut().ok()?.pop_if_empty().push("add-checkpoint");
        (is_safe && key.key_type() == KeyType::Cosignature).then_some(Self {
            key,
            url,
            paused_until: Mutex::new(None),
        })
    }

    /// Requests a cosignature line. Returns `None` if the witness fails now or failed recently.
    async fn request_cosignature(
        &self,
        http: &Client,
        objects: &ObjectStore,
        signed: &str,
        tree: &TreeHead,
        older_size: u64,
    ) -> Option<String> {
        let paused_until = *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        if paused_until.is_some_and(|deadline| Instant::now() < deadline) {
            return None;
        }
        let cosigned = tokio::time::timeout(TIMEOUT, self.submit_checkpoint(http, objects, signed, tree, older_size));
        let witness = self.key.name();
        match cosigned.await.unwrap_or_else(|_| Err(cosigning_error("timeout"))) {
            Ok(line) => return Some(line),
            Err(NotCosigned::Failed(reason)) => tracing::warn!(witness, why = reason, "witness.failed"),
            Err(NotCosigned::Contradicts(reason)) => tracing::error!(witness, why = reason, "witness.contradicts"),
        }
        let deadline = Instant::now().checked_add(PAUSE);
        *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
        None
    }

    async fn submit_checkpoint(
        &self,
        http: &Client,
        objects: &ObjectStore,
        signed: &str,
        tree: &TreeHead,
        older_size: u64,
    ) -> Result<String, NotCosigned> {
        let (status, body) = self.post_checkpoint(http, objects, signed, tree, older_size).await?;
        let (status, body) = match (status, parse_cosigned_size(&body)) {
            // The witness last cosigned a tree of another size, which the response contains.
            (StatusCode::CONFLICT, Some(size)) if size <= tree.size && size != older_size => {
                self.post_checkpoint(http, objects, signed, tree, size).await?
            }
            _ => (status, body),
        };
        match status {
            StatusCode::OK => find_cosignature(&body, &self.key, signed)
                .ok_or_else(|| cosigning_error("the response has no valid cosignature of the witness")),
            StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => Err(NotCosigned::Contradicts(format!(
                "the log of {} entries does not continue the tree that the witness cosigned: HTTP {status}, `{}`",
                tree.size,
                body.chars().take(40).collect::<String>().escape_debug()
            ))),
            _ => Err(cosigning_error(format!("HTTP {status}"))),
        }
    }

    /// Posts the checkpoint, with the proof that the checkpoint's tree extends the tree with `older_size` entries.
    async fn post_checkpoint(
        &self,
        http: &Client,
        objects: &ObjectStore,
        signed: &str,
        tree: &TreeHead,
        older_size: u64,
    ) -> Result<(StatusCode, String), NotCosigned> {
        let proof = prove_consistency(objects, tree, older_size).await?;
        let request = http
            .post(self.url.clone())
            .body(build_add_checkpoint_body(older_size, &proof, signed));
        let broken = |error: reqwest::Error| cosigning_error(error.without_url());
        let mut response = request.send().await.map_err(broken)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            body.extend(chunk);
            if body.len() > MAX_RESPONSE {
                return Err(cosigning_error("the response is too long"));
            }
        }
        let body = String::from_utf8(body).map_err(cosigning_error)?;
        Ok((response.status(), body))
    }
}

/// Returns the proof that the tree extends its first `older_size` entries. The proof is empty if `older_size` is 0 or
/// the tree's size.
async fn prove_consistency(objects: &ObjectStore, tree: &TreeHead, older_size: u64) -> Result<Vec<Hash>, NotCosigned> {
    if older_size == 0 || older_size == tree.size {
        return Ok(Vec::new());
    }
    let root = read_unverified_root(objects, older_size, tree)
        .await
        .map_err(cosigning_error)?;
    let older = TreeHead { size: older_size, root };
    build_consistency_proof(objects, &older, tree)
        .await
        .map_err(cosigning_error)
}

fn cosigning_error(reason: impl fmt::Display) -> NotCosigned {
    NotCosigned::Failed(reason.to_string())
}
