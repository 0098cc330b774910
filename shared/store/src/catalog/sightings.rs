//! A summary of all probe results in one DynamoDB item. It contains only labels that don't affect payments
//! ([`ProbeRecord::service_with_probe_results`]). Only the probe writes this item.

use crate::{
    catalog::table::{CatalogTable, READING},
    codec::{
        fault::store_error,
        item::{Draft, Row},
        key::catalog as key,
    },
};
use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use purser_domain::{Availability, Fingerprint, ProbeRecord, Result, Service};

/// The first bytes of a hash that identifies a service or an operation. A collision only displays a wrong probe result.
/// The probability of a collision is below one in 10^11 among ten thousand tokens.
type Token = [u8; TOKEN];
const TOKEN: usize = 8;
/// The maximum number of tokens in a summary (400 KB). Services without a token are displayed as never probed.
const MAX: usize = 48_000;

/// The results of all probes, for display.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeSummary {
    paid: Vec<Token>,
    free: Vec<Token>,
    passed: Vec<Token>,
}

impl ProbeSummary {
    /// Creates the summary of the probe records of these services.
    pub fn summarize<'a>(probed_services: impl IntoIterator<Item = (&'a Service, &'a ProbeRecord)>) -> Self {
        let mut seen = Self::default();
        for (service, record) in probed_services {
            for operation in &service.operations {
                let list = match record.availability(operation) {
                    Availability::PaidX402 => &mut seen.paid,
                    Availability::FreeVerified => &mut seen.free,
                    Availability::Unverified => continue,
                };
                list.push(operation_probe_token(
                    service,
                    &operation.probe_fingerprint(),
                    &operation.id,
                ));
            }
            if record.has_passed_all_probes(service) {
                seen.passed.push(service_probe_token(service));
            }
        }
        let mut room = MAX;
        for list in [&mut seen.passed, &mut seen.paid, &mut seen.free] {
            list.sort_unstable();
            list.truncate(room);
            room = room.saturating_sub(list.len());
        }
        seen
    }

    /// Adds the probe results to a service, for display: the trust status, and the availability of the operations.
    pub(crate) fn service_with_probe_results(&self, mut service: Service) -> Service {
        if *self == Self::default() {
            return service;
        }
        let has = |list: &[Token], token: &Token| list.binary_search(token).is_ok();
        if has(&self.passed, &service_probe_token(&service)) {
            service.trust_status = service.trust_status.after_passed_probe();
        }
        let mut operations = std::mem::take(&mut service.operations);
        for operation in &mut operations {
            let token = operation_probe_token(&service, &operation.probe_fingerprint(), &operation.id);
            operation.availability = match () {
                () if has(&self.paid, &token) => Availability::PaidX402,
                () if has(&self.free, &token) => Availability::FreeVerified,
                () => Availability::Unverified,
            };
        }
        service.operations = operations;
        service
    }
}

fn operation_probe_token(service: &Service, target: &Fingerprint, id: &purser_domain::OperationUuid) -> Token {
    hash_token(&format!("{} {id} {target}", service.id))
}

fn service_probe_token(service: &Service) -> Token {
    hash_token(&service.id.to_string())
}

fn hash_token(text: &str) -> Token {
    let digest = Fingerprint::for_text(text);
    digest.as_bytes().first_chunk().copied().unwrap_or_default()
}

impl CatalogTable {
    /// Reads the stored summary; empty if the probe has never run.
    pub async fn read_probe_summary(&self) -> Result<ProbeSummary> {
        let get = self.db.get_item().table_name(&*self.table);
        // Eventually consistent reads cost half, and a slightly old summary is good enough for display.
        let get = get.set_key(Some(Draft::with_partition_key(key::SIGHTINGS.to_owned()).into_item()));
        let Some(item) = get.send().await.map_err(store_error(READING))?.item else {
            return Ok(ProbeSummary::default());
        };
        let list = |name| {
            let bytes = item.get(name).and_then(|value| value.as_b().ok());
            let (tokens, rest) = bytes.map_or(&[][..], AsRef::as_ref).as_chunks::<TOKEN>();
            let is_list = bytes.is_some() && rest.is_empty() && tokens.is_sorted();
            is_list
                .then(|| tokens.to_vec())
                .ok_or_else(|| Row::new(&self.table, &item).corrupt_error(name))
        };
        Ok(ProbeSummary {
            paid: list(PAID)?,
            free: list(FREE)?,
            passed: list(PASSED)?,
        })
    }

    /// Stores the summary in place of the previous summary.
    pub async fn put_probe_summary(&self, summary: &ProbeSummary) -> Result<()> {
        let list = |tokens: &[Token]| AttributeValue::B(Blob::new(tokens.as_flattened()));
        let item = Draft::with_partition_key(key::SIGHTINGS.to_owned())
            .with_value(PAID, list(&summary.paid))
            .with_value(FREE, list(&summary.free))
            .with_value(PASSED, list(&summary.passed));
        let put = self.db.put_item().table_name(&*self.table);
        let put = put.set_item(Some(item.into_item())).send().await;
        put.map_err(store_error("writing probe results")).map(|_| ())
    }
}

const PAID: &str = "paid";
const FREE: &str = "free";
const PASSED: &str = "passed";
