//! The results of live probes of the catalog's operations.
//!
//! A probe calls a provider without paying and reads the 402 response. The response may come from an impersonator, so a
//! probe never changes the catalog or a payment. Operators see the result and set prices and payees.

use crate::{
    Availability, CatalogPayment, Duration, Fingerprint, Network, NoOfferReason, Offer, Operation, OperationUuid,
    Service, Timestamp, TrustStatus,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The price that a provider asks for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quote {
    /// The provider requires this payment, which Purser can make.
    Paid(CatalogPayment),
    /// The provider served the call without a payment.
    Free,
}

/// The price that a probe read, or why the probe read no price.
pub type ProbeResult = Result<Quote, Obstacle>;

/// Why a probe could not read an operation's price. Operators see the name of the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Obstacle {
    /// The operation's HTTP method may have side effects, so a probe does not call the operation.
    MethodNotProbed,
    /// The address has path parameters, for which a probe has no values.
    PathParameters,
    /// The address, or the target of a redirect, is not on the public internet.
    BlockedAddress,
    /// The host name does not resolve to an address.
    UnknownHost,
    /// The connection failed or was closed early.
    Unreachable,
    /// The provider did not respond before the timeout.
    Timeout,
    /// The provider redirected to an address that is not http or https, or from https to http.
    BadRedirect,
    /// The provider sent more redirects than a probe follows.
    TooManyRedirects,
    /// The response is longer than the maximum that a probe reads.
    TooLarge,
    /// The response has a status other than success or 402.
    Status(u16),
    /// The response is a 402 without readable x402 payment requirements.
    NotX402,
    /// All payment requirements have an unsupported scheme.
    OtherScheme,
    /// All payment requirements are for other networks.
    OtherNetwork,
    /// The provider requires a token other than the network's USDC.
    OtherToken,
    /// The scheme, network and token are supported, but another field is invalid.
    NotPayable,
}

impl Obstacle {
    const WORDS: &'static [(Self, &'static str)] = &[
        (Self::MethodNotProbed, "method_not_probed"),
        (Self::PathParameters, "path_parameters"),
        (Self::BlockedAddress, "blocked_address"),
        (Self::UnknownHost, "unknown_host"),
        (Self::Unreachable, "unreachable"),
        (Self::Timeout, "timeout"),
        (Self::BadRedirect, "bad_redirect"),
        (Self::TooManyRedirects, "too_many_redirects"),
        (Self::TooLarge, "too_large"),
        (Self::NotX402, "not_x402"),
        (Self::OtherScheme, "other_scheme"),
        (Self::OtherNetwork, "other_network"),
        (Self::OtherToken, "other_token"),
        (Self::NotPayable, "not_payable"),
    ];

    /// Parses the name of a reason, as [`fmt::Display`] writes it. Returns `None` for any other text.
    pub fn from_word(word: &str) -> Option<Self> {
        if let Some(status) = word.strip_prefix("status_") {
            let status = status.parse().ok().map(Self::Status)?;
            return (status.to_string() == word).then_some(status);
        }
        Self::WORDS
            .iter()
            .find(|(_, known)| *known == word)
            .map(|(obstacle, _)| *obstacle)
    }
}

/// Returns the payment that authorize would choose for this 402 response ([`Offer::choose_cheapest`]).
pub fn probe_result_from_requirements(requirement: &Value, network: Network) -> ProbeResult {
    match Offer::choose_cheapest(requirement, network) {
        Ok(offer) => Ok(Quote::Paid(CatalogPayment::from_requirements(&offer, network))),
        Err(none) => Err(none.reason.into()),
    }
}

impl From<NoOfferReason> for Obstacle {
    fn from(reason: NoOfferReason) -> Self {
        match reason {
            NoOfferReason::NotPayable => Self::NotPayable,
            NoOfferReason::OtherToken => Self::OtherToken,
            NoOfferReason::OtherNetwork => Self::OtherNetwork,
            NoOfferReason::OtherScheme => Self::OtherScheme,
            NoOfferReason::NotX402 => Self::NotX402,
        }
    }
}

