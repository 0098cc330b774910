//! Clients of the authorization server. All clients are public (RFC 6749 §2.1) and have no secret. PKCE protects
//! authorization codes against theft.

use crate::{Fingerprint, oauth::grant::ClientName, oauth::redirect_uri::RedirectUri};
use serde_json::{Map, Value};
use std::fmt;
use url::Url;

/// The kind of client that a client id identifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientReference {
    /// Purser's own command line program, which uses only device codes.
    CommandLine,
    /// A client that registered itself (RFC 7591). The client id contains the client's metadata.
    Registered(ClientMetadata),
    /// A client with the metadata URL as the id (draft-ietf-oauth-client-id-metadata-document).
    Document(Url),
}

/// A client's id as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientId(String);

impl ClientId {
    /// The maximum length of a client id, in bytes.
    pub const MAX: usize = 1_024;
    /// The client id of Purser's own command line program.
    pub const COMMAND_LINE: &'static str = "purser-cli";

    /// Parses a client id from a request. Returns `None` for a text that is too long or empty.
    pub fn parse(text: &str) -> Option<Self> {
        (1..=Self::MAX).contains(&text.len()).then(|| Self(text.to_owned()))
    }

    /// Parses the `https` URL of a client's metadata. Rejects a URL without a path or with a fragment, user
    /// information or dot segments.
    pub fn document_url(&self) -> Option<Url> {
        let url = Url::parse(&self.0).ok()?;
        let is_plain = url.as_str() == self.0 && url.username().is_empty() && url.password().is_none();
        (is_plain && url.scheme() == "https" && url.path() != "/" && url.fragment().is_none()).then_some(url)
    }

    /// Returns the fingerprint of the id, which rows contain instead of the id.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::for_text(&self.0)
    }

    /// Returns the client id as the client sent it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The unverified metadata that a client states about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMetadata {
    /// The client's name, or the host of the first redirect URI if the client sent no valid name.
    pub name: ClientName,
    /// The redirect URIs; at least one.
    pub redirect_uris: Vec<RedirectUri>,
}

/// Why a client's metadata is rejected (RFC 7591 §3.2.2). Each variant has a message for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMetadataError {
    /// A redirect URI is invalid. The response has the error code `invalid_redirect_uri`.
    RedirectUri(String),
    /// Other metadata is invalid. The response has the error code `invalid_client_metadata`.
    Metadata(&'static str),
}

impl ClientMetadata {
    /// The maximum number of a client's redirect URIs. Code editors register about six.
    pub const MAX_REDIRECT_URIS: usize = 10;

    /// Parses the metadata of a registration (RFC 7591) or a metadata document. Unknown fields are ignored (RFC 7591
    /// §2), and a long name is truncated.
    pub fn from_document(document: &Map<String, Value>) -> Result<Self, ClientMetadataError> {
        let uris = document.get("redirect_uris").and_then(Value::as_array);
        let uris = uris.filter(|uris| (1..=Self::MAX_REDIRECT_URIS).contains(&uris.len()));
        let uris = uris.ok_or(ClientMetadataError::Metadata(
            "`redirect_uris` must be a list of 1 to 10 URIs",
        ))?;
        let uris = uris.iter().map(|uri| {
            let text = uri.as_str().unwrap_or_default();
            RedirectUri::parse(text)
                .map_err(|error| ClientMetadataError::RedirectUri(format!("a redirect URI {error}")))
        });
        let redirect_uris: Vec<RedirectUri> = uris.collect::<Result<_, _>>()?;
        let name = document.get("client_name").and_then(Value::as_str).unwrap_or_default();
        let short: String = name.trim().chars().take(ClientName::MAX).collect();
        let host = || {
            let first = redirect_uris.first().map_or("client", |uri| uri.origin().as_str());
            ClientName::parse(&first.chars().take(ClientName::MAX).collect::<String>())
        };
        let name = ClientName::parse(&short).or_else(host);
        Ok(Self {
            name: name.ok_or(ClientMetadataError::Metadata("`client_name` must be a text"))?,
            redirect_uris,
        })
    }

    /// Parses the metadata document from `url`. The document's `client_id` must be `url`.
    pub fn from_url_document(url: &Url, document: &Map<String, Value>) -> Result<Self, ClientMetadataError> {
        if document.get("client_id").and_then(Value::as_str) != Some(url.as_str()) {
            return Err(ClientMetadataError::Metadata("`client_id` must be the document's URL"));
        }
        Self::from_document(document)
    }

    /// Returns whether the authorization server may redirect a browser to this URI for the client.
    pub fn allows_redirect(&self, requested: &RedirectUri) -> bool {
        self.redirect_uris.iter().any(|registered| registered.allows(requested))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(document: &Value) -> Result<ClientMetadata, ClientMetadataError> {
        ClientMetadata::from_document(document.as_object().unwrap())
    }

    #[test]
    fn client_metadata_has_a_short_name_and_valid_redirect_uris() {
        let uri = "https://a.example/cb";
        let named = |name: Value| {
            let document = json!({"client_name": name, "redirect_uris": [uri], "software_id": {"x": 1}});
            parse(&document).unwrap().name.to_string()
        };
        assert_eq!(named(json!(" Claude ")), "Claude");
        assert_eq!(named(json!("x".repeat(61))), "x".repeat(60));
        for invalid in [json!(null), json!(""), json!(7), json!("a\nb"), json!("a\u{202e}b")] {
            assert_eq!(named(invalid), "a.example");
        }
        for uris in [
            json!(null),
            json!([]),
            json!("https://a.example/"),
            json!(vec![uri; 11]),
        ] {
            let error = parse(&json!({"redirect_uris": uris})).unwrap_err();
            assert!(matches!(error, ClientMetadataError::Metadata(_)), "{uris}");
        }
        for uri in [json!("http://a.example/cb"), json!(7)] {
            let error = parse(&json!({"redirect_uris": [uri]})).unwrap_err();
            assert!(matches!(error, ClientMetadataError::RedirectUri(_)), "{uri}");
        }
    }

    #[test]
    fn a_metadata_document_names_its_own_url() {
        let url = Url::parse("https://a.example/client.json").unwrap();
        let read = |id: &str| {
            let document = json!({"client_id": id, "redirect_uris": ["https://a.example/cb"]});
            ClientMetadata::from_url_document(&url, document.as_object().unwrap()).is_ok()
        };
        assert!(read("https://a.example/client.json"));
        for other in ["", "https://b.example/client.json", "https://a.example/client.json?x"] {
            assert!(!read(other), "{other}");
        }
    }

    #[test]
    fn the_id_of_a_metadata_document_is_a_plain_https_url() {
        let url = |text| ClientId::parse(text).unwrap().document_url().is_some();
        assert!(url("https://a.example/client.json") && url("https://a.example:8443/c?x=1"));
        for other in [
            "purser-cli",
            "http://a.example/client.json",
            "https://a.example",
            "https://a.example/",
            "https://a.example/c#x",
            "https://u@a.example/c",
            "https://A.example/c",
            "https://a.example/x/../c",
        ] {
            assert!(!url(other), "{other}");
        }
        assert_eq!(ClientId::parse(&"x".repeat(1_025)), None);
    }
}
