//! The users' commands for policies in a file. `apply` shows a preview before it writes.
//!
//! Each write is conditional on the version that was read, and the first rejected write stops the command. The command
//! can be repeated.

use crate::args::{Consent, Policy as Command};
use crate::catalog::read_text;
use crate::entry::Change;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::person::{Person, Write as Request};
use crate::policy_file::{Document, Key, Limits, Policy, Selector, parse};
use crate::policy_plan::{Agent, Edit, Plan, State, Write, plan, policies_for_agent, service_name, unknown_agents};
use crate::rule::{RuleEdit, rule_without_usage};
use purser_client::ApiError;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The maximum size of a file. An export of 1,000 agents that all differ has 3 MB.
const MAX_MEBIBYTES: u32 = 16;

pub(crate) async fn run(user: &Person, command: Command, output: &Output) -> Result<Exit, Failure> {
    match command {
        Command::Export { agents } => export(user, &agents, output).await,
        Command::Apply { file, reason, consent } => apply(user, (&file, reason.as_deref()), &consent, output).await,
    }
}

async fn agents(user: &Person) -> Result<Vec<Agent>, Failure> {
    let answers = user.agents().await?;
    let agents: Option<Vec<Agent>> = answers.iter().map(Agent::from_json).collect();
    agents.ok_or_else(|| ApiError::Unreadable("its list of agents").into())
}

/// Prints the current state as a policy file. Agents with equal services and rules share one policy.
async fn export(user: &Person, selection: &[String], output: &Output) -> Result<Exit, Failure> {
    let mut agents = agents(user).await?;
    let is_named = |agent: &Agent, name: &String| agent.id.eq_ignore_ascii_case(name) || agent.name == *name;
    let unknown = selection
        .iter()
        .filter(|name| !agents.iter().any(|agent| is_named(agent, name)));
    let errors: Vec<String> = unknown.cloned().collect();
    if !errors.is_empty() {
        let message = "there are no such agents, and none is exported".to_owned();
        return Err(Failure::Problems {
            what: message,
            problems: errors,
        });
    }
    agents.retain(|agent| selection.is_empty() || selection.iter().any(|name| is_named(agent, name)));
    let mut policies: Vec<Policy> = Vec::new();
    let mut same: BTreeMap<String, usize> = BTreeMap::new();
    for agent in agents {
        let services = user.services(&agent.id).await?;
        let (_, rules) = user.rules(&agent.id).await?;
        let policy = agent_policy(agent, &services, &rules);
        let state = json!([policy.services, policy.rules]).to_string();
        let at = *same.entry(state).or_insert(policies.len());
        match (policies.get_mut(at).map(|other| &mut other.agents), policy.agents) {
            (Some(Selector::Ids(ids)), Selector::Ids(more)) => ids.extend(more),
            (_, agents) => policies.push(Policy { agents, ..policy }),
        }
    }
    let mut names = BTreeSet::new();
    for policy in &mut policies {
        if let Selector::Ids(ids) = &policy.agents {
            // Agents with the same name are distinguished by their ids.
            let id = ids.first().cloned().unwrap_or_default();
            if !names.insert(policy.name.clone()) {
                policy.name = format!("{} ({id})", policy.name);
            }
        }
    }
    let document = Document::new(&policies);
    let json = serde_json::to_value(&document).unwrap_or_default();
    let text = serde_yaml_ng::to_string(&document).map_err(|error| Failure::Words(error.to_string()))?;
    output.print_result(&json, || text.lines().map(str::to_owned).collect());
    Ok(Exit::Done)
}

/// Returns the policy that describes an agent's state.
fn agent_policy(agent: Agent, services: &[Value], rules: &[Value]) -> Policy {
    let limits = |record: &Value| {
        let stored = record.get("policy").and_then(Value::as_object);
        let mut limits: Limits = stored.cloned().unwrap_or_default();
        limits.insert("enabled".to_owned(), record.get("enabled").cloned().unwrap_or_default());
        limits
    };
    let services = services.iter();
    Policy {
        name: agent.name,
        agents: Selector::Ids([agent.id].into()),
        services: services
            .map(|record| (Key::Service(service_name(record).to_owned()), limits(record)))
            .collect(),
        rules: Some(rules.iter().map(rule_without_usage).collect()),
    }
}

struct Differing {
    agent: Agent,
    /// The names of the policies that the agent follows.
    policies: Vec<String>,
    edits: Vec<Edit>,
    /// All rules that the policies require. `None` if no policy has rules.
    rules: Option<Vec<Value>>,
    /// Purser's findings about the agent's limits after all updates. `None` if Purser can't compute them.
    findings: Option<Vec<Value>>,
    /// The agent's version. Zero if no policy has rules for the agent.
    version: u64,
    /// The number of updates that are already written.
    written: usize,
    /// The error for the first update that is not written.
    error: Option<Value>,
}