/// Writes the name, for example `timeout` or `status_500`.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Status(status) = self {
            return write!(f, "status_{status}");
        }
        let word = Self::WORDS.iter().find(|(obstacle, _)| obstacle == self);
        f.write_str(word.map_or("", |(_, word)| word))
    }
}

/// The latest probe of an operation, and the last price that any probe read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The fingerprint of the called address ([`Operation::probe_fingerprint`]). A result applies only to this address.
    pub target: Fingerprint,
    /// The time at which the probe called the operation.
    pub at: Timestamp,
    /// The price that the probe read, or the reason why it read no price.
    pub seen: ProbeResult,
    /// The last price that any probe read. It stays known during an outage.
    pub answer: Option<Answer>,
}

/// The last price that a provider's responses had, and the time of the first probe that read this price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The price in the provider's response.
    pub quote: Quote,
    /// The time of the first probe that read this price. Every later probe that read a price read the same price.
    pub since: Timestamp,
}

/// A service's probe results, stored apart from the service so that a probe does not increment the catalog's version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeRecord {
    /// The version of the record. Every write is conditional on it.
    pub version: u64,
    /// The time of the latest request for a probe by an operator.
    pub requested_at: Option<Timestamp>,
    /// The latest probe of each operation.
    pub operations: BTreeMap<OperationUuid, Probe>,
}

impl ProbeRecord {
    /// Returns the latest probe of an operation, if the probe called the operation's current address.
    pub fn latest_probe(&self, operation: &Operation) -> Option<&Probe> {
        let target = operation.probe_fingerprint();
        self.operations
            .get(&operation.id)
            .filter(|probe| probe.target == target)
    }

    /// Returns whether an operator requested a probe of this operation that has not run yet.
    pub fn is_probe_requested(&self, operation: &Operation) -> bool {
        let request = |at| self.latest_probe(operation).is_none_or(|probe| probe.at < at);
        self.requested_at.is_some_and(request)
    }

    /// Returns whether an operation is due for a probe: after `interval`, or if an operator requested a probe.
    pub fn is_due(&self, operation: &Operation, now: Timestamp, interval: Duration) -> bool {
        let seen_lately = |probe: &Probe| now.since(probe.at) < interval;
        self.is_probe_requested(operation) || !self.latest_probe(operation).is_some_and(seen_lately)
    }

    /// Returns the last price that a probe read, if the catalog has another payment at this time.
    pub fn changed_payment(&self, operation: &Operation, at: Timestamp) -> Option<&Answer> {
        let response = self.latest_probe(operation)?.answer.as_ref()?;
        let same = match (operation.pricing_at(at).payment, &response.quote) {
            (Some(pinned), Quote::Paid(request)) => pinned == request,
            (None, Quote::Free) => true,
            (Some(_), Quote::Free) | (None, Quote::Paid(_)) => false,
        };
        (!same).then_some(response)
    }
}

impl Operation {
    /// Returns the fingerprint of the method and full address that a probe calls.
    pub fn probe_fingerprint(&self) -> Fingerprint {
        Fingerprint::for_text(&format!("{} {}", self.method.to_ascii_uppercase(), self.endpoint))
    }
}

impl Availability {
    fn from_result(result: &ProbeResult) -> Self {
        match result {
            Ok(Quote::Paid(_)) => Self::PaidX402,
            Ok(Quote::Free) => Self::FreeVerified,
            Err(_) => Self::Unverified,
        }
    }
}

impl Probe {
    /// Returns the availability that this probe shows.
    pub fn availability(&self) -> Availability {
        Availability::from_result(&self.seen)
    }
}

