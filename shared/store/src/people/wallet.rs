use crate::{
    codec::attribute::Attribute as _,
    codec::fault::{Fault, store_error},
    codec::key::Key,
    codec::ledger::Ledger,
    codec::table::update_request,
};
use aws_sdk_dynamodb::types::ReturnValue;
use purser_domain::{Error, Result};

/// The maximum index of a non-hardened child (BIP-32): 2^31 - 1.
const MAX_WALLET_INDEX: u32 = 0x7fff_ffff;

impl Ledger {
    /// Assigns the next wallet index, starting with 0. If the response is lost, the index stays unused.
    pub async fn assign_wallet_index(&self) -> Result<u32> {
        const OPERATION: &str = "assigning a wallet index";
        let update = update_request(&self.db, &self.table, &Key::wallet_counter())
            .update_expression("ADD n :one")
            .expression_attribute_values(":one", 1_u32.write())
            .return_values(ReturnValue::UpdatedNew);
        let item = update
            .send()
            .await
            .map_err(store_error(OPERATION))?
            .attributes
            .unwrap_or_default();
        let given_out: u32 = self.item_row(&item).get("n")?;
        given_out
            .checked_sub(1)
            .filter(|index| *index <= MAX_WALLET_INDEX)
            .ok_or_else(|| Error::internal(OPERATION, Fault::new("all wallet indexes are assigned")))
    }
}
