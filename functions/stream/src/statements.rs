//! Makes signed statements about decisions, payments and approvals. The Lambda function `history` stores pending
//! changes, and the Lambda function `events` signs them.

use crate::{
    Inner,
    record::{Records, Signing, raise_row_mismatch_alarm},
    settings::LogSettings,
    signer::{KmsSigner, Signer},
};
use aws_types::SdkConfig;
use futures_util::stream::{self, StreamExt as _};
use purser_api::Secrets;
use purser_domain::{Approval, ApprovalChange, Causes, Error, LoggedDecision, Network, Result, SettlementState};
use purser_evidence::{KeyType, NoteSigner, Seed, StatementKey};
use purser_log::{
    Archive, ArchiveResult, Confirmation, Log, LogReader, ObjectStore, PendingBatch, PendingChange, StatedChange,
    TRUST, TrustDocument, Witnesses, continue_log_audit,
};
use purser_store::{Change, DecidedApproval, HistoryChange, RowHash};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout},
};
use zeroize::Zeroizing;

const OPERATION: &str = "creating the keys for statements and the log";

/// The time at the end of a run in which no further work starts. Nothing is lost if the run is killed.
const RESERVED_TIME: Duration = Duration::from_secs(10);
/// A stream batch with at least this many changes has its statements signed immediately.
const BUSY: usize = 10;
/// The number of statements that are made concurrently. Each waits for about five reads and for KMS.
const MAX_CONCURRENT: usize = 16;
/// The timeout for signing a batch's statements immediately. Afterwards, the next scheduled run signs them.
const AHEAD: Duration = Duration::from_secs(10);

/// The shard name of the pending changes of expired approvals, which come from no stream shard.
const EXPIRED: &str = "expired";

/// A deployment's statement log with the signing keys.
pub(crate) struct Statements {
    objects: ObjectStore,
    /// The archive of the statement log; `None` if the deployment has no archive.
    archive: Option<Archive>,
    aws: SdkConfig,
    secrets: Secrets,
    key_secret: String,
    /// The ARN of the KMS key that signs statements; `None` if the statements' key is derived from the secret.
    kms_key: Option<String>,
    network: Network,
    /// The name with which a new statement log is created. An existing log keeps its name.
    origin: String,
    witnesses: Option<Arc<Witnesses>>,
    /// The signing keys, which the first call of [`Statements::signing_keys`] creates.
    keys: OnceCell<Keys>,
}

struct Keys {
    statements: Signer,
    log: Log,
}

impl Statements {
    pub(crate) fn new(aws: &SdkConfig, settings: LogSettings) -> Self {
        let objects = ObjectStore::open(aws, &settings.bucket);
        let archive = settings.archive.map(|archive| ObjectStore::open(aws, &archive));
        Self {
            archive: archive.map(|archive| Archive::new(objects.clone(), archive)),
            objects,
            aws: aws.clone(),
            secrets: Secrets::new(aws),
            key_secret: settings.key_secret,
            kms_key: settings.kms_key,
            network: settings.network,
            origin: settings.origin,
            witnesses: settings.witnesses.map(Arc::new),
            keys: OnceCell::const_new(),
        }
    }

    /// Returns the signing keys. The first call publishes the trust document with all current and earlier public keys.
    async fn signing_keys(&self) -> Result<&Keys> {
        self.keys
            .get_or_try_init(|| async {
                let secret = self.secrets.read(&self.key_secret).await?;
                let statements = if let Some(arn) = &self.kms_key {
                    Signer::Kms(KmsSigner::from_kms_key(&self.aws, arn).await?)
                } else {
                    let key = StatementKey::new(&derive_seed(b"statements", &secret));
                    Signer::Secret(key.map_err(|error| Error::internal(OPERATION, error))?)
                };
                let log = self.open_log(&derive_seed(b"log", &secret), &statements).await?;
                let log = log.with_anchor(self.archive.as_ref().map(|archive| archive.objects().clone()));
                Ok(Keys { statements, log })
            })
            .await
    }

    /// Opens the log and publishes the keys. An existing log keeps its origin, which identifies it for readers.
    async fn open_log(&self, seed: &Seed, key: &Signer) -> Result<Log> {
        loop {
            let stored = self.objects.get(TRUST).await?;
            let known = stored.as_ref().map(|object| TrustDocument::parse(&object.bytes));
            let known = known.transpose()?;
            let origin = known.as_ref().and_then(TrustDocument::origin).unwrap_or(&self.origin);
            let signer = NoteSigner::new(origin, KeyType::Ed25519, seed);
            let signer = signer.map_err(|error| Error::internal(OPERATION, error))?;
            let witnesses = self.witnesses.as_deref();
            let trust = TrustDocument::new(key.jwk(), signer.verifier_key(), origin, witnesses, known.as_ref());
            let version = stored.as_ref().map(|object| &object.version);
            if known.as_ref() == Some(&trust) || self.objects.put_if_version(TRUST, &trust.to_bytes()?, version).await?
            {
                let log = Log::new(self.objects.clone(), origin, signer);
                return Ok(log.with_witnesses(self.witnesses.clone()));
            }
        }
    }
}

