//! Preflight answers, kept for a day under the caller's replay key. Nothing rests on them: they reserve nothing, and
//! authorize never reads them.

use crate::{
    attribute::Attribute as _,
    checks::Checks,
    fault::Fault,
    item::{Draft, Item},
    key::Key,
    ledger::Ledger,
};
use aws_sdk_dynamodb::{operation::put_item::PutItemError, types::ReturnValuesOnConditionCheckFailure};
use purser_domain::{AgentId, Duration, Error, Fingerprint, Preflight, Result, Timestamp};

/// What became of a preflight's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// It is stored: the key's first use within a day.
    First,
    /// The same request was answered before, like this.
    Same(Preflight),
    /// The key belongs to another request.
    Other,
}

impl Ledger {
    /// Stores a preflight's answer unless the replay key has one: 1 write unit.
    pub async fn remember_preflight(
        &self,
        agent: AgentId,
        replay_key: &Fingerprint,
        fingerprint: &Fingerprint,
        answer: &Preflight,
        now: Timestamp,
    ) -> Result<Remembered> {
        let row = Draft::of(&Key::preflight(agent, replay_key))
            .with("rh", fingerprint)
            .with("result", &answer.result)
            .with("reason", &answer.reason)
            .with("amt", &answer.amount)
            .with("checks", &Checks(answer.checks.clone()))
            // In seconds, as DynamoDB deletes by it; that happens days later, so the condition below asks the time itself.
            .with("ttl", &now.after(Duration::DAY).secs());
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(row.into_item()))
            .condition_expression("attribute_not_exists(pk) OR #ttl <= :now")
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_values(":now", now.secs().write())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let Err(error) = put.send().await else {
            return Ok(Remembered::First);
        };
        let Some(PutItemError::ConditionalCheckFailedException(refused)) = error.as_service_error() else {
            return Err(Error::internal("remembering a preflight", Fault::of(&error)));
        };
        let met = refused.item().cloned().unwrap_or_default();
        if self.row(&met).get::<Fingerprint>("rh")? == *fingerprint {
            self.read_preflight(&met).map(Remembered::Same)
        } else {
            Ok(Remembered::Other)
        }
    }

    fn read_preflight(&self, item: &Item) -> Result<Preflight> {
        let row = self.row(item);
        Ok(Preflight {
            result: row.get("result")?,
            reason: row.get("reason")?,
            amount: row.get("amt")?,
            checks: row.get::<Checks>("checks")?.0,
        })
    }
}
