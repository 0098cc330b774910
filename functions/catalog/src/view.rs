//! The JSON of the catalog (`docs/spec.md` §2.1 to §2.3).

use purser_domain::{
    Amount, Availability, CatalogPayment, Category, NextPricing, Operation, Service, Timestamp, TrustStatus,
};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};

/// A service in the list of services, with aggregates instead of operations.
#[derive(Serialize, ToSchema)]
pub(crate) struct ServiceItem<'a> {
    #[schema(value_type = uuid::Uuid)]
    id: String,
    /// The service's slug. Paths accept the slug in place of the UUID.
    slug: &'a str,
    name: &'a str,
    description: &'a str,
    #[schema(format = Uri)]
    website: &'a str,
    #[schema(format = Uri, required)]
    logo_url: Option<&'a str>,
    #[schema(inline, value_type = CategoryName)]
    category: &'static str,
    /// The origin of the service's data, such as `curated` or `discovery`.
    source: &'a str,
    #[schema(inline, value_type = TrustStatusName)]
    trust_status: &'static str,
    operation_count: usize,
    paid_operation_count: usize,
    free_operation_count: usize,
    /// The lowest price of the service's operations, in micro-units.
    min_price_units: u64,
}

/// The services that match the query, without their operations. Disabled services are left out by default.
#[derive(Serialize, ToSchema)]
pub(crate) struct ServiceList<'a> {
    pub(crate) services: Vec<ServiceItem<'a>>,
    /// The number of services in this response.
    pub(crate) count: usize,
}

/// A service with all its operations.
#[derive(Serialize, ToSchema)]
pub(crate) struct ServiceDetail<'a> {
    #[schema(value_type = uuid::Uuid)]
    id: String,
    slug: &'a str,
    name: &'a str,
    description: &'a str,
    #[schema(format = Uri)]
    website: &'a str,
    #[schema(format = Uri, required)]
    logo_url: Option<&'a str>,
    #[schema(inline, value_type = CategoryName)]
    category: &'static str,
    #[schema(inline, value_type = TrustStatusName)]
    trust_status: &'static str,
    operations: Vec<OperationView<'a>>,
}

/// An operation of a service: one of the provider's endpoints, with its price.
#[derive(Serialize, ToSchema)]
#[schema(as = Operation)]
pub(crate) struct OperationView<'a> {
    #[schema(value_type = uuid::Uuid)]
    id: String,
    /// The operation's slug, which agents send as `operation_id`.
    operation_id: &'a str,
    #[schema(inline, value_type = AvailabilityName)]
    availability: &'static str,
    label: &'a str,
    /// The HTTP method of the provider's endpoint.
    method: &'a str,
    /// The URL of the provider's endpoint. It may have path parameters, `{name}` (RFC 6570).
    #[schema(format = "uri-template")]
    endpoint: &'a str,
    #[schema(inline, value_type = CategoryName)]
    category: &'static str,
    execution: &'a str,
    price_model: &'a str,
    estimated_price_units: u64,
    #[schema(required)]
    max_price_units: Option<u64>,
    /// The operation's parameters, as the provider describes them.
    #[schema(value_type = Object)]
    params: &'a serde_json::Value,
    #[schema(required)]
    payment: Option<PaymentView<'a>>,
    /// The price and payment that will replace `price_model`, `max_price_units` and `payment`; absent if no change is
    /// pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<NextView<'a>>,
}

/// How an operation will be paid after the pending change.
#[derive(Serialize, ToSchema)]
#[schema(as = NextOperationPayment)]
pub(crate) struct NextView<'a> {
    /// The time from which calls are paid this way; `9999-12-31T23:59:59.999999Z` if the time is not decided yet.
    #[schema(format = DateTime)]
    from: String,
    price_model: &'a str,
    #[schema(required)]
    max_price_units: Option<u64>,
    payment: PaymentView<'a>,
}

/// The payment for each call of an operation: the amount, the token, the network and the payee.
#[derive(Serialize, ToSchema)]
#[schema(as = OperationPayment)]
pub(crate) struct PaymentView<'a> {
    scheme: &'a str,
    network: &'static str,
    token: &'static str,
    amount_units: u64,
    /// The address of the provider's wallet.
    pay_to: String,
}

impl<'a> ServiceItem<'a> {
    /// Creates the view of a service at this time.
    pub(crate) fn new(service: &'a Service, now: Timestamp) -> Self {
        let aggregates = service.aggregates(now);
        Self {
            id: service.id.to_string(),
            slug: service.slug.as_str(),
            name: &service.name,
            description: &service.description,
            website: service.website.as_str(),
            logo_url: service.logo_url.as_ref().map(purser_domain::Url::as_str),
            category: service.category.name(),
            source: &service.source,
            trust_status: service.trust_status.name(),
            operation_count: aggregates.operations,
            paid_operation_count: aggregates.paid,
            free_operation_count: aggregates.free,
            min_price_units: aggregates.min_price.units(),
        }
    }
}

impl<'a> ServiceDetail<'a> {
    /// Creates the view of a service at this time.
    pub(crate) fn new(service: &'a Service, now: Timestamp) -> Self {
        Self {
            id: service.id.to_string(),
            slug: service.slug.as_str(),
            name: &service.name,
            description: &service.description,
            website: service.website.as_str(),
            logo_url: service.logo_url.as_ref().map(purser_domain::Url::as_str),
            category: service.category.name(),
            trust_status: service.trust_status.name(),
            operations: service
                .operations
                .iter()
                .map(|operation| OperationView::new(operation, now))
                .collect(),
        }
    }
}

impl<'a> OperationView<'a> {
    fn new(operation: &'a Operation, now: Timestamp) -> Self {
        let pricing = operation.pricing_at(now);
        Self {
            id: operation.id.to_string(),
            operation_id: operation.slug.as_str(),
            availability: operation.availability.name(),
            label: &operation.label,
            method: &operation.method,
            endpoint: operation.endpoint.as_str(),
            category: operation.category.name(),
            execution: &operation.execution,
            price_model: pricing.price_model,
            estimated_price_units: operation.estimated_price.units(),
            max_price_units: pricing.max_price.map(Amount::units),
            params: &operation.params,
            payment: pricing.payment.map(PaymentView::from),
            next: operation.delayed_pricing(now).map(NextView::from),
        }
    }
}

impl<'a> From<&'a NextPricing> for NextView<'a> {
    fn from(next: &'a NextPricing) -> Self {
        Self {
            from: next.from.to_string(),
            price_model: &next.price_model,
            max_price_units: next.max_price.map(Amount::units),
            payment: PaymentView::from(&next.payment),
        }
    }
}

impl<'a> From<&'a CatalogPayment> for PaymentView<'a> {
    fn from(payment: &'a CatalogPayment) -> Self {
        Self {
            scheme: &payment.scheme,
            network: payment.network.name(),
            token: payment.network.token_symbol(),
            amount_units: payment.amount.units(),
            pay_to: payment.pay_to.to_string(),
        }
    }
}

/// Declares schemas for the domain's enums, with the names that the domain uses.
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
