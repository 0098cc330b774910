//! Tests the claims that bind wallets to agents.

use purser_store::WalletClaim;
use purser_testkit::{Emulator, sample};

#[tokio::test]
async fn a_wallet_is_claimed_by_one_agent_and_an_agent_claims_one_wallet() {
    let ledger = Emulator::start().await.ledger();
    let [first, second, third] = [1, 2, 3].map(|n| sample::agent(n, Vec::new()).id);
    let claim = async |agent, wallet| ledger.claim_wallet(agent, sample::wallet(wallet)).await.unwrap();
    for _ in 0..2 {
        assert_eq!(claim(first, 1).await, WalletClaim::Granted);
        assert_eq!(claim(second, 2).await, WalletClaim::Granted);
        assert_eq!(claim(third, 1).await, WalletClaim::OtherAgent);
        assert_eq!(claim(first, 2).await, WalletClaim::OtherAgent);
        assert_eq!(claim(second, 9).await, WalletClaim::OtherWallet);
    }
}
