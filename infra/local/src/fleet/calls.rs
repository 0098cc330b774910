//! Calls the running stack as an owner, as an agent, and as the providers.
//!
//! Most services in the local catalog have no server, so the demo submits the signed payments to the token itself.

use super::story::Purchase;
use crate::chain::{DevChain, NETWORK};
use crate::stack_file::StackFile;
use alloy::primitives::{Address, B256, Bytes};
use alloy::sol;
use alloy::sol_types::SolCall as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use purser_api::Clock;
use purser_domain::Timestamp;
use reqwest::{Client, Method, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) type Failed = Box<dyn std::error::Error + Send + Sync>;

sol! {
    /// EIP-3009, with the signature as bytes.
    function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature);
}

/// The address of Anvil's fourth account, which belongs to no service. The owner's withdrawals go there.
pub(super) const STRANGER: &str = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
/// The maximum number of attempts for a call that is throttled or conflicts.
const ATTEMPTS: u32 = 4;

/// Parses the value at a JSON pointer.
pub(super) fn member<T: DeserializeOwned>(value: &Value, pointer: &str) -> Result<T, Failed> {
    let field = value.pointer(pointer).cloned().unwrap_or_default();
    serde_json::from_value(field).map_err(|error| format!("{pointer} of a response of the stack: {error}").into())
}

/// A client of the running stack.
pub(super) struct Calls {
    http: Client,
    stack: StackFile,
    chain: DevChain,
    /// The services of the catalog by slug.
    services: BTreeMap<String, Value>,
}

