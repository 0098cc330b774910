//! Tests operators' actions in the browser, which need a recent sign-in and often a second operator.

use crate::operators::{Provider, SEEN_AFTER, STRANGER, at, disable_all, offer, pays};
use purser_domain::{Address, parse_address};
use purser_local::{CLIENT_ID, DEMO_OWNER, DEMO_STRANGER, DemoUser, Options};
use purser_testkit::Rng;
use purser_tests::{
    Answer, TestAgent, World, body_of, dollars, fresh_key, operation_entry, payment_entry, service_entry,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A user with the operators' claim who is not in `BROWSER_OPERATORS`.
const KIM: DemoUser = DemoUser {
    sub: "0b0c6a2e-7d1f-4f0e-8f5d-5a1f3c9e4d03",
    email: "kim@example.test",
    name: "Kim Third",
};
const RECENT_SECONDS: u32 = 600;
const FREEZES: &str = "/dashboard/operator/freezes";

/// Starts a stack in which all users have the operators' claim.
async fn office(more: &[(&str, &str)]) -> World {
    let everybody = [("OPERATOR_CLAIM", "aud"), ("OPERATOR_VALUE", CLIENT_ID)];
    let more = everybody.iter().chain(more);
    let environment: BTreeMap<String, String> = more
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    World::still_with(Options {
        environment,
        ..Options::default()
    })
    .await
}

/// A signed-in browser.
struct Browser<'a> {
    world: &'a World,
    cookie: String,
}

/// The response to a form.
#[derive(Debug)]
struct Posted {
    status: u16,
    location: String,
    html: String,
}

impl Posted {
    #[track_caller]
    fn is_done(&self, notice: &str) {
        assert_eq!(self.status, 303, "{}", self.html);
        let (location, _) = self.location.rsplit_once("&report=").unwrap();
        assert!(location.ends_with(&format!("notice={notice}")), "{location}");
    }

    #[track_caller]
    fn is_refused(&self, status: u16, words: &str) {
        assert_eq!(self.status, status, "{}", self.html);
        assert!(self.html.contains(words), "no `{words}` in {}", self.html);
    }
}

impl<'a> Browser<'a> {
    async fn sign_in(world: &'a World, user: &'static DemoUser) -> Self {
        let cookie = world.browser_session(user).await;
        Self { world, cookie }
    }

    async fn page(&self, path: &str) -> String {
        let url = format!("{}{path}", self.world.stack.base_url);
        let answer = self
            .world
            .http
            .get(url)
            .header("cookie", &self.cookie)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.text().await.unwrap()
    }

