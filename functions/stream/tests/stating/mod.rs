//! An agent's decisions and payments, with statements in a log and an archive. Both are in folders.

#![allow(
    clippy::panic,
    dead_code,
    reason = "each of the tests uses a part of it, and stops where its ground is missing"
)]

use purser_api::{Boot, Clock, Env};
use purser_domain::{
    Agent, AgentStatus, Approval, ApprovalId, ApprovalResolution, Fingerprint, LabelKey, LabelValue, Labels, Purpose,
    SettlementId, SettlementTerms, Timestamp, TransactionId, UserId, WithdrawalAmount, WithdrawalInputs,
    WithdrawalPurpose, decide_withdrawal,
};
use purser_store::{
    ApprovalDecision, Backoff, Claim, Ledger, ReserveWithdrawalResult, ResolveResult, TransitionResult,
};
use purser_stream::{Events, History};
use purser_testkit::{
    Emulator, EventBus, Kms, Proxy, ProxyConfig, SecretsManager, Streams,
    authorize::{Answer, Request, authorize},
    environment, journal_event, sample,
};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// The agent's name and a label. No statement may contain them.
pub(crate) const NAMES: [&str; 2] = ["Zora Neale's assistant", "Eatonville"];

/// The name of the log.
pub(crate) const ORIGIN: &str = "sample.example/log";
const SECRET_ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:StatementsKeySecret";
/// The secret of the published sample. It is public, so anybody can sign with the sample's keys.
const SECRET: &str = "the keys of the published sample: sign nothing else by them";
pub(crate) const TIME: Duration = Duration::from_secs(55);

/// The Lambda functions `history` and `events`, with folders for the log and the archive.
pub(crate) struct Stating {
    ledger: Ledger,
    streams: Streams,
    variables: Vec<(&'static str, String)>,
    clock: Arc<AtomicI64>,
    /// The KMS keys that may sign statements.
    pub(crate) kms: Kms,
    secrets: SecretsManager,
    /// Counts the functions' calls to the database.
    pub(crate) database: Proxy,
    pub(crate) emulator: Emulator,
}

impl Stating {
    /// Starts with an agent that may spend 1,000 a day. `folder` will contain `log` and `archive`.
    pub(crate) async fn start(folder: &Path) -> Self {
        let (emulator, streams) = Emulator::with_streams().await;
        let kms = Kms::default();
        let secrets = SecretsManager::new([(SECRET_ARN, SECRET)]);
        let secrets_url = secrets.serve().await;
        let place = |name: &str| format!("folder:{}", folder.join(name).display());
        let database = Proxy::start(emulator.url.clone(), ProxyConfig::default()).await;
        let variables = environment(&database.url, &secrets_url).chain([
            ("EVENT_BUS", "purser".to_owned()),
            ("EVENTBRIDGE_ENDPOINT", EventBus::new("purser").serve().await),
            ("KMS_ENDPOINT", kms.serve().await),
            ("STACK", "sample".to_owned()),
            ("NETWORK", "base-sepolia".to_owned()),
            ("LOG_BUCKET", place("log")),
            ("ARCHIVE_BUCKET", place("archive")),
            ("STATEMENTS_KEY_SECRET_ARN", SECRET_ARN.to_owned()),
            ("LOG_ORIGIN", ORIGIN.to_owned()),
        ]);
        let stating = Self {
            ledger: emulator.ledger(),
            streams,
            variables: variables.collect(),
            clock: Arc::new(AtomicI64::new(sample::start().micros())),
            kms,
            secrets,
            database,
            emulator,
        };
        let [name, label] = NAMES;
        let label = LabelKey::parse("town").zip(LabelValue::parse(label)).unwrap();
        let agent = Agent {
            name: name.to_owned(),
            owner: UserId::derive("https://issuer.example", "owner").to_string(),
            labels: Labels::from_pairs([label]).unwrap(),
            status: AgentStatus::Active,
            ..sample::agent(1, Vec::new())
        };
        stating.ledger.create_agent(&agent, &sample::audit()).await.unwrap();
        let enabled = sample::enabled(sample::service_id(1), 1_000, 1_000);
        let audit = sample::audit();
        let put = stating.ledger.put_policy(agent.id, &enabled, &audit);
        put.await.unwrap();
        // Payments to the second service require approval.
        let enabled = sample::enabled(sample::service_id(2), 1_000_000, 0);
        let audit = sample::audit();
        let put = stating.ledger.put_policy(agent.id, &enabled, &audit);
        put.await.unwrap();
        stating
    }

