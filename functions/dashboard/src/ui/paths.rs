//! Paths of the pages, and URLs of the block explorer.

use purser_domain::{
    Address, AgentId, ApprovalId, BacktestId, Network, SettlementId, TemplateName, TransactionId, TxHash,
};

pub(crate) fn agent_path(agent: AgentId) -> String {
    format!("/dashboard/agents/{agent}")
}

pub(crate) fn shadow_path(agent: AgentId) -> String {
    format!("/dashboard/agents/{agent}/shadow")
}

pub(crate) const BACKTESTS: &str = "/dashboard/backtests";

pub(crate) fn backtest_path(id: BacktestId) -> String {
    format!("{BACKTESTS}/{id}")
}

pub(crate) const TEMPLATES: &str = "/dashboard/templates";

pub(crate) fn template_path(name: &TemplateName) -> String {
    format!("{TEMPLATES}/{name}")
}

pub(crate) const APPROVALS: &str = "/dashboard/approvals";

pub(crate) fn approval_path(agent: AgentId, approval: ApprovalId) -> String {
    format!("/dashboard/approvals/{agent}/{approval}")
}

/// Returns the path prefix of an approval's forms.
pub(crate) fn approval_form_path(agent: AgentId, approval: ApprovalId) -> String {
    format!("/dashboard/agents/{agent}/approvals/{approval}")
}

pub(crate) fn receipt_path(agent: AgentId, settlement: SettlementId) -> String {
    format!("/dashboard/receipts/{agent}/{settlement}")
}

pub(crate) fn decision_path(agent: AgentId, transaction: TransactionId) -> String {
    format!("/dashboard/decisions/{agent}/{transaction}")
}

pub(crate) fn evidence_path(agent: AgentId, transaction: TransactionId) -> String {
    format!("/dashboard/decisions/{agent}/{transaction}/evidence.json")
}

const fn explorer_url(network: Network) -> &'static str {
    match network {
        Network::Base => "https://basescan.org",
        Network::BaseSepolia => "https://sepolia.basescan.org",
    }
}

pub(crate) fn transaction_url(network: Network, tx_hash: TxHash) -> String {
    format!("{}/tx/{tx_hash}", explorer_url(network))
}

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
