//! Updates one catalog service, conditional on the version that the operator read. New prices and payees may take
//! effect later (`shared/domain/src/catalog/pricing.rs`).

use crate::Operators;
use crate::view::{InternalService, PaidFrom};
use axum::Json;
use axum::response::Response;
use purser_api::{IfMatch, Operator, Precondition, Reply, with_etag};
use purser_domain::{
    Act, Amount, AuditChanges, AuditKind, Edit, Error, ErrorKind, NotAccepted, Operation, OperationUuid, OperatorName,
    Pricing, Result, Service, ServiceId, Timestamp, ValidationError,
};
use purser_store::{Backoff, StoreServiceResult};
use std::time::Duration;
use tokio::time::timeout;

/// How long a response waits for the write of the catalog object. A later request writes the object otherwise.
const OBJECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) enum Change {
    /// Writes this service. A new price or payee may take effect only after a delay.
    Write(Box<Service>),
    /// Puts this operation's delayed pricing into effect, as a second operator.
    Accept(OperationUuid),
}

pub(crate) enum EditResult {
    Created(Service),
    /// The stored service after the update.
    Present(Service),
}

impl EditResult {
    pub(crate) fn into_service(self) -> Service {
        let (Self::Created(service) | Self::Present(service)) = self;
        service
    }
}

impl Operators {
    /// Applies `change` to the stored service (`None` if it does not exist) and writes the result.
    pub(crate) async fn update_service(
        &self,
        operator: &Operator,
        kind: AuditKind,
        id: ServiceId,
        condition: Condition,
        change: impl Fn(Option<&Service>) -> Result<Change>,
    ) -> Result<EditResult> {
        let action = Act::new(kind).about_service(id);
        let updated = self.store_service_update(operator, &action, id, condition, change);
        self.audit_rejection(operator, &action, updated).await
    }

    async fn store_service_update(
        &self,
        operator: &Operator,
        action: &Act,
        id: ServiceId,
        condition: Condition,
        change: impl Fn(Option<&Service>) -> Result<Change>,
    ) -> Result<EditResult> {
        let mut backoff = Backoff::new();
        loop {
            let now = self.clock.now();
            let stored = self
                .catalog
                .read_service_by_id(id)
                .await?
                .map(|stored| stored.at_time(now));
            condition.check_stored_service(stored.as_ref())?;
            let mut service = match change(stored.as_ref())? {
                Change::Write(written) => {
                    self.delay_payment_changes(operator, stored.as_ref(), *written, now)
                        .await?
                }
                Change::Accept(operation) => apply_delayed_change(&operator.name, stored.as_ref(), operation, now)?,
            };
            let present = stored.as_ref().map_or(0, |stored| stored.version);
            service.version = present;
            if stored.as_ref() == Some(&service) {
                self.refresh_catalog_object().await;
                return Ok(EditResult::Present(service));
            }
            service.version = present.saturating_add(1);
            let before = stored.as_ref().map(Service::audit_log_fields);
            let changes = AuditChanges::between(before, Some(service.audit_log_fields()));
            let entry = self.audit_entry(operator, action, changes)?;
            match self.catalog.put_service(&service, &entry).await? {
                StoreServiceResult::Stored => {
                    tracing::info!(
                        operator.name = %operator.name,
                        service.id = %id,
                        service.version,
                        service.trust_status = service.trust_status.name(),
                        service.curated,
                        "catalog.edited"
                    );
                    log_payment_changes(&operator.name, stored.as_ref(), &service, now);
                    self.refresh_catalog_object().await;
                    return Ok(match stored {
                        None => EditResult::Created(service),
                        Some(_) => EditResult::Present(service),
                    });
                }
                StoreServiceResult::SlugTaken { by } => return Err(ErrorKind::SlugTaken { service: by }.into()),
                // A request with a version gets a version conflict in the next attempt.
                StoreServiceResult::Changed { .. } => backoff.wait_for_retry().await?,
            }
        }
    }