    /// Requests a payment that requires approval.
    pub(crate) async fn request_approval(&self, key: &str) -> Approval {
        let request = Request {
            body: key.to_owned(),
            ..Request::new(sample::agent_id(1), sample::service_id(2), 7, key)
        };
        let answer = authorize(&self.ledger, &request, self.now()).await.unwrap();
        let Answer::Waits(id) = answer else {
            panic!("{answer:?}")
        };
        self.ledger.read_approval_by_id(id).await.unwrap().unwrap()
    }

    /// Decides an approval request as the agent's owner.
    pub(crate) async fn decide(&self, id: ApprovalId, decision: ApprovalDecision) {
        let (resolution, audit) = (self.resolution(), sample::audit());
        let decided = self.ledger.resolve_approval(id, decision, &resolution, &audit);
        assert!(matches!(decided.await.unwrap(), ResolveResult::Done(_)));
    }

    /// Withdraws an approval as the agent's owner.
    pub(crate) async fn withdraw(&self, id: ApprovalId) {
        let (resolution, audit) = (self.resolution(), sample::audit());
        let withdrawn = self.ledger.withdraw_approval(id, &resolution, &audit);
        assert!(matches!(withdrawn.await.unwrap(), ResolveResult::Done(_)));
    }

    fn resolution(&self) -> ApprovalResolution {
        ApprovalResolution {
            at: self.now(),
            by: UserId::derive("https://issuer.example", "owner").to_string(),
            note: Some(NAMES[1].to_owned()),
        }
    }

    /// Starts the function `events`. `key` is the ARN of the KMS key that signs statements.
    pub(crate) fn function(&self, key: Option<&str>) -> Events {
        Events::boot(self.boot(key)).unwrap()
    }

    /// Starts the function `events` with one environment variable changed.
    pub(crate) fn function_with(&self, name: &'static str, value: &str) -> Events {
        let env: Env = self
            .variables
            .iter()
            .cloned()
            .chain([(name, value.to_owned())])
            .collect();
        Events::boot(Boot::new(env, Clock::at_fixed_time(Arc::clone(&self.clock)))).unwrap()
    }

    /// Replaces the secret from which the keys are derived.
    pub(crate) fn replace_secret(&self, secret: &str) {
        self.secrets.store(SECRET_ARN, secret);
    }

    fn boot(&self, key: Option<&str>) -> Boot {
        let key = key.map(|key| ("STATEMENTS_KEY_ARN", key.to_owned()));
        let env: Env = self.variables.iter().cloned().chain(key).collect();
        Boot::new(env, Clock::at_fixed_time(Arc::clone(&self.clock)))
    }

    /// Returns the time and advances the clock by a second.
    pub(crate) fn now(&self) -> Timestamp {
        let micros = self.clock.fetch_add(1_000_000, Ordering::SeqCst);
        Timestamp::from_micros(micros).unwrap()
    }

    /// Advances the clock by a day.
    pub(crate) fn sleep(&self) {
        self.clock.fetch_add(86_400_000_000, Ordering::SeqCst);
    }

    /// Requests a payment; `None` if it is not allowed.
    pub(crate) async fn pay(&self, amount: u64, key: &str) -> Option<SettlementId> {
        let request = Request::new(sample::agent_id(1), sample::service_id(1), amount, key);
        match authorize(&self.ledger, &request, self.now()).await.unwrap() {
            Answer::Allowed(id) => Some(id),
            _ => None,
        }
    }

    pub(crate) async fn confirm(&self, id: SettlementId, byte: u8) {
        let settlement = self
            .ledger
            .read_settlement_by_id(sample::agent_id(1), id)
            .await
            .unwrap()
            .unwrap();
        let transfer = sample::transfer(&settlement, sample::tx_hash(byte));
        let confirmed = self
            .ledger
            .confirm_settlement(&settlement, &transfer, Claim::Transaction, self.now());
        confirmed.await.unwrap();
    }

