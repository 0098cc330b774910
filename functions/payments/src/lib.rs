//! The agent-key group that moves money: preflight, authorize, complete and receipts.
//!
//! One file per endpoint, each with its contract in its header; `decide.rs` and `early_balance.rs` are what preflight and
//! authorize share, and `view.rs` the wire shapes. Every handler goes parse, decide, commit, reply. Only this function
//! holds the wallet seed and the nonce key.

mod authorize;
mod check;
mod complete;
mod decide;
mod early_balance;
mod receipt;
mod receipts;
mod settings;
mod view;

use axum::Router;
use early_balance::{EarlyBalance, SeenAgents};
use purser_api::{ApiSettings, AuthorizeRequest, Boot, BootError, Caller, Chance, Clock, ProviderProof, Secrets};
use purser_chain::{Chain, ChainError, Finality, NonceKey, WalletSeed, WalletSigner};
use purser_domain::{
    Agent, AgentId, Duration, Error, ErrorKind, Grant, Intent, KeyId, Network, Offer, PaymentHeader, PaymentTerms,
    PresentedKey, Purchase, Result, ServiceId, Settlement, SettlementId, Terms, Timestamp, TransactionId,
    TransferAuthorization, TxHash,
};
use purser_store::{Ask, CatalogCache, CatalogTable, Edition, KeyUses, Ledger, Snapshot, Throttle};
use settings::Settings;
use std::sync::Arc;
use utoipa::openapi::OpenApi;

/// What the handlers work with; shared by all of them.
struct Payments {
    ledger: Ledger,
    catalog: CatalogCache,
    throttle: Throttle,
    key_uses: KeyUses,
    chain: Arc<Chain>,
    seen: SeenAgents,
    seed: WalletSeed,
    nonce_key: NonceKey,
    clock: Clock,
    chance: Chance,
    network: Network,
    /// The longest that a signed payment stays usable, whatever the provider asks for.
    max_authorization: Duration,
    approval_ttl: Duration,
    /// How many of an agent's approvals may wait for a person.
    most_open_approvals: u32,
    /// How long complete waits for a transaction to become final before it says "not yet".
    patience: std::time::Duration,
    provider_proof: ProviderProof,
}

impl Payments {
    /// The agent behind a call, the key that it called with, and what was read for it in the same round trip.
    async fn enter(&self, caller: Caller, ask: impl FnOnce(AgentId) -> Ask) -> Result<(Agent, KeyId, Snapshot)> {
        let now = self.clock.now();
        let scope = caller.scope();
        let read = async |key: &PresentedKey| {
            let knows = |agent: &Agent| key.is_valid_for(Some(agent), self.clock.now());
            let mut snapshot = self.ledger.snapshot_for(&ask(key.agent), knows).await?;
            Ok((snapshot.agent.take(), snapshot))
        };
        let (agent, key, snapshot) = caller.enter(self.throttle.hit(scope, now), &self.clock, read).await?;
        self.key_uses.note(agent.id, key, now);
        Ok((agent, key, snapshot))
    }

    /// What a decision begins with, in one round trip: who calls, what it is about, and what is read for it. Beside these
    /// reads the catalog's copy is confirmed, which they go by, and the wallet's balance is asked for where it will most likely
    /// count ([`EarlyBalance`]). What is read for a stranger is the same, whether there is such an agent or not.
    async fn open(
        self: &Arc<Self>,
        caller: Caller,
        intent: Option<&Intent>,
        ask: impl Fn(AgentId, Option<ServiceId>) -> Ask,
    ) -> Result<Opening> {
        let service_in = |edition: &Edition| {
            let purchase = Purchase::of(intent?, &edition.catalog).ok()?;
            Some(purchase.service.id)
        };
        let guess = self.catalog.latest();
        let guess = guess.as_deref().and_then(service_in);
        let balance = intent.and_then(|_| EarlyBalance::of_caller(self, &caller));
        // Boxed for the same reason as in `admit` (shared/api).
        let (edition, entered) = tokio::join!(
            Box::pin(self.catalog.current(self.clock.now())),
            Box::pin(self.enter(caller, |agent| ask(agent, guess)))
        );
        let edition = edition?;
        let (mut agent, key, mut snapshot) = entered?;
        let service = service_in(&edition);
        if service != guess {
            // The catalog has changed underneath the guess, or there was none.
            snapshot = self.ledger.snapshot(&ask(agent.id, service)).await?;
            agent = snapshot.agent.take().ok_or(ErrorKind::InvalidAgentKey)?;
            if !agent.takes(key, self.clock.now()) {
                return Err(ErrorKind::InvalidAgentKey.into());
            }
        }
        Ok(Opening {
            edition,
            agent,
            key,
            snapshot,
            balance,
        })
    }

