//! The address of a new agent's wallet, with a proof by the wallet's own key: so that no page shows an address that this
//! function could not pay from, whoever wrote what the page reads.
//!
//! It may be asked any number of times: nothing is stored.

use crate::Payments;
use purser_api::{AskedWallet, AttestWallet, AttestedWallet};
use purser_chain::{CustodyError, NewKey};
use purser_domain::{AgentId, Error, KmsKeyId, Problem, Result};

impl Payments {
    /// The attested wallet of the key that is meant.
    pub(crate) async fn attest_wallet(&self, asked: AttestWallet) -> Result<AttestedWallet> {
        let key = match asked.wallet {
            AskedWallet::Seed { index } => NewKey::Seed(index),
            AskedWallet::Kms { key_id } => {
                let id = KmsKeyId::parse(&key_id);
                let wrong = || Error::invalid(vec![Problem::at("wallet.kms.key_id", "must be a UUID")]);
                NewKey::Kms(id.ok_or_else(wrong)?)
            }
        };
        let wallet = self.custody.attest(AgentId::from_uuid(asked.agent_id), key).await;
        let wallet = wallet.map_err(|error| custody_failed("attesting a wallet", error))?;
        Ok(AttestedWallet::of(&wallet))
    }
}

/// What a caller is told of a custody that has no signature.
pub(crate) fn custody_failed(doing: &'static str, error: CustodyError) -> Error {
    if error.may_pass() {
        Error::temporarily_unavailable(doing, error)
    } else {
        Error::internal(doing, error)
    }
}
