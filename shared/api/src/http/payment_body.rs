//! The bodies of authorize, preflight and complete. Code below this does not see raw bodies.

use crate::http::body::{annotated, member, members, object};
use crate::{CalledUrl, HttpMethod, Member, Place, Problems, Schemas, ShownText, Text};
use purser_domain::{
    Amount, ApprovalId, Called, Error, ErrorKind, Fingerprint, Intent, Metadata, Network, NoTransaction, Offer,
    OperationSlug, Problem, ProviderRequest, Raise, RaisedCaps, Result, Target, Timestamp, TransactionId, TxHash,
    is_no_proof, transaction_hash_in,
};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use utoipa::{PartialSchema as _, ToSchema};

crate::body! {
    /// The call of the provider.
    struct OriginalRequest and others {
        /// HTTP method.
        method: HttpMethod,
        /// The URL of the provider call.
        url: CalledUrl,
        /// Hash of the exact request body; binds the decision to it.
        body_hash: Option<Text<255>>,
    }
}

crate::body! {
    /// One payment to judge, reserve and sign.
    pub struct AuthorizeBody {
        /// The decoded provider payment requirement: an x402 v1 or v2 object, or one entry of its `accepts`.
        payment_requirement: Requirement,
        /// The most that this call may cost, in micro-units.
        max_payment_units: Amount,
        original_request: OriginalRequest,
        /// A repeated request with the same key returns the same payment. A different request with the same key is a
        /// conflict.
        idempotency_key: Text<255>,
        /// The service's slug or UUID. If absent, it is found by `original_request.url`.
        service_id: Option<Text<128>>,
        /// The operation's slug. If absent, it is found by `original_request.url`.
        operation_id: Option<OperationSlug>,
        /// The ID of an approved approval, sent when the agent repeats its request.
        approval_id: Option<ApprovalId>,
        /// Ignored. Accepted so that the body of `POST /x402/check` can be sent unchanged.
        replay_key: Option<Text<255>>,
        metadata: Option<CallMetadata>,
    }
}

crate::body! {
    /// One payment to judge without effect.
    pub struct CheckBody {
        /// The decoded provider payment requirement: an x402 v1 or v2 object, or one entry of its `accepts`.
        payment_requirement: Requirement,
        /// The most that this call may cost, in micro-units.
        max_payment_units: Amount,
        original_request: OriginalRequest,
        /// A repeated request with the same key is evaluated again. A different request with the same key within one
        /// day is a conflict.
        replay_key: Text<255>,
        /// The service's slug or UUID. If absent, it is found by `original_request.url`.
        service_id: Option<Text<128>>,
        /// The operation's slug. If absent, it is found by `original_request.url`.
        operation_id: Option<OperationSlug>,
        /// The approval that would be sent to authorize. The result takes it into account.
        approval_id: Option<ApprovalId>,
        /// Ignored. Accepted so that the body of `POST /x402/authorize` can be sent unchanged.
        idempotency_key: Option<Text<255>>,
        metadata: Option<CallMetadata>,
    }
}

crate::body! {
    /// One call to judge that is made without a payment.
    pub struct UnpaidCheckBody {
        original_request: OriginalRequest,
        /// The service's slug or UUID. If absent, it is found by `original_request.url`.
        service_id: Option<Text<128>>,
        /// The operation's slug. If absent, it is found by `original_request.url`.
        operation_id: Option<OperationSlug>,
        metadata: Option<CallMetadata>,
    }
}

crate::body! {
    /// The provider's answer.
    pub struct CompleteBody {
        /// The provider's payment response: the raw base64 header, or an object keyed by header name.
        payment_response_header: ProvenHash,
        /// The transaction's hash. Optional if the payment response names it; if both are sent, they must agree.
        tx_hash: Option<TxHash>,
    }
}

crate::body! {
    /// A request for higher caps, after a refusal.
    pub struct RaiseBody {
        /// The `transaction_id` of the refusal. There is one request for each.
        transaction_id: Text<36>,
        /// The cap per call to ask for, if the refused payment was above it.
        max_per_call_units: Option<Amount>,
        /// The cap per 24 hours to ask for, if the refused payment was above what was left of it.
        max_per_day_units: Option<Amount>,
        /// The time at which the raise is to end: at most seven days from now.
        until: Timestamp,
        /// Why you ask, for your owner.
        reason: ShownText<500>,
    }
}

/// The parsed request for a raise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaiseCall {
    /// The refusal; `None` if no decision can have this id.
    pub refused: Option<TransactionId>,
    /// The caps that the agent asks for, at least one.
    pub caps: RaisedCaps,
    /// The end of the raise: after now, and not too late.
    pub until: Timestamp,
    /// Why it asks.
    pub reason: String,
}

