//! Statements of decisions and confirmed payments: they are noted with each batch of the journal, and signed and
//! appended to the log by the schedule, every minute, which also archives the log.

use crate::{
    Shared,
    settings::LogSettings,
    signer::{KmsSigner, Signer},
};
use aws_types::SdkConfig;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use purser_api::Secrets;
use purser_domain::{
    AgentId, DECISION_STATEMENT, DecisionIds, Duration as Length, Error, EventSource, InputDocuments, LoggedDecision,
    Network, RecordedDecision, ReplayDifference, Result, SettlementId, StatedDecision, TransactionId,
    receipt_statement, replay,
};
use purser_evidence::{JwkSet, KeyType, NoteSigner, Seed, StatementKey, StatementKind};
use purser_log::{
    Archive, Log, LogReader, ObjectStore, PendingFact, Stated, StatedFact, Stating, TRUST, TrustDocument,
};
use purser_store::JournalChange;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use tokio::{sync::OnceCell, time::Instant};
use uuid::Uuid;
use zeroize::Zeroizing;

const STATING: &str = "stating a decision";
/// The time reserved for the last append.
const LAST: Duration = Duration::from_secs(20);

/// The statements of a deployment.
pub(crate) struct Statements {
    objects: ObjectStore,
    /// `None` if the deployment has no archive.
    archive: Option<Archive>,
    aws: SdkConfig,
    secrets: Secrets,
    key_secret: String,
    /// The ARN of the key in KMS that signs statements; `None` if a key of the secret does.
    kms_key: Option<String>,
    network: Network,
    /// The keys, read at the first run of the schedule.
    keys: OnceCell<Keys>,
}

struct Keys {
    statements: Signer,
    log: Log,
}

impl Statements {
    pub(crate) fn new(aws: &SdkConfig, settings: LogSettings) -> Self {
        let objects = ObjectStore::named(aws, &settings.bucket);
        let archive = settings.archive.map(|archive| ObjectStore::named(aws, &archive));
        Self {
            archive: archive.map(|archive| Archive::new(objects.clone(), archive)),
            objects,
            aws: aws.clone(),
            secrets: Secrets::new(aws),
            key_secret: settings.key_secret,
            kms_key: settings.kms_key,
            network: settings.network,
            keys: OnceCell::const_new(),
        }
    }

    /// The keys. The first call publishes what verifies them; keys of the past stay in it.
    async fn keys(&self, source: &EventSource) -> Result<&Keys> {
        self.keys
            .get_or_try_init(|| async {
                let secret = self.secrets.text(&self.key_secret).await?;
                let unusable = |error: Box<dyn std::error::Error + Send + Sync>| {
                    Error::internal("making the statements' keys", error)
                };
                let statements = if let Some(arn) = &self.kms_key {
                    Signer::Kms(KmsSigner::read(&self.aws, arn).await?)
                } else {
                    let key = StatementKey::new(&seed(b"statements", &secret));
                    Signer::Secret(key.map_err(|error| unusable(error.into()))?)
                };
                let origin = source.as_str().to_owned();
                let signer = NoteSigner::new(&origin, KeyType::Ed25519, &seed(b"log", &secret));
                let log = Log::new(
                    self.objects.clone(),
                    origin,
                    signer.map_err(|error| unusable(error.into()))?,
                );
                self.publish_keys(&statements, &log, source).await?;
                Ok(Keys { statements, log })
            })
            .await
    }

    async fn publish_keys(&self, key: &Signer, log: &Log, source: &EventSource) -> Result<()> {
        let stored = self.objects.get(TRUST).await?;
        let known = stored
            .as_ref()
            .map(|object| TrustDocument::parse(&object.bytes))
            .transpose()?;
        let older = known.iter().flat_map(|known| known.jwks.keys().to_vec());
        let trust = TrustDocument {
            jwks: JwkSet::new(key.jwk().clone(), older),
            vkey: log.verifier().to_string(),
            origin: source.as_str().to_owned(),
        };
        if known.as_ref() != Some(&trust) {
            self.objects.put(TRUST, &trust.to_bytes()?).await?;
        }
        Ok(())
    }
}

