//! How much capacity a client consumed. The shipped code asks for no figures; this interceptor adds the question to every
//! call and reads the answer.

#![expect(
    clippy::float_arithmetic,
    clippy::as_conversions,
    reason = "DynamoDB counts in halves"
)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the figures are small"
)]

use aws_sdk_dynamodb::{
    config::{
        ConfigBag, Intercept, RuntimeComponents,
        interceptors::{AfterDeserializationInterceptorContextRef, BeforeSerializationInterceptorContextMut},
    },
    error::BoxError,
    operation::{
        batch_get_item::{BatchGetItemInput, BatchGetItemOutput},
        get_item::{GetItemInput, GetItemOutput},
        put_item::{PutItemInput, PutItemOutput},
        query::{QueryInput, QueryOutput},
        scan::{ScanInput, ScanOutput},
        transact_write_items::{TransactWriteItemsInput, TransactWriteItemsOutput},
        update_item::{UpdateItemInput, UpdateItemOutput},
    },
    types::{ConsumedCapacity, ReturnConsumedCapacity},
};
use std::sync::{Arc, Mutex};

/// What was consumed since it was last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Consumed {
    pub read: f64,
    pub write: f64,
    /// Answers that carried figures.
    pub calls: u32,
}

/// Counts for all clients that carry a clone of it.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<Mutex<Consumed>>);

impl Meter {
    /// What was consumed, and starts anew.
    pub fn take(&self) -> Consumed {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn add(&self, capacity: &[ConsumedCapacity], writes: bool) {
        let units: f64 = capacity.iter().filter_map(ConsumedCapacity::capacity_units).sum();
        let mut consumed = self.0.lock().unwrap();
        consumed.calls += 1;
        if writes {
            consumed.write += units;
        } else {
            consumed.read += units;
        }
    }
}

impl Consumed {
    /// Whole read and write units and calls, for comparison.
    pub fn units(self) -> (u32, u32, u32) {
        (self.read.ceil() as u32, self.write.ceil() as u32, self.calls)
    }
}

impl Intercept for Meter {
    fn name(&self) -> &'static str {
        "Meter"
    }

    fn modify_before_serialization(
        &self,
        context: &mut BeforeSerializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        macro_rules! ask {
            ($($input:ty)*) => {$(
                if let Some(input) = context.input_mut().downcast_mut::<$input>() {
                    input.return_consumed_capacity = Some(ReturnConsumedCapacity::Total);
                }
            )*};
        }
        ask!(BatchGetItemInput GetItemInput PutItemInput QueryInput ScanInput TransactWriteItemsInput UpdateItemInput);
        Ok(())
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let Ok(output) = context.output_or_error() else {
            return Ok(());
        };
        macro_rules! read {
            ($($output:ty, $writes:literal;)*) => {$(
                if let Some(output) = output.downcast_ref::<$output>() {
                    self.add(&Vec::from_iter(output.consumed_capacity().into_iter().cloned()), $writes);
                }
            )*};
        }
        read! {
            BatchGetItemOutput, false;
            GetItemOutput, false;
            QueryOutput, false;
            ScanOutput, false;
            PutItemOutput, true;
            UpdateItemOutput, true;
            TransactWriteItemsOutput, true;
        }
        Ok(())
    }
}
