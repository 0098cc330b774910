//! The response bodies of the internal API.

use purser_domain::{
    Aggregates, Amount, Answer, CatalogPayment, Duration, Network, NextPricing, Operation, OperationUuid, PayeeAge,
    Probe, ProbeRecord, Quote, Service, Settlement, Timestamp, Unpayable, Url, VerifiedService,
};
use purser_store::ReconcileRequest;
use serde::Serialize;
use utoipa::ToSchema;

/// A settlement whose reconciliation was requested.
#[derive(Serialize, ToSchema)]
pub(crate) struct MarkedSettlement {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    #[schema(value_type = uuid::Uuid)]
    settlement_id: String,
    /// The settlement's status before the reconciliation: `authorized`, `confirmed` or `expired`.
    #[schema(value_type = String, example = "authorized")]
    receipt_status: &'static str,
    /// The time at which the reconciliation was requested.
    #[schema(format = DateTime)]
    reconcile_requested_at: String,
}

impl MarkedSettlement {
    pub(crate) fn new(settlement: &Settlement, request: &ReconcileRequest) -> Self {
        Self {
            agent_id: request.agent.to_string(),
            settlement_id: request.settlement.to_string(),
            receipt_status: settlement.state.state_name(),
            reconcile_requested_at: request.requested_at.to_string(),
        }
    }
}

/// A catalog service, with its probe results.
#[derive(Serialize, ToSchema)]
pub(crate) struct InternalService {
    #[schema(value_type = uuid::Uuid)]
    id: String,
    /// The service's version. Each update increases the version. Send it in `If-Match`.
    version: u64,
    slug: String,
    name: String,
    description: String,
    #[schema(format = Uri)]
    website: String,
    #[schema(format = Uri, required)]
    logo_url: Option<String>,
    /// The category, as in the public catalog.
    category: &'static str,
    /// The origin of the service's data, such as `curated` or `discovery`.
    source: String,
    /// The trust status, as in the public catalog.
    trust_status: &'static str,
    /// Whether agents may use the service.
    curated: bool,
    #[serde(flatten)]
    counts: Counts,
    /// The time of the latest probe request. Null if an operator never requested a probe.
    #[schema(format = DateTime, required)]
    probe_requested_at: Option<String>,
    /// Whether the provider asks for a different payment than the catalog has, for at least one operation.
    changed: bool,
    operations: Vec<InternalOperation>,
}

/// The number of a service's operations and the lowest price, as in the response of `GET /services`.
#[derive(Serialize, ToSchema)]
#[schema(as = InternalCounts)]
struct Counts {
    operation_count: usize,
    paid_operation_count: usize,
    free_operation_count: usize,
    /// The lowest operation price, in micro-USDC.
    min_price_units: u64,
}

/// An operation, with its probe results.
#[derive(Serialize, ToSchema)]
pub(crate) struct InternalOperation {
    #[schema(value_type = uuid::Uuid)]
    id: String,
    operation_id: String,
    /// The latest probe's result, as in the public catalog.
    availability: &'static str,
    label: String,
    method: String,
    /// The provider's URL, which may have path parameters `{name}`.
    #[schema(format = "uri-template")]
    endpoint: String,
    category: &'static str,
    execution: String,
    price_model: String,
    estimated_price_units: u64,
    #[schema(required)]
    max_price_units: Option<u64>,
    #[schema(value_type = Object)]
    params: serde_json::Value,
    /// Whether the agent chooses the page that the operation fetches. If true, the agent's `allowed_domains` apply to
    /// that page. If no value is stored, the category and the slug determine the value.
    fetches_target: bool,
    /// The operation's price and payee in the catalog. Payments to other payees are blocked.
    #[schema(required)]
    payment: Option<InternalPayment>,
    /// The time from which agents can pay `payment` at this price. After a change takes effect or is accepted, agents
    /// cannot pay until a further delay ends. Operators cannot shorten this delay. Null if agents can pay now, or if
    /// the change is only seconds old and not yet verified.
    #[schema(format = DateTime, required)]
    paid_from: Option<String>,
    /// The delayed values of `price_model`, `max_price_units` and `payment`. Null if no change is delayed. Withdraw the
    /// change to keep the current values. A second operator can accept the change to shorten the delay.
    #[schema(required)]
    next: Option<NextView>,
    /// Why calls cannot be paid: `operation_has_no_payment`, `operation_is_paid_on_another_network`,
    /// `operation_has_no_maximum_price` or `operation_is_called_over_http`. Null if calls can be paid.
    #[schema(value_type = Option<String>, required)]
    unpayable_reason: Option<&'static str>,
    /// The latest probe of this method and endpoint. Null before the first probe.
    #[schema(required)]
    probe: Option<ProbeView>,
    /// The payment that the provider asks for, if it differs from `payment`. Null otherwise. Use the `pin` operation to
    /// set `payment` to the provider's payment.
    #[schema(required)]
    change: Option<AnswerView>,
}

