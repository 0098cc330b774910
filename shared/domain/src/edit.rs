//! What people ask for: the bodies of the dashboard's writes, parsed once, at the edge.
//!
//! Every problem of a body is found in one reading, those that only the catalog knows included. A `null` counts as
//! absent, except in the lists of a policy: of `enabled_operations` it means every operation, and of `allowed_domains` it
//! could be meant for any, so it is refused.
//!
//! Deliberately elsewhere: what an edit does ([`SpendPolicy::edited`](crate::SpendPolicy::edited), the transitions of
//! [`Agent`]), and who may ask (`functions/people`).

use crate::{
    Agent, AgentName, AgentStatus, Amount, BUDGET_WINDOW_MIN, Catalog, Category, DomainPattern, Duration, Error,
    Fields, NOTE_MAX, OperationScope, OperationSlug, PolicyEdit, Problem, Result, RuleKind, Service, ServiceSlug,
    Vendor, parse_address, required,
};
use serde_json::Value;

/// The body of a request that needs no word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFields;

/// A new agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAgent {
    /// What it is called.
    pub name: AgentName,
}

/// New values for some of what an agent's owner can change on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentEdit {
    /// What it is called.
    pub name: Option<AgentName>,
    /// Whether it may pay.
    pub status: Option<AgentStatus>,
}

/// The rotation of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotate {
    /// How long the old key goes on working.
    pub overlap: Duration,
}

/// A service to be enabled by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnableService {
    /// The service as it was named: slug or UUID.
    pub service: String,
    /// What is to differ from the column defaults.
    pub policy: PolicyEdit,
}

/// New values for some of a service's record on an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceEdit {
    /// Whether it may be paid at all.
    pub enabled: Option<bool>,
    /// Its caps and scopes.
    pub policy: PolicyEdit,
}

/// What a person writes beside their word on an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note(String);

impl Note {
    /// Reads a note; the space around it is nobody's, and a blank one is none. Line breaks are its only control
    /// characters.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let note = text.replace("\r\n", "\n");
        let note = note.trim();
        let is_text = !note.chars().any(|symbol| symbol.is_control() && symbol != '\n');
        if note.chars().count() > NOTE_MAX || !is_text {
            return Err(format!(
                "must be a text of at most {NOTE_MAX} characters, without control characters but line breaks"
            ));
        }
        Ok((!note.is_empty()).then(|| Self(note.to_owned())))
    }

    /// Reads the body of a verdict, which may be empty.
    pub fn parse_body(body: &Value) -> Result<Option<Self>> {
        let mut fields = required(body, &[])?;
        fields.refuse_unknown(&["note"]);
        let note = fields.read("note", |value| {
            value.as_str().map_or(Err(NOTE_FORM.to_owned()), Self::parse)
        });
        fields.finish_body()?;
        Ok(note.flatten())
    }

    /// The note.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const NOTE_FORM: &str = "must be a text";

impl NoFields {
    /// Reads an object without members.
    pub fn parse(body: &Value) -> Result<Self> {
        let mut fields = required(body, &[])?;
        fields.refuse_unknown(&[]);
        complete(fields, Some(Self))
    }
}

impl NewAgent {
    /// Reads the body of the creation of an agent.
    pub fn parse(body: &Value) -> Result<Self> {
        let mut fields = required(body, &["name"])?;
        fields.refuse_unknown(&["name"]);
        let name = name(&mut fields);
        let name = complete(fields, name)?;
        Ok(Self { name })
    }
}

impl AgentEdit {
    /// Reads the body of an edit.
    pub fn parse(body: &Value) -> Result<Self> {
        let mut fields = required(body, &[])?;
        fields.refuse_unknown(&["name", "status"]);
        let edit = Self {
            name: name(&mut fields),
            status: fields.read("status", |value| {
                let status = value.as_str().and_then(AgentStatus::from_name);
                status.ok_or_else(AgentStatus::choices)
            }),
        };
        ask_for_something(&mut fields, &["name", "status"]);
        complete(fields, Some(edit))
    }
}

