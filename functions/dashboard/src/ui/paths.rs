//! Paths of the pages, and URLs of the block explorer.

use purser_domain::{
    Address, AgentId, ApprovalId, BacktestId, Network, SettlementId, TemplateName, TransactionId, TxHash,
};

/// Returns the path of an agent's page.
pub(crate) fn agent_path(agent: AgentId) -> String {
    format!("/dashboard/agents/{agent}")
}

/// Returns the path of the page about an agent's shadow policy.
pub(crate) fn shadow_path(agent: AgentId) -> String {
    format!("/dashboard/agents/{agent}/shadow")
}

/// The path of the backtests' page.
pub(crate) const BACKTESTS: &str = "/dashboard/backtests";

/// Returns the path of a backtest's page.
pub(crate) fn backtest_path(id: BacktestId) -> String {
    format!("{BACKTESTS}/{id}")
}

/// The path of the policy templates' page.
pub(crate) const TEMPLATES: &str = "/dashboard/templates";

/// Returns the path of a policy template's page.
pub(crate) fn template_path(name: &TemplateName) -> String {
    format!("{TEMPLATES}/{name}")
}

/// The path of the approval queue.
pub(crate) const APPROVALS: &str = "/dashboard/approvals";

/// Returns the path of an approval's page.
pub(crate) fn approval_path(agent: AgentId, approval: ApprovalId) -> String {
    format!("/dashboard/approvals/{agent}/{approval}")
}

/// Returns the path of an approval's forms, without the form's name.
pub(crate) fn approval_form_path(agent: AgentId, approval: ApprovalId) -> String {
    format!("/dashboard/agents/{agent}/approvals/{approval}")
}

/// Returns the path of a receipt's page.
pub(crate) fn receipt_path(agent: AgentId, settlement: SettlementId) -> String {
    format!("/dashboard/receipts/{agent}/{settlement}")
}

/// Returns the path of a decision's page.
pub(crate) fn decision_path(agent: AgentId, transaction: TransactionId) -> String {
    format!("/dashboard/decisions/{agent}/{transaction}")
}

/// Returns the path of the file with a decision's evidence.
pub(crate) fn evidence_path(agent: AgentId, transaction: TransactionId) -> String {
    format!("/dashboard/decisions/{agent}/{transaction}/evidence.json")
}

const fn explorer_url(network: Network) -> &'static str {
    match network {
        Network::Base => "https://basescan.org",
        Network::BaseSepolia => "https://sepolia.basescan.org",
    }
}

/// Returns a transaction's URL in the block explorer.
pub(crate) fn transaction_url(network: Network, tx_hash: TxHash) -> String {
    format!("{}/tx/{tx_hash}", explorer_url(network))
}

/// Returns a wallet's URL in the block explorer.
pub(crate) fn wallet_url(network: Network, address: Address) -> String {
    format!("{}/address/{}", explorer_url(network), address.to_checksum(None))
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
            assert_eq!(transaction_url(network, hash), format!("https://{host}/tx/{hash}"));
        }
    }
}
