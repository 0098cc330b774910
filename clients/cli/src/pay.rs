//! `purser pay` and `purser check`.

use crate::args::{Call, Pay};
use crate::evidence;
use crate::exit::{Exit, Failure};
use crate::journal::Journal;
use crate::output::Output;
use crate::payment::{as_json, warn_if_not_final};
use purser_client::{
    IdempotencyKey, PayError, Payer, PaymentMade, Purser, ReceiptState, ReceiptStatus, Request, Slug, WaitResult,
};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, Response};
use serde_json::json;
use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

/// The parts of a provider call.
struct ProviderRequest {
    method: Method,
    address: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Vec<u8>,
    target: Option<String>,
}

impl ProviderRequest {
    fn from_call(call: &Call) -> Result<Self, Failure> {
        let body = match call.data.as_deref() {
            None => Vec::new(),
            Some("@-") => read_all("standard input", io::stdin())?,
            Some(data) => match data.strip_prefix('@') {
                Some(path) => read_all(
                    path,
                    File::open(path).map_err(|error| unreadable_input_failure(path, &error))?,
                )?,
                None => data.as_bytes().to_owned(),
            },
        };
        let default = if call.data.is_some() { "POST" } else { "GET" };
        let method = call.method.as_deref().unwrap_or(default).to_uppercase();
        Ok(Self {
            method: method
                .parse()
                .map_err(|_| Failure::Words(format!("{method} is no HTTP method")))?,
            address: call.address.clone(),
            headers: call
                .headers
                .iter()
                .map(|header| parse_header(header))
                .collect::<Result<_, _>>()?,
            body,
            target: call.target.clone(),
        })
    }

    fn request(&self, call: &Call) -> Request {
        let mut request = Request::new(self.method.clone(), &self.address)
            .body(self.body.clone())
            .ceiling(call.max);
        for (name, value) in &self.headers {
            request = request.header(name.clone(), value.clone());
        }
        match &self.target {
            Some(target) => request.target(target),
            None => request,
        }
    }
}

fn parse_header(header: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let wrong = || Failure::Words(format!("a header is `Name: value`, not {header:?}"));
    let (name, value) = header.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    Ok((name, value.trim().parse().map_err(|_| wrong())?))
}

fn read_all(source_name: &str, mut source: impl io::Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    source
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable_input_failure(source_name, &error))?;
    Ok(bytes)
}

fn unreadable_input_failure(source_name: &str, error: &io::Error) -> Failure {
    Failure::Words(format!("{source_name} can't be read: {error}"))
}

/// Calls the provider, pays if the provider requires a payment, and writes the provider's response.
pub(crate) async fn pay(purser: &Purser, arguments: Pay, output: &Output) -> Result<Exit, Failure> {
    let sent = ProviderRequest::from_call(&arguments.call)?;
    let request = sent.request(&arguments.call);
    let (journal, request) = if let Some(key) = &arguments.key {
        let key = IdempotencyKey::from_text(key).map_err(|error| Failure::Words(error.to_string()))?;
        (None, request.key(key))
    } else {
        // The file's name does not depend on the agent, because the agent's key may have been replaced.
        let named = IdempotencyKey::derive("", sent.method.as_str(), &sent.address, &sent.body, 0);
        (Some(Journal::open(&named)?), request)
    };
    let run = journal.as_ref().map_or("", |journal| journal.run.as_str());
    let mut payer = Payer::new(purser.clone(), run, arguments.call.max)?;
    if let Some(percent) = arguments.max_over_listed {
        payer = payer.max_over_listed(percent);
    }
    let paid = match payer.send(request).await {
        Err(PayError::ApprovalRequired(pending)) if arguments.wait > 0 => {
            output.print_text(&format!("Waiting for a person to approve {}.", pending.approval_id()));
            match pending.wait(Duration::from_secs(arguments.wait.into())).await? {
                WaitResult::Approved(_) => pending.proceed(&payer).await,
                _ => Err(PayError::ApprovalRequired(pending)),
            }
        }
        paid => paid,
    };
    let paid = match paid {
        Ok(paid) => paid,
        Err(error) => {
            let is_over = match &error {
                PayError::AlreadyPaid(_) => true,
                PayError::PaymentLapsed { receipt_status, .. } => *receipt_status == ReceiptStatus::Expired,
                // The killed command that left the journal file may have paid.
                PayError::Request(_)
                | PayError::Provider(_)
                | PayError::Terms(_)
                | PayError::Refused { .. }
                | PayError::AboveListed { .. } => journal.as_ref().is_some_and(|journal| journal.is_new),
                _ => false,
            };
            if let (true, Some(journal)) = (is_over, journal) {
                journal.close()?;
            }
            return Err(error.into());
        }
    };
    if paid.payment.is_none()
        && let Err(failure) = check_unpaid_call(&payer, &sent.request(&arguments.call)).await
    {
        if let Some(journal) = journal.filter(|journal| journal.is_new) {
            journal.close()?;
        }
        return Err(failure);
    }
    let status = paid.response.status();
    if let Some(payment) = &paid.payment {
        evidence::store_provider_objects(payment, status, output);
    }
    if let Err(failure) = write_body(paid.response, arguments.output.as_deref()).await {
        return Err(match paid.payment {
            Some(payment) => Failure::AnswerLost {
                failure: Box::new(failure),
                payment: Box::new(payment),
            },
            None => failure,
        });
    }
    if status.is_success() {
        if let Some(payment) = &paid.payment {
            print_payment(payment, output);
        }
        // A leftover journal file stays if this command paid nothing, because the file's payment got no response yet.
        if let Some(journal) = journal.filter(|journal| journal.is_new || paid.payment.is_some()) {
            journal.close()?;
        }
        Ok(Exit::Done)
    } else if let Some(payment) = paid.payment {
        Err(Failure::ProviderStatus {
            status: status.as_u16(),
            payment: Box::new(payment),
        })
    } else {
        if let Some(journal) = journal.filter(|journal| journal.is_new) {
            journal.close()?;
        }
        output.print_text(&format!("The provider answered HTTP {status}, and was not paid."));
        Ok(Exit::Failed)
    }
}

