//! What probes have seen of the whole catalog, in one item: readers of the catalog show it with the services. The probe
//! alone writes it, and it writes no service.
//!
//! Always true: it says nothing but the labels of [`ProbeRecord::shown`], by which nothing is paid. It is a copy: what the
//! records say that it doesn't, the next run of the probe writes; where it can't be read, readers keep the one before.

use crate::{
    catalog::table::{CatalogTable, READING},
    codec::{
        fault::failed,
        item::{Draft, Row},
        key::catalog as key,
    },
};
use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use purser_domain::{Availability, Fingerprint, ProbeRecord, Result, Service};

/// What stands for an operation at its address, or for a service: the beginning of a hash. That two of ten thousand are
/// alike has a chance of one in 10^11; then one label is wrong.
type Token = [u8; TOKEN];
const TOKEN: usize = 8;
/// The most tokens: an item holds 400 KB. What is beyond is shown as never probed.
const MOST: usize = 48_000;

/// What probes have seen of the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sightings {
    /// Operations that ask for a payment, in order.
    paid: Vec<Token>,
    /// Operations that answer without, in order.
    free: Vec<Token>,
    /// Services that have passed, in order.
    passed: Vec<Token>,
}

impl Sightings {
    /// What these records say of their services.
    pub fn of<'a>(probed: impl IntoIterator<Item = (&'a Service, &'a ProbeRecord)>) -> Self {
        let mut seen = Self::default();
        for (service, record) in probed {
            for operation in &service.operations {
                let list = match record.availability(operation) {
                    Availability::PaidX402 => &mut seen.paid,
                    Availability::FreeVerified => &mut seen.free,
                    Availability::Unverified => continue,
                };
                list.push(of_operation(service, &operation.target(), &operation.id));
            }
            if record.has_passed(service) {
                seen.passed.push(of_service(service));
            }
        }
        let mut room = MOST;
        for list in [&mut seen.passed, &mut seen.paid, &mut seen.free] {
            list.sort_unstable();
            list.truncate(room);
            room = room.saturating_sub(list.len());
        }
        seen
    }

    /// The service as readers show it.
    pub(crate) fn shown(&self, mut service: Service) -> Service {
        if *self == Self::default() {
            return service;
        }
        let has = |list: &[Token], token: &Token| list.binary_search(token).is_ok();
        if has(&self.passed, &of_service(&service)) {
            service.trust_status = service.trust_status.passed();
        }
        let mut operations = std::mem::take(&mut service.operations);
        for operation in &mut operations {
            let token = of_operation(&service, &operation.target(), &operation.id);
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

fn of_operation(service: &Service, target: &Fingerprint, id: &purser_domain::OperationUuid) -> Token {
    token(&format!("{} {id} {target}", service.id))
}

fn of_service(service: &Service) -> Token {
    token(&service.id.to_string())
}

fn token(text: &str) -> Token {
    let digest = Fingerprint::of_text(text);
    digest.as_bytes().first_chunk().copied().unwrap_or_default()
}

impl CatalogTable {
    /// What the probe wrote last; nothing before its first run.
    pub async fn sightings(&self) -> Result<Sightings> {
        let get = self.db.get_item().table_name(&*self.table);
        // Half a unit for 4 KB: what is a moment old is as good.
        let get = get.set_key(Some(Draft::of_partition(key::SIGHTINGS.to_owned()).into_item()));
        let Some(item) = get.send().await.map_err(failed(READING))?.item else {
            return Ok(Sightings::default());
        };
        let list = |name| {
            let bytes = item.get(name).and_then(|value| value.as_b().ok());
            let (tokens, rest) = bytes.map_or(&[][..], AsRef::as_ref).as_chunks::<TOKEN>();
            let is_list = bytes.is_some() && rest.is_empty() && tokens.is_sorted();
            is_list
                .then(|| tokens.to_vec())
                .ok_or_else(|| Row::new(&self.table, &item).corrupt(name))
        };
        Ok(Sightings {
            paid: list(PAID)?,
            free: list(FREE)?,
            passed: list(PASSED)?,
        })
    }

    /// Writes what probes have seen.
    pub async fn put_sightings(&self, seen: &Sightings) -> Result<()> {
        let list = |tokens: &[Token]| AttributeValue::B(Blob::new(tokens.as_flattened()));
        let item = Draft::of_partition(key::SIGHTINGS.to_owned())
            .with_value(PAID, list(&seen.paid))
            .with_value(FREE, list(&seen.free))
            .with_value(PASSED, list(&seen.passed));
        let put = self.db.put_item().table_name(&*self.table);
        let put = put.set_item(Some(item.into_item())).send().await;
        put.map_err(failed("writing what probes have seen")).map(|_| ())
    }
}

const PAID: &str = "paid";
const FREE: &str = "free";
const PASSED: &str = "passed";