/// Returns the time after which a run starts no further work.
fn deadline(time_left: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time_left.saturating_sub(RESERVED_TIME)).unwrap_or(now)
}

fn derive_seed(purpose: &[u8], secret: &Zeroizing<String>) -> Seed {
    let hash = Sha256::new()
        .chain_update(b"purser ")
        .chain_update(purpose)
        .chain_update(b"\0");
    Seed::new(Zeroizing::new(hash.chain_update(secret.as_bytes()).finalize().into()))
}

impl Inner {
    /// Signs and appends pending changes, then audits, archives and checks the log. A failed step does not stop the
    /// others.
    pub(crate) async fn sign_pending_changes(&self, time_left: Duration) -> Result<()> {
        let Some(statements) = &self.statements else {
            return Ok(());
        };
        let stop_at = deadline(time_left);
        let stated = self.append_statements(statements, stop_at).await;
        let reported = self.report_oldest_pending_change(statements).await;
        let archived = self.archive_and_audit_statements(statements, stop_at).await;
        stated.and(reported).and(archived)
    }

    /// Archives, audits and checks the log, in a separate run that appends no statements.
    pub(crate) async fn archive_log(&self, time_left: Duration) -> Result<()> {
        let Some(statements) = &self.statements else {
            return Ok(());
        };
        let stop_at = deadline(time_left);
        self.archive_and_audit_statements(statements, stop_at).await
    }

    pub(crate) async fn run_daily_check_if_backlogged(&self, time_left: Duration) -> Result<()> {
        let Some(statements) = &self.statements else {
            return Ok(());
        };
        let log = LogReader::new(statements.objects.clone());
        if !log.has_check_backlog(self.clock.now()).await? {
            return Ok(());
        }
        let stop_at = deadline(time_left);
        self.run_daily_check(statements, &log, stop_at).await
    }

    async fn archive_and_audit_statements(&self, statements: &Statements, deadline: Instant) -> Result<()> {
        let (objects, archive) = (&statements.objects, statements.archive.as_ref());
        let is_over = || Instant::now() >= deadline;
        let archived = match archive {
            Some(archive) => archive.archive_batches(is_over).await,
            None => Ok(ArchiveResult::default()),
        };
        let archived = archived.map(|archived| {
            for key in archived.differing {
                raise_row_mismatch_alarm(&key, "the archived object differs from the log");
            }
        });
        let checked = self
            .run_daily_check(statements, &LogReader::new(objects.clone()), deadline)
            .await;
        let audited = continue_log_audit(objects, archive, self.clock.now(), is_over, raise_row_mismatch_alarm).await;
        archived.and(checked).and(audited)
    }

    async fn run_daily_check(&self, statements: &Statements, log: &LogReader, deadline: Instant) -> Result<()> {
        let network = statements.network;
        let records = Records { shared: self, network };
        records.audit_yesterdays_statements(log, deadline).await
    }