    /// One of the caller's settlements, `None` for an unknown id as for somebody else's; and which settlement the transaction
    /// has confirmed that it is to be proven by, if it has any.
    async fn enter_for_settlement(
        &self,
        caller: Caller,
        id: Option<SettlementId>,
        proof: Option<TxHash>,
    ) -> Result<(Option<Settlement>, Option<SettlementId>)> {
        let now = self.clock.now();
        let scope = caller.scope();
        let read = async |key: &PresentedKey| {
            let proof = proof.map(|hash| (self.network, hash));
            let mut presented = self.ledger.presented(key.agent, id, proof).await?;
            Ok((presented.agent.take(), presented))
        };
        let (agent, key, presented) = caller.enter(self.throttle.hit(scope, now), &self.clock, read).await?;
        self.key_uses.note(agent.id, key, now);
        Ok((presented.settlement, presented.claimed_by))
    }

    /// The agent's wallet. A seed that does not lead to the address on record must not sign anything.
    fn wallet(&self, agent: &Agent) -> Result<Arc<WalletSigner>> {
        let wallet = self
            .seed
            .wallet(agent.wallet.index)
            .map_err(|error| Error::internal("deriving a wallet", error))?;
        if wallet.address() == agent.wallet.address {
            Ok(wallet)
        } else {
            Err(Error::internal(
                "deriving a wallet",
                "the seed does not lead to the agent's address",
            ))
        }
    }

    /// The terms of a grant: what will be stored, and all that will be signed.
    fn terms(&self, agent: &Agent, request: &AuthorizeRequest, grant: &Grant<'_>) -> Result<Terms> {
        let offer = &request.intent.offer;
        let window = Duration::from_secs_u32(offer.max_timeout_secs()).min(self.max_authorization);
        let random: [u8; 16] = self.chance.bytes()?;
        let [settlement, transaction] =
            [random.first_chunk::<8>(), random.last_chunk::<8>()].map(|half| half.copied().unwrap_or_default());
        let valid_before = Timestamp::from_secs(grant.at().secs())
            .unwrap_or(grant.at())
            .after(window);
        Ok(Terms {
            id: SettlementId::at(grant.at(), settlement),
            transaction: TransactionId::at(grant.at(), transaction),
            agent: agent.id,
            wallet: agent.wallet.address,
            service: grant.service(),
            operation: grant.operation().clone(),
            network: self.network,
            amount: grant.amount(),
            pay_to: offer.pay_to(),
            authorized_at: grant.at(),
            valid_before,
            x402_version: offer.version(),
            offer_index: offer.index(),
            policy_version: grant.policy_version(),
            budgets: grant.charges().filter_map(|charge| charge.scope.budget()).collect(),
            idempotency_key: request.idempotency_key,
            approval: grant.approval(),
            checks: grant.checks().to_vec(),
        })
    }

    /// The signed payment of a settlement: the same bytes, however often it is made.
    fn payment(&self, wallet: &WalletSigner, terms: &PaymentTerms, offer: &Offer) -> Result<PaymentHeader> {
        let authorization = TransferAuthorization::of(terms, self.nonce_key.nonce(terms.settlement));
        let signature = wallet
            .sign(terms.network, &authorization)
            .map_err(|error| Error::internal("signing a payment", error))?;
        Ok(PaymentHeader::new(offer, terms.network, &authorization, signature))
    }
}

