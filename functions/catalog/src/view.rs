//! The JSON of the catalog (`docs/spec.md` §2.1 to §2.3).

use purser_api::view;
use purser_domain::{
    Amount, Availability, CatalogPayment, Category, NextPricing, Operation, OperationUuid, Service, ServiceId,
    Timestamp, TrustStatus,
};
use utoipa::ToSchema;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};

purser_api::views! {
    /// A service in the list of services. Instead of the operations, the item has the numbers of operations and the
    /// lowest price.
    pub(crate) struct ServiceItem<'a> {
        pub(crate) fn new(service: &'a Service, now: Timestamp);
        let aggregates = service.aggregates(now);

        id: ServiceId = service.id,
        /// The service's slug. Paths accept the slug in place of the UUID.
        slug: &'a str = service.slug.as_str(),
        name: &'a str = &service.name,
        description: &'a str = &service.description,
        #[schema(format = Uri)]
        website: &'a str = service.website.as_str(),
        #[schema(format = Uri)]
        logo_url: Option<&'a str> = service.logo_url.as_ref().map(purser_domain::Url::as_str),
        #[schema(inline, value_type = CategoryName)]
        category: &'static str = service.category.name(),
        /// The origin of the service's data, such as `curated` or `discovery`.
        source: &'a str = &service.source,
        #[schema(inline, value_type = TrustStatusName)]
        trust_status: &'static str = service.trust_status.name(),
        operation_count: usize = aggregates.operations,
        paid_operation_count: usize = aggregates.paid,
        free_operation_count: usize = aggregates.free,
        /// The lowest price of the service's operations, in micro-units.
        min_price_units: u64 = aggregates.min_price.units(),
    }
}

/// The services that match the query, without their operations. Disabled services are left out by default.
#[view]
pub(crate) struct ServiceList<'a> {
    pub(crate) services: Vec<ServiceItem<'a>>,
    /// The number of services in this response.
    pub(crate) count: usize,
}

purser_api::views! {
    /// A service with all its operations.
    pub(crate) struct ServiceDetail<'a> {
        pub(crate) fn new(service: &'a Service, now: Timestamp);

        id: ServiceId = service.id,
        slug: &'a str = service.slug.as_str(),
        name: &'a str = &service.name,
        description: &'a str = &service.description,
        #[schema(format = Uri)]
        website: &'a str = service.website.as_str(),
        #[schema(format = Uri)]
        logo_url: Option<&'a str> = service.logo_url.as_ref().map(purser_domain::Url::as_str),
        #[schema(inline, value_type = CategoryName)]
        category: &'static str = service.category.name(),
        #[schema(inline, value_type = TrustStatusName)]
        trust_status: &'static str = service.trust_status.name(),
        operations: Vec<OperationView<'a>> = service
            .operations
            .iter()
            .map(|operation| OperationView::new(operation, now))
            .collect(),
    }

    /// An operation of a service: one of the provider's endpoints, with its price.
    pub(crate) struct OperationView<'a> {
        fn new(operation: &'a Operation, now: Timestamp);
        let pricing = operation.pricing_at(now);

        id: OperationUuid = operation.id,
        /// The operation's slug, which agents send as `operation_id`.
        operation_id: &'a str = operation.slug.as_str(),
        #[schema(inline, value_type = AvailabilityName)]
        availability: &'static str = operation.availability.name(),
        label: &'a str = &operation.label,
        /// The HTTP method of the provider's endpoint.
        method: &'a str = &operation.method,
        /// The URL of the provider's endpoint. It may have path parameters, `{name}` (RFC 6570).
        #[schema(format = "uri-template")]
        endpoint: &'a str = operation.endpoint.as_str(),
        #[schema(inline, value_type = CategoryName)]
        category: &'static str = operation.category.name(),
        execution: &'a str = &operation.execution,
        price_model: &'a str = pricing.price_model,
        estimated_price_units: u64 = operation.estimated_price.units(),
        max_price_units: Option<u64> = pricing.max_price.map(Amount::units),
        /// The operation's parameters, as the provider describes them.
        #[schema(value_type = Object)]
        params: &'a serde_json::Value = &operation.params,
        payment: Option<PaymentView<'a>> = pricing.payment.map(PaymentView::from),
        /// The price and payment that will replace `price_model`, `max_price_units` and `payment`; absent if no change
        /// is pending.
        #[omit_none]
        next: Option<NextView<'a>> = operation.delayed_pricing(now).map(NextView::from),
    }

    /// How an operation will be paid after the pending change.
    pub(crate) struct NextView<'a> as NextOperationPayment {
        fn from(next: &'a NextPricing);

        /// The time from which this price and payment apply; `9999-12-31T23:59:59.999999Z` if a second operator must
        /// accept the change first.
        from: Timestamp = next.from,
        price_model: &'a str = &next.price_model,
        max_price_units: Option<u64> = next.max_price.map(Amount::units),
        payment: PaymentView<'a> = PaymentView::from(&next.payment),
    }

    /// The payment for each call of an operation: the amount, the token, the network and the payee.
    pub(crate) struct PaymentView<'a> as OperationPayment {
        fn from(payment: &'a CatalogPayment);

        scheme: &'a str = &payment.scheme,
        network: &'static str = payment.network.name(),
        token: &'static str = payment.network.token_symbol(),
        amount_units: u64 = payment.amount.units(),
        /// The address of the provider's wallet.
        pay_to: String = payment.pay_to.to_string(),
    }
}

/// Declares a schema for each of these domain enums. The schema lists the values' names, such as `listed`.
macro_rules! names {
    ($($about:literal $schema:ident: $type:ty;)+) => {$(
        #[doc = $about]
        pub(crate) enum $schema {}

        impl utoipa::PartialSchema for $schema {
            fn schema() -> RefOr<Schema> {
                let names = <$type>::ALL.iter().map(|value| value.name());
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some($about))
                    .enum_values(Some(names))
                    .into()
            }
        }

        impl ToSchema for $schema {}
    )+};
}

names! {
    "The category of a service or operation. Rules such as `category_block` apply to categories." CategoryName: Category;
    "How far the service has been checked. A service with the status `disabled` cannot be paid." TrustStatusName: TrustStatus;
    "The availability of an operation in the latest probe." AvailabilityName: Availability;
}
