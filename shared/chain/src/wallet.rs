//! The wallet seed, and the wallets that are derived from it (BIP-32). The stored wallet address is compared before
//! each signature, so a replaced seed is detected.
//!
//! Every step of the derivation path is hardened, so a leaked wallet key reveals no other key. The derivation is
//! implemented here because no library wipes the intermediate values.

use alloy::primitives::{Address, hex};
use hmac::{Hmac, KeyInit as _, Mac as _};
use k256::{Scalar, ecdsa::SigningKey, elliptic_curve::PrimeField as _};
use sha2::Sha512;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::{Zeroize as _, Zeroizing};

/// Why a key can't be used. The error contains no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The seed is malformed.
    #[error("the wallet seed must be 64 to 128 hexadecimal digits, two for each byte")]
    Seed,
    /// The index is 2^31 or more, or BIP-32 skips it (about one index in 2^127).
    #[error("wallet {0} can't be derived")]
    Wallet(u32),
    /// The nonce key is too short.
    #[error("the nonce key must have at least 32 characters")]
    Nonce,
    /// The payment's nonce was derived from another nonce key.
    #[error("the payment's nonce was derived with another nonce key")]
    NonceChanged,
}

/// The secret from which all wallets are derived. Only the key of m/44'/60'/0'/0' and cached wallets are in memory. All
/// keys are wiped on drop.
pub struct WalletSeed {
    accounts: Node,
    derived: Mutex<HashMap<u32, Arc<WalletSigner>>>,
}

/// The maximum number of cached wallets. A full cache is emptied. An attacker who reads this memory also gets the
/// seed's key, so a smaller cache protects nothing.
const MAX_CACHED_KEYS: usize = 1_000;

/// m/44'/60'/0'/0': the external Ethereum accounts of BIP-44, with all steps hardened.
const ACCOUNTS: [u32; 4] = [44, 60, 0, 0];

/// The offset of hardened child numbers in BIP-32.
const HARDENED: u32 = 1 << 31;

impl WalletSeed {
    /// Parses the seed: 32 to 64 bytes in hexadecimal, with or without `0x`. A BIP-39 seed has 64 bytes.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let bytes = Zeroizing::new(hex::decode(text).map_err(|_| KeyError::Seed)?);
        if !(32..=64).contains(&bytes.len()) {
            return Err(KeyError::Seed);
        }
        let accounts = ACCOUNTS
            .into_iter()
            .try_fold(Node::master_node(&bytes).ok_or(KeyError::Seed)?, |node, step| {
                node.derive_hardened(step)
            });
        let accounts = accounts.ok_or(KeyError::Seed)?;
        let derived = Mutex::default();
        Ok(Self { accounts, derived })
    }

    /// Derives the wallet at m/44'/60'/0'/0'/`index`'.
    pub fn derive_wallet(&self, index: u32) -> Result<Arc<WalletSigner>, KeyError> {
        let derived = || self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wallet) = derived().get(&index) {
            return Ok(Arc::clone(wallet));
        }
        // The lock is released during the derivation, so that other agents' calls do not wait.
        let node = self.accounts.derive_hardened(index).ok_or(KeyError::Wallet(index))?;
        let wallet = Arc::new(node.wallet_signer().ok_or(KeyError::Wallet(index))?);
        let mut derived = derived();
        if derived.len() >= MAX_CACHED_KEYS {
            derived.clear();
        }
        derived.insert(index, Arc::clone(&wallet));
        Ok(wallet)
    }
}

/// Omits the seed, because debug output may be logged.
impl fmt::Debug for WalletSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WalletSeed(..)")
    }
}

/// A BIP-32 private key with the chain code. Both are wiped on drop.
struct Node {
    key: Zeroizing<[u8; 32]>,
    chain_code: Zeroizing<[u8; 32]>,
}

impl Node {
    /// Derives the master key (BIP-32, "Master key generation").
    fn master_node(seed: &[u8]) -> Option<Self> {
        let root = Self::from_hmac(b"Bitcoin seed", &[seed])?;
        parse_scalar(&root.key).map(|mut key| key.zeroize())?;
        Some(root)
    }

    /// Derives the hardened child with this number; `None` if BIP-32 skips the number ("Private parent key → private
    /// child key").
    fn derive_hardened(&self, step: u32) -> Option<Self> {
        let number = step.checked_add(HARDENED)?.to_be_bytes();
        let mut child = Self::from_hmac(self.chain_code.as_slice(), &[&[0], self.key.as_slice(), &number])?;
        let mut left = parse_scalar(&child.key)?;
        let mut parent = parse_scalar(&self.key)?;
        let mut sum = left.add(&parent);
        let is_zero: bool = sum.is_zero().into();
        let mut bytes: [u8; 32] = sum.to_bytes().into();
        child.key.copy_from_slice(&bytes);
        bytes.zeroize();
        left.zeroize();
        parent.zeroize();
        sum.zeroize();
        (!is_zero).then_some(child)
    }

    /// Computes the HMAC-SHA512 of `parts` with `key`. The right half is the chain code. The left half is the
    /// master key, or the number that a caller adds to the parent key to derive a child key (BIP-32).
    fn from_hmac(key: &[u8], parts: &[&[u8]]) -> Option<Self> {
        let mut mac = Hmac::<Sha512>::new_from_slice(key).ok()?;
        for part in parts {
            mac.update(part);
        }
        let mut bytes = mac.finalize().into_bytes();
        let mut node = Self {
            key: Zeroizing::default(),
            chain_code: Zeroizing::default(),
        };
        let (left, right) = bytes.as_slice().split_at_checked(32)?;
        node.key.copy_from_slice(left);
        node.chain_code.copy_from_slice(right);
        bytes.as_mut_slice().zeroize();
        Some(node)
    }

