//! The catalog: services and their operations (`docs/spec.md` §2.1 to §2.3).

use crate::{
    Address, Amount, Endpoint, ListingHistory, Network, NextPricing, Offer, OperationSlug, OperationUuid, ServiceId,
    ServiceSlug, Timestamp,
    catalog::endpoint::{Parameters, host_digest, url_digest_ignoring_parameters, url_segment_count_digest},
    x402::requirement::SCHEME,
};
use serde_json::Value;
use url::Url;

/// Declares an enum whose variants have a name, for JSON and storage, and a label for pages (after `=>`, by default the
/// name).
#[macro_export]
macro_rules! named {
    (@label $text:expr) => { $text };
    (@label $text:expr => $label:literal) => { $label };
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:expr $(=> $label:literal)?,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every variant, in the order of the declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the text that represents this variant in JSON and in storage.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Returns the text for this variant on pages.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$variant => $crate::named!(@label $text $(=> $label)?),)* }
            }

            /// Returns the variant with this name; `None` for any other text.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }

            /// Returns `must be one of: …` with all names, for validation errors.
            pub fn allowed_names_message() -> String {
                let names: Vec<&str> = Self::ALL.iter().map(|value| value.name()).collect();
                format!("must be one of: {}", names.join(", "))
            }
        }

        impl $crate::serde::Serialize for $name {
            fn serialize<S: $crate::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> $crate::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <String as $crate::serde::Deserialize>::deserialize(deserializer)?;
                Self::from_name(&name).ok_or_else(|| $crate::serde::de::Error::custom(Self::allowed_names_message()))
            }
        }
    )*};
}
pub(crate) use named;

named! {
    /// The category of a service or of an operation. Rules can block payments by category.
    Category {
        /// Web and knowledge search.
        Search = "search",
        /// Fetching and extracting pages.
        Scrape = "scrape",
        /// AI models.
        Ai = "ai",
        /// Data sets and feeds.
        Data = "data",
        /// Compute, storage and messaging.
        Infrastructure = "infrastructure",
        /// Threat data and security scans.
        Security = "security",
        /// Markets and payments.
        Finance = "finance",
        /// Images, sound and design.
        Creative = "creative",
    }

    /// How a service came into the catalog, and how far it was checked.
    TrustStatus {
        /// An operator added the service.
        Listed = "listed",
        /// The service came from an automatic discovery, and not from an operator.
        Discovered = "discovered",
        /// A probe read the price of every operation.
        ProbePassed = "probe_passed",
        /// The platform checked the service.
        PlatformVerified = "platform_verified",
        /// The service is disabled: lists omit the service, and authorize rejects payments for it.
        Disabled = "disabled",
    }

    /// What the latest live probe of an operation found out.
    Availability {
        /// The provider requires an x402 payment.
        PaidX402 = "paid_x402",
        /// The provider serves the call without payment.
        FreeVerified = "free_verified",
        /// The operation was never probed, or the latest probe got no usable response.
        Unverified = "unverified",
    }

    /// Why no call of an operation can be paid.
    Unpayable {
        /// The catalog has no payment (payee, network and token) for the operation.
        NoPayment = "operation_has_no_payment",
        /// The payment is on a network other than the deployment's.
        OtherNetwork = "operation_is_paid_on_another_network",
        /// The price is not fixed, and the catalog has no maximum price.
        NoMaximum = "operation_has_no_maximum_price",
        /// The operation's URL uses plain HTTP, and the deployment's network is not a test network. Anybody on the
        /// network path could use the payment.
        PlainHttp = "operation_is_called_over_http",
    }
}

