//! What agents can buy: services and their operations (`docs/spec.md` §2.1 to §2.3).

use crate::{
    Address, Amount, Network, Offer, OperationSlug, OperationUuid, ServiceId, ServiceSlug, requirement::SCHEME,
};
use serde_json::Value;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use url::Url;

/// Declares an enum whose values have one name each, in JSON, in queries and in storage.
macro_rules! named {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* })*) => {$(
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

            /// The value of that name.
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
    /// What a service is about.
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

    /// How far a service has been checked.
    TrustStatus {
        /// Entered by its owner.
        Listed = "listed",
        /// Found by us.
        Discovered = "discovered",
        /// Its live probe passed.
        ProbePassed = "probe_passed",
        /// Checked by the platform.
        PlatformVerified = "platform_verified",
        /// Not to be used; hidden from the list and refused by authorize.
        Disabled = "disabled",
    }

    /// What the latest live probe of an operation saw.
    Availability {
        /// It asks for an x402 payment.
        PaidX402 = "paid_x402",
        /// It answers without payment.
        FreeVerified = "free_verified",
        /// Not seen working.
        Unverified = "unverified",
    }
}

/// One provider.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// The service's UUID.
    pub id: ServiceId,
    /// Counts the edits of this entry, those that a probe makes included; every write is conditional on it.
    pub version: u64,
    /// Unique in the catalog; accepted in place of the UUID.
    pub slug: ServiceSlug,
    /// For people.
    pub name: String,
    /// For people.
    pub description: String,
    /// The provider's site.
    pub website: Url,
    /// A picture.
    pub logo_url: Option<Url>,
    /// What it is about.
    pub category: Category,
    /// Where the entry came from.
    pub source: String,
    /// How far it has been checked.
    pub trust_status: TrustStatus,
    /// Whether it is in the set that agents may use at all (`docs/spec.md` §7, `service_not_found`), which every new
    /// agent starts with.
    pub curated: bool,
    /// What can be called, in the order of the catalog.
    pub operations: Vec<Operation>,
}

/// One callable operation of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The operation's UUID.
    pub id: OperationUuid,
    /// What agents send as `operation_id`; unique within the service.
    pub slug: OperationSlug,
    /// What the latest live probe saw.
    pub availability: Availability,
    /// For people.
    pub label: String,
    /// HTTP method of the provider endpoint.
    pub method: String,
    /// The provider's address.
    pub endpoint: Url,
    /// As for the service.
    pub category: Category,
    /// `sync` is a value.
    pub execution: String,
    /// `fixed` is a value.
    pub price_model: String,
    /// What a call is expected to cost.
    pub estimated_price: Amount,
    /// What a call may cost at most, where that is known; authorize enforces it.
    pub max_price: Option<Amount>,
    /// Descriptor of the parameters, as the provider gives it.
    pub params: Value,
    /// How it is paid; `None` for operations that are not paid.
    pub payment: Option<CatalogPayment>,
}

/// How an operation is paid, as the catalog knows it. The payee pins what authorize may sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogPayment {
    /// x402 scheme.
    pub scheme: String,
    /// Chain.
    pub network: Network,
    /// Price.
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

/// Counts over a service's operations, shown in the list instead of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregates {
    /// All operations.
    pub operations: usize,
    /// Those with [`Availability::PaidX402`].
    pub paid: usize,
    /// Those with [`Availability::FreeVerified`].
    pub free: usize,
    /// The lowest estimated price; zero without operations.
    pub min_price: Amount,
}

impl Service {
    /// Whether agents may pay it, or have it enabled: it is in the curated set and not disabled.
    pub fn is_open(&self) -> bool {
        self.curated && self.trust_status != TrustStatus::Disabled
    }

    /// The counts of `docs/spec.md` §2.1.
    pub fn aggregates(&self) -> Aggregates {
        let count = |wanted| {
            self.operations
                .iter()
                .filter(|operation| operation.availability == wanted)
                .count()
        };
        Aggregates {
            operations: self.operations.len(),
            paid: count(Availability::PaidX402),
            free: count(Availability::FreeVerified),
            min_price: self
                .operations
                .iter()
                .map(|operation| operation.estimated_price)
                .min()
                .unwrap_or(Amount::ZERO),
        }
    }

    /// The operation of that slug.
    pub fn operation(&self, slug: &OperationSlug) -> Option<&Operation> {
        self.operations.iter().find(|operation| operation.slug == *slug)
    }
}

impl Operation {
    /// Whether a call with this method may be a call of this operation.
    pub fn takes(&self, method: &str) -> bool {
        self.method.eq_ignore_ascii_case(method)
    }

    /// Whether this is the operation's address: same scheme, host, port and path. Query strings are the caller's
    /// parameters.
    pub fn is_at(&self, url: &Url) -> bool {
        self.endpoint.scheme() == url.scheme()
            && self.endpoint.host() == url.host()
            && self.endpoint.port_or_known_default() == url.port_or_known_default()
            && path_of(&self.endpoint) == path_of(url)
    }

