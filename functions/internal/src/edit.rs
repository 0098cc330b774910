//! Edits of one catalog entry, conditional on the version that the operator saw.

use crate::Operators;
use crate::view::InternalService;
use axum::Json;
use axum::response::Response;
use purser_api::{Precondition, versioned};
use purser_domain::{Error, ErrorKind, ProbeRecord, Result, Service, ServiceId};
use purser_store::{Backoff, Listed};

/// The result of an edit.
pub(crate) enum Edited {
    /// The service did not exist, and was created.
    Created(Service),
    /// The service as it is now stored.
    Present(Service),
}

impl Operators {
    /// Writes the result of `change` on the stored service, which is `None` if it does not exist; `condition` is the
    /// expected version. An edit that changes nothing is not written.
    pub(crate) async fn edit(
        &self,
        id: ServiceId,
        condition: Condition,
        change: impl Fn(Option<&Service>) -> Result<Service>,
    ) -> Result<Edited> {
        let mut backoff = Backoff::new();
        loop {
            let stored = self.catalog.service(id).await?;
            condition.holds(stored.as_ref())?;
            let mut service = change(stored.as_ref())?;
            let present = stored.as_ref().map_or(0, |stored| stored.version);
            service.version = present;
            if stored.as_ref() == Some(&service) {
                return Ok(Edited::Present(service));
            }
            service.version = present.saturating_add(1);
            match self.catalog.put(&service).await? {
                Listed::Stored => {
                    tracing::info!(
                        service.id = %id,
                        service.version,
                        service.trust_status = service.trust_status.name(),
                        service.curated,
                        "catalog.edited"
                    );
                    return Ok(match stored {
                        None => Edited::Created(service),
                        Some(_) => Edited::Present(service),
                    });
                }
                Listed::SlugTaken { by } => return Err(ErrorKind::SlugTaken { service: by }.into()),
                // Check again: an edit of any version goes on, any other is refused with the current version.
                Listed::Changed { .. } => backoff.wait().await?,
            }
        }
    }

    /// The service with its probe results, and its version.
    pub(crate) async fn show(&self, service: &Service) -> Result<Response> {
        let record = self.catalog.probes(service.id).await?;
        Ok(self.shown(service, &record))
    }

    /// As [`Operators::show`], with a record that was already read.
    pub(crate) fn shown(&self, service: &Service, record: &ProbeRecord) -> Response {
        versioned(
            service.version,
            Json(InternalService::of(service, record, self.network)),
        )
    }
}

/// The condition of an edit.
#[derive(Clone, Copy)]
pub(crate) enum Condition {
    /// The service exists, at this version.
    Existing(Precondition),
    /// The service may exist. If it does, `If-Match` is required, as for every write; if not, it may be absent.
    Upsert(Option<Precondition>),
}

impl Condition {
    /// The condition of an upsert, from `If-Match`.
    pub(crate) fn of_upsert(if_match: Result<Precondition>) -> Result<Self> {
        match if_match {
            Ok(precondition) => Ok(Self::Upsert(Some(precondition))),
            Err(error) if matches!(error.kind(), ErrorKind::VersionRequired) => Ok(Self::Upsert(None)),
            Err(error) => Err(error),
        }
    }

    fn holds(self, stored: Option<&Service>) -> Result<()> {
        match (self, stored) {
            (Self::Existing(_), None) => Err(ErrorKind::NotFound.into()),
            (Self::Existing(precondition) | Self::Upsert(Some(precondition)), Some(stored)) => {
                precondition.holds(stored.version)
            }
            (Self::Upsert(None), Some(_)) => Err(ErrorKind::VersionRequired.into()),
            (Self::Upsert(None), None) => Ok(()),
            // RFC 9110 §13.1.1: `*` is false for what does not exist.
            (Self::Upsert(Some(Precondition::Any)), None) => Err(ErrorKind::VersionConflict { version: 0 }.into()),
            (Self::Upsert(Some(precondition @ Precondition::Version(_))), None) => precondition.holds(0),
        }
    }
}

/// The edit of a service that must exist.
pub(crate) fn of_existing(change: impl Fn(&Service) -> Service) -> impl Fn(Option<&Service>) -> Result<Service, Error> {
    move |stored| Ok(change(stored.ok_or(ErrorKind::NotFound)?))
}
