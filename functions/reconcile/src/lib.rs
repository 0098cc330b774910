//! Reconcile: every signed payment ends as confirmed or expired, by evidence from the chain alone.
//!
//! A schedule invokes it every minute. Each run reads one final block and reconciles the holds that are due at its
//! time: an authorization that was used for our transfer is confirmed, whoever submitted it and whether or not it was
//! reported to us; a canceled or unused one is released. A block with confirmations is checked again when it is deep,
//! and a confirmation is reverted if the chain no longer supports it. The remaining time is for outflows: transfers
//! out of the wallets are compared with the settlements. Every hour, another schedule starts a comparison of the
//! wallets' balances.
//!
//! | file | content |
//! |---|---|
//! | `job.rs` | the job that a schedule asks for |
//! | `part.rs` | the part of the holds that a run reconciles |
//! | `due.rs` | the due holds |
//! | `evict.rs` | expired entries of idle windows |
//! | `requests.rs` | settlements that an operator wants reconciled |
//! | `watch.rs` | the second check of blocks with confirmations |
//! | `batch.rs` | reads the chain for many settlements, decides, and writes |
//! | `outflows.rs` | transfers out of wallets that no settlement explains |
//! | `wallets.rs` | low wallets |
//! | `witness.rs` | agreement of all endpoints of the node before a release or a revert |
//! | `run.rs` | the result |
//!
//! Runs may overlap or be cut off. Reconciling a settlement ends in one conditional write or in none, and the next run
//! continues with the rest. Nothing is written while the chain can't be reached.
//!
//! Elsewhere: the decision on the chain's state (`shared/domain/src/settlement/reconcile.rs`), finality
//! (`shared/chain`), and the transactions (`shared/store`).

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

/// The time at the end of a run that is reserved for writing results; nothing else is begun in it. If writing takes
/// longer, the run is cut off, which is safe.
const LAST_WRITES: Duration = Duration::from_secs(10);

/// The reconciliation, ready to run. Clones share everything.
#[derive(Clone)]
pub struct Reconcile(Arc<Shared>);

struct Shared {
    ledger: Ledger,
    audit: AuditLog,
    chain: Chain,
    network: Network,
    nonce_key: NonceKey,
    clock: Clock,
    entropy: Entropy,
    /// The depth of final blocks, and the depth at which a block with confirmations is checked again.
    confirmations: u64,
    watch: u64,
    most: usize,
    log_range: u64,
    /// A wallet below this balance is low. Zero: no wallet is low.
    low_wallet: Amount,
}

impl Reconcile {
    /// The reconciliation with this configuration (`settings.rs`). It has no access to the wallet seed.
    pub async fn boot(boot: Boot) -> Result<Self, BootError> {
        let http = boot.http.clone();
        Self::boot_over(boot, |network, rpc_url, finality| {
            Chain::new(http, network, rpc_url, finality)
        })
        .await
    }

    /// As [`Self::boot`], over the chain that `chain` makes from the network, the node's address and the finality. The
    /// simulation has its own chain.
    pub async fn boot_over(
        boot: Boot,
        chain: impl FnOnce(Network, &str, Finality) -> Result<Chain, ChainError>,
    ) -> Result<Self, BootError> {
        let Boot {
            mut env,
            aws,
            clock,
            entropy,
            ..
        } = boot;
        let settings = Settings::from_env(&mut env);
        let settings = env.finish(settings)?;
        let secrets = Secrets::new(&aws);
        let arns = [settings.nonce_key_secret.as_str(), &settings.rpc_url_secret];
        let [nonce_key, rpc_url] = secrets.texts(arns).await?;
        let db = purser_store::client(&aws);
        let ledger = Ledger::new(db.clone(), settings.ledger_table, settings.decisions_table);
        Ok(Self(Arc::new(Shared {
            ledger,
            audit: AuditLog::new(db, settings.audit_table),
            chain: chain(settings.network, &rpc_url, settings.finality)?,
            network: settings.network,
            nonce_key: NonceKey::from_text(&nonce_key)?,
            clock,
            entropy,
            confirmations: settings.finality.confirmations,
            watch: settings.watch,
            most: usize::try_from(settings.most).unwrap_or(usize::MAX),
            log_range: settings.log_range,
            low_wallet: settings.low_wallet,
        })))
    }

    /// Runs the job that the schedule asks for, within this time.
    pub async fn call(&self, job: Job, time_left: Duration) -> Result<()> {
        match job {
            Job::Payments(part) => self.run_part(part, time_left).await.map(|_| ()),
            Job::Wallets => self.look_at_wallets(time_left).await,
        }
    }

    /// Compares the wallets' balances, within this time. An error means that the chain or the ledger could not be
    /// reached.
    pub async fn look_at_wallets(&self, time_left: Duration) -> Result<()> {
        self.0.wallet_levels(last_begin(time_left)).await
    }

    /// Reconciles the due holds and evicts requested windows, within this time.
    pub async fn run(&self, time_left: Duration) -> Result<Run> {
        self.run_part(Part::WHOLE, time_left).await
    }

    /// Reconciles the due holds of this part, within this time. The first part also does the work that is not divided.
    /// An error means that the chain or the ledger could not be reached.
    pub async fn run_part(&self, part: Part, time_left: Duration) -> Result<Run> {
        let until = last_begin(time_left);
        let evicting = async {
            if part.is_first() {
                evict::evict_idle(&self.0, until).await
            } else {
                Ok(())
            }
        };
        // Boxed: together the futures are far larger than a caller's stack frame should be.
        let (reconciled, evicted) = tokio::join!(Box::pin(self.reconcile(part, until)), Box::pin(evicting));
        if let Err(error) = evicted {
            tracing::error!(cause = %error, "reconcile.eviction_failed");
        }
        reconciled
    }

    async fn reconcile(&self, part: Part, until: Instant) -> Result<Run> {
        let shared = &self.0;
        let block = shared.chain.final_block().await;
        let block = block.map_err(|error| Error::internal("reading the final block", error))?;
        // A failure of one step does not stop the others.
        let mut steps = Vec::new();
        if part.is_first() {
            steps.push(shared.requested(&block, until).await);
        }
        steps.push(shared.due(part, &block, until).await);
        if part.is_first() {
            steps.push(shared.watch(&block, until).await);
        }
        steps.iter().for_each(Step::log_failure);
        let (run, failure) = steps.into_iter().fold(Step::new(), Step::and).into_run();
        run.log();
        // Last, and without effect on the run's result: no payment depends on it.
        if let Err(error) = shared.outflows(part.wallets(), &block, until).await {
            tracing::error!(cause = %error, "outflows.failed");
        }
        failure.map_or(Ok(run), Err)
    }
}

/// The instant until which work may be begun.
fn last_begin(time_left: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time_left.saturating_sub(LAST_WRITES)).unwrap_or(now)
}