/// What a decision begins with.
struct Opening {
    /// The catalog, as of now.
    edition: Arc<Edition>,
    agent: Agent,
    /// The key that it called with, which was good when it came.
    key: KeyId,
    snapshot: Snapshot,
    /// The wallet's balance, where it is being asked for already.
    balance: Option<EarlyBalance>,
}

/// A reading of the agent alone.
const fn only(agent: AgentId) -> Ask {
    Ask {
        agent,
        service: None,
        key: None,
        approval: None,
    }
}

purser_api::routes!(
    Arc<Payments>,
    check::check,
    authorize::authorize,
    complete::complete,
    receipt::receipt,
    receipts::receipts,
);

/// The group's part of the OpenAPI document.
pub fn openapi() -> OpenApi {
    description()
}

/// The group, ready to serve: configuration and secrets are read, and the first connections opened, before the first
/// request is there.
pub async fn router(boot: Boot) -> Result<Router, BootError> {
    let http = boot.http.clone();
    router_over(boot, |network, rpc_url, finality| {
        Chain::new(http, network, rpc_url, finality)
    })
    .await
}

/// As [`router`], over the chain that `chain` makes of the network, the node's address and the finality: the simulation
/// has one of its own.
pub async fn router_over(
    boot: Boot,
    chain: impl FnOnce(Network, &str, Finality) -> Result<Chain, ChainError>,
) -> Result<Router, BootError> {
    let Boot {
        mut env,
        aws,
        clock,
        chance,
        aside,
        ..
    } = boot;
    let api = ApiSettings::from_env(&mut env);
    let settings = Settings::from_env(&mut env);
    let (api, settings) = env.finish(api.zip(settings))?;

    // Beside the catalog, which takes two calls after one another.
    let arns = [
        settings.wallet_seed_secret,
        settings.nonce_key_secret,
        settings.rpc_url_secret,
    ];
    let keys = aside.begin({
        let aws = aws.clone();
        async move {
            let arns = arns.each_ref().map(String::as_str);
            let [seed, nonce_key, rpc_url] = Secrets::new(&aws).texts(arns).await?;
            Ok((WalletSeed::from_hex(&seed)?, NonceKey::from_text(&nonce_key)?, rpc_url))
        }
    });
    let db = purser_store::client(&aws);
    let catalog = CatalogCache::new(CatalogTable::new(db.clone(), settings.catalog_table));
    let (_warm, (seed, nonce_key, chain)) = tokio::try_join!(
        biased;
        // The first read opens the connection; a catalog that can't be read yet is asked for again by the first call.
        async { Ok::<_, BootError>(catalog.current(clock.now()).await.ok()) },
        async {
            let (seed, nonce_key, rpc_url) = keys.await?;
            let chain = Arc::new(chain(settings.network, &rpc_url, settings.finality)?);
            // Nobody waits for it here: not every call needs the node, and it may be down.
            let greeted = Arc::clone(&chain);
            tokio::spawn(async move { greeted.greet().await });
            Ok((seed, nonce_key, chain))
        },
    )?;
    if settings.provider_proof == ProviderProof::OrAssertion && !chain.is_development_node().await? {
        return Err("`ACCEPT_PROVIDER_OK` is for local chains alone".into());
    }
    let payments = Arc::new(Payments {
        ledger: Ledger::new(db.clone(), settings.ledger_table, settings.decisions_table),
        catalog,
        key_uses: KeyUses::new(db.clone(), settings.throttle_table.as_str()),
        throttle: Throttle::new(db, settings.throttle_table, settings.throttle_per_minute),
        chain,
        seen: SeenAgents::default(),
        seed,
        nonce_key,
        clock,
        chance,
        network: settings.network,
        max_authorization: settings.max_authorization,
        approval_ttl: settings.approval_ttl,
        most_open_approvals: settings.most_open_approvals,
        patience: settings.patience,
        provider_proof: settings.provider_proof,
    });
    Ok(purser_api::finish(routes().with_state(payments), api))
}
