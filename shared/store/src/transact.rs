//! Sends transactions and interprets the reasons for a cancellation. After a conflict or a lost response, a transaction
//! is sent again unchanged. If the attempt with the lost response committed, the conditions fail because of the rows of
//! that attempt.

use crate::{
    audit::entry::AuditEntry,
    codec::backoff::Backoff,
    codec::fault::{CONDITION_FAILED, CONFLICT, Fault, THROTTLED, THROUGHPUT_EXCEEDED, is_throttled, store_error},
    codec::item::Item,
};
use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    operation::{
        transact_write_items::{TransactWriteItemsError, TransactWriteItemsOutput},
        update_item::builders::UpdateItemFluentBuilder,
    },
    types::{
        CancellationReason, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
        Update,
        builders::{ConditionCheckBuilder, PutBuilder, UpdateBuilder},
    },
};
use purser_domain::{Error, Result};
use std::error::Error as StdError;

/// The maximum number of actions in one transaction (developer guide, "`TransactWriteItems` API").
pub(crate) const MAX_ACTIONS: usize = 100;

/// Writes that are applied together or not at all. A `Role` identifies a write whose condition failed.
#[derive(Clone, Debug)]
pub(crate) struct Transaction<Role> {
    writes: Vec<(Role, TransactWriteItem)>,
    audit: Option<(Role, AuditEntry)>,
}

/// The final result of a transaction.
#[derive(Debug)]
pub(crate) enum TransactionOutcome<Role> {
    Committed,
    /// Nothing was written, because conditions failed.
    Refused(FailedConditions<Role>),
}

/// The result of sending a transaction once.
#[derive(Debug)]
pub(crate) enum TransactResult<Role> {
    Committed,
    /// Nothing was written, because conditions failed.
    Refused(FailedConditions<Role>),
    /// Nothing was written, because of a conflicting transaction.
    Contended,
    /// DynamoDB's response was lost. DynamoDB may have committed the transaction, may still commit the transaction, or
    /// may never commit the transaction.
    Unknown(Error),
}

/// The roles of the writes whose conditions failed, each with the existing item if DynamoDB returned the item.
#[derive(Debug)]
pub(crate) struct FailedConditions<Role>(Vec<(Role, Option<Item>)>);

impl<Role: Copy + PartialEq> FailedConditions<Role> {
    /// Returns the existing item with which this role's condition failed, if DynamoDB returned the item.
    pub(crate) fn existing_item(&self, role: Role) -> Option<&Item> {
        self.0
            .iter()
            .find(|(failed, _)| *failed == role)
            .and_then(|(_, item)| item.as_ref())
    }

    pub(crate) fn has_failed(&self, role: Role) -> bool {
        self.0.iter().any(|(failed, _)| *failed == role)
    }
}

