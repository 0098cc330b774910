//! The job that a schedule's event requests.

use crate::Part;
use purser_domain::{Error, Result};
use serde_json::Value;

/// The work of one run, which the schedule's event selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Reconciles this share of the held payments, every minute.
    Payments(Part),
    /// Compares the wallets' balances with the limit for low balances, every hour.
    Wallets,
}

impl Job {
    /// Returns the job that a schedule's event selects. Without a field `job`, returns [`Job::Payments`].
    pub fn from_event(event: &Value) -> Result<Self> {
        match event.get("job").map(|job| job.as_str()) {
            None => Part::from_event(event).map(Self::Payments),
            Some(Some("wallets")) => Ok(Self::Wallets),
            Some(_) => Err(Error::internal("reading a schedule's event", "the job name is unknown")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reconcile_events_without_a_job_field_select_payments() {
        let job = |event| Job::from_event(&event).ok();
        assert_eq!(job(json!({"detail": "{}"})), Some(Job::Payments(Part::WHOLE)));
        assert_eq!(job(json!({"job": "wallets"})), Some(Job::Wallets));
        for wrong in [json!({"job": "payments"}), json!({"job": null}), json!({"part": 0})] {
            assert_eq!(job(wrong.clone()), None, "{wrong}");
        }
    }
}
