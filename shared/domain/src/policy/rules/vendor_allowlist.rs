use super::{RuleParameters, rule_kind};
use crate::{
    Address, Catalog, RuleKind, ServiceSlug, ValidationError,
    evidence::document::{Fields, Object, read_field, write_field},
    policy::rule::{list_errors, unknown_service_error},
};

rule_kind! {
    /// Only payments to these vendors are allowed. An empty list allows no payment.
    VendorAllowlist = "vendor_allowlist" {
        /// The allowed services and wallets.
        vendors: Vec<Vendor> = part,
    }
}

/// An element of a vendor allowlist: a service, or a single wallet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// A service. Any wallet of the service may be paid.
    Service(ServiceSlug),
    /// A wallet. The wallet may be paid for the calls of any service.
    Wallet(Address),
}

impl Vendor {
    /// Returns the service's slug; `None` for a wallet.
    pub const fn service_slug(&self) -> Option<&ServiceSlug> {
        match self {
            Self::Service(slug) => Some(slug),
            Self::Wallet(_) => None,
        }
    }

    /// Returns the wallet's address; `None` for a service.
    pub const fn wallet_address(&self) -> Option<Address> {
        match self {
            Self::Service(_) => None,
            Self::Wallet(address) => Some(*address),
        }
    }
}

/// The services and the wallets of a vendor allowlist are two lists in the document.
impl Fields for Vec<Vendor> {
    fn write_to(&self, object: &mut Object) {
        let services: Vec<_> = self.iter().filter_map(Vendor::service_slug).cloned().collect();
        let wallets: Vec<_> = self.iter().filter_map(Vendor::wallet_address).collect();
        write_field(object, "services", &services);
        write_field(object, "wallets", &wallets);
    }
    fn read_from(object: &Object) -> Option<Self> {
        let services: Option<Vec<ServiceSlug>> = read_field(object, "services")?;
        let wallets: Option<Vec<Address>> = read_field(object, "wallets")?;
        let wallets = wallets.into_iter().flatten().map(Vendor::Wallet);
        let services = services.into_iter().flatten().map(Vendor::Service);
        Some(services.chain(wallets).collect())
    }
}

impl VendorAllowlist {
    /// Returns whether the payee may be paid for calls of the service.
    pub(in crate::policy) fn allows(&self, service: &ServiceSlug, payee: Option<Address>) -> bool {
        self.vendors.iter().any(|vendor| match vendor {
            Vendor::Service(slug) => slug == service,
            Vendor::Wallet(wallet) => Some(*wallet) == payee,
        })
    }
}

impl RuleParameters for VendorAllowlist {
    fn is_as_strict_as(&self, before: &Self) -> bool {
        self.vendors.iter().all(|vendor| before.vendors.contains(vendor))
    }

    fn parameter_errors(&self, catalog: &Catalog) -> Vec<ValidationError> {
        let services: Vec<_> = self.vendors.iter().filter_map(Vendor::service_slug).collect();
        let wallets: Vec<_> = self.vendors.iter().filter_map(Vendor::wallet_address).collect();
        let max = RuleKind::MAX_SELECTED;
        let mut errors = list_errors(
            "/services",
            &services,
            |_| true,
            max,
            |slug| unknown_service_error(catalog, slug),
        );
        errors.extend(list_errors("/wallets", &wallets, |_| true, max, |_| None));
        if self.vendors.is_empty() {
            errors.push(ValidationError::at_path("", "must name a service or a wallet at least"));
        }
        errors
    }
}
