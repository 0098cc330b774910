//! What live probes observe of the catalog's operations, and how much of it may change the catalog.
//!
//! A probe calls a provider without paying and reads its 402. The answer may come from anybody who answers in the
//! provider's name: the provider itself after its keys were stolen, the next owner of its domain, somebody on the
//! network path. Authorize signs by what the catalog pins - the payee, the prices - so an answer must never change what
//! is pinned, or it could move money. Always true, then, of [`Service::probed`]:
//!
//! - what is pinned stays; an answer that differs is kept beside the entry ([`ProbeRecord`]) and shown to operators,
//!   who accept it by writing the entry;
//! - a payment is filled in only the first time one is seen, where the catalog has none, and only if that accepts no
//!   payee that was refused before ([`Service::may_pin`]);
//! - availability and the step to `probe_passed` are labels: nothing is signed by them.
//!
//! Deliberately elsewhere: whom a probe may call at all, and reading the answer (`functions/probe`).

use crate::{
    Address, Availability, CatalogPayment, Duration, Endpoint, Fingerprint, Network, NoOfferReason, Offer, Operation,
    OperationUuid, Service, Timestamp, TrustStatus,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use url::Host;

/// What a provider wants for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quote {
    /// This payment, which is one that Purser can make.
    Paid(CatalogPayment),
    /// Nothing: it answered without payment.
    Free,
}

/// The result of one probe of an operation: what the provider wants, or why that is not known.
pub type ProbeResult = Result<Quote, Obstacle>;

/// Why a probe did not see what an operation costs. Each has a name, for operators and for storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Obstacle {
    /// The method is not one that is safe to send.
    MethodNotProbed,
    /// The address has parameters, for which a probe has no values.
    PathParameters,
    /// The address, or one that it redirects to, is not on the public internet.
    BlockedAddress,
    /// The host name has no address.
    UnknownHost,
    /// No connection, or it was closed early.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// A redirect to anything but an http or https address, or from https to http.
    BadRedirect,
    /// One redirect too many.
    TooManyRedirects,
    /// The answer is longer than what is read.
    TooLarge,
    /// Another status than success or 402.
    Status(u16),
    /// A 402 without a readable x402 requirement.
    NotX402,
    /// Every payment it takes is of a scheme that is not paid.
    OtherScheme,
    /// Every payment it takes is on another network.
    OtherNetwork,
    /// It wants another token than the pinned one.
    OtherToken,
    /// It offers a payment that Purser makes, with something in it that is refused.
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

    /// The obstacle of that name, as [`fmt::Display`] writes it.
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

/// What a 402 asks for: the payment that authorize would choose and sign of it ([`Offer::choose`]).
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

/// The name: `timeout`, `status_500`.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Status(status) = self {
            return write!(f, "status_{status}");
        }
        let word = Self::WORDS.iter().find(|(obstacle, _)| obstacle == self);
        f.write_str(word.map_or("", |(_, word)| word))
    }
}

/// The latest probe of one operation, and the last answer that any probe got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What was called: [`Operation::target`]. A result for one address says nothing about another.
    pub target: Fingerprint,
    /// When.
    pub at: Timestamp,
    /// Its result.
    pub seen: ProbeResult,
    /// The last answer, of this probe or an earlier one: an outage must not hide that the price has changed.
    pub answer: Option<Answer>,
}

/// What a provider wants, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it wants.
    pub quote: Quote,
    /// When the first of the equal answers came.
    pub since: Timestamp,
}

/// What probes know of a service. It is stored beside the entry, so that a probe without news changes no version of the
/// catalog and makes no cache reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeRecord {
    /// Counts the recorded runs; every write of a record is conditional on it.
    pub version: u64,
    /// When an operator last asked for a probe.
    pub requested_at: Option<Timestamp>,
    /// The operations that were probed.
    pub operations: BTreeMap<OperationUuid, Probe>,
}

impl ProbeRecord {
    /// What is known of an operation, at the address that it has now.
    pub fn of(&self, operation: &Operation) -> Option<&Probe> {
        let target = operation.target();
        self.operations
            .get(&operation.id)
            .filter(|probe| probe.target == target)
    }