/// The payment for each call of an operation: the amount, the token, the network and the payee.
#[derive(Serialize, ToSchema)]
pub(crate) struct InternalPayment {
    #[schema(example = "exact")]
    scheme: String,
    #[schema(example = "base-sepolia")]
    network: &'static str,
    #[schema(example = "USDC")]
    token: &'static str,
    amount_units: u64,
    /// The address of the provider's wallet.
    pay_to: String,
}

/// A change of an operation's price or payee that takes effect later.
#[derive(Serialize, ToSchema)]
#[schema(as = InternalNextPayment)]
pub(crate) struct NextView {
    /// The time at which the change takes effect. `9999-12-31T23:59:59.999999Z` if the change takes effect only after a
    /// second operator accepts the change.
    #[schema(format = DateTime)]
    from: String,
    /// The operator who requested the change: `browser:<name>` if the operator acted in a browser.
    by: String,
    price_model: String,
    #[schema(required)]
    max_price_units: Option<u64>,
    payment: InternalPayment,
}

/// The result of a probe. A probe calls the provider's endpoint without paying.
#[derive(Serialize, ToSchema)]
#[schema(as = InternalProbe)]
pub(crate) struct ProbeView {
    #[schema(format = DateTime)]
    at: String,
    /// The availability: `paid_x402`, `free_verified` or `unverified`.
    availability: &'static str,
    /// The reason for `unverified`, in snake case: `timeout`, `blocked_address`, `status_500`, `not_x402`,
    /// `other_network`, … Null otherwise.
    #[schema(required, example = "timeout")]
    reason: Option<String>,
    /// The provider's latest response, which is from an earlier probe if this probe received no response.
    #[schema(required)]
    last_answer: Option<AnswerView>,
}

/// A provider's response to a probe: the payment that the provider asks for, and the time since which the response has
/// been the same.
#[derive(Serialize, ToSchema)]
#[schema(as = InternalAnswer)]
pub(crate) struct AnswerView {
    /// The payment. Null if the provider asks for no payment.
    #[schema(required)]
    payment: Option<InternalPayment>,
    /// The time since which the provider has sent this response.
    #[schema(format = DateTime)]
    since: String,
}

/// A service in the list, with counts instead of operations, and with its observed changes.
#[derive(Serialize, ToSchema)]
pub(crate) struct InternalServiceItem {
    #[schema(value_type = uuid::Uuid)]
    id: String,
    version: u64,
    slug: String,
    name: String,
    category: &'static str,
    source: String,
    trust_status: &'static str,
    curated: bool,
    #[serde(flatten)]
    counts: Counts,
    #[schema(format = DateTime, required)]
    probe_requested_at: Option<String>,
    /// The time since which every operation has been probed at least once. Null if an operation was never probed.
    #[schema(format = DateTime, required)]
    probed_at: Option<String>,
    /// The operations whose provider asks for a different payment than the catalog has.
    changes: Vec<ChangeView>,
    /// The operations that cannot be paid.
    unpayable: Vec<UnpayableView>,
}

