//! The response bodies of the internal API.

use purser_api::view;
use purser_domain::{
    AgentId, Aggregates, Amount, Answer, CatalogPayment, Duration, Network, NextPricing, Operation, OperationUuid,
    PayeeAge, Probe, ProbeRecord, Quote, Service, ServiceId, Settlement, SettlementId, Timestamp, Unpayable, Url,
    VerifiedService,
};
use purser_store::ReconcileRequest;

purser_api::views! {
    /// A settlement whose reconciliation was requested.
    pub(crate) struct MarkedSettlement {
        pub(crate) fn new(settlement: &Settlement, request: &ReconcileRequest);

        agent_id: AgentId = request.agent,
        settlement_id: SettlementId = request.settlement,
        /// The settlement's status before the reconciliation: `authorized`, `confirmed` or `expired`.
        #[schema(value_type = String, example = "authorized")]
        receipt_status: &'static str = settlement.state.state_name(),
        /// The time at which the reconciliation was requested.
        reconcile_requested_at: Timestamp = request.requested_at,
    }

    /// A catalog service, with its probe results.
    pub(crate) struct InternalService {
        /// Builds the view of a service at time `now`.
        pub(crate) fn new(
            service: &Service,
            record: &ProbeRecord,
            paid_from: &PaidFrom,
            network: Network,
            now: Timestamp,
        );
        let service = &record.service_with_probe_results(service).at_time(now);

        id: ServiceId = service.id,
        /// The service's version. Each update increases the version. Send it in `If-Match`.
        version: u64 = service.version,
        slug: String = service.slug.to_string(),
        name: String = service.name.clone(),
        description: String = service.description.clone(),
        #[schema(format = Uri)]
        website: String = service.website.to_string(),
        #[schema(format = Uri)]
        logo_url: Option<String> = service.logo_url.as_ref().map(Url::to_string),
        /// The category, as in the public catalog.
        category: &'static str = service.category.name(),
        /// The origin of the service's data, such as `curated` or `discovery`.
        source: String = service.source.clone(),
        /// The trust status, as in the public catalog.
        trust_status: &'static str = service.trust_status.name(),
        /// Whether agents may use the service.
        curated: bool = service.curated,
        #[serde(flatten)]
        counts: Counts = service.aggregates(now).into(),
        /// The time of the latest probe request. Null if an operator never requested a probe.
        probe_requested_at: Option<Timestamp> = record.requested_at,
        /// Whether the provider asks for a different payment than the catalog has, for at least one operation.
        changed: bool = service
            .operations
            .iter()
            .any(|operation| record.changed_payment(operation, now).is_some()),
        operations: Vec<InternalOperation> = service
            .operations
            .iter()
            .map(|operation| InternalOperation::new(operation, service, (record, paid_from), (network, now)))
            .collect(),
    }

    /// The number of a service's operations and the lowest price, as in the response of `GET /services`.
    struct Counts as InternalCounts {
        fn from(aggregates: Aggregates);

        operation_count: usize = aggregates.operations,
        paid_operation_count: usize = aggregates.paid,
        free_operation_count: usize = aggregates.free,
        /// The lowest operation price, in micro-USDC.
        min_price_units: u64 = aggregates.min_price.units(),
    }

    /// An operation, with its probe results.
    pub(crate) struct InternalOperation {
        fn new(
            operation: &Operation,
            service: &Service,
            (record, paid_from): (&ProbeRecord, &PaidFrom),
            (network, now): (Network, Timestamp),
        );

        id: OperationUuid = operation.id,
        operation_id: String = operation.slug.to_string(),
        /// The latest probe's result, as in the public catalog.
        availability: &'static str = operation.availability.name(),
        label: String = operation.label.clone(),
        method: String = operation.method.clone(),
        /// The provider's URL, which may have path parameters `{name}`.
        #[schema(format = "uri-template")]
        endpoint: String = operation.endpoint.to_string(),
        category: &'static str = operation.category.name(),
        execution: String = operation.execution.clone(),
        price_model: String = operation.price_model.clone(),
        estimated_price_units: u64 = operation.estimated_price.units(),
        max_price_units: Option<u64> = operation.max_price.map(Amount::units),
        #[schema(value_type = Object)]
        params: serde_json::Value = operation.params.clone(),
        /// Whether the agent chooses the page that the operation fetches. If true, the agent's `allowed_domains` apply
        /// to that page. If no value is stored, the category and the slug determine the value.
        fetches_target: bool = operation.fetches_target(service.category),
        /// The operation's price and payee in the catalog. Payments to other payees are blocked.
        payment: Option<InternalPayment> = operation.payment.as_ref().map(InternalPayment::from),
        /// The time from which agents can pay `payment` at this price. After a change takes effect or is accepted,
        /// agents cannot pay until a further delay ends. Operators cannot shorten this delay. Null if agents can pay
        /// now, or if the change is only seconds old and not yet verified.
        paid_from: Option<Timestamp> = paid_from.future_payable_time(operation, now),
        /// The delayed values of `price_model`, `max_price_units` and `payment`. Null if no change is delayed. Withdraw
        /// the change to keep the current values. A second operator can accept the change to shorten the delay.
        next: Option<NextView> = operation.next.as_ref().map(NextView::from),
        /// Why calls cannot be paid: `operation_has_no_payment`, `operation_is_paid_on_another_network`,
        /// `operation_has_no_maximum_price` or `operation_is_called_over_http`. Null if calls can be paid.
        #[schema(value_type = Option<String>)]
        unpayable_reason: Option<&'static str> = operation.payee_and_max_price(network, now).err().map(Unpayable::name),
        /// The latest probe of this method and endpoint. Null before the first probe.
        probe: Option<ProbeView> = record.latest_probe(operation).map(ProbeView::from),
        /// The payment that the provider asks for, if it differs from `payment`. Null otherwise. Use the `pin`
        /// operation to set `payment` to the provider's payment.
        change: Option<AnswerView> = record.changed_payment(operation, now).map(AnswerView::from),
    }

    /// The payment for each call of an operation: the amount, the token, the network and the payee.
    pub(crate) struct InternalPayment {
        fn from(payment: &CatalogPayment);

        #[schema(example = "exact")]
        scheme: String = payment.scheme.clone(),
        #[schema(example = "base-sepolia")]
        network: &'static str = payment.network.name(),
        #[schema(example = "USDC")]
        token: &'static str = payment.network.token_symbol(),
        amount_units: u64 = payment.amount.units(),
        /// The address of the provider's wallet.
        pay_to: String = payment.pay_to.to_string(),
    }

    /// A change of an operation's price or payee that takes effect later.
    pub(crate) struct NextView as InternalNextPayment {
        fn from(next: &NextPricing);

        /// The time at which the change takes effect. `9999-12-31T23:59:59.999999Z` if the change takes effect only
        /// after a second operator accepts the change.
        from: Timestamp = next.from,
        /// The operator who requested the change: `browser:<name>` if the operator acted in a browser.
        by: String = next.by.to_string(),
        price_model: String = next.price_model.clone(),
        max_price_units: Option<u64> = next.max_price.map(Amount::units),
        payment: InternalPayment = InternalPayment::from(&next.payment),
    }

    /// The result of a probe. A probe calls the provider's endpoint without paying.
    pub(crate) struct ProbeView as InternalProbe {
        fn from(probe: &Probe);

        at: Timestamp = probe.at,
        /// The availability: `paid_x402`, `free_verified` or `unverified`.
        availability: &'static str = probe.availability().name(),
        /// The reason for `unverified`, in snake case: `timeout`, `blocked_address`, `status_500`, `not_x402`,
        /// `other_network`, … Null otherwise.
        #[schema(example = "timeout")]
        reason: Option<String> = probe.seen.as_ref().err().map(ToString::to_string),
        /// The provider's latest response, which is from an earlier probe if this probe received no response.
        last_answer: Option<AnswerView> = probe.answer.as_ref().map(AnswerView::from),
    }

    /// A provider's response to a probe: the payment that the provider asks for, and the time since which the response
    /// has been the same.
    pub(crate) struct AnswerView as InternalAnswer {
        fn from(response: &Answer);

        /// The payment. Null if the provider asks for no payment.
        payment: Option<InternalPayment> = quoted_payment(&response.quote),
        /// The time since which the provider has sent this response.
        since: Timestamp = response.since,
    }

    /// A service in the list, with counts instead of operations, and with its observed changes.
    pub(crate) struct InternalServiceItem {
        /// Builds the list view of a service at time `now`.
        pub(crate) fn new(service: &Service, record: &ProbeRecord, network: Network, now: Timestamp);
        let service = &record.service_with_probe_results(service).at_time(now);
        let operations = &service.operations;
        let probed: Option<Vec<_>> = operations
            .iter()
            .map(|operation| record.latest_probe(operation).map(|probe| probe.at))
            .collect();
        let changes = operations.iter().filter_map(|operation| {
            let response = record.changed_payment(operation, now)?;
            Some(ChangeView {
                id: operation.id,
                operation_id: operation.slug.to_string(),
                pinned: operation.payment.as_ref().map(InternalPayment::from),
                seen: quoted_payment(&response.quote),
                since: response.since,
            })
        });

        id: ServiceId = service.id,
        version: u64 = service.version,
        slug: String = service.slug.to_string(),
        name: String = service.name.clone(),
        category: &'static str = service.category.name(),
        source: String = service.source.clone(),
        trust_status: &'static str = service.trust_status.name(),
        curated: bool = service.curated,
        #[serde(flatten)]
        counts: Counts = service.aggregates(now).into(),
        probe_requested_at: Option<Timestamp> = record.requested_at,
        /// The time since which every operation has been probed at least once. Null if an operation was never probed.
        probed_at: Option<Timestamp> = probed.and_then(|times| times.into_iter().min()),
        /// The operations whose provider asks for a different payment than the catalog has.
        changes: Vec<ChangeView> = changes.collect(),
        /// The operations that cannot be paid.
        unpayable: Vec<UnpayableView> = operations
            .iter()
            .filter_map(|operation| unpayable_operation_view(operation, network, now))
            .collect(),
    }
}