    /// Returns the form token of a page.
    async fn token(&self, path: &str) -> String {
        let page = self.page(path).await;
        let (_, rest) = page.split_once("name=\"form_token\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    /// Sends the page's first form with the action `path`, with its hidden fields and these fields.
    async fn sends(&self, on: &str, path: &str, fields: &[(&str, &str)]) -> Posted {
        let page = self.page(on).await;
        let (_, form) = page
            .split_once(&format!("action=\"{path}\""))
            .unwrap_or_else(|| panic!("no form for {path} in {page}"));
        let (form, _) = form.split_once("</form>").unwrap();
        let hidden = form.split("<input type=\"hidden\" name=\"").skip(1).map(|input| {
            let (name, rest) = input.split_once("\" value=\"").unwrap();
            (name, rest.split_once('"').unwrap().0)
        });
        let fields: Vec<(&str, &str)> = hidden
            .chain([("confirmed", "yes")])
            .chain(fields.iter().copied())
            .collect();
        self.posts(path, &fields).await
    }

    /// Posts a form, and advances the stopped clock, because the audit log sorts by time.
    async fn posts(&self, path: &str, fields: &[(&str, &str)]) -> Posted {
        self.world.pass(1);
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        let request = http
            .build()
            .unwrap()
            .post(format!("{}{path}", self.world.stack.base_url))
            .header("cookie", &self.cookie)
            .header("origin", &self.world.stack.base_url)
            .header("sec-fetch-site", "same-origin")
            .form(fields);
        let answer = request.send().await.unwrap();
        let location = answer
            .headers()
            .get("location")
            .map(|value| value.to_str().unwrap().to_owned());
        Posted {
            status: answer.status().as_u16(),
            location: location.unwrap_or_default(),
            html: answer.text().await.unwrap(),
        }
    }
}

/// Returns the newest entries of the operators' audit log: the operator, the kind, and the error.
async fn acts(world: &World, count: usize) -> Vec<(String, String, Value)> {
    let log = world.operator_gets("/internal/audit-log").await.ok();
    let rows = log["entries"].as_array().unwrap().iter().take(count);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    rows.map(|row| (text(&row["operator"]), text(&row["kind"]), row["error"].clone()))
        .collect()
}

fn act(who: &str, kind: &str, error: Option<&str>) -> (String, String, Value) {
    (who.to_owned(), kind.to_owned(), json!(error))
}

fn shown(address: &str) -> String {
    let address: Address = parse_address(address).unwrap();
    address.to_checksum(None)
}

/// A service whose provider requests payment to another payee, as a probe has observed.
struct Shop {
    provider: Provider,
    world: World,
    id: String,
    operation: String,
    url: String,
    agent: TestAgent,
}

impl Shop {
    async fn open(more: &[(&str, &str)]) -> Self {
        let provider = Provider::start().await;
        let allowed = provider.address.to_string();
        let more: Vec<_> = more
            .iter()
            .copied()
            .chain([("PROBE_ALLOWED_HOSTS", &*allowed)])
            .collect();
        let world = office(&more).await;
        disable_all(&world).await;
        let url = format!("{}/news", provider.url);
        let mut operation = operation_entry("news.read", &url);
        operation["payment"] = payment_entry(1_000, &world.stack.providers.pay_to);
        let id = world.enter(&service_entry("newcomer", &[operation.clone()])).await.0;
        world.pass(SEEN_AFTER);
        let agent = world.agent_of(&world.person(&DEMO_OWNER), "reader").await;
        provider.wants(offer(2_000, STRANGER));
        Self {
            provider,
            world,
            operation: operation["id"].as_str().unwrap().to_owned(),
            id,
            url,
            agent,
        }
    }

    fn page(&self) -> String {
        format!("/dashboard/operator/services/{}", self.id)
    }

    fn form(&self, what: &str) -> String {
        format!("{}/operations/{}/{what}", self.page(), self.operation)
    }

    /// Requests a probe of the service in the browser, and runs the probe.
    async fn probe(&self, browser: &Browser<'_>) {
        let page = self.page();
        browser
            .sends(&page, &format!("{page}/probe"), &[])
            .await
            .is_done("probe_requested");
        self.world.pass(1);
        let report = self.world.stack.probe.run_probes(Duration::from_mins(1)).await.unwrap();
        assert_eq!(report.dropped, 0);
    }

    /// Writes the service with this payment, with an operator token.
    async fn write(&self, pay_to: &str, units: u64) -> Value {
        let mut operation = operation_entry("news.read", &self.url);
        operation["id"] = json!(self.operation);
        operation["payment"] = payment_entry(units, pay_to);
        let entry = service_entry("newcomer", &[operation]);
        self.world.operator_edits(Method::PUT, &at(&self.id), &entry).await.ok()
    }

    async fn stored(&self) -> Value {
        self.world.operator_gets(&at(&self.id)).await.ok()["operations"][0].clone()
    }

    async fn pays(&self, units: u64, pay_to: &str) -> Answer {
        self.world.pass(SEEN_AFTER);
        pays(&self.world, &self.agent, units, pay_to, &self.url).await
    }
}

/// Only a second operator can put the payee into effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_payee_set_in_a_browser_waits_for_a_second_operator() {
    let shop = Shop::open(&[]).await;
    let world = &shop.world;
    let (ada_token, bob_token) = (world.stack.internal_token.clone(), "b".repeat(64));
    world.stack.set_operators(&[("ada", &ada_token), ("bob", &bob_token)]);
    world.pass(61);
    let (ada, bob) = (
        Browser::sign_in(world, &DEMO_OWNER).await,
        Browser::sign_in(world, &DEMO_STRANGER).await,
    );
    shop.probe(&ada).await;
    for page in ["/dashboard/operator/changes", &shop.page()] {
        let html = ada.page(page).await;
        assert!(
            html.contains(&shown(STRANGER)) && html.contains(&shown(&world.stack.providers.pay_to)),
            "{html}"
        );
    }
    // The operator accepts the payment that the probe observed.
    let unconfirmed = ada.posts(&shop.form("pin"), &[]).await;
    assert_eq!(unconfirmed.status, 403, "a form without its token");
    let other = [
        ("pay_to", "0x90F79bf6EB2c4f870365E785982E1f101E93b906"),
        ("confirmed", "yes"),
    ];
    let page = ada.page(&shop.page()).await;
    let token = page
        .split_once("name=\"form_token\" value=\"")
        .unwrap()
        .1
        .split('"')
        .next()
        .unwrap();
    let rest = [
        ("form_token", token),
        ("version", "1"),
        ("scheme", "exact"),
        ("network", "base-sepolia"),
        ("amount_units", "2000"),
    ];
    let unseen: Vec<_> = other.iter().chain(&rest).copied().collect();
    ada.posts(&shop.form("pin"), &unseen)
        .await
        .is_refused(412, "has changed since you opened the page");
    let unchecked: Vec<_> = rest.iter().copied().chain([("pay_to", STRANGER)]).collect();
    ada.posts(&shop.form("pin"), &unchecked)
        .await
        .is_refused(400, "Compare the payee and the price");
    assert_eq!(shop.stored().await["next"], Value::Null);

    ada.sends(&shop.page(), &shop.form("pin"), &[])
        .await
        .is_done("pin_awaits_second");
    let next = shop.stored().await["next"].clone();
    assert_eq!(
        (&next["by"], &next["from"], &next["payment"]),
        (
            &json!("browser:ada"),
            &json!("9999-12-31T23:59:59.999999Z"),
            &payment_entry(2_000, STRANGER)
        )
    );
    let refused = shop.pays(2_000, STRANGER).await.refused(403, "policy_blocked");
    assert_eq!(
        (&refused["decision"]["reason"], refused.get("retry_at")),
        (&json!("catalog_payee:pay_to_not_in_catalog"), None)
    );

    ada.sends(&shop.page(), &shop.form("accept"), &[])
        .await
        .is_refused(403, "you requested this change yourself");
    let path = format!("{}/operations/{}/accept-change", at(&shop.id), shop.operation);
    world.pass(1);
    let with_token = world.operators_request(Method::POST, &path).header("if-match", "\"2\"");
    World::send(with_token).await.refused(403, "second_operator_required");
    assert_eq!(
        acts(world, 3).await,
        [
            act("ada", "payment_change_accepted", Some("second_operator_required")),
            act(
                "browser:ada",
                "payment_change_accepted",
                Some("second_operator_required")
            ),
            act("browser:ada", "payment_pinned", None),
        ]
    );
    world.pass(30 * 86_400);
    shop.pays(2_000, STRANGER).await.refused(403, "policy_blocked");
    drop((ada, bob));
    let bob = Browser::sign_in(world, &DEMO_STRANGER).await;
    let html = bob.page(&shop.page()).await;
    assert!(
        html.contains("once another operator accepts it") && html.contains("browser:ada"),
        "{html}"
    );
    // The service was updated after Bob had opened the page.
    let curated = format!("{}/curated", at(&shop.id));
    for curated_now in [false, true] {
        let body = json!({"curated": curated_now});
        world.operator_edits(Method::PUT, &curated, &body).await.ok();
    }
    let stale = html
        .split_once("name=\"form_token\" value=\"")
        .unwrap()
        .1
        .split('"')
        .next()
        .unwrap();
    let stale = [("form_token", stale), ("version", "2"), ("confirmed", "yes")];
    bob.posts(&shop.form("accept"), &stale)
        .await
        .is_refused(412, "has changed since you opened the page");
    bob.sends(&shop.page(), &shop.form("accept"), &[])
        .await
        .is_done("change_accepted");
    assert_eq!(shop.stored().await["payment"], payment_entry(2_000, STRANGER));
    assert_eq!(
        acts(world, 1).await,
        [act("browser:bob", "payment_change_accepted", None)]
    );
    shop.pays(2_000, STRANGER).await.ok();
    drop(shop.provider);
}

/// After a repetition with a token, the change waits for the usual delay.
#[tokio::test(flavor = "multi_thread")]
async fn a_price_set_in_a_browser_can_be_set_again_with_a_token() {
    let shop = Shop::open(&[]).await;
    let world = &shop.world;
    let ada = Browser::sign_in(world, &DEMO_OWNER).await;
    shop.probe(&ada).await;
    ada.sends(&shop.page(), &shop.form("pin"), &[])
        .await
        .is_done("pin_awaits_second");
    world.pass(2 * 86_400);
    shop.write(STRANGER, 2_000).await;
    let next = shop.stored().await["next"].clone();
    let from = world.now().after(purser_domain::Duration::DAY);
    assert_eq!(
        (&next["by"], &next["from"]),
        (&json!("local"), &json!(from.to_string()))
    );
    shop.pays(2_000, STRANGER).await.refused(403, "policy_blocked");
    world.set_clock(from);
    shop.pays(2_000, STRANGER).await.ok();
}

/// Without the need for a second operator, the change waits for the usual delay.
#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_change_can_be_withdrawn_in_a_browser() {
    let shop = Shop::open(&[("SECOND_BROWSER_OPERATOR", "false")]).await;
    let world = &shop.world;
    let ada = Browser::sign_in(world, &DEMO_OWNER).await;
    shop.probe(&ada).await;
    ada.sends(&shop.page(), &shop.form("pin"), &[])
        .await
        .is_done("payment_pinned");
    let from = world.now().after(purser_domain::Duration::DAY);
    assert_eq!(shop.stored().await["next"]["from"], from.to_string());
    ada.sends(&shop.page(), &shop.form("accept"), &[])
        .await
        .is_refused(403, "you requested this change yourself");
    ada.sends(&shop.page(), &shop.form("withdraw"), &[])
        .await
        .is_done("change_withdrawn");
    assert_eq!(shop.stored().await["next"], Value::Null);
    assert_eq!(
        acts(world, 1).await,
        [act("browser:ada", "payment_change_withdrawn", None)]
    );
    world.pass(2 * 86_400);
    shop.pays(2_000, STRANGER).await.refused(403, "policy_blocked");
    shop.pays(1_000, &world.stack.providers.pay_to).await.ok();

