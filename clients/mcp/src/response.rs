//! Converts a provider's response to content blocks that a model can read.
//!
//! The body has a separate content block, because some hosts show only structured content and others only the blocks
//! (github.com/anthropics/claude-code/issues/79944, github.com/github/copilot-cli/issues/3258).

use crate::answers::{BodyKind, ProviderAnswer, Rest};
use crate::arguments::{Cursor, MaxBytes};
use crate::failure::Failure;
use crate::kept::{MAX_KEPT_BYTES, RETENTION, ResponseStore};
use crate::text::{CleanText, LONG, SHORT, clean_body, clean_data};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use purser_client::decode_text;
use reqwest::Response;
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_LANGUAGE, CONTENT_TYPE, HeaderMap, LINK, LOCATION, RETRY_AFTER};
use rmcp::model::{ContentBlock, ResourceContents};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The maximum size of a body, in bytes. In base64, a body of this size is smaller than the 5 MB that model APIs accept
/// for an image, and smaller than Lambda's response limit of 6 MB.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// A response body as received.
pub(crate) struct ReceivedBody {
    status: u16,
    content_type: Option<String>,
    headers: BTreeMap<String, String>,
    bytes: Vec<u8>,
    cut: Option<&'static str>,
}

/// Reads a response up to the size and time limits. A partial body is returned, because it may be paid.
pub(crate) async fn read_body(mut response: Response) -> ReceivedBody {
    let status = response.status().as_u16();
    let headers = select_headers(response.headers());
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let content_type = content_type.map(|kind| clean_data(kind, SHORT));
    let mut bytes = Vec::new();
    let cut = loop {
        match response.chunk().await {
            Ok(None) => break None,
            Ok(Some(chunk)) => {
                let room = MAX_BODY_BYTES.saturating_sub(bytes.len());
                bytes.extend(chunk.iter().take(room));
                if chunk.len() > room {
                    break Some("too_long");
                }
            }
            Err(error) if error.is_timeout() => break Some("too_slow"),
            Err(_) => break Some("broken"),
        }
    };
    ReceivedBody {
        status,
        content_type,
        headers,
        bytes,
        cut,
    }
}

/// Returns the headers that describe the body or tell where and when to continue.
fn select_headers(headers: &HeaderMap) -> BTreeMap<String, String> {
    [CONTENT_DISPOSITION, CONTENT_LANGUAGE, LINK, LOCATION, RETRY_AFTER]
        .into_iter()
        .filter_map(|name| {
            let value = headers.get(&name)?.to_str().ok()?;
            Some((name.to_string(), clean_data(value, LONG)))
        })
        .collect()
}

impl ReceivedBody {
    /// Returns the description of the body, and the body. `store` keeps the text after `max` bytes.
    pub(crate) async fn into_result(
        self,
        max: Option<MaxBytes>,
        store: Option<&dyn ResponseStore>,
    ) -> (ProviderAnswer, Option<ContentBlock>) {
        let mut response = ProviderAnswer {
            status: self.status,
            content_type: self.content_type,
            headers: self.headers,
            body: BodyKind::Empty,
            body_bytes: self.bytes.len(),
            removed_characters: 0,
            cut: self.cut,
            rest: None,
        };
        if self.bytes.is_empty() {
            return (response, None);
        }
        let is_audio = media_type(response.content_type.as_deref()).starts_with("audio/");
        let text = decode_text(response.content_type.as_deref(), &self.bytes, self.cut.is_none()).filter(|_| !is_audio);
        let Some(CleanText { mut text, removed }) = text.as_deref().map(clean_body) else {
            let encoded = STANDARD.encode(&self.bytes);
            let (kind, block) = media_block(
                &self.bytes,
                encoded,
                response.content_type.as_deref(),
                self.cut.is_some(),
            );
            response.body = kind;
            return (response, Some(block));
        };
        response.body = BodyKind::Text;
        response.removed_characters = removed;
        if text.len() > MAX_KEPT_BYTES {
            text.truncate(text.floor_char_boundary(MAX_KEPT_BYTES));
            response.cut = Some("too_long");
        }
        response.body_bytes = text.len();
        let max = max.unwrap_or_default().0;
        if text.len() > max {
            let end = text.floor_char_boundary(max);
            let kept = match store {
                Some(store) => store.store_response(Uuid::new_v4(), &text).await.ok(),
                None => None,
            };
            let shown = if let Some(id) = kept {
                response.rest = Some(Rest::new(Cursor { id, offset: end }, text.len()));
                end
            } else {
                // A paid text without a store is returned up to the maximum size of a result.
                let all = if store.is_some() { MaxBytes::MAX } else { max };
                response.cut = response.cut.or((text.len() > all).then_some("too_long"));
                text.floor_char_boundary(all)
            };
            text.truncate(shown);
        }
        (response, Some(ContentBlock::text(text)))
    }
}