impl Rotate {
    /// Reads the body of a rotation.
    pub fn parse(body: &Value) -> Result<Self> {
        let mut fields = required(body, &["overlap_seconds"])?;
        fields.refuse_unknown(&["overlap_seconds"]);
        let longest = Agent::LONGEST_OVERLAP;
        let overlap = fields.read("overlap_seconds", |value| {
            let overlap = seconds(value).filter(|overlap| *overlap <= longest);
            overlap.ok_or_else(|| format!("must be a whole number of seconds from 0 to {}", longest.secs()))
        });
        let overlap = complete(fields, overlap)?;
        Ok(Self { overlap })
    }
}

/// The members of a policy.
const POLICY: [&str; 5] = [
    "max_per_call_units",
    "max_per_day_units",
    "require_approval_above_units",
    "enabled_operations",
    "allowed_domains",
];

impl EnableService {
    /// Reads the body of the enabling of a service. One that the catalog does not know is not a problem of the body.
    pub fn parse(body: &Value, catalog: &Catalog) -> Result<Self> {
        let mut fields = required(body, &["service_id"])?;
        fields.refuse_unknown(&[&["service_id"], POLICY.as_slice()].concat());
        let reference = fields.text("service_id", 128).map(str::to_owned);
        let service = reference
            .as_deref()
            .and_then(|reference| catalog.by_reference(reference));
        let policy = policy(&mut fields, body);
        // Of a service that is not there, nobody knows the operations; that it is not there is the answer.
        if service.is_some() {
            fields.extend(policy.problems(service));
        }
        let service = complete(fields, reference)?;
        Ok(Self { service, policy })
    }
}

impl ServiceEdit {
    /// Reads the body of an edit of a service's record; `service` is its entry in the catalog, if it still has one.
    pub fn parse(body: &Value, service: Option<&Service>) -> Result<Self> {
        let mut fields = required(body, &[])?;
        let known = [&["enabled"], POLICY.as_slice()].concat();
        fields.refuse_unknown(&known);
        let enabled = fields.read("enabled", |value| value.as_bool().ok_or("must be true or false"));
        let policy = policy(&mut fields, body);
        fields.extend(policy.problems(service));
        // `null` is a value of one of them.
        if body.get("enabled_operations").is_none() {
            ask_for_something(&mut fields, &known);
        }
        complete(fields, Some(Self { enabled, policy }))
    }
}

fn policy(fields: &mut Fields<'_>, body: &Value) -> PolicyEdit {
    if body.get("allowed_domains").is_some_and(Value::is_null) {
        fields.wrong("allowed_domains", "must not be null");
    }
    let enabled_operations = match body.get("enabled_operations") {
        Some(Value::Null) => Some(OperationScope::All),
        Some(_) | None => list(fields, "enabled_operations", |value| {
            value.as_str().and_then(OperationSlug::parse).ok_or(OperationSlug::FORM)
        })
        .map(OperationScope::Only),
    };
    PolicyEdit {
        max_per_call: amount(fields, "max_per_call_units"),
        max_per_day: amount(fields, "max_per_day_units"),
        require_approval_above: amount(fields, "require_approval_above_units"),
        enabled_operations,
        allowed_domains: list(fields, "allowed_domains", |value| {
            value.as_str().map_or(Err("must be a text"), DomainPattern::parse)
        }),
    }
}