    let version = shop.write(STRANGER, 1_000).await["version"].as_u64().unwrap();
    let path = format!("{}/operations/{}/withdraw-change", at(&shop.id), shop.operation);
    let withdraw = async |version: &str| {
        let request = world.operators_request(Method::POST, &path).header("if-match", version);
        World::send(request).await
    };
    withdraw("*").await.refused(400, "invalid_request");
    withdraw(&format!("\"{}\"", version - 1))
        .await
        .refused(412, "version_conflict");
    let version = format!("\"{version}\"");
    assert_eq!(withdraw(&version).await.ok()["operations"][0]["next"], Value::Null);
    withdraw("\"99\"").await.refused(412, "version_conflict");
}

#[tokio::test(flavor = "multi_thread")]
async fn ending_a_freeze_in_a_browser_needs_a_second_operator() {
    let world = office(&[]).await;
    let owner = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&owner, "buyer").await;
    let (ada, bob) = (
        Browser::sign_in(&world, &DEMO_OWNER).await,
        Browser::sign_in(&world, &DEMO_STRANGER).await,
    );
    let body = || body_of(world.offer(dollars(1)));
    let id = agent.id.to_string();
    let frozen = [("scope", "agent"), ("id", &*id), ("reason", "reported stolen")];
    let unknown = fresh_key();
    for (fields, status, words) in [
        (
            [("scope", "agent"), ("id", "x"), ("reason", "r")],
            400,
            "enter the agent’s ID",
        ),
        (
            [("scope", "owner"), ("id", &*id), ("reason", "r")],
            400,
            "enter the owner’s ID",
        ),
        (
            [("scope", "deployment"), ("id", &*id), ("reason", "r")],
            400,
            "leave it empty",
        ),
        (
            [("scope", "agent"), ("id", &*id), ("reason", " ")],
            400,
            "Reason: must be a text",
        ),
        (
            [("scope", "agent"), ("id", &*unknown), ("reason", "r")],
            404,
            "it does not exist",
        ),
    ] {
        ada.sends(FREEZES, FREEZES, &fields).await.is_refused(status, words);
    }
    ada.sends(FREEZES, FREEZES, &frozen).await.is_done("operator_froze");
    let refused = world.authorize(&agent, &body()).await.refused(403, "policy_blocked");
    assert_eq!(refused["decision"]["rule_triggered"], "agent_frozen");

    let end = format!("{FREEZES}/end");
    for _ in 0..2 {
        ada.sends(FREEZES, &end, &[]).await.is_done("unfreeze_awaits_second");
        world.authorize(&agent, &body()).await.refused(403, "policy_blocked");
    }
    assert!(bob.page(FREEZES).await.contains("browser:ada has ended it"));
    bob.sends(FREEZES, &end, &[]).await.is_done("operator_unfroze");
    world.authorize(&agent, &body()).await.ok();
    assert_eq!(
        acts(&world, 4).await,
        [
            act("browser:bob", "freeze_ended", None),
            act("browser:ada", "freeze_end_requested", None),
            act("browser:ada", "freeze_end_requested", None),
            act("browser:ada", "freeze_set", None),
        ]
    );
}