impl Rest {
    fn new(cursor: Cursor, total: usize) -> Self {
        Self {
            bytes: total.saturating_sub(cursor.offset),
            cursor: cursor.to_string(),
            kept_seconds: RETENTION.as_secs(),
        }
    }
}

pub(crate) async fn read_next_part(
    store: &dyn ResponseStore,
    cursor: Cursor,
    max: Option<MaxBytes>,
) -> Result<(String, Option<Rest>), Failure> {
    let not_kept = || {
        Failure::new(
            "response_not_kept",
            "this response is not kept any more, or was never kept for this key",
            "Responses are kept for 15 minutes, and the last eight of each key. get_receipt shows the payment.",
        )
    };
    let max = max.unwrap_or_default().0;
    let part = store.read_part(cursor.id, cursor.offset, max).await.map_err(|_| {
        Failure::new(
            "temporarily_unavailable",
            "the kept responses can't be read at the moment",
            "Call again with the same cursor in some seconds. Nothing has to be paid again.",
        )
    })?;
    let part = part.ok_or_else(not_kept)?;
    let end = match std::str::from_utf8(&part.bytes) {
        Ok(text) => text.len(),
        Err(error) => error.valid_up_to(),
    };
    let text = part.bytes.get(..end).and_then(|bytes| std::str::from_utf8(bytes).ok());
    // The server issues only cursors at character boundaries, so a cursor inside a character is rejected.
    let text = text.filter(|text| !text.is_empty()).ok_or_else(not_kept)?.to_owned();
    let offset = cursor.offset.saturating_add(end);
    let rest = (offset < part.total).then(|| Rest::new(Cursor { offset, ..cursor }, part.total));
    Ok((text, rest))
}

fn media_type(content_type: Option<&str>) -> String {
    let kind = content_type.unwrap_or_default();
    let essence = kind.split_once(';').map_or(kind, |(essence, _)| essence);
    essence.trim().to_ascii_lowercase()
}

/// Returns the content block for a body that is not text. Model APIs reject images with a wrong type
/// (github.com/microsoft/vscode/issues/311732), so the bytes determine the type.
fn media_block(bytes: &[u8], data: String, content_type: Option<&str>, is_cut: bool) -> (BodyKind, ContentBlock) {
    let kind = media_type(content_type);
    if !is_cut {
        if let Some(image) = image_type(bytes) {
            return (BodyKind::Image, ContentBlock::image(data, image));
        }
        if kind.starts_with("audio/") {
            return (BodyKind::Audio, ContentBlock::audio(data, kind));
        }
    }
    let kind = if kind.contains('/') {
        kind
    } else {
        "application/octet-stream".to_owned()
    };
    let file = ResourceContents::blob(data, format!("purser://responses/{}", Uuid::new_v4()));
    (BodyKind::File, ContentBlock::resource(file.with_mime_type(kind)))
}

