//! The actions of the forms of an agent's page, one function each.

use super::agent_form::AgentForm;
use super::keys::read_scope;
use super::policy::read_policy;
use super::rules::read_rule;
use crate::ops::agents::AgentEdit;
use crate::ops::services::{EnableService, ServiceEdit};
use crate::pages::form::{FormName, RuleForm};
use crate::pages::notice::{Notice, done};
use crate::pages::paths;
use purser_api::{Precondition, Reply};
use purser_domain::{AgentStatus, KeyId, KeyScope, RuleId, ServiceId, Submission};

/// `POST …/rename`.
pub(super) async fn rename(sent: AgentForm) -> Reply {
    let mut form = sent.form(FormName::Rename);
    let Some((name, meant)) = form.agent_name().zip(form.version()) else {
        return sent.again(form).await;
    };
    let edit = AgentEdit {
        name: Some(name),
        status: None,
    };
    let renamed = sent.people.edit_agent(sent.owned.clone(), meant, &edit).await;
    sent.answer(form, renamed, Notice::AgentRenamed).await
}

/// `POST …/freeze`.
pub(super) async fn freeze(sent: AgentForm) -> Reply {
    set_status(sent, AgentStatus::Frozen, Notice::AgentFrozen).await
}

/// `POST …/unfreeze`.
pub(super) async fn unfreeze(sent: AgentForm) -> Reply {
    set_status(sent, AgentStatus::Active, Notice::AgentUnfrozen).await
}

/// No version: a freeze must work immediately, whoever else is editing.
async fn set_status(sent: AgentForm, status: AgentStatus, notice: Notice) -> Reply {
    let edit = AgentEdit {
        name: None,
        status: Some(status),
    };
    let edited = sent.people.edit_agent(sent.owned, Precondition::Any, &edit).await?;
    Ok(done(&paths::agent(edited.agent().id), notice))
}

/// `POST …/keys`. The answer is the page that shows the key, not a redirect: a redirect could not carry the key. A
/// reload sends the same version again, and so creates no second key.
pub(super) async fn create_key(sent: AgentForm) -> Reply {
    let edition = sent.people.catalog().await?;
    let is_limited = !sent.form(FormName::Plain).text("limited").is_empty();
    let mut form = sent.form(if is_limited {
        FormName::LimitedKey
    } else {
        FormName::Plain
    });
    let scope = if is_limited {
        read_scope(&mut form, &edition.catalog, sent.people.now())
    } else {
        Some(KeyScope::default())
    };
    let Some((scope, meant)) = scope.zip(form.version()) else {
        return sent.again(form).await;
    };
    match sent.people.create_key(sent.owned.clone(), meant, scope).await {
        Ok(issued) => sent.show_key(&issued.agent, issued.text).await,
        Err(error) => sent.key_refused(form, error).await,
    }
}

/// `POST …/keys/{key}/rotate`.
pub(super) async fn rotate_key(sent: AgentForm) -> Reply {
    let key = sent.named("key", KeyId::parse)?;
    let mut form = sent.form(FormName::Rotate(key));
    let Some((overlap, meant)) = form.overlap().zip(form.version()) else {
        return sent.again(form).await;
    };
    match sent.people.rotate_key(sent.owned.clone(), meant, key, overlap).await {
        Ok(rotation) => sent.show_key(&rotation.issued.agent, rotation.issued.text).await,
        Err(error) => sent.key_refused(form, error).await,
    }
}

/// `POST …/keys/{key}/revoke`. No version: a stolen key must end immediately, whoever else is editing.
pub(super) async fn revoke_key(sent: AgentForm) -> Reply {
    let key = sent.named("key", KeyId::parse)?;
    let (owned, _) = sent.people.revoke_key(sent.owned, Precondition::Any, key).await?;
    Ok(done(&paths::agent(owned.agent().id), Notice::KeyRevoked))
}

