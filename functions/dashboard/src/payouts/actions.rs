//! The withdrawal forms.

use crate::agents::form::AgentForm;
use crate::ui::form::FormName;
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::ui::paths;
use purser_api::Reply;
use purser_domain::Submission;

pub(crate) async fn submit_withdrawal_address(request: AgentForm) -> Reply {
    let mut form = request.parse_posted_form(FormName::PayoutAddress);
    let Some(address) = form.parse_address() else {
        return request.show_form_again(form).await;
    };
    let named = request
        .people
        .set_withdrawal_address(&request.owned, request.caller.clone(), address);
    let named = named.await;
    request
        .respond_to_form(form, named, PageMessage::PayoutAddressNamed)
        .await
}

pub(crate) async fn submit_address_removal(form: AgentForm) -> Reply {
    form.people.remove_withdrawal_address(&form.owned, form.caller).await?;
    Ok(redirect_with_notice(
        &paths::agent_path(form.owned.agent().id),
        PageMessage::PayoutAddressRemoved,
    ))
}

/// Withdraws to the withdrawal address. The form's idempotency key prevents a second withdrawal.
pub(crate) async fn submit_withdrawal(request: AgentForm) -> Reply {
    let mut form = request.parse_posted_form(FormName::PayOut);
    let amount = form.parse_withdrawal_amount();
    let is_confirmed = form.require_checked("confirmed", "Compare the address and check the box.");
    let key = form.field_text("idempotency_key").to_owned();
    if key.is_empty() || key.len() > 255 {
        form.add_error("", "The form is incomplete. Reload the page.");
    }
    let Some(amount) = amount.filter(|_| is_confirmed && !form.has_errors()) else {
        return request.show_form_again(form).await;
    };
    match request
        .people
        .withdraw_to_owner(&request.owned, request.caller.clone(), amount, &key)
        .await
    {
        Ok(paid) => {
            let message = match paid.submission {
                Some(Submission::Accepted) => PageMessage::PaidOut,
                None => PageMessage::PaidOutBefore,
                Some(Submission::Refused | Submission::Unanswered) => PageMessage::PayoutUnanswered,
            };
            Ok(redirect_with_notice(
                &paths::receipt_path(request.owned.agent().id, paid.settlement.id()),
                message,
            ))
        }
        Err(error) => request.show_rejected_form(form, error).await,
    }
}