impl Calls {
    /// Reads the services of the operations in `offers`.
    pub(super) async fn new<'a>(stack: StackFile, offers: impl Iterator<Item = &'a String>) -> Result<Self, Failed> {
        let chain = DevChain::new(stack.rpc_url.clone());
        let mut calls = Self {
            http: Client::new(),
            chain,
            stack,
            services: BTreeMap::new(),
        };
        for slug in offers.filter_map(|offer| offer.split('/').next()) {
            let listing = calls
                .call(Method::GET, &format!("/services/{slug}"), "", &Value::Null, None)
                .await?;
            calls.services.insert(slug.to_owned(), listing);
        }
        Ok(calls)
    }

    /// Sends a request, and repeats it after a temporary error. Returns the body of a success, or of the expected
    /// `error`.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        credential: &str,
        body: &Value,
        error: Option<&str>,
    ) -> Result<Value, Failed> {
        for attempt in 1.. {
            let request = self
                .http
                .request(method.clone(), format!("{}{path}", self.stack.base_url));
            let request = request.bearer_auth(credential).header(header::IF_MATCH, "*");
            let response = if body.is_null() { request } else { request.json(body) }.send().await?;
            let status = response.status();
            let reply: Value = response.json().await?;
            let slug = reply.get("error").and_then(Value::as_str);
            match reply.get("retry_after").and_then(Value::as_u64) {
                Some(seconds) if attempt < ATTEMPTS => tokio::time::sleep(Duration::from_secs(seconds.min(60))).await,
                _ if slug == error && (error.is_some() || status.is_success()) => return Ok(reply),
                _ => {
                    return Err(format!(
                        "{method} {path}: {status} {reply}; expected: {}",
                        error.unwrap_or("a success")
                    )
                    .into());
                }
            }
        }
        Ok(Value::Null)
    }

    /// Returns an ID token of the owner, for a sign-in at the current time.
    pub(super) async fn sign_in(&self) -> Result<String, Failed> {
        member(
            &self.call(Method::POST, "/_local/token", "", &json!({}), None).await?,
            "/token",
        )
    }

    pub(super) async fn fund(&self, wallet: &str, units: u64) -> Result<(), Failed> {
        let body = json!({"wallet_address": wallet, "units": units});
        self.call(Method::POST, "/_local/fund", "", &body, None)
            .await
            .map(|_| ())
    }

    /// Advances the clocks of the stack and the chain. Returns the stack's time.
    pub(super) async fn advance(&self, seconds: u64) -> Result<Timestamp, Failed> {
        let clock = self
            .call(
                Method::POST,
                "/_local/clock",
                "",
                &json!({"advance_seconds": seconds}),
                None,
            )
            .await?;
        let time = Clock::system()
            .now()
            .secs()
            .saturating_add(member(&clock, "/ahead_seconds")?);
        Timestamp::from_secs(time).ok_or_else(|| "the clock of the stack is out of range".into())
    }

    /// Returns a service's id.
    pub(super) fn service(&self, slug: &str) -> Result<String, Failed> {
        member(self.services.get(slug).unwrap_or(&Value::Null), "/id")
    }

    fn operation(&self, offer: &str) -> Result<&Value, Failed> {
        let find = || {
            let (service, operation) = offer.split_once('/')?;
            let operations = self.services.get(service)?.get("operations")?.as_array()?;
            operations
                .iter()
                .find(|listed| listed.get("operation_id").and_then(Value::as_str) == Some(operation))
        };
        find().ok_or_else(|| format!("the catalog has no {offer}").into())
    }

    /// Returns `percent` percent of an operation's catalog price, in micro-USDC.
    pub(super) fn units(&self, offer: &str, percent: u64) -> Result<u64, Failed> {
        let price: u64 = member(self.operation(offer)?, "/payment/amount_units")?;
        Ok(price.saturating_mul(percent) / 100)
    }

    /// Replaces each `{"percent", "of"}` in the body by that percentage of an operation's catalog price.
    pub(super) fn fill_amounts(&self, body: &Value) -> Result<Value, Failed> {
        match body {
            Value::Object(fields) => match (fields.get("percent").and_then(Value::as_u64), fields.get("of")) {
                (Some(percent), Some(Value::String(offer))) => Ok(self.units(offer, percent)?.into()),
                _ => fields
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), self.fill_amounts(value)?)))
                    .collect(),
            },
            other => Ok(other.clone()),
        }
    }

    /// Returns the agent's authorize request for a purchase.
    pub(super) fn request(&self, purchase: &Purchase, approval: Option<&str>) -> Result<Value, Failed> {
        let operation = self.operation(&purchase.offer)?;
        let serial = purchase.serial;
        let mut amount = self.units(&purchase.offer, purchase.percent.unwrap_or(100))?;
        if purchase.is_above_catalog {
            amount = amount.saturating_add(member(operation, "/max_price_units")?);
        }
        let pay_to: String = member(operation, "/payment/pay_to")?;
        let endpoint: String = member(operation, "/endpoint")?;
        let endpoint = endpoint.replace("{id}", &format!("company-{serial}"));
        let (url, metadata) = match &purchase.page {
            Some(host) => {
                let page = format!("https://{host}/guide/{serial}");
                (format!("{endpoint}?url={page}"), json!({"target_url": page}))
            }
            None => (format!("{endpoint}?request={serial}"), json!({})),
        };
        let token = NETWORK.token();
        let offer = json!({
            "scheme": "exact", "network": format!("eip155:{}", self.stack.chain_id), "amount": amount.to_string(),
            "asset": self.stack.usdc_address, "payTo": if purchase.is_to_stranger { STRANGER } else { &pay_to },
            "maxTimeoutSeconds": 300, "extra": {"name": token.name, "version": token.version},
        });
        let mut request = json!({
            "payment_requirement": {"x402Version": 2, "resource": {"url": url}, "accepts": [offer]},
            "max_payment_units": if purchase.has_low_ceiling { amount / 2 } else { amount },
            "original_request": {"method": operation.get("method"), "url": url},
            "metadata": metadata,
            "idempotency_key": format!("fleet-{serial}"),
        });
        if let (Some(approval), Some(fields)) = (approval, request.as_object_mut()) {
            fields.insert("approval_id".to_owned(), approval.into());
        }
        Ok(request)
    }

    /// Submits a payment to the token. Returns the provider's payment response.
    pub(super) async fn settle(&self, header: &str) -> Result<Value, Failed> {
        let Payment { payload } = serde_json::from_slice(&STANDARD.decode(header)?)?;
        let Authorization {
            from,
            to,
            value,
            valid_after,
            valid_before,
            nonce,
        } = payload.authorization;
        let transfer = transferWithAuthorizationCall {
            from,
            to,
            value: value.parse()?,
            validAfter: valid_after.parse()?,
            validBefore: valid_before.parse()?,
            nonce,
            signature: payload.signature,
        };
        let transaction = self.chain.send(NETWORK.token().address, transfer.abi_encode()).await?;
        Ok(json!({"success": true, "transaction": transaction, "payer": from.to_string()}))
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
