//! Stores long responses, so that the same agent key can read the rest from any instance.

use purser_api::Clock;
use purser_domain::{AgentId, KeyId};
use purser_mcp::{ResponseId, ResponsePart, ResponseStore, ResponsesUnavailable};
use purser_store::KeptResponses;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use uuid::Uuid;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The providers' long responses for all agent keys, which agents read in parts. Clones share the state.
#[derive(Clone)]
pub(crate) struct Responses {
    pub(crate) store: KeptResponses,
    pub(crate) clock: Clock,
}

impl Responses {
    pub(crate) fn for_key(&self, agent: AgentId, key: KeyId) -> Arc<dyn ResponseStore> {
        Arc::new(KeyResponses {
            responses: self.clone(),
            scope: format!("{agent}#{key}"),
        })
    }
}

struct KeyResponses {
    responses: Responses,
    scope: String,
}

impl fmt::Debug for KeyResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyResponses").finish_non_exhaustive()
    }
}

impl ResponseStore for KeyResponses {
    fn store_response<'a>(
        &'a self,
        nonce: Uuid,
        text: &'a str,
    ) -> BoxFuture<'a, Result<ResponseId, ResponsesUnavailable>> {
        Box::pin(async move {
            let Responses { store, clock } = &self.responses;
            let slot = store
                .store_text_in_next_slot(&self.scope, nonce, text, clock.now())
                .await
                .map_err(|error| {
                    tracing::warn!(cause = %error, "mcp.response_not_kept");
                    ResponsesUnavailable
                })?;
            Ok(ResponseId { slot, nonce })
        })
    }

    fn read_part(
        &self,
        id: ResponseId,
        offset: usize,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Option<ResponsePart>, ResponsesUnavailable>> {
        Box::pin(async move {
            let Responses { store, clock } = &self.responses;
            let part = store
                .read_text(&self.scope, id.slot, id.nonce, (offset, bytes), clock.now())
                .await;
            let part = part.map_err(|error| {
                tracing::warn!(cause = %error, "mcp.response_not_read");
                ResponsesUnavailable
            })?;
            Ok(part.map(|(bytes, total)| ResponsePart { bytes, total }))
        })
    }
}
