//! Parses the request bodies of the routes authorize (`POST /x402/authorize`), preflight (`POST /x402/check`) and
//! complete (`POST /x402/settlements/{settlementId}/complete`) into typed values.

use crate::http::body::{object_fields, object_schema, parse_field, with_description};
use crate::{BodyPath, CalledUrl, HttpMethod, Member, Schemas, ShownText, Text, ValidationErrors};
use purser_domain::{
    Amount, ApprovalId, Error, ErrorKind, Fingerprint, IncreasedCaps, Intent, LimitIncrease, Metadata, Network,
    NoTransaction, Offer, OperationSlug, ProviderCall, ProviderRequest, Result, Target, Timestamp, TransactionId,
    TxHash, ValidationError, find_transaction_hash, is_proof_absent,
};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use utoipa::{PartialSchema as _, ToSchema};

crate::body! {
    /// The HTTP request to the provider for which the agent pays.
    struct OriginalRequest and others {
        /// The HTTP method of the provider call.
        method: HttpMethod,
        /// The URL of the provider call.
        url: CalledUrl,
        /// The hash of the exact request body. The decision is bound to this hash.
        body_hash: Option<Text<255>>,
    }
}

crate::body! {
    /// One payment to evaluate, reserve and sign.
    pub struct AuthorizeBody {
        /// The decoded payment requirements of the provider: an x402 v1 or v2 object, or one element of its `accepts`.
        payment_requirement: Requirement,
        /// The maximum price that you accept for this call, in micro-units.
        max_payment_units: Amount,
        original_request: OriginalRequest,
        /// The idempotency key. Repeating the request with the same `idempotency_key` returns the same payment. A
        /// different request with the same `idempotency_key` is rejected with 409.
        idempotency_key: Text<255>,
        /// The service's slug or UUID. If absent, the service is found by `original_request.url`.
        service_id: Option<Text<128>>,
        /// The operation's slug. If absent, the operation is found by `original_request.url`.
        operation_id: Option<OperationSlug>,
        /// The ID of the approval that the owner granted. Send it when you repeat the request after the approval.
        approval_id: Option<ApprovalId>,
        /// Ignored. Accepted so that the body of `POST /x402/check` can be sent unchanged.
        replay_key: Option<Text<255>>,
        metadata: Option<CallMetadata>,
    }
}

crate::body! {
    /// One payment to evaluate without reserving or signing.
    pub struct CheckBody {
        /// The decoded payment requirements of the provider: an x402 v1 or v2 object, or one element of its `accepts`.
        payment_requirement: Requirement,
        /// The maximum price that you accept for this call, in micro-units.
        max_payment_units: Amount,
        original_request: OriginalRequest,
        /// The replay key. Repeating the request with the same `replay_key` evaluates the payment again. A different
        /// request with the same `replay_key` within one day is rejected with 409.
        replay_key: Text<255>,
        /// The service's slug or UUID. If absent, the service is found by `original_request.url`.
        service_id: Option<Text<128>>,
        /// The operation's slug. If absent, the operation is found by `original_request.url`.
        operation_id: Option<OperationSlug>,
        /// The ID of the approval that you would send to `POST /x402/authorize`. The payment is evaluated with this
        /// approval.
        approval_id: Option<ApprovalId>,
        /// Ignored. Accepted so that the body of `POST /x402/authorize` can be sent unchanged.
        idempotency_key: Option<Text<255>>,
        metadata: Option<CallMetadata>,
    }
}

crate::body! {
    /// A provider call that requires no payment. Purser evaluates whether the agent may make the call.
    pub struct UnpaidCheckBody {
        original_request: OriginalRequest,
        /// The service's slug or UUID. If absent, the service is found by `original_request.url`.
        service_id: Option<Text<128>>,
        /// The operation's slug. If absent, the operation is found by `original_request.url`.
        operation_id: Option<OperationSlug>,
        metadata: Option<CallMetadata>,
    }
}

crate::body! {
    /// The provider's response to the paid request.
    pub struct CompleteBody {
        /// The provider's payment response: the raw base64 header, or an object keyed by header name.
        payment_response_header: ProvenHash,
        /// The transaction's hash. Optional if the payment response contains the hash; if both are sent, they must be
        /// equal.
        tx_hash: Option<TxHash>,
    }
}