impl<Role: Copy + PartialEq> Transaction<Role> {
    pub(crate) const fn new() -> Self {
        Self {
            writes: Vec::new(),
            audit: None,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.writes.len()
    }

    /// Adds a put. If the condition fails, the existing item is returned.
    pub(crate) fn add_put(&mut self, role: Role, put: PutBuilder) -> Result<()> {
        let put = put.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let put: Put = put.build().map_err(incomplete_action_error)?;
        self.writes.push((role, TransactWriteItem::builder().put(put).build()));
        Ok(())
    }

    /// Adds a put of an item that the function may not read. If the condition fails, no item is returned.
    pub(crate) fn add_put_without_returned_item(&mut self, role: Role, put: PutBuilder) -> Result<()> {
        let put: Put = put.build().map_err(incomplete_action_error)?;
        self.writes.push((role, TransactWriteItem::builder().put(put).build()));
        Ok(())
    }

    /// Adds an update. If the condition fails, the existing item is returned.
    pub(crate) fn add_update(&mut self, role: Role, update: UpdateBuilder) -> Result<()> {
        let update = update.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let update: Update = update.build().map_err(incomplete_action_error)?;
        self.writes
            .push((role, TransactWriteItem::builder().update(update).build()));
        Ok(())
    }

    /// Adds a condition on an item that is not written. If the condition fails, the existing item is returned.
    pub(crate) fn add_check(&mut self, role: Role, check: ConditionCheckBuilder) -> Result<()> {
        let check = check.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let check: ConditionCheck = check.build().map_err(incomplete_action_error)?;
        self.writes
            .push((role, TransactWriteItem::builder().condition_check(check).build()));
        Ok(())
    }

    /// Adds a delete of an item that must exist, so that, for example, a release subtracts a payment only once.
    pub(crate) fn add_delete_of_existing(&mut self, role: Role, table: &str, key: Item) -> Result<()> {
        let delete = Delete::builder()
            .table_name(table)
            .set_key(Some(key))
            .condition_expression("attribute_exists(pk)");
        let delete: Delete = delete.build().map_err(incomplete_action_error)?;
        self.writes
            .push((role, TransactWriteItem::builder().delete(delete).build()));
        Ok(())
    }

    pub(crate) fn add_delete(
        &mut self,
        role: Role,
        delete: aws_sdk_dynamodb::types::builders::DeleteBuilder,
    ) -> Result<()> {
        let delete: Delete = delete.build().map_err(incomplete_action_error)?;
        self.writes
            .push((role, TransactWriteItem::builder().delete(delete).build()));
        Ok(())
    }

    /// Adds the audit rows of this transaction. The rows are logged after the commit.
    pub(crate) fn add_audit_rows(&mut self, role: Role, entry: &AuditEntry) -> Result<()> {
        for put in entry.to_puts() {
            self.add_put(role, put)?;
        }
        self.audit = Some((role, entry.clone()));
        Ok(())
    }

    /// The SDK's own retries use the same client token, so the transaction commits at most once.
    pub(crate) async fn send_once(&self, db: &Client) -> Result<TransactResult<Role>> {
        let items = self.writes.iter().map(|(_, write)| write.clone()).collect();
        let response = db.transact_write_items().set_transact_items(Some(items)).send().await;
        let sent = self.classify_response(response)?;
        if let Some((role, entry)) = &self.audit {
            let is_committed = match &sent {
                TransactResult::Committed => true,
                // If the audit row exists already, an earlier attempt has committed, and the response to that attempt
                // was lost.
                TransactResult::Refused(rejection) => rejection.has_failed(*role),
                TransactResult::Contended | TransactResult::Unknown(_) => false,
            };
            if is_committed {
                entry.log_audit_rows();
            }
        }
        Ok(sent)
    }

    /// Sends the transaction until the transaction commits or a condition fails. A condition also fails if an earlier
    /// attempt committed and the response to that attempt was lost. The caller must recognize this case.
    pub(crate) async fn send_until_outcome(
        &self,
        db: &Client,
        backoff: &mut Backoff,
    ) -> Result<TransactionOutcome<Role>> {
        loop {
            if let Some(known) = self.send_until_outcome_or_fresh_read(db, backoff).await? {
                return Ok(known);
            }
        }
    }

    /// Sends the transaction like [`Self::send_until_outcome`], but returns `None` as soon as
    /// [`Backoff::needs_fresh_read`] requires that the caller reads the rows again.
    pub(crate) async fn send_until_outcome_or_fresh_read(
        &self,
        db: &Client,
        backoff: &mut Backoff,
    ) -> Result<Option<TransactionOutcome<Role>>> {
        let mut lost_before = false;
        loop {
            match self.send_once(db).await? {
                TransactResult::Committed => return Ok(Some(TransactionOutcome::Committed)),
                TransactResult::Refused(rejection) => return Ok(Some(TransactionOutcome::Refused(rejection))),
                TransactResult::Contended => {}
                // After one lost response, a second attempt shows whether the first attempt committed. After two lost
                // responses, the caller gets the error.
                TransactResult::Unknown(error) if lost_before => return Err(error),
                TransactResult::Unknown(_) => lost_before = true,
            }
            backoff.wait_for_retry().await?;
            if !lost_before && backoff.needs_fresh_read() {
                return Ok(None);
            }
        }
    }

    fn classify_response(
        &self,
        result: Result<TransactWriteItemsOutput, SdkError<TransactWriteItemsError>>,
    ) -> Result<TransactResult<Role>> {
        let Err(error) = result else {
            return Ok(TransactResult::Committed);
        };
        match &error {
            // The SDK did not send the request.
            SdkError::ConstructionFailure(_) => Err(store_error(OPERATION)(error)),
            SdkError::ServiceError(response) => match response.err() {
                TransactWriteItemsError::TransactionCanceledException(cancelled) => {
                    self.classify_reasons(cancelled.cancellation_reasons())
                }
                // An earlier attempt of the SDK is still in progress.
                TransactWriteItemsError::TransactionInProgressException(_)
                | TransactWriteItemsError::InternalServerError(_) => {
                    Ok(TransactResult::Unknown(store_error(OPERATION)(error)))
                }
                other if other.code() == Some("ServiceUnavailable") => {
                    Ok(TransactResult::Unknown(store_error(OPERATION)(error)))
                }
                _ => Err(store_error(OPERATION)(error)),
            },
            _ => Ok(TransactResult::Unknown(store_error(OPERATION)(error))),
        }
    }

    /// A failed condition takes precedence over a conflict, because the failed condition shows what has changed.
    fn classify_reasons(&self, reasons: &[CancellationReason]) -> Result<TransactResult<Role>> {
        let mut refused = Vec::new();
        for ((role, _), reason) in self.writes.iter().zip(reasons) {
            match reason.code() {
                None | Some("None" | CONFLICT | THROTTLED | THROUGHPUT_EXCEEDED) => {}
                Some(CONDITION_FAILED) => refused.push((*role, reason.item().cloned())),
                // A validation error or an oversized item is a bug in this crate.
                Some(other) => {
                    let message = format!("cancelled: {other}: {}", reason.message().unwrap_or("no message"));
                    return Err(Error::internal(OPERATION, Fault::new(message)));
                }
            }
        }
        if is_throttled(reasons) {
            return Err(Error::temporarily_unavailable(
                OPERATION,
                Fault::new("cancelled: throttled"),
            ));
        }
        Ok(if refused.is_empty() {
            TransactResult::Contended
        } else {
            TransactResult::Refused(FailedConditions(refused))
        })
    }
}

const OPERATION: &str = "writing a transaction";

fn incomplete_action_error(error: aws_sdk_dynamodb::error::BuildError) -> Error {
    Error::internal("building a transaction", error)
}

/// The SDK does not retry a single write that conflicts with a transaction.
pub(crate) fn is_conflict<E: ProvideErrorMetadata>(error: &SdkError<E>) -> bool {
    error.code() == Some("TransactionConflictException")
}

/// Returns whether a single write was applied. Returns `false` if the condition failed.
pub(crate) fn was_applied<T, E>(result: Result<T, SdkError<E>>, operation: &'static str) -> Result<bool>
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some("ConditionalCheckFailedException") => Ok(false),
        Err(error) => Err(store_error(operation)(error)),
    }
}

