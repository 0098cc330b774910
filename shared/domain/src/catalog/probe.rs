//! Observations of the catalog's operations by live probes.
//!
//! A probe calls a provider without paying and reads its 402. The answer may be from the provider, or from somebody who
//! impersonates it: a thief of its keys, the next owner of its domain, or an attacker on the network path. Authorize
//! signs for the payee and price that the catalog pins, so an answer changes no entry. It is stored beside the entry
//! ([`ProbeRecord`]) and shown to operators, who pin every payment, including the first one.
//!
//! Readers add two labels, which have no effect on payments: an operation's availability, and the trust status
//! `probe_passed`.
//!
//! Elsewhere: the addresses that a probe may call, and reading the answer (`functions/probe`); the time at which a
//! pinned payment takes effect (`pricing.rs`).

use crate::{
    Availability, CatalogPayment, Duration, Fingerprint, Network, NoOfferReason, Offer, Operation, OperationUuid,
    Service, Timestamp, TrustStatus,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The payment that a provider asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quote {
    /// The provider asks for this payment, which Purser can make.
    Paid(CatalogPayment),
    /// The provider answered without a payment.
    Free,
}

/// The result of one probe of an operation: the provider's payment, or the reason that it is unknown.
pub type ProbeResult = Result<Quote, Obstacle>;

/// The reason that a probe did not see an operation's price. Each has a name, for operators and for storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Obstacle {
    /// The method is not safe to send.
    MethodNotProbed,
    /// The address has parameters, for which a probe has no values.
    PathParameters,
    /// The address, or one that it redirects to, is not on the public internet.
    BlockedAddress,
    /// The host name does not resolve to an address.
    UnknownHost,
    /// The connection failed or was closed early.
    Unreachable,
    /// The provider did not answer in time.
    Timeout,
    /// A redirect to an address that is not http or https, or from https to http.
    BadRedirect,
    /// More redirects than a probe follows.
    TooManyRedirects,
    /// The answer is longer than the probe reads.
    TooLarge,
    /// A status other than success or 402.
    Status(u16),
    /// A 402 without a readable x402 requirement.
    NotX402,
    /// Every offered payment has an unsupported scheme.
    OtherScheme,
    /// Every offered payment is on another network.
    OtherNetwork,
    /// The provider asks for a token other than the pinned one.
    OtherToken,
    /// The provider offers a supported payment, but a member of it is refused.
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

    /// The obstacle with this name, in the form of [`fmt::Display`].
    pub fn parse(word: &str) -> Option<Self> {
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

/// The payment in a 402: the one that authorize would choose and sign ([`Offer::choose`]).
pub fn read_requirement(requirement: &Value, network: Network) -> ProbeResult {
    match Offer::choose(requirement, network) {
        Ok(offer) => Ok(Quote::Paid(CatalogPayment::of(&offer, network))),
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

/// The name, such as `timeout` or `status_500`.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Status(status) = self {
            return write!(f, "status_{status}");
        }
        let word = Self::WORDS.iter().find(|(obstacle, _)| obstacle == self);
        f.write_str(word.map_or("", |(_, word)| word))
    }
}

/// The latest probe of one operation, and the last answer of any probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The called address: [`Operation::target`]. A result for one address proves nothing about another.
    pub target: Fingerprint,
    /// The time of the probe.
    pub at: Timestamp,
    /// Its result.
    pub seen: ProbeResult,
    /// The last answer, of this probe or an earlier one: an outage must not hide a changed price.
    pub answer: Option<Answer>,
}

/// The payment in a provider's answer, and the time since which it is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The payment.
    pub quote: Quote,
    /// The time of the first of the consecutive equal answers.
    pub since: Timestamp,
}

/// The probe results of a service. They are stored beside the entry, so that a probe without a change increments no
/// version of the catalog and reloads no cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeRecord {
    /// The number of recorded runs; every write of a record is conditional on it.
    pub version: u64,
    /// The time of an operator's latest request for a probe.
    pub requested_at: Option<Timestamp>,
    /// The probed operations.
    pub operations: BTreeMap<OperationUuid, Probe>,
}

