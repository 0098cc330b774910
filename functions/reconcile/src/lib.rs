//! The function `reconcile`: brings every signed payment to confirmed or expired, by evidence from the chain alone.
//!
//! Each run reads one final block and reconciles the holds that are due at this block's time. A payment is confirmed if
//! the authorization was used for the expected transfer. A payment is released if the authorization was canceled or not
//! used.
//!
//! | file | content |
//! |---|---|
//! | `job.rs` | the job that a schedule requests |
//! | `part.rs` | the share of the holds that a run reconciles |
//! | `due.rs` | the due holds |
//! | `evict.rs` | expired payments of idle windows |
//! | `requests.rs` | settlements whose reconciliation an operator requested |
//! | `watch.rs` | the second check of blocks with confirmations |
//! | `batch.rs` | reads the chain for many settlements, decides, and writes |
//! | `outflows.rs` | transfers out of wallets that belong to no settlement |
//! | `wallets.rs` | low wallets |
//! | `witness.rs` | agreement of all endpoints of the node before a release or a revert |
//! | `run.rs` | the result of a run |
//!
//! Runs may overlap or be interrupted, because reconciling a settlement ends in at most one conditional write. Nothing
//! is written while the chain is unreachable.

mod batch;
mod due;
mod evict;
mod job;
mod outflows;
mod part;
mod requests;
mod run;
mod settings;
mod wallets;
mod watch;
mod witness;

pub use job::Job;
pub use part::Part;
use purser_api::{Boot, BootError, Clock, Entropy, Secrets};
use purser_chain::{Chain, ChainError, Finality, NonceKey};
use purser_domain::{Amount, Error, Network, Result};
use purser_store::{AuditLog, Ledger};
use run::Step;
pub use run::{Outcome, Run};
use settings::Settings;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The time at the end of a run in which only results are written.
const LAST_WRITES: Duration = Duration::from_secs(10);

/// The Lambda function `reconcile`, ready to run. Clones share all state.
#[derive(Clone)]
pub struct Reconcile(Arc<Inner>);

struct Inner {
    ledger: Ledger,
    audit: AuditLog,
    chain: Chain,
    network: Network,
    nonce_key: NonceKey,
    clock: Clock,
    entropy: Entropy,
    /// The number of blocks after which a block is final.
    confirmations: u64,
    /// The depth, in blocks, at which a block with confirmed payments is checked again.
    watch: u64,
    most: usize,
    log_range: u64,
    /// The balance below which a wallet is low. With 0, balances are not checked.
    low_wallet: Amount,
}

impl Reconcile {
    /// Creates the function `reconcile`, configured by environment variables.
    pub async fn boot(boot: Boot) -> Result<Self, BootError> {
        let http = boot.http.clone();
        Self::boot_with_chain(boot, |network, rpc_url, finality| {
            Chain::new(http, network, rpc_url, finality)
        })
        .await
    }

    /// Starts the function like [`Self::boot`], with the chain that `chain` creates.
    pub async fn boot_with_chain(
        boot: Boot,
        chain: impl FnOnce(Network, &str, Finality) -> Result<Chain, ChainError>,
    ) -> Result<Self, BootError> {
        let mut env = boot.env;
        let settings = Settings::from_env(&mut env);
        let settings = env.finish(settings)?;
        let secrets = Secrets::new(&boot.aws);
        let arns = [settings.nonce_key_secret.as_str(), &settings.rpc_url_secret];
        let [nonce_key, rpc_url] = secrets.read_all(arns).await?;
        let db = purser_store::dynamodb_client(&boot.aws);
        let ledger = Ledger::new(db.clone(), settings.ledger_table, settings.decisions_table);
        Ok(Self(Arc::new(Inner {
            ledger,
            audit: AuditLog::new(db, settings.audit_table),
            chain: chain(settings.network, &rpc_url, settings.finality)?,
            network: settings.network,
            nonce_key: NonceKey::from_text(&nonce_key)?,
            clock: boot.clock,
            entropy: boot.entropy,
            confirmations: settings.finality.confirmations,
            watch: settings.watch,
            most: usize::try_from(settings.most).unwrap_or(usize::MAX),
            log_range: settings.log_range,
            low_wallet: settings.low_wallet,
        })))
    }

    /// Runs a job within `time_left`.
    pub async fn run_job(&self, job: Job, time_left: Duration) -> Result<()> {
        match job {
            Job::Payments(part) => self.reconcile_part(part, time_left).await.map(|_| ()),
            Job::Wallets => self.check_wallet_balances(time_left).await,
        }
    }

    /// Compares the wallets' balances with their limits, within `time_left`.
    pub async fn check_wallet_balances(&self, time_left: Duration) -> Result<()> {
        self.0.check_all_wallet_levels(work_start_deadline(time_left)).await
    }

    /// Reconciles all due holds and evicts expired payments on request, within `time_left`.
    pub async fn reconcile_all(&self, time_left: Duration) -> Result<Run> {
        self.reconcile_part(Part::WHOLE, time_left).await
    }

    /// Reconciles the due holds of one share, within `time_left`. Fails if the chain or the ledger is unreachable.
    pub async fn reconcile_part(&self, part: Part, time_left: Duration) -> Result<Run> {
        let until = work_start_deadline(time_left);
        let evicting = async {
            if part.is_first() {
                evict::evict_requested_windows(&self.0, until).await
            } else {
                Ok(())
            }
        };
        // The futures are boxed, because they are too large for the caller's stack frame.
        let (reconciled, evicted) = tokio::join!(Box::pin(self.run_reconciliation(part, until)), Box::pin(evicting));
        if let Err(error) = evicted {
            tracing::error!(cause = %error, "reconcile.eviction_failed");
        }
        reconciled
    }

    async fn run_reconciliation(&self, part: Part, deadline: Instant) -> Result<Run> {
        let shared = &self.0;
        let block = shared.chain.read_final_block().await;
        let block = block.map_err(|error| Error::internal("reading the final block", error))?;
        // A failed step does not stop the remaining steps.
        let mut steps = Vec::new();
        if part.is_first() {
            steps.push(shared.reconcile_requested_settlements(&block, deadline).await);
        }
        steps.push(shared.reconcile_due_holds(part, &block, deadline).await);
        if part.is_first() {
            steps.push(shared.recheck_blocks_at_watch_depth(&block, deadline).await);
        }
        steps.iter().for_each(Step::log_failure);
        let (run, failure) = steps.into_iter().fold(Step::new(), Step::combine).into_run_and_error();
        run.log_run();
        // A failed check of outflows does not fail the run, because no payment depends on outflows.
        if let Err(error) = shared.check_outflows(part.wallet_shard(), &block, deadline).await {
            tracing::error!(cause = %error, "outflows.failed");
        }
        failure.map_or(Ok(run), Err)
    }
}

fn work_start_deadline(time_left: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time_left.saturating_sub(LAST_WRITES)).unwrap_or(now)
}