impl RaiseCall {
    /// Reads the body at `now`.
    pub fn parse(body: &Value, now: Timestamp) -> Result<Self> {
        let mut problems = Problems::default();
        let call = RaiseBody::read(body, Place::Body, &mut problems).map(|body| Self {
            refused: TransactionId::parse(&body.transaction_id.0),
            caps: RaisedCaps {
                max_per_call: body.max_per_call_units,
                max_per_day: body.max_per_day_units,
            },
            until: body.until,
            reason: body.reason.0,
        });
        if let Some(call) = &call {
            let mut found = Vec::new();
            if call.caps == RaisedCaps::default() {
                found.push(Problem::at(
                    "/max_per_day_units",
                    "must be given, or `max_per_call_units`",
                ));
            }
            if call.until <= now || call.until > now.after(Raise::LONGEST) {
                found.push(Problem::at("/until", "must be in the next seven days"));
            }
            problems.extend(found);
        }
        problems.finish(call)
    }
}

/// The parsed request of authorize.
#[derive(Clone, Debug)]
pub struct AuthorizeRequest {
    /// The payment.
    pub intent: Intent,
    /// The hash of the idempotency key.
    pub idempotency_key: Fingerprint,
    /// The approval in the request, if it is a retry after an approval.
    pub approval: Option<ApprovalId>,
}

/// The parsed request of a preflight.
#[derive(Clone, Debug)]
pub struct CheckRequest {
    /// The payment.
    pub intent: Intent,
    /// The hash of the replay key.
    pub replay_key: Fingerprint,
    /// The approval that would be sent to authorize.
    pub approval: Option<ApprovalId>,
}

/// The parsed request of a check of an unpaid call.
#[derive(Clone, Debug)]
pub struct UnpaidCheckRequest {
    /// The call.
    pub request: ProviderRequest,
    /// The service, as the request names it.
    pub service: Option<String>,
    /// The operation, as the request names it.
    pub operation: Option<OperationSlug>,
    /// The page that a scrape or crawl is to fetch.
    pub target: Option<Target>,
}

/// The parsed request of complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleteRequest {
    /// The transaction to look up. A provider's claim is never proof; the chain decides.
    pub tx_hash: TxHash,
}

/// The members that name a call and are not part of the fingerprint: one body has the same fingerprint at authorize and
/// check. Of the provider's requirement, only the terms of the chosen entry are part of it.
const NOT_SAID: [&str; 4] = ["idempotency_key", "replay_key", "approval_id", REQUIREMENT];

/// The member with the provider's requirement.
pub const REQUIREMENT: &str = "payment_requirement";

/// `intent`, which was read from this body, in the form of the earlier call with the fingerprint `first`; `None` if
/// that call was another request. The provider may since have added cheaper entries beside the one that was chosen
/// then.
pub fn as_first_made(intent: &Intent, body: &Value, network: Network, first: &Fingerprint) -> Option<Intent> {
    let said = Fingerprint::of_request(body, &NOT_SAID);
    let is_first = |offer: &Offer| Fingerprint::of_payment(&said, network, offer) == *first;
    let offers = Offer::each(body.get(REQUIREMENT)?, network);
    let offer = offers.into_iter().find(is_first);
    let offer = offer.or_else(|| (of_whole_body(body) == *first).then_some(intent.offer))?;
    Some(Intent {
        offer,
        fingerprint: *first,
        ..intent.clone()
    })
}

/// The fingerprint that earlier versions stored: it includes the whole requirement.
fn of_whole_body(body: &Value) -> Fingerprint {
    Fingerprint::of_request(body, &["idempotency_key", "replay_key", "approval_id"])
}

/// The payment in either body.
macro_rules! intent {
    ($asked:ident, $offer:ident, $body:ident, $network:ident) => {{
        let Requirement(()) = $asked.payment_requirement;
        let said = Fingerprint::of_request($body, &NOT_SAID);
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
            fingerprint: Fingerprint::of_payment(&said, $network, &$offer),
        }
    }};
}

impl AuthorizeRequest {
    /// Reads the body of authorize (`docs/spec.md` §4.4, `docs/decisions.md` §4).
    pub fn parse(body: &Value, network: Network) -> Result<Self> {
        let (asked, offer) = with_offer::<AuthorizeBody>(body, network)?;
        let intent = intent!(asked, offer, body, network);
        Ok(Self {
            intent,
            idempotency_key: Fingerprint::of_text(&asked.idempotency_key.0),
            approval: asked.approval_id,
        })
    }
}

impl CheckRequest {
    /// Reads the body of a preflight (`docs/spec.md` §4.3).
    pub fn parse(body: &Value, network: Network) -> Result<Self> {
        let (asked, offer) = with_offer::<CheckBody>(body, network)?;
        let intent = intent!(asked, offer, body, network);
        Ok(Self {
            intent,
            replay_key: Fingerprint::of_text(&asked.replay_key.0),
            approval: asked.approval_id,
        })
    }
}

impl UnpaidCheckRequest {
    /// Reads the body of a check of an unpaid call.
    pub fn parse(body: &Value) -> Result<Self> {
        let asked = UnpaidCheckBody::parse(body)?;
        Ok(Self {
            request: asked.original_request.into(),
            service: asked.service_id.map(|service| service.0),
            operation: asked.operation_id,
            target: asked.metadata.and_then(|known| known.target),
        })
    }

