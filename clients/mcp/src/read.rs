//! The tools that call no provider.

use crate::address::path_parameters;
use crate::answers::{
    ApprovalAnswer, Enabled, EnabledAnswer, FoundService, FoundServices, OperationAnswer, OperationText, ReceiptAnswer,
    ReceiptLine, Receipts, ServiceAnswer, ServiceText,
};
use crate::arguments::{FindServices, GetApproval, GetReceipt, GetService, ListEnabled, ListReceipts, RequestRaise};
use crate::call_limit::CallLimit;
use crate::failure::Failure;
use crate::text::{LONG, NOTICE, SHORT, clean_data, describe_parameters};
use futures_util::{StreamExt as _, stream};
use purser_client::{
    CatalogFilter, EnabledService, Operation, PendingApproval, Purser, RaiseRequest, ServiceDetail, ServiceItem,
    ServicePolicy, Spend,
};
use std::time::Duration;

/// The maximum number of services that Purser returns in one list.
const ALL: u16 = 500;
/// The maximum number of services that are returned with their spend, because each needs a request to Purser.
const WITH_SPEND: usize = 10;
/// The number of spend requests that run concurrently.
const MAX_CONCURRENT: usize = 5;
/// The maximum number of services in a result, and of operations per service.
const MAX: usize = 100;

pub(crate) async fn find_services(purser: &Purser, request: FindServices) -> Result<FoundServices, Failure> {
    let filter = CatalogFilter {
        category: request.category.map(|category| category.0),
        limit: Some(ALL),
        ..CatalogFilter::default()
    };
    let text = request.text.to_lowercase();
    let message: Vec<&str> = text.split_whitespace().collect();
    let services = purser.services(&filter).await?.services;
    let mut found_by: Vec<(usize, &ServiceItem)> = services
        .iter()
        .filter(|service| request.max_usd.is_none_or(|max| service.min_price_units <= max.0))
        .map(|service| (count_matching_words(service, &message), service))
        .filter(|(count, _)| message.is_empty() || *count > 0)
        .collect();
    // The stable sort keeps the catalog's order for equal numbers of words.
    found_by.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let limit = request.limit.map_or(20, |limit| limit.0);
    Ok(FoundServices {
        found: found_by.len(),
        services: found_by
            .iter()
            .take(limit.into())
            .map(|(_, service)| service_summary(service))
            .collect(),
        notice: NOTICE,
    })
}

/// Counts the words that occur in a service's text. Words of one or two letters must match a whole word.
fn count_matching_words(service: &ServiceItem, words: &[&str]) -> usize {
    let text = [&service.slug, &service.name, &service.description, &service.category];
    let text = text.map(|text| text.to_lowercase()).join(" ");
    let stands_alone = |word: &str| {
        text.split(|letter: char| !letter.is_alphanumeric())
            .any(|part| part == word)
    };
    let is_in = |word: &str| match word.chars().count() {
        0..=2 => stands_alone(word),
        _ => text.contains(word),
    };
    words.iter().filter(|word| is_in(word)).count()
}

fn service_summary(service: &ServiceItem) -> FoundService {
    FoundService {
        service: clean_data(&service.slug, SHORT),
        category: clean_data(&service.category, SHORT),
        trust_status: clean_data(&service.trust_status, SHORT),
        min_price_usd: service.min_price_units.to_string(),
        paid_operations: service.paid_operation_count,
        provider_text: ServiceText {
            name: clean_data(&service.name, SHORT),
            description: clean_data(&service.description, LONG),
        },
    }
}

/// Reads a service. Returns an error for a text that cannot be a path segment.
pub(crate) async fn read_service(purser: &Purser, service: &str) -> Result<ServiceDetail, Failure> {
    if matches!(service, "" | "." | "..") {
        return Err(Failure::new(
            "service_not_found",
            "no service in the catalog matches this request",
            "Call one that find_services names.",
        ));
    }
    Ok(purser.service(service).await?)
}

pub(crate) async fn get_service(purser: &Purser, request: GetService) -> Result<ServiceAnswer, Failure> {
    let service = read_service(purser, &request.service).await?;
    Ok(ServiceAnswer {
        service: clean_data(&service.slug, SHORT),
        category: clean_data(&service.category, SHORT),
        trust_status: clean_data(&service.trust_status, SHORT),
        operations: service.operations.iter().take(MAX).map(operation_result).collect(),
        provider_text: ServiceText {
            name: clean_data(&service.name, SHORT),
            description: clean_data(&service.description, LONG),
        },
        notice: NOTICE,
    })
}

fn operation_result(operation: &Operation) -> OperationAnswer {
    let payment = operation.payment.as_ref();
    let price = payment.map_or(operation.estimated_price_units, |payment| payment.amount_units);
    OperationAnswer {
        operation: clean_data(&operation.operation_id, SHORT),
        method: clean_data(&operation.method, SHORT),
        payable: payment.is_some(),
        price_usd: price.to_string(),
        max_price_usd: operation.max_price_units.map(|max| max.to_string()),
        path_parameters: path_parameters(&operation.endpoint),
        provider_text: OperationText {
            label: clean_data(&operation.label, SHORT),
            params: describe_parameters(&operation.params),
        },
    }
}