    /// Whether the caller names the page to fetch, so that `allowed_domains` applies (`docs/decisions.md` §9).
    pub fn fetches_targets(&self) -> bool {
        self.category == Category::Scrape || self.slug.fetches_targets()
    }
}

/// The whole catalog, as of one read; found in by UUID, by slug and by provider address, however large it is.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// In the order of their slugs.
    services: Vec<Service>,
    /// Their places, in the order of their ids.
    by_id: Vec<(ServiceId, usize)>,
    /// The places of services and of their operations, in the order of the addresses' digests.
    by_address: Vec<(u64, usize, usize)>,
}

impl Catalog {
    /// A catalog of these services, in the order of their slugs.
    pub fn new(mut services: Vec<Service>) -> Self {
        services.sort_by(|a, b| a.slug.cmp(&b.slug));
        let places = || services.iter().enumerate();
        let mut by_id: Vec<_> = places().map(|(place, service)| (service.id, place)).collect();
        by_id.sort_unstable();
        let mut by_address: Vec<_> = places()
            .flat_map(|(place, service)| {
                let operations = service.operations.iter().enumerate();
                operations.map(move |(index, operation)| (address_digest(&operation.endpoint), place, index))
            })
            .collect();
        by_address.sort_unstable();
        Self {
            services,
            by_id,
            by_address,
        }
    }

    /// Every service, by slug.
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// The service of that UUID.
    pub fn by_id(&self, id: ServiceId) -> Option<&Service> {
        let first = self.by_id.partition_point(|(other, _)| *other < id);
        let (_, place) = self.by_id.get(first).filter(|(other, _)| *other == id)?;
        self.services.get(*place)
    }

    /// The service of that slug or, where the text is one, UUID.
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

    /// The operations at an address, each with its service, in the order of the catalog.
    pub fn at(&self, url: &Url) -> impl Iterator<Item = (&Service, &Operation)> + Clone {
        let digest = address_digest(url);
        let first = self.by_address.partition_point(|(other, ..)| *other < digest);
        let alike = self
            .by_address
            .iter()
            .skip(first)
            .take_while(move |(other, ..)| *other == digest);
        alike
            .filter_map(|(_, place, index)| {
                let service = self.services.get(*place)?;
                Some((service, service.operations.get(*index)?))
            })
            .filter(move |(_, operation)| operation.is_at(url))
    }
}

/// What equal addresses have in common ([`Operation::is_at`]); others hardly ever do.
fn address_digest(url: &Url) -> u64 {
    let mut digest = DefaultHasher::new();
    url.scheme().hash(&mut digest);
    url.host().hash(&mut digest);
    url.port_or_known_default().hash(&mut digest);
    path_of(url).hash(&mut digest);
    digest.finish()
}

/// The path by which addresses are compared.
fn path_of(url: &Url) -> &str {
    url.path().trim_end_matches('/')
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
            endpoint: Url::parse(address).unwrap(),
            category: Category::Data,
            execution: String::new(),
            price_model: String::new(),
            estimated_price: Amount::ZERO,
            max_price: None,
            params: Value::Null,
            payment: None,
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
        }
    }

    fn addresses() -> impl Strategy<Value = Vec<&'static str>> {
        let known = vec![
            "https://a.example/x",
            "https://a.example/x/",
            "https://A.example:443/x?q=1",
            "https://a.example/X",
            "http://a.example/x",
            "https://a.example:444/x",
            "https://b.example/x",
            "https://a.example",
            "http://127.0.0.1/x",
            "http://2130706433/x#f",
        ];
        prop::collection::vec(prop::sample::select(known), 0..5)
    }

    proptest! {
        /// What is found by an index is what a look at every entry finds, in the same order.
        #[test]
        fn an_index_finds_what_a_search_finds(catalog in prop::collection::vec(addresses(), 0..8), asked in addresses()) {
            let services = catalog.iter().enumerate().map(|(n, addresses)| service(n, addresses)).collect();
            let catalog = Catalog::new(services);
            for address in asked {
                let url = Url::parse(address).unwrap();
                let every = catalog.services().iter();
                let every = every.flat_map(|service| service.operations.iter().map(move |operation| (service, operation)));
                let searched: Vec<_> = every.filter(|(_, operation)| operation.is_at(&url)).collect();
                prop_assert_eq!(catalog.at(&url).collect::<Vec<_>>(), searched);
            }
            for id in (0..10).map(|n| ServiceId::from_uuid(Uuid::from_u128(n))) {
                let searched = catalog.services().iter().find(|service| service.id == id);
                prop_assert_eq!(catalog.by_id(id), searched);
                prop_assert_eq!(catalog.by_reference(&id.to_string()), searched);
            }
        }
    }
}