crate::body! {
    /// A request to the owner for temporarily higher caps. Send the request after a blocked payment.
    pub struct RaiseBody {
        /// The `transaction_id` of the blocked payment. You can request higher caps once per blocked payment.
        transaction_id: Text<36>,
        /// The requested cap per call, in micro-units. You can send this field only if the payment was blocked because
        /// its amount was above the current cap per call.
        max_per_call_units: Option<Amount>,
        /// The requested cap per 24 hours, in micro-units. You can send this field only if the payment was blocked
        /// because its amount was above the remaining amount of the current cap per 24 hours.
        max_per_day_units: Option<Amount>,
        /// The time at which the higher caps end: at most seven days from now.
        until: Timestamp,
        /// The reason, which is shown to the owner.
        reason: ShownText<500>,
    }
}

/// A parsed request of an agent for temporarily higher caps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitIncreaseCall {
    /// The id of the blocked decision; `None` if the id in the request is malformed.
    pub refused: Option<TransactionId>,
    /// The requested caps, at least one.
    pub caps: IncreasedCaps,
    /// The time at which the higher caps expire.
    pub until: Timestamp,
    /// The agent's reason, which is shown to the owner.
    pub reason: String,
}

impl LimitIncreaseCall {
    /// Parses the body. `until` must be after `now` and within the maximum duration.
    pub fn parse(body: &Value, now: Timestamp) -> Result<Self> {
        let mut errors = ValidationErrors::default();
        let call = RaiseBody::read(body, BodyPath::Body, &mut errors).map(|body| Self {
            refused: TransactionId::parse(&body.transaction_id.0),
            caps: IncreasedCaps {
                max_per_call: body.max_per_call_units,
                max_per_day: body.max_per_day_units,
            },
            until: body.until,
            reason: body.reason.0,
        });
        if let Some(call) = &call {
            let mut found = Vec::new();
            if call.caps == IncreasedCaps::default() {
                found.push(ValidationError::at_path(
                    "/max_per_day_units",
                    "must be given, or `max_per_call_units`",
                ));
            }
            if call.until <= now || call.until > now.after(LimitIncrease::MAX_DURATION) {
                found.push(ValidationError::at_path("/until", "must be in the next seven days"));
            }
            errors.extend(found);
        }
        errors.finish(call)
    }
}

/// A parsed request to `POST /x402/authorize`.
#[derive(Clone, Debug)]
pub struct AuthorizeRequest {
    /// The payment to evaluate.
    pub intent: Intent,
    /// The hash of `idempotency_key`.
    pub idempotency_key: Fingerprint,
    /// The id of the approval in the request, if any.
    pub approval: Option<ApprovalId>,
}

/// A parsed request to `POST /x402/check`.
#[derive(Clone, Debug)]
pub struct CheckRequest {
    /// The payment to evaluate.
    pub intent: Intent,
    /// The hash of `replay_key`.
    pub replay_key: Fingerprint,
    /// The id of the approval that the agent would send to `POST /x402/authorize`, if any.
    pub approval: Option<ApprovalId>,
}

/// A parsed request to check a provider call that needs no payment.
#[derive(Clone, Debug)]
pub struct UnpaidCheckRequest {
    /// The method, the URL and the body hash of the provider call.
    pub request: ProviderRequest,
    /// The service's slug or UUID, if the agent sent one.
    pub service: Option<String>,
    /// The operation's slug, if the agent sent one.
    pub operation: Option<OperationSlug>,
    /// The page that a scrape or crawl operation fetches.
    pub target: Option<Target>,
}

/// A parsed request to `POST /x402/settlements/{settlementId}/complete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleteRequest {
    /// The hash of the transaction to look up on chain. Only the chain proves the payment.
    pub tx_hash: TxHash,
}

/// The fields that are not part of a request's fingerprint, so that authorize and preflight compute the same
/// fingerprint. The chosen element of the payment requirements is added to the fingerprint separately.
const EXCLUDED_FIELDS: [&str; 4] = ["idempotency_key", "replay_key", "approval_id", REQUIREMENT];

/// The field with the provider's payment requirements.
pub const REQUIREMENT: &str = "payment_requirement";