/// Writes the provider's response while it arrives.
async fn write_body(mut response: Response, file: Option<&std::path::Path>) -> Result<(), Failure> {
    let message = file.map_or_else(|| "standard output".to_owned(), |file| file.display().to_string());
    let failed = |source| Failure::Output {
        what: message.clone(),
        source,
    };
    let mut to: Box<dyn Write> = match file {
        Some(file) => Box::new(File::create(file).map_err(failed)?),
        None => Box::new(io::stdout()),
    };
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| failed(io::Error::other(error.without_url())))?
    {
        to.write_all(&chunk).map_err(failed)?;
    }
    to.flush().map_err(failed)
}

/// Prints the payment to standard error.
fn print_payment(payment: &PaymentMade, output: &Output) {
    let verb = match payment.receipt {
        ReceiptState::Confirmed(_) => "Paid",
        _ => "Sent",
    };
    let status = payment.receipt.as_str();
    output.print_note(
        &as_json(payment),
        &format!(
            "{verb} {} USD to {}, {status}: receipt {}.",
            payment.amount, payment.pay_to, payment.settlement_id
        ),
    );
    for warning in &payment.warnings {
        output.print_text(&format!("Warning: {}.", warning.message));
    }
    if let Some(listed) = payment.listed {
        output.print_text(&format!(
            "The catalog lists {listed} USD for this call: the provider asked for more."
        ));
    }
    if let Some(warning) = warn_if_not_final(payment) {
        output.print_text(&warning);
    }
}

/// Returns an error if Purser rejects an unpaid call to an operation of the catalog.
async fn check_unpaid_call(payer: &Payer, request: &Request) -> Result<(), Failure> {
    match payer.check_unpaid(request).await {
        Err(PayError::Refused { refusal: rejection }) if rejection.slug == Slug::ServiceNotFound => Ok(()),
        judged => Ok(judged.map(|_| ())?),
    }
}

/// Calls the provider without paying, and prints the decision that Purser would make.
pub(crate) async fn check(purser: &Purser, call: Call, output: &Output) -> Result<Exit, Failure> {
    let sent = ProviderRequest::from_call(&call)?;
    let payer = Payer::new(purser.clone(), "", call.max)?;
    let request = sent.request(&call);
    let Some(result) = payer.check(&request).await? else {
        check_unpaid_call(&payer, &request).await?;
        output.print_result(&json!({"payment_required": false}), || {
            vec!["The provider asks for no payment.".to_owned()]
        });
        return Ok(Exit::Done);
    };
    let document = serde_json::to_value(&result).unwrap_or_default();
    let listed = result
        .listed_amount_units
        .map_or_else(String::new, |listed| format!("; the catalog lists {listed}"));
    output.print_result(&document, || {
        vec![
            format!(
                "{}: {} ({} USD{listed})",
                result.result, result.reason, result.amount_units
            ),
            format!(
                "Left today for this service: {} USD",
                result.spend.remaining_today_units
            ),
        ]
    });
    Ok(match (result.would_authorize, result.approval_required) {
        (true, _) => Exit::Done,
        (false, true) => Exit::ApprovalRequired,
        (false, false) => Exit::Blocked,
    })
}
