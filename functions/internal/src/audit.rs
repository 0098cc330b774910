//! The audit log of operators' actions. An update and the audit row are written in one transaction.

use crate::Operators;
use purser_api::{Operator, rejection_for_audit};
use purser_domain::{Act, AuditChanges, AuditOutcome, AuditRecord, AuditRejection, Error, Result, UserId};
use purser_store::AuditEntry;

impl Operators {
    /// Builds the audit row of an update. Each attempt to store the update needs a new row.
    pub(crate) fn audit_entry(&self, operator: &Operator, action: &Act, changes: AuditChanges) -> Result<AuditEntry> {
        let record = self.audit_record(operator, action, AuditOutcome::Done(changes))?;
        Ok(self.audit.new_entry(&record))
    }

    /// Builds the audit row like [`Self::audit_entry`], and also adds the row to the owner's audit log.
    pub(crate) fn audit_entry_for_owner(
        &self,
        operator: &Operator,
        action: &Act,
        changes: AuditChanges,
        owner: Option<&UserId>,
    ) -> Result<AuditEntry> {
        Ok(self.audit_entry(operator, action, changes)?.with_copy_for_user(owner))
    }

    /// Runs an action and returns the result. Writes an audit row if the action is rejected.
    pub(crate) async fn audit_rejection<T>(
        &self,
        operator: &Operator,
        action: &Act,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let refused = |error: &Error| {
            let rejection = rejection_for_audit(error);
            let record =
                rejection.map(|rejection| self.audit_record(operator, action, AuditOutcome::Refused(rejection)));
            record.transpose()
        };
        self.audit.audit_rejection(work, refused).await
    }

    /// Writes the audit row of a rejected action that returned no error.
    pub(crate) async fn record_rejection(
        &self,
        operator: &Operator,
        action: &Act,
        rejection: AuditRejection,
    ) -> Result<()> {
        let record = self.audit_record(operator, action, AuditOutcome::Refused(rejection))?;
        self.audit.add_row(&record).await
    }

    fn audit_record(&self, operator: &Operator, action: &Act, outcome: AuditOutcome) -> Result<AuditRecord> {
        Ok(operator
            .acting
            .audit_record(self.clock.now(), self.entropy.random_bytes()?, action, outcome))
    }
}
