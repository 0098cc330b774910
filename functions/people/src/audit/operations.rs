//! The audit log of people's acts. The row of an edit is written together with the edit, and a refused act gets its own
//! row.
//!
//! An invalid request, or one that names another person's resource, is not logged as an act. Neither is a request that
//! fails because of the service; its retry is.

use crate::caller::Caller;
use crate::state::People;
use purser_api::audit_refusal;
use purser_domain::{
    Act, Acting, AuditChanges, AuditFilter, AuditOutcome, AuditRecord, AuditRefusal, AuditScope, Error, Result,
};
use purser_store::{AuditEntry, AuditRow, Page, PageRequest};
use uuid::Uuid;

impl People {
    /// The row of one attempt to store an edit. The next attempt needs a new row.
    pub(crate) fn entry(&self, acting: &Acting, act: &Act, changes: AuditChanges) -> Result<AuditEntry> {
        let record = self.audit_record(acting, act, AuditOutcome::Done(changes))?;
        Ok(self.audit.entry(&record))
    }

    /// Returns the result of an act, and adds the row of the act if it was refused.
    pub(crate) async fn audit_rejection<T>(
        &self,
        acting: &Acting,
        act: &Act,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let refused = |error: &Error| {
            let refusal = audit_refusal(error);
            let record = refusal.map(|refusal| self.audit_record(acting, act, AuditOutcome::Refused(refusal)));
            record.transpose()
        };
        self.audit.audit_rejection(work, refused).await
    }

    /// Adds the row of an act that was refused.
    pub(crate) async fn record_rejection(&self, acting: &Acting, act: &Act, refusal: AuditRefusal) -> Result<()> {
        self.audit
            .add(&self.audit_record(acting, act, AuditOutcome::Refused(refusal))?)
            .await
    }

    fn audit_record(&self, acting: &Acting, act: &Act, outcome: AuditOutcome) -> Result<AuditRecord> {
        Ok(acting.record(self.now(), self.entropy.bytes()?, act, outcome))
    }

    /// The person's acts, and the acts of others on their agents, newest first.
    pub(crate) async fn audit_log(
        &self,
        person: &Caller,
        filter: AuditFilter,
        slice: PageRequest<Uuid>,
    ) -> Result<Page<AuditRow, Uuid>> {
        self.audit
            .page(&AuditScope::Person(person.id.clone()), filter, slice)
            .await
    }
}
