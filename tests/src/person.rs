//! People in the tests: they call as a browserless client does, with a session token of the stack's own issuer.

use crate::{Answer, World};
use purser_local::DemoUser;
use reqwest::Method;
use serde_json::Value;

/// A signed-in person.
pub struct Person {
    /// Their session token.
    pub token: String,
}

impl World {
    /// A person who signs in now.
    pub fn person(&self, user: &DemoUser) -> Person {
        Person {
            token: self.stack.issuer.token(user).expect("a token"),
        }
    }

    /// GET as that person.
    pub async fn person_gets(&self, person: &Person, path: &str) -> Answer {
        self.call(Method::GET, path, Some(&person.token), None).await
    }

    /// A write as that person, whatever the version is by now.
    pub async fn person_edits(&self, person: &Person, method: Method, path: &str, body: &Value) -> Answer {
        self.person_edits_version(person, method, path, "*", body).await
    }

    /// A write as that person, if the version is still the one they saw.
    pub async fn person_edits_version(
        &self,
        person: &Person,
        method: Method,
        path: &str,
        if_match: &str,
        body: &Value,
    ) -> Answer {
        let request = self.http.request(method, format!("{}{path}", self.stack.base_url));
        let request = request.bearer_auth(&person.token).header("if-match", if_match);
        Self::send(request.json(body)).await
    }
}
