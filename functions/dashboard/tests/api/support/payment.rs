//! What an agent asks for meanwhile: the decision and its reservation or record, without HTTP or a signature.

use super::{World, service, service_id};
use purser_domain::{
    AgentId, ApprovalId, Decision, DecisionRecord, Duration, Eviction, Facts, Fingerprint, Intent, Network, Offer,
    ProviderRequest, SettlementId, Terms, TransactionId, Url, evaluate,
};
use purser_store::{Ask, Escalated, Patience, Reserved};
use serde_json::json;

/// What the agent is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Allowed(SettlementId, TransactionId),
    Blocked(TransactionId),
    Waits(ApprovalId),
}

impl World {
    /// The agent asks to pay so much to `lab`, under that idempotency key.
    pub async fn pay(&self, agent: &str, amount: u64, key: &str) -> Told {
        let id = AgentId::parse(agent).unwrap();
        let intent = intent(amount, key);
        let idempotency_key = Fingerprint::of_text(key);
        let ask = Ask {
            agent: id,
            service: Some(service_id(1)),
            key: Some(idempotency_key),
            approval: None,
        };
        let snapshot = self.ledger.snapshot(&ask).await.unwrap();
        let (agent, standing) = (snapshot.agent.as_ref().unwrap(), snapshot.standing.as_ref().unwrap());
        let at = self.now();
        let decision = evaluate(&Facts {
            agent,
            intent: &intent,
            offer: &intent.offer,
            service: &service(1, "lab", true),
            operation: None,
            enabled: standing.enabled.as_ref(),
            day: &standing.day,
            budgets: &standing.budgets,
            approval: None,
            balance: None,
            at,
            eviction: Eviction::Eager,
        });
        let transaction = TransactionId::at(at, purser_api::random().unwrap());
        let denial = match decision {
            Decision::Allow(grant) => {
                let terms = Terms {
                    id: SettlementId::at(at, purser_api::random().unwrap()),
                    transaction,
                    agent: id,
                    wallet: agent.wallet.address,
                    service: service_id(1),
                    operation: None,
                    network: Network::BaseSepolia,
                    amount: intent.offer.amount(),
                    pay_to: intent.offer.pay_to(),
                    authorized_at: at,
                    valid_before: at.after(Duration::from_secs_u32(60)),
                    x402_version: intent.offer.version(),
                    offer_index: intent.offer.index(),
                    policy_version: grant.policy_version(),
                    budgets: grant
                        .charges()
                        .iter()
                        .filter_map(|charge| charge.scope.budget())
                        .collect(),
                    idempotency_key,
                    approval: None,
                    checks: grant.checks().to_vec(),
                };
                let mut patience = Patience::new();
                let reserved = self
                    .ledger
                    .reserve(&grant, &terms, &intent.fingerprint, &mut patience)
                    .await;
                assert!(matches!(reserved.unwrap(), Reserved::Done));
                return Told::Allowed(terms.id, transaction);
            }
            Decision::Refuse(denial) => denial,
            Decision::NeedsTarget => panic!("no target is needed"),
        };
        let record = DecisionRecord {
            transaction,
            agent: id,
            owner: agent.owner.clone(),
            service: service_id(1),
            operation: None,
            amount: intent.offer.amount(),
            pay_to: intent.offer.pay_to(),
            fingerprint: intent.fingerprint,
            at,
            reason: denial.reason.clone(),
            policy_version: denial.policy_version,
            approval: None,
            checks: denial.checks.clone(),
            latency_ms: 7,
        };
        if denial.escalates() {
            let staged = self
                .ledger
                .escalate(&idempotency_key, &record, at.after(Duration::DAY))
                .await;
            return match staged.unwrap() {
                Escalated::Staged(approval) | Escalated::Joined(approval) => Told::Waits(approval.id),
                Escalated::Prior(prior) => panic!("{prior:?}"),
            };
        }
        self.ledger.record(&record).await.unwrap();
        Told::Blocked(transaction)
    }
}

fn intent(amount: u64, body: &str) -> Intent {
    let offer = json!({
        "scheme": "exact",
        "network": "base-sepolia",
        "maxAmountRequired": amount.to_string(),
        "resource": "https://lab.example/pay",
        "description": "",
        "mimeType": "application/json",
        "payTo": "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc",
        "maxTimeoutSeconds": 60,
        "asset": Network::BaseSepolia.token().address.to_string(),
        "extra": { "name": "USDC", "version": "2" },
    });
    Intent {
        offer: Offer::choose(&json!({ "x402Version": 1, "accepts": [offer] }), Network::BaseSepolia).unwrap(),
        max_payment: purser_domain::Amount::MAX,
        request: ProviderRequest {
            method: "GET".to_owned(),
            url: Url::parse("https://lab.example/pay").unwrap(),
        },
        service: None,
        operation: None,
        target: None,
        fingerprint: Fingerprint::of_text(&format!("{amount} {body}")),
    }
}
