//! Stores long responses to paid calls, so that `read_response` can return the rest.

use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// The duration for which a response is stored.
pub const RETENTION: Duration = Duration::from_mins(15);
/// The maximum number of stored responses per agent key.
pub const MAX_KEPT: u8 = 8;
/// The maximum size of a stored text, in bytes.
pub const MAX_KEPT_BYTES: usize = 1024 * 1024;

/// The id of a stored response. Only the agent key that paid can read the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseId {
    /// The slot of the response, less than [`MAX_KEPT`].
    pub slot: u8,
    /// A random id that distinguishes this response from earlier responses in the same slot.
    pub nonce: Uuid,
}

/// A part of a stored text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponsePart {
    /// The bytes that start at the requested offset.
    pub bytes: Vec<u8>,
    /// The size of the whole text, in bytes.
    pub total: usize,
}

/// The error if the store is temporarily unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponsesUnavailable;

/// A store for the responses of one agent key.
pub trait ResponseStore: fmt::Debug + Send + Sync {
    /// Stores a text of at most [`MAX_KEPT_BYTES`] bytes.
    fn store_response<'a>(
        &'a self,
        nonce: Uuid,
        text: &'a str,
    ) -> BoxFuture<'a, Result<ResponseId, ResponsesUnavailable>>;

    /// Reads at most `bytes` bytes, starting at `offset`. Returns `None` if the response is not stored.
    fn read_part(
        &self,
        id: ResponseId,
        offset: usize,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Option<ResponsePart>, ResponsesUnavailable>>;
}

/// A store in the memory of this process, for a server with one agent.
#[derive(Debug, Default)]
pub(crate) struct MemoryResponses(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    next: u8,
    kept: BTreeMap<u8, KeptResponse>,
}

struct KeptResponse {
    nonce: Uuid,
    text: String,
    until: Instant,
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").finish_non_exhaustive()
    }
}

impl ResponseStore for MemoryResponses {
    fn store_response<'a>(
        &'a self,
        nonce: Uuid,
        text: &'a str,
    ) -> BoxFuture<'a, Result<ResponseId, ResponsesUnavailable>> {
        Box::pin(async move {
            let deadline = Instant::now().checked_add(RETENTION).ok_or(ResponsesUnavailable)?;
            let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let slot = slots.next;
            slots.next = slot.checked_add(1).filter(|next| *next < MAX_KEPT).unwrap_or(0);
            let text = text.to_owned();
            slots.kept.insert(
                slot,
                KeptResponse {
                    nonce,
                    text,
                    until: deadline,
                },
            );
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
            let slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = slots.kept.get(&id.slot);
            let kept = kept.filter(|kept| kept.nonce == id.nonce && Instant::now() < kept.until);
            Ok(kept.map(|kept| ResponsePart {
                bytes: kept.text.bytes().skip(offset).take(bytes).collect(),
                total: kept.text.len(),
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_memory_store_keeps_the_latest_mcp_responses_for_fifteen_minutes() {
        let store = MemoryResponses::default();
        let first = store.store_response(Uuid::from_u128(0), "first").await.unwrap();
        let second = store.store_response(Uuid::from_u128(1), "second").await.unwrap();
        let read = async |id, offset, bytes| store.read_part(id, offset, bytes).await.unwrap();
        let part = |text: &str, total| {
            Some(ResponsePart {
                bytes: text.into(),
                total,
            })
        };
        assert_eq!(read(first, 1, 3).await, part("irs", 5));
        assert_eq!(read(first, 5, 3).await, part("", 5));
        let other = ResponseId {
            nonce: Uuid::from_u128(7),
            ..first
        };
        assert_eq!(read(other, 0, 3).await, None);
        assert_eq!(read(ResponseId { slot: 200, ..first }, 0, 3).await, None);
        for number in 2..=u128::from(MAX_KEPT) {
            store.store_response(Uuid::from_u128(number), "more").await.unwrap();
        }
        assert_eq!(read(first, 0, 3).await, None, "the oldest is replaced");
        tokio::time::advance(Duration::from_mins(14)).await;
        assert_eq!(read(second, 0, 9).await, part("second", 6));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(read(second, 0, 9).await, None);
    }
}
