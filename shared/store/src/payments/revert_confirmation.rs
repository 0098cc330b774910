//! Reverts the confirmation of a payment whose transfer is no longer on the chain. The settlement is held again. The
//! windows do not change, because the payment counted the whole time. The settlement's claim on the vanished
//! transaction stays until the claim's block is checked.

use crate::{
    codec::attribute::{Attribute as _, encode_text},
    codec::backoff::Backoff,
    codec::fault::Fault,
    codec::key::{self, Key},
    codec::ledger::Ledger,
    payments::decision::write_reverted_confirmation,
    payments::settle::TransitionResult,
    payments::settlement::{AUTHORIZED, CONFIRMED},
    transact::{Transaction, TransactionOutcome},
};
use aws_sdk_dynamodb::types::builders::PutBuilder;
use purser_domain::{ConfirmationReverted, Error, Result, Settlement, Timestamp, TransactionId, VanishedTransfer};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Settlement,
    Decision,
}

const OPERATION: &str = "reverting a confirmation";

impl Ledger {
    /// Reverts a confirmation, and records a decision with the id `decision` and the time `at`. Takes 5 write units.
    pub async fn revert_confirmation(
        &self,
        settlement: &Settlement,
        vanished_transfer: &VanishedTransfer,
        decision: TransactionId,
        at: Timestamp,
    ) -> Result<TransitionResult> {
        let (terms, tx_hash) = (&settlement.terms, vanished_transfer.tx_hash());
        if vanished_transfer.settlement_id() != terms.id {
            let words = Fault::new("the evidence belongs to another settlement");
            return Err(Error::internal(OPERATION, words));
        }
        let update = self
            .update_item(&Key::settlement(terms.agent, terms.id))
            .update_expression("SET rs = :authorized, hp = :hp, hs = :hs REMOVE txh, blk, settled")
            .condition_expression("rs = :confirmed AND txh = :hash")
            .expression_attribute_values(":authorized", encode_text(AUTHORIZED))
            .expression_attribute_values(":confirmed", encode_text(CONFIRMED))
            .expression_attribute_values(":hash", tx_hash.write())
            .expression_attribute_values(":hp", key::hold::hold_partition(terms.id).write())
            .expression_attribute_values(":hs", key::hold::due_key(terms.valid_before).write());
        let record = PutBuilder::default()
            .table_name(self.decisions_table()?)
            .set_item(Some(write_reverted_confirmation(&ConfirmationReverted::new(
                settlement,
                vanished_transfer,
                decision,
                at,
            ))))
            .condition_expression("attribute_not_exists(pk)");
        let mut transaction = Transaction::new();
        transaction.add_update(Role::Settlement, update)?;
        transaction.add_put(Role::Decision, record)?;

        let TransactionOutcome::Refused(rejection) =
            transaction.send_until_outcome(&self.db, &mut Backoff::new()).await?
        else {
            return Ok(TransitionResult::Done(
                settlement.clone().revert_confirmation(vanished_transfer),
            ));
        };
        // The decision's id is random. If the row exists already, an earlier attempt has written the row, and the
        // response to that attempt was lost.
        if rejection.has_failed(Role::Decision) {
            return Ok(TransitionResult::Done(
                settlement.clone().revert_confirmation(vanished_transfer),
            ));
        }
        match rejection.existing_item(Role::Settlement) {
            Some(item) => Ok(TransitionResult::Superseded(self.read_settlement_item(item)?)),
            None => Err(Error::internal(OPERATION, Fault::new("the settlement does not exist"))),
        }
    }
}
