//! An agent's request for a payment, and the catalog entry that it matches. Elsewhere: parsing the request
//! (`shared/api/src/http/payment_body.rs`).

use crate::{
    Amount, Catalog, ErrorKind, Fingerprint, Metadata, Offer, Operation, OperationSlug, Problem, ProviderRequest,
    Result, Service, Target,
};

/// A payment that an agent wants to make.
#[derive(Clone, Debug)]
pub struct Intent {
    /// The entry of the provider's requirement to pay.
    pub offer: Offer,
    /// The agent's own limit for this payment.
    pub max_payment: Amount,
    /// The provider call that is paid for.
    pub request: ProviderRequest,
    /// The service as the request names it: slug or UUID.
    pub service: Option<String>,
    /// The operation as the request names it.
    pub operation: Option<OperationSlug>,
    /// The page that a scrape or crawl fetches.
    pub target: Option<Target>,
    /// The agent's further statements about the call.
    pub metadata: Metadata,
    /// The fingerprint, equal for equal requests.
    pub fingerprint: Fingerprint,
}

/// A call to a provider, with the names that the request gives.
#[derive(Clone, Copy, Debug)]
pub struct Called<'a> {
    /// The call.
    pub request: &'a ProviderRequest,
    /// The service as the request names it: slug or UUID.
    pub service: Option<&'a str>,
    /// The operation as the request names it.
    pub operation: Option<&'a OperationSlug>,
}

impl<'a> From<&'a Intent> for Called<'a> {
    fn from(intent: &'a Intent) -> Self {
        Self {
            request: &intent.request,
            service: intent.service.as_deref(),
            operation: intent.operation.as_ref(),
        }
    }
}

/// The catalog entry of a call.
#[derive(Clone, Copy, Debug)]
pub struct CatalogMatch<'a> {
    /// The service.
    pub service: &'a Service,
    /// The called operation; `None` if the call matches no operation of the service, and so can't be paid.
    pub operation: Option<&'a Operation>,
}

impl<'a> CatalogMatch<'a> {
    /// Finds the catalog entry of a call (`docs/decisions.md` §3). Its method and address determine the entry; the
    /// names in the request only narrow the choice, and must not contradict them.
    ///
    /// Only services that are in the catalog, in its curated set and not disabled can be paid. A request that names
    /// another service, or calls a host of none of them, is `service_not_found`. A call to an open service's host, or
    /// for a named service, that matches no operation is a match without an operation, which is in no scope. Names that
    /// contradict the call are a malformed request.
    pub fn of(call: impl Into<Called<'a>>, catalog: &'a Catalog) -> Result<Self> {
        let Called {
            request: ProviderRequest { method, url, .. },
            service,
            operation: named_operation,
        } = call.into();
        let named = match service {
            None => None,
            Some(reference) => {
                let service = catalog.by_reference(reference).filter(|service| service.is_open());
                Some(service.ok_or(ErrorKind::ServiceNotFound)?)
            }
        };
        let mut called = catalog.called(method, url).peekable();
        if called.peek().is_none() {
            let service = named
                .or_else(|| catalog.meant(url, named_operation))
                .ok_or(ErrorKind::ServiceNotFound)?;
            return Ok(Self {
                service,
                operation: None,
            });
        }
        let mut of_service = called
            .filter(|(service, _)| named.is_none_or(|named| named.id == service.id))
            .peekable();
        let mismatch = |path, message| Err(ErrorKind::InvalidRequest(vec![Problem::at(path, message)]).into());
        if of_service.peek().is_none() {
            return mismatch(
                "/service_id",
                "names another service than the one that `original_request` calls",
            );
        }
        let is_named = |operation: &Operation| named_operation.is_none_or(|named| operation.slug == *named);
        match of_service.find(|(_, operation)| is_named(operation)) {
            Some((service, operation)) => Ok(Self {
                service,
                operation: Some(operation),
            }),
            None => mismatch(
                "/operation_id",
                "names another operation than the one that `original_request` calls",
            ),
        }
    }
}
