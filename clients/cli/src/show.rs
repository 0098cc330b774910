//! The commands that only read.

use crate::args::{Approval, Filter};
use crate::exit::{Exit, Failure};
use crate::output::{Output, table};
use purser_client::{
    AgentRule, ApprovalStatus, CatalogFilter, EnabledService, Operation, PendingApproval, Purser, ServiceDetail,
    ServiceItem,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

/// The maximum number of services that a search reads from the catalog.
const ALL: u16 = 500;

fn print(output: &Output, payload: &impl Serialize, lines: impl FnOnce() -> Vec<String>) -> Exit {
    output.print_result(&serde_json::to_value(payload).unwrap_or_default(), lines);
    Exit::Done
}

pub(crate) async fn whoami(purser: &Purser, output: &Output) -> Result<Exit, Failure> {
    let agent = purser.agent().await?;
    Ok(print(output, &agent, || {
        vec![format!("{}  {}", agent.agent_id, agent.name)]
    }))
}

/// Lists the services of the catalog.
pub(crate) async fn services(purser: &Purser, filter: Filter, output: &Output) -> Result<Exit, Failure> {
    let filter = CatalogFilter {
        category: filter.category,
        limit: filter.limit,
        ..CatalogFilter::default()
    };
    let response = purser.services(&filter).await?;
    Ok(print(output, &response, || service_lines(&response.services)))
}

/// Lists the services that contain all words in the name, description, category or slug.
pub(crate) async fn search(purser: &Purser, query: &[String], output: &Output) -> Result<Exit, Failure> {
    let filter = CatalogFilter {
        limit: Some(ALL),
        ..CatalogFilter::default()
    };
    let message: Vec<String> = query.iter().map(|word| word.to_lowercase()).collect();
    let mut found = purser.services(&filter).await?.services;
    found.retain(|service| {
        let text = [&service.slug, &service.name, &service.description, &service.category];
        let text = text.map(|text| text.to_lowercase()).join(" ");
        message.iter().all(|word| text.contains(word.as_str()))
    });
    let document = json!({"services": found, "count": found.len()});
    Ok(print(output, &document, || service_lines(&found)))
}

fn service_lines(services: &[ServiceItem]) -> Vec<String> {
    let row = |service: &ServiceItem| {
        vec![
            service.slug.clone(),
            service.category.clone(),
            service.trust_status.clone(),
            service.min_price_units.to_string(),
            service.name.clone(),
        ]
    };
    table(
        &["SERVICE", "CATEGORY", "TRUST", "FROM USD", "NAME"],
        &services.iter().map(row).collect::<Vec<_>>(),
    )
}

pub(crate) async fn service(purser: &Purser, service: &str, output: &Output) -> Result<Exit, Failure> {
    let response = purser.service(service).await?;
    Ok(print(output, &response, || detail_lines(&response)))
}

fn detail_lines(service: &ServiceDetail) -> Vec<String> {
    let row = |operation: &Operation| {
        let price = operation
            .payment
            .as_ref()
            .map_or(operation.estimated_price_units, |payment| payment.amount_units);
        vec![
            operation.operation_id.clone(),
            operation.availability.clone(),
            price.to_string(),
            format!("{} {}", operation.method, operation.endpoint),
        ]
    };
    let rows: Vec<_> = service.operations.iter().map(row).collect();
    let mut lines = vec![
        format!(
            "{}  {} ({}, {})",
            service.slug, service.name, service.category, service.trust_status
        ),
        service.description.clone(),
    ];
    lines.extend(table(&["OPERATION", "AVAILABILITY", "USD", "CALL"], &rows));
    lines
}

/// Lists the services that are enabled for the agent.
pub(crate) async fn list_enabled(purser: &Purser, output: &Output) -> Result<Exit, Failure> {
    let agent = purser.agent().await?;
    let response = purser.list_enabled_services(&agent.agent_id).await?;
    // The rules belong to the agent, so every response has the same rules.
    let rules = match response.services.first() {
        Some(service) => {
            purser
                .policy(&agent.agent_id, &service.service_id.to_string())
                .await?
                .rules
        }
        None => Vec::new(),
    };
    let shown = json!({
        "agent_id": response.agent_id, "services": response.services, "count": response.count, "rules": rules,
    });
    Ok(print(output, &shown, || {
        let row = |service: &EnabledService| {
            let id = || service.service_id.to_string();
            vec![
                service.slug.clone().unwrap_or_else(id),
                service
                    .unavailable_reason
                    .clone()
                    .unwrap_or_else(|| "enabled".to_owned()),
                service.policy.max_per_call_units.to_string(),
                service.policy.max_per_day_units.to_string(),
                service.policy.require_approval_above_units.to_string(),
            ]
        };
        let rows: Vec<_> = response.services.iter().map(row).collect();
        let mut lines = table(&["SERVICE", "STATUS", "PER CALL", "PER DAY", "ASK ABOVE"], &rows);
        let more = response
            .services
            .iter()
            .flat_map(other_limit_rows)
            .chain(rules.iter().map(rule_row))
            .collect::<Vec<_>>();
        if !more.is_empty() {
            lines.extend(table(&["LIMIT", ""], &more));
        }
        lines
    }))
}

/// Returns the limits of a service that have no table column, as pairs of name and value.
fn other_limit_rows(service: &EnabledService) -> Vec<Vec<String>> {
    let policy = &service.policy;
    let operations = policy.enabled_operations.as_ref().map(|only| only.join(", "));
    let domains = Some(policy.allowed_domains.join(", ")).filter(|domains| domains != "*");
    let raise = policy.raised_caps.as_ref().map(|raise| {
        let caps = [
            ("per call", raise.max_per_call_units, raise.max_per_call_until),
            ("per day", raise.max_per_day_units, raise.max_per_day_until),
        ];
        let caps = caps.iter().filter_map(|(name, cap, until)| {
            let until = until.unwrap_or(raise.until);
            Some(format!("{name} {} until {until}", cap.as_ref()?))
        });
        caps.collect::<Vec<_>>().join(", ")
    });
    let slug = service.slug.clone().unwrap_or_else(|| service.service_id.to_string());
    let all = [("operations", operations), ("domains", domains), ("raised caps", raise)];
    let rows = all
        .into_iter()
        .filter_map(|(name, limit)| Some(vec![format!("{slug} {name}"), limit?]));
    rows.collect()
}

/// Returns a table row with a rule's kind and fields.
fn rule_row(rule: &AgentRule) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        value => value.to_string(),
    };
    let fields = rule.fields_in_usd();
    let fields = fields.iter().filter(|(_, value)| !value.is_null());
    let fields = fields.map(|(name, value)| format!("{name}: {}", text(value)));
    vec![rule.kind.clone(), fields.collect::<Vec<_>>().join(", ")]
}

