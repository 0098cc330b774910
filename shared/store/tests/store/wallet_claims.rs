//! Tests the claims that bind wallets to agents.

use purser_domain::{Agent, Wallet};
use purser_store::{ClaimedWallets, WalletClaim};
use purser_testkit::{Emulator, sample};

/// An agent with this wallet, without a claim.
fn agent(n: u128, wallet: u8) -> Agent {
    let agent = sample::agent(n, Vec::new());
    let wallet = Wallet {
        address: sample::wallet(wallet),
        ..agent.wallet
    };
    Agent { wallet, ..agent }
}

#[tokio::test]
async fn existing_agents_get_their_missing_wallet_claims() {
    let ledger = Emulator::start().await.ledger();
    // The third agent's record has the first agent's wallet, and the fourth agent's wallet has not attested the agent.
    let agents = [agent(1, 1), agent(2, 2), agent(3, 1), agent(4, 4)];
    for agent in &agents {
        ledger.create_agent(agent, &sample::audit()).await.unwrap();
    }
    let [first, second, third, fourth] = agents.each_ref().map(|agent| agent.id);
    let claim = async || {
        ledger
            .claim_attested_wallets(|agent| ![third, fourth].contains(&agent.id))
            .await
    };
    for _ in 0..2 {
        let mut done = claim().await.unwrap();
        done.refused.sort_unstable();
        let mut refused = vec![third, fourth];
        refused.sort_unstable();
        let expected = ClaimedWallets {
            claimed: 2,
            refused,
            unreadable: 0,
        };
        assert_eq!(done, expected);
    }
    let claimed = async |id, byte| ledger.claim_wallet(id, sample::wallet(byte)).await.unwrap();
    assert_eq!(claimed(third, 1).await, WalletClaim::OtherAgent);
    assert_eq!(claimed(first, 2).await, WalletClaim::OtherAgent);
    assert_eq!(claimed(second, 9).await, WalletClaim::OtherWallet);
    assert_eq!(claimed(first, 1).await, WalletClaim::Granted);
    // A claimed wallet can't belong to a second agent, even if the wallet attests that agent.
    let done = ledger.claim_attested_wallets(|_| true).await.unwrap();
    assert_eq!((done.claimed, done.refused), (3, vec![third]));
}