    /// Reverts a payment's confirmation, as after a reorganization. Returns the decision's id.
    pub(crate) async fn revert(&self, id: SettlementId) -> TransactionId {
        let settlement = self
            .ledger
            .read_settlement_by_id(sample::agent_id(1), id)
            .await
            .unwrap()
            .unwrap();
        let now = self.now();
        let decision = TransactionId::new_at(now, id.uuid().as_u64_pair().1.to_be_bytes());
        let gone = sample::transfer_gone(&settlement);
        let reverted = self.ledger.revert_confirmation(&settlement, &gone, decision, now).await;
        assert!(matches!(reverted.unwrap(), TransitionResult::Done(_)));
        decision
    }

    /// Authorizes a withdrawal of one unit to the owner's address. The first call sets the address.
    pub(crate) async fn pay_out(&self) -> SettlementId {
        let (agent, owner) = (sample::agent_id(1), UserId::derive("https://issuer.example", "owner"));
        let mut record = self.ledger.read_withdrawal_record(agent).await.unwrap();
        if record.address.is_none() {
            let at_once = purser_domain::Duration::from_secs_u32(0);
            record = record
                .with_address(sample::wallet(9), &owner, self.now(), at_once)
                .unwrap();
            let audit = sample::audit();
            let put = self.ledger.put_withdrawal_record(agent, &record, &audit);
            put.await.unwrap();
        }
        let now = self.now();
        let facts = WithdrawalInputs {
            agent,
            owner: &owner,
            record: &record,
            frozen_by_operators: None,
            open: None,
            balance: sample::units(9),
            asked: WithdrawalAmount::from_amount(sample::units(1)).unwrap(),
            now,
        };
        let grant = decide_withdrawal(&facts).unwrap();
        let purchase = self.pay(1, &now.to_string()).await.unwrap();
        let purchase = self
            .ledger
            .read_settlement_by_id(agent, purchase)
            .await
            .unwrap()
            .unwrap();
        let terms = SettlementTerms {
            id: SettlementId::new_at(now, [7; 8]),
            transaction: TransactionId::new_at(now, [8; 8]),
            amount: grant.amount(),
            pay_to: grant.recipient(),
            authorized_at: now,
            idempotency_key: Fingerprint::for_text(&now.to_string()),
            purpose: Purpose::Payout(WithdrawalPurpose { by: owner.clone() }),
            ..purchase.terms
        };
        let (fingerprint, audit, mut backoff) = (Fingerprint::for_text("request"), sample::audit(), Backoff::new());
        let reserve = self
            .ledger
            .reserve_withdrawal(&grant, &terms, &fingerprint, &audit, &mut backoff);
        assert_eq!(reserve.await.unwrap(), ReserveWithdrawalResult::Done);
        terms.id
    }

    /// Releases the amount of a payment that was never paid.
    pub(crate) async fn release(&self, id: SettlementId) {
        let settlement = self
            .ledger
            .read_settlement_by_id(sample::agent_id(1), id)
            .await
            .unwrap()
            .unwrap();
        let released = self
            .ledger
            .release_hold(&settlement, &sample::unusable(&settlement))
            .await;
        assert!(matches!(released.unwrap(), TransitionResult::Done(_)));
    }

    /// Passes the streams to `history`, and then makes and archives statements with `events`.
    pub(crate) async fn state(&self, events: &Events) {
        self.fold().await;
        events.sign_pending_statements(TIME).await.unwrap();
        self.now();
    }

    /// Passes the streams to the function `history`.
    pub(crate) async fn fold(&self) {
        self.pass(None).await;
    }

    /// Passes the streams to the functions `history` and `events`.
    pub(crate) async fn pass(&self, events: Option<&Events>) {
        let history = History::boot(self.boot(None)).unwrap();
        loop {
            let batches = self.streams.next_batches();
            if batches.is_empty() {
                break;
            }
            for batch in &batches {
                // All batches use the same shard id, because shards of different streams may have the same id.
                history.handle_event(&journal_event(batch, "shardId-1")).await.unwrap();
                if let Some(events) = events {
                    events.handle_event(&json!({"Records": batch}), TIME).await.unwrap();
                }
            }
        }
    }
}