    /// Whether an operator asked for a probe of this operation that has not been made yet.
    pub fn is_requested(&self, operation: &Operation) -> bool {
        let asked = |at| self.of(operation).is_none_or(|probe| probe.at < at);
        self.requested_at.is_some_and(asked)
    }

    /// Whether an operation is due for a probe: it was never probed, or not for that long, or an operator asks.
    pub fn is_due(&self, operation: &Operation, now: Timestamp, interval: Duration) -> bool {
        let seen_lately = |probe: &Probe| now.since(probe.at) < interval;
        self.is_requested(operation) || !self.of(operation).is_some_and(seen_lately)
    }

    /// What an operation's provider wants in place of what the catalog says, and since when; `None` while they agree,
    /// or nothing is known.
    pub fn change(&self, operation: &Operation) -> Option<&Answer> {
        let answer = self.of(operation)?.answer.as_ref()?;
        let same = match (&operation.payment, &answer.quote) {
            (Some(pinned), Quote::Paid(asked)) => pinned == asked,
            (None, Quote::Free) => true,
            (Some(_), Quote::Free) | (None, Quote::Paid(_)) => false,
        };
        (!same).then_some(answer)
    }
}

impl Operation {
    /// What a probe calls: the method and the whole address.
    pub fn target(&self) -> Fingerprint {
        Fingerprint::of_text(&format!("{} {}", self.method.to_ascii_uppercase(), self.endpoint))
    }
}

