//! The seed, and each agent's wallet derived from it.
//!
//! One seed holds every wallet (BIP-32), so there is one secret to keep and to back up, and a wallet is a number. The
//! address stored beside that number is compared before anything is signed: a seed that was exchanged is noticed, and not
//! discovered by money that nobody can move.

use alloy::primitives::{Address, hex};
use alloy::signers::{k256::ecdsa::SigningKey, local::PrivateKeySigner};
use coins_bip32::{prelude::Parent as _, xkeys::XPriv};
use std::fmt;
use zeroize::Zeroizing;

/// Why a secret can't be used. The secret is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The seed's text has another form.
    #[error("the wallet seed must be 64 to 128 hexadecimal digits, two for each byte")]
    Seed,
    /// There is no such wallet: the index is 2^31 or more, or BIP-32 skips it (about once in 2^127).
    #[error("wallet {0} can't be derived")]
    Wallet(u32),
    /// The nonce key is too short.
    #[error("the nonce key must have at least 32 characters")]
    Nonce,
}

/// The secret that all wallets are derived from: 32 to 64 bytes, overwritten when dropped.
pub struct WalletSeed(Zeroizing<Vec<u8>>);

/// m/44'/60'/0'/0, the external accounts of Ethereum (BIP-44, SLIP-44 coin type 60). BIP-32 counts hardened steps
/// from 2^31.
const ACCOUNTS: [u32; 4] = [HARDENED + 44, HARDENED + 60, HARDENED, 0];
const HARDENED: u32 = 1 << 31;

impl WalletSeed {
    /// Reads the seed from hexadecimal digits, with or without `0x`; a BIP-39 seed is 128 of them.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let bytes = Zeroizing::new(hex::decode(text).map_err(|_| KeyError::Seed)?);
        if (32..=64).contains(&bytes.len()) {
            Ok(Self(bytes))
        } else {
            Err(KeyError::Seed)
        }
    }

    /// The wallet at m/44'/60'/0'/0/`index`.
    pub fn wallet(&self, index: u32) -> Result<WalletSigner, KeyError> {
        let refused = |_| KeyError::Wallet(index);
        if index >= HARDENED {
            return Err(KeyError::Wallet(index));
        }
        let root = XPriv::root_from_seed(&self.0, None).map_err(refused)?;
        let key = ACCOUNTS
            .into_iter()
            .chain([index])
            .try_fold(root, |key, step| key.derive_child(step))
            .map_err(refused)?;
        let key: &SigningKey = key.as_ref();
        Ok(WalletSigner(PrivateKeySigner::from_signing_key(key.clone())))
    }
}

/// Nothing of the seed: debug output may reach a log.
impl fmt::Debug for WalletSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WalletSeed(..)")
    }
}

/// One wallet's key. It signs transfers of the pinned tokens and nothing else.
pub struct WalletSigner(pub(crate) PrivateKeySigner);

impl WalletSigner {
    /// The wallet's address.
    pub const fn address(&self) -> Address {
        self.0.address()
    }
}

/// The address alone.
impl fmt::Debug for WalletSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WalletSigner").field(&self.address()).finish()
    }
}

/// The BIP-39 seed of the public test mnemonic (`test` eleven times, then `junk`), for the tests of this crate.
#[cfg(test)]
pub(crate) const TEST_SEED: &str = "9dfc3c64c2f8bede1533b6a79f8570e5943e0b8fd1cf77107adf7b72cef42185\
                                    d564a3aee24cab43f80e3c4538087d70fc824eabbad596a23c97b6ee8322ccc0";

#[cfg(test)]
mod tests {
    use super::*;

    /// The accounts that Anvil and Hardhat print at start.
    #[test]
    fn wallets_are_those_that_every_bip44_wallet_derives() {
        let seed = WalletSeed::from_hex(TEST_SEED).unwrap();
        let cases = [
            (0, "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"),
            (1, "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"),
            (9, "0xa0Ee7A142d267C1f36714E4a8F75612F20a79720"),
        ];
        for (index, address) in cases {
            assert_eq!(seed.wallet(index).unwrap().address().to_string(), address);
        }
        assert!(seed.wallet(HARDENED - 1).is_ok());
        assert_eq!(seed.wallet(HARDENED).unwrap_err(), KeyError::Wallet(HARDENED));
    }

    #[test]
    fn a_seed_is_32_to_64_bytes_in_hexadecimal() {
        let cases = [
            ("ab".repeat(32), true),
            ("AB".repeat(64), true),
            (format!("0x{}", "ab".repeat(32)), true),
            ("ab".repeat(31), false),
            ("ab".repeat(65), false),
            (format!("{}a", "ab".repeat(32)), false),
            (format!("{}\n", "ab".repeat(32)), false),
            ("zz".repeat(32), false),
            (String::new(), false),
        ];
        for (text, valid) in cases {
            assert_eq!(WalletSeed::from_hex(&text).is_ok(), valid, "{text:?}");
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let seed = WalletSeed::from_hex(TEST_SEED).unwrap();
        assert_eq!(format!("{seed:?}"), "WalletSeed(..)");
        let wallet = format!("{:?}", seed.wallet(0).unwrap());
        assert_eq!(
            wallet.to_lowercase(),
            "walletsigner(0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266)"
        );
    }
}