/// An operation whose calls cannot be paid, with the reason.
#[derive(Serialize, ToSchema)]
#[schema(as = InternalUnpayable)]
pub(crate) struct UnpayableView {
    #[schema(value_type = uuid::Uuid)]
    id: String,
    operation_id: String,
    /// Why calls cannot be paid, as in the operation's `unpayable_reason`.
    #[schema(value_type = String, example = "operation_has_no_payment")]
    reason: &'static str,
}

/// The payment in the catalog, and the payment that the provider asks for.
#[derive(Serialize, ToSchema)]
#[schema(as = InternalChange)]
pub(crate) struct ChangeView {
    #[schema(value_type = uuid::Uuid)]
    id: String,
    operation_id: String,
    /// The operation's price and payee in the catalog. Payments to other payees are blocked.
    #[schema(required)]
    pinned: Option<InternalPayment>,
    /// The payment that the provider asks for. Null if the provider asks for no payment.
    #[schema(required)]
    seen: Option<InternalPayment>,
    /// The time since which the provider has asked for this payment.
    #[schema(format = DateTime)]
    since: String,
}

/// All services of the catalog, with the payment changes that probes observed.
#[derive(Serialize, ToSchema)]
pub(crate) struct InternalServiceList {
    pub(crate) services: Vec<InternalServiceItem>,
    /// The number of services in this response.
    pub(crate) count: usize,
}

/// A service's verified payees, and the change that this request accepted.
pub(crate) struct PaidFrom {
    /// The service's current row with verified payees. `None` if agents could never use the service.
    pub(crate) attested: Option<VerifiedService>,
    /// The operation whose change this request accepted, and the delay of accepted changes.
    pub(crate) accepted: Option<(OperationUuid, Duration)>,
}

impl PaidFrom {
    /// Returns the time from which the operation's payee and price can be paid, if that time is after `now`.
    fn payable_from(&self, operation: &Operation, now: Timestamp) -> Option<Timestamp> {
        let PayeeAge::Young(from) = self.attested.as_ref()?.payee_age(operation, now) else {
            return None;
        };
        // The row of verified payees is older than the acceptance, so the start time may still have the longer delay.
        let accepted = self.accepted.filter(|(accepted, _)| *accepted == operation.id);
        let from = accepted.map_or(from, |(_, delay)| from.min(now.after(delay)));
        (now < from).then_some(from)
    }
}

impl InternalService {
    /// Builds the view of a service at time `now`.
    pub(crate) fn new(
        service: &Service,
        record: &ProbeRecord,
        paid_from: &PaidFrom,
        network: Network,
        now: Timestamp,
    ) -> Self {
        let service = &record.with_probe_labels(service).at_time(now);
        Self {
            id: service.id.to_string(),
            version: service.version,
            slug: service.slug.to_string(),
            name: service.name.clone(),
            description: service.description.clone(),
            website: service.website.to_string(),
            logo_url: service.logo_url.as_ref().map(Url::to_string),
            category: service.category.name(),
            source: service.source.clone(),
            trust_status: service.trust_status.name(),
            curated: service.curated,
            counts: service.aggregates(now).into(),
            probe_requested_at: record.requested_at.map(|at| at.to_string()),
            changed: service
                .operations
                .iter()
                .any(|operation| record.changed_payment(operation, now).is_some()),
            operations: service
                .operations
                .iter()
                .map(|operation| InternalOperation::new(operation, service, (record, paid_from), (network, now)))
                .collect(),
        }
    }
}

impl InternalOperation {
    fn new(
        operation: &Operation,
        service: &Service,
        (record, paid_from): (&ProbeRecord, &PaidFrom),
        (network, now): (Network, Timestamp),
    ) -> Self {
        Self {
            id: operation.id.to_string(),
            operation_id: operation.slug.to_string(),
            availability: operation.availability.name(),
            label: operation.label.clone(),
            method: operation.method.clone(),
            endpoint: operation.endpoint.to_string(),
            category: operation.category.name(),
            execution: operation.execution.clone(),
            price_model: operation.price_model.clone(),
            estimated_price_units: operation.estimated_price.units(),
            max_price_units: operation.max_price.map(Amount::units),
            params: operation.params.clone(),
            fetches_target: operation.fetches_target(service.category),
            payment: operation.payment.as_ref().map(InternalPayment::from),
            paid_from: paid_from.payable_from(operation, now).map(|from| from.to_string()),
            next: operation.next.as_ref().map(NextView::from),
            unpayable_reason: operation.payable_limit(network, now).err().map(Unpayable::name),
            probe: record.latest_probe(operation).map(ProbeView::from),
            change: record.changed_payment(operation, now).map(AnswerView::from),
        }
    }
}

