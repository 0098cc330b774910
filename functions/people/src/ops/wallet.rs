//! An agent's wallet: made with the agent, and its balance.

use crate::ops::owned::Owned;
use crate::state::People;
use purser_api::{AskedWallet, AttestWallet, CallerIds};
use purser_chain::{KmsError, KmsKeys, is_attested};
use purser_domain::{AgentId, Amount, Error, Result, Wallet};
use tracing::warn;

/// Where the key of a new wallet comes from. This function can use none.
pub(crate) enum NewKeys {
    /// The wallet seed, which this function does not have: it numbers the wallets.
    Seed,
    /// KMS.
    Kms {
        keys: Box<KmsKeys>,
        /// The deployment's name, by which the roles know its keys.
        stack: String,
        /// Who may use a key; `None` leaves it to IAM's policies.
        policy: Option<String>,
    },
}

impl People {
    /// A new wallet for an agent, whose key has attested its address. A number or a key whose wallet was not stored in
    /// the end is never used; in KMS it is found by its tags (`docs/operations.md`).
    pub(crate) async fn new_wallet(&self, agent: AgentId, caller: CallerIds) -> Result<Wallet> {
        const DOING: &str = "making a wallet";
        let asked = match &self.new_keys {
            NewKeys::Seed => AskedWallet::Seed {
                index: self.ledger.next_wallet_index().await?,
            },
            NewKeys::Kms { keys, stack, policy } => {
                let made = keys.create(agent, stack, policy.as_deref()).await;
                let id = made.map_err(|error| match error {
                    KmsError::Unavailable(_) => Error::temporarily_unavailable(DOING, error),
                    KmsError::Refused(_) | KmsError::Answer(_) => Error::internal(DOING, error),
                })?;
                AskedWallet::Kms { key_id: id.to_string() }
            }
        };
        let request = AttestWallet {
            agent_id: agent.uuid(),
            wallet: asked.clone(),
        };
        let attested = self.payments.attest_wallet(caller, request).await?;
        attested
            .wallet(&asked)
            .filter(|wallet| is_attested(&wallet.attestation, agent, wallet.address))
            .ok_or_else(|| Error::internal(DOING, "it is not attested"))
    }

    /// The wallet's balance, or `None` while the chain can't be reached, since the rest of the agent can be managed
    /// without it.
    pub(crate) async fn balance(&self, owned: &Owned) -> Option<Amount> {
        match self.chain.balance(owned.agent().wallet.address).await {
            Ok(balance) => Some(balance),
            Err(error) => {
                warn!(cause = %error, "balance.unavailable");
                None
            }
        }
    }
}
