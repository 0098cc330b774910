//! What a caller asks: request bodies, parsed once, at the edge. Below this nothing meets a raw body.

use crate::{
    Amount, ApprovalId, Catalog, ErrorKind, Fields, Fingerprint, Metadata, Network, Offer, Operation, OperationSlug,
    Problem, ProviderRequest, Result, Service, Target, TxHash, is_no_proof, target::parse_web_url, transaction_hash_in,
};
use serde_json::Value;

/// A payment that an agent wants to make.
#[derive(Clone, Debug)]
pub struct Intent {
    /// The entry of the provider's requirement that would be paid.
    pub offer: Offer,
    /// The agent's own ceiling.
    pub max_payment: Amount,
    /// The provider call that is paid for.
    pub request: ProviderRequest,
    /// The service as it was named: slug or UUID.
    pub service: Option<String>,
    /// The operation as it was named.
    pub operation: Option<OperationSlug>,
    /// The page that a scrape or crawl is pointed at.
    pub target: Option<Target>,
    /// What else the agent says of the call.
    pub metadata: Metadata,
    /// What makes this request this request.
    pub fingerprint: Fingerprint,
}

/// The body of authorize.
#[derive(Clone, Debug)]
pub struct AuthorizeRequest {
    /// The payment.
    pub intent: Intent,
    /// The hash of the idempotency key.
    pub idempotency_key: Fingerprint,
    /// The approval that a retry carries.
    pub approval: Option<ApprovalId>,
}

/// The body of a preflight.
#[derive(Clone, Debug)]
pub struct CheckRequest {
    /// The payment.
    pub intent: Intent,
    /// The hash of the replay key.
    pub replay_key: Fingerprint,
}

/// The body of complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleteRequest {
    /// The transaction to look up. A provider's word for it is never proof; the chain decides.
    pub tx_hash: TxHash,
}

/// The longest idempotency and replay keys, in bytes.
const MAX_KEY_BYTES: usize = 255;
/// The longest URLs, in bytes: what browsers and servers commonly take.
const MAX_URL_BYTES: usize = 8_192;

impl AuthorizeRequest {
    /// Reads the body of authorize (`docs/spec.md` §4.4, `docs/decisions.md` §4).
    pub fn parse(body: &Value, network: Network) -> Result<Self> {
        const LEFT_OUT: [&str; 2] = ["idempotency_key", "approval_id"];
        let fields = required(
            body,
            &[
                "payment_requirement",
                "max_payment_units",
                "original_request",
                "idempotency_key",
            ],
        )?;
        let mut reader = Reader { fields, network };
        reader.fields.refuse_unknown(&[
            "payment_requirement",
            "max_payment_units",
            "original_request",
            "idempotency_key",
            "service_id",
            "operation_id",
            "approval_id",
            "metadata",
        ]);
        let intent = reader.intent(body, &LEFT_OUT);
        let key = reader
            .fields
            .text("idempotency_key", MAX_KEY_BYTES)
            .map(Fingerprint::of_text);
        let approval = reader.fields.read("approval_id", |value| {
            value.as_str().and_then(ApprovalId::parse).ok_or("must be a UUID")
        });
        reader.fields.finish_body()?;
        match (intent, key) {
            (Some(intent), Some(idempotency_key)) => Ok(Self {
                intent,
                idempotency_key,
                approval,
            }),
            // Unreachable: a member that is absent was required, and one that is wrong left a problem.
            _ => Err(ErrorKind::InvalidRequest(vec![Problem::at("", "is incomplete")]).into()),
        }
    }
}

impl CheckRequest {
    /// Reads the body of a preflight (`docs/spec.md` §4.3).
    pub fn parse(body: &Value, network: Network) -> Result<Self> {
        let fields = required(
            body,
            &[
                "payment_requirement",
                "max_payment_units",
                "original_request",
                "replay_key",
            ],
        )?;
        let mut reader = Reader { fields, network };
        reader.fields.refuse_unknown(&[
            "payment_requirement",
            "max_payment_units",
            "original_request",
            "replay_key",
            "service_id",
            "operation_id",
            "metadata",
        ]);
        let intent = reader.intent(body, &["replay_key"]);
        let key = reader
            .fields
            .text("replay_key", MAX_KEY_BYTES)
            .map(Fingerprint::of_text);
        reader.fields.finish_body()?;
        match (intent, key) {
            (Some(intent), Some(replay_key)) => Ok(Self { intent, replay_key }),
            // Unreachable, as above.
            _ => Err(ErrorKind::InvalidRequest(vec![Problem::at("", "is incomplete")]).into()),
        }
    }
}

