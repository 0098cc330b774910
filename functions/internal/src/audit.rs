//! The audit log of operators' acts: the row of an edit, which is written with the edit, and the row of a refused act.
//!
//! An unreadable request, or one that names an unknown object, is not an act. Nor is a request that failed in the
//! service; the repeated request is.

use crate::Operators;
use purser_api::{Operator, audit_refusal};
use purser_domain::{Act, AuditChanges, AuditOutcome, AuditRecord, AuditRefusal, Error, PersonId, Result};
use purser_store::AuditEntry;

impl Operators {
    /// The row of an edit that is about to be made, for one attempt. The next attempt creates another row.
    pub(crate) fn entry(&self, operator: &Operator, act: &Act, changes: AuditChanges) -> Result<AuditEntry> {
        let record = self.record(operator, act, AuditOutcome::Done(changes))?;
        Ok(self.audit.entry(&record))
    }

    /// As [`Self::entry`], for an edit that concerns this person. Their log gets the row too.
    pub(crate) fn entry_telling(
        &self,
        operator: &Operator,
        act: &Act,
        changes: AuditChanges,
        owner: Option<&PersonId>,
    ) -> Result<AuditEntry> {
        Ok(self.entry(operator, act, changes)?.telling(owner))
    }

    /// The result of an act. If it was refused, its row is written here.
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

    /// Writes the row of an act that was refused for a reason of which there is no error.
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
