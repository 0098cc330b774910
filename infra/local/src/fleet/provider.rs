//! The providers of the demo fleet: their offers, and the settlement of what is paid to them.
//!
//! Most services of the local catalog have addresses that nobody serves, so the demo plays all providers: it asks for
//! payments as the catalog lists them, and sends each signed authorization to the token, as a facilitator does
//! (EIP-3009: anybody may submit it). What Purser sees is a real transfer.

use crate::chain::{DevChain, NETWORK};
use crate::fleet::act::{Purchase, Twist};
use crate::fleet::calls::{Calls, FleetError, number, text};
use crate::fleet::offer::{Offer, SERVICES};
use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol;
use alloy::sol_types::SolCall as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

sol! {
    /// EIP-3009, with the signature as bytes, as Circle's token takes it.
    function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature);
}

/// An operation as the catalog lists it.
struct Listing {
    method: String,
    endpoint: String,
    price: u64,
    /// The most that it may cost.
    most: u64,
    pay_to: String,
}

/// The catalog's listings.
pub(crate) struct Market {
    listings: BTreeMap<(String, String), Listing>,
    /// The UUIDs of services by slug.
    services: BTreeMap<String, String>,
}

/// Another payee than that of any service.
const STRANGER: &str = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";

impl Market {
    /// Reads the listings of the services that the fleet buys from.
    pub(crate) async fn read(calls: &Calls) -> Result<Self, FleetError> {
        let (mut listings, mut services) = (BTreeMap::new(), BTreeMap::new());
        for slug in SERVICES {
            let service = calls.service(slug).await?;
            services.insert(slug.to_owned(), text(&service, "id")?);
            for operation in service
                .get("operations")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                let Some(payment) = operation.get("payment").filter(|payment| !payment.is_null()) else {
                    continue;
                };
                let price = number(payment, "amount_units")?;
                let listing = Listing {
                    method: text(operation, "method")?,
                    endpoint: text(operation, "endpoint")?,
                    price,
                    most: number(operation, "max_price_units").unwrap_or(price),
                    pay_to: text(payment, "pay_to")?,
                };
                listings.insert((slug.to_owned(), text(operation, "operation_id")?), listing);
            }
        }
        Ok(Self { listings, services })
    }

    fn listing(&self, offer: Offer) -> Result<&Listing, FleetError> {
        let key = (offer.service.to_owned(), offer.operation.to_owned());
        self.listings.get(&key).ok_or(FleetError::Unreadable("operations"))
    }

    /// The UUID of a service.
    pub(crate) fn service(&self, slug: &str) -> Result<&str, FleetError> {
        let id = self.services.get(slug).map(String::as_str);
        id.ok_or(FleetError::Unreadable("id"))
    }

    /// A percentage of an operation's price.
    pub(crate) fn units(&self, offer: Offer, percent: u64) -> Result<u64, FleetError> {
        Ok(self.listing(offer)?.price.saturating_mul(percent) / 100)
    }

    /// The request that an agent sends to authorize a purchase.
    pub(crate) fn request(&self, calls: &Calls, purchase: &Purchase) -> Result<Value, FleetError> {
        let listing = self.listing(purchase.offer)?;
        let listed = self.units(purchase.offer, purchase.percent)?;
        let (amount, ceiling) = match purchase.twist {
            Twist::LowCeiling => (listed, listed / 2),
            Twist::AboveCatalog => {
                let amount = listing.most.saturating_add(listed);
                (amount, amount)
            }
            Twist::Nothing | Twist::OtherPayee | Twist::Page(_) => (listed, listed),
        };
        let pay_to = match purchase.twist {
            Twist::OtherPayee => STRANGER,
            Twist::Nothing | Twist::LowCeiling | Twist::AboveCatalog | Twist::Page(_) => &listing.pay_to,
        };
        let serial = purchase.serial;
        let endpoint = listing.endpoint.replace("{id}", &format!("company-{serial}"));
        let (url, metadata) = match purchase.twist {
            Twist::Page(host) => {
                let page = format!("https://{host}/guide/{serial}");
                (format!("{endpoint}?url={page}"), json!({"target_url": page}))
            }
            Twist::Nothing | Twist::LowCeiling | Twist::AboveCatalog | Twist::OtherPayee => {
                (format!("{endpoint}?request={serial}"), json!({}))
            }
        };
        let token = NETWORK.token();
        let offer = json!({
            "scheme": "exact",
            "network": format!("eip155:{}", calls.stack.chain_id),
            "amount": amount.to_string(),
            "asset": calls.stack.usdc_address,
            "payTo": pay_to,
            "maxTimeoutSeconds": 300,
            "extra": {"name": token.name, "version": token.version},
        });
        Ok(json!({
            "payment_requirement": {"x402Version": 2, "resource": {"url": url}, "accepts": [offer]},
            "max_payment_units": ceiling,
            "original_request": {"method": listing.method, "url": url},
            "metadata": metadata,
            "idempotency_key": format!("fleet-{serial}"),
        }))
    }
}

#[derive(Deserialize)]
struct Payment {
    payload: Payload,
}

#[derive(Deserialize)]
struct Payload {
    signature: Bytes,
    authorization: Authorization,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Authorization {
    from: Address,
    to: Address,
    value: String,
    valid_after: String,
    valid_before: String,
    nonce: B256,
}

/// Settles a payment from the header that the agent sends to the provider; returns the provider's payment response.
pub(crate) async fn settle(chain: &DevChain, header: &str) -> Result<Value, FleetError> {
    let unreadable = || FleetError::Unreadable("header_value");
    let header = STANDARD.decode(header).map_err(|_| unreadable())?;
    let payment: Payment = serde_json::from_slice(&header).map_err(|_| unreadable())?;
    let Payload {
        signature,
        authorization,
    } = payment.payload;
    let number = |text: &str| text.parse::<U256>().map_err(|_| unreadable());
    let transfer = transferWithAuthorizationCall {
        from: authorization.from,
        to: authorization.to,
        value: number(&authorization.value)?,
        validAfter: number(&authorization.valid_after)?,
        validBefore: number(&authorization.valid_before)?,
        nonce: authorization.nonce,
        signature,
    };
    let transaction = chain.send(NETWORK.token().address, transfer.abi_encode()).await?;
    Ok(json!({"success": true, "transaction": transaction, "payer": authorization.from.to_string()}))
}