impl InternalServiceItem {
    /// Builds the list view of a service at time `now`.
    pub(crate) fn new(service: &Service, record: &ProbeRecord, network: Network, now: Timestamp) -> Self {
        let service = &record.with_probe_labels(service).at_time(now);
        let operations = &service.operations;
        let probed: Option<Vec<_>> = operations
            .iter()
            .map(|operation| record.latest_probe(operation).map(|probe| probe.at))
            .collect();
        let changes = operations.iter().filter_map(|operation| {
            let response = record.changed_payment(operation, now)?;
            Some(ChangeView {
                id: operation.id.to_string(),
                operation_id: operation.slug.to_string(),
                pinned: operation.payment.as_ref().map(InternalPayment::from),
                seen: quoted_payment(&response.quote),
                since: response.since.to_string(),
            })
        });
        Self {
            id: service.id.to_string(),
            version: service.version,
            slug: service.slug.to_string(),
            name: service.name.clone(),
            category: service.category.name(),
            source: service.source.clone(),
            trust_status: service.trust_status.name(),
            curated: service.curated,
            counts: service.aggregates(now).into(),
            unpayable: operations
                .iter()
                .filter_map(|operation| unpayable_view(operation, network, now))
                .collect(),
            probe_requested_at: record.requested_at.map(|at| at.to_string()),
            probed_at: probed
                .and_then(|times| times.into_iter().min())
                .map(|at| at.to_string()),
            changes: changes.collect(),
        }
    }

    pub(crate) const fn has_delayed_changes(&self) -> bool {
        !self.changes.is_empty()
    }
}

impl From<Aggregates> for Counts {
    fn from(aggregates: Aggregates) -> Self {
        Self {
            operation_count: aggregates.operations,
            paid_operation_count: aggregates.paid,
            free_operation_count: aggregates.free,
            min_price_units: aggregates.min_price.units(),
        }
    }
}

impl From<&CatalogPayment> for InternalPayment {
    fn from(payment: &CatalogPayment) -> Self {
        Self {
            scheme: payment.scheme.clone(),
            network: payment.network.name(),
            token: payment.network.token_symbol(),
            amount_units: payment.amount.units(),
            pay_to: payment.pay_to.to_string(),
        }
    }
}

impl From<&NextPricing> for NextView {
    fn from(next: &NextPricing) -> Self {
        Self {
            from: next.from.to_string(),
            by: next.by.to_string(),
            price_model: next.price_model.clone(),
            max_price_units: next.max_price.map(Amount::units),
            payment: InternalPayment::from(&next.payment),
        }
    }
}

impl From<&Probe> for ProbeView {
    fn from(probe: &Probe) -> Self {
        Self {
            at: probe.at.to_string(),
            availability: probe.availability().name(),
            reason: probe.seen.as_ref().err().map(ToString::to_string),
            last_answer: probe.answer.as_ref().map(AnswerView::from),
        }
    }
}

impl From<&Answer> for AnswerView {
    fn from(response: &Answer) -> Self {
        Self {
            payment: quoted_payment(&response.quote),
            since: response.since.to_string(),
        }
    }
}

fn unpayable_view(operation: &Operation, network: Network, now: Timestamp) -> Option<UnpayableView> {
    let reason = operation.payable_limit(network, now).err()?;
    Some(UnpayableView {
        id: operation.id.to_string(),
        operation_id: operation.slug.to_string(),
        reason: reason.name(),
    })
}

fn quoted_payment(quote: &Quote) -> Option<InternalPayment> {
    match quote {
        Quote::Paid(payment) => Some(payment.into()),
        Quote::Free => None,
    }
}
