//! Claims that bind a wallet to the agent for which it was attested. Claims are never changed or removed. A claim is
//! written before the attestation is signed, so a wallet's key attests at most one agent.

use crate::{
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::item::Draft,
    codec::key::Key,
    codec::ledger::Ledger,
    reconcile::outflows::WalletPart,
    transact::{Transaction, TransactionOutcome},
};
use purser_domain::{Address, Agent, AgentId, Result};

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

/// The result of claiming the wallets of all agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimedWallets {
    /// The number of agents that have claimed their wallet.
    pub claimed: usize,
    /// The agents without a claim. Either another agent has claimed the wallet, or the agent has claimed another
    /// wallet, or the wallet has not attested the agent.
    pub refused: Vec<AgentId>,
    /// The number of unreadable rows.
    pub unreadable: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Wallet,
    Agent,
}

impl Ledger {
    /// Claims the wallet of each agent for which `is_attested` returns `true`. Takes 4 write units per agent. Repeating
    /// the call changes nothing.
    pub async fn claim_attested_wallets(&self, is_attested: impl Fn(&Agent) -> bool) -> Result<ClaimedWallets> {
        let mut done = ClaimedWallets::default();
        let all = WalletPart { index: 0, of: 1 };
        for wallet in self.read_wallets(all).await? {
            let Ok((_, id)) = wallet else {
                done.unreadable = done.unreadable.saturating_add(1);
                continue;
            };
            let agent = self.read_agent_by_id(id).await?.filter(|agent| is_attested(agent));
            let claim = match agent {
                Some(agent) => Some(self.claim_wallet(id, agent.wallet.address).await?),
                None => None,
            };
            if claim == Some(WalletClaim::Granted) {
                done.claimed = done.claimed.saturating_add(1);
            } else {
                done.refused.push(id);
            }
        }
        Ok(done)
    }

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
        let by_wallet = Draft::new(&Key::claim_by_wallet(agent)).with("address", &wallet);
        let put = self
            .put_item(by_wallet.into_item())
            .condition_expression("attribute_not_exists(pk) OR address = :wallet")
            .expression_attribute_values(":wallet", wallet.write());
        transaction.add_put(Role::Agent, put)?;
        Ok(
            match transaction.send_until_known(&self.db, &mut Backoff::new()).await? {
                TransactionOutcome::Committed => WalletClaim::Granted,
                TransactionOutcome::Refused(rejection) if rejection.has_failed(Role::Wallet) => WalletClaim::OtherAgent,
                TransactionOutcome::Refused(_) => WalletClaim::OtherWallet,
            },
        )
    }
}