/// A seed for one purpose.
fn seed(purpose: &[u8], secret: &Zeroizing<String>) -> Seed {
    let hash = Sha256::new()
        .chain_update(b"purser ")
        .chain_update(purpose)
        .chain_update(b"\0");
    Seed::new(Zeroizing::new(hash.chain_update(secret.as_bytes()).finalize().into()))
}

impl Shared {
    /// States what was noted, until all is stated or the time is over.
    pub(crate) async fn state_facts(&self, time_left: Duration) -> Result<()> {
        let Some(statements) = &self.statements else {
            return Ok(());
        };
        let keys = statements.keys(&self.source).await?;
        let began = Instant::now();
        let until = began.checked_add(time_left.saturating_sub(LAST)).unwrap_or(began);
        let stating = FactsOf {
            shared: self,
            network: statements.network,
            keys,
        };
        loop {
            let written = keys.log.write(self.clock.now(), &stating).await?;
            if !written.has_more || Instant::now() >= until {
                break;
            }
        }
        let archived = match &statements.archive {
            Some(archive) => archive.write(|| Instant::now() >= until).await,
            None => Ok(0),
        };
        // An archive that fails does not stop the replay.
        stating.replay_of_yesterday(until).await.and(archived.map(|_| ()))
    }
}

/// The facts of the tables, and the key that signs them.
struct FactsOf<'a> {
    shared: &'a Shared,
    network: Network,
    keys: &'a Keys,
}

impl Stating for FactsOf<'_> {
    async fn state(&self, pending: &PendingFact) -> Result<Option<Stated>> {
        let Some((kind, id, payload)) = self.payload(pending).await? else {
            return Ok(None);
        };
        let payload = serde_json::to_vec(&payload).map_err(|error| Error::internal(STATING, error))?;
        let statement = self.keys.statements.sign(kind, &payload).await?;
        Ok(Some(Stated { kind, id, statement }))
    }
}

impl FactsOf<'_> {
    /// Reads and evaluates what a statement says; `None` for a confirmation that was reverted meanwhile.
    async fn payload(&self, pending: &PendingFact) -> Result<Option<(StatementKind, Uuid, Value)>> {
        let (ledger, agent) = (&self.shared.ledger, pending.agent);
        match &pending.fact {
            StatedFact::Allowed(id) => {
                let Some(settlement) = ledger.settlement(agent, *id).await? else {
                    return Ok(None);
                };
                let mut calls = ledger.calls(std::slice::from_ref(&settlement)).await?;
                let call = calls.remove(id);
                let decision = call.and_then(|call| RecordedDecision::of_settlement(&settlement, call));
                match decision.zip(DecisionIds::of_settlement(&settlement)) {
                    Some((decision, ids)) => self.decision(&decision, ids).await.map(Some),
                    None => Ok(None),
                }
            }
            StatedFact::Refused(id) => match ledger.recorded_decision(agent, *id).await? {
                Some(LoggedDecision::Refused(refusal)) => {
                    let ids = DecisionIds::of_refusal(&refusal);
                    let decision = RecordedDecision::of_refusal(refusal, self.network);
                    self.decision(&decision, ids).await.map(Some)
                }
                _ => Ok(None),
            },
            StatedFact::Confirmed(id, hash) => {
                let settlement = ledger.settlement(agent, *id).await?;
                let settlement = settlement.filter(|settlement| settlement.tx_hash() == Some(*hash));
                let payload = settlement.and_then(|settlement| receipt_statement(&settlement, &self.shared.source));
                Ok(payload.map(|payload| (StatementKind::Receipt, id.uuid(), payload)))
            }
        }
    }

    /// Evaluates what was stated a day ago again, with today's engine, so that each decision is evaluated once by another
    /// version of the function, if there is one.
    async fn replay_of_yesterday(&self, until: Instant) -> Result<()> {
        let log = LogReader::new(self.keys.log.objects().clone());
        let day_ago = self.shared.clock.now().before(Length::DAY);
        while Instant::now() < until {
            let Some(batch) = log.next_to_replay(day_ago).await? else {
                break;
            };
            for statement in &batch.statements {
                if let Some(fact) = fact_in(statement) {
                    // The payload evaluates the decision again. Nothing is signed.
                    self.payload(&fact).await?;
                }
            }
            log.note_replayed(&batch).await?;
        }
        Ok(())
    }

    async fn decision(&self, decision: &RecordedDecision, ids: DecisionIds) -> Result<(StatementKind, Uuid, Value)> {
        let Shared {
            ledger,
            catalog,
            usage,
            source,
            ..
        } = self.shared;
        let inputs = match decision.inputs {
            None => None,
            Some(versions) => {
                let of = (ids.agent, ids.service);
                let stored = usage
                    .inputs(ledger, catalog, of, decision.policy_version, versions)
                    .await?;
                if let Some(stored) = &stored {
                    report_differences(ids.transaction, &replay(decision, &stored.as_inputs()));
                }
                stored.map(|stored| (versions, InputDocuments::of(&stored.as_inputs(), decision.at)))
            }
        };
        let inputs = inputs.as_ref().map(|(versions, documents)| (*versions, documents));
        let transaction = ids.transaction.uuid();
        let payload = StatedDecision { ids, decision, inputs }.to_json(source);
        Ok((StatementKind::Decision, transaction, payload))
    }
}