/// An operation whose calls cannot be paid, with the reason.
#[view(InternalUnpayable)]
pub(crate) struct UnpayableView {
    id: OperationUuid,
    operation_id: String,
    /// Why calls cannot be paid, as in the operation's `unpayable_reason`.
    #[schema(value_type = String, example = "operation_has_no_payment")]
    reason: &'static str,
}

/// An operation whose provider asks for another price or payee than the catalog has.
#[view(InternalChange)]
pub(crate) struct ChangeView {
    id: OperationUuid,
    operation_id: String,
    /// The operation's price and payee in the catalog. Payments to other payees are blocked.
    pinned: Option<InternalPayment>,
    /// The payment that the provider asks for. Null if the provider asks for no payment.
    seen: Option<InternalPayment>,
    /// The time since which the provider has asked for this payment.
    since: Timestamp,
}

/// All services of the catalog, with the payment changes that probes observed.
#[view]
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
    /// Returns the time from which the operation's payee and price can be paid, if it is after `now`.
    fn future_payable_time(&self, operation: &Operation, now: Timestamp) -> Option<Timestamp> {
        let PayeeAge::Young(from) = self.attested.as_ref()?.payee_age(operation, now) else {
            return None;
        };
        // The function `events` updates verified payees later, so `from` may still have the longer delay.
        let accepted = self.accepted.filter(|(accepted, _)| *accepted == operation.id);
        let from = accepted.map_or(from, |(_, delay)| from.min(now.after(delay)));
        (now < from).then_some(from)
    }
}

impl InternalServiceItem {
    pub(crate) const fn has_delayed_changes(&self) -> bool {
        !self.changes.is_empty()
    }
}

fn unpayable_operation_view(operation: &Operation, network: Network, now: Timestamp) -> Option<UnpayableView> {
    let reason = operation.payee_and_max_price(network, now).err()?;
    Some(UnpayableView {
        id: operation.id,
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