/// A provider's service.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// The UUID that identifies the service.
    pub id: ServiceId,
    /// The version of the service, which each update increments. Every write is conditional on the version.
    pub version: u64,
    /// The slug, which is unique in the catalog and accepted instead of the UUID.
    pub slug: ServiceSlug,
    /// The name that users and agents see.
    pub name: String,
    /// A text for users and agents that describes the service.
    pub description: String,
    /// The URL of the provider's website. Provider calls go to the addresses of the operations instead.
    pub website: Url,
    /// The URL of an image that represents the service; `None` if the service has no logo.
    pub logo_url: Option<Url>,
    /// The service's category. Each operation also has a category.
    pub category: Category,
    /// The source from which the catalog got the service.
    pub source: String,
    /// The stored trust status. The API shows `probe_passed` instead of a lower status after passed probes
    /// ([`ProbeRecord`](crate::ProbeRecord)).
    pub trust_status: TrustStatus,
    /// Whether the service is in the curated set. Agents may use only these services (`docs/spec.md` §7,
    /// `service_not_found`), and new agents start with these services.
    pub curated: bool,
    /// The service's operations, in catalog order.
    pub operations: Vec<Operation>,
    /// The service's history, which decides whether a new price or payee is delayed.
    pub history: ListingHistory,
}

/// One callable operation of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The UUID for probe results and verified payees. Agents send the slug instead.
    pub id: OperationUuid,
    /// The slug that agents send as `operation_id`; unique within the service.
    pub slug: OperationSlug,
    /// The result of the latest live probe. It is not stored with the operation but added when the catalog is read.
    pub availability: Availability,
    /// The name that users and agents see.
    pub label: String,
    /// The HTTP method of the provider call.
    pub method: String,
    /// The provider's address, which may have path parameters.
    pub endpoint: Endpoint,
    /// The category of the operation. See [`Service::category`].
    pub category: Category,
    /// The type of execution, such as `sync`.
    pub execution: String,
    /// The price model, for example [`FIXED_PRICE`]. Applies until `next` takes effect ([`Operation::pricing_at`]).
    pub price_model: String,
    /// The expected price of a call. Only `price_above_usual` uses the estimate, if the operation has no other price.
    pub estimated_price: Amount,
    /// The maximum price of a call. Without it, only an operation with a fixed price can be paid.
    pub max_price: Option<Amount>,
    /// The description of the parameters, as the provider publishes it.
    pub params: Value,
    /// Whether the caller chooses the page to fetch. `None` lets the category and the slug decide
    /// ([`Operation::fetches_target`]).
    pub fetches_target: Option<bool>,
    /// The payment; `None` for operations that can't be paid.
    pub payment: Option<CatalogPayment>,
    /// The delayed pricing, if there is one.
    pub next: Option<NextPricing>,
}

/// The price model of operations with a fixed price per call.
pub const FIXED_PRICE: &str = "fixed";

/// The payment that the catalog lists for an operation. Purser pays no other payee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogPayment {
    /// The x402 payment scheme, such as `exact`.
    pub scheme: String,
    /// The chain on which the operation is paid.
    pub network: Network,
    /// The amount of the payment, in micro-USDC.
    pub amount: Amount,
    /// The address of the wallet that receives the payment.
    pub pay_to: Address,
}

impl CatalogPayment {
    /// Creates the catalog payment for these payment requirements.
    pub fn from_requirements(offer: &Offer, network: Network) -> Self {
        Self {
            scheme: SCHEME.to_owned(),
            network,
            amount: offer.amount(),
            pay_to: offer.pay_to(),
        }
    }
}

/// How many operations a service has, and their lowest price. Lists of services show these values, not the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregates {
    /// The number of all operations.
    pub operations: usize,
    /// The number of operations with a payment in the catalog or in the provider's last probe result.
    pub paid: usize,
    /// The number of operations without a payment in the catalog that the last probe received for free.
    pub free: usize,
    /// The lowest price of an operation, or zero if there are no operations.
    pub min_price: Amount,
}

/// The payee and the maximum price of an operation's call, according to the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payable {
    /// The only payee that the catalog allows for the call.
    pub pay_to: Address,
    /// The maximum price of a call, in micro-USDC.
    pub most: Amount,
}

impl Service {
    /// Returns whether agents may enable and pay the service: the service is in the curated set and not disabled.
    pub fn is_open(&self) -> bool {
        self.curated && self.trust_status != TrustStatus::Disabled
    }

