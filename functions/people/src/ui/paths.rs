//! Paths of the pages, and URLs of the block explorer.

use purser_domain::{
    Address, AgentId, ApprovalId, BacktestId, Network, SettlementId, TemplateName, TransactionId, TxHash,
};

/// Returns the path of an agent's page.
pub(crate) fn agent(agent: AgentId) -> String {
    format!("/dashboard/agents/{agent}")
}

/// Returns the path of the page about an agent's shadow policy.
pub(crate) fn shadow(agent: AgentId) -> String {
    format!("/dashboard/agents/{agent}/shadow")
}

/// The path of the backtests' page.
pub(crate) const BACKTESTS: &str = "/dashboard/backtests";

/// Returns the path of a backtest's page.
pub(crate) fn backtest(id: BacktestId) -> String {
    format!("{BACKTESTS}/{id}")
}

/// The path of the policy templates' page.
pub(crate) const TEMPLATES: &str = "/dashboard/templates";

/// Returns the path of a policy template's page.
pub(crate) fn template(name: &TemplateName) -> String {
    format!("{TEMPLATES}/{name}")
}

/// The path of the approval queue.
pub(crate) const APPROVALS: &str = "/dashboard/approvals";

/// Returns the path of an approval's page.
pub(crate) fn approval(agent: AgentId, approval: ApprovalId) -> String {
    format!("/dashboard/approvals/{agent}/{approval}")
}

/// Returns the path below which an approval's forms are posted.
pub(crate) fn approval_form(agent: AgentId, approval: ApprovalId) -> String {
    format!("/dashboard/agents/{agent}/approvals/{approval}")
}

/// Returns the path of a receipt's page.
pub(crate) fn receipt(agent: AgentId, settlement: SettlementId) -> String {
    format!("/dashboard/receipts/{agent}/{settlement}")
}

/// Returns the path of a decision's page.
pub(crate) fn decision(agent: AgentId, transaction: TransactionId) -> String {
    format!("/dashboard/decisions/{agent}/{transaction}")
}

/// Returns the path of the file with a decision's evidence.
pub(crate) fn evidence(agent: AgentId, transaction: TransactionId) -> String {
    format!("/dashboard/decisions/{agent}/{transaction}/evidence.json")
}

const fn explorer(network: Network) -> &'static str {
    match network {
        Network::Base => "https://basescan.org",
        Network::BaseSepolia => "https://sepolia.basescan.org",
    }
}

/// Returns a transaction's URL in the block explorer.
pub(crate) fn transaction(network: Network, tx_hash: TxHash) -> String {
    format!("{}/tx/{tx_hash}", explorer(network))
}

/// Returns a wallet's URL in the block explorer.
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