/// Whether complete takes the provider's proof alone, or also a bare assertion that it answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderProof {
    /// `payment_response_header` is required: production.
    Required,
    /// `provider_ok: true` may stand in for it: development on a local chain only (`docs/spec.md` §7 rule 4). The
    /// on-chain check is the same.
    OrAssertion,
}

impl CompleteRequest {
    /// Reads the body of complete (`docs/spec.md` §4.5).
    ///
    /// When both `tx_hash` and the proof name a hash, `tx_hash` is looked up.
    pub fn parse(body: &Value, proof: ProviderProof) -> Result<Self> {
        let mut fields = Fields::of(body, "").map_err(|problem| ErrorKind::InvalidRequest(vec![problem]))?;
        let asserted = proof == ProviderProof::OrAssertion && fields.get("provider_ok") == Some(&Value::Bool(true));
        if fields.get("payment_response_header").is_none_or(is_no_proof) && !asserted {
            return Err(ErrorKind::ProviderProofRequired.into());
        }
        let known: &[&str] = match proof {
            ProviderProof::Required => &["payment_response_header", "tx_hash"],
            ProviderProof::OrAssertion => &["payment_response_header", "tx_hash", "provider_ok"],
        };
        fields.refuse_unknown(known);
        let given = fields.read("tx_hash", |value| {
            value
                .as_str()
                .and_then(TxHash::parse)
                .ok_or("must be `0x` and sixty-four hexadecimal digits")
        });
        let proven = match fields.get("payment_response_header").map(transaction_hash_in) {
            Some(Err(problem)) => {
                fields.extend([problem]);
                None
            }
            Some(Ok(hash)) => hash,
            None => None,
        };
        fields.finish().map_err(ErrorKind::InvalidRequest)?;
        let tx_hash = given.or(proven).ok_or(ErrorKind::SettlementTransactionHashRequired)?;
        Ok(Self { tx_hash })
    }
}

/// The members of the body, of which these are required, in the order in which they are documented.
pub(crate) fn required<'a>(body: &'a Value, names: &[&'static str]) -> Result<Fields<'a>> {
    let mut fields = Fields::of(body, "").map_err(|problem| ErrorKind::InvalidRequest(vec![problem]))?;
    for name in names {
        fields.require(name);
    }
    Ok(fields)
}

struct Reader<'a> {
    fields: Fields<'a>,
    network: Network,
}

