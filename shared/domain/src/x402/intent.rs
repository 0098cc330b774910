//! An agent's payment request, and the requested operation in the catalog.

use crate::{
    Amount, Catalog, ErrorKind, Fingerprint, Metadata, Offer, Operation, OperationSlug, ProviderRequest, Result,
    Service, Target, ValidationError,
};

/// An agent's payment request.
#[derive(Clone, Debug)]
pub struct Intent {
    /// The chosen payment requirements of the provider's 402 response.
    pub offer: Offer,
    /// The maximum price in the agent's request.
    pub max_payment: Amount,
    /// The provider call of the payment.
    pub request: ProviderRequest,
    /// The slug or UUID of the service, if the request contains one.
    pub service: Option<String>,
    /// The slug of the operation, if the request contains one.
    pub operation: Option<OperationSlug>,
    /// The page that a scrape or crawl operation fetches.
    pub target: Option<Target>,
    /// The agent's additional data about the call.
    pub metadata: Metadata,
    /// The fingerprint of the request.
    pub fingerprint: Fingerprint,
}

/// A provider call, with the service and operation from the request.
#[derive(Clone, Copy, Debug)]
pub struct ProviderCall<'a> {
    /// The method, the URL and the body hash of the provider call.
    pub request: &'a ProviderRequest,
    /// The slug or UUID of the service, if the request contains one.
    pub service: Option<&'a str>,
    /// The slug of the operation, if the request contains one.
    pub operation: Option<&'a OperationSlug>,
}

impl<'a> From<&'a Intent> for ProviderCall<'a> {
    fn from(intent: &'a Intent) -> Self {
        Self {
            request: &intent.request,
            service: intent.service.as_deref(),
            operation: intent.operation.as_ref(),
        }
    }
}

/// The catalog's service and operation for a call.
#[derive(Clone, Copy, Debug)]
pub struct CatalogMatch<'a> {
    /// The catalog service that offers the call.
    pub service: &'a Service,
    /// The called operation; `None` if the call matches no operation and can't be paid.
    pub operation: Option<&'a Operation>,
}

impl<'a> CatalogMatch<'a> {
    /// Finds the service and operation of a call (`docs/decisions.md` §3). The service and operation in the request
    /// only narrow the choice.
    ///
    /// Returns `service_not_found` if the service in the request is unknown or not open, or if the request
    /// has no service and no open service is at the call's host. Returns `invalid_request` if the call is in
    /// the catalog under another service or operation than the request names.
    pub fn find_in_catalog(call: impl Into<ProviderCall<'a>>, catalog: &'a Catalog) -> Result<Self> {
        let ProviderCall {
            request: ProviderRequest { method, url, .. },
            service,
            operation: named_operation,
        } = call.into();
        let named = match service {
            None => None,
            Some(reference) => {
                let service = catalog.find_by_reference(reference).filter(|service| service.is_open());
                Some(service.ok_or(ErrorKind::ServiceNotFound)?)
            }
        };
        let mut called = catalog.find_operations(method, url).peekable();
        if called.peek().is_none() {
            let service = named
                .or_else(|| catalog.guess_service(url, named_operation))
                .ok_or(ErrorKind::ServiceNotFound)?;
            return Ok(Self {
                service,
                operation: None,
            });
        }
        let mut of_service = called
            .filter(|(service, _)| named.is_none_or(|named| named.id == service.id))
            .peekable();
        let mismatch =
            |path, message| Err(ErrorKind::InvalidRequest(vec![ValidationError::at_path(path, message)]).into());
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