impl Service {
    /// The entry and its record after a run of probes that began `at` that time. An unchanged entry keeps its version.
    /// See the module's documentation for what a probe may change; results of operations that the entry does not have
    /// are dropped, also from the record.
    pub fn probed(
        &self,
        record: &ProbeRecord,
        results: impl IntoIterator<Item = (OperationUuid, ProbeResult)>,
        at: Timestamp,
    ) -> (Self, ProbeRecord) {
        let mut entry = self.clone();
        let mut known: BTreeMap<OperationUuid, Probe> = self
            .operations
            .iter()
            .filter_map(|operation| Some((operation.id, record.of(operation)?.clone())))
            .collect();
        for (id, seen) in results {
            let Some(operation) = entry.operations.iter_mut().find(|operation| operation.id == id) else {
                continue;
            };
            let before = known.remove(&id).and_then(|probe| probe.answer);
            operation.availability = match &seen {
                Ok(Quote::Paid(_)) => Availability::PaidX402,
                Ok(Quote::Free) => Availability::FreeVerified,
                Err(_) => Availability::Unverified,
            };
            if let (Ok(Quote::Paid(payment)), None) = (&seen, &before)
                && self.may_pin(operation, payment.pay_to)
            {
                operation.payment = Some(payment.clone());
            }
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
        let record = ProbeRecord {
            version: record.version.saturating_add(1),
            requested_at: record.requested_at,
            operations: known,
        };
        entry.trust_status = self.trust_status.after_probes(&entry.operations, &record);
        if entry != *self {
            entry.version = self.version.saturating_add(1);
        }
        (entry, record)
    }

    /// Whether a payee that was seen for the first time may become the catalog's payee of an operation.
    ///
    /// Only if the operation has none yet, so that nothing of it could be paid; only if it is the payee of the rest of
    /// the service, if that has one; and only if nobody on the network path can forge the answer: over https, or on
    /// this machine.
    fn may_pin(&self, operation: &Operation, payee: Address) -> bool {
        let mut named = self
            .operations
            .iter()
            .filter_map(|operation| operation.payment.as_ref())
            .map(|payment| payment.pay_to)
            .peekable();
        operation.payment.is_none()
            && speaks_for_itself(&operation.endpoint)
            && (named.peek().is_none() || named.any(|named| named == payee))
    }
}

impl TrustStatus {
    /// The status after a run of probes: a service whose every operation answers, paid or free, has passed. An
    /// operator's status stays, and so does a pass: later failures show in the availability.
    fn after_probes(self, operations: &[Operation], record: &ProbeRecord) -> Self {
        let answers = |operation| record.of(operation).is_some_and(|probe| probe.seen.is_ok());
        match self {
            Self::Listed | Self::Discovered if !operations.is_empty() && operations.iter().all(answers) => {
                Self::ProbePassed
            }
            Self::Listed | Self::Discovered | Self::ProbePassed | Self::PlatformVerified | Self::Disabled => self,
        }
    }
}

/// Whether nobody on the network path can forge an answer from there.
fn speaks_for_itself(endpoint: &Endpoint) -> bool {
    let loopback = match endpoint.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(_)) | None => false,
    };
    endpoint.scheme() == "https" || loopback
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Amount, Category, Network, OperationSlug, ServiceId, ServiceSlug, Url};
    use proptest::prelude::*;
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
        }
    }

    /// The entry and record after probing operation 1 several times, ten seconds apart.
    fn after(entry: Service, results: &[ProbeResult]) -> (Service, ProbeRecord) {
        let mut state = (entry, ProbeRecord::default());
        for (n, seen) in (1..).zip(results) {
            state = state.0.probed(&state.1, [(id(1), seen.clone())], at(n * 10));
        }
        state
    }

    fn one(endpoint: &str, payment: Option<CatalogPayment>) -> Service {
        service(TrustStatus::Listed, vec![operation(1, endpoint, payment)])
    }

    #[test]
    fn an_answer_never_changes_what_is_pinned() {
        let pinned = Some(payment(10, 1));
        for seen in [Ok(paid(10, 1)), Ok(paid(11, 1)), Ok(paid(10, 2)), FREE, DOWN] {
            let (entry, _) = after(one(HTTPS, pinned.clone()), &[DOWN, seen.clone(), Ok(paid(12, 3))]);
            assert_eq!(entry.operations[0].payment, pinned, "{seen:?}");
        }
    }

    #[test]
    fn what_differs_is_told_since_it_does_and_through_outages() {
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
            let (entry, record) = after(one(HTTPS, Some(payment(10, 1))), seen);
            let change = record.change(&entry.operations[0]);
            assert_eq!(change.map(|answer| answer.since.secs()), since, "{seen:?}");
        }
    }

    #[test]
    fn a_payment_is_filled_in_at_first_sight_alone() {
        let rows: [(&str, &[ProbeResult], Option<u64>); 7] = [
            (HTTPS, &[Ok(paid(10, 1))], Some(10)),
            (HTTPS, &[DOWN, Ok(paid(10, 1)), Ok(paid(11, 2))], Some(10)),
            (HTTPS, &[FREE, Ok(paid(10, 1))], None),
            (HTTPS, &[FREE, DOWN, Ok(paid(10, 1))], None),
            ("http://127.0.0.1:4021/weather", &[Ok(paid(10, 1))], Some(10)),
            ("http://[::1]:4021/weather", &[Ok(paid(10, 1))], Some(10)),
            // Somebody on the network path could have answered.
            ("http://lab.example/weather", &[Ok(paid(10, 1))], None),
        ];
        for (endpoint, seen, filled) in rows {
            let (entry, record) = after(one(endpoint, None), seen);
            let operation = &entry.operations[0];
            let amount = operation.payment.as_ref().map(|payment| payment.amount.units());
            assert_eq!(amount, filled, "{endpoint} {seen:?}");
            assert!(operation.estimated_price.is_zero() && operation.max_price.is_none());
            let differs = operation.payment != Some(payment(10, 1)) || seen.len() == 3 && filled.is_some();
            assert_eq!(record.change(operation).is_some(), differs, "{endpoint} {seen:?}");
        }
    }

    #[test]
    fn a_new_payee_beside_a_pinned_one_is_for_operators_to_accept() {
        let operations = vec![
            operation(1, HTTPS, None),
            operation(2, "https://lab.example/b", Some(payment(10, 1))),
        ];
        let entry = service(TrustStatus::Listed, operations);
        for (payee, pinned) in [(1, true), (2, false)] {
            let (entry, record) = after(entry.clone(), &[Ok(paid(5, payee))]);
            assert_eq!(entry.operations[0].payment.is_some(), pinned);
            assert_eq!(record.change(&entry.operations[0]).is_some(), !pinned);
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
                let (entry, record) = entry.probed(&ProbeRecord::default(), seen, at(1));
                assert_eq!(entry.trust_status, expected);
                // In two runs as well as in one; and a failure does not revert it.
                let (entry, record) = entry.probed(&record, [(id(2), FREE)], at(2));
                assert_eq!(entry.trust_status, passed);
                assert_eq!(entry.probed(&record, [(id(1), DOWN)], at(3)).0.trust_status, passed);
            }
        }
        let empty = service(TrustStatus::Listed, Vec::new());
        assert_eq!(empty.probed(&ProbeRecord::default(), [], at(1)).0, empty);
    }

    #[test]
    fn the_version_moves_with_the_entry_and_not_with_the_time() {
        let (first, record) = after(one(HTTPS, None), &[Ok(paid(10, 1))]);
        assert_eq!((first.version, record.version), (4, 1));
        assert_eq!(first.operations[0].availability, Availability::PaidX402);
        let (second, record) = first.probed(&record, [(id(1), Ok(paid(10, 1))), (id(9), FREE)], at(99));
        assert_eq!((&second, record.version), (&first, 2));
        assert_eq!(
            record.operations.len(),
            1,
            "what the entry does not have is not recorded"
        );
        let (third, _) = second.probed(&record, [(id(1), DOWN)], at(100));
        assert_eq!(
            (third.version, third.operations[0].availability),
            (5, Availability::Unverified)
        );
    }

    #[test]
    fn what_was_seen_elsewhere_says_nothing_here() {
        let (mut entry, record) = after(one(HTTPS, Some(payment(10, 1))), &[Ok(paid(11, 1))]);
        let day = Duration::DAY;
        assert!(!record.is_due(&entry.operations[0], at(20), day));
        entry.operations[0].endpoint = Endpoint::parse("https://lab.example/other").unwrap();
        let moved = &entry.operations[0];
        assert_eq!((record.of(moved), record.change(moved)), (None, None));
        assert!(record.is_due(moved, at(20), day));
        assert_eq!(
            entry.probed(&record, [], at(30)).1.operations.len(),
            0,
            "and is forgotten"
        );
    }

    #[test]
    fn an_operation_is_due_when_it_is_new_or_old_or_asked_for() {
        let (entry, mut record) = after(one(HTTPS, None), &[DOWN]);
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
    fn a_requirement_is_read_as_authorize_would_and_otherwise_tells_how_far_it_is() {
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

    fn any_result() -> impl Strategy<Value = ProbeResult> {
        prop_oneof![
            (1_u64..4, 1_u8..4).prop_map(|(units, payee)| Ok(paid(units, payee))),
            Just(FREE),
            Just(DOWN),
        ]
    }

    /// Whether the catalog allows the payee: the operation's own, else any of the service's, else every payee.
    fn accepts(service: &Service, operation: usize, payee: u8) -> bool {
        let payee = Address::repeat_byte(payee);
        let named = |operation: &Operation| operation.payment.as_ref().map(|payment| payment.pay_to);
        let all: Vec<Address> = service.operations.iter().filter_map(named).collect();
        named(&service.operations[operation]).map_or(all.is_empty() || all.contains(&payee), |named| named == payee)
    }

    proptest! {
        #[test]
        fn no_answer_makes_a_refused_payee_acceptable(
            pinned in prop::collection::vec(prop::option::of(1_u8..4), 1..4),
            runs in prop::collection::vec(prop::collection::vec((0_u128..3, any_result()), 0..4), 0..5),
        ) {
            let operations = (0..).zip(&pinned).map(|(n, payee)| operation(n, HTTPS, payee.map(|payee| payment(9, payee))));
            let mut entry = service(TrustStatus::Listed, operations.collect());
            let mut record = ProbeRecord::default();
            for (n, run) in (1..).zip(runs) {
                let results = run.into_iter().map(|(n, seen)| (id(n), seen));
                let before = entry.clone();
                (entry, record) = before.probed(&record, results, at(n));
                for operation in 0..pinned.len() {
                    for payee in 1..4 {
                        prop_assert!(accepts(&before, operation, payee) || !accepts(&entry, operation, payee));
                    }
                }
            }
        }
    }
}