impl ProbeRecord {
    /// The results of an operation, if they are for its current address.
    pub fn of(&self, operation: &Operation) -> Option<&Probe> {
        let target = operation.target();
        self.operations
            .get(&operation.id)
            .filter(|probe| probe.target == target)
    }

    /// Whether an operator's request for a probe of this operation is open.
    pub fn is_requested(&self, operation: &Operation) -> bool {
        let asked = |at| self.of(operation).is_none_or(|probe| probe.at < at);
        self.requested_at.is_some_and(asked)
    }

    /// Whether an operation is due for a probe: it was never probed, its probe is older than `interval`, or a request
    /// is open.
    pub fn is_due(&self, operation: &Operation, now: Timestamp, interval: Duration) -> bool {
        let seen_lately = |probe: &Probe| now.since(probe.at) < interval;
        self.is_requested(operation) || !self.of(operation).is_some_and(seen_lately)
    }

    /// The payment that an operation's provider asks for, if it differs from the listed one at this time, with the time
    /// since which it does; `None` if they agree or no answer is known.
    pub fn change(&self, operation: &Operation, at: Timestamp) -> Option<&Answer> {
        let answer = self.of(operation)?.answer.as_ref()?;
        let same = match (operation.pricing(at).payment, &answer.quote) {
            (Some(pinned), Quote::Paid(asked)) => pinned == asked,
            (None, Quote::Free) => true,
            (Some(_), Quote::Free) | (None, Quote::Paid(_)) => false,
        };
        (!same).then_some(answer)
    }
}

impl Operation {
    /// The fingerprint of the method and the whole address that a probe calls.
    pub fn target(&self) -> Fingerprint {
        Fingerprint::of_text(&format!("{} {}", self.method.to_ascii_uppercase(), self.endpoint))
    }
}

impl Availability {
    fn of(seen: &ProbeResult) -> Self {
        match seen {
            Ok(Quote::Paid(_)) => Self::PaidX402,
            Ok(Quote::Free) => Self::FreeVerified,
            Err(_) => Self::Unverified,
        }
    }
}

impl Probe {
    /// The result as the catalog's label.
    pub fn availability(&self) -> Availability {
        Availability::of(&self.seen)
    }
}

impl ProbeRecord {
    /// The record after a run of probes of this service that began at `at`. Results of operations that the service no
    /// longer has are dropped, also from the record.
    #[must_use]
    pub fn with(
        &self,
        service: &Service,
        results: impl IntoIterator<Item = (OperationUuid, ProbeResult)>,
        at: Timestamp,
    ) -> Self {
        let known = service.operations.iter();
        let mut known: BTreeMap<OperationUuid, Probe> = known
            .filter_map(|operation| Some((operation.id, self.of(operation)?.clone())))
            .collect();
        for (id, seen) in results {
            let Some(operation) = service.operations.iter().find(|operation| operation.id == id) else {
                continue;
            };
            let before = known.remove(&id).and_then(|probe| probe.answer);
            let answer = match &seen {
                Ok(quote) => {
                    let same = before.filter(|answer| answer.quote == *quote);
                    let (quote, since) = (quote.clone(), same.map_or(at, |answer| answer.since));
                    Some(Answer { quote, since })
                }
                Err(_) => before,
            };
            let target = operation.target();
            let probe = Probe {
                target,
                at,
                seen,
                answer,
            };
            known.insert(id, probe);
        }
        Self {
            version: self.version.saturating_add(1),
            requested_at: self.requested_at,
            operations: known,
        }
    }

    /// The label of an operation's latest probe.
    pub fn availability(&self, operation: &Operation) -> Availability {
        self.of(operation).map_or(Availability::Unverified, Probe::availability)
    }

    /// Whether every operation of the service has answered, with or without a payment. Later failures change only the
    /// availability.
    pub fn has_passed(&self, service: &Service) -> bool {
        let answered = |operation| self.of(operation).is_some_and(|probe| probe.answer.is_some());
        !service.operations.is_empty() && service.operations.iter().all(answered)
    }

    /// The service with its probe results, as readers see it.
    pub fn shown(&self, service: &Service) -> Service {
        let mut shown = service.clone();
        for operation in &mut shown.operations {
            operation.availability = self.availability(operation);
        }
        if self.has_passed(service) {
            shown.trust_status = shown.trust_status.passed();
        }
        shown
    }
}

