//! Reconcile: every signed payment ends as confirmed or expired, by evidence from the chain alone.
//!
//! A schedule calls it every minute. Each run reads one final block, and reconciles the holds: an authorization used
//! for our transfer is confirmed, whoever submitted it and whether or not it was reported to us; one that is canceled,
//! or unused at a block from whose time on it can't be used, is released. A confirmation is checked once more when its
//! block is deep, and reverted if the chain no longer supports it.
//!
//! Runs may overlap or be cut off: reconciling a settlement ends in one conditional transaction or in none, and the
//! next run continues with the rest. When the chain can't be reached, nothing is written.
//!
//! Deliberately elsewhere: the decision on the chain's state (`shared/domain/src/settlement/reconcile.rs`), finality
//! (`shared/chain`), and the transactions (`shared/store`).

mod reconcile_one;
mod run;
mod settings;
mod sweep;

use purser_api::{Boot, BootError, Clock, Entropy, Secrets};
use purser_chain::{Chain, ChainError, Finality, NonceKey};
use purser_domain::{Error, FinalBlock, Network, Result};
use purser_store::Ledger;
use reconcile_one::LONGEST_RECONCILE;
pub use run::{Outcome, Run};
use settings::Settings;
use std::{sync::Arc, time::Duration};
use sweep::Sweep;
use tokio::time::Instant;

/// The longest time for a write under contention: if it takes longer, the run is cut off, which is safe.
const RECORDING: Duration = Duration::from_secs(5);

/// The reconciliation, ready to run. Clones share everything.
#[derive(Clone)]
pub struct Reconcile(Arc<Shared>);

struct Shared {
    ledger: Ledger,
    chain: Chain,
    nonce_key: NonceKey,
    clock: Clock,
    entropy: Entropy,
    /// The depth of final blocks, and the depth at which the watch of confirmations ends.
    confirmations: u64,
    watch: u64,
    most: usize,
    log_range: u64,
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

    /// As [`Self::boot`], over the chain that `chain` makes from the network, the node's address and the finality: the
    /// simulation has its own.
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
        let ledger = Ledger::new(
            purser_store::client(&aws),
            settings.ledger_table,
            settings.decisions_table,
        );
        Ok(Self(Arc::new(Shared {
            ledger,
            chain: chain(settings.network, &rpc_url, settings.finality)?,
            nonce_key: NonceKey::from_text(&nonce_key)?,
            clock,
            entropy,
            confirmations: settings.finality.confirmations,
            watch: settings.watch,
            most: usize::try_from(settings.most).unwrap_or(usize::MAX),
            log_range: settings.log_range,
        })))
    }

    /// Reconciles what is due, within this time. An error means that the chain or the ledger could not be reached.
    pub async fn run(&self, time_left: Duration) -> Result<Run> {
        let now = Instant::now();
        let left = time_left.saturating_sub(LONGEST_RECONCILE.saturating_add(RECORDING));
        let last_start = now.checked_add(left).unwrap_or(now);
        let block = self.0.chain.final_block().await;
        let block = block.map_err(|error| Error::internal("reading the final block", error))?;
        let (run, gone) = Sweep::new(Arc::clone(&self.0), block, last_start).run().await;
        run.log();
        gone.map(|()| run)
    }
}

impl Shared {
    /// Whether a block is so deep that the watch of a confirmation in it ends.
    fn is_deep(&self, number: u64, block: &FinalBlock) -> bool {
        // The final block's own depth is `confirmations`, and each block below it is one deeper.
        let below = block.number.checked_sub(number);
        below.is_some_and(|below| below.saturating_add(self.confirmations) >= self.watch)
    }
}
