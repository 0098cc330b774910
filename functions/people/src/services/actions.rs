//! The forms for an agent's services.

use crate::agents::form::AgentForm;
use crate::history::operations::whole;
use crate::preview::operations::PreviewDays;
use crate::services::api::{parse_edit, parse_enable, parse_limits};
use crate::services::operations::ServiceEdit;
use crate::services::policy::{FIELDS, policy_body};
use crate::ui::form::{FormName, set};
use crate::ui::notice::Notice;
use purser_api::{Precondition, Reply};
use purser_domain::{BacktestTerms, PolicyChange, ServiceId, SpendPolicy};

/// Handles `POST …/services`, which enables a service.
pub(crate) async fn enable(sent: AgentForm) -> Reply {
    let edition = sent.people.catalog().await?;
    let mut form = sent.form(FormName::Enable);
    let service = form.service();
    let mut body = policy_body(&mut form, service.and_then(|id| edition.catalog.by_id(id)));
    set(&mut body, "service_id", form.text("service_id"));
    let owned = sent.agent_with_reason(&mut form);
    let enable = form.take_parsed(parse_enable(&body, &edition.catalog), &FIELDS);
    let Some((enable, owned)) = enable.zip(owned) else {
        return sent.again(form).await;
    };
    // Version zero means that no record exists. If the service was enabled meanwhile, the write fails and its limits
    // stay.
    let if_match = Precondition::Version(0);
    if let Some((trial, service)) = sent.trial.zip(service) {
        let change = PolicyChange {
            enabled: Some(true),
            policy: whole(SpendPolicy::column_defaults().apply(&enable.policy)),
        };
        let preview = sent
            .people
            .preview_enabling(&sent.owned, if_match, &enable, PreviewDays::DEFAULT);
        return sent
            .try_edit(trial, form, of_policy(service, change), Box::pin(preview))
            .await;
    }
    let enabled = sent.people.enable_service(&owned, if_match, &enable).await;
    sent.answer(form, enabled, Notice::ServiceEnabled).await
}

/// Handles `POST …/services/{service}`, which changes the service's policy.
pub(crate) async fn edit(sent: AgentForm) -> Reply {
    let service = sent.parse_parameter("service", ServiceId::parse)?;
    let edition = sent.people.catalog().await?;
    let mut form = sent.form(FormName::Policy(service));
    let listed = edition.catalog.by_id(service);
    let body = policy_body(&mut form, listed);
    let edit = form.take_parsed(parse_edit(&body, listed), &FIELDS);
    let owned = sent.agent_with_reason(&mut form);
    let Some(((edit, if_match), owned)) = edit.zip(form.version()).zip(owned) else {
        return sent.again(form).await;
    };
    if let Some(trial) = sent.trial {
        let change = PolicyChange {
            enabled: edit.enabled,
            policy: edit.policy.clone(),
        };
        let preview = sent
            .people
            .preview_edit(&sent.owned, if_match, service, &edit, PreviewDays::DEFAULT);
        return sent
            .try_edit(trial, form, of_policy(service, change), Box::pin(preview))
            .await;
    }
    let edited = sent.people.edit_service(&owned, if_match, service, &edit).await;
    sent.answer(form, edited, Notice::PolicySaved).await
}

/// Returns the limits that consist of one changed policy, for a backtest or a shadow policy.
fn of_policy(service: ServiceId, change: PolicyChange) -> BacktestTerms {
    BacktestTerms {
        policies: [(service, change)].into(),
        ..BacktestTerms::default()
    }
}

/// Handles `POST …/services/limits`, which sets the limits of all services without limits.
pub(crate) async fn limit_unlimited(sent: AgentForm) -> Reply {
    let mut form = sent.form(FormName::Unlimited);
    let body = policy_body(&mut form, None);
    let owned = sent.agent_with_reason(&mut form);
    let Some((edit, owned)) = form.take_parsed(parse_limits(&body), &FIELDS).zip(owned) else {
        return sent.again(form).await;
    };
    let limited = sent.people.limit_unlimited(&owned, &edit);
    let limited = sent.people.run_long(&owned.agent().owner, limited).await;
    sent.answer(form, limited, Notice::PolicySaved).await
}

/// Handles `POST …/services/{service}/disable`.
pub(crate) async fn disable(sent: AgentForm) -> Reply {
    switch(sent, false, Notice::ServiceDisabled).await
}

/// Handles `POST …/services/{service}/enable`, which enables a disabled service again.
pub(crate) async fn enable_again(sent: AgentForm) -> Reply {
    switch(sent, true, Notice::ServiceEnabled).await
}

async fn switch(sent: AgentForm, enabled: bool, notice: Notice) -> Reply {
    let service = sent.parse_parameter("service", ServiceId::parse)?;
    let mut form = sent.form(FormName::Plain);
    let owned = sent.agent_with_reason(&mut form);
    let Some((if_match, owned)) = form.version().zip(owned) else {
        return sent.again(form).await;
    };
    let edit = ServiceEdit {
        enabled: Some(enabled),
        ..ServiceEdit::default()
    };
    let edited = sent.people.edit_service(&owned, if_match, service, &edit).await;
    sent.answer(form, edited, notice).await
}
