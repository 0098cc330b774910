//! The catalog: services and their operations (`docs/spec.md` §2.1 to §2.3).

use crate::{
    Address, Amount, Endpoint, ListingHistory, Network, NextPricing, Offer, OperationSlug, OperationUuid, ServiceId,
    ServiceSlug, Timestamp,
    catalog::endpoint::{Parameters, address_digest, host_digest, length_digest},
    x402::requirement::SCHEME,
};
use serde_json::Value;
use url::Url;

/// Declares an enum whose values have one name each, for JSON, queries and storage.
macro_rules! named {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:expr,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every value, in the order of the specification.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The value's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The value with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }

            /// `must be one of: …`, for the message of a problem.
            pub fn choices() -> String {
                let names: Vec<&str> = Self::ALL.iter().map(|value| value.name()).collect();
                format!("must be one of: {}", names.join(", "))
            }
        }
    )*};
}
pub(crate) use named;

named! {
    /// The subject of a service.
    Category {
        /// Web and knowledge search.
        Search = "search",
        /// Fetching and extracting pages.
        Scrape = "scrape",
        /// Models.
        Ai = "ai",
        /// Data sets and feeds.
        Data = "data",
        /// Compute, storage, messaging.
        Infrastructure = "infrastructure",
        /// Threat data, scanning.
        Security = "security",
        /// Markets and payments.
        Finance = "finance",
        /// Images, sound, design.
        Creative = "creative",
    }

    /// The trust status of a service.
    TrustStatus {
        /// Entered by an operator.
        Listed = "listed",
        /// Discovered by the deployment.
        Discovered = "discovered",
        /// Every operation answered a live probe.
        ProbePassed = "probe_passed",
        /// Checked by the platform.
        PlatformVerified = "platform_verified",
        /// Disabled: not in the list, and refused by authorize.
        Disabled = "disabled",
    }

    /// The result of the latest live probe of an operation.
    Availability {
        /// The provider asks for an x402 payment.
        PaidX402 = "paid_x402",
        /// The provider answers without payment.
        FreeVerified = "free_verified",
        /// The operation was never probed, or its latest probe saw no working answer.
        Unverified = "unverified",
    }

    /// The reason that no call of an operation can be paid.
    Unpayable {
        /// The catalog has no payment (payee, network and token) for the operation.
        NoPayment = "operation_has_no_payment",
        /// The payment is on a network other than the deployment's.
        OtherNetwork = "operation_is_paid_on_another_network",
        /// The price is not fixed, and the catalog has no maximum price.
        NoMaximum = "operation_has_no_maximum_price",
        /// The operation is called over plain HTTP on a real network, where anybody on the path could read and use its
        /// payment.
        PlainHttp = "operation_is_called_over_http",
    }
}

/// A provider's service.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// The service's UUID.
    pub id: ServiceId,
    /// The number of edits of this entry; every write is conditional on it.
    pub version: u64,
    /// The slug, unique in the catalog and accepted in place of the UUID.
    pub slug: ServiceSlug,
    /// The display name.
    pub name: String,
    /// The description.
    pub description: String,
    /// The provider's site.
    pub website: Url,
    /// The URL of a logo.
    pub logo_url: Option<Url>,
    /// The subject of the service.
    pub category: Category,
    /// The origin of the entry.
    pub source: String,
    /// The trust status. Readers show `probe_passed` in place of a lower status after passed probes
    /// ([`ProbeRecord`](crate::ProbeRecord)).
    pub trust_status: TrustStatus,
    /// Whether it is in the curated set. Agents may use only services of this set (`docs/spec.md` §7,
    /// `service_not_found`), and new agents start with them.
    pub curated: bool,
    /// Its operations, in the order of the catalog.
    pub operations: Vec<Operation>,
    /// The parts of its history that pricing needs.
    pub history: ListingHistory,
}

