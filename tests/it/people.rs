//! Tests users' management of their agents. A change applies once it has a response.

mod agents;
mod approvals;
mod audit;
mod backtests;
mod brakes;
mod edits;
mod history;
mod keys;
mod limits;
mod log;
mod notices;
mod preview;
mod raises;
mod replay;
mod runs;
mod scopes;
mod services;
mod shadow;
mod statements;
mod throttle;
mod usage;
mod versions;
mod webhooks;

use purser_local::DemoUser;
use purser_testkit::{Fate, Moment, Proxy};
use purser_tests::{Answer, Person, TestAgent, World};
use reqwest::Method;
use serde_json::{Value, json};

/// A user without agents.
const KIM: DemoUser = DemoUser {
    sub: "0b0c6a2e-7d1f-4f0e-8f5d-5a1f3c9e4d03",
    email: "kim@example.test",
    name: "Kim Third",
};

/// A second user without agents.
const LEE: DemoUser = DemoUser {
    sub: "c3f6d1a8-2b94-4e07-a6c1-91e0b7d85f04",
    email: "lee@example.test",
    name: "Lee Fourth",
};

/// The changed rows if nothing is written.
const NOTHING: [String; 0] = [];

/// A stack, a user, and an agent that the user created.
struct Household {
    world: World,
    kim: Person,
    agent: TestAgent,
}

impl Household {
    async fn in_world(world: World) -> Self {
        let kim = world.person(&KIM);
        let agent = world.agent_of(&kim, "errand runner").await;
        Self { world, kim, agent }
    }

    async fn read(&self, below: &str) -> Value {
        self.world.person_gets(&self.kim, &self.agent.path(below)).await.ok()
    }

    /// Sends a write to a path below the agent's path, without a version check.
    async fn edit(&self, method: Method, below: &str, body: Value) -> Answer {
        let path = self.agent.path(below);
        self.world.person_edits(&self.kim, method, &path, &body).await
    }

    async fn set_policy(&self, policy: Value) -> Value {
        self.edit(Method::PATCH, "/services/lab-search", policy).await.ok()
    }

    async fn set_status(&self, status: &str) -> Value {
        self.edit(Method::PATCH, "", json!({"status": status})).await.ok()
    }

    /// Transfers the agent to another user, who accepts.
    async fn hand_over_to(&self, person: &Person) {
        self.offer_to(person).await;
        self.accept(person).await.ok();
    }

    async fn offer_to(&self, person: &Person) {
        let world = &self.world;
        let to = world.person_gets(person, "/sessions").await.ok()["person"].clone();
        let path = format!("/internal/agents/{}/handover", self.agent.id);
        let offer = world.operators_request(Method::PUT, &path);
        World::send(offer.json(&json!({"to": to, "reason": "moved to another team"})))
            .await
            .ok();
    }

    async fn accept(&self, person: &Person) -> Answer {
        let path = format!("/handovers/{}/accept", self.agent.id);
        World::send(self.world.persons_request(person, Method::POST, &path)).await
    }

    /// Advances the stopped clock by a day, and signs Kim in again.
    fn pass_a_day(&mut self) {
        self.world.pass(24 * 3_600);
        self.kim = self.world.person(&KIM);
    }
}

/// Rejects later writes of the agent's version to windows, so that an update is stored but not completed.
fn deny_stamps(proxy: &Proxy) {
    proxy.follow(|step| {
        let stamps = step.moment == Moment::Arrived && step.call == "TransactWriteItems LedgerTable";
        let denied = json!({"__type": "com.amazonaws.dynamodb.v20120810#AccessDeniedException", "message": "no"});
        if stamps {
            Fate::Answer(400, denied)
        } else {
            Fate::PassOn
        }
    });
}

/// Returns the body with this approval's id.
fn carrying(body: &Value, approval: &Value) -> Value {
    let mut body = body.clone();
    body["approval_id"] = approval.clone();
    body
}

fn members(object: &Value) -> Vec<&String> {
    object.as_object().expect("an object").keys().collect()
}