impl ProbeRecord {
    /// Returns the record after a run of probes that began at `at`. Results of removed operations are dropped.
    #[must_use]
    pub fn with_results(
        &self,
        service: &Service,
        results: impl IntoIterator<Item = (OperationUuid, ProbeResult)>,
        at: Timestamp,
    ) -> Self {
        let known = service.operations.iter();
        let mut known: BTreeMap<OperationUuid, Probe> = known
            .filter_map(|operation| Some((operation.id, self.latest_probe(operation)?.clone())))
            .collect();
        for (id, seen) in results {
            let Some(operation) = service.operations.iter().find(|operation| operation.id == id) else {
                continue;
            };
            let before = known.remove(&id).and_then(|probe| probe.answer);
            let response = match &seen {
                Ok(quote) => {
                    let same = before.filter(|response| response.quote == *quote);
                    let (quote, since) = (quote.clone(), same.map_or(at, |response| response.since));
                    Some(Answer { quote, since })
                }
                Err(_) => before,
            };
            let target = operation.probe_fingerprint();
            let probe = Probe {
                target,
                at,
                seen,
                answer: response,
            };
            known.insert(id, probe);
        }
        Self {
            version: self.version.saturating_add(1),
            requested_at: self.requested_at,
            operations: known,
        }
    }

    /// Returns an operation's availability label, from the latest probe.
    pub fn availability(&self, operation: &Operation) -> Availability {
        self.latest_probe(operation)
            .map_or(Availability::Unverified, Probe::availability)
    }

    /// Returns whether probes have read a price for every operation of the service. A free operation counts as read.
    pub fn has_passed_all_probes(&self, service: &Service) -> bool {
        let answered = |operation| self.latest_probe(operation).is_some_and(|probe| probe.answer.is_some());
        !service.operations.is_empty() && service.operations.iter().all(answered)
    }

    /// Returns the service with the trust status and availability from the probes, for the API.
    pub fn service_with_probe_results(&self, service: &Service) -> Service {
        let mut shown = service.clone();
        for operation in &mut shown.operations {
            operation.availability = self.availability(operation);
        }
        if self.has_passed_all_probes(service) {
            shown.trust_status = shown.trust_status.after_passed_probe();
        }
        shown
    }
}

