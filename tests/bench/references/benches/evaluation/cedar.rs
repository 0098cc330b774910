//! The checks as Cedar policies. Checks for all agents are written once, over the attributes of the agent and of the
//! enabled service; each rule of the agent is a separate policy.

use cedar_policy::{
    Authorizer, Context, Decision, Entities, EntityUid, Policy, PolicyId, PolicySet, Request, Response,
};
use purser_bench::Case;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The forbidden requests, by the name of the check. Services that are not enabled have no attributes.
const FORBIDDEN: [(&str, &str); 12] = [
    ("service_enabled", r#"!(resource has max_per_call)"#),
    ("agent_active", r#"principal.status != "active""#),
    (
        "enabled_operations",
        "resource has operations && !resource.operations.contains(context.operation)",
    ),
    (
        "allowed_domains",
        "context.fetches && resource has domains && !resource.domains.containsAny(context.hosts)",
    ),
    ("max_payment_units", "context.amount > context.max_payment"),
    (
        "max_per_call_units",
        "resource has max_per_call && context.amount > resource.max_per_call",
    ),
    ("vendor_allowlist:payee", "!context.payees.contains(context.pay_to)"),
    ("vendor_allowlist:self", "context.pay_to == principal.wallet"),
    ("vendor_allowlist:price", "context.amount > context.max_price"),
    (
        "max_per_day_units",
        "resource has max_per_day && context.spent_today + context.amount > resource.max_per_day",
    ),
    (
        "approval:threshold",
        "!context.approved && resource has approval_above && context.amount > resource.approval_above",
    ),
    ("usdc_balance", "context.amount > context.balance"),
];

pub(crate) struct Cedar {
    authorizer: Authorizer,
    policies: PolicySet,
    entities: Entities,
    request: Request,
}

impl Cedar {
    pub(crate) fn prepare(case: &Case) -> Self {
        let uid = |kind: &str, id: &str| json!({"type": kind, "id": id});
        let (request, mut agent) = (case.request(), case.agent());
        let agents_policies = forbidden_by(&agent, case.world.enabled.is_some());
        agent
            .as_object_mut()
            .unwrap()
            .retain(|name, _| name == "status" || name == "wallet");
        let mut entities = vec![json!({"uid": uid("Agent", "a"), "attrs": agent, "parents": []})];
        let enabled = case
            .policies()
            .map(|(slug, policy)| json!({"uid": uid("Service", slug), "attrs": policy, "parents": []}));
        entities.extend(enabled);

        let forbid = |(name, when): (String, String)| {
            let text = format!("forbid(principal, action, resource) when {{ {when} }};");
            Policy::parse(Some(PolicyId::new(name)), text).unwrap()
        };
        let shared = FORBIDDEN.map(|(name, when)| (name.to_owned(), when.to_owned()));
        let permit = r#"permit(principal is Agent, action == Action::"pay", resource is Service);"#;
        let permit = Policy::parse(Some(PolicyId::new("pay")), permit).unwrap();
        let policies = shared.into_iter().chain(agents_policies).map(forbid).chain([permit]);

        let entity = |kind: &str, id: &str| EntityUid::from_json(uid(kind, id)).unwrap();
        let service = request["service"].as_str().unwrap().to_owned();
        let context = Context::from_json_value(request, None).unwrap();
        Self {
            authorizer: Authorizer::new(),
            policies: PolicySet::from_policies(policies).unwrap(),
            entities: Entities::from_json_value(Value::Array(entities), None).unwrap(),
            request: Request::new(
                entity("Agent", "a"),
                entity("Action", "pay"),
                entity("Service", &service),
                context,
                None,
            )
            .unwrap(),
        }
    }

    pub(crate) fn run(&self) -> Response {
        self.authorizer
            .is_authorized(&self.request, &self.policies, &self.entities)
    }

    /// The names of the checks whose policies forbid the request.
    pub(crate) fn decide(&self) -> BTreeSet<String> {
        let response = self.run();
        assert_eq!(response.diagnostics().errors().count(), 0, "{response:?}");
        match response.decision() {
            Decision::Allow => BTreeSet::new(),
            Decision::Deny => response.diagnostics().reason().map(check_of).collect(),
        }
    }
}

/// The check of a policy id: the part before the colon, since a check may have several policies.
fn check_of(policy: &PolicyId) -> String {
    let name: &str = policy.as_ref();
    name.split(':').next().unwrap_or_default().to_owned()
}

/// The requests that the agent's rules forbid. Approval rules forbid nothing if no service is enabled.
fn forbidden_by(agent: &Value, enabled: bool) -> Vec<(String, String)> {
    let list = |name: &str| agent[name].as_array().unwrap().iter().enumerate();
    let blocks = list("blocks").map(|(n, categories)| {
        (
            format!("category_block:{n}"),
            format!("{categories}.containsAny(context.categories)"),
        )
    });
    let allowlists = list("allowlists").map(|(n, allowed)| {
        let (services, wallets) = (&allowed["services"], &allowed["wallets"]);
        let when = format!("!{services}.contains(context.service) && !{wallets}.contains(context.pay_to)");
        (format!("vendor_allowlist:{n}"), when)
    });
    let budgets = agent["budgets"].as_object().unwrap().iter();
    let budgets = budgets.map(|(rule, limit)| {
        let when = format!(r#"context.spent["{rule}"] + context.amount > {limit}"#);
        (format!("budget_limit:{rule}"), when)
    });
    let approvals = list("approvals").filter(|_| enabled).map(|(n, asked)| {
        let mut when = format!("!context.approved && context.amount > {}", asked["above"]);
        if let Some(services) = asked.get("services") {
            when += &format!(" && {services}.contains(context.service)");
        }
        if let Some(categories) = asked.get("categories") {
            when += &format!(" && {categories}.containsAny(context.categories)");
        }
        (format!("approval:{n}"), when)
    });
    blocks.chain(allowlists).chain(budgets).chain(approvals).collect()
}
