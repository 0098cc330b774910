//! Merges a policy template into an agent's limits, and compares the result with a model that records who set each
//! limit.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

use proptest::prelude::*;
use purser_domain::{
    Address, Agent, AgentId, AgentStatus, Amount, Availability, BudgetLimit, Catalog, Category, CountLimit,
    DefaultServices, DomainPattern, Duration, EnabledService, Endpoint, FollowedTemplate, Labels, ListingHistory,
    NewPayee, Operation, OperationScope, OperationSlug, OperationUuid, Overrides, PolicyChange, PolicyTemplate,
    PolicyUpdate, RuleId, RuleKind, RuleWindow, Service, ServiceId, ServiceMerge, ServiceSlug, SpendPolicy,
    TemplateBases, TemplateEntry, TemplateKey, TemplateList, TemplateName, TemplateTerms, Timestamp, TrustStatus, Url,
    Wallet, WalletAttestation, WalletKey, merge_rules, merge_services,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::slice::from_ref;
use uuid::Uuid;

fn units(units: u64) -> Amount {
    Amount::from_units(units).unwrap()
}

fn id(number: u128) -> ServiceId {
    ServiceId::from_uuid(Uuid::from_u128(number))
}

fn service(number: u128, category: Category) -> Service {
    let operation = Operation {
        id: OperationUuid::from_uuid(Uuid::nil()),
        slug: OperationSlug::parse("a.b").unwrap(),
        availability: Availability::PaidX402,
        label: String::new(),
        method: "GET".to_owned(),
        endpoint: Endpoint::parse("https://lab.example/").unwrap(),
        category,
        execution: String::new(),
        price_model: String::new(),
        estimated_price: Amount::ZERO,
        max_price: None,
        params: serde_json::json!({}),
        fetches_target: None,
        next: None,
        payment: None,
    };
    Service {
        id: id(number),
        version: 1,
        curated: true,
        history: ListingHistory::default(),
        slug: ServiceSlug::parse(&format!("s{number}")).unwrap(),
        name: String::new(),
        description: String::new(),
        website: Url::parse("https://lab.example/").unwrap(),
        logo_url: None,
        category,
        source: String::new(),
        trust_status: TrustStatus::Listed,
        operations: vec![operation],
    }
}

/// The services are 1 (ai), 2 (ai) and 3 (data).
fn catalog() -> Catalog {
    Catalog::new(vec![
        service(1, Category::Ai),
        service(2, Category::Ai),
        service(3, Category::Data),
    ])
}

fn starting() -> DefaultServices {
    DefaultServices::new([1, 2, 3].map(id))
}

fn change(per_call: Option<u64>, per_day: Option<u64>) -> PolicyChange {
    PolicyChange {
        enabled: None,
        policy: PolicyUpdate {
            max_per_call: per_call.map(units),
            max_per_day: per_day.map(units),
            ..PolicyUpdate::default()
        },
    }
}

fn switch(enabled: bool) -> PolicyChange {
    PolicyChange {
        enabled: Some(enabled),
        policy: PolicyUpdate::default(),
    }
}

fn terms(services: Vec<(TemplateKey, PolicyChange)>) -> TemplateTerms {
    TemplateTerms {
        services: services.into_iter().collect(),
        rules: None,
    }
}

fn merged(
    template: &TemplateTerms,
    followed: Option<&FollowedTemplate>,
    bases: &BTreeMap<u64, TemplateTerms>,
    present: &[EnabledService],
    overrides: Overrides,
) -> Vec<ServiceMerge> {
    let bases = TemplateBases {
        followed_template: followed,
        terms: Some(bases),
    };
    let start = starting();
    merge_services(
        template,
        bases,
        present,
        |id| start.default_policy(id),
        &catalog(),
        overrides,
    )
}

#[test]
fn a_service_policy_in_a_template_overrides_category_and_general_policies() {
    let template = terms(vec![
        (TemplateKey::Service(id(1)), change(Some(1), None)),
        (TemplateKey::Category(Category::Ai), change(Some(2), Some(2))),
        (TemplateKey::Every, change(Some(3), Some(3))),
        (TemplateKey::Service(id(9)), switch(true)),
    ]);
    let mut present: Vec<EnabledService> = [1, 2, 3]
        .map(|number| starting().default_policy(id(number)).unwrap())
        .to_vec();
    let told = |present: &[EnabledService]| -> Vec<_> {
        let merges = merged(&template, None, &BTreeMap::new(), present, Overrides::Keep);
        let edited = merges.iter().map(|merge| merge.merged_policy_if_changed().unwrap());
        edited
            .map(|edited| {
                (
                    edited.service,
                    edited.policy.max_per_call.units(),
                    edited.policy.max_per_day.units(),
                )
            })
            .collect()
    };
    let unlimited = 10_000_000_000_000;
    assert_eq!(told(&present), [(id(1), 1, 2), (id(2), 2, 2), (id(3), 3, 3)]);
    for record in &mut present {
        record.enabled = false;
    }
    assert_eq!(told(&present), [(id(1), 1, unlimited)]);
    // Only a catalog service can be enabled.
    let new = terms(vec![
        (TemplateKey::Service(id(3)), switch(true)),
        (TemplateKey::Service(id(9)), switch(true)),
    ]);
    let merges = merged(&new, None, &BTreeMap::new(), &present[..2], Overrides::Keep);
    assert_eq!(merges.len(), 1);
    let edited = merges[0].merged_policy_if_changed().unwrap();
    assert_eq!((edited.service, edited.version, edited.enabled), (id(3), 0, true));
    let mut left = present[0].clone();
    left.service = id(9);
    assert_eq!(merged(&new, None, &BTreeMap::new(), &[left], Overrides::Keep).len(), 1);
    // A user disabled service 1, so it stays disabled unless overrides are overwritten.
    let enables = terms(vec![(TemplateKey::Service(id(1)), switch(true))]);
    let kept = merged(&enables, None, &BTreeMap::new(), &present[..1], Overrides::Keep);
    assert_eq!(
        (kept[0].merged_policy_if_changed(), kept[0].differences[0].is_override),
        (None, true)
    );
    let overwritten = merged(&enables, None, &BTreeMap::new(), &present[..1], Overrides::Overwrite);
    assert!(overwritten[0].merged_policy_if_changed().unwrap().enabled);
}

#[test]
fn a_new_agent_starts_with_the_template_limits_of_its_services() {
    let all = catalog();
    let template = terms(vec![
        (TemplateKey::Service(id(3)), change(Some(1), None)),
        (TemplateKey::Category(Category::Ai), change(Some(2), None)),
    ]);
    let services = || [1, 2, 3].into_iter().filter_map(|number| all.find_by_id(id(number)));
    let expected = [
        (change(Some(2), None), vec![id(1), id(2)]),
        (change(Some(1), None), vec![id(3)]),
    ];
    assert_eq!(template.policy_changes_with_services(services()), expected);
    assert_eq!(TemplateTerms::default().policy_changes_with_services(services()), []);
}

#[test]
fn a_template_created_from_an_agent_has_its_limits() {
    let mut present: Vec<EnabledService> = [1, 2, 3]
        .map(|number| starting().default_policy(id(number)).unwrap())
        .to_vec();
    present[0].policy = present[0].policy.clone().apply(&change(Some(5), None).policy);
    present[1].enabled = false;
    let template = TemplateTerms::from_agent_limits(&present, &agent(&[budget(3)]).rules);
    assert_eq!(template.services.len(), 3);
    assert_eq!(template.rules, Some(vec![budget(3)]));
    let none = merged(&template, None, &BTreeMap::new(), &present, Overrides::Overwrite);
    assert_eq!(none, []);
    let other: Vec<EnabledService> = [1, 2, 3]
        .map(|number| starting().default_policy(id(number)).unwrap())
        .to_vec();
    let merges = merged(&template, None, &BTreeMap::new(), &other, Overrides::Keep);
    let told: Vec<_> = merges
        .iter()
        .map(|merge| merge.merged_policy_if_changed().unwrap())
        .collect();
    let told: Vec<_> = told.iter().map(|record| (record.service, record.enabled)).collect();
    assert!(told.contains(&(id(2), false)), "{told:?}");
    let limit = |number| merges.iter().find(|merge| merge.service == id(number));
    if let Some(first) = limit(1) {
        assert_eq!(first.merged_policy_if_changed().unwrap().policy.max_per_call, units(5));
    }
}

/// An operation that left the catalog makes no override, even if the agent still has it.
#[test]
fn a_template_is_applied_without_operations_that_left_the_catalog() {
    let slug = |text: &str| OperationSlug::parse(text).unwrap();
    let names = |slugs: &[&str]| PolicyChange {
        enabled: None,
        policy: PolicyUpdate {
            enabled_operations: Some(OperationScope::Only(slugs.iter().map(|text| slug(text)).collect())),
            ..PolicyUpdate::default()
        },
    };
    let followed = FollowedTemplate::fully_applied(TemplateName::parse("t").unwrap(), 1);
    for (named, remaining) in [(&["a.b", "left.it"][..], &["a.b"][..]), (&["left.it"], &[])] {
        let template = terms(vec![(TemplateKey::Service(id(1)), names(named))]);
        let unlisted = BTreeMap::from([(id(1), vec![slug("left.it")])]);
        assert_eq!(template.unlisted_operations(&catalog()), unlisted);
        let mut present = starting().default_policy(id(1)).unwrap();
        present.policy.enabled_operations = Some(named.iter().map(|text| slug(text)).collect());
        let bases = BTreeMap::from([(1, template.clone())]);
        let merges = merged(&template, Some(&followed), &bases, &[present], Overrides::Keep);
        let edited = merges[0].merged_policy_if_changed().unwrap();
        let expected: Vec<OperationSlug> = remaining.iter().map(|text| slug(text)).collect();
        assert_eq!(edited.policy.enabled_operations, Some(expected));
        assert_eq!(
            merged(&template, Some(&followed), &bases, &[edited], Overrides::Keep),
            []
        );
        let all = catalog();
        assert_eq!(
            template.policy_changes_with_services(all.find_by_id(id(1))),
            [(names(remaining), vec![id(1)])]
        );
    }
}

#[test]
fn all_policy_fields_are_merged_with_the_template() {
    let slugs = ["a.b"].map(|slug| OperationSlug::parse(slug).unwrap());
    let domains = ["example.org", "example.com"].map(|domain| DomainPattern::parse(domain).unwrap());
    let all = PolicyChange {
        enabled: Some(false),
        policy: PolicyUpdate {
            max_per_call: Some(units(1)),
            max_per_day: Some(units(2)),
            require_approval_above: Some(units(3)),
            enabled_operations: Some(OperationScope::Only(slugs.to_vec())),
            allowed_domains: Some(domains.to_vec()),
        },
    };
    let template = terms(vec![(TemplateKey::Service(id(1)), all)]);
    let present = [starting().default_policy(id(1)).unwrap()];
    let merges = merged(&template, None, &BTreeMap::new(), &present, Overrides::Keep);
    let edited = merges[0].merged_policy_if_changed().unwrap();
    let mut expected = present[0].clone();
    expected.enabled = false;
    expected.policy = SpendPolicy {
        max_per_call: units(1),
        max_per_day: units(2),
        require_approval_above: units(3),
        enabled_operations: Some(slugs.to_vec()),
        allowed_domains: domains.to_vec(),
        raises: Vec::new(),
    };
    assert_eq!(edited, expected);
    let told: Vec<_> = merges[0]
        .differences
        .iter()
        .map(|difference| difference.member)
        .collect();
    assert_eq!(
        told,
        [
            "enabled",
            "max_per_call_units",
            "max_per_day_units",
            "require_approval_above_units",
            "enabled_operations",
            "allowed_domains"
        ]
    );
    // The same items in another order.
    let mut other = edited;
    other.policy.allowed_domains.reverse();
    assert_eq!(merged(&template, None, &BTreeMap::new(), &[other], Overrides::Keep), []);
}

#[test]
fn a_template_name_is_a_lower_case_word() {
    let longest = "a".repeat(50);
    for name in ["a", "9-_z", &longest] {
        let parsed = TemplateName::parse(name).unwrap();
        assert_eq!((parsed.as_str(), parsed.to_string().as_str()), (name, name));
    }
    for name in ["", "-a", "_a", "A", "a b", &format!("{longest}a")] {
        assert_eq!(TemplateName::parse(name), None, "{name}");
    }
}

#[test]
fn template_keys_survive_storage() {
    let category = TemplateKey::Category(Category::Ai);
    for key in [TemplateKey::Service(id(1)), category, TemplateKey::Every] {
        assert_eq!(TemplateKey::parse(&key.to_string()), Some(key));
    }
    for text in ["", "**", "ai", "category:", "category:x"] {
        assert_eq!(TemplateKey::parse(text), None, "{text}");
    }
    for text in ["s1", "category:ai", "*"] {
        assert_eq!(
            TemplateKey::from_text(text, &catalog()).unwrap().describe(&catalog()),
            text
        );
    }
    assert_eq!(
        TemplateKey::from_text(&id(1).to_string(), &catalog()),
        Ok(TemplateKey::Service(id(1)))
    );
    assert_eq!(TemplateKey::Service(id(9)).describe(&catalog()), id(9).to_string());
    for text in ["", "s9", "category:x"] {
        assert!(TemplateKey::from_text(text, &catalog()).is_err(), "{text}");
    }
}

/// An id is a valid slug, but no service has this slug.
#[test]
fn template_rules_name_services_by_slug() {
    let problems = |slug: &str| {
        let services = Some(vec![ServiceSlug::parse(slug).unwrap()]);
        RuleKind::NewPayee(NewPayee { services })
            .validation_errors(&catalog())
            .len()
    };
    assert_eq!(
        [problems("s1"), problems("s9"), problems(&id(1).to_string())],
        [0, 1, 1]
    );
}

#[test]
fn only_single_service_keys_enable_a_service() {
    let problems = |key: TemplateKey| TemplateTerms::limit_errors(&key, &switch(true), &catalog()).len();
    assert_eq!(problems(TemplateKey::Service(id(1))), 0);
    assert_eq!(problems(TemplateKey::Every), 1);
    assert_eq!(
        TemplateTerms::limit_errors(&TemplateKey::Every, &switch(false), &catalog()),
        []
    );
}

#[test]
fn each_update_of_a_template_list_increases_its_version() {
    let [a, b] = ["a", "b"].map(|name| TemplateName::parse(name).unwrap());
    let [early, late] = [1, 2].map(|secs| Timestamp::from_secs(secs).unwrap());
    let entry = |version, edited_at| TemplateEntry { version, edited_at };
    let first = TemplateList::default()
        .with_template(&a, true, Some(true), early)
        .unwrap();
    let second = first.with_template(&b, true, None, late).unwrap();
    assert_eq!((second.version, second.default.as_ref()), (2, Some(&a)));
    assert_eq!(
        second.entries.values().copied().collect::<Vec<_>>(),
        [entry(1, early), entry(2, late)]
    );
    let third = second.with_template(&a, false, Some(false), late).unwrap();
    assert_eq!(
        (third.version, &third.default, third.entries[&a]),
        (3, &None, entry(1, early))
    );
    assert_eq!(
        third.with_template(&a, true, None, late).unwrap().entries[&a],
        entry(4, late)
    );
    assert_eq!(
        second
            .with_template(&b, false, Some(false), late)
            .unwrap()
            .default
            .as_ref(),
        Some(&a)
    );
    let (without_a, without_b) = (second.without_template(&a), second.without_template(&b));
    assert_eq!(
        (without_a.version, without_a.default, without_a.entries.len()),
        (3, None, 1)
    );
    assert_eq!(without_b.default, Some(a));
    let names = (0..TemplateList::MAX).map(|number| TemplateName::parse(&format!("t{number}")).unwrap());
    let full = names.fold(TemplateList::default(), |list, name| {
        list.with_template(&name, true, None, early).unwrap()
    });
    assert_eq!(full.with_template(&b, true, None, late), None);
}

#[test]
fn an_agent_lists_its_possibly_applied_template_versions() {
    let name = TemplateName::parse("t").unwrap();
    let apply = |version, before: &FollowedTemplate| {
        let template = PolicyTemplate {
            name: name.clone(),
            version,
            edited_at: Timestamp::EPOCH,
            terms: TemplateTerms::default(),
        };
        FollowedTemplate::for_template_being_applied(&template, Some(before))
    };
    let bases = |followed: &FollowedTemplate| followed.base_versions_for_merge().collect::<Vec<_>>();
    let named = FollowedTemplate::new(name.clone());
    assert_eq!((named.version(), bases(&named)), (None, vec![]));
    let applied = FollowedTemplate::fully_applied(name.clone(), 3);
    assert_eq!((applied.version(), bases(&applied)), (Some(3), vec![3, 3]));
    let services = FollowedTemplate {
        rules: Some(2),
        ..applied.clone()
    };
    assert_eq!((services.version(), bases(&services)), (None, vec![3, 2]));
    let begun = apply(5, &apply(4, &applied));
    assert_eq!((begun.version(), bases(&begun)), (None, vec![3, 3, 4, 5]));
    assert_eq!(apply(4, &begun).started_versions, [5, 4]);
    let many = (4..9).fold(applied, |followed, version| apply(version, &followed));
    assert_eq!(many.started_versions, [5, 6, 7, 8]);
}

#[test]
fn the_audit_fields_of_a_template_are_its_limits_and_rules() {
    let names = |template: &TemplateTerms| {
        template
            .audit_fields()
            .into_iter()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    };
    let mut template = terms(vec![(TemplateKey::Every, change(Some(1), None))]);
    assert_eq!(
        template.audit_fields(),
        [("services/*".to_owned(), json!({"max_per_call_units": 1}))]
    );
    template.rules = Some(vec![budget(1), payee()]);
    assert_eq!(names(&template), ["services/*", "rules/1", "rules/2"]);
    template.rules = Some(vec![]);
    assert_eq!(template.audit_fields()[1], ("rules".to_owned(), json!([])));
}

fn budget(limit: u64) -> RuleKind {
    RuleKind::BudgetLimit(BudgetLimit {
        limit: units(limit),
        window: Duration::DAY.into(),
    })
}

fn count(count: u32) -> RuleKind {
    RuleKind::CountLimit(CountLimit {
        count,
        window: Duration::DAY.into(),
    })
}

fn payee() -> RuleKind {
    RuleKind::NewPayee(NewPayee { services: None })
}

fn agent(rules: &[RuleKind]) -> Agent {
    let mut agent = Agent {
        id: AgentId::from_uuid(Uuid::nil()),
        name: "a".to_owned(),
        owner: "o".to_owned(),
        created_at: Timestamp::EPOCH,
        status: AgentStatus::Active,
        wallet: Wallet {
            key: WalletKey::Seed { index: 0 },
            address: Address::ZERO,
            attestation: WalletAttestation::from_bytes([0; 65]),
        },
        keys: Vec::new(),
        rules: Vec::new(),
        archived: false,
        labels: Labels::default(),
        starting_set: None,
        template: None,
        max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
        former_owners: Vec::new(),
        version: 1,
    };
    for (kind, number) in rules.iter().zip(1_u128..) {
        agent = agent
            .with_rule(RuleId::from_uuid(Uuid::from_u128(number)), kind.clone())
            .unwrap();
    }
    agent
}

/// Returns the rules after a merge, with the numbers of their ids, and the number of overrides.
fn rules(
    base: Option<&[RuleKind]>,
    own: &[RuleKind],
    new: Option<&[RuleKind]>,
    overrides: Overrides,
) -> (Vec<(u128, RuleKind)>, usize) {
    let of = |rules: &[RuleKind]| TemplateTerms {
        rules: Some(rules.to_vec()),
        ..TemplateTerms::default()
    };
    let followed = FollowedTemplate::fully_applied(TemplateName::parse("t").unwrap(), 1);
    let bases: BTreeMap<u64, TemplateTerms> = base.map(|base| (1, of(base))).into_iter().collect();
    let bases = TemplateBases {
        followed_template: Some(&followed),
        terms: Some(&bases),
    };
    let template = new.map_or_else(TemplateTerms::default, of);
    let ids = (100_u128..).map(|number| RuleId::from_uuid(Uuid::from_u128(number)));
    let (agent, differences) = merge_rules(&template, bases, agent(own), overrides, ids).unwrap();
    let rules = agent
        .rules
        .iter()
        .map(|rule| (rule.id.uuid().as_u128(), rule.kind.clone()));
    let overrides = differences.iter().filter(|difference| difference.is_override).count();
    (rules.collect(), overrides)
}

#[test]
fn rules_follow_the_template_unless_a_user_set_them() {
    use Overrides::{Keep, Overwrite};
    struct Row {
        base: Option<Vec<RuleKind>>,
        own: Vec<RuleKind>,
        new: Option<Vec<RuleKind>>,
        overrides: Overrides,
        expected: Vec<(u128, RuleKind)>,
        count: usize,
    }
    let row = |base: Option<&[RuleKind]>,
               own: &[RuleKind],
               new: &[RuleKind],
               overrides,
               expected: &[(u128, RuleKind)],
               count| Row {
        base: base.map(<[_]>::to_vec),
        own: own.to_vec(),
        new: Some(new.to_vec()),
        overrides,
        expected: expected.to_vec(),
        count,
    };
    let (ten, fifteen, twenty) = ([budget(10)], [budget(15)], [budget(20)]);
    let base = Some(&ten[..]);
    let each_payee = RuleKind::BudgetLimit(BudgetLimit {
        limit: units(10),
        window: RuleWindow {
            per_payee: true,
            ..Duration::DAY.into()
        },
    });
    let rows = [
        Row {
            new: None,
            ..row(base, &ten, &[], Overwrite, &[(1, budget(10))], 0)
        },
        // At the first application, a rule is added unless the agent has a rule that is as strict.
        row(None, &[], &ten, Keep, &[(100, budget(10))], 0),
        row(None, &twenty, &ten, Keep, &[(1, budget(20)), (100, budget(10))], 1),
        row(None, &ten, &twenty, Keep, &[(1, budget(10))], 1),
        row(None, &twenty, &ten, Overwrite, &[(1, budget(10))], 1),
        row(None, &[payee()], &ten, Keep, &[(1, payee()), (100, budget(10))], 1),
        row(None, &[payee()], &ten, Overwrite, &[(100, budget(10))], 1),
        // The rule is changed in place, and then removed.
        row(base, &ten, &twenty, Keep, &[(1, budget(20))], 0),
        row(base, &ten, &[], Keep, &[], 0),
        // For a different kind, the old rule is removed and the new rule added.
        row(base, &ten, &[count(3)], Keep, &[(100, count(3))], 0),
        // A budget for each payee starts with new windows.
        row(base, &ten, from_ref(&each_payee), Keep, &[(100, each_payee.clone())], 0),
        // A rule that a user changed or removed is neither changed nor restored.
        row(base, &fifteen, &twenty, Keep, &[(1, budget(15))], 1),
        row(base, &fifteen, &twenty, Overwrite, &[(1, budget(20))], 1),
        row(base, &[], &twenty, Keep, &[], 1),
        row(base, &[], &ten, Keep, &[], 1),
        row(base, &[], &ten, Overwrite, &[(100, budget(10))], 1),
        row(base, &fifteen, &[], Keep, &[(1, budget(15))], 1),
        row(base, &fifteen, &[], Overwrite, &[], 1),
        // A user's change to the template's value is not an override.
        row(base, &twenty, &twenty, Keep, &[(1, budget(20))], 0),
        // An equal rule keeps its position.
        row(
            Some(&[budget(10), budget(20)]),
            &[budget(10), budget(20)],
            &[budget(20), budget(30)],
            Keep,
            &[(1, budget(30)), (2, budget(20))],
            0,
        ),
    ];
    for row in rows {
        let Row {
            base,
            own,
            new,
            overrides,
            expected,
            count,
        } = row;
        assert_eq!(
            rules(base.as_deref(), &own, new.as_deref(), overrides),
            (expected.clone(), count),
            "{base:?} {own:?} {new:?} {overrides:?}"
        );
        // A second merge changes nothing.
        if let Some(new) = new {
            let after: Vec<RuleKind> = expected.into_iter().map(|(_, kind)| kind).collect();
            let (again, _) = rules(Some(&new), &after, Some(&new), overrides);
            assert_eq!(again.into_iter().map(|(_, kind)| kind).collect::<Vec<_>>(), after);
        }
    }
}

/// Who set a limit, according to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setter {
    Start,
    Template,
    Person,
}