/// Returns the scopes of a freeze: the path for operators with a token, and the fields of the form.
async fn freeze_scopes(world: &World, agent: &TestAgent) -> [(String, [(&'static str, String); 2]); 3] {
    let owner = world.person_gets(&world.person(&DEMO_OWNER), "/sessions").await.ok();
    let owner = owner["person"].as_str().unwrap();
    let scopes = [
        (format!("agents/{}", agent.id), "agent", agent.id.to_string()),
        (format!("owners/{owner}"), "owner", owner.to_owned()),
        ("deployment".to_owned(), "deployment", String::new()),
    ];
    scopes.map(|(path, scope, id)| {
        let fields = [("scope", scope.to_owned()), ("id", id)];
        (format!("/internal/freezes/{path}"), fields)
    })
}

/// No form changes a freeze that was set with a token.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_freeze_cannot_be_changed_in_a_browser() {
    for second in ["true", "false"] {
        let world = office(&[("SECOND_BROWSER_OPERATOR", second)]).await;
        let agent = world.agent_of(&world.person(&DEMO_OWNER), "buyer").await;
        let browsers = [
            Browser::sign_in(&world, &DEMO_OWNER).await,
            Browser::sign_in(&world, &DEMO_STRANGER).await,
        ];
        for (path, fields) in freeze_scopes(&world, &agent).await {
            let [scope, id] = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
            // The token's freeze replaces the browser's freeze, and the request to end it.
            let fields = [scope, id, ("reason", "a look")];
            let [ada, _] = &browsers;
            ada.sends(FREEZES, FREEZES, &fields).await.is_done("operator_froze");
            let end = format!("{FREEZES}/end");
            if second == "true" {
                ada.sends(FREEZES, &end, &[]).await.is_done("unfreeze_awaits_second");
            }
            let reason = json!({"reason": "INCIDENT 7"});
            let set = world.operator_edits(Method::PUT, &path, &reason).await.ok();
            assert_eq!(set["freezes"][0]["operator"], "local");
            assert_eq!(set["freezes"][0]["end_requested_by"], Value::Null);
            for browser in &browsers {
                let name = if std::ptr::eq(browser, ada) {
                    "browser:ada"
                } else {
                    "browser:bob"
                };
                for (form, kind) in [(FREEZES, "freeze_set"), (&*end, "freeze_ended")] {
                    let token = browser.token(FREEZES).await;
                    let sent = [
                        ("form_token", &*token),
                        ("confirmed", "yes"),
                        scope,
                        id,
                        ("reason", "test"),
                    ];
                    let words = "can only be changed or ended with a token";
                    browser.posts(form, &sent).await.is_refused(403, words);
                    assert_eq!(acts(&world, 1).await, [act(name, kind, Some("token_required"))]);
                    assert_eq!(world.operator_gets("/internal/freezes").await.ok(), set);
                }
                let html = browser.page(FREEZES).await;
                assert!(html.contains("INCIDENT 7") && html.contains("with a token") && !html.contains(&end));
            }
            let refused = world.authorize(&agent, &body_of(world.offer(dollars(1)))).await;
            refused.refused(403, "policy_blocked");
            let ended = World::send(world.operators_request(Method::DELETE, &path)).await.ok();
            assert_eq!(ended["count"], 0);
        }
    }
}

/// A browser and a token change the same freeze concurrently, in random order. The token's freeze must stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_browser_request_cannot_end_a_freeze_that_a_token_sets_concurrently() {
    let world = office(&[("SECOND_BROWSER_OPERATOR", "false")]).await;
    let agent = world.agent_of(&world.person(&DEMO_OWNER), "buyer").await;
    let ada = Browser::sign_in(&world, &DEMO_OWNER).await;
    let end = format!("{FREEZES}/end");
    let mut rng = Rng::from_seed(56);
    for (path, fields) in freeze_scopes(&world, &agent).await {
        let [scope, id] = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
        for _ in 0..6 {
            let begin = [scope, id, ("reason", "a look")];
            ada.sends(FREEZES, FREEZES, &begin).await.is_done("operator_froze");
            let token = ada.token(FREEZES).await;
            let sent = [
                ("form_token", &*token),
                ("confirmed", "yes"),
                scope,
                id,
                ("reason", "test"),
            ];
            let [form, other] = if rng.below(2) == 0 {
                [FREEZES, &*end]
            } else {
                [&*end, FREEZES]
            };
            let reason = json!({"reason": "INCIDENT 7"});
            let delays = [rng.below(4), rng.below(4)].map(Duration::from_millis);
            let browser = async {
                tokio::time::sleep(delays[0]).await;
                ada.posts(form, &sent).await
            };
            let operator = async {
                tokio::time::sleep(delays[1]).await;
                world.operator_edits(Method::PUT, &path, &reason).await.ok()
            };
            let (posted, _) = tokio::join!(browser, operator);
            assert!([303, 403].contains(&posted.status), "{form}: {}", posted.html);
            let set = world.operator_gets("/internal/freezes").await.ok();
            let [freeze] = &set["freezes"].as_array().unwrap()[..] else {
                panic!("{form} {delays:?}: {set}");
            };
            assert_eq!(
                (&freeze["operator"], &freeze["reason"], &freeze["scope"]),
                (&json!("local"), &json!("INCIDENT 7"), &json!(scope.1)),
                "{form} {delays:?}"
            );
            let paid = world.authorize(&agent, &body_of(world.offer(dollars(1)))).await;
            paid.refused(403, "policy_blocked");
            let words = "can only be changed or ended with a token";
            ada.posts(other, &sent).await.is_refused(403, words);
            let ended = World::send(world.operators_request(Method::DELETE, &path)).await.ok();
            assert_eq!(ended["count"], 0);
        }
    }
}

/// A second operator's confirmation ends only the freeze whose end was requested.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_freeze_discards_an_earlier_request_to_end_it() {
    let world = office(&[]).await;
    let agent = world.agent_of(&world.person(&DEMO_OWNER), "buyer").await;
    let ada = Browser::sign_in(&world, &DEMO_OWNER).await;
    let bob = Browser::sign_in(&world, &DEMO_STRANGER).await;
    let end = format!("{FREEZES}/end");
    for (_, fields) in freeze_scopes(&world, &agent).await {
        let [scope, id] = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
        let begin = [scope, id, ("reason", "stolen")];
        ada.sends(FREEZES, FREEZES, &begin).await.is_done("operator_froze");
        ada.sends(FREEZES, &end, &[]).await.is_done("unfreeze_awaits_second");
        let again = [scope, id, ("reason", "not yet")];
        bob.sends(FREEZES, FREEZES, &again).await.is_done("operator_froze");
        bob.sends(FREEZES, &end, &[]).await.is_done("unfreeze_awaits_second");
        let freezes = world.operator_gets("/internal/freezes").await.ok();
        assert_eq!(freezes["freezes"][0]["reason"], "not yet");
        assert_eq!(freezes["freezes"][0]["end_requested_by"], "browser:bob");
        let log = world.operator_gets("/internal/audit-log?kind=freeze_set").await.ok();
        let before = json!({"reason": "stolen", "operator": "browser:ada", "end_asked_by": "browser:ada"});
        assert_eq!(log["entries"][0]["before"], before);
        ada.sends(FREEZES, &end, &[]).await.is_done("operator_unfroze");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ownership_offer_in_a_browser_needs_two_operators() {
    let world = office(&[]).await;
    let (owner, kim) = (world.person(&DEMO_OWNER), world.person(&KIM));
    let agent = world.agent_of(&owner, "buyer").await;
    let paid = world.authorize(&agent, &body_of(world.offer(dollars(1)))).await.ok();
    let to = world.person_gets(&kim, "/sessions").await.ok()["person"]
        .as_str()
        .unwrap()
        .to_owned();
    let (ada, bob) = (
        Browser::sign_in(&world, &DEMO_OWNER).await,
        Browser::sign_in(&world, &DEMO_STRANGER).await,
    );
    let page = format!("/dashboard/operator/agents?q={}", agent.id);
    let form = |what: &str| format!("/dashboard/operator/agents/{}/{what}", agent.id);
    let offered = async || world.person_gets(&kim, "/handovers").await.ok()["count"].clone();
    let fields = [("to", &*to), ("reason", "their predecessor has left")];
    ada.sends(&page, &form("offer"), &[("to", "kim"), ("reason", "r")])
        .await
        .is_refused(400, "enter the person’s ID");
    for _ in 0..2 {
        ada.sends(&page, &form("offer"), &fields)
            .await
            .is_done("offer_awaits_second");
        assert_eq!(offered().await, 0);
    }
    // An offer to another user is no confirmation.
    let other = "c".repeat(64);
    bob.sends(&page, &form("offer"), &[("to", &other), ("reason", "r")])
        .await
        .is_done("offer_awaits_second");
    ada.sends(&page, &form("offer"), &fields)
        .await
        .is_done("offer_awaits_second");
    assert!(
        bob.page(&page)
            .await
            .contains("once another operator makes the same offer")
    );
    bob.sends(&page, &form("offer"), &fields).await.is_done("agent_offered");
    assert_eq!(offered().await, 1);
    ada.sends(&page, &form("withdraw-offer"), &[])
        .await
        .is_done("offer_withdrawn");
    assert_eq!(offered().await, 0);

    let settlement = paid["settlement_id"].as_str().unwrap();
    ada.sends(&page, &form("reconcile"), &[("settlement", settlement)])
        .await
        .is_done("reconcile_requested");
    ada.sends(&page, &form("reconcile"), &[("settlement", &fresh_key())])
        .await
        .is_refused(404, "it does not exist");
    assert_eq!(
        acts(&world, 2).await,
        [
            act("browser:ada", "reconcile_requested", None),
            act("browser:ada", "handover_taken_back", None),
        ]
    );
}

/// An operator needs the claim, an entry in the list, a recent sign-in and a registered name.
#[tokio::test(flavor = "multi_thread")]
async fn browser_actions_need_a_registered_operator_with_recent_sign_in() {
    let world = office(&[]).await;
    let freeze = [("scope", "deployment"), ("id", ""), ("reason", "a test")];
    let kim = Browser::sign_in(&world, &KIM).await;
    kim.sends(FREEZES, FREEZES, &freeze)
        .await
        .is_refused(403, "does not list your account");
    let bob = Browser::sign_in(&world, &DEMO_STRANGER).await;
    world.pass(RECENT_SECONDS);
    let posted = bob.sends(FREEZES, FREEZES, &freeze).await;
    assert_eq!(posted.status, 303);
    assert!(posted.location.starts_with("/dashboard/sign-in"), "{}", posted.location);
    let log = world
        .person_gets(&world.person(&DEMO_STRANGER), "/audit-log")
        .await
        .ok();
    assert_eq!(
        (&log["entries"][0]["kind"], &log["entries"][0]["error"]),
        (&json!("freeze_set"), &json!("recent_sign_in_required"))
    );
    let token = world.stack.internal_token.clone();
    world.stack.set_operators(&[("local", &token)]);
    world.pass(61);
    let bob = Browser::sign_in(&world, &DEMO_STRANGER).await;
    bob.sends(FREEZES, FREEZES, &freeze)
        .await
        .is_refused(403, "does not list your account");
    assert_eq!(world.operator_gets("/internal/freezes").await.ok()["count"], 0);
    let log = world.operator_gets("/internal/audit-log?kind=freeze_set").await.ok();
    assert_eq!(log["entries"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn registered_users_without_the_operator_claim_are_not_operators() {
    let world = World::still().await;
    let bob = Browser::sign_in(&world, &DEMO_STRANGER).await;
    let page = bob.page("/dashboard/sessions").await;
    let token = page
        .split_once("name=\"form_token\" value=\"")
        .unwrap()
        .1
        .split('"')
        .next()
        .unwrap();
    let fields = [
        ("form_token", token),
        ("scope", "deployment"),
        ("reason", "r"),
        ("confirmed", "yes"),
    ];
    bob.posts(FREEZES, &fields)
        .await
        .is_refused(404, "This page does not exist");
}

/// A compromised `people` can send any direct request to `internal`, for any operator in a browser.
#[tokio::test(flavor = "multi_thread")]
async fn direct_requests_reach_no_route_that_creates_or_opens_services() {
    let world = office(&[]).await;
    let (id, entered) = world.enter(&service_entry("newcomer", &[])).await;
    let environment = &world.stack.environment;
    let (_, user) = environment["BROWSER_OPERATORS"]
        .split(',')
        .next()
        .unwrap()
        .split_once('=')
        .unwrap();
    let user = json!({"id": user, "request_id": "r"});
    let url = format!(
        "{}/2015-03-31/functions/InternalFunction/invocations",
        environment["LAMBDA_ENDPOINT"]
    );
    let send = async |method: &str, path: &str, user: &Value, body: Value| {
        let request = json!({"method": method, "path": path, "user": user, "if_match": 1, "body": body});
        let event = json!({"version": 1, "caller": {"request_id": "r", "trace_id": "t"}, "request": request});
        let response: Value = world
            .http
            .post(&url)
            .header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=PeopleFunction/20261121/us-east-1/lambda/aws4_request",
            )
            .json(&event)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        response["statusCode"].clone()
    };
    let service = format!("/internal/services/{id}");
    for (method, path, body) in [
        ("PUT", service.clone(), service_entry("replaced", &[])),
        (
            "PUT",
            format!("/internal/services/{}", fresh_key()),
            service_entry("created", &[]),
        ),
        ("PUT", format!("{service}/curated"), json!({"curated": true})),
        (
            "PUT",
            format!("{service}/trust-status"),
            json!({"trust_status": "trusted"}),
        ),
        ("GET", service.clone(), Value::Null),
        ("GET", "/internal/services".to_owned(), Value::Null),
        ("GET", "/internal/audit-log".to_owned(), Value::Null),
    ] {
        let status = send(method, &path, &user, body).await;
        assert!(
            [404, 405].contains(&status.as_u64().unwrap()),
            "{method} {path}: {status}"
        );
    }
    let read = world.operator_gets(&service).await.ok();
    assert_eq!(read["version"], entered["version"]);

    // The same request reaches a route that the pages need, but only for an operator.
    let freeze = json!({"reason": "a test"});
    let freeze = async |user: &Value| send("PUT", "/internal/freezes/deployment", user, freeze.clone()).await;
    assert_eq!(freeze(&Value::Null).await, 401);
    assert_eq!(freeze(&json!({"id": "0".repeat(64), "request_id": "r"})).await, 403);
    assert_eq!(freeze(&user).await, 200);
}