pub(crate) async fn list_enabled(purser: &Purser, request: ListEnabled) -> Result<Enabled, Failure> {
    let agent_id = purser.agent().await?.agent_id;
    let mut services = purser.list_enabled_services(&agent_id).await?.services;
    if let Some(service) = request.service.as_ref().filter(|service| !service.is_empty()) {
        services.retain(|known| known.slug.as_ref() == Some(service) || known.service_id.to_string() == *service);
        if services.is_empty() {
            return Err(Failure::new(
                "service_not_enabled",
                "this agent does not have such a service",
                "Ask the agent's owner to enable it, or call what list_enabled names without arguments.",
            ));
        }
    }
    services.truncate(MAX);
    let ids: Vec<String> = services
        .iter()
        .take(WITH_SPEND)
        .map(|service| service.service_id.to_string())
        .collect();
    let policies: Vec<Option<ServicePolicy>> = stream::iter(ids)
        .map(|id| {
            let (purser, agent_id) = (purser.clone(), agent_id.clone());
            async move { purser.policy(&agent_id, &id).await }
        })
        .buffered(MAX_CONCURRENT)
        .map(Result::ok)
        .collect()
        .await;
    let policy = policies.iter().flatten().next();
    let (budgets, rules) = policy.map(|policy| (&policy.spend.budgets, &policy.rules)).unzip();
    Ok(Enabled {
        budgets: budgets.into_iter().flatten().map(Into::into).collect(),
        rules: rules.into_iter().flatten().map(Into::into).collect(),
        services: services
            .iter()
            .zip(policies.iter().map(Option::as_ref).chain(std::iter::repeat(None)))
            .map(|(service, policy)| enabled_answer(service, policy.map(|policy| &policy.spend)))
            .collect(),
        agent_id,
    })
}

fn enabled_answer(service: &EnabledService, spend: Option<&Spend>) -> EnabledAnswer {
    let policy = &service.policy;
    let short = |text: &String| clean_data(text, SHORT);
    EnabledAnswer {
        service: service
            .slug
            .as_ref()
            .map_or_else(|| service.service_id.to_string(), short),
        enabled: service.enabled,
        unavailable_reason: service.unavailable_reason.as_ref().map(short),
        max_per_call_usd: policy.max_per_call_units.to_string(),
        max_per_day_usd: policy.max_per_day_units.to_string(),
        ask_a_person_above_usd: policy.require_approval_above_units.to_string(),
        operations: policy
            .enabled_operations
            .as_ref()
            .map(|operations| operations.iter().take(MAX).map(short).collect()),
        raise: policy.raised_caps.as_ref().map(Into::into),
        allowed_domains: policy.allowed_domains.iter().take(MAX).map(short).collect(),
        spent_today_usd: spend.map(|spend| spend.spend_today_units.to_string()),
        left_today_usd: spend.map(|spend| spend.remaining_today_units.to_string()),
    }
}

pub(crate) async fn get_approval(
    purser: &Purser,
    calls: Option<&CallLimit>,
    arguments: GetApproval,
) -> Result<ApprovalAnswer, Failure> {
    let wait = Duration::from_secs(arguments.wait_seconds.map_or(0, |seconds| seconds.0).into());
    let verdict = async { Ok::<_, Failure>(PendingApproval::verdict(purser, arguments.approval_id.0, wait).await?) };
    let approval = match calls {
        // A waiting call occupies the server, so the limit of concurrent calls applies.
        Some(calls) if !wait.is_zero() => calls.run_within_limit(None, verdict).await?,
        _ => verdict.await?,
    };
    Ok((&approval).into())
}

pub(crate) async fn request_raise(purser: &Purser, arguments: RequestRaise) -> Result<ApprovalAnswer, Failure> {
    let request = RaiseRequest {
        transaction_id: arguments.transaction_id.0,
        max_per_call_units: arguments.max_per_call_usd.map(|usd| usd.0),
        max_per_day_units: arguments.max_per_day_usd.map(|usd| usd.0),
        until: arguments.until.0,
        reason: &arguments.reason,
    };
    Ok((&purser.ask_for_raise(&request).await?).into())
}

pub(crate) async fn list_receipts(purser: &Purser, request: ListReceipts) -> Result<Receipts, Failure> {
    let agent_id = purser.agent().await?.agent_id;
    let limit = request.limit.map_or(20, |limit| limit.0);
    let receipts = purser.receipts(&agent_id, limit).await?.settlements;
    Ok(Receipts {
        receipts: receipts.iter().map(ReceiptLine::from).collect(),
    })
}

pub(crate) async fn get_receipt(purser: &Purser, request: GetReceipt) -> Result<ReceiptAnswer, Failure> {
    Ok(ReceiptAnswer::from(&purser.receipt(request.settlement_id.0).await?))
}
