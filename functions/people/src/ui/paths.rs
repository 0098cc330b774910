//! Paths of the pages, and URLs of the block explorer.

use purser_domain::{
    Address, AgentId, ApprovalId, BacktestId, Network, SettlementId, TemplateName, TransactionId, TxHash,
};

/// The page of an agent.
pub(crate) fn agent(agent: AgentId) -> String {
    format!("/dashboard/agents/{agent}")
}

/// The page of an agent's shadow.
pub(crate) fn shadow(agent: AgentId) -> String {
    format!("/dashboard/agents/{agent}/shadow")
}

/// The page of the backtests.
pub(crate) const BACKTESTS: &str = "/dashboard/backtests";

/// The page of a backtest.
pub(crate) fn backtest(id: BacktestId) -> String {
    format!("{BACKTESTS}/{id}")
}

/// The page of the policy templates.
pub(crate) const TEMPLATES: &str = "/dashboard/templates";

/// The page of a policy template.
pub(crate) fn template(name: &TemplateName) -> String {
    format!("{TEMPLATES}/{name}")
}

/// The page of the approvals.
pub(crate) const APPROVALS: &str = "/dashboard/approvals";

/// The page of an approval.
pub(crate) fn approval(agent: AgentId, approval: ApprovalId) -> String {
    format!("/dashboard/approvals/{agent}/{approval}")
}

/// The path below which the forms of an approval are posted.
pub(crate) fn approval_form(agent: AgentId, approval: ApprovalId) -> String {
    format!("/dashboard/agents/{agent}/approvals/{approval}")
}

/// The page of a receipt.
pub(crate) fn receipt(agent: AgentId, settlement: SettlementId) -> String {
    format!("/dashboard/receipts/{agent}/{settlement}")
}

/// The page of a decision.
pub(crate) fn decision(agent: AgentId, transaction: TransactionId) -> String {
    format!("/dashboard/decisions/{agent}/{transaction}")
}

/// The file with the evidence of a decision.
pub(crate) fn evidence(agent: AgentId, transaction: TransactionId) -> String {
    format!("/dashboard/decisions/{agent}/{transaction}/evidence.json")
}

const fn explorer(network: Network) -> &'static str {
    match network {
        Network::Base => "https://basescan.org",
        Network::BaseSepolia => "https://sepolia.basescan.org",
    }
}

/// The URL of a transaction in the block explorer.
pub(crate) fn transaction(network: Network, tx_hash: TxHash) -> String {
    format!("{}/tx/{tx_hash}", explorer(network))
}

/// The URL of a wallet in the block explorer.
pub(crate) fn wallet(network: Network, address: Address) -> String {
    format!("{}/address/{}", explorer(network), address.to_checksum(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_links_use_the_explorer_of_the_network() {
        let hash = TxHash::parse(&format!("0x{}", "ab".repeat(32))).unwrap();
        for (network, host) in [
            (Network::Base, "basescan.org"),
            (Network::BaseSepolia, "sepolia.basescan.org"),
        ] {
            assert_eq!(transaction(network, hash), format!("https://{host}/tx/{hash}"));
        }
    }
}
