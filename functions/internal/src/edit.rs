//! Edits of one entry of the catalog: on the version that the operator saw, one at a time.

use crate::Operators;
use crate::view::InternalService;
use axum::Json;
use axum::response::Response;
use purser_api::{Precondition, versioned};
use purser_domain::{Error, ErrorKind, ProbeRecord, Result, Service, ServiceId};
use purser_store::{Backoff, Listed};

/// What became of an edit.
pub(crate) enum Edited {
    /// There was no such service; now there is.
    Created(Service),
    /// This is the service now.
    Present(Service),
}

impl Operators {
    /// Writes what `change` makes of the stored service, `None` where there is none; `condition` says which version it
    /// is meant for. What `change` leaves as it is, is not written.
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
                // Judged once more: an edit of whatever is there goes on, any other is told the version.
                Listed::Changed { .. } => backoff.wait().await?,
            }
        }
    }

    /// The service with what probes have seen of it, and its version.
    pub(crate) async fn show(&self, service: &Service) -> Result<Response> {
        let record = self.catalog.probes(service.id).await?;
        Ok(self.shown(service, &record))
    }

    /// As [`Operators::show`], of what was read.
    pub(crate) fn shown(&self, service: &Service, record: &ProbeRecord) -> Response {
        versioned(
            service.version,
            Json(InternalService::of(service, record, self.network)),
        )
    }
}

/// What an edit is meant for.
#[derive(Clone, Copy)]
pub(crate) enum Condition {
    /// A service that there is, at this version.
    Existing(Precondition),
    /// A service that there may be not yet. `If-Match` is required where there is one, as of every write, and says
    /// nothing where there is none.
    Upsert(Option<Precondition>),
}

impl Condition {
    /// The condition of an upsert, from what `If-Match` says.
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
            // RFC 9110 §13.1.1: `*` is false where there is nothing.
            (Self::Upsert(Some(Precondition::Any)), None) => Err(ErrorKind::VersionConflict { version: 0 }.into()),
            (Self::Upsert(Some(precondition @ Precondition::Version(_))), None) => precondition.holds(0),
        }
    }
}

/// The edit of a service that must be there.
pub(crate) fn of_existing(change: impl Fn(&Service) -> Service) -> impl Fn(Option<&Service>) -> Result<Service, Error> {
    move |stored| Ok(change(stored.ok_or(ErrorKind::NotFound)?))
}
