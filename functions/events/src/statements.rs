//! Statements of decisions and confirmed payments: they are noted with each batch of the journal, and signed and
//! appended to the log by the schedule, every minute.

use crate::Shared;
use purser_api::Secrets;
use purser_domain::{
    DecisionIds, Error, EventSource, InputDocuments, LoggedDecision, Network, RecordedDecision, Result, StatedDecision,
    receipt_statement,
};
use purser_evidence::{JwkSet, KeyType, NoteSigner, Seed, StatementKey, StatementKind};
use purser_log::{Log, ObjectStore, PendingBatch, PendingFact, Stated, StatedFact, TRUST, TrustDocument};
use purser_store::JournalChange;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use tokio::{sync::OnceCell, time::Instant};
use zeroize::Zeroizing;

const STATING: &str = "stating a decision";
/// The time reserved for the last append.
const LAST: Duration = Duration::from_secs(20);

/// The statements of a deployment.
pub(crate) struct Statements {
    objects: ObjectStore,
    secrets: Secrets,
    key_secret: String,
    network: Network,
    /// The keys, read at the first run of the schedule.
    keys: OnceCell<Keys>,
}

struct Keys {
    statements: StatementKey,
    log: Log,
}

impl Statements {
    pub(crate) const fn new(objects: ObjectStore, secrets: Secrets, key_secret: String, network: Network) -> Self {
        Self {
            objects,
            secrets,
            key_secret,
            network,
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
                let statements =
                    StatementKey::new(&seed(b"statements", &secret)).map_err(|error| unusable(error.into()))?;
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

    async fn publish_keys(&self, key: &StatementKey, log: &Log, source: &EventSource) -> Result<()> {
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
    /// Notes what a batch of a shard has to be stated.
    pub(crate) async fn note_facts(&self, shard: &str, changes: &[JournalChange]) -> Result<()> {
        let Some(statements) = &self.statements else {
            return Ok(());
        };
        let facts = changes.iter().filter_map(facts_of).collect();
        let shard = shard.to_owned();
        PendingBatch { shard, facts }.write(&statements.objects).await
    }

    /// States what was noted, until all is stated or the time is over.
    pub(crate) async fn state_facts(&self, time_left: Duration) -> Result<()> {
        let Some(statements) = &self.statements else {
            return Ok(());
        };
        let keys = statements.keys(&self.source).await?;
        let began = Instant::now();
        let until = began.checked_add(time_left.saturating_sub(LAST)).unwrap_or(began);
        let stating = async |fact: &PendingFact| self.stated(statements.network, keys, fact).await;
        loop {
            let written = keys.log.write(self.clock.now(), stating).await?;
            if !written.has_more || Instant::now() >= until {
                return Ok(());
            }
        }
    }

    /// The statement of a fact; `None` for a confirmation that was reverted meanwhile.
    async fn stated(&self, network: Network, keys: &Keys, pending: &PendingFact) -> Result<Option<Stated>> {
        let agent = pending.agent;
        match &pending.fact {
            StatedFact::Allowed(id) => {
                let Some(settlement) = self.ledger.settlement(agent, *id).await? else {
                    return Ok(None);
                };
                let mut calls = self.ledger.calls(std::slice::from_ref(&settlement)).await?;
                let call = calls.remove(id);
                let decision = call.and_then(|call| RecordedDecision::of_settlement(&settlement, call));
                match decision.zip(DecisionIds::of_settlement(&settlement)) {
                    Some((decision, ids)) => self.stated_decision(keys, &decision, ids).await.map(Some),
                    None => Ok(None),
                }
            }
            StatedFact::Refused(id) => match self.ledger.recorded_decision(agent, *id).await? {
                Some(LoggedDecision::Refused(refusal)) => {
                    let ids = DecisionIds::of_refusal(&refusal);
                    let decision = RecordedDecision::of_refusal(refusal, network);
                    self.stated_decision(keys, &decision, ids).await.map(Some)
                }
                _ => Ok(None),
            },
            StatedFact::Confirmed(id, hash) => {
                let settlement = self.ledger.settlement(agent, *id).await?;
                let settlement = settlement.filter(|settlement| settlement.tx_hash() == Some(*hash));
                let payload = settlement.and_then(|settlement| receipt_statement(&settlement, &self.source));
                let signed = payload.map(|payload| signed(keys, StatementKind::Receipt, id.uuid(), &payload));
                signed.transpose()
            }
        }
    }

    async fn stated_decision(&self, keys: &Keys, decision: &RecordedDecision, ids: DecisionIds) -> Result<Stated> {
        let inputs = match decision.inputs {
            None => None,
            Some(versions) => {
                let of = (ids.agent, ids.service);
                let policy = decision.policy_version;
                let stored = self
                    .usage
                    .inputs(&self.ledger, &self.catalog, of, policy, versions)
                    .await?;
                stored.map(|stored| (versions, InputDocuments::of(&stored.as_inputs(), decision.at)))
            }
        };
        let inputs = inputs.as_ref().map(|(versions, documents)| (*versions, documents));
        let transaction = ids.transaction.uuid();
        let payload = StatedDecision { ids, decision, inputs }.to_json(&self.source);
        signed(keys, StatementKind::Decision, transaction, &payload)
    }
}

fn signed(keys: &Keys, kind: StatementKind, id: uuid::Uuid, payload: &Value) -> Result<Stated> {
    let payload = serde_json::to_vec(payload).map_err(|error| Error::internal(STATING, error))?;
    let statement = keys.statements.sign(kind, &payload);
    Ok(Stated {
        kind,
        id,
        statement: statement.map_err(|error| Error::internal(STATING, error))?,
    })
}

/// What a change of the journal has to be stated: a decision when it is made, a payment when it is confirmed.
fn facts_of(change: &JournalChange) -> Option<PendingFact> {
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
