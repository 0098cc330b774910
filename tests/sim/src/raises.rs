//! An agent's requests for temporary limit increases.

use crate::run::{Begun, Run};
use purser_domain::{ApprovalId, Duration, Timestamp};
use serde_json::json;

impl Run {
    /// Requests a higher daily cap after a denial by the daily cap.
    pub(crate) async fn ask_for_more(&self, worker: usize, agent: u8, begun: Begun) -> String {
        let Some(refusal) = self.agents()[usize::from(agent)].refused_by_day.take() else {
            self.ended(worker);
            return "nothing refused".to_owned();
        };
        let until = Timestamp::from_micros(begun.clock).expect("an instant");
        let until = until.after(Duration::from_secs_u32(3_600));
        let body = json!({
            "transaction_id": refusal,
            "max_per_day_units": 3_000,
            "until": until.to_string(),
            "reason": "a busy day",
        });
        let key = self.key_of(agent, false);
        let by = (agent, key.as_str());
        let answer = self
            .call(worker, by, "POST", "/x402/raises", Some(body.to_string()))
            .await;
        let faults_seen = self.ended(worker);
        let Some(answer) = answer else {
            return "crashed".to_owned();
        };
        match (
            answer.status,
            answer.body["approval_id"].as_str().and_then(ApprovalId::parse),
        ) {
            (200, Some(id)) => self.agents()[usize::from(agent)].raise = Some(id),
            // The rejection is correct if the cap is already that high, or if the API key has expired or has a scope.
            (400 | 401 | 403 | 429, _) => {}
            _ if faults_seen.faults.is_empty() => self.world.complain(format!(
                "a request for a raise was answered {}: {}",
                answer.status, answer.body
            )),
            _ => {}
        }
        answer.status.to_string()
    }
}