/// `POST …/payout-address`.
pub(super) async fn name_payout_address(sent: AgentForm) -> Reply {
    let mut form = sent.form(FormName::PayoutAddress);
    let Some(address) = form.address() else {
        return sent.again(form).await;
    };
    let named = sent
        .people
        .name_payout_address(&sent.owned, sent.caller.clone(), address);
    let named = named.await;
    sent.answer(form, named, Notice::PayoutAddressNamed).await
}

/// `POST …/payout-address/remove`.
pub(super) async fn remove_payout_address(sent: AgentForm) -> Reply {
    sent.people.remove_payout_address(&sent.owned, sent.caller).await?;
    Ok(done(&paths::agent(sent.owned.agent().id), Notice::PayoutAddressRemoved))
}

/// `POST …/payouts`. The form has its own idempotency key, so sent twice it is one payout.
pub(super) async fn pay_out(sent: AgentForm) -> Reply {
    let mut form = sent.form(FormName::PayOut);
    let amount = form.payout_amount();
    let is_confirmed = form.is_checked("confirmed", "Compare the address and check the box.");
    let key = form.text("idempotency_key").to_owned();
    if key.is_empty() || key.len() > 255 {
        form.wrong("", "The form is incomplete. Reload the page.");
    }
    let Some(amount) = amount.filter(|_| is_confirmed && !form.is_wrong()) else {
        return sent.again(form).await;
    };
    match sent
        .people
        .pay_out(&sent.owned, sent.caller.clone(), amount, &key)
        .await
    {
        Ok(paid) => {
            let notice = match paid.submission {
                Some(Submission::Accepted) => Notice::PaidOut,
                None => Notice::PaidOutBefore,
                Some(Submission::Refused | Submission::Unanswered) => Notice::PayoutUnanswered,
            };
            Ok(done(
                &paths::receipt(sent.owned.agent().id, paid.settlement.id()),
                notice,
            ))
        }
        Err(error) => sent.refused(form, error).await,
    }
}

/// `POST …/services`.
pub(super) async fn enable_service(sent: AgentForm) -> Reply {
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
pub(super) async fn edit_service(sent: AgentForm) -> Reply {
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
pub(super) async fn disable_service(sent: AgentForm) -> Reply {
    switch_service(sent, false, Notice::ServiceDisabled).await
}

/// `POST …/services/{service}/enable`.
pub(super) async fn enable_service_again(sent: AgentForm) -> Reply {
    switch_service(sent, true, Notice::ServiceEnabled).await
}

async fn switch_service(sent: AgentForm, enabled: bool, notice: Notice) -> Reply {
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

/// `POST …/rules`.
pub(super) async fn add_rule(sent: AgentForm) -> Reply {
    let edition = sent.people.catalog().await?;
    let kind = RuleForm::from_name(sent.form(FormName::Plain).text("kind"));
    let mut form = sent.form(kind.map_or(FormName::Plain, FormName::NewRule));
    let Some((rule, meant)) = read_rule(&mut form, &edition.catalog).zip(form.version()) else {
        return sent.again(form).await;
    };
    let added = sent.people.add_rule(sent.owned.clone(), meant, &rule).await;
    sent.answer(form, added, Notice::RuleAdded).await
}

/// `POST …/rules/{rule}`.
pub(super) async fn replace_rule(sent: AgentForm) -> Reply {
    let id = sent.named("rule", RuleId::parse)?;
    let edition = sent.people.catalog().await?;
    let mut form = sent.form(FormName::Rule(id));
    let Some((rule, meant)) = read_rule(&mut form, &edition.catalog).zip(form.version()) else {
        return sent.again(form).await;
    };
    let replaced = sent.people.replace_rule(sent.owned.clone(), meant, id, &rule).await;
    sent.answer(form, replaced, Notice::RuleSaved).await
}

/// `POST …/rules/{rule}/remove`.
pub(super) async fn remove_rule(sent: AgentForm) -> Reply {
    let id = sent.named("rule", RuleId::parse)?;
    let mut form = sent.form(FormName::Plain);
    let Some(meant) = form.version() else {
        return sent.again(form).await;
    };
    let removed = sent.people.remove_rule(sent.owned.clone(), meant, id).await;
    sent.answer(form, removed, Notice::RuleRemoved).await
}