impl TrustStatus {
    /// Returns the trust status after passed probes. A status that an operator set does not change.
    #[must_use]
    pub const fn after_passed_probe(self) -> Self {
        match self {
            Self::Listed | Self::Discovered => Self::ProbePassed,
            Self::ProbePassed | Self::PlatformVerified | Self::Disabled => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Address, Amount, Category, Endpoint, ListingHistory, Network, OperationSlug, ServiceId, ServiceSlug, Url,
    };
    use serde_json::json;
    use uuid::Uuid;

    const HTTPS: &str = "https://lab.example/weather";

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    fn id(n: u128) -> OperationUuid {
        OperationUuid::from_uuid(Uuid::from_u128(n))
    }

    fn payment(units: u64, payee: u8) -> CatalogPayment {
        CatalogPayment {
            scheme: "exact".to_owned(),
            network: Network::BaseSepolia,
            amount: Amount::from_units(units).unwrap(),
            pay_to: Address::repeat_byte(payee),
        }
    }

    fn paid(units: u64, payee: u8) -> Quote {
        Quote::Paid(payment(units, payee))
    }

    const DOWN: ProbeResult = Err(Obstacle::Timeout);
    const FREE: ProbeResult = Ok(Quote::Free);

    fn operation(n: u128, endpoint: &str, payment: Option<CatalogPayment>) -> Operation {
        Operation {
            id: id(n),
            slug: OperationSlug::parse("weather.current").unwrap(),
            availability: Availability::Unverified,
            label: String::new(),
            method: "GET".to_owned(),
            endpoint: Endpoint::parse(endpoint).unwrap(),
            category: Category::Data,
            execution: "sync".to_owned(),
            price_model: "fixed".to_owned(),
            estimated_price: Amount::ZERO,
            max_price: None,
            params: json!({}),
            fetches_target: None,
            payment,
            next: None,
        }
    }

    fn service(trust_status: TrustStatus, operations: Vec<Operation>) -> Service {
        Service {
            id: ServiceId::from_uuid(Uuid::from_u128(1)),
            version: 3,
            slug: ServiceSlug::parse("lab").unwrap(),
            name: String::new(),
            description: String::new(),
            website: Url::parse(HTTPS).unwrap(),
            logo_url: None,
            category: Category::Data,
            source: String::new(),
            trust_status,
            curated: true,
            operations,
            history: ListingHistory::default(),
        }
    }

    fn after(entry: &Service, results: &[ProbeResult]) -> ProbeRecord {
        let runs = (1..).zip(results);
        runs.fold(ProbeRecord::default(), |record, (n, seen)| {
            record.with_results(entry, [(id(1), seen.clone())], at(n * 10))
        })
    }

    fn one(endpoint: &str, payment: Option<CatalogPayment>) -> Service {
        service(TrustStatus::Listed, vec![operation(1, endpoint, payment)])
    }

    #[test]
    fn a_probed_payment_that_differs_from_the_catalog_is_reported_with_its_start() {
        let rows: [(&[ProbeResult], Option<u64>); 8] = [
            (&[], None),
            (&[DOWN], None),
            (&[Ok(paid(10, 1))], None),
            (&[Ok(paid(10, 1)), Ok(paid(11, 1))], Some(20)),
            (&[Ok(paid(11, 1)), Ok(paid(11, 1)), DOWN], Some(10)),
            (&[Ok(paid(11, 1)), Ok(paid(10, 2))], Some(20)),
            (&[Ok(paid(11, 1)), Ok(paid(10, 1))], None),
            (&[FREE], Some(10)),
        ];
        for (seen, since) in rows {
            let entry = one(HTTPS, Some(payment(10, 1)));
            let record = after(&entry, seen);
            let change = record.changed_payment(&entry.operations[0], at(99));
            assert_eq!(change.map(|answer| answer.since.secs()), since, "{seen:?}");
        }
    }

    #[test]
    fn a_service_becomes_probe_passed_when_all_its_operations_respond() {
        let endpoints = ["https://lab.example/a", "https://lab.example/b"];
        let both = || vec![operation(1, endpoints[0], None), operation(2, endpoints[1], None)];
        for status in TrustStatus::ALL.iter().copied() {
            let entry = service(status, both());
            let passed = match status {
                TrustStatus::Listed | TrustStatus::Discovered => TrustStatus::ProbePassed,
                TrustStatus::ProbePassed | TrustStatus::PlatformVerified | TrustStatus::Disabled => status,
            };
            let rows = [
                (vec![(id(1), FREE)], status),
                (vec![(id(1), FREE), (id(2), DOWN)], status),
                (vec![(id(1), FREE), (id(2), Ok(paid(1, 1)))], passed),
            ];
            for (seen, expected) in rows {
                let record = ProbeRecord::default().with_results(&entry, seen, at(1));
                assert_eq!(record.service_with_probe_results(&entry).trust_status, expected);
                let record = record.with_results(&entry, [(id(2), FREE)], at(2));
                assert_eq!(record.service_with_probe_results(&entry).trust_status, passed);
                let record = record.with_results(&entry, [(id(1), DOWN)], at(3));
                let shown = record.service_with_probe_results(&entry);
                assert_eq!(
                    (shown.trust_status, shown.operations[0].availability),
                    (passed, Availability::Unverified)
                );
            }
        }
        let empty = service(TrustStatus::Listed, Vec::new());
        assert_eq!(after(&empty, &[]).service_with_probe_results(&empty), empty);
    }

    #[test]
    fn probe_results_for_unknown_operations_are_dropped() {
        let entry = one(HTTPS, None);
        let record = after(&entry, &[Ok(paid(10, 1))]).with_results(&entry, [(id(9), FREE)], at(99));
        assert_eq!((record.version, record.operations.len()), (2, 1));
        let shown = record.service_with_probe_results(&entry);
        assert_eq!(shown.operations[0].availability, Availability::PaidX402);
        assert_eq!(
            (shown.operations[0].payment.as_ref(), shown.version),
            (None, entry.version)
        );
    }

    #[test]
    fn probe_results_of_a_former_endpoint_are_not_used() {
        let mut entry = one(HTTPS, Some(payment(10, 1)));
        let record = after(&entry, &[Ok(paid(11, 1))]);
        let day = Duration::DAY;
        assert!(!record.is_due(&entry.operations[0], at(20), day));
        entry.operations[0].endpoint = Endpoint::parse("https://lab.example/other").unwrap();
        let moved = &entry.operations[0];
        assert_eq!(
            (record.latest_probe(moved), record.changed_payment(moved, at(20))),
            (None, None)
        );
        assert!(record.is_due(moved, at(20), day));
        assert_eq!(
            record.with_results(&entry, [], at(30)).operations.len(),
            0,
            "and is forgotten"
        );
    }

    #[test]
    fn probes_are_due_for_new_outdated_or_requested_operations() {
        let entry = one(HTTPS, None);
        let mut record = after(&entry, &[DOWN]);
        let operation = &entry.operations[0];
        let hour = Duration::from_secs_u32(3_600);
        assert!(ProbeRecord::default().is_due(operation, at(0), hour));
        for (now, requested, due) in [
            (3_609, None, false),
            (3_610, None, true),
            (20, Some(15), true),
            (20, Some(10), false),
            (20, Some(5), false),
        ] {
            record.requested_at = requested.map(at);
            assert_eq!(record.is_due(operation, at(now), hour), due, "{now} {requested:?}");
        }
    }

    #[test]
    fn probes_parse_payment_requirements_like_authorize() {
        let entry = |change: fn(&mut Value)| {
            let token = Network::BaseSepolia.token();
            let mut entry = json!({
                "scheme": "exact", "network": "eip155:84532", "amount": "10", "asset": token.address.to_string(),
                "payTo": Address::repeat_byte(1).to_string(), "maxTimeoutSeconds": 60,
                "extra": {"name": token.name, "version": token.version},
            });
            change(&mut entry);
            entry
        };
        let ours = || entry(|_| ());
        let scheme = || entry(|entry| entry["scheme"] = json!("upto"));
        let network = || entry(|entry| entry["network"] = json!("eip155:1"));
        let both = || entry(|entry| (entry["scheme"], entry["network"]) = (json!("upto"), json!("eip155:1")));
        let token = || entry(|entry| entry["asset"] = json!(Address::repeat_byte(9).to_string()));
        let amount = || entry(|entry| entry["amount"] = json!(10));
        let dear = || entry(|entry| entry["amount"] = json!("11"));
        let v2 =
            |entries: Vec<Value>| json!({"x402Version": 2, "accepts": entries, "resource": {"url": "https://a.b/"}});
        let rows = [
            (v2(vec![ours()]), Ok(paid(10, 1))),
            (v2(vec![scheme(), network(), dear(), ours(), token()]), Ok(paid(10, 1))),
            (ours(), Ok(paid(10, 1))),
            (v2(vec![scheme()]), Err(Obstacle::OtherScheme)),
            (v2(vec![both(), scheme()]), Err(Obstacle::OtherScheme)),
            (v2(vec![scheme(), network()]), Err(Obstacle::OtherNetwork)),
            (network(), Err(Obstacle::OtherNetwork)),
            (v2(vec![network(), token(), scheme()]), Err(Obstacle::OtherToken)),
            (v2(vec![token(), amount(), network()]), Err(Obstacle::NotPayable)),
            (v2(vec![json!(7)]), Err(Obstacle::NotPayable)),
            (v2(vec![]), Err(Obstacle::NotX402)),
            (json!({"x402Version": 3, "accepts": [ours()]}), Err(Obstacle::NotX402)),
            (json!({"error": "pay me"}), Err(Obstacle::NotX402)),
            (json!([]), Err(Obstacle::NotX402)),
        ];
        for (requirement, expected) in rows {
            assert_eq!(
                probe_result_from_requirements(&requirement, Network::BaseSepolia),
                expected,
                "{requirement}"
            );
        }
    }

    #[test]
    fn every_probe_obstacle_has_a_distinct_name() {
        let statuses = [0, 404, 500, u16::MAX].map(Obstacle::Status);
        let mut words = Vec::new();
        for obstacle in Obstacle::WORDS.iter().map(|(obstacle, _)| *obstacle).chain(statuses) {
            let word = obstacle.to_string();
            assert_eq!(Obstacle::from_word(&word), Some(obstacle));
            words.push(word);
        }
        words.sort();
        words.dedup();
        assert_eq!(words.len(), Obstacle::WORDS.len() + statuses.len());
        for word in ["", "status_", "status_0500", "status_+1", "status_70000", "Timeout"] {
            assert_eq!(Obstacle::from_word(word), None, "{word}");
        }
    }
}