async fn apply(
    user: &Person,
    (file, reason): (&Path, Option<&str>),
    consent: &Consent,
    output: &Output,
) -> Result<Exit, Failure> {
    let wrong = |errors: Vec<String>| Failure::Problems {
        what: format!("nothing is changed, for {} can't be applied", file.display()),
        problems: errors,
    };
    let policies = read_text(file, MAX_MEBIBYTES).map_err(|error| wrong(vec![error]))?;
    let policies = parse(&policies).map_err(wrong)?;
    let agents = agents(user).await?;
    let mut errors: BTreeSet<String> = unknown_agents(&policies, &agents).into_iter().collect();
    let (mut differing, mut matched, mut overrides) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
    for agent in agents {
        let followed = policies_for_agent(&agent, &policies);
        if followed.is_empty() {
            continue;
        }
        let state = read_agent_state(user, &agent, &followed).await?;
        let plan: Plan = plan(&followed, &state);
        matched.extend(plan.matched);
        matched.extend(followed.iter().map(|policy| (policy.name.clone(), String::new())));
        errors.extend(plan.problems);
        for (pair, at) in plan.overrides {
            let (all, agents): &mut (BTreeSet<String>, usize) = overrides.entry(pair).or_default();
            all.extend(at);
            *agents = agents.saturating_add(1);
        }
        if !plan.edits.is_empty() {
            differing.push(Differing {
                policies: followed.iter().map(|policy| policy.name.clone()).collect(),
                agent,
                edits: plan.edits,
                rules: plan.rules,
                findings: None,
                version: state.rules.map_or(0, |(version, _)| version),
                written: 0,
                error: None,
            });
        }
    }
    errors.extend(preview(user, &mut differing).await?);
    if !errors.is_empty() {
        return Err(wrong(errors.into_iter().collect()));
    }
    let notes = notes(&policies, &matched);
    show_differences(output, &differing, &overrides, &notes);
    let differences = differing.iter().map(|difference| difference.edits.len()).sum();
    let is_allowed = differences > 0 && consent.is_given(&format!("Write {differences} edits?"))?;
    let mut refused = None;
    if is_allowed {
        for difference in &mut differing {
            if let Err(failure) = write(user, difference, reason).await {
                difference.error = Some(failure.as_json());
                refused = Some(failure);
                break;
            }
        }
    }
    let written: usize = differing.iter().map(|difference| difference.written).sum();
    let overrides: Vec<Value> = overrides
        .iter()
        .map(|((by, of), (at, agents))| json!({"by": by, "of": of, "at": at, "agents": agents}))
        .collect();
    let document = json!({
        "agents": differing.iter().map(as_json).collect::<Vec<_>>(), "overrides": overrides, "notes": notes,
        "differences": differences, "written": written,
    });
    output.print_result(&document, || {
        vec![match (differences, is_allowed) {
            (0, _) => "No difference.".to_owned(),
            (_, false) => format!("{differences} edits are to be made; nothing is written."),
            (_, true) => format!("{written} of {differences} edits are written."),
        }]
    });
    match refused {
        Some(failure) => Err(partial_failure(&failure, &differing, written, differences)),
        None if consent.dry_run && differences > 0 => Ok(Exit::Different),
        None => Ok(Exit::Done),
    }
}

/// Reads the parts of the agent's state that the policies concern.
async fn read_agent_state(user: &Person, agent: &Agent, policies: &[&Policy]) -> Result<State, Failure> {
    let has_services = policies.iter().any(|policy| !policy.services.is_empty());
    let has_rules = policies.iter().any(|policy| policy.rules.is_some());
    let services = if has_services {
        user.services(&agent.id).await?
    } else {
        vec![]
    };
    let rules = if has_rules {
        Some(user.rules(&agent.id).await?)
    } else {
        None
    };
    Ok(State { services, rules })
}

/// Returns notes about policies without agents, and about service keys that match no service.
fn notes(policies: &[Policy], matched_pairs: &BTreeSet<(String, String)>) -> Vec<String> {
    let mut notes = Vec::new();
    for policy in policies {
        let is_matched = |key: String| matched_pairs.contains(&(policy.name.clone(), key));
        if !is_matched(String::new()) {
            notes.push(format!("{}: no agent follows this policy", policy.name));
            continue;
        }
        let keys = policy.services.keys().map(ToString::to_string);
        let of_none = keys.filter(|key| !is_matched(key.clone()));
        notes.extend(of_none.map(|key| format!("{}: {key} names no service of its agents", policy.name)));
    }
    notes
}

