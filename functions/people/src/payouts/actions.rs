//! Handlers for the withdrawal forms.

use crate::agents::form::AgentForm;
use crate::ui::form::FormName;
use crate::ui::notice::{Notice, done};
use crate::ui::paths;
use purser_api::Reply;
use purser_domain::Submission;

/// Handles `POST …/payout-address`: sets the withdrawal address.
pub(crate) async fn name_address(sent: AgentForm) -> Reply {
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

/// Handles `POST …/payout-address/remove`: removes the withdrawal address.
pub(crate) async fn remove_address(sent: AgentForm) -> Reply {
    sent.people.remove_payout_address(&sent.owned, sent.caller).await?;
    Ok(done(&paths::agent(sent.owned.agent().id), Notice::PayoutAddressRemoved))
}

/// Handles `POST …/payouts`: withdraws money to the withdrawal address. The form contains an idempotency key, so
/// submitting the form twice makes only one withdrawal.
pub(crate) async fn pay_out(sent: AgentForm) -> Reply {
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
        Err(error) => sent.reject(form, error).await,
    }
}