#[derive(Clone, Debug)]
enum Step {
    /// The per-call and daily caps for service 1, for the service's category, and for all services.
    Edit([(Option<u64>, Option<u64>); 3]),
    /// Applies the template. `Some(n)` interrupts the application after `n` services.
    Apply(Overrides, Option<usize>),
    /// The service's index, whether the per-call (or the daily) cap is set, and the value.
    Person(usize, bool, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // The template's values are even and a user's values odd, so that the model can distinguish them.
    let value = || prop::option::of((1_u64..20).prop_map(|value| value * 2));
    let overrides = prop_oneof![3 => Just(Overrides::Keep), 1 => Just(Overrides::Overwrite)];
    let step = prop_oneof![
        prop::array::uniform3((value(), value())).prop_map(Step::Edit),
        (overrides, prop::option::weighted(0.3, 0_usize..3)).prop_map(|(overrides, end)| Step::Apply(overrides, end)),
        (0_usize..3, any::<bool>(), 1_u64..20).prop_map(|(service, call, value)| Step::Person(
            service,
            call,
            value * 2 + 1
        )),
    ];
    prop::collection::vec(step, 1..25)
}

proptest! {
    #[test]
    fn limits_follow_the_template_unless_a_user_set_them(steps in steps()) {
        let mut present: Vec<EnabledService> = [1, 2, 3].map(|number| starting().default_policy(id(number)).unwrap()).to_vec();
        let mut setters = [[Setter::Start; 2]; 3];
        let mut bases: BTreeMap<u64, TemplateTerms> = BTreeMap::new();
        let mut version = 1;
        bases.insert(1, TemplateTerms::default());
        let mut followed: Option<FollowedTemplate> = None;
        let mut begun = 0;
        for step in steps {
            match step {
                Step::Edit([one, category, every]) => {
                    version += 1;
                    let keys = [TemplateKey::Service(id(1)), TemplateKey::Category(Category::Ai), TemplateKey::Every];
                    let limits = [one, category, every].map(|(call, day)| change(call, day));
                    bases.insert(version, terms(keys.into_iter().zip(limits).collect()));
                }
                Step::Person(service, is_call, value) => {
                    let edit = if is_call { change(Some(value), None) } else { change(None, Some(value)) };
                    let record = &mut present[service];
                    record.policy = record.policy.clone().apply(&edit.policy);
                    record.version += 1;
                    setters[service][usize::from(!is_call)] = Setter::Person;
                }
                // At most four interrupted applications are stored.
                Step::Apply(_, Some(_)) if begun == 4 => {}
                Step::Apply(overrides, end) => {
                    let template = bases[&version].clone();
                    let merges = merged(&template, followed.as_ref(), &bases, &present, overrides);
                    let of = |service: ServiceId| {
                        let category = if service == id(3) { Category::Data } else { Category::Ai };
                        let change = template.limits_for_service(service, Some(category), true)?;
                        Some([change.policy.max_per_call, change.policy.max_per_day])
                    };
                    let edited: Vec<EnabledService> = merges.iter().filter_map(ServiceMerge::merged_policy_if_changed).collect();
                    let all = PolicyTemplate {
                        name: TemplateName::parse("t").unwrap(),
                        version,
                        edited_at: Timestamp::EPOCH,
                        terms: template.clone(),
                    };
                    let done: Vec<ServiceId> = match end {
                        None => [1, 2, 3].map(id).to_vec(),
                        Some(end) => edited.iter().take(end).map(|edited| edited.service).collect(),
                    };
                    let before: Vec<_> = present
                        .iter()
                        .map(|record| [record.policy.max_per_call, record.policy.max_per_day])
                        .collect();
                    for record in &mut present {
                        if let Some(edited) = edited.iter().find(|edited| edited.service == record.service && done.contains(&record.service)) {
                            prop_assert_eq!(edited.version, record.version);
                            *record = edited.clone();
                            record.version += 1;
                        }
                    }
                    for (place, record) in present.iter().enumerate() {
                        let is_done = done.contains(&record.service);
                        let values = [record.policy.max_per_call, record.policy.max_per_day];
                        let wanted = of(record.service).unwrap_or_default();
                        for member in 0..2 {
                            let setter = &mut setters[place][member];
                            match wanted[member] {
                                // An earlier version omitted the limit, and this version sets it again.
                                Some(wanted) if before[place][member] == wanted => {
                                    prop_assert_eq!(values[member], wanted);
                                    *setter = Setter::Template;
                                }
                                _ if !is_done => prop_assert_eq!(values[member], before[place][member]),
                                Some(wanted) if *setter != Setter::Person || overrides == Overrides::Overwrite => {
                                    prop_assert_eq!(values[member], wanted, "{} {}", place, member);
                                    *setter = Setter::Template;
                                }
                                // A limit that a version no longer sets counts as set by a user.
                                None if *setter == Setter::Template && end.is_none() => *setter = Setter::Person,
                                Some(_) | None => prop_assert_eq!(values[member], before[place][member]),
                            }
                        }
                    }
                    if end.is_some() {
                        followed = Some(FollowedTemplate::for_template_being_applied(&all, followed.as_ref()));
                        begun = followed.as_ref().unwrap().started_versions.len();
                    } else {
                        followed = Some(FollowedTemplate::fully_applied(all.name, version));
                        begun = 0;
                        let again = merged(&template, followed.as_ref(), &bases, &present, overrides);
                        prop_assert!(again.iter().all(|merge| merge.merged_policy_if_changed().is_none()), "{:?}", again);
                    }
                }
            }
        }
    }
}