/// One callable operation of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The operation's UUID.
    pub id: OperationUuid,
    /// The slug that agents send as `operation_id`; unique within the service.
    pub slug: OperationSlug,
    /// The result of the latest live probe. Readers add it; it is not part of the stored entry.
    pub availability: Availability,
    /// The display name.
    pub label: String,
    /// HTTP method of the provider endpoint.
    pub method: String,
    /// The provider's address, which may have path parameters.
    pub endpoint: Endpoint,
    /// The operation's category, like [`Service::category`].
    pub category: Category,
    /// The type of execution, such as `sync`.
    pub execution: String,
    /// The price model, such as [`FIXED_PRICE`]. This field and the next two apply until `next` takes effect: see
    /// [`Operation::pricing`].
    pub price_model: String,
    /// The expected price of a call. No check uses it.
    pub estimated_price: Amount,
    /// The maximum price of a call, enforced by authorize. Without it, a fixed price may be at most the payment's
    /// amount, and an operation with another price model can't be paid.
    pub max_price: Option<Amount>,
    /// The description of the parameters, as the provider publishes it.
    pub params: Value,
    /// Whether the caller names the page to fetch, so that `allowed_domains` applies. `None`: derived from category
    /// and slug ([`Operation::fetches_target`]).
    pub fetches_target: Option<bool>,
    /// The payment; `None` for operations that can't be paid.
    pub payment: Option<CatalogPayment>,
    /// The pricing that will replace these fields.
    pub next: Option<NextPricing>,
}

/// The price model of operations whose calls all cost the same.
pub const FIXED_PRICE: &str = "fixed";

/// The listed payment of an operation. Authorize signs for no other payee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogPayment {
    /// The x402 scheme.
    pub scheme: String,
    /// The chain.
    pub network: Network,
    /// The price.
    pub amount: Amount,
    /// The provider's wallet.
    pub pay_to: Address,
}

impl CatalogPayment {
    /// The payment that an offer on this network asks for.
    pub fn of(offer: &Offer, network: Network) -> Self {
        Self {
            scheme: SCHEME.to_owned(),
            network,
            amount: offer.amount(),
            pay_to: offer.pay_to(),
        }
    }
}

/// Counts of a service's operations, which the list shows instead of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregates {
    /// The number of operations.
    pub operations: usize,
    /// The number with a payment, listed or seen by a probe.
    pub paid: usize,
    /// The number without a payment, whose probe was answered without a payment.
    pub free: usize,
    /// The lowest price of an operation; zero if there are none.
    pub min_price: Amount,
}

/// The payee of an operation's call and its maximum price, according to the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payable {
    /// The only payee.
    pub pay_to: Address,
    /// The maximum price.
    pub most: Amount,
}

impl Service {
    /// Whether agents may pay it and enable it: it is in the curated set and not disabled.
    pub fn is_open(&self) -> bool {
        self.curated && self.trust_status != TrustStatus::Disabled
    }

    /// The counts of `docs/spec.md` §2.1 at this time.
    pub fn aggregates(&self, at: Timestamp) -> Aggregates {
        let count = |paid: bool, seen: Availability| {
            let is_such = |one: &&Operation| match one.pricing(at).payment {
                Some(_) => paid,
                None => one.availability == seen,
            };
            self.operations.iter().filter(is_such).count()
        };
        let prices = self.operations.iter().map(|one| one.price(at));
        Aggregates {
            operations: self.operations.len(),
            paid: count(true, Availability::PaidX402),
            free: count(false, Availability::FreeVerified),
            min_price: prices.min().unwrap_or(Amount::ZERO),
        }
    }

    /// The operation with this slug.
    pub fn operation(&self, slug: &OperationSlug) -> Option<&Operation> {
        self.operations.iter().find(|operation| operation.slug == *slug)
    }
}

impl Operation {
    /// Whether a call with this method may be a call of this operation.
    pub fn takes(&self, method: &str) -> bool {
        self.method.eq_ignore_ascii_case(method)
    }

    /// The known price of a call at this time: the payment's amount, or else the estimate.
    pub fn price(&self, at: Timestamp) -> Amount {
        let payment = self.pricing(at).payment;
        payment.map_or(self.estimated_price, |payment| payment.amount)
    }

    /// The payee and the maximum price of a call on this network at this time, or the reason that no call can be paid.
    pub fn payable(&self, network: Network, at: Timestamp) -> Result<Payable, Unpayable> {
        let pricing = self.pricing(at);
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
            most: pricing.most().ok_or(Unpayable::NoMaximum)?,
        })
    }

    /// The parameters of a call that name the page to fetch. They have `"target": true` in their descriptor, in an
    /// object of descriptors by name or in a JSON schema with `properties`.
    pub fn target_parameters(&self) -> impl Iterator<Item = &str> {
        let by_name = [Some(&self.params), self.params.get("properties")];
        let described = by_name.into_iter().flatten().filter_map(Value::as_object).flatten();
        described.filter_map(|(name, descriptor)| {
            (descriptor.get("target") == Some(&Value::Bool(true))).then_some(name.as_str())
        })
    }

    /// Whether the caller names the page to fetch, so that `allowed_domains` applies. This is the operator's setting;
    /// without one, whether the operation or its service has the category `scrape`, or its slug mentions scraping
    /// (`docs/decisions.md` §9).
    pub fn fetches_target(&self, service: Category) -> bool {
        self.fetches_target.unwrap_or_else(|| {
            service == Category::Scrape || self.category == Category::Scrape || self.slug.says_that_it_fetches()
        })
    }
}

