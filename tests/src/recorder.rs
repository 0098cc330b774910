//! A server that records its requests, and responds as the path says. It can also serve as an HTTP proxy.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use flate2::Compression;
use flate2::read::{GzEncoder, ZlibEncoder};
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio_rustls::server::TlsStream;

/// The decoded text of the compressed responses.
pub const TEXT: &str = r#"{"text":"Grüße"}"#;
/// The uncompressed size of `/bomb` in bytes: more than any client reads.
pub const BOMB_BYTES: u64 = 96 * 1024 * 1024;

/// The maximum size of a request's body, in bytes.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// A recorded request.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// The request target: a path, or a whole URL if the server is used as a proxy.
    pub target: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as text.
    pub body: String,
}

impl RecordedRequest {
    /// Returns a header's value; empty if the header is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

/// A running server that records its requests.
#[derive(Clone)]
pub struct Recorder {
    /// The server's URL, without a final slash.
    pub url: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Recorder {
    /// Starts the server. `reply` may override the responses of this module's paths.
    pub async fn start(reply: impl Fn(&str) -> Option<Response> + Clone + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        Self::serve(listener, url, reply)
    }

    /// Starts the server with TLS, and writes its self-signed certificate to the file `certificate`.
    pub async fn start_tls(certificate: &Path) -> Self {
        let key = certificate.with_extension("key");
        let mut openssl = Command::new("openssl");
        openssl.args(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=purser-recorder".split(' '),
        );
        openssl
            .args([
                "-addext",
                "subjectAltName=DNS:localhost",
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-keyout",
            ])
            .arg(&key)
            .arg("-out")
            .arg(certificate);
        assert!(openssl.output().expect("openssl is installed").status.success());
        let chain = CertificateDer::pem_file_iter(certificate).expect("it was written");
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(
            chain.collect::<Result<_, _>>().expect("it is a certificate"),
            PrivateKeyDer::from_pem_file(key).expect("it is a key"),
        );
        let acceptor = TlsAcceptor::from(Arc::new(config.expect("the key is the certificate's")));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        Self::serve(Tls { listener, acceptor }, format!("https://localhost:{port}"), |_| {
            None
        })
    }

    fn serve(
        listener: impl Listener<Addr = SocketAddr>,
        url: String,
        reply: impl Fn(&str) -> Option<Response> + Clone + Send + Sync + 'static,
    ) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let record = move |State(requests): State<Arc<Mutex<Vec<RecordedRequest>>>>, request: Request| async move {
            let target = request.uri().to_string();
            let (head, body) = request.into_parts();
            let body = to_bytes(body, MAX_BODY_BYTES).await.expect("a short body");
            let recorded = RecordedRequest {
                target: target.clone(),
                headers: head.headers,
                body: String::from_utf8_lossy(&body).into_owned(),
            };
            requests.lock().expect("not poisoned").push(recorded);
            if target.ends_with("/hangs") {
                std::future::pending::<()>().await;
            }
            reply(&target).unwrap_or_else(|| named(head.uri.path()))
        };
        let router = Router::new().fallback(record).with_state(Arc::clone(&requests));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, requests }
    }

    /// Takes the requests since the last call of this method.
    pub fn take(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut self.requests.lock().expect("not poisoned"))
    }
}

/// Accepts TLS connections. A client that rejects the certificate sends no request.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Returns the response that the last segment of a path names.
fn named(path: &str) -> Response {
    let encoded = |encoding: &'static str, body: Vec<u8>| {
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (header::CONTENT_ENCODING, HeaderValue::from_static(encoding)),
        ];
        (headers, body).into_response()
    };
    match path.rsplit('/').next().unwrap_or_default() {
        "gzip" => encoded("gzip", packed(GzEncoder::new(TEXT.as_bytes(), Compression::fast()))),
        // The deflate of HTTP is zlib (RFC 9110, section 8.4.1.2).
        "deflate" => encoded(
            "deflate",
            packed(ZlibEncoder::new(TEXT.as_bytes(), Compression::fast())),
        ),
        "br" => encoded("br", brotli_of(TEXT)),
        "bomb" => encoded(
            "gzip",
            packed(GzEncoder::new(
                std::io::repeat(b' ').take(BOMB_BYTES),
                Compression::fast(),
            )),
        ),
        "empty" => encoded("gzip", vec![]),
        "broken" => encoded("gzip", TEXT.as_bytes().to_vec()),
        "latin1" => (
            [(header::CONTENT_TYPE, "application/json; charset=iso-8859-1")],
            b"{\"text\":\"Gr\xfc\xdfe\"}".to_vec(),
        )
            .into_response(),
        "redirect" => {
            let to: [(HeaderName, &str); 1] = [(header::LOCATION, "/redirected")];
            (StatusCode::TEMPORARY_REDIRECT, to).into_response()
        }
        _ => Response::new(Body::from(TEXT)),
    }
}

/// Encodes a text with Brotli, uncompressed (RFC 7932, section 9.2).
fn brotli_of(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len().saturating_sub(1)).expect("a short text");
    // WBITS 16 (one bit 0); not last (0); four nibbles (00); the length less one (16 bits); stored (1).
    let bits = u32::from(length) << 4 | 1 << 20;
    let mut bytes = bits.to_le_bytes()[..3].to_vec();
    bytes.extend_from_slice(text.as_bytes());
    // The last block is empty.
    bytes.push(0b11);
    bytes
}

fn packed(mut encoder: impl Read) -> Vec<u8> {
    let mut body = Vec::new();
    encoder.read_to_end(&mut body).expect("it is read from memory");
    body
}