/// What a change of the journal has to be stated: a decision when it is made, a payment when it is confirmed.
pub(crate) fn facts_of(change: &JournalChange) -> Option<PendingFact> {
    let fact = match (&change.old, &change.new) {
        (None, LoggedDecision::Allowed(settlement)) => StatedFact::Allowed(settlement.id()),
        (None, LoggedDecision::Refused(refusal)) => StatedFact::Refused(refusal.transaction),
        (Some(old), LoggedDecision::Allowed(new) | LoggedDecision::PaidOut(new)) => {
            let hash = new.tx_hash()?;
            let is_known = match old {
                LoggedDecision::Allowed(old) | LoggedDecision::PaidOut(old) => old.tx_hash() == Some(hash),
                LoggedDecision::Refused(_) | LoggedDecision::ConfirmationReverted(_) => false,
            };
            if is_known {
                return None;
            }
            StatedFact::Confirmed(new.id(), hash)
        }
        _ => return None,
    };
    Some(PendingFact {
        sequence: change.sequence.to_string(),
        agent: change.agent,
        fact,
    })
}

/// The fact in a statement of a decision; `None` for any other statement.
fn fact_in(statement: &str) -> Option<PendingFact> {
    let payload = statement.split('.').nth(1)?;
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?;
    let payload: Value = serde_json::from_slice(&payload).ok()?;
    let text = |at: &str| payload.pointer(at).and_then(Value::as_str);
    if text("/statement") != Some(DECISION_STATEMENT) {
        return None;
    }
    Some(PendingFact {
        sequence: String::new(),
        agent: AgentId::parse(text("/facts/agent_id")?)?,
        fact: match text("/settlement_id") {
            Some(settlement) => StatedFact::Allowed(SettlementId::parse(settlement)?),
            None => StatedFact::Refused(TransactionId::parse(text("/transaction_id")?)?),
        },
    })
}

/// Raises an alarm for a decision that is evaluated otherwise than it was recorded.
fn report_differences(transaction: TransactionId, differences: &[ReplayDifference]) {
    for difference in differences {
        let ReplayDifference {
            what,
            recorded,
            replayed,
        } = difference;
        tracing::error!(change = "replay", row = %transaction, what, recorded, replayed, "change.seen");
    }
}