/// The whole catalog as it was read, indexed by UUID, by slug and by the called address.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The services, in the order of their slugs.
    services: Vec<Service>,
    /// The index of each service in `services`, in the order of the ids.
    by_id: Vec<(ServiceId, usize)>,
    /// The indexes of services and their operations, in the order of the endpoints' digests.
    by_endpoint: Vec<(u64, usize, usize)>,
    /// The forms of endpoints with parameters, in the order of their length digests, the most literal form first.
    templates: Vec<(u64, (u32, u64), Parameters)>,
    /// The indexes of services, in the order of their hosts' digests.
    by_host: Vec<(u64, usize)>,
}

impl Catalog {
    /// A catalog of these services, in the order of their slugs.
    pub fn new(mut services: Vec<Service>) -> Self {
        services.sort_by(|a, b| a.slug.cmp(&b.slug));
        let places = || services.iter().enumerate();
        let endpoints = || {
            places().flat_map(|(place, service)| {
                let operations = service.operations.iter().enumerate();
                operations.map(move |(index, operation)| (place, index, &operation.endpoint))
            })
        };
        let mut by_id: Vec<_> = places().map(|(place, service)| (service.id, place)).collect();
        by_id.sort_unstable();
        let mut by_endpoint: Vec<_> = endpoints()
            .map(|(place, index, endpoint)| (endpoint.digest(), place, index))
            .collect();
        by_endpoint.sort_unstable();
        let with_parameters = endpoints().filter(|(.., endpoint)| endpoint.address().is_none());
        let mut templates: Vec<_> = with_parameters
            .map(|(.., endpoint)| {
                let parameters = endpoint.parameters();
                (endpoint.length_digest(), parameters.literalness(), parameters)
            })
            .collect();
        templates.sort_unstable_by_key(|(length, literalness, _)| (*length, *literalness));
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

    /// Every service, by slug.
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// The first time after this one at which the pricing of an operation changes.
    pub fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        let services = self.services.iter();
        services.filter_map(|service| service.next_change(at)).min()
    }

    /// The service with this UUID.
    pub fn by_id(&self, id: ServiceId) -> Option<&Service> {
        let first = self.by_id.partition_point(|(other, _)| *other < id);
        let (_, place) = self.by_id.get(first).filter(|(other, _)| *other == id)?;
        self.services.get(*place)
    }

    /// The service with this slug or, if the text is a UUID, with this UUID.
    pub fn by_reference(&self, reference: &str) -> Option<&Service> {
        let by_slug = self
            .services
            .binary_search_by(|service| service.slug.as_str().cmp(reference))
            .ok();
        match by_slug {
            Some(index) => self.services.get(index),
            None => ServiceId::parse(reference).and_then(|id| self.by_id(id)),
        }
    }

