//! The verified payees of each service, in the usage table. Only the function `events` writes these rows.

use crate::{
    codec::{
        attribute::Item,
        fields::fields,
        item::{Draft, Row},
        key::{Key, attested},
        table::{Query, get_item, put_request, put_request_if_version},
    },
    transact::was_applied,
    usage::table::UsageTable,
};
use purser_domain::{Result, ServiceId, Timestamp, VerifiedService};

const READING: &str = "reading verified payees";
const WRITING: &str = "writing verified payees";

impl UsageTable {
    /// Reads a service's verified payees, strongly consistent; `None` if there never were any.
    pub async fn read_verified_service(&self, service: ServiceId) -> Result<Option<VerifiedService>> {
        let item = get_item(&self.db, &self.table, &Key::verified_service(service), READING).await?;
        item.map(|item| self.read_verified_service_item(&item)).transpose()
    }

    /// Reads the verified payees of all services, strongly consistent.
    pub async fn read_all_verified_services(&self) -> Result<Vec<VerifiedService>> {
        let mut services = Vec::new();
        for shard in 0..attested::SHARDS {
            let query = Query::new(&self.db, &self.table, attested::verified_services_partition(shard)).consistent();
            for item in query.collect(READING).await? {
                services.push(self.read_verified_service_item(&item)?);
            }
        }
        Ok(services)
    }

    /// Replaces the previous version of a service's verified payees. Returns `false` if another version is stored.
    pub async fn try_put_verified_service(&self, service: &VerifiedService) -> Result<bool> {
        let put = put_request_if_version(
            &self.db,
            &self.table,
            write_verified_service(service),
            service.version.saturating_sub(1),
        );
        was_applied(put.send().await, WRITING)
    }

    /// Reads the time at which the payees of the whole catalog were first verified; `None` before that.
    pub async fn read_first_verification_time(&self) -> Result<Option<Timestamp>> {
        let item = get_item(&self.db, &self.table, &Key::first_payee_verification(), READING).await?;
        item.map(|item| Row::new(&self.table, &item).get("t")).transpose()
    }

    /// Stores the time at which the payees of the whole catalog were first verified, unless a time is stored.
    pub async fn set_first_verification_time(&self, at: Timestamp) -> Result<()> {
        let row = Draft::new(&Key::first_payee_verification()).with("t", &at);
        let put = put_request(&self.db, &self.table, row.into_item()).condition_expression("attribute_not_exists(pk)");
        was_applied(put.send().await, WRITING).map(|_| ())
    }

    pub(crate) fn read_verified_service_item(&self, item: &Item) -> Result<VerifiedService> {
        Row::new(&self.table, item).read()
    }
}

fields! {
    VerifiedService {
        service: sk(ServiceId::parse),
        version: "ver",
        calls: "calls",
        former: "former" or_default,
        left_at: "left" optional,
    }
}

pub(crate) fn write_verified_service(service: &VerifiedService) -> Item {
    Draft::new(&Key::verified_service(service.service))
        .with_fields(service)
        .into_item()
}