    /// Changes an existing service, and builds the response with the stored service. A new price or payee may take effect
    /// only after a delay.
    pub(crate) async fn change_service(
        &self,
        operator: &Operator,
        kind: AuditKind,
        id: ServiceId,
        precondition: Precondition,
        change: impl Fn(&mut Service) -> Result<()>,
    ) -> Reply {
        let condition = Condition::Existing(precondition);
        let change = |stored: Option<&Service>| {
            let mut service = stored.ok_or(ErrorKind::NotFound)?.clone();
            change(&mut service)?;
            Ok(Change::Write(Box::new(service)))
        };
        let updated = self.update_service(operator, kind, id, condition, change).await?;
        Ok(self.service_response(&updated.into_service()).await?)
    }

    /// Returns the service to write, with new payees and prices delayed (`shared/domain/src/catalog/pricing.rs`).
    async fn delay_payment_changes(
        &self,
        operator: &Operator,
        stored: Option<&Service>,
        update: Service,
        now: Timestamp,
    ) -> Result<Service> {
        let catalog = if Edit::opens_service_first_time(stored, &update) {
            Some(self.catalog.read_services().await?)
        } else {
            None
        };
        let change = Edit {
            by: &operator.name,
            at: now,
            delay: self.payment_change_delay,
            awaits_second_operator: self.needs_second_operator(operator),
            catalog: catalog.as_deref(),
        };
        Ok(change.apply(stored, update))
    }

    /// Writes the catalog object, a compressed copy of the catalog, if the object is older than the table.
    /// The update is already committed, so a failure is only logged. Until the object is written, readers
    /// scan the table.
    pub(crate) async fn refresh_catalog_object(&self) {
        match timeout(OBJECT_TIMEOUT, self.catalog.store_catalog_object()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(cause = %error, "catalog.object_not_stored"),
            Err(late) => tracing::warn!(cause = %late, "catalog.object_not_stored"),
        }
    }

    /// Builds the response with the service, the probe results and the `ETag`.
    pub(crate) async fn service_response(&self, service: &Service) -> Result<Response> {
        self.service_response_with_accepted_change(service, None).await
    }

    /// Builds the response like [`Operators::service_response`]. If this request accepted the change of an
    /// operation, `paid_from` includes at most the delay of accepted changes.
    pub(crate) async fn service_response_with_accepted_change(
        &self,
        service: &Service,
        accepted_operation: Option<OperationUuid>,
    ) -> Result<Response> {
        let record = self.catalog.read_probe_record(service.id).await?;
        let paid_from = PaidFrom {
            attested: self.usage.read_verified_service(service.id).await?,
            accepted: accepted_operation.map(|operation| (operation, self.accepted_payee_delay)),
        };
        let view = InternalService::new(service, &record, &paid_from, self.network, self.clock.now());
        Ok(with_etag(service.version, Json(view)))
    }
}

/// Returns the service with the operation's delayed change in effect. Returns `not_found` if there is none.
fn apply_delayed_change(
    operator: &OperatorName,
    stored: Option<&Service>,
    operation: OperationUuid,
    now: Timestamp,
) -> Result<Service> {
    let stored = stored.ok_or(ErrorKind::NotFound)?;
    stored
        .accept_delayed_pricing(operation, operator, now)
        .map_err(|reason| match reason {
            NotAccepted::NothingWaits => ErrorKind::NotFound.into(),
            NotAccepted::SameOperator => ErrorKind::SecondOperatorRequired.into(),
        })
}