    /// Immediately signs a batch of at least [`BUSY`] statements. After an error, a scheduled run signs them.
    pub(crate) async fn sign_batch_before_append(&self, records: &[Value]) {
        let Some(statements) = &self.statements else { return };
        let changes = records.iter().filter_map(|record| Change::parse(record).ok());
        let changes = changes.filter_map(|change| self.ledger.decision_history_change(&change).ok().flatten());
        let change_list: Vec<PendingChange> = changes.filter_map(|change| pending_change(&change)).collect();
        if change_list.len() < BUSY {
            return;
        }
        match timeout(AHEAD, self.sign_and_write_statements(statements, change_list)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = %Causes(&error), "statements.not_signed_ahead"),
            Err(_) => tracing::warn!("statements.not_signed_ahead"),
        }
    }

    async fn sign_and_write_statements(&self, statements: &Statements, changes: Vec<PendingChange>) -> Result<()> {
        let signing = self.statement_signer(statements, statements.signing_keys().await?);
        let signed = stream::iter(changes).map(|change| {
            let signing = &signing;
            async move {
                signing
                    .sign_statement_before_append(&change)
                    .await
                    .map(|statement| (change, statement))
            }
        });
        let signed: Vec<_> = signed.buffered(MAX_CONCURRENT).collect().await;
        let signed: Vec<_> = signed.into_iter().flatten().collect();
        purser_log::write_signed_statements(&statements.objects, &signed).await
    }

    fn statement_signer<'a>(&'a self, statements: &Statements, keys: &'a Keys) -> Signing<'a> {
        Signing {
            records: Records {
                shared: self,
                network: statements.network,
            },
            signer: &keys.statements,
            log: LogReader::new(statements.objects.clone()),
        }
    }

    async fn append_statements(&self, statements: &Statements, deadline: Instant) -> Result<()> {
        let keys = statements.signing_keys().await?;
        let signing = self.statement_signer(statements, keys);
        loop {
            let written = keys.log.append_pending_statements(self.clock.now(), &signing).await?;
            if !written.has_more || Instant::now() >= deadline {
                return Ok(());
            }
        }
    }

    async fn report_oldest_pending_change(&self, statements: &Statements) -> Result<()> {
        let oldest = purser_log::read_oldest_pending_time(&statements.objects).await?;
        let age = oldest.map_or(0, |oldest| self.clock.now().since(oldest).secs());
        tracing::info!(age_seconds = age, "statements.pending");
        Ok(())
    }

    /// Stores expired approvals as pending changes, because no stream record reports an expiry.
    pub(crate) async fn queue_expired_approvals(&self, expired: &[(Approval, RowHash)]) -> Result<()> {
        let Some(statements) = &self.statements else {
            return Ok(());
        };
        // The sequence numbers of a call start at the current time in microseconds. Each call reads the
        // clock, so that the sequence numbers increase from call to call.
        let now = self.clock.now();
        let changes = (now.micros()..)
            .zip(expired)
            .map(|(sequence, (approval, row))| PendingChange {
                sequence: format!("{sequence:040}"),
                changed_at: now,
                agent: approval.agent,
                fact: StatedChange::ApprovalChanged(approval.id, ApprovalChange::Expired, approval.expires_at),
                row: row.to_string(),
            });
        let (shard, changes) = (EXPIRED.to_owned(), changes.collect());
        PendingBatch { shard, facts: changes }
            .write_batch(&statements.objects)
            .await
    }

    /// Makes the changes that were set aside pending again. Returns how many.
    pub(crate) async fn requeue_quarantined_changes(&self) -> Result<usize> {
        match &self.statements {
            Some(statements) => {
                purser_log::make_quarantined_changes_pending(&statements.objects, self.clock.now()).await
            }
            None => Ok(0),
        }
    }
}

pub(crate) fn pending_change_for_approval(approval: &DecidedApproval) -> PendingChange {
    PendingChange {
        sequence: approval.sequence.to_string(),
        changed_at: approval.changed_at,
        agent: approval.approval.agent,
        fact: StatedChange::ApprovalChanged(approval.approval.id, approval.change, approval.at),
        row: approval.row.to_string(),
    }
}

/// Returns the pending change for a change of the decision history, or `None` if it needs no statement. A new decision
/// or withdrawal needs a statement. A payment needs a further statement when it is confirmed, when its transaction
/// moves to another block, when its confirmation is reverted, and when its amount is released. No function makes other
/// changes to a confirmed payment.
pub(crate) fn pending_change(change: &HistoryChange) -> Option<PendingChange> {
    let pending_change = match (&change.old, &change.new) {
        (None, LoggedDecision::Allowed(settlement)) => StatedChange::Allowed(settlement.id()),
        (None, LoggedDecision::Refused(denial)) => StatedChange::Refused(denial.transaction),
        (None, LoggedDecision::PaidOut(settlement)) => StatedChange::Withdrawn(settlement.id()),
        (None, LoggedDecision::ConfirmationReverted(reversion)) => StatedChange::Reverted(reversion.transaction),
        (
            Some(LoggedDecision::Allowed(old) | LoggedDecision::PaidOut(old)),
            LoggedDecision::Allowed(new) | LoggedDecision::PaidOut(new),
        ) if (&old.state, &new.state) == (&SettlementState::Authorized, &SettlementState::Expired) => {
            StatedChange::Released(new.id(), change.changed_at)
        }
        (Some(old), LoggedDecision::Allowed(new) | LoggedDecision::PaidOut(new)) => {
            let SettlementState::Confirmed {
                tx_hash,
                block_number,
                settled_at,
            } = new.state
            else {
                return None;
            };
            if let LoggedDecision::Allowed(old) | LoggedDecision::PaidOut(old) = old
                && let SettlementState::Confirmed {
                    block_number: block, ..
                } = old.state
                && (block == block_number || old.tx_hash() != Some(tx_hash) || old.settled_at() != Some(settled_at))
            {
                return None;
            }
            let confirmation = Confirmation {
                tx_hash,
                block_number,
                settled_at,
            };
            StatedChange::Confirmed(new.id(), confirmation)
        }
        _ => return None,
    };
    Some(PendingChange {
        sequence: change.sequence.to_string(),
        changed_at: change.changed_at,
        agent: change.agent,
        fact: pending_change,
        row: change.row.to_string(),
    })
}
