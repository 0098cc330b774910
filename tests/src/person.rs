//! The users and operators in the tests. Users send a session token, and operators an operator token.

use crate::{Answer, TestAgent, World, dollars};
use purser_domain::AgentId;
use purser_local::DemoUser;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A signed-in user.
#[derive(Clone)]
pub struct Person {
    /// The user's session token.
    pub token: String,
}

impl World {
    /// Signs a user in.
    pub fn person(&self, user: &DemoUser) -> Person {
        Person {
            token: self.stack.issuer.token(user),
        }
    }

    /// Signs the user in with a browser and returns the `cookie` header.
    pub async fn browser_session(&self, user: &'static DemoUser) -> String {
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        let http = http.build().expect("a client");
        let cookie = |answer: &reqwest::Response| {
            let set = answer.headers().get_all("set-cookie").iter();
            let mut set = set.filter_map(|value| value.to_str().ok()?.split(';').next());
            set.find(|pair| !pair.ends_with('=')).expect("a cookie").to_owned()
        };
        let start = format!("{}/dashboard/sign-in/start", self.stack.base_url);
        let started = http.get(start).send().await.expect("an answer");
        let question = started.headers()["location"].to_str().expect("a text");
        let back = self.stack.issuer.redirect_with_code(question, user).expect("a code");
        let back = http.get(back).header("cookie", cookie(&started));
        cookie(&back.send().await.expect("an answer"))
    }

    /// Creates a webhook whose host does not resolve, and a failed delivery. Returns both ids.
    pub async fn webhook_of(&self, person: &Person) -> (String, String) {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let body = json!({"url": "https://hooks.example.invalid/purser"});
        let made = self
            .person_edits(person, Method::POST, "/webhooks", &body)
            .await
            .created();
        let path = format!("/webhooks/{}", text(&made["webhook_id"]));
        let test = self
            .person_edits(person, Method::POST, &format!("{path}/test"), &json!({}))
            .await;
        assert_eq!(test.status, 202, "{}", test.body);
        let id = text(&test.body["delivery_id"]);
        self.delivery_where(person, &path, |delivery| delivery["attempts"] == 1)
            .await;
        (text(&made["webhook_id"]), id)
    }

    /// Starts a backtest of the user's agents without any change of limits. Returns its id.
    pub async fn backtest_of(&self, person: &Person) -> String {
        let body = json!({"agents": {"kind": "all"}});
        let started = self.person_edits(person, Method::POST, "/backtests", &body).await;
        assert_eq!(started.status, 202, "{}", started.body);
        started.body["backtest_id"].as_str().expect("a text").to_owned()
    }

    /// Waits until the webhook's newest delivery satisfies `wanted`, and returns the delivery.
    pub async fn delivery_where(&self, person: &Person, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let listed = self.person_gets(person, &format!("{path}/deliveries")).await.ok();
            let newest = &listed["deliveries"][0];
            if !newest.is_null() && wanted(newest) {
                return newest.clone();
            }
            assert!(Instant::now() < deadline, "not in time: {listed}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the id of the user's newest session.
    pub async fn newest_session(&self, person: &Person) -> String {
        let listed = self.person_gets(person, "/sessions").await.ok();
        listed["sessions"][0]["session_id"]
            .as_str()
            .expect("a session")
            .to_owned()
    }

    /// Sends a GET request as the user.
    pub async fn person_gets(&self, person: &Person, path: &str) -> Answer {
        self.call(Method::GET, path, Some(&person.token), None).await
    }

    /// Sends a write request as the user, without a version check.
    pub async fn person_edits(&self, person: &Person, method: Method, path: &str, body: &Value) -> Answer {
        self.person_edits_version(person, method, path, "*", body).await
    }

    /// Sends a write request as the user. `if_match` is the expected version.
    pub async fn person_edits_version(
        &self,
        person: &Person,
        method: Method,
        path: &str,
        if_match: &str,
        body: &Value,
    ) -> Answer {
        Self::send(self.persons_edit(person, method, path, if_match).json(body)).await
    }

    /// Returns a write request of the user that has not been sent.
    pub fn persons_edit(&self, person: &Person, method: Method, path: &str, if_match: &str) -> RequestBuilder {
        self.persons_request(person, method, path).header("if-match", if_match)
    }

    /// Returns a request of the user that has not been sent.
    pub fn persons_request(&self, person: &Person, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.stack.base_url));
        request.bearer_auth(&person.token)
    }

    /// Creates an agent of the user, with an API key, a balance, and the curated services without limits.
    pub async fn agent_of(&self, person: &Person, name: &str) -> TestAgent {
        let made = self
            .person_edits(person, Method::POST, "/agents", &json!({"name": name}))
            .await
            .created();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let id = text(&made["agent_id"]);
        let keys = format!("/agents/{id}/keys");
        let key = self
            .person_edits(person, Method::POST, &keys, &json!({}))
            .await
            .created();
        let agent = TestAgent {
            id: AgentId::parse(&id).expect("an id"),
            key: text(&key["key"]),
            wallet: text(&made["wallet_address"]),
        };
        self.fund(&agent, dollars(10_000)).await;
        agent
    }

    /// Reads all items of a user's list in pages of `limit`. Returns the items and the number of pages.
    pub async fn pages_of(&self, person: &Person, path: &str, of: &str, limit: usize) -> (Vec<Value>, usize) {
        let (mut found, mut pages, mut next) = (Vec::new(), 0, String::new());
        let sign = if path.contains('?') { '&' } else { '?' };
        loop {
            let page = format!("{path}{sign}limit={limit}{next}");
            let page = self.person_gets(person, &page).await.ok();
            let items = page[of].as_array().expect("a list");
            assert_eq!(page["count"], items.len());
            assert!(items.len() <= limit, "{path}: {} on a page of {limit}", items.len());
            found.extend(items.iter().cloned());
            pages += 1;
            assert!(pages < 1_000, "{path} does not end");
            match page["next_cursor"].as_str() {
                Some(cursor) => next = format!("&cursor={cursor}"),
                None => return (found, pages),
            }
        }
    }

    /// Sends a GET request as an operator.
    pub async fn operator_gets(&self, path: &str) -> Answer {
        Self::send(self.operators_request(Method::GET, path)).await
    }

    /// Sends a write request as an operator, without a version check.
    pub async fn operator_edits(&self, method: Method, path: &str, body: &Value) -> Answer {
        let request = self.operators_request(method, path).header("if-match", "*");
        Self::send(request.json(body)).await
    }

    /// Returns a request of an operator that has not been sent.
    pub fn operators_request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.stack.base_url));
        request.header("x-internal-token", &self.stack.internal_token)
    }
}