/// Logs each changed payee or price. In the log, `from` is the start time of a delayed change, and `asked_by`
/// is the operator who requested an accepted change.
fn log_payment_changes(operator: &OperatorName, before: Option<&Service>, after: &Service, now: Timestamp) {
    const NO_PRICING: Pricing<'_> = Pricing {
        price_model: "",
        max_price: None,
        payment: None,
    };
    fn find_operation(service: &Service, id: OperationUuid) -> Option<&Operation> {
        service.operations.iter().find(|operation| operation.id == id)
    }
    fn pricing_at(operation: Option<&Operation>, at: Timestamp) -> Pricing<'_> {
        operation.map_or(NO_PRICING, |operation| operation.pricing_at(at))
    }
    let gone = before.into_iter().flat_map(|before| &before.operations);
    let gone = gone.filter(|old| find_operation(after, old.id).is_none());
    for operation in after.operations.iter().chain(gone) {
        let (old, new) = (
            before.and_then(|before| find_operation(before, operation.id)),
            find_operation(after, operation.id),
        );
        let at = |at| (pricing_at(old, at), pricing_at(new, at));
        let ((old_now, new_now), (old_at_last, new_at_last)) = (at(now), at(Timestamp::MAX));
        let same =
            |old: Pricing<'_>, new: Pricing<'_>| (old.payment, old.max_price()) == (new.payment, new.max_price());
        if same(old_now, new_now) && same(old_at_last, new_at_last) {
            continue;
        }
        let accepted = old
            .and_then(|old| old.delayed_pricing(now))
            .filter(|_| old_at_last == new_now);
        let pay_to = |pricing: Pricing<'_>| pricing.payment.map(|payment| tracing::field::display(payment.pay_to));
        tracing::info!(
            operator.name = %operator,
            service.id = %after.id,
            operation.id = %operation.id,
            old.amount_units = old_now.payment.map(|payment| payment.amount.units()),
            old.max_units = old_now.max_price().map(Amount::units),
            old.pay_to = pay_to(old_now),
            new.amount_units = new_at_last.payment.map(|payment| payment.amount.units()),
            new.max_units = new_at_last.max_price().map(Amount::units),
            new.pay_to = pay_to(new_at_last),
            from = new.and_then(|new| new.delayed_pricing(now)).map(|next| tracing::field::display(next.from)),
            asked_by = accepted.map(|next| tracing::field::display(&next.by)),
            "catalog.payment_changed"
        );
    }
}

/// Returns the version in `If-Match`. Rejects `*`, because the operator confirms a specific change.
pub(crate) fn require_exact_version(if_match: IfMatch) -> Result<Precondition> {
    match if_match.into_precondition()? {
        Precondition::Any => Err(Error::invalid(vec![ValidationError::at_path(
            "/If-Match",
            "must be a version, not `*`",
        )])),
        version @ Precondition::Version(_) => Ok(version),
    }
}

/// The condition under which an update is written.
#[derive(Clone, Copy)]
pub(crate) enum Condition {
    /// The service must exist and must have this version.
    Existing(Precondition),
    /// An upsert. `If-Match` is required only if the service exists.
    Upsert(Option<Precondition>),
}

impl Condition {
    pub(crate) fn from_upsert_precondition(if_match: Result<Precondition>) -> Result<Self> {
        match if_match {
            Ok(precondition) => Ok(Self::Upsert(Some(precondition))),
            Err(error) if matches!(error.kind(), ErrorKind::VersionRequired) => Ok(Self::Upsert(None)),
            Err(error) => Err(error),
        }
    }

    fn check_stored_service(self, stored: Option<&Service>) -> Result<()> {
        match (self, stored) {
            (Self::Existing(_), None) => Err(ErrorKind::NotFound.into()),
            (Self::Existing(precondition) | Self::Upsert(Some(precondition)), Some(stored)) => {
                precondition.check_version(stored.version)
            }
            (Self::Upsert(None), Some(_)) => Err(ErrorKind::VersionRequired.into()),
            (Self::Upsert(None), None) => Ok(()),
            // The precondition `*` requires that the resource exists (RFC 9110 §13.1.1).
            (Self::Upsert(Some(Precondition::Any)), None) => Err(ErrorKind::VersionConflict { version: 0 }.into()),
            (Self::Upsert(Some(precondition @ Precondition::Version(_))), None) => precondition.check_version(0),
        }
    }
}