/// Maps an overriding and an overridden policy to the affected services and the number of agents.
type Overrides = BTreeMap<(String, String), (BTreeSet<String>, usize)>;

/// Shows the updates to the user before they are written.
fn show_differences(output: &Output, differences: &[Differing], overrides: &Overrides, notes: &[String]) {
    for ((by, of), (at, agents)) in overrides {
        let at = at.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        output.print_text(&format!("{by} overrides {of} for {agents} agents: {at}"));
    }
    for note in notes {
        output.print_text(note);
    }
    for Differing {
        agent,
        policies,
        edits,
        findings,
        ..
    } in differences
    {
        output.print_text(&format!("{} ({}) by {}", agent.name, agent.id, policies.join(", ")));
        for edit in edits {
            let widens = if edit.may_widen { "  (may widen)" } else { "" };
            for change in &edit.changes {
                output.print_text(&format!("  {change}{widens}"));
            }
            if let Some(count) = edit.preview.as_ref().map(count_changed_decisions) {
                output.print_text(&format!(
                    "    {count} decisions of the last 7 days would have another result"
                ));
            }
        }
        if findings.is_none() {
            output.print_text("  findings about the rules are not available");
        }
        for finding in findings.iter().flatten() {
            let text = |name: &str| finding.get(name).and_then(Value::as_str).unwrap_or_default();
            let subject = finding.get("rule").filter(|rule| !rule.is_null());
            let subject = subject.map_or_else(|| format!("service {}", text("service_id")), Value::to_string);
            let other = finding.get("other_rule").filter(|rule| !rule.is_null());
            let other = other.map(|rule| format!(": {rule}")).unwrap_or_default();
            output.print_text(&format!("  {}: {subject}: {}{other}", text("finding"), text("message")));
        }
    }
}

fn as_json(difference: &Differing) -> Value {
    let edits = difference.edits.iter().enumerate().map(|(index, edit)| {
        let is_refused = index == difference.written;
        let changes: Vec<Value> = edit.changes.iter().map(Change::as_json).collect();
        let mut result = json!({
            "at": edit.at, "by": edit.by, "may_widen": edit.may_widen, "changes": changes,
            "written": index < difference.written,
        });
        if let (Some(preview), Value::Object(result)) = (&edit.preview, &mut result) {
            result.insert("preview".to_owned(), preview.clone());
        }
        if let (Some(error), Value::Object(result)) = (difference.error.as_ref().filter(|_| is_refused), &mut result) {
            result.insert("error".to_owned(), error.clone());
        }
        result
    });
    json!({
        "agent_id": difference.agent.id, "name": difference.agent.name, "policies": difference.policies,
        "edits": edits.collect::<Vec<_>>(), "findings": difference.findings,
    })
}

/// Requests previews and findings for the updates. Returns the updates that Purser rejects as invalid.
///
/// Other error responses are ignored here, because the write returns them again.
async fn preview(user: &Person, differences: &mut [Differing]) -> Result<Vec<String>, Failure> {
    let (mut distinct, mut errors) = (BTreeSet::new(), Vec::new());
    for difference in differences {
        let name = format!("{} ({})", difference.agent.name, difference.agent.id);
        for edit in &mut difference.edits {
            if !distinct.insert((edit.at.clone(), edit.write.body().map(Value::to_string))) {
                continue;
            }
            let (path, request) = request(&difference.agent.id, difference.version, &edit.write);
            match user.preview(Request { path: &path, ..request }).await {
                Ok(preview) => edit.preview = Some(preview),
                Err(Failure::Api(ApiError::Refused(rejection))) if rejection.status == 400 => {
                    let failure = Failure::from(ApiError::Refused(rejection));
                    errors.push(format!("{name}: {}: {failure}", edit.at));
                    errors.extend(failure.lines());
                }
                Err(Failure::Api(ApiError::Refused(_))) => {}
                Err(failure) => return Err(failure),
            }
        }
        let limits = limits_after(difference);
        if let Some(limits) = limits.filter(|_| errors.is_empty()) {
            let request = Request {
                method: Method::PUT,
                path: &["agents", &difference.agent.id, "shadow"],
                over: difference.version,
                body: Some(&limits),
                reason: None,
            };
            match user.preview(request).await {
                Ok(preview) => {
                    difference.findings = preview.get("findings").and_then(Value::as_array).cloned();
                }
                Err(Failure::Api(ApiError::Refused(_))) => {}
                Err(failure) => return Err(failure),
            }
        }
    }
    Ok(errors)
}

