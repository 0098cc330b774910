//! The audit log of users' actions.
//!
//! An update and the audit row are one transaction. A rejected action gets a row of its own, except requests that are
//! invalid or that name another user's resource.

use crate::caller::Caller;
use crate::state::People;
use purser_api::rejection_for_audit;
use purser_domain::{
    Act, Acting, AuditChanges, AuditFilter, AuditOutcome, AuditRecord, AuditRejection, AuditScope, Error, Result,
};
use purser_store::{AuditEntry, AuditRow, Page, PageRequest};
use uuid::Uuid;

impl People {
    /// Creates the audit row of an update. Each attempt to store the update needs a new row.
    pub(crate) fn audit_entry(&self, acting: &Acting, action: &Act, changes: AuditChanges) -> Result<AuditEntry> {
        let record = self.audit_record(acting, action, AuditOutcome::Done(changes))?;
        Ok(self.audit.new_entry(&record))
    }

    /// Runs an action, and writes an audit row if the action is rejected.
    pub(crate) async fn audit_rejection<T>(
        &self,
        acting: &Acting,
        action: &Act,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let refused = |error: &Error| {
            let rejection = rejection_for_audit(error);
            let record = rejection.map(|rejection| self.audit_record(acting, action, AuditOutcome::Refused(rejection)));
            record.transpose()
        };
        self.audit.audit_rejection(work, refused).await
    }

    pub(crate) async fn record_rejection(
        &self,
        acting: &Acting,
        action: &Act,
        rejection: AuditRejection,
    ) -> Result<()> {
        self.audit
            .add_row(&self.audit_record(acting, action, AuditOutcome::Refused(rejection))?)
            .await
    }

    fn audit_record(&self, acting: &Acting, action: &Act, outcome: AuditOutcome) -> Result<AuditRecord> {
        Ok(acting.audit_record(self.now(), self.entropy.random_bytes()?, action, outcome))
    }

    /// Lists the user's actions, and other people's actions on the user's agents, newest first.
    pub(crate) async fn list_audit_log(
        &self,
        user: &Caller,
        filter: AuditFilter,
        page_request: PageRequest<Uuid>,
    ) -> Result<Page<AuditRow, Uuid>> {
        self.audit
            .read_page(&AuditScope::Person(user.id.clone()), filter, page_request)
            .await
    }
}