/// Returns `intent` with the payment requirements that an earlier call with the same `body` chose, because the provider
/// may have added cheaper requirements.
///
/// `earlier_fingerprint` is the fingerprint of the earlier call. Returns `None` if the earlier call was a different
/// request.
pub fn intent_with_earlier_requirements(
    intent: &Intent,
    body: &Value,
    network: Network,
    earlier_fingerprint: &Fingerprint,
) -> Option<Intent> {
    let said = Fingerprint::for_request(body, &EXCLUDED_FIELDS);
    let is_first = |offer: &Offer| Fingerprint::for_payment(&said, network, offer) == *earlier_fingerprint;
    let offers = Offer::list_payable(body.get(REQUIREMENT)?, network);
    Some(Intent {
        offer: offers.into_iter().find(is_first)?,
        fingerprint: *earlier_fingerprint,
        ..intent.clone()
    })
}

/// Builds the [`Intent`] from a parsed body of `POST /x402/authorize` or `POST /x402/check`.
macro_rules! intent {
    ($asked:ident, $offer:ident, $body:ident, $network:ident) => {{
        let Requirement(()) = $asked.payment_requirement;
        let said = Fingerprint::for_request($body, &EXCLUDED_FIELDS);
        let (target, metadata) = $asked
            .metadata
            .map(|known| (known.target, known.metadata))
            .unwrap_or_default();
        Intent {
            offer: $offer,
            max_payment: $asked.max_payment_units,
            request: $asked.original_request.into(),
            service: $asked.service_id.map(|service| service.0),
            operation: $asked.operation_id,
            target,
            metadata,
            fingerprint: Fingerprint::for_payment(&said, $network, &$offer),
        }
    }};
}

impl AuthorizeRequest {
    /// Parses the body of `POST /x402/authorize` (`docs/spec.md` §4.4, `docs/decisions.md` §4).
    pub fn parse(body: &Value, network: Network) -> Result<Self> {
        let (request, offer) = parse_request_and_requirements::<AuthorizeBody>(body, network)?;
        let intent = intent!(request, offer, body, network);
        Ok(Self {
            intent,
            idempotency_key: Fingerprint::for_text(&request.idempotency_key.0),
            approval: request.approval_id,
        })
    }
}

impl CheckRequest {
    /// Parses the body of `POST /x402/check` (`docs/spec.md` §4.3).
    pub fn parse(body: &Value, network: Network) -> Result<Self> {
        let (request, offer) = parse_request_and_requirements::<CheckBody>(body, network)?;
        let intent = intent!(request, offer, body, network);
        Ok(Self {
            intent,
            replay_key: Fingerprint::for_text(&request.replay_key.0),
            approval: request.approval_id,
        })
    }
}

impl UnpaidCheckRequest {
    /// Parses the body of a check for a provider call that needs no payment.
    pub fn parse(body: &Value) -> Result<Self> {
        let request = UnpaidCheckBody::parse(body)?;
        Ok(Self {
            request: request.original_request.into(),
            service: request.service_id.map(|service| service.0),
            operation: request.operation_id,
            target: request.metadata.and_then(|known| known.target),
        })
    }

    /// Returns the provider call, with the service and the operation that the agent named.
    pub fn provider_call(&self) -> ProviderCall<'_> {
        ProviderCall {
            request: &self.request,
            service: self.service.as_deref(),
            operation: self.operation.as_ref(),
        }
    }
}

/// Parses the body, and chooses the element of the payment requirements that the agent pays.
fn parse_request_and_requirements<T: Member>(body: &Value, network: Network) -> Result<(T, Offer)> {
    let mut errors = ValidationErrors::default();
    let request = T::read(body, BodyPath::Body, &mut errors);
    let requirement = body.get(REQUIREMENT).filter(|value| !value.is_null());
    let offer = requirement.and_then(|requirement| {
        Offer::choose_cheapest(requirement, network)
            .map_err(|none| errors.extend(none.problems))
            .ok()
    });
    errors.finish(request.zip(offer))
}

/// The field with the provider's payment response.
pub const PAYMENT_RESPONSE: &str = "payment_response_header";

/// Whether `POST /x402/settlements/{settlementId}/complete` accepts the field `provider_ok` in place of the provider's
/// payment response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderProof {
    /// `payment_response_header` is required, as in production.
    Required,
    /// `provider_ok: true` may replace `payment_response_header`, for development on a local chain (`docs/spec.md` §7
    /// rule 4). Purser still checks the transaction on chain.
    OrAssertion,
}