    fn wallet_signer(&self) -> Option<WalletSigner> {
        SigningKey::from_slice(self.key.as_slice())
            .ok()
            .map(WalletSigner::from_key)
    }
}

/// Parses the key as a number; `None` if the number is zero or not below the curve's order.
fn parse_scalar(key: &[u8; 32]) -> Option<Scalar> {
    let number: Option<Scalar> = Scalar::from_repr((*key).into()).into();
    number.filter(|number| !bool::from(number.is_zero()))
}

/// The key of one wallet. It signs only transfers of the networks' tokens, and the wallet's attestation.
pub struct WalletSigner {
    pub(crate) key: SigningKey,
    address: Address,
}

impl WalletSigner {
    pub(crate) fn from_key(key: SigningKey) -> Self {
        let address = Address::from_private_key(&key);
        Self { key, address }
    }

    /// Returns the wallet's address.
    pub const fn address(&self) -> Address {
        self.address
    }
}

/// Prints only the address.
impl fmt::Debug for WalletSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WalletSigner").field(&self.address()).finish()
    }
}

/// The BIP-39 seed of the public test mnemonic (`test` eleven times, then `junk`).
#[cfg(test)]
pub(crate) const TEST_SEED: &str = "9dfc3c64c2f8bede1533b6a79f8570e5943e0b8fd1cf77107adf7b72cef42185\
                                    d564a3aee24cab43f80e3c4538087d70fc824eabbad596a23c97b6ee8322ccc0";

#[cfg(test)]
mod tests {
    use super::*;
    use coins_bip32::xkeys::{Parent as _, XPriv};

    // `Debug` is not forbidden, because the implementation above omits the seed.
    static_assertions::assert_not_impl_any!(WalletSeed: PartialEq, fmt::Display);
    static_assertions::assert_not_impl_any!(WalletSigner: PartialEq, fmt::Display);
    // `SigningKey` wipes the key when it is dropped, as `Node` does.
    static_assertions::assert_impl_all!(SigningKey: zeroize::ZeroizeOnDrop);

    fn told(node: &Node) -> (String, String) {
        (hex::encode(*node.key), hex::encode(*node.chain_code))
    }

    /// The keys m and m/0' of BIP-32's test vector 1.
    #[test]
    fn key_derivation_matches_the_bip32_test_vectors() {
        let root = Node::master_node(&hex::decode("000102030405060708090a0b0c0d0e0f").unwrap()).unwrap();
        assert_eq!(
            told(&root),
            (
                "e8f32e723decf4051aefac8e2c93c9c5b214313817cdb01a1494b917c8436b35".to_owned(),
                "873dff81c02f525623fd1fe5167eac3a55a049de3d314bb42ee227ffed37d508".to_owned(),
            )
        );
        assert_eq!(
            told(&root.derive_hardened(0).unwrap()),
            (
                "edb2e14f9ee77d26dd93b4ecede8d16ed408ce149b6cd80b0715a2d911a0afea".to_owned(),
                "47fdacbd0f1097043b78c63c20c34ef4ed9a111d980047ad16282c7ae6236141".to_owned(),
            )
        );
    }

    #[test]
    fn wallet_derivation_matches_a_reference_library() {
        for seed in [TEST_SEED.to_owned(), "ab".repeat(32), "0123456789abcdef".repeat(4)] {
            let wallets = WalletSeed::from_hex(&seed).unwrap();
            let root = XPriv::root_from_seed(&hex::decode(&seed).unwrap(), None).unwrap();
            for index in [0, 1, 2, 255, 256, 65_536, HARDENED - 1] {
                let path = ACCOUNTS.into_iter().chain([index]).map(|step| step + HARDENED);
                let key = path.fold(root.clone(), |key, step| key.derive_child(step).unwrap());
                let expected = Address::from_private_key(AsRef::<SigningKey>::as_ref(&key));
                assert_eq!(wallets.derive_wallet(index).unwrap().address(), expected, "{index}");
            }
            assert_eq!(wallets.derive_wallet(HARDENED).unwrap_err(), KeyError::Wallet(HARDENED));
            assert_eq!(wallets.derive_wallet(u32::MAX).unwrap_err(), KeyError::Wallet(u32::MAX));
        }
    }

    #[test]
    fn at_most_a_thousand_derived_wallets_are_cached() {
        let seed = WalletSeed::from_hex(TEST_SEED).unwrap();
        for index in 0..u32::try_from(MAX_CACHED_KEYS + 10).unwrap() {
            seed.derive_wallet(index).unwrap();
            assert!(seed.derived.lock().unwrap().len() <= MAX_CACHED_KEYS);
        }
        assert_eq!(
            seed.derive_wallet(7).unwrap().address(),
            seed.derive_wallet(7).unwrap().address()
        );
    }

    #[test]
    fn wallet_seeds_are_32_to_64_hexadecimal_bytes() {
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
    fn wallet_debug_output_shows_no_secret() {
        let seed = WalletSeed::from_hex(TEST_SEED).unwrap();
        assert_eq!(format!("{seed:?}"), "WalletSeed(..)");
        let wallet = seed.derive_wallet(0).unwrap();
        assert_eq!(format!("{wallet:?}"), format!("WalletSigner({:?})", wallet.address()));
    }
}