/// Returns the media type of an image that model APIs accept.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::MemoryResponses;
    use serde_json::{Value, json};

    fn received(content_type: &str, bytes: &[u8]) -> ReceivedBody {
        ReceivedBody {
            status: 200,
            content_type: Some(content_type.to_owned()),
            headers: BTreeMap::new(),
            bytes: bytes.to_vec(),
            cut: None,
        }
    }

    async fn block(received: ReceivedBody) -> (BodyKind, Value) {
        let (answer, block) = received.into_result(None, None).await;
        (answer.body, json!(block))
    }

    #[tokio::test]
    async fn response_bodies_become_content_blocks_of_their_type() {
        let png = b"\x89PNG\r\n\x1a\nrest";
        let rows: [(&str, &[u8], BodyKind, &str, &str); 10] = [
            ("image/png", png, BodyKind::Image, "image", "image/png"),
            ("image/jpeg", png, BodyKind::Image, "image", "image/png"),
            (
                "application/octet-stream",
                b"\xff\xd8\xff\xe0",
                BodyKind::Image,
                "image",
                "image/jpeg",
            ),
            (
                "image/webp",
                b"RIFF\xff\0\0\0WEBPVP8 ",
                BodyKind::Image,
                "image",
                "image/webp",
            ),
            (
                "Audio/MPEG; x=1",
                b"\xff\xfb\x90",
                BodyKind::Audio,
                "audio",
                "audio/mpeg",
            ),
            // The bytes of this audio file are also valid text.
            ("audio/wav", b"RIFF", BodyKind::Audio, "audio", "audio/wav"),
            // Model APIs do not accept this type of image.
            ("image/tiff", b"II*\0\xff", BodyKind::File, "resource", "image/tiff"),
            (
                "application/pdf",
                b"%PDF-1.7\xe2\xe3",
                BodyKind::File,
                "resource",
                "application/pdf",
            ),
            ("", b"\xff\0", BodyKind::File, "resource", "application/octet-stream"),
            ("image/svg+xml", b"<svg/>", BodyKind::Text, "text", ""),
        ];
        for (content_type, bytes, kind, block_type, mime_type) in rows {
            let (shown, block) = block(received(content_type, bytes)).await;
            assert_eq!((shown, &block["type"]), (kind, &json!(block_type)), "{content_type}");
            let (data, found) = match block_type {
                "text" => (STANDARD.encode(block["text"].as_str().unwrap()), json!("")),
                "resource" => (
                    block["resource"]["blob"].as_str().unwrap().to_owned(),
                    block["resource"]["mimeType"].clone(),
                ),
                _ => (block["data"].as_str().unwrap().to_owned(), block["mimeType"].clone()),
            };
            assert_eq!(
                (data, found),
                (STANDARD.encode(bytes), json!(mime_type)),
                "{content_type}"
            );
        }
        let cut = ReceivedBody {
            cut: Some("broken"),
            ..received("image/png", png)
        };
        assert_eq!(block(cut).await.0, BodyKind::File, "a cut image is no image");
        let (kind, block) = block(received("image/png", b"")).await;
        assert_eq!((kind, block), (BodyKind::Empty, Value::Null));
    }

    /// The parts contain each byte of the text once, for every part size.
    #[tokio::test]
    async fn the_parts_of_a_stored_mcp_response_add_up_to_the_whole_text() {
        let text: String = "aä漢😀\n".chars().cycle().take(9_000).collect();
        for max in [1_000, 1_001, 1_002, 4_096, 17_000] {
            let store = MemoryResponses::default();
            let bound = || Some(MaxBytes(max));
            let (answer, block) = received("text/plain", text.as_bytes())
                .into_result(bound(), Some(&store))
                .await;
            let mut whole = json!(block)["text"].as_str().unwrap().to_owned();
            assert!(answer.cut.is_none() && whole.len() <= max);
            let mut rest = answer.rest;
            while let Some(next) = rest {
                assert_eq!(next.bytes, text.len() - whole.len());
                let (part, more) = read_next_part(&store, next.cursor.try_into().unwrap(), bound())
                    .await
                    .unwrap();
                assert!(part.len() <= max && part.len() > max - 4 || more.is_none());
                whole.push_str(&part);
                rest = more;
            }
            assert_eq!(whole, text);
        }
    }

    #[tokio::test]
    async fn paid_response_texts_are_complete_up_to_the_size_limit() {
        let long = "x".repeat(2 * MAX_KEPT_BYTES);
        let store = MemoryResponses::default();
        let (answer, block) = received("text/plain", long.as_bytes())
            .into_result(None, Some(&store))
            .await;
        let shown = json!(block)["text"].as_str().unwrap().len();
        assert_eq!((shown, answer.cut), (MaxBytes::default().0, Some("too_long")));
        assert_eq!(answer.rest.unwrap().bytes, MAX_KEPT_BYTES - shown);
        // A response that was not paid for is not stored.
        let (answer, block) = received("text/plain", long.as_bytes()).into_result(None, None).await;
        assert_eq!(json!(block)["text"].as_str().unwrap().len(), MaxBytes::default().0);
        assert!(answer.rest.is_none() && answer.cut == Some("too_long"));
        // If the store fails, the whole text is returned.
        let (answer, block) = received("text/plain", &long.as_bytes()[..100_000])
            .into_result(None, Some(&Broken))
            .await;
        assert_eq!(json!(block)["text"].as_str().unwrap().len(), 100_000);
        assert!(answer.rest.is_none() && answer.cut.is_none());
    }

    #[derive(Debug)]
    struct Broken;

    impl ResponseStore for Broken {
        fn store_response<'a>(
            &'a self,
            _: Uuid,
            _: &'a str,
        ) -> futures_util::future::BoxFuture<'a, Result<crate::kept::ResponseId, crate::kept::ResponsesUnavailable>>
        {
            Box::pin(async { Err(crate::kept::ResponsesUnavailable) })
        }

        fn read_part(
            &self,
            _: crate::kept::ResponseId,
            _: usize,
            _: usize,
        ) -> futures_util::future::BoxFuture<
            '_,
            Result<Option<crate::kept::ResponsePart>, crate::kept::ResponsesUnavailable>,
        > {
            Box::pin(async { Err(crate::kept::ResponsesUnavailable) })
        }
    }
}
