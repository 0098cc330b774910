//! Signed payments, as a facilitator submits them.

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol;
use alloy::sol_types::SolCall as _;
use serde_json::Value;

sol! {
    function transferWithAuthorization(
        address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature
    );
    function run(address target, bytes[] calls);
}

/// Returns the token call that makes an authorized payment.
pub fn transfer_of(authorized: &Value) -> Bytes {
    let payload = &authorized["payment"]["payload"]["payload"];
    let text = |name: &str| {
        payload["authorization"][name]
            .as_str()
            .expect("a field of the authorization")
    };
    let number = |name: &str| text(name).parse::<U256>().expect("a number");
    let call = transferWithAuthorizationCall {
        from: text("from").parse().expect("an address"),
        to: text("to").parse().expect("an address"),
        value: number("value"),
        validAfter: number("validAfter"),
        validBefore: number("validBefore"),
        nonce: text("nonce").parse::<B256>().expect("a nonce"),
        signature: payload["signature"]
            .as_str()
            .expect("a signature")
            .parse()
            .expect("hexadecimal"),
    };
    call.abi_encode().into()
}

/// Returns the batch contract's call that makes all token calls in one transaction.
pub fn batch_of(token: Address, calls: Vec<Bytes>) -> Vec<u8> {
    runCall { target: token, calls }.abi_encode()
}