impl TrustStatus {
    /// The status of a service that passed its probes. A status that an operator set is unchanged.
    #[must_use]
    pub const fn passed(self) -> Self {
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

    /// The record after probing operation 1 several times, ten seconds apart.
    fn after(entry: &Service, results: &[ProbeResult]) -> ProbeRecord {
        let runs = (1..).zip(results);
        runs.fold(ProbeRecord::default(), |record, (n, seen)| {
            record.with(entry, [(id(1), seen.clone())], at(n * 10))
        })
    }

    fn one(endpoint: &str, payment: Option<CatalogPayment>) -> Service {
        service(TrustStatus::Listed, vec![operation(1, endpoint, payment)])
    }

    /// A difference persists during an outage of the provider.
    #[test]
    fn payment_differences_are_reported_with_start_time() {
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
            let change = record.change(&entry.operations[0], at(99));
            assert_eq!(change.map(|answer| answer.since.secs()), since, "{seen:?}");
        }
    }

    #[test]
    fn a_service_passes_when_all_of_it_answers() {
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
                let record = ProbeRecord::default().with(&entry, seen, at(1));
                assert_eq!(record.shown(&entry).trust_status, expected);
                // The operations may be probed in one run or two, and a later failure does not revert the result.
                let record = record.with(&entry, [(id(2), FREE)], at(2));
                assert_eq!(record.shown(&entry).trust_status, passed);
                let record = record.with(&entry, [(id(1), DOWN)], at(3));
                let shown = record.shown(&entry);
                assert_eq!(
                    (shown.trust_status, shown.operations[0].availability),
                    (passed, Availability::Unverified)
                );
            }
        }
        let empty = service(TrustStatus::Listed, Vec::new());
        assert_eq!(after(&empty, &[]).shown(&empty), empty);
    }

    #[test]
    fn results_for_unknown_operations_are_dropped() {
        let entry = one(HTTPS, None);
        let record = after(&entry, &[Ok(paid(10, 1))]).with(&entry, [(id(9), FREE)], at(99));
        assert_eq!((record.version, record.operations.len()), (2, 1));
        let shown = record.shown(&entry);
        assert_eq!(shown.operations[0].availability, Availability::PaidX402);
        assert_eq!(
            (shown.operations[0].payment.as_ref(), shown.version),
            (None, entry.version)
        );
    }

    #[test]
    fn what_was_seen_elsewhere_says_nothing_here() {
        let mut entry = one(HTTPS, Some(payment(10, 1)));
        let record = after(&entry, &[Ok(paid(11, 1))]);
        let day = Duration::DAY;
        assert!(!record.is_due(&entry.operations[0], at(20), day));
        entry.operations[0].endpoint = Endpoint::parse("https://lab.example/other").unwrap();
        let moved = &entry.operations[0];
        assert_eq!((record.of(moved), record.change(moved, at(20))), (None, None));
        assert!(record.is_due(moved, at(20), day));
        assert_eq!(record.with(&entry, [], at(30)).operations.len(), 0, "and is forgotten");
    }

    #[test]
    fn operations_are_due_when_new_old_or_requested() {
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

    /// If no entry is payable, the obstacle of the most suitable entry is reported.
    #[test]
    fn requirements_are_read_the_way_authorize_does() {
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
                read_requirement(&requirement, Network::BaseSepolia),
                expected,
                "{requirement}"
            );
        }
    }

    #[test]
    fn every_obstacle_has_a_word_of_its_own() {
        let statuses = [0, 404, 500, u16::MAX].map(Obstacle::Status);
        let mut words = Vec::new();
        for obstacle in Obstacle::WORDS.iter().map(|(obstacle, _)| *obstacle).chain(statuses) {
            let word = obstacle.to_string();
            assert_eq!(Obstacle::parse(&word), Some(obstacle));
            words.push(word);
        }
        words.sort();
        words.dedup();
        assert_eq!(words.len(), Obstacle::WORDS.len() + statuses.len());
        for word in ["", "status_", "status_0500", "status_+1", "status_70000", "Timeout"] {
            assert_eq!(Obstacle::parse(word), None, "{word}");
        }
    }
}