/// Repeats a single update while it conflicts with a transaction. Returns `false` if the condition failed.
pub(crate) async fn update_with_conflict_retry(
    update: &UpdateItemFluentBuilder,
    operation: &'static str,
) -> Result<bool> {
    let mut backoff = Backoff::new();
    loop {
        match update.clone().send().await {
            Err(error) if is_conflict(&error) => backoff.wait_for_retry().await?,
            response => return was_applied(response, operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_dynamodb::{
        error::ErrorMetadata,
        types::{
            builders::PutBuilder,
            error::{InternalServerError, TransactionInProgressException},
        },
    };
    use aws_smithy_runtime_api::http::Response;
    use aws_smithy_types::body::SdkBody;

    #[test]
    fn throttling_conflicts_and_failed_conditions_are_distinguished() {
        let rows: [(&[&str], bool, &str); 10] = [
            (&["TransactionConflict", "None"], false, "contended"),
            (&["None", "TransactionConflict"], false, "contended"),
            (&["ThrottlingError", "None"], true, "temporarily_unavailable"),
            (
                &["None", "ProvisionedThroughputExceeded"],
                true,
                "temporarily_unavailable",
            ),
            (&["ThrottlingError", "ThrottlingError"], true, "temporarily_unavailable"),
            (
                &["TransactionConflict", "ThrottlingError"],
                true,
                "temporarily_unavailable",
            ),
            (&["ConditionalCheckFailed", "ThrottlingError"], false, "refused"),
            (
                &["ProvisionedThroughputExceeded", "ConditionalCheckFailed"],
                false,
                "refused",
            ),
            (&["ConditionalCheckFailed", "TransactionConflict"], false, "refused"),
            (&["ThrottlingError", "ValidationError"], false, "internal_error"),
        ];
        let mut transaction = Transaction::new();
        for role in [1, 2] {
            let put = PutBuilder::default().table_name("t").set_item(Some(Item::new()));
            transaction.add_put(role, put).unwrap();
        }
        for (codes, throttled, expected) in rows {
            let reasons: Vec<CancellationReason> = codes
                .iter()
                .map(|code| CancellationReason::builder().code(*code).build())
                .collect();
            assert_eq!(is_throttled(&reasons), throttled, "{codes:?}");
            let told = match transaction.classify_reasons(&reasons) {
                Ok(TransactResult::Contended) => "contended".to_owned(),
                Ok(TransactResult::Refused(_)) => "refused".to_owned(),
                Ok(other) => format!("{other:?}"),
                Err(error) => error.kind().slug(),
            };
            assert_eq!(told, expected, "{codes:?}");
        }
    }

    #[test]
    fn a_transaction_without_a_response_has_an_unknown_outcome() {
        let response = || Response::new(400_u16.try_into().unwrap(), SdkBody::empty());
        let coded = |code: &str| {
            let error = TransactWriteItemsError::generic(ErrorMetadata::builder().code(code).build());
            SdkError::service_error(error, response())
        };
        let in_progress = TransactionInProgressException::builder().build();
        let in_progress = TransactWriteItemsError::TransactionInProgressException(in_progress);
        let failing = TransactWriteItemsError::InternalServerError(InternalServerError::builder().build());
        let rows = [
            (SdkError::construction_failure("no region"), "internal_error"),
            (SdkError::timeout_error("no answer"), "unknown"),
            (SdkError::response_error("no JSON", response()), "unknown"),
            (SdkError::service_error(in_progress, response()), "unknown"),
            (SdkError::service_error(failing, response()), "unknown"),
            (coded("ServiceUnavailable"), "unknown"),
            (coded("ValidationException"), "internal_error"),
            (coded("ThrottlingException"), "temporarily_unavailable"),
        ];
        let transaction = Transaction::<u8>::new();
        for (error, expected) in rows {
            let shown = format!("{error:?}");
            let told = match transaction.classify_response(Err(error)) {
                Ok(TransactResult::Unknown(_)) => "unknown".to_owned(),
                Ok(other) => format!("{other:?}"),
                Err(error) => error.kind().slug(),
            };
            assert_eq!(told, expected, "{shown}");
        }
    }
}