/// Lists the newest receipts.
pub(crate) async fn receipts(purser: &Purser, limit: u8, output: &Output) -> Result<Exit, Failure> {
    let agent = purser.agent().await?;
    let response = purser.receipts(&agent.agent_id, limit).await?;
    Ok(print(output, &response, || {
        let rows: Vec<_> = response
            .settlements
            .iter()
            .map(|item| {
                vec![
                    item.authorized_at.format("%Y-%m-%d %H:%M:%S").to_string(),
                    item.receipt_status.as_str().to_owned(),
                    item.amount_units.to_string(),
                    item.operation_id.clone(),
                    item.id.to_string(),
                ]
            })
            .collect();
        table(&["AUTHORIZED (UTC)", "STATUS", "USD", "OPERATION", "RECEIPT"], &rows)
    }))
}

pub(crate) async fn receipt(purser: &Purser, settlement: Uuid, output: &Output) -> Result<Exit, Failure> {
    let response = purser.receipt(settlement).await?;
    Ok(print(output, &response, || {
        members(&serde_json::to_value(&response).unwrap_or_default())
    }))
}

/// Prints the proof of the receipt's statement or the decision's statement.
pub(crate) async fn statement(
    purser: &Purser,
    settlement: Uuid,
    is_decision: bool,
    output: &Output,
) -> Result<Exit, Failure> {
    let response = purser.statements(settlement).await?;
    let found = if is_decision {
        response.decision
    } else {
        response.receipt
    };
    let Some(found) = found else {
        return Err(Failure::Words(
            "the statement is not in the log yet: a decision is stated within about a minute, a receipt after the \
             payment is confirmed"
                .to_owned(),
        ));
    };
    Ok(print(output, &found, || {
        found.proof.lines().map(str::to_owned).collect()
    }))
}

/// Waits for the decision, and then shows the approval.
pub(crate) async fn approval(purser: &Purser, arguments: Approval, output: &Output) -> Result<Exit, Failure> {
    let wait = Duration::from_secs(arguments.wait.into());
    let approval = PendingApproval::verdict(purser, arguments.approval, wait).await?;
    let exit = match approval.status {
        ApprovalStatus::Approved | ApprovalStatus::Executed => Exit::Done,
        ApprovalStatus::Rejected | ApprovalStatus::Expired => Exit::Blocked,
        _ => Exit::ApprovalRequired,
    };
    print(output, &approval, || {
        members(&serde_json::to_value(&approval).unwrap_or_default())
    });
    Ok(exit)
}

/// Formats the fields of an object, one per line.
fn members(object: &Value) -> Vec<String> {
    let rows: Vec<_> = object
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null() && !value.is_object())
        .map(|(name, value)| {
            vec![
                name.clone(),
                value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            ]
        })
        .collect();
    table(&["", ""], &rows).into_iter().skip(1).collect()
}
