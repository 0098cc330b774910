//! The claims that bind a wallet to the agent it was attested for: two rows, which only `payments` can write.
//!
//! Invariants: a wallet is claimed by one agent, an agent claims one wallet, and neither row is changed or removed.
//! `payments` writes both before it signs an attestation, so a wallet's key attests at most one agent.

use crate::{
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::item::Draft,
    codec::key::Key,
    codec::ledger::Ledger,
    codec::transact::{Transaction, TransactionOutcome},
};
use purser_domain::{Address, AgentId, Result};

/// The result of claiming a wallet for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalletClaim {
    /// The wallet is this agent's, by this or an earlier attempt.
    Granted,
    /// Another agent has claimed the wallet.
    OtherAgent,
    /// The agent has claimed another wallet.
    OtherWallet,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Wallet,
    Agent,
}

impl Ledger {
    /// Claims a wallet for an agent: 4 write units.
    pub async fn claim_wallet(&self, agent: AgentId, wallet: Address) -> Result<WalletClaim> {
        let mut transaction = Transaction::new();
        let by_agent = Draft::of(&Key::wallet_claim(wallet)).with("agent", &agent);
        let put = self
            .put(by_agent.into_item())
            .condition_expression("attribute_not_exists(pk) OR #agent = :agent")
            .expression_attribute_names("#agent", "agent")
            .expression_attribute_values(":agent", agent.write());
        transaction.put(Role::Wallet, put)?;
        let by_wallet = Draft::of(&Key::claim_by_wallet(agent)).with("address", &wallet);
        let put = self
            .put(by_wallet.into_item())
            .condition_expression("attribute_not_exists(pk) OR address = :wallet")
            .expression_attribute_values(":wallet", wallet.write());
        transaction.put(Role::Agent, put)?;
        Ok(
            match transaction.send_until_known(&self.db, &mut Backoff::new()).await? {
                TransactionOutcome::Committed => WalletClaim::Granted,
                TransactionOutcome::Refused(refusal) if refusal.names(Role::Wallet) => WalletClaim::OtherAgent,
                TransactionOutcome::Refused(_) => WalletClaim::OtherWallet,
            },
        )
    }
}