    /// Returns the numbers of operations and the lowest price at this time (`docs/spec.md` §2.1).
    pub fn aggregates(&self, at: Timestamp) -> Aggregates {
        let count = |paid: bool, seen: Availability| {
            let is_such = |item: &&Operation| match item.pricing_at(at).payment {
                Some(_) => paid,
                None => item.availability == seen,
            };
            self.operations.iter().filter(is_such).count()
        };
        let prices = self.operations.iter().map(|item| item.expected_price(at));
        Aggregates {
            operations: self.operations.len(),
            paid: count(true, Availability::PaidX402),
            free: count(false, Availability::FreeVerified),
            min_price: prices.min().unwrap_or(Amount::ZERO),
        }
    }

    /// Returns the operation with this slug; `None` if the service does not list the operation.
    pub fn find_operation(&self, slug: &OperationSlug) -> Option<&Operation> {
        self.operations.iter().find(|operation| operation.slug == *slug)
    }
}

impl Operation {
    /// Returns whether the operation has this method, ignoring case.
    pub fn accepts_method(&self, method: &str) -> bool {
        self.method.eq_ignore_ascii_case(method)
    }

    /// Returns the expected price of a call at this time: the amount of the operation's payment in the catalog, or the
    /// estimated price if the operation has no payment.
    pub fn expected_price(&self, at: Timestamp) -> Amount {
        let payment = self.pricing_at(at).payment;
        payment.map_or(self.estimated_price, |payment| payment.amount)
    }

    /// Returns the payee and the maximum price of a call at this time, or why no call can be paid.
    pub fn payee_and_max_price(&self, network: Network, at: Timestamp) -> Result<Payable, Unpayable> {
        let pricing = self.pricing_at(at);
        let payment = pricing.payment.filter(|payment| payment.scheme == SCHEME);
        let payment = payment.ok_or(Unpayable::NoPayment)?;
        if payment.network != network {
            return Err(Unpayable::OtherNetwork);
        }
        if !self.endpoint.may_be_paid_on(network) {
            return Err(Unpayable::PlainHttp);
        }
        Ok(Payable {
            pay_to: payment.pay_to,
            most: pricing.max_price().ok_or(Unpayable::NoMaximum)?,
        })
    }

    /// Returns the names of the parameters with the page to fetch: those whose descriptor has the field `"target":
    /// true`.
    pub fn target_parameters(&self) -> impl Iterator<Item = &str> {
        let by_name = [Some(&self.params), self.params.get("properties")];
        let described = by_name.into_iter().flatten().filter_map(Value::as_object).flatten();
        described.filter_map(|(name, descriptor)| {
            (descriptor.get("target") == Some(&Value::Bool(true))).then_some(name.as_str())
        })
    }

    /// Returns whether the caller chooses the page to fetch, so that `allowed_domains` applies. Without an operator's
    /// setting, the category or the slug decides (`docs/decisions.md` §9).
    pub fn fetches_target(&self, service_category: Category) -> bool {
        self.fetches_target.unwrap_or_else(|| {
            service_category == Category::Scrape || self.category == Category::Scrape || self.slug.suggests_fetching()
        })
    }
}

/// The whole catalog, with indexes by UUID, slug and address.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// All services of the catalog, sorted by slug.
    services: Vec<Service>,
    /// The ids of the services and their indexes in `services`, sorted by id.
    by_id: Vec<(ServiceId, usize)>,
    /// The digest of each endpoint, the index of the service and the index of the operation, sorted by digest.
    by_endpoint: Vec<(u64, usize, usize)>,
    /// The parameter positions of endpoints, sorted by [`Endpoint::segment_count_digest`] and then by
    /// [`Parameters::specificity_sort_key`].
    templates: Vec<(u64, (u32, u64), Parameters)>,
    /// The digest of each host and the index of a service at this host, sorted by digest.
    by_host: Vec<(u64, usize)>,
}

