//! Creates wallets and reads their balances.

use crate::agents::new_keys::NewKeys;
use crate::agents::owned::OwnedAgent;
use crate::state::People;
use purser_api::{AttestWallet, CallerIds, RequestedWallet};
use purser_chain::{KmsError, KmsKeys, is_attested};
use purser_domain::{AgentId, Amount, Causes, Error, ErrorKind, Result, Wallet};
use purser_store::SpareKey;
use tracing::warn;

const OPERATION: &str = "creating a wallet";

/// `Retry-After` while a new KMS key can't be used yet. KMS applies tags within five minutes.
const NEW_KEY_SECONDS: u64 = 10;

impl People {
    /// Creates an agent id and a wallet. A KMS key that can't be used yet is kept for the next agent.
    pub(crate) async fn create_wallet(&self, caller: CallerIds) -> Result<(AgentId, Wallet)> {
        let (keys, stack, policy) = match &self.new_keys {
            NewKeys::Seed => {
                let index = self.ledger.assign_wallet_index().await?;
                let agent = self.new_agent_id()?;
                let wallet = self
                    .attest_wallet(agent, RequestedWallet::Seed { index }, caller)
                    .await?;
                return Ok((agent, wallet));
            }
            NewKeys::Kms { keys, stack, policy } => (keys, stack, policy.as_deref()),
        };
        let spare_key = match self.ledger.take_spare_key().await? {
            Some(spare_key) => spare_key,
            None => self.create_kms_key(keys, stack, policy).await?,
        };
        let key_id = spare_key.key;
        match self
            .attest_wallet(spare_key.agent, RequestedWallet::Kms { key_id }, caller)
            .await
        {
            Ok(wallet) => Ok((spare_key.agent, wallet)),
            Err(error) => Err(self.store_spare_key_after_error(spare_key, error).await),
        }
    }

    async fn create_kms_key(&self, keys: &KmsKeys, stack: &str, policy: Option<&str>) -> Result<SpareKey> {
        let agent = self.new_agent_id()?;
        let made = keys.create_key(agent, stack, policy).await;
        let key = made.map_err(|error| match error {
            KmsError::Unavailable(_) => Error::temporarily_unavailable(OPERATION, error),
            KmsError::Refused(_) | KmsError::Answer(_) => Error::internal(OPERATION, error),
        })?;
        Ok(SpareKey { key, agent })
    }

    /// Keeps a KMS key for the next agent, and returns `error` with a `Retry-After`.
    async fn store_spare_key_after_error(&self, spare_key: SpareKey, error: Error) -> Error {
        if !matches!(error.kind(), ErrorKind::TemporarilyUnavailable { .. }) {
            return error;
        }
        if let Err(cause) = self.ledger.add_spare_key(spare_key).await {
            warn!(agent.id = %spare_key.agent, cause = %Causes(&cause), "wallet_key.not_kept");
        }
        error.with_retry_after(NEW_KEY_SECONDS)
    }

    async fn attest_wallet(&self, agent: AgentId, arguments: RequestedWallet, caller: CallerIds) -> Result<Wallet> {
        let request = AttestWallet {
            agent_id: agent,
            wallet: arguments.clone(),
        };
        let attested = self.payments.attest_wallet(caller, request).await?;
        attested
            .wallet_for_request(&arguments)
            .filter(|wallet| is_attested(&wallet.attestation, agent, wallet.address))
            .ok_or_else(|| Error::internal(OPERATION, "the wallet is not attested"))
    }

    fn new_agent_id(&self) -> Result<AgentId> {
        let bytes = self.entropy.random_bytes()?;
        Ok(AgentId::from_uuid(uuid::Builder::from_random_bytes(bytes).into_uuid()))
    }

    /// Returns `None` if the chain can't be reached, because users can manage an agent without the balance.
    pub(crate) async fn read_wallet_balance(&self, owned: &OwnedAgent) -> Option<Amount> {
        match self.chain.read_balance(owned.agent().wallet.address).await {
            Ok(balance) => Some(balance),
            Err(error) => {
                warn!(cause = %error, "balance.unavailable");
                None
            }
        }
    }
}