    /// The call with its names.
    pub fn called(&self) -> Called<'_> {
        Called {
            request: &self.request,
            service: self.service.as_deref(),
            operation: self.operation.as_ref(),
        }
    }
}

/// The body, and the entry of its payment requirement that would be paid.
fn with_offer<T: Member>(body: &Value, network: Network) -> Result<(T, Offer)> {
    let mut problems = Problems::default();
    let asked = T::read(body, Place::Body, &mut problems);
    let requirement = body.get(REQUIREMENT).filter(|value| !value.is_null());
    let offer = requirement.and_then(|requirement| {
        Offer::choose(requirement, network)
            .map_err(|none| problems.extend(none.problems))
            .ok()
    });
    problems.finish(asked.zip(offer))
}

/// The member with the provider's payment response.
pub const PAYMENT_RESPONSE: &str = "payment_response_header";

/// Whether complete requires the provider's proof, or also accepts the assertion that the provider answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderProof {
    /// `payment_response_header` is required: production.
    Required,
    /// `provider_ok: true` may replace it: development on a local chain only (`docs/spec.md` §7 rule 4). The on-chain
    /// check is the same.
    OrAssertion,
}

impl CompleteRequest {
    /// Reads the body of complete (`docs/spec.md` §4.5).
    ///
    /// `tx_hash` and a proof that names a transaction must agree.
    pub fn parse(body: &Value, proof: ProviderProof) -> Result<Self> {
        const HEADER: &str = PAYMENT_RESPONSE;
        let mut body = Cow::Borrowed(body);
        let mut is_asserted = false;
        if proof == ProviderProof::OrAssertion
            && let Some(members) = body.to_mut().as_object_mut()
        {
            is_asserted = members.remove("provider_ok") == Some(Value::Bool(true));
            if is_asserted && members.get(HEADER).is_none_or(Value::is_null) {
                // The assertion that replaces the proof names no transaction.
                members.insert(HEADER.to_owned(), json!({}));
            }
        }
        if body.is_object() && body.get(HEADER).is_none_or(is_no_proof) && !is_asserted {
            return Err(ErrorKind::ProviderProofRequired.into());
        }
        let CompleteBody {
            payment_response_header: ProvenHash(proven),
            tx_hash: given,
        } = CompleteBody::parse(&body)?;
        match (given, proven) {
            (Some(given), Ok(proven)) if given != proven => {
                let words = "must be the transaction that `payment_response_header` names, or be left out";
                Err(Error::invalid(vec![Problem::at("/tx_hash", words)]))
            }
            (Some(tx_hash), _) | (None, Ok(tx_hash)) => Ok(Self { tx_hash }),
            (None, Err(why)) => Err(ErrorKind::SettlementTransactionHashRequired(why).into()),
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
    /// The provider's requirement in any form: [`with_offer`] parses it by the rules of x402.
    struct Requirement(()): |_| Ok(()), json!({"type": "object"})
}

/// The agent's other data about the call: the target page, and members with any name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CallMetadata {
    target: Option<Target>,
    metadata: Metadata,
}

impl Member for CallMetadata {
    fn read(value: &Value, place: Place<'_>, problems: &mut Problems) -> Option<Self> {
        let members = members(value, place, &[], true, problems)?;
        let target = member(members, Metadata::TARGET, place, problems)?;
        let metadata = Metadata::parse(members, &place.to_string());
        let metadata = metadata.map_err(|found| problems.extend(found)).ok()?;
        Some(Self { target, metadata })
    }

    fn describe(schemas: &mut Schemas) -> Value {
        let about =
            " The page that a scrape or crawl operation fetches; its host is checked against `allowed_domains`.";
        let target = annotated(Option::<Target>::describe(schemas), &[about], json!({}));
        let schema = object(
            &["Further members describe the call: at most 16, of 2,048 bytes of JSON in all."],
            vec![(Metadata::TARGET, false, target)],
            true,
        );
        let others = json!({
            "additionalProperties": {"type": ["string", "number", "null"]},
            "propertyNames": {"type": "string", "pattern": "^[!-~]{1,64}$"},
        });
        schemas.add("Metadata", annotated(schema, &[], others))
    }
}

/// The transaction that the provider's payment response names, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProvenHash(std::result::Result<TxHash, NoTransaction>);

impl Member for ProvenHash {
    fn read(value: &Value, _: Place<'_>, problems: &mut Problems) -> Option<Self> {
        let hash = transaction_hash_in(value).map_err(|problem| problems.extend([problem]));
        hash.ok().map(Self)
    }

    fn describe(schemas: &mut Schemas) -> Value {
        schemas.add_schema("ProviderProof", PaymentResponse::schema())
    }
}

/// The raw header, or headers by name.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "a schema; the value is read by `transaction_hash_in`, as protocol versions have it"
)]
enum PaymentResponse {
    /// Base64 of JSON.
    Raw(String),
    /// An object of headers. Names are case-insensitive; each value is a string or an array with one string.
    Headers(Map<String, Value>),
}