impl Catalog {
    /// Creates a catalog of these services.
    pub fn new(mut services: Vec<Service>) -> Self {
        services.sort_by(|a, b| a.slug.cmp(&b.slug));
        let cursors = || services.iter().enumerate();
        let endpoints = || {
            cursors().flat_map(|(place, service)| {
                let operations = service.operations.iter().enumerate();
                operations.map(move |(index, operation)| (place, index, &operation.endpoint))
            })
        };
        let mut by_id: Vec<_> = cursors().map(|(place, service)| (service.id, place)).collect();
        by_id.sort_unstable();
        let mut by_endpoint: Vec<_> = endpoints()
            .map(|(place, index, endpoint)| (endpoint.digest(), place, index))
            .collect();
        by_endpoint.sort_unstable();
        let with_parameters = endpoints().filter(|(.., endpoint)| endpoint.address().is_none());
        let mut templates: Vec<_> = with_parameters
            .map(|(.., endpoint)| {
                let parameters = endpoint.parameters();
                (
                    endpoint.segment_count_digest(),
                    parameters.specificity_sort_key(),
                    parameters,
                )
            })
            .collect();
        templates.sort_unstable_by_key(|(duration, specificity_sort_key, _)| (*duration, *specificity_sort_key));
        templates.dedup();
        let mut by_host: Vec<_> = endpoints()
            .map(|(place, _, endpoint)| (host_digest(endpoint.host().as_ref()), place))
            .collect();
        by_host.sort_unstable();
        by_host.dedup();
        Self {
            services,
            by_id,
            by_endpoint,
            templates,
            by_host,
        }
    }

    /// Returns all services, sorted by slug.
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// Returns the earliest time after `at` at which the pricing of an operation changes.
    pub fn next_pricing_change(&self, at: Timestamp) -> Option<Timestamp> {
        let services = self.services.iter();
        services.filter_map(|service| service.next_pricing_change(at)).min()
    }

    /// Returns the service with this UUID.
    pub fn find_by_id(&self, id: ServiceId) -> Option<&Service> {
        let first = self.by_id.partition_point(|(other, _)| *other < id);
        let (_, place) = self.by_id.get(first).filter(|(other, _)| *other == id)?;
        self.services.get(*place)
    }

    /// Returns the service with this slug or, if the text is a UUID, with this UUID.
    pub fn find_by_reference(&self, reference: &str) -> Option<&Service> {
        let by_slug = self
            .services
            .binary_search_by(|service| service.slug.as_str().cmp(reference))
            .ok();
        match by_slug {
            Some(index) => self.services.get(index),
            None => ServiceId::parse(reference).and_then(|id| self.find_by_id(id)),
        }
    }

    /// Returns the operations of open services that match a call, in catalog order. Only matches with the fewest path
    /// parameters are returned.
    pub fn find_operations<'a>(
        &'a self,
        method: &'a str,
        url: &'a Url,
    ) -> impl Iterator<Item = (&'a Service, &'a Operation)> + Clone {
        self.operations_for_url(url, move |operation| operation.accepts_method(method))
    }

    /// Returns the operations that match the URL and that `is_wanted` accepts.
    fn operations_for_url<'a>(
        &'a self,
        url: &'a Url,
        is_wanted: impl Fn(&Operation) -> bool + Copy + 'a,
    ) -> impl Iterator<Item = (&'a Service, &'a Operation)> + Clone {
        // Endpoints with parameters are searched only if no exact endpoint matches.
        let with_parameters = std::iter::once_with(|| self.parameter_positions_for_url(url)).flatten();
        let mut all_positions = std::iter::once(Parameters::NONE).chain(with_parameters);
        let found = all_positions.find_map(|positions| {
            let operations = self.operations_with_parameters_at(positions, url);
            let mut operations = operations.filter(move |(_, operation)| is_wanted(operation)).peekable();
            operations.peek().is_some().then_some(operations)
        });
        found.into_iter().flatten()
    }

    /// Returns the parameter positions of endpoints with the URL's scheme, host, port and number of segments,
    /// fewest parameters first.
    fn parameter_positions_for_url(&self, url: &Url) -> impl Iterator<Item = Parameters> {
        let digest = url_segment_count_digest(url);
        let first = self.templates.partition_point(|(other, ..)| *other < digest);
        let alike = self.templates.iter().skip(first);
        let alike = alike.take_while(move |(other, ..)| *other == digest);
        alike.map(|(.., parameters)| *parameters)
    }

    /// Returns the operations of open services whose endpoint matches `url`, with parameters at `positions`.
    fn operations_with_parameters_at<'a>(
        &'a self,
        positions: Parameters,
        url: &'a Url,
    ) -> impl Iterator<Item = (&'a Service, &'a Operation)> + Clone {
        let digest = url_digest_ignoring_parameters(url, positions);
        let first = self.by_endpoint.partition_point(|(other, ..)| *other < digest);
        let alike = self
            .by_endpoint
            .iter()
            .skip(first)
            .take_while(move |(other, ..)| *other == digest);
        alike
            .filter_map(|(_, place, index)| {
                let service = self.services.get(*place)?;
                Some((service, service.operations.get(*index)?))
            })
            .filter(move |(service, operation)| service.is_open() && operation.endpoint.is_match_for_url(url))
    }

    /// Returns the open service that an agent probably meant with a call that matches no operation: a service at the
    /// call's address. If no service has this address, returns a service at the call's host on any port.
    pub fn guess_service<'a>(&'a self, url: &'a Url, operation: Option<&OperationSlug>) -> Option<&'a Service> {
        let at_address = self.operations_for_url(url, |_| true).map(|(service, _)| service);
        find_service_with_operation_or_first(at_address, operation)
            .or_else(|| find_service_with_operation_or_first(self.services_at_host(url), operation))
    }

    fn services_at_host(&self, url: &Url) -> impl Iterator<Item = &Service> {
        let digest = host_digest(url.host().as_ref());
        let first = self.by_host.partition_point(|(other, _)| *other < digest);
        let alike = self.by_host.iter().skip(first);
        let services = alike
            .take_while(move |(other, _)| *other == digest)
            .filter_map(|(_, place)| self.services.get(*place));
        services.filter(|service| {
            let is_there = |operation: &Operation| operation.endpoint.host() == url.host();
            service.is_open() && service.operations.iter().any(is_there)
        })
    }
}

