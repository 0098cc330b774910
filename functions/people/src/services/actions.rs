//! The forms of services.

use crate::agents::form::AgentForm;
use crate::services::operations::{EnableService, ServiceEdit};
use crate::services::policy::read_policy;
use crate::ui::form::FormName;
use crate::ui::notice::Notice;
use purser_api::{Precondition, Reply};
use purser_domain::ServiceId;

/// `POST …/services`.
pub(crate) async fn enable(sent: AgentForm) -> Reply {
    let edition = sent.people.catalog().await?;
    let mut form = sent.form(FormName::Enable);
    let service = form.service();
    let policy = read_policy(&mut form, service.and_then(|id| edition.catalog.by_id(id)));
    let Some((service, policy)) = service.zip(policy) else {
        return sent.again(form).await;
    };
    let enable = EnableService {
        service: service.to_string(),
        policy,
    };
    // Version zero means no record: a service that was enabled meanwhile keeps its limits.
    let meant = Precondition::Version(0);
    let enabled = sent.people.enable_service(&sent.owned, meant, &enable).await;
    sent.answer(form, enabled, Notice::ServiceEnabled).await
}

/// `POST …/services/{service}`.
pub(crate) async fn edit(sent: AgentForm) -> Reply {
    let service = sent.named("service", ServiceId::parse)?;
    let edition = sent.people.catalog().await?;
    let mut form = sent.form(FormName::Policy(service));
    let policy = read_policy(&mut form, edition.catalog.by_id(service));
    let Some((policy, meant)) = policy.zip(form.version()) else {
        return sent.again(form).await;
    };
    let edit = ServiceEdit { enabled: None, policy };
    let edited = sent.people.edit_service(&sent.owned, meant, service, &edit).await;
    sent.answer(form, edited, Notice::PolicySaved).await
}

/// `POST …/services/{service}/disable`.
pub(crate) async fn disable(sent: AgentForm) -> Reply {
    switch(sent, false, Notice::ServiceDisabled).await
}

/// `POST …/services/{service}/enable`.
pub(crate) async fn enable_again(sent: AgentForm) -> Reply {
    switch(sent, true, Notice::ServiceEnabled).await
}

async fn switch(sent: AgentForm, enabled: bool, notice: Notice) -> Reply {
    let service = sent.named("service", ServiceId::parse)?;
    let mut form = sent.form(FormName::Plain);
    let Some(meant) = form.version() else {
        return sent.again(form).await;
    };
    let edit = ServiceEdit {
        enabled: Some(enabled),
        ..ServiceEdit::default()
    };
    let edited = sent.people.edit_service(&sent.owned, meant, service, &edit).await;
    sent.answer(form, edited, notice).await
}
