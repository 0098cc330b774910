//! Claims that bind a wallet to the agent for which it was attested. Claims are never changed or removed. A claim is
//! written before the attestation is signed, so a wallet's key attests at most one agent.

use crate::{
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::item::Draft,
    codec::key::Key,
    codec::ledger::Ledger,
    transact::{Transaction, TransactionOutcome},
};
use purser_domain::{Address, AgentId, Result};

/// The result of claiming a wallet for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalletClaim {
    /// The agent has claimed the wallet, in this attempt or an earlier attempt.
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
    /// Claims a wallet for an agent. Takes 4 write units.
    pub async fn claim_wallet(&self, agent: AgentId, wallet: Address) -> Result<WalletClaim> {
        let mut transaction = Transaction::new();
        let by_agent = Draft::new(&Key::wallet_claim(wallet)).with("agent", &agent);
        let put = self
            .put_item(by_agent.into_item())
            .condition_expression("attribute_not_exists(pk) OR #agent = :agent")
            .expression_attribute_names("#agent", "agent")
            .expression_attribute_values(":agent", agent.write());
        transaction.add_put(Role::Wallet, put)?;
        let by_wallet = Draft::new(&Key::wallet_claim_by_agent(agent)).with("address", &wallet);
        let put = self
            .put_item(by_wallet.into_item())
            .condition_expression("attribute_not_exists(pk) OR address = :wallet")
            .expression_attribute_values(":wallet", wallet.write());
        transaction.add_put(Role::Agent, put)?;
        Ok(
            match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
                TransactionOutcome::Committed => WalletClaim::Granted,
                TransactionOutcome::Refused(rejection) if rejection.has_failed(Role::Wallet) => WalletClaim::OtherAgent,
                TransactionOutcome::Refused(_) => WalletClaim::OtherWallet,
            },
        )
    }
}