impl CompleteRequest {
    /// Parses the body of `POST /x402/settlements/:settlementId/complete` (`docs/spec.md` §4.5).
    ///
    /// Transaction hashes in `tx_hash` and in the provider's payment response must be equal.
    pub fn parse(body: &Value, proof: ProviderProof) -> Result<Self> {
        const HEADER: &str = PAYMENT_RESPONSE;
        let mut body = Cow::Borrowed(body);
        let mut is_asserted = false;
        if proof == ProviderProof::OrAssertion
            && let Some(fields) = body.to_mut().as_object_mut()
        {
            is_asserted = fields.remove("provider_ok") == Some(Value::Bool(true));
            if is_asserted && fields.get(HEADER).is_none_or(Value::is_null) {
                // Adds an empty payment response, which contains no transaction, so `tx_hash` is required.
                fields.insert(HEADER.to_owned(), json!({}));
            }
        }
        if body.is_object() && body.get(HEADER).is_none_or(is_proof_absent) && !is_asserted {
            return Err(ErrorKind::ProviderProofRequired.into());
        }
        let CompleteBody {
            payment_response_header: ProvenHash(proven),
            tx_hash: given,
        } = CompleteBody::parse(&body)?;
        match (given, proven) {
            (Some(given), Ok(proven)) if given != proven => {
                let words = "must be the transaction that `payment_response_header` names, or be left out";
                Err(Error::invalid(vec![ValidationError::at_path("/tx_hash", words)]))
            }
            (Some(tx_hash), _) | (None, Ok(tx_hash)) => Ok(Self { tx_hash }),
            (None, Err(reason)) => Err(ErrorKind::SettlementTransactionHashRequired(reason).into()),
        }
    }
}

impl From<OriginalRequest> for ProviderRequest {
    fn from(request: OriginalRequest) -> Self {
        Self {
            method: request.method.0,
            url: request.url.0,
            body_hash: request.body_hash.map(|hash| hash.0),
        }
    }
}

crate::field! {
    /// The unparsed payment requirements of the provider. [`parse_request_and_requirements`] parses them.
    struct Requirement(()): |_| Ok(()), json!({"type": "object"})
}

/// The agent's additional data about the call: the page that the call fetches, and fields with any names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CallMetadata {
    target: Option<Target>,
    metadata: Metadata,
}

impl Member for CallMetadata {
    fn read(value: &Value, path: BodyPath<'_>, errors: &mut ValidationErrors) -> Option<Self> {
        let fields = object_fields(value, path, &[], true, errors)?;
        let target = parse_field(fields, Metadata::TARGET, path, errors)?;
        let metadata = Metadata::parse(fields, &path.to_string());
        let metadata = metadata.map_err(|found| errors.extend(found)).ok()?;
        Some(Self { target, metadata })
    }

    fn describe(schemas: &mut Schemas) -> Value {
        let about =
            " The page that a scrape or crawl operation fetches; its host is checked against `allowed_domains`.";
        let target = with_description(Option::<Target>::describe(schemas), &[about], json!({}));
        let schema = object_schema(
            &[
                "Additional data about the call. Besides `target_url`, the object can have up to 16 fields with any names. The JSON of these fields has at most 2,048 bytes.",
            ],
            vec![(Metadata::TARGET, false, target)],
            true,
        );
        let others = json!({
            "additionalProperties": {"type": ["string", "number", "null"]},
            "propertyNames": {"type": "string", "pattern": "^[!-~]{1,64}$"},
        });
        schemas.add("Metadata", with_description(schema, &[], others))
    }
}

/// The hash of the transaction in the provider's payment response, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProvenHash(std::result::Result<TxHash, NoTransaction>);

impl Member for ProvenHash {
    fn read(value: &Value, _: BodyPath<'_>, errors: &mut ValidationErrors) -> Option<Self> {
        let hash = find_transaction_hash(value).map_err(|error| errors.extend([error]));
        hash.ok().map(Self)
    }

    fn describe(schemas: &mut Schemas) -> Value {
        schemas.add_schema("ProviderProof", PaymentResponse::schema())
    }
}

/// The raw payment response header, or an object of headers.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "a schema; the value is read by `transaction_hash_in`, as protocol versions have it"
)]
enum PaymentResponse {
    /// The header's value: base64 of JSON.
    Raw(String),
    /// An object of headers. Names are case-insensitive; each value is a string or an array with one string.
    Headers(Map<String, Value>),
}