fn find_service_with_operation_or_first<'a>(
    services: impl Iterator<Item = &'a Service>,
    operation: Option<&OperationSlug>,
) -> Option<&'a Service> {
    let mut services = services.peekable();
    let first = services.peek().copied();
    let has_it = |service: &&Service| operation.is_some_and(|slug| service.find_operation(slug).is_some());
    services.find(has_it).or(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn service(n: usize, addresses: &[&str]) -> Service {
        let id = u128::try_from(n).unwrap();
        let operation = |address: &&str| Operation {
            id: OperationUuid::from_uuid(Uuid::nil()),
            slug: OperationSlug::parse("a.b").unwrap(),
            availability: Availability::Unverified,
            label: String::new(),
            method: "GET".to_owned(),
            endpoint: Endpoint::parse(address).unwrap(),
            category: Category::Data,
            execution: String::new(),
            price_model: String::new(),
            estimated_price: Amount::ZERO,
            max_price: None,
            params: Value::Null,
            fetches_target: None,
            payment: None,
            next: None,
        };
        Service {
            id: ServiceId::from_uuid(Uuid::from_u128(id ^ 0b101)),
            version: 1,
            slug: ServiceSlug::parse(&format!("s{n}")).unwrap(),
            name: String::new(),
            description: String::new(),
            website: Url::parse("https://a.example").unwrap(),
            logo_url: None,
            category: Category::Data,
            source: String::new(),
            trust_status: TrustStatus::Listed,
            curated: true,
            operations: addresses.iter().map(operation).collect(),
            history: ListingHistory::default(),
        }
    }

    fn addresses(known: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
        prop::collection::vec(prop::sample::select(known), 0..5)
    }

    const ENDPOINTS: &[&str] = &[
        "https://a.example/x",
        "https://a.example/x/",
        "https://A.example:443/x?q=1",
        "https://a.example/X",
        "http://a.example/x",
        "https://a.example:444/x",
        "https://b.example/x",
        "https://a.example",
        "http://127.0.0.1/x",
        "https://a.example/{id}",
        "https://a.example/{other}/",
        "https://a.example/x/{id}",
        "https://a.example/{id}/y",
        "https://a.example/{a}/{b}",
        "https://a.example/x/y",
    ];
    const CALLED: &[&str] = &[
        "https://a.example/x#f",
        "https://a.example/z",
        "https://a.example/",
        "https://a.example/x/y/",
        "https://a.example/x/z?q",
        "https://a.example/z/y",
        "https://a.example/z/z",
        "https://a.example/z%2fz",
        "https://a.example/x/y/z",
        "http://a.example/x",
        "https://b.example:444/x",
        "http://2130706433/x#f",
        "https://c.example/x",
    ];

    proptest! {
        /// The index must return the same operations as a full search, in the same order.
        #[test]
        fn the_catalog_index_finds_the_same_operations_as_a_search(
            catalog in prop::collection::vec(addresses(ENDPOINTS), 0..8),
            asked in addresses(CALLED),
            closed in prop::collection::vec(any::<bool>(), 8),
        ) {
            let services = catalog.iter().enumerate().map(|(n, addresses)| Service {
                curated: !closed[n],
                ..service(n, addresses)
            });
            let catalog = Catalog::new(services.collect());
            for address in asked {
                let url = Url::parse(address).unwrap();
                let every = catalog.services().iter().filter(|service| service.is_open());
                let every = every.flat_map(|service| service.operations.iter().map(move |operation| (service, operation)));
                let at: Vec<_> = every.clone().filter(|(_, operation)| operation.endpoint.is_match_for_url(&url)).collect();
                let form = |operation: &Operation| operation.endpoint.parameters().specificity_sort_key();
                let most = at.iter().map(|(_, operation)| form(operation)).min();
                let searched: Vec<_> = at.iter().copied().filter(|(_, operation)| Some(form(operation)) == most).collect();
                let meant = searched.first().copied();
                prop_assert_eq!(catalog.find_operations("get", &url).collect::<Vec<_>>(), searched);
                prop_assert_eq!(catalog.find_operations("POST", &url).count(), 0);
                let mut at_host = every.filter(|(_, operation)| operation.endpoint.host() == url.host());
                let meant = meant.or_else(|| at_host.next()).map(|(service, _)| service);
                prop_assert_eq!(catalog.guess_service(&url, None), meant);
            }
            for id in (0..10).map(|n| ServiceId::from_uuid(Uuid::from_u128(n))) {
                let searched = catalog.services().iter().find(|service| service.id == id);
                prop_assert_eq!(catalog.find_by_id(id), searched);
                prop_assert_eq!(catalog.find_by_reference(&id.to_string()), searched);
            }
        }
    }

    #[test]
    fn unmatched_calls_are_attributed_to_a_service_by_address_first() {
        let slug = |text: &str| OperationSlug::parse(text).unwrap();
        let mut services: Vec<Service> = [
            ["https://a.example/report"],
            ["https://a.example/weather"],
            ["https://a.example/{any}"],
        ]
        .iter()
        .enumerate()
        .map(|(n, addresses)| service(n, addresses))
        .collect();
        services[2].operations[0].slug = slug("c.d");
        let catalog = Catalog::new(services);
        let meant = |path: &str, named: Option<&str>| {
            let url = Url::parse(&format!("https://a.example{path}")).unwrap();
            catalog
                .guess_service(&url, named.map(slug).as_ref())
                .unwrap()
                .slug
                .to_string()
        };
        assert_eq!(meant("/weather", None), "s1");
        assert_eq!(meant("/weather", Some("a.b")), "s1");
        assert_eq!(meant("/weather", Some("c.d")), "s1", "the address before the name");
        assert_eq!(meant("/other", None), "s2");
        assert_eq!(meant("/other/x", None), "s0");
        assert_eq!(meant("/other/x", Some("c.d")), "s2");
        assert_eq!(meant("/other/x", Some("x.y")), "s0");
    }

    #[test]
    fn literal_endpoints_only_win_for_their_method() {
        let mut lab = service(0, &["https://a.example/x/count", "https://a.example/x/{id}"]);
        lab.operations[0].method = "POST".to_owned();
        let catalog = Catalog::new(vec![lab]);
        let url = Url::parse("https://a.example/x/count").unwrap();
        let called = |method| {
            let called: Vec<String> = catalog
                .find_operations(method, &url)
                .map(|(_, one)| one.endpoint.to_string())
                .collect();
            called.join(" ")
        };
        assert_eq!(called("GET"), "https://a.example/x/{id}");
        assert_eq!(called("POST"), "https://a.example/x/count");
        assert_eq!(called("PUT"), "");
    }

    #[test]
    fn price_aggregates_prefer_payments_over_probes_and_estimates() {
        let mut lab = service(0, &["https://a.example/1"; 5]);
        let units = |units| Amount::from_units(units).unwrap();
        let payment = |amount| CatalogPayment {
            scheme: SCHEME.to_owned(),
            network: Network::Base,
            amount: units(amount),
            pay_to: Address::repeat_byte(1),
        };
        let rows = [
            (Availability::Unverified, Some(payment(7)), 1),
            (Availability::FreeVerified, Some(payment(9)), 1),
            (Availability::PaidX402, None, 8),
            (Availability::FreeVerified, None, 8),
            (Availability::Unverified, None, 8),
        ];
        for (operation, (availability, payment, estimated)) in lab.operations.iter_mut().zip(rows) {
            operation.availability = availability;
            operation.payment = payment;
            operation.estimated_price = units(estimated);
        }
        let expected = Aggregates {
            operations: 5,
            paid: 3,
            free: 1,
            min_price: units(7),
        };
        assert_eq!(lab.aggregates(Timestamp::EPOCH), expected);
    }

    #[test]
    fn the_payable_limit_is_maximum_or_fixed_price() {
        let units = |units| Amount::from_units(units).unwrap();
        let payee = Address::repeat_byte(1);
        let paid = |network| {
            Some(CatalogPayment {
                scheme: SCHEME.to_owned(),
                network,
                amount: units(7),
                pay_to: payee,
            })
        };
        let up_to = |most| {
            Ok(Payable {
                pay_to: payee,
                most: units(most),
            })
        };
        let rows = [
            (None, FIXED_PRICE, Some(9), Err(Unpayable::NoPayment)),
            (
                paid(Network::BaseSepolia),
                FIXED_PRICE,
                Some(9),
                Err(Unpayable::OtherNetwork),
            ),
            (paid(Network::Base), FIXED_PRICE, Some(9), up_to(9)),
            (paid(Network::Base), FIXED_PRICE, Some(5), up_to(5)),
            (paid(Network::Base), FIXED_PRICE, None, up_to(7)),
            (paid(Network::Base), "per_token", Some(9), up_to(9)),
            (paid(Network::Base), "per_token", None, Err(Unpayable::NoMaximum)),
        ];
        for (payment, model, max, expected) in rows {
            let mut operation = service(0, &["https://a.example/"]).operations.remove(0);
            operation.payment = payment;
            operation.price_model = model.to_owned();
            operation.max_price = max.map(units);
            assert_eq!(
                operation.payee_and_max_price(Network::Base, Timestamp::EPOCH),
                expected,
                "{operation:?}"
            );
            operation.endpoint = Endpoint::parse("http://a.example/").unwrap();
            let plain = operation.payee_and_max_price(Network::Base, Timestamp::EPOCH);
            assert_eq!(
                plain.err(),
                expected
                    .err()
                    .filter(|why| *why != Unpayable::NoMaximum)
                    .or(Some(Unpayable::PlainHttp))
            );
            let testnet = operation.payee_and_max_price(Network::BaseSepolia, Timestamp::EPOCH);
            assert_ne!(testnet.err(), Some(Unpayable::PlainHttp));
        }
    }

    #[test]
    fn whether_an_operation_fetches_its_target_is_declared_or_inferred() {
        let rows = [
            ("web.scrape", Category::Search, Category::Data, None, true),
            ("web.search", Category::Scrape, Category::Data, None, true),
            ("web.search", Category::Search, Category::Scrape, None, true),
            ("web.search", Category::Search, Category::Data, None, false),
            ("web.search", Category::Search, Category::Data, Some(true), true),
            ("web.scrape", Category::Scrape, Category::Scrape, Some(false), false),
        ];
        for (slug, category, of_service, said, expected) in rows {
            let mut operation = service(0, &["https://a.example/"]).operations.remove(0);
            operation.slug = OperationSlug::parse(slug).unwrap();
            operation.category = category;
            operation.fetches_target = said;
            assert_eq!(operation.fetches_target(of_service), expected, "{slug} {said:?}");
        }
    }
}
