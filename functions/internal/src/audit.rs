//! The audit log of operators' actions. An update and its audit row are written together. A rejected action gets a row
//! of its own.
//!
//! A request that is unreadable, or that names an unknown object, gets no audit row. A request that fails because of
//! the service gets no row either, but its retry does.

use crate::Operators;
use purser_api::{Operator, audit_refusal};
use purser_domain::{Act, AuditChanges, AuditOutcome, AuditRecord, AuditRefusal, Error, PersonId, Result};
use purser_store::AuditEntry;

impl Operators {
    /// Builds the audit row for one attempt to store an update. Each further attempt needs a new row.
    pub(crate) fn entry(&self, operator: &Operator, act: &Act, changes: AuditChanges) -> Result<AuditEntry> {
        let record = self.record(operator, act, AuditOutcome::Done(changes))?;
        Ok(self.audit.entry(&record))
    }

    /// Like [`Self::entry`], and also adds the row to the owner's audit log.
    pub(crate) fn entry_telling(
        &self,
        operator: &Operator,
        act: &Act,
        changes: AuditChanges,
        owner: Option<&PersonId>,
    ) -> Result<AuditEntry> {
        Ok(self.entry(operator, act, changes)?.telling(owner))
    }

    /// Runs an action and returns its result. If the action is rejected, writes an audit row.
    pub(crate) async fn audit_rejection<T>(
        &self,
        operator: &Operator,
        act: &Act,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let refused = |error: &Error| {
            let refusal = audit_refusal(error);
            let record = refusal.map(|refusal| self.record(operator, act, AuditOutcome::Refused(refusal)));
            record.transpose()
        };
        self.audit.audit_rejection(work, refused).await
    }

    /// Writes the audit row of an action that was rejected without an error value.
    pub(crate) async fn record_rejection(&self, operator: &Operator, act: &Act, refusal: AuditRefusal) -> Result<()> {
        let record = self.record(operator, act, AuditOutcome::Refused(refusal))?;
        self.audit.add(&record).await
    }

    fn record(&self, operator: &Operator, act: &Act, outcome: AuditOutcome) -> Result<AuditRecord> {
        Ok(operator
            .acting
            .record(self.clock.now(), self.entropy.bytes()?, act, outcome))
    }
}