/// The maximum number of policies in a shadow policy.
const MAX_POLICIES: usize = 50;

/// Returns an agent's limits after the updates, or `None` if more than [`MAX_POLICIES`] policies change.
fn limits_after(difference: &Differing) -> Option<Value> {
    let policies = difference.edits.iter().filter_map(|edit| {
        let (body, (field, value)) = match &edit.write {
            Write::Enable(body) => (body, ("enabled", Value::Bool(true))),
            Write::Edit { service, body, .. } => (body, ("service_id", json!(service))),
            Write::Rule(_) => return None,
        };
        let mut body = body.as_object()?.clone();
        body.insert(field.to_owned(), value);
        Some(Value::Object(body))
    });
    let policies: Vec<Value> = policies.collect();
    (policies.len() <= MAX_POLICIES).then(|| json!({"rules": difference.rules, "policies": policies}))
}

/// Counts the recorded decisions that would have a different result with the updated limits.
fn count_changed_decisions(preview: &Value) -> u64 {
    let changed_decisions = preview.pointer("/if_declined/flips").and_then(Value::as_array);
    let counts = changed_decisions
        .into_iter()
        .flatten()
        .filter_map(|changed_decision| changed_decision.get("count")?.as_u64());
    counts.fold(0, u64::saturating_add)
}

/// Returns the request that writes an update. `version` is the agent's version.
fn request<'a>(agent: &'a str, version: u64, write: &'a Write) -> (Vec<&'a str>, Request<'a>) {
    let (method, path, over) = match write {
        Write::Enable(_) => (Method::POST, vec!["services"], 0),
        Write::Edit { service, over, .. } => (Method::PATCH, vec!["services", service], *over),
        Write::Rule(RuleEdit::Add { .. }) => (Method::POST, vec!["rules"], version),
        Write::Rule(RuleEdit::Replace { id, .. }) => (Method::PUT, vec!["rules", id], version),
        Write::Rule(RuleEdit::Remove { id, .. }) => (Method::DELETE, vec!["rules", id], version),
    };
    let request = Request {
        method,
        path: &[],
        over,
        body: write.body(),
        reason: None,
    };
    ([vec!["agents", agent], path].concat(), request)
}

/// Writes the updates of one agent in order, and stops at the first error.
async fn write(user: &Person, difference: &mut Differing, reason: Option<&str>) -> Result<(), Failure> {
    for edit in &difference.edits {
        let (path, request) = request(&difference.agent.id, difference.version, &edit.write);
        let path = &path;
        let version = user
            .write(Request {
                path,
                reason,
                ..request
            })
            .await?;
        if matches!(edit.write, Write::Rule(_)) {
            difference.version = version;
        }
        difference.written = difference.written.saturating_add(1);
    }
    Ok(())
}

/// Returns the error for a command that stopped at a rejected update, with the written and the remaining updates.
fn partial_failure(failure: &Failure, agents: &[Differing], written_count: usize, differences: usize) -> Failure {
    let mut errors = Vec::new();
    let named = |difference: &Differing| format!("{} ({})", difference.agent.name, difference.agent.id);
    let places = |edits: &[Edit]| {
        let places = edits.iter().map(|edit| edit.at.as_str());
        places.collect::<Vec<_>>().join(", ")
    };
    for difference in agents {
        let done = difference.edits.get(..difference.written).unwrap_or_default();
        let remaining = difference.edits.get(difference.written..).unwrap_or_default();
        if !done.is_empty() {
            errors.push(format!("written: {}: {}", named(difference), places(done)));
        }
        if difference.error.is_some() {
            let at = remaining.first().map(|edit| edit.at.as_str()).unwrap_or_default();
            let message = if matches!(failure, Failure::Api(ApiError::Refused(_))) {
                "refused"
            } else {
                "not known whether it is written"
            };
            errors.push(format!("{message}: {}: {at}: {failure}", named(difference)));
            errors.extend(failure.lines());
            let rest = remaining.get(1..).unwrap_or_default();
            if !rest.is_empty() {
                errors.push(format!("not written: {}: {}", named(difference), places(rest)));
            }
        } else if !remaining.is_empty() {
            errors.push(format!("not written: {}: {}", named(difference), places(remaining)));
        }
    }
    let message = format!("{written_count} of {differences} edits are written; the first refusal stopped the command");
    Failure::Problems {
        what: message,
        problems: errors,
    }
}
