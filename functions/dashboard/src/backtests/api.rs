//! JSON API under `/backtests`: tests proposed limits on the recorded decisions of several agents.

use crate::agents::bulk_api::BulkAgent;
use crate::backtests::operations::{BacktestPlan, NewBacktest, TestedAgents};
use crate::caller::Caller;
use crate::preview::api::DifferencesView;
use crate::request::combine_results_and_errors;
use crate::rules::api::RequestedRule;
use crate::services::api::{CandidatePolicyBody, parse_policy_change};
use crate::state::PeopleState;
use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse as _;
use purser_api::{Body, BodyPath, Id, Member, Number, Query, Reply, Schemas, ValidationErrors, endpoint, errors, view};
use purser_domain::{
    Agent, AgentStatus, BacktestId, BacktestRun, Catalog, Duration, ErrorKind, Result, RuleKind, TestedLimits,
    Timestamp, ValidationError,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

purser_api::body! {
    /// The agents whose decisions are tested: at most 200.
    pub(crate) enum BacktestAgents by kind {
        /// The agents whose ids are in `ids`.
        Ids = "ids" {
            ids: Vec<BulkAgent> = {"minItems": 1, "maxItems": BacktestRun::MAX_AGENTS, "uniqueItems": true},
        }
        /// The agents that have the label and are not archived.
        Label = "label" {
            /// `key=value`, or `key` for any value.
            label: purser_domain::LabelFilter,
        }
        /// All agents that are not archived.
        All = "all" {}
    }
}

purser_api::body! {
    /// The limits to test, and the decisions to test them on. If a field is absent, each decision is tested with the
    /// value that it was based on.
    pub(crate) struct BacktestBody {
        agents: BacktestAgents,
        /// The number of days whose decisions are tested. The default is 7.
        days: Option<Number<1, { BacktestRun::MAX_DAYS }>>,
        /// The end of the tested range. The default is the current time.
        to: Option<Timestamp>,
        /// The rules that replace each agent's rules.
        rules: Option<CandidateRules>,
        /// Whether the tested limits include a freeze of the agents.
        frozen: Option<bool>,
        /// Updates to the agents' policies, at most one per service.
        policies: Option<CandidatePolicies>,
    }
}

/// A list of at most `MAX` objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Objects<T, const MAX: usize>(Vec<T>);

pub(crate) type CandidateRules = Objects<RequestedRule, { Agent::MAX_RULES }>;
pub(crate) type CandidatePolicies = Objects<CandidatePolicyBody, 50>;

impl<T: Member, const MAX: usize> Member for Objects<T, MAX> {
    fn read(value: &Value, path: BodyPath<'_>, errors: &mut ValidationErrors) -> Option<Self> {
        let Some(values) = value.as_array().filter(|values| values.len() <= MAX) else {
            errors.add_at(path, format!("must be a list of at most {MAX} objects"));
            return None;
        };
        let read = values.iter().enumerate();
        let read: Vec<Option<T>> = read
            .map(|(index, value)| T::read(value, BodyPath::Entry(&path, index), errors))
            .collect();
        read.into_iter().collect::<Option<_>>().map(Self)
    }

    fn describe(schemas: &mut Schemas) -> Value {
        json!({"type": "array", "items": T::describe(schemas), "maxItems": MAX})
    }
}

/// Parses a backtest that starts at `now`. An unknown service is `service_not_found`.
pub(crate) fn parse_new_backtest(body: &Value, catalog: &Catalog, now: Timestamp) -> Result<NewBacktest> {
    let mut errors = ValidationErrors::default();
    let read = BacktestBody::read(body, BodyPath::Body, &mut errors);
    let new = read.map(|read| {
        let to = read.to.unwrap_or(now);
        let days = read.days.map_or(DEFAULT_DAYS, |days| days.0);
        let from = to.before(Duration::from_secs_u32(days.saturating_mul(86_400)));
        let agents = match read.agents {
            BacktestAgents::Ids { ids } => {
                let ids: Vec<_> = ids.into_iter().map(|id| id.0).collect();
                let distinct: BTreeSet<_> = ids.iter().collect();
                if ids.is_empty() || ids.len() > BacktestRun::MAX_AGENTS || distinct.len() != ids.len() {
                    let message = format!("must be 1 to {} different agents", BacktestRun::MAX_AGENTS);
                    errors.extend([ValidationError::at_path("/agents/ids", message)]);
                }
                TestedAgents::Ids(ids)
            }
            BacktestAgents::Label { label } => TestedAgents::All(Some(label)),
            BacktestAgents::All {} => TestedAgents::All(None),
        };
        let status = read.frozen.map(|frozen| {
            if frozen {
                AgentStatus::Frozen
            } else {
                AgentStatus::Active
            }
        });
        let terms = parse_tested_limits(read.rules, read.policies, catalog, &mut errors);
        terms.map(|terms| NewBacktest {
            agents,
            from,
            to,
            terms: TestedLimits { status, ..terms },
        })
    });
    errors.finish(new)?.ok_or_else(|| ErrorKind::ServiceNotFound.into())
}

pub(crate) fn parse_tested_limits(
    rules: Option<CandidateRules>,
    candidate_policies: Option<CandidatePolicies>,
    catalog: &Catalog,
    errors: &mut ValidationErrors,
) -> Option<TestedLimits> {
    let rules = rules.map(|rules| parse_candidate_rules(rules, catalog, errors));
    let (mut policies, mut is_known) = (BTreeMap::new(), true);
    for (index, policy) in candidate_policies
        .into_iter()
        .flat_map(|Objects(list)| list)
        .enumerate()
    {
        let path = format!("/policies/{index}");
        let Some((service, change)) = parse_policy_change(policy, catalog, &path, errors) else {
            is_known = false;
            continue;
        };
        if policies.insert(service, change).is_some() {
            errors.extend([ValidationError::at_path(format!("{path}/service_id"), "is named twice")]);
        }
    }
    is_known.then_some(TestedLimits {
        rules,
        status: None,
        policies,
    })
}

pub(crate) fn parse_candidate_rules(
    Objects(rules): CandidateRules,
    catalog: &Catalog,
    errors: &mut ValidationErrors,
) -> Vec<RuleKind> {
    let mut kinds: Vec<RuleKind> = Vec::new();
    for (index, rule) in rules.into_iter().enumerate() {
        let Some(kind) = rule.0 else { continue };
        let found = kind.validation_errors(catalog).into_iter();
        errors.extend(
            found.map(|error| ValidationError::at_path(format!("/rules/{index}{}", error.path), error.message)),
        );
        kinds.push(kind);
    }
    let budgets = kinds.iter().filter(|kind| kind.counted_limit().is_some());
    if budgets.count() > Agent::MAX_BUDGETS {
        let message = format!("must have at most {} rules that count payments", Agent::MAX_BUDGETS);
        errors.extend([ValidationError::at_path("/rules", message)]);
    }
    let automatic_freezes = kinds.iter().filter(|kind| matches!(kind, RuleKind::AutomaticFreeze(_)));
    if automatic_freezes.count() > 1 {
        errors.extend([ValidationError::at_path(
            "/rules",
            "must have at most one anomaly brake",
        )]);
    }
    kinds
}

const DEFAULT_DAYS: u32 = 7;

purser_api::views! {
    /// The estimated number of reads of a backtest. No backtest was started.
    pub(crate) struct EstimateView as BacktestEstimate {
        fn new(plan: &BacktestPlan);

        /// The number of agents whose decisions the backtest would test.
        agents: usize = plan.agents.len(),
        /// The number of decisions about the agents' payments on the tested days, from the counters of the decision
        /// history.
        estimated_decisions: u64 = plan.decisions,
        /// The DynamoDB read units that the backtest would use.
        estimated_read_units: u64 = plan.read_units,
    }

    /// A backtest, with the results of the agents that are finished. A backtest is kept for 30 days.
    pub(crate) struct BacktestView {
        fn from(run: BacktestRun);
        let agents = run.agents.len();
        let estimated_read_units = run
            .terms
            .estimated_read_units(run.estimated, u64::try_from(agents).unwrap_or(u64::MAX));

        backtest_id: BacktestId = run.id,
        /// `running` until all agents are finished, then `done`.
        #[schema(value_type = String, example = "done")]
        status: &'static str = if run.next_agent().is_some() { "running" } else { "done" },
        created_at: Timestamp = run.created_at,
        from: Timestamp = run.from,
        to: Timestamp = run.to,
        /// The number of agents whose decisions the backtest tests.
        agents: usize,
        /// The number of agents that the backtest has finished or skipped.
        agents_done: u32 = run.done,
        /// The number of skipped agents. An agent is skipped if the agent cannot be read or has a new owner.
        agents_left_out: u32 = run.left_out,
        /// The number of agents of which only some decisions were tested. A backtest tests at most the oldest 100,000
        /// decisions of an agent, and stops reading an agent's decisions after 30 seconds.
        agents_partial: u32 = run.partial,
        /// The number of decisions about the agents' payments on the tested days, from the counters of the decision
        /// history.
        estimated_decisions: u64 = run.estimated,
        /// The estimated DynamoDB read units of the backtest.
        estimated_read_units: u64,
        /// The number of tested decisions.
        decisions: u64 = run.result.decisions,
        /// The number of decisions that could not be tested. Their recorded results are kept.
        untested: u64 = run.result.untested,
        /// The sum of the authorized payments among the tested decisions, in micro-USDC.
        authorized_units: u64 = run.result.authorized,
        /// The differences if every payment that newly requires approval is rejected. A payment newly requires approval
        /// if only the tested limits require the approval.
        if_declined: DifferencesView = run.result.if_declined.into(),
        /// The differences if every payment that newly requires approval is approved immediately. A payment newly
        /// requires approval if only the tested limits require the approval.
        if_approved: DifferencesView = run.result.if_approved.into(),
    }
}

/// The user's newest backtests.
#[view]
pub(crate) struct BacktestListView {
    /// The backtests, newest first, at most 25.
    backtests: Vec<BacktestView>,
    /// The number of backtests in this response.
    count: usize,
}

/// Start a backtest, which computes what other limits would have decided.
///
/// The backtest starts within a minute and runs in the background. It evaluates the recorded decisions of each agent in
/// turn, and counts payments in windows as the tested limits would have allowed them. Nothing is changed. Poll the
/// backtest until its `status` is `done`.
#[endpoint(
    post "/backtests",
    params(
        ("estimate" = Option<bool>, Query, description = "If true, no backtest is started, and the response estimates how many decisions it would read."),
    ),
    responses(
        (status = 202, body = BacktestView, description = "The started backtest.",
            links(("read" = (operation_id = "read_backtest", parameters(("backtestId" = "$response.body#/backtest_id")))))),
        (status = 200, body = EstimateView, description = "How many decisions the backtest would read. No backtest was started."),
        errors::NotFound, errors::ServiceNotFound,
    )
)]
pub(crate) async fn start_backtest(people: PeopleState, user: Caller, uri: Uri, body: Body<BacktestBody>) -> Reply {
    let edition = people.current_catalog().await?;
    let new = body
        .json()
        .and_then(|body| parse_new_backtest(&body, &edition.catalog, people.now()));
    let mut query = Query::from_uri(&uri);
    let is_estimate = query.parse_with(
        "estimate",
        |text| text.parse::<bool>().ok(),
        "must be `true` or `false`",
    );
    let (new, ()) = combine_results_and_errors(new, query.finish())?;
    if is_estimate.unwrap_or(false) {
        let plan = people.plan_backtest(&user, &new).await?;
        return Ok(Json(EstimateView::new(&plan)).into_response());
    }
    let run = people.start_backtest(&user, new).await?;
    Ok((StatusCode::ACCEPTED, Json(BacktestView::from(run))).into_response())
}

/// List your newest backtests.
#[endpoint(get "/backtests", returns = "Your newest backtests, at most 25.")]
pub(crate) async fn list_backtests(people: PeopleState, user: Caller) -> Reply<Json<BacktestListView>> {
    let runs = people.list_backtests(&user).await?;
    Ok(Json(BacktestListView::from_items(
        runs.into_iter().map(BacktestView::from),
    )))
}

/// Read a backtest's progress and its result so far.
#[endpoint(get "/backtests/{backtestId}", returns = "The backtest.")]
pub(crate) async fn read_backtest(
    people: PeopleState,
    user: Caller,
    Id(id): Id<BacktestId>,
) -> Reply<Json<BacktestView>> {
    let run = people.read_backtest(&user, id).await?;
    Ok(Json(run.into()))
}