impl Reader<'_> {
    /// The members that authorize and preflight share.
    fn intent(&mut self, body: &Value, left_out: &[&str]) -> Option<Intent> {
        let offer = self.offer();
        let max_payment = self.fields.read("max_payment_units", |value| {
            value
                .as_u64()
                .and_then(Amount::from_units)
                .ok_or_else(|| format!("must be a whole number of micro-units from 0 to {}", Amount::MAX))
        });
        let request = self.provider_request();
        let service = self.fields.text("service_id", 128).map(str::to_owned);
        let operation = self.fields.read("operation_id", |value| {
            value.as_str().and_then(OperationSlug::parse).ok_or(OperationSlug::FORM)
        });
        let (target, metadata) = self.metadata();
        Some(Intent {
            offer: offer?,
            max_payment: max_payment?,
            request: request?,
            service,
            operation,
            target,
            metadata,
            fingerprint: Fingerprint::of_request(body, left_out),
        })
    }

    fn offer(&mut self) -> Option<Offer> {
        match Offer::choose(self.fields.get("payment_requirement")?, self.network) {
            Ok(offer) => Some(offer),
            Err(none) => {
                self.fields.extend(none.problems);
                None
            }
        }
    }

    /// The descriptor may carry more than we read (`docs/spec.md` §4.3); `body_hash` binds the decision through the
    /// fingerprint.
    fn provider_request(&mut self) -> Option<ProviderRequest> {
        let value = self.fields.get("original_request")?;
        let mut descriptor = match Fields::of(value, self.fields.path_of("original_request")) {
            Ok(descriptor) => descriptor,
            Err(problem) => {
                self.fields.extend([problem]);
                return None;
            }
        };
        for name in ["method", "url"] {
            descriptor.require(name);
        }
        let method = descriptor.read("method", |value| {
            let token = |text: &&str| (1..=16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphabetic());
            value
                .as_str()
                .filter(token)
                .map(str::to_ascii_uppercase)
                .ok_or("must be an HTTP method")
        });
        let url = descriptor.read("url", |value| {
            let text = value.as_str().filter(|text| text.len() <= MAX_URL_BYTES);
            text.and_then(parse_web_url).ok_or("must be an http or https URL")
        });
        let body_hash = descriptor.text("body_hash", MAX_KEY_BYTES).map(str::to_owned);
        self.fields.adopt(descriptor);
        Some(ProviderRequest {
            method: method?,
            url: url?,
            body_hash,
        })
    }

    fn metadata(&mut self) -> (Option<Target>, Metadata) {
        let Some(value) = self.fields.get("metadata") else {
            return (None, Metadata::default());
        };
        let path = self.fields.path_of("metadata");
        let (target, metadata) = match (Fields::of(value, path.as_str()), value.as_object()) {
            (Ok(mut fields), Some(members)) => {
                let target = fields.read(Metadata::TARGET, |value| match value.as_str() {
                    Some(text) if text.len() <= MAX_URL_BYTES => Target::parse(text),
                    _ => Err("must be an http or https URL with a host name"),
                });
                self.fields.adopt(fields);
                (target, Metadata::parse(members, &path))
            }
            (Err(problem), _) => (None, Err(vec![problem])),
            (Ok(_), None) => (None, Ok(Metadata::default())),
        };
        let metadata = metadata.unwrap_or_else(|problems| {
            self.fields.extend(problems);
            Metadata::default()
        });
        (target, metadata)
    }
}

/// The catalog entry that an intent is about.
#[derive(Clone, Copy, Debug)]
pub struct Purchase<'a> {
    /// The service.
    pub service: &'a Service,
    /// The operation that is called; `None` where what is called is none of the service's, and so can't be paid.
    pub operation: Option<&'a Operation>,
}

impl<'a> Purchase<'a> {
    /// Finds what an intent is about (`docs/decisions.md` §3). What is called, by method and address, decides; the names that
    /// the intent gives only narrow it, and must agree.
    ///
    /// Only services that are in the catalog, in its curated set and not disabled can be bought from: naming another one, or
    /// calling a host where none of them is, is `service_not_found`. A call of an open service's host, or for a named one,
    /// that is no operation of any is out of every scope: a purchase without an operation. Names that contradict what is
    /// called are a malformed request.
    pub fn of(intent: &'a Intent, catalog: &'a Catalog) -> Result<Self> {
        let ProviderRequest { method, url, .. } = &intent.request;
        let named = match &intent.service {
            None => None,
            Some(reference) => {
                let service = catalog.by_reference(reference).filter(|service| service.is_open());
                Some(service.ok_or(ErrorKind::ServiceNotFound)?)
            }
        };
        let mut called = catalog.called(method, url).peekable();
        if called.peek().is_none() {
            let service = named
                .or_else(|| catalog.at_host(url))
                .ok_or(ErrorKind::ServiceNotFound)?;
            return Ok(Self {
                service,
                operation: None,
            });
        }
        let mut of_service = called
            .filter(|(service, _)| named.is_none_or(|named| named.id == service.id))
            .peekable();
        let mismatch = |path, message| Err(ErrorKind::InvalidRequest(vec![Problem::at(path, message)]).into());
        if of_service.peek().is_none() {
            return mismatch(
                "/service_id",
                "names another service than the one that `original_request` calls",
            );
        }
        let is_named = |operation: &Operation| intent.operation.as_ref().is_none_or(|named| operation.slug == *named);
        match of_service.find(|(_, operation)| is_named(operation)) {
            Some((service, operation)) => Ok(Self {
                service,
                operation: Some(operation),
            }),
            None => mismatch(
                "/operation_id",
                "names another operation than the one that `original_request` calls",
            ),
        }
    }
}