    /// The operations of open services that match a call with this method and address, each with its service, in the
    /// order of the catalog. If endpoints of several forms match, only the operations of the most literal form are
    /// returned.
    pub fn called<'a>(
        &'a self,
        method: &'a str,
        url: &'a Url,
    ) -> impl Iterator<Item = (&'a Service, &'a Operation)> + Clone {
        self.at(url, move |operation| operation.takes(method))
    }

    /// Like [`Catalog::called`], but only for the operations that `is_asked_for` selects.
    fn at<'a>(
        &'a self,
        url: &'a Url,
        is_asked_for: impl Fn(&Operation) -> bool + Copy + 'a,
    ) -> impl Iterator<Item = (&'a Service, &'a Operation)> + Clone {
        // A matching endpoint without parameters ends the search.
        let with_parameters = std::iter::once_with(|| self.forms_with_parameters(url)).flatten();
        let mut forms = std::iter::once(Parameters::NONE).chain(with_parameters);
        let found = forms.find_map(|form| {
            let operations = self.of_form(form, url);
            let mut operations = operations
                .filter(move |(_, operation)| is_asked_for(operation))
                .peekable();
            operations.peek().is_some().then_some(operations)
        });
        found.into_iter().flatten()
    }

    /// The forms with parameters at this scheme, host, port and number of segments, the most literal first.
    fn forms_with_parameters(&self, url: &Url) -> impl Iterator<Item = Parameters> {
        let length = length_digest(url);
        let first = self.templates.partition_point(|(other, ..)| *other < length);
        let alike = self.templates.iter().skip(first);
        let alike = alike.take_while(move |(other, ..)| *other == length);
        alike.map(|(.., parameters)| *parameters)
    }

    /// The operations of open services at an address, for the endpoints of one form.
    fn of_form<'a>(
        &'a self,
        form: Parameters,
        url: &'a Url,
    ) -> impl Iterator<Item = (&'a Service, &'a Operation)> + Clone {
        let digest = address_digest(url, form);
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
            .filter(move |(service, operation)| service.is_open() && operation.endpoint.is_called_at(url))
    }

    /// The open service of a call that no operation matches: one that lists the address with another method, else one
    /// with an operation at the host of the address, on any port. If there are several, the first that has the named
    /// operation, else the first in the order of the catalog.
    pub fn meant<'a>(&'a self, url: &'a Url, named: Option<&OperationSlug>) -> Option<&'a Service> {
        let at_address = self.at(url, |_| true).map(|(service, _)| service);
        with_named(at_address, named).or_else(|| with_named(self.at_host(url), named))
    }

    /// The open services with an operation at the host of this address, on any port, in the order of the catalog.
    fn at_host(&self, url: &Url) -> impl Iterator<Item = &Service> {
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

/// The first of the services that has the named operation; if none has it, the first service.
fn with_named<'a>(services: impl Iterator<Item = &'a Service>, named: Option<&OperationSlug>) -> Option<&'a Service> {
    let mut services = services.peekable();
    let first = services.peek().copied();
    let has_it = |service: &&Service| named.is_some_and(|slug| service.operation(slug).is_some());
    services.find(has_it).or(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    /// A service with an operation at each address.
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
        /// The index returns the same operations as a search of all entries, in the same order: the most literal
        /// operations that match the address.
        #[test]
        fn an_index_finds_what_a_search_finds(
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
                let at: Vec<_> = every.clone().filter(|(_, operation)| operation.endpoint.is_called_at(&url)).collect();
                let form = |operation: &Operation| operation.endpoint.parameters().literalness();
                let most = at.iter().map(|(_, operation)| form(operation)).min();
                let searched: Vec<_> = at.iter().copied().filter(|(_, operation)| Some(form(operation)) == most).collect();
                let meant = searched.first().copied();
                prop_assert_eq!(catalog.called("get", &url).collect::<Vec<_>>(), searched);
                prop_assert_eq!(catalog.called("POST", &url).count(), 0);
                let mut at_host = every.filter(|(_, operation)| operation.endpoint.host() == url.host());
                let meant = meant.or_else(|| at_host.next()).map(|(service, _)| service);
                prop_assert_eq!(catalog.meant(&url, None), meant);
            }
            for id in (0..10).map(|n| ServiceId::from_uuid(Uuid::from_u128(n))) {
                let searched = catalog.services().iter().find(|service| service.id == id);
                prop_assert_eq!(catalog.by_id(id), searched);
                prop_assert_eq!(catalog.by_reference(&id.to_string()), searched);
            }
        }
    }

    /// The service of the named operation is second, and the first service of the host is third.
    #[test]
    fn unmatched_calls_are_attributed_by_address_first() {
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
            catalog.meant(&url, named.map(slug).as_ref()).unwrap().slug.to_string()
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
                .called(method, &url)
                .map(|(_, one)| one.endpoint.to_string())
                .collect();
            called.join(" ")
        };
        assert_eq!(called("GET"), "https://a.example/x/{id}");
        assert_eq!(called("POST"), "https://a.example/x/count");
        assert_eq!(called("PUT"), "");
    }

    #[test]
    fn aggregates_prefer_payments_over_probes_and_estimates() {
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

    /// Calls over plain HTTP can be paid on a test network only.
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
                operation.payable(Network::Base, Timestamp::EPOCH),
                expected,
                "{operation:?}"
            );
            // On mainnets, operations over plain HTTP can't be paid.
            operation.endpoint = Endpoint::parse("http://a.example/").unwrap();
            let plain = operation.payable(Network::Base, Timestamp::EPOCH);
            assert_eq!(
                plain.err(),
                expected
                    .err()
                    .filter(|why| *why != Unpayable::NoMaximum)
                    .or(Some(Unpayable::PlainHttp))
            );
            let testnet = operation.payable(Network::BaseSepolia, Timestamp::EPOCH);
            assert_ne!(testnet.err(), Some(Unpayable::PlainHttp));
        }
    }

    /// The setting is inferred from the categories and the slug.
    #[test]
    fn target_fetching_is_declared_or_inferred() {
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