impl RuleKind {
    /// Reads the body of a rule: `kind`, and what a rule of that kind says.
    pub fn parse(body: &Value, catalog: &Catalog) -> Result<Self> {
        const KINDS: &str = "must be one of: category_block, vendor_allowlist, budget_limit, approval_required";
        let fields = required(body, &["kind"])?;
        match fields.get("kind").and_then(Value::as_str) {
            Some("category_block") => {
                let mut rule = RuleFields::of(body, &["categories"], &[])?;
                let categories = rule.list("categories", category).unwrap_or_default();
                rule.finish(Self::CategoryBlock { categories }, catalog)
            }
            Some("vendor_allowlist") => {
                let mut rule = RuleFields::of(body, &[], &["services", "wallets"])?;
                let services = rule.list("services", service).unwrap_or_default();
                let wallets = rule.list("wallets", |value| {
                    let text = value.as_str().ok_or_else(|| "must be a text".to_owned())?;
                    parse_address(text).map_err(|error| error.to_string())
                });
                let wallets = wallets.unwrap_or_default().into_iter().map(Vendor::Wallet);
                let vendors = services.into_iter().map(Vendor::Service).chain(wallets).collect();
                rule.finish(Self::VendorAllowlist { vendors }, catalog)
            }
            Some("budget_limit") => {
                let mut rule = RuleFields::of(body, &["limit_units", "window_seconds"], &[])?;
                let limit = rule.read("limit_units", amount).unwrap_or(Amount::ZERO);
                let window = rule.read("window_seconds", |fields, name| {
                    fields.read(name, |value| seconds(value).ok_or("must be a whole number of seconds"))
                });
                let window = window.unwrap_or(BUDGET_WINDOW_MIN);
                rule.finish(Self::BudgetLimit { limit, window }, catalog)
            }
            Some("approval_required") => {
                let mut rule = RuleFields::of(body, &[], &["services", "categories", "above_units"])?;
                let draft = Self::ApprovalRequired {
                    services: rule.list("services", service),
                    categories: rule.list("categories", category),
                    above: rule.read("above_units", amount),
                };
                rule.finish(draft, catalog)
            }
            Some(_) | None => {
                // Without a kind, nobody knows what else there should be.
                fields.finish_body()?;
                Err(Error::invalid(vec![Problem::at("/kind", KINDS)]))
            }
        }
    }
}

/// The members of a rule's body, and which of them could not be read.
struct RuleFields<'a> {
    fields: Fields<'a>,
    unread: Vec<String>,
}

impl<'a> RuleFields<'a> {
    fn of(body: &'a Value, needed: &[&'static str], others: &[&str]) -> Result<Self> {
        let mut fields = required(body, needed)?;
        fields.refuse_unknown(&[&["kind"], needed, others].concat());
        let missing = needed.iter().filter(|name| fields.get(name).is_none());
        Ok(Self {
            unread: missing.map(|name| fields.path_of(name)).collect(),
            fields,
        })
    }

    fn read<T>(&mut self, name: &str, read: impl FnOnce(&mut Fields<'a>, &str) -> Option<T>) -> Option<T> {
        let value = read(&mut self.fields, name);
        if value.is_none() && self.fields.get(name).is_some() {
            self.unread.push(self.fields.path_of(name));
        }
        value
    }

    fn list<T>(&mut self, name: &str, read: impl Fn(&'a Value) -> Result<T, String>) -> Option<Vec<T>> {
        self.read(name, |fields, name| list(fields, name, read))
    }

    /// The rule, unless something is wrong with its form or with what it says. Of a member that could not be read,
    /// nothing more is said.
    fn finish(mut self, draft: RuleKind, catalog: &Catalog) -> Result<RuleKind> {
        let unread = &self.unread;
        let was_read = |problem: &Problem| {
            let of_all = problem.path.is_empty();
            !unread
                .iter()
                .any(|path| of_all || problem.path.starts_with(path.as_str()))
        };
        let problems = draft.problems(catalog).into_iter().filter(was_read);
        self.fields.extend(problems);
        complete(self.fields, Some(draft))
    }
}

fn name(fields: &mut Fields<'_>) -> Option<AgentName> {
    fields.read("name", |value| {
        value.as_str().and_then(AgentName::parse).ok_or(AgentName::FORM)
    })
}

fn amount(fields: &mut Fields<'_>, name: &str) -> Option<Amount> {
    fields.read(name, |value| {
        let amount = value.as_u64().and_then(Amount::from_units);
        amount.ok_or_else(|| format!("must be a whole number of micro-units from 0 to {}", Amount::MAX))
    })
}

fn seconds(value: &Value) -> Option<Duration> {
    let seconds = value.as_u64()?;
    u32::try_from(seconds).ok().map(Duration::from_secs_u32)
}

fn category(value: &Value) -> Result<Category, String> {
    value
        .as_str()
        .and_then(Category::from_name)
        .ok_or_else(Category::choices)
}

fn service(value: &Value) -> Result<ServiceSlug, String> {
    let slug = value.as_str().and_then(ServiceSlug::parse);
    slug.ok_or_else(|| ServiceSlug::FORM.to_owned())
}

/// Reads every entry of a list; `None` where one of them is wrong.
fn list<'a, T, E: Into<String>>(
    fields: &mut Fields<'a>,
    name: &str,
    read: impl Fn(&'a Value) -> Result<T, E>,
) -> Option<Vec<T>> {
    let entries = fields.read(name, |value| value.as_array().ok_or("must be a list"))?;
    let path = fields.path_of(name);
    let mut values = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        match read(entry) {
            Ok(value) => values.push(value),
            Err(message) => fields.extend([Problem::at(format!("{path}/{index}"), message)]),
        }
    }
    (values.len() == entries.len()).then_some(values)
}

