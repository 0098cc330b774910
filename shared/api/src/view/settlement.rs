//! The JSON of a settlement, for agents and users.

use purser_domain::{Purchase, ServiceId, Settlement, SettlementId, Timestamp, TransactionId};

purser_macros::views! {
    /// A settlement, as a receipt returns it (`docs/spec.md` §2.4).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SettlementRow as Settlement {
        /// Creates the view of a settlement and the purchase.
        pub fn new(settlement: &Settlement, purchase: &Purchase);
        let terms = &settlement.terms;

        /// The settlement's ID, which other responses contain as `settlement_id`.
        pub id: SettlementId = terms.id,
        /// The ID of the decision in the audit log.
        pub transaction_id: TransactionId = terms.transaction,
        /// The ID of the agent that pays.
        pub agent_id: String = terms.agent.to_string(),
        /// The ID of the service that is paid.
        pub service_id: ServiceId = purchase.service,
        /// The slug of the paid operation.
        pub operation_id: String = purchase.operation.to_string(),
        /// The network on which the payment is made.
        #[schema(value_type = String, example = "base")]
        pub network: &'static str = terms.network.name(),
        /// The symbol of the token that is paid, such as `USDC`.
        #[schema(value_type = String, example = "USDC")]
        pub token: &'static str = terms.network.token_symbol(),
        /// The amount of the payment, in micro-units.
        pub amount_units: u64 = terms.amount.units(),
        /// The payee's address.
        pub pay_to: String = terms.pay_to.to_string(),
        /// The payment's status: `authorized`, `confirmed` or `expired`.
        #[schema(value_type = String, example = "confirmed")]
        pub receipt_status: &'static str = settlement.state.state_name(),
        /// The hash of the confirmed transaction; null until the payment is confirmed.
        pub tx_hash: Option<String> = settlement.tx_hash().map(|hash| hash.to_string()),
        /// The time at which the payment was authorized and its amount was reserved.
        pub authorized_at: Timestamp = terms.authorized_at,
        /// The time at which the payment was made on chain; null until the payment is confirmed.
        pub settled_at: Option<Timestamp> = settlement.settled_at(),
    }
}