/// An edit that changes nothing was meant to be another one.
fn ask_for_something(fields: &mut Fields<'_>, names: &[&str]) {
    if names.iter().all(|name| fields.get(name).is_none()) && !fields.has_problems() {
        let message = format!("must have at least one of: {}", names.join(", "));
        fields.extend([Problem::at("", message)]);
    }
}

/// The value, if nothing was wrong.
fn complete<T>(fields: Fields<'_>, value: Option<T>) -> Result<T> {
    fields.finish_body()?;
    // A member that is absent was required, and one that is wrong left a problem: there is a value.
    value.ok_or_else(|| Error::invalid(vec![Problem::at("", "is incomplete")]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Operation, OperationUuid, ServiceId, TrustStatus, Url};
    use serde_json::json;
    use uuid::Uuid;

    fn catalog() -> Catalog {
        let url = || Url::parse("https://lab.example/").unwrap();
        let operation = |slug| Operation {
            id: OperationUuid::from_uuid(Uuid::nil()),
            slug: OperationSlug::parse(slug).unwrap(),
            availability: crate::Availability::PaidX402,
            label: "Current".to_owned(),
            method: "GET".to_owned(),
            endpoint: crate::Endpoint::parse("https://lab.example/").unwrap(),
            category: Category::Data,
            execution: "sync".to_owned(),
            price_model: "fixed".to_owned(),
            estimated_price: Amount::ZERO,
            max_price: None,
            params: json!({}),
            fetches_target: None,
            payment: None,
        };
        Catalog::new(vec![Service {
            id: ServiceId::from_uuid(Uuid::from_u128(7)),
            version: 1,
            curated: true,
            slug: ServiceSlug::parse("lab").unwrap(),
            name: "Lab".to_owned(),
            description: "A laboratory.".to_owned(),
            website: url(),
            logo_url: None,
            category: Category::Data,
            source: "test".to_owned(),
            trust_status: TrustStatus::Listed,
            operations: vec![operation("lab.current"), operation("lab.history")],
        }])
    }

    /// The value, the slug of a missing field, or the paths of all problems.
    fn said<T>(read: Result<T>) -> Result<T, Vec<String>> {
        read.map_err(|error| match error.kind() {
            ErrorKind::InvalidRequest(problems) => problems.iter().map(|problem| problem.path.clone()).collect(),
            other => vec![other.slug()],
        })
    }

    fn refused(paths: &[&str]) -> Vec<String> {
        paths.iter().map(ToString::to_string).collect()
    }

    fn amount_of(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    #[test]
    fn a_request_that_needs_no_word_takes_none() {
        assert_eq!(said(NoFields::parse(&json!({}))), Ok(NoFields));
        assert_eq!(said(NoFields::parse(&json!({"name": "a"}))), Err(refused(&["/name"])));
        assert_eq!(said(NoFields::parse(&json!(null))), Err(refused(&[""])));
    }

    #[test]
    fn an_agent_needs_a_name() {
        assert_eq!(
            said(NewAgent::parse(&json!({"name": " buyer "}))).map(|new| new.name.as_str().to_owned()),
            Ok("buyer".to_owned())
        );
        let rows = [
            (json!({}), &["name_required"][..]),
            (json!({"name": null}), &["name_required"]),
            (json!([]), &[""]),
            (
                json!({"name": "", "nmae": 1, "owner": "x"}),
                &["/name", "/nmae", "/owner"],
            ),
            (json!({"name": 7}), &["/name"]),
            (json!({"name": "a\nb"}), &["/name"]),
        ];
        for (body, problems) in rows {
            assert_eq!(said(NewAgent::parse(&body)), Err(refused(problems)), "{body}");
        }
    }

    #[test]
    fn an_edit_of_an_agent_changes_something() {
        let frozen = AgentEdit {
            name: None,
            status: Some(AgentStatus::Frozen),
        };
        assert_eq!(said(AgentEdit::parse(&json!({"status": "frozen"}))), Ok(frozen));
        let rows = [
            (json!({}), &[""][..]),
            (json!({"name": null}), &[""]),
            (
                json!({"status": "Frozen", "name": " ", "x": 1}),
                &["/name", "/status", "/x"],
            ),
            (json!({"status": true}), &["/status"]),
        ];
        for (body, problems) in rows {
            assert_eq!(said(AgentEdit::parse(&body)), Err(refused(problems)), "{body}");
        }
    }

    #[test]
    fn an_overlap_is_a_whole_number_of_seconds_up_to_thirty_days() {
        for seconds in [0, 1, 2_592_000] {
            let rotate = Rotate {
                overlap: Duration::from_secs_u32(seconds),
            };
            assert_eq!(said(Rotate::parse(&json!({"overlap_seconds": seconds}))), Ok(rotate));
        }
        assert_eq!(
            said(Rotate::parse(&json!({}))),
            Err(refused(&["overlap_seconds_required"]))
        );
        for wrong in [
            json!(2_592_001),
            json!(-1),
            json!(1.0),
            json!("60"),
            json!(u64::MAX),
            json!([]),
        ] {
            let body = json!({"overlap_seconds": wrong});
            assert_eq!(
                said(Rotate::parse(&body)),
                Err(refused(&["/overlap_seconds"])),
                "{body}"
            );
        }
    }

    #[test]
    fn what_a_policy_leaves_out_stays_and_null_means_every_operation() {
        let parse = |body| said(EnableService::parse(&body, &catalog()));
        let enable = |policy| {
            Ok(EnableService {
                service: "lab".to_owned(),
                policy,
            })
        };
        assert_eq!(parse(json!({"service_id": "lab"})), enable(PolicyEdit::default()));
        let every = PolicyEdit {
            enabled_operations: Some(OperationScope::All),
            ..PolicyEdit::default()
        };
        assert_eq!(
            parse(json!({"service_id": "lab", "enabled_operations": null})),
            enable(every)
        );
        let full = PolicyEdit {
            max_per_call: Some(Amount::ZERO),
            max_per_day: Some(Amount::MAX),
            require_approval_above: Some(amount_of(5)),
            enabled_operations: Some(OperationScope::Only(vec![OperationSlug::parse("lab.current").unwrap()])),
            allowed_domains: Some(vec![DomainPattern::parse("example.com").unwrap()]),
        };
        let body = json!({
            "service_id": "lab", "max_per_call_units": 0, "max_per_day_units": Amount::MAX.units(),
            "require_approval_above_units": 5, "enabled_operations": ["lab.current"],
            "allowed_domains": ["EXAMPLE.com"],
        });
        assert_eq!(parse(body), enable(full));
    }

    #[test]
    fn every_problem_of_a_policy_is_told_at_once() {
        let body = json!({
            "service_id": "lab", "max_per_call_units": -1, "max_per_day_units": Amount::MAX.units() + 1,
            "require_approval_above_units": 1.5, "enabled_operations": ["lab.current", "lab.other", "lab.current"],
            "allowed_domains": ["*", "a b", 7], "approvalAbove": 1,
        });
        let problems = [
            "/allowed_domains/1",
            "/allowed_domains/2",
            "/approvalAbove",
            "/enabled_operations/1",
            "/enabled_operations/2",
            "/max_per_call_units",
            "/max_per_day_units",
            "/require_approval_above_units",
        ];
        assert_eq!(said(EnableService::parse(&body, &catalog())), Err(refused(&problems)));
        let mut edit = body;
        edit.as_object_mut().unwrap().remove("service_id");
        assert_eq!(
            said(ServiceEdit::parse(&edit, catalog().by_reference("lab"))),
            Err(refused(&problems))
        );
        let rows = [
            (json!({}), &["service_id_required"][..]),
            (json!({"service_id": ""}), &["/service_id"]),
            (
                json!({"service_id": "lab", "enabled_operations": "lab.current"}),
                &["/enabled_operations"],
            ),
            (
                json!({"service_id": "lab", "enabled_operations": ["current"]}),
                &["/enabled_operations/0"],
            ),
            (
                json!({"service_id": "lab", "allowed_domains": vec!["a.example"; 101]}),
                &["/allowed_domains"],
            ),
        ];
        for (body, problems) in rows {
            assert_eq!(
                said(EnableService::parse(&body, &catalog())),
                Err(refused(problems)),
                "{body}"
            );
        }
        // A cap that is null is not said; a list could be meant for anything.
        let nulls = json!({
            "service_id": "lab", "max_per_call_units": null, "max_per_day_units": null,
            "require_approval_above_units": null,
        });
        let said_nothing = EnableService::parse(&nulls, &catalog()).unwrap().policy;
        assert_eq!(said_nothing, PolicyEdit::default());
        let domains = json!({"service_id": "lab", "allowed_domains": null});
        assert_eq!(
            said(EnableService::parse(&domains, &catalog())),
            Err(refused(&["/allowed_domains"]))
        );
        // That the service is unknown is said by its own slug.
        let unknown = json!({"service_id": "nowhere", "enabled_operations": ["x.y"]});
        assert!(EnableService::parse(&unknown, &catalog()).is_ok());
    }

    #[test]
    fn an_edit_of_a_record_changes_something() {
        let parse = |body| said(ServiceEdit::parse(&body, catalog().by_reference("lab")));
        assert_eq!(
            parse(json!({"enabled": false})).map(|edit| edit.enabled),
            Ok(Some(false))
        );
        assert!(parse(json!({"enabled_operations": null})).is_ok());
        for (body, problems) in [
            (json!({}), &[""][..]),
            (json!({"enabled": null, "max_per_day_units": null}), &[""]),
            (
                json!({"enabled": "yes", "service_id": "lab"}),
                &["/enabled", "/service_id"],
            ),
        ] {
            assert_eq!(parse(body.clone()), Err(refused(problems)), "{body}");
        }
        let gone = said(ServiceEdit::parse(
            &json!({"enabled_operations": ["lab.current"]}),
            None,
        ));
        assert_eq!(gone, Err(refused(&["/enabled_operations/0"])));
    }

    #[test]
    fn a_rule_of_each_kind_is_read() {
        let slugs = || vec![ServiceSlug::parse("lab").unwrap()];
        let wallet = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
        let rows = [
            (
                json!({"kind": "category_block", "categories": ["finance", "ai"]}),
                RuleKind::CategoryBlock {
                    categories: vec![Category::Finance, Category::Ai],
                },
            ),
            (
                json!({"kind": "vendor_allowlist", "services": ["lab"], "wallets": [wallet]}),
                RuleKind::VendorAllowlist {
                    vendors: vec![
                        Vendor::Service(slugs().remove(0)),
                        Vendor::Wallet(wallet.parse().unwrap()),
                    ],
                },
            ),
            (
                json!({"kind": "budget_limit", "limit_units": 0, "window_seconds": 3600}),
                RuleKind::BudgetLimit {
                    limit: Amount::ZERO,
                    window: Duration::from_secs_u32(3_600),
                },
            ),
            (
                json!({"kind": "approval_required"}),
                RuleKind::ApprovalRequired {
                    services: None,
                    categories: None,
                    above: None,
                },
            ),
            (
                json!({"kind": "approval_required", "services": ["lab"], "categories": ["ai"], "above_units": 5}),
                RuleKind::ApprovalRequired {
                    services: Some(slugs()),
                    categories: Some(vec![Category::Ai]),
                    above: Some(amount_of(5)),
                },
            ),
        ];
        for (body, rule) in rows {
            assert_eq!(said(RuleKind::parse(&body, &catalog())), Ok(rule), "{body}");
        }
    }

    #[test]
    fn every_problem_of_a_rule_is_told_at_once() {
        let many: Vec<String> = (0..51).map(|n| format!("0x{n:040}")).collect();
        let rows = [
            (json!({}), &["kind_required"][..]),
            (json!({"kind": "budget"}), &["/kind"]),
            (json!({"kind": 7, "x": 1}), &["/kind"]),
            (json!({"kind": "category_block"}), &["categories_required"]),
            (json!({"kind": "category_block", "categories": []}), &["/categories"]),
            (
                json!({"kind": "category_block", "categories": ["ai", "ai", "Ai"], "limit_units": 1}),
                &["/categories/2", "/limit_units"],
            ),
            (
                json!({"kind": "category_block", "categories": ["ai", "ai"]}),
                &["/categories/1"],
            ),
            (json!({"kind": "vendor_allowlist"}), &[""]),
            (
                json!({"kind": "vendor_allowlist", "services": [], "wallets": []}),
                &[""],
            ),
            (
                json!({"kind": "vendor_allowlist", "services": ["lab", "other", "lab"], "wallets": ["0x1", 7]}),
                &["/services/1", "/services/2", "/wallets/0", "/wallets/1"],
            ),
            (json!({"kind": "vendor_allowlist", "services": "lab"}), &["/services"]),
            (json!({"kind": "vendor_allowlist", "wallets": many[1..51]}), &[]),
            (json!({"kind": "vendor_allowlist", "wallets": many}), &["/wallets/0"]),
            (json!({"kind": "budget_limit"}), &["limit_units_required"]),
            (
                json!({"kind": "budget_limit", "limit_units": 1}),
                &["window_seconds_required"],
            ),
            (
                json!({"kind": "budget_limit", "limit_units": 1.5, "window_seconds": 3599}),
                &["/limit_units", "/window_seconds"],
            ),
            (
                json!({"kind": "budget_limit", "limit_units": 1, "window_seconds": 2_678_401}),
                &["/window_seconds"],
            ),
            (
                json!({"kind": "budget_limit", "limit_units": 1, "window_seconds": "3600"}),
                &["/window_seconds"],
            ),
            (
                json!({"kind": "approval_required", "services": ["nope"], "categories": [], "above_units": -1}),
                &["/above_units", "/categories", "/services/0"],
            ),
        ];
        for (body, problems) in rows {
            let read = said(RuleKind::parse(&body, &catalog())).err().unwrap_or_default();
            assert_eq!(read, refused(problems), "{body}");
        }
    }

    #[test]
    fn a_note_is_a_short_text_or_none() {
        let read = |note: &str| Note::parse(note).map(|note| note.map(|note| note.as_str().to_owned()));
        assert_eq!(read(" a\r\nb "), Ok(Some("a\nb".to_owned())));
        assert_eq!(read(" \r\n "), Ok(None));
        assert_eq!(read(&"\u{e9}".repeat(500)).unwrap().unwrap().chars().count(), 500);
        assert!(read(&"a".repeat(501)).is_err() && read("a\u{7}b").is_err());
        let body = |body| said(Note::parse_body(&body)).map(|note| note.is_some());
        assert_eq!(body(json!({})), Ok(false));
        assert_eq!(body(json!({"note": null})), Ok(false));
        assert_eq!(body(json!({"note": "yes"})), Ok(true));
        assert_eq!(body(json!({"note": 7, "noet": ""})), Err(refused(&["/noet", "/note"])));
    }
}
