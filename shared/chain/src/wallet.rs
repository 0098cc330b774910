//! The seed, and each agent's wallet derived from it.
//!
//! One seed holds every wallet (BIP-32), so there is one secret to keep and to back up, and a wallet is a number. The
//! address stored beside that number is compared before anything is signed, so a replaced seed is noticed there and not
//! by failed transfers.
//!
//! The seed has a public half, the extended public key that all wallets' addresses follow from. It can't sign, so code
//! that only needs a new agent's address gets that half and never the seed.

use alloy::primitives::{Address, hex};
use coins_bip32::enc::{MainnetEncoder, XKeyEncoder as _};
use coins_bip32::primitives::{Hint, XKeyInfo};
use coins_bip32::xkeys::{Parent, XPriv, XPub};
use k256::ecdsa::{SigningKey, VerifyingKey};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::Zeroizing;

/// Why a secret can't be used. The secret is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The seed's text has another form.
    #[error("the wallet seed must be 64 to 128 hexadecimal digits, two for each byte")]
    Seed,
    /// The extended public key's text has another form, or it is the key of another derivation path.
    #[error("the wallet xpub must be the extended public key of m/44'/60'/0'/0, as `xpub` and 107 more characters")]
    Xpub,
    /// There is no such wallet: the index is 2^31 or more, or BIP-32 skips it (about once in 2^127).
    #[error("wallet {0} can't be derived")]
    Wallet(u32),
    /// The nonce key is too short.
    #[error("the nonce key must have at least 32 characters")]
    Nonce,
}

/// The secret that all wallets are derived from. Of the seed only the key of m/44'/60'/0'/0 is kept, one step above the
/// wallets: a wallet then takes one derivation, and the memory holds no more than wallets need. Derived wallets are
/// kept, since a derivation costs more than a signature. Keys are overwritten when they are dropped.
pub struct WalletSeed {
    accounts: XPriv,
    derived: Mutex<HashMap<u32, Arc<WalletSigner>>>,
}

/// How many derived wallets are kept; at that number all are dropped.
const MOST_DERIVED: usize = 1_000;

/// m/44'/60'/0'/0, the external accounts of Ethereum (BIP-44, SLIP-44 coin type 60). BIP-32 counts hardened steps
/// from 2^31.
const ACCOUNTS: [u32; 4] = [HARDENED + 44, HARDENED + 60, HARDENED, 0];
const HARDENED: u32 = 1 << 31;

impl WalletSeed {
    /// Reads the seed from hexadecimal digits, with or without `0x`: 32 to 64 bytes; a BIP-39 seed is 64.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let bytes = Zeroizing::new(hex::decode(text).map_err(|_| KeyError::Seed)?);
        if !(32..=64).contains(&bytes.len()) {
            return Err(KeyError::Seed);
        }
        // The hint becomes the version bytes of the text: `xpub`, and not the `zpub` of Bitcoin's newer addresses.
        let root = XPriv::root_from_seed(&bytes, Some(Hint::Legacy));
        ACCOUNTS
            .into_iter()
            .try_fold(root.map_err(|_| KeyError::Seed)?, |key, step| key.derive_child(step))
            .map(|accounts| Self {
                accounts,
                derived: Mutex::default(),
            })
            .map_err(|_| KeyError::Seed)
    }

    /// The wallet at m/44'/60'/0'/0/`index`.
    pub fn wallet(&self, index: u32) -> Result<Arc<WalletSigner>, KeyError> {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wallet) = derived.get(&index) {
            return Ok(Arc::clone(wallet));
        }
        let key = child(&self.accounts, index)?;
        let key: &SigningKey = key.as_ref();
        let wallet = Arc::new(WalletSigner {
            key: key.clone(),
            address: Address::from_private_key(key),
        });
        if derived.len() >= MOST_DERIVED {
            derived.clear();
        }
        derived.insert(index, Arc::clone(&wallet));
        Ok(wallet)
    }

    /// The public half of m/44'/60'/0'/0: the addresses of all wallets, and nothing that signs.
    pub fn xpub(&self) -> WalletXpub {
        WalletXpub(self.accounts.verify_key())
    }
}

/// The key of wallet `index` below `accounts`, from the private half or from the public one.
fn child<Key: Parent + AsRef<XKeyInfo>>(accounts: &Key, index: u32) -> Result<Key, KeyError> {
    let refused = KeyError::Wallet(index);
    if index >= HARDENED {
        return Err(refused);
    }
    let key = accounts.derive_child(index).map_err(|_| refused)?;
    // Where BIP-32 skips an index, the library returns the key of the next one, which is another wallet.
    if key.as_ref().index == index {
        Ok(key)
    } else {
        Err(refused)
    }
}

/// Nothing of the seed: debug output may reach a log.
impl fmt::Debug for WalletSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WalletSeed(..)")
    }
}

/// The extended public key (BIP-32 `xpub…`) of m/44'/60'/0'/0: every wallet's address, and no signature.
///
/// It is kept secret nevertheless. Together with the private key of any one wallet it gives the parent's private key,
/// and with that every wallet's: the wallets' steps are not hardened, so a child's key is the parent's plus a number
/// that follows from the xpub (BIP-32, "Implications"). It also links all wallets to one another.
pub struct WalletXpub(XPub);

impl WalletXpub {
    /// The length is fixed: 82 bytes that begin with the version of mainnet are 111 digits of base58.
    const TEXT_LENGTH: usize = 111;

    /// Reads the text that wallets export (base58check). It must be of depth 4 and number 0, as m/44'/60'/0'/0 is: the
    /// account's own xpub, one level above, which most wallets show, would give addresses that `payments` can't sign
    /// for.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        // The decoder needs at least four bytes, and ignores bytes after the key.
        if text.len() != Self::TEXT_LENGTH {
            return Err(KeyError::Xpub);
        }
        let xpub = Self(MainnetEncoder::xpub_from_base58(text).map_err(|_| KeyError::Xpub)?);
        let place: &XKeyInfo = xpub.0.as_ref();
        let is_accounts = usize::from(place.depth) == ACCOUNTS.len() && Some(&place.index) == ACCOUNTS.last();
        // `ypub` and `zpub` are decoded too, and are for Bitcoin addresses.
        if is_accounts && place.hint == Hint::Legacy {
            Ok(xpub)
        } else {
            Err(KeyError::Xpub)
        }
    }

    /// The text of the key. It belongs in a secret, never in a log.
    pub fn to_text(&self) -> Result<String, KeyError> {
        MainnetEncoder::xpub_to_base58(&self.0).map_err(|_| KeyError::Xpub)
    }

    /// The address of the wallet at m/44'/60'/0'/0/`index`, as [`WalletSeed::wallet`] derives it.
    pub fn address(&self, index: u32) -> Result<Address, KeyError> {
        let key = child(&self.0, index)?;
        let key: &VerifyingKey = key.as_ref();
        Ok(Address::from_public_key(key))
    }
}

/// Nothing of the key: debug output may reach a log.
impl fmt::Debug for WalletXpub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WalletXpub(..)")
    }
}

/// One wallet's key. It signs transfers of the pinned tokens and nothing else.
pub struct WalletSigner {
    pub(crate) key: SigningKey,
    address: Address,
}

impl WalletSigner {
    /// The wallet's address.
    pub const fn address(&self) -> Address {
        self.address
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

/// The extended public key of m/44'/60'/0'/0 of that seed.
#[cfg(test)]
const TEST_XPUB: &str =
    "xpub6DyUKdwoLWmUJ4Tn9Bbsdtx7B5Ws18mEN19e5HT52ikE53FiUheSQXrZUNPovqfyKmw4579A1Mm3GXXKM39N64uooBfJ4tNAzFsEbodRTx4";

#[cfg(test)]
mod tests {
    use super::*;
    use coins_bip32::enc::{TestnetEncoder, decode_b58_check, encode_b58_check};

    // Their `Debug` is written by hand above.
    static_assertions::assert_not_impl_any!(WalletSeed: PartialEq, fmt::Display);
    static_assertions::assert_not_impl_any!(WalletSigner: PartialEq, fmt::Display);
    static_assertions::assert_not_impl_any!(WalletXpub: PartialEq, fmt::Display);

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
    fn the_public_half_derives_the_addresses_of_the_wallets() {
        let seeds = [TEST_SEED.to_owned(), "ab".repeat(32), "0123456789abcdef".repeat(4)];
        for seed in seeds {
            let seed = WalletSeed::from_hex(&seed).unwrap();
            let xpub = WalletXpub::from_text(&seed.xpub().to_text().unwrap()).unwrap();
            for index in [0, 1, 2, 255, 256, 65_536, HARDENED - 1] {
                let (address, wallet) = (xpub.address(index).unwrap(), seed.wallet(index).unwrap());
                assert_eq!(address, wallet.address(), "{index}");
            }
            assert_eq!(xpub.address(HARDENED).unwrap_err(), KeyError::Wallet(HARDENED));
            assert_eq!(xpub.address(u32::MAX).unwrap_err(), KeyError::Wallet(u32::MAX));
        }
    }

    /// That of the public test mnemonic, as @scure/bip32 exports it.
    #[test]
    fn the_text_is_the_one_that_other_wallets_export() {
        let xpub = WalletXpub::from_text(TEST_XPUB).unwrap();
        let exported = WalletSeed::from_hex(TEST_SEED).unwrap().xpub();
        assert_eq!(exported.to_text().unwrap(), TEST_XPUB);
        for (index, address) in [
            (0, "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"),
            (1, "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"),
        ] {
            assert_eq!(xpub.address(index).unwrap().to_string(), address);
        }
    }

    #[test]
    fn an_xpub_of_another_form_or_place_is_refused() {
        let root = XPriv::root_from_seed(&[7; 64], Some(Hint::Legacy)).unwrap();
        let at = |path: &[u32], hint| {
            let key = path.iter().try_fold(root.clone(), |key, step| key.derive_child(*step));
            let key = key.unwrap();
            let info = XKeyInfo {
                hint,
                ..*AsRef::<XKeyInfo>::as_ref(&key)
            };
            XPriv::new(AsRef::<SigningKey>::as_ref(&key).clone(), info)
        };
        let xpub = |path: &[u32], hint| MainnetEncoder::xpub_to_base58(&at(path, hint).verify_key()).unwrap();
        let [purpose, coin, account, change] = ACCOUNTS;
        let right = xpub(&ACCOUNTS, Hint::Legacy);
        let mut payload = decode_b58_check(&right).unwrap();
        payload.push(0);
        let with = |place: usize, letter: &str| {
            let mut text = right.clone();
            text.replace_range(place..=place, letter);
            text
        };
        let other = |place: usize| if right.as_bytes()[place] == b'2' { "3" } else { "2" };
        let test_network = TestnetEncoder::xpub_to_base58(&at(&ACCOUNTS, Hint::Legacy).verify_key());
        let refused = [
            ("a wrong checksum", with(110, other(110))),
            ("one letter exchanged", with(50, other(50))),
            ("a space for a letter", with(50, " ")),
            (
                "the private half",
                MainnetEncoder::xpriv_to_base58(&at(&ACCOUNTS, Hint::Legacy)).unwrap(),
            ),
            ("a zpub", xpub(&ACCOUNTS, Hint::SegWit)),
            ("a ypub", xpub(&ACCOUNTS, Hint::Compatibility)),
            ("a test network's", test_network.unwrap()),
            ("the account above", xpub(&[purpose, coin, account], Hint::Legacy)),
            (
                "the change addresses",
                xpub(&[purpose, coin, account, change + 1], Hint::Legacy),
            ),
            ("a wallet's", xpub(&[purpose, coin, account, change, 0], Hint::Legacy)),
            ("a letter short", with(110, "")),
            ("a line break after it", format!("{right}\n")),
            ("a byte too many", encode_b58_check(&payload)),
            ("zeros alone", "1".repeat(111)),
            ("the largest number", "z".repeat(111)),
            ("letters beyond ASCII", format!("{}x", "\u{e9}".repeat(55))),
            ("too short to have a checksum", "11".to_owned()),
            ("nothing", String::new()),
        ];
        assert!(WalletXpub::from_text(&right).is_ok());
        for (what, text) in refused {
            assert_eq!(WalletXpub::from_text(&text).unwrap_err(), KeyError::Xpub, "{what}");
        }
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
        assert_eq!(format!("{:?}", seed.xpub()), "WalletXpub(..)");
        let wallet = format!("{:?}", seed.wallet(0).unwrap());
        assert_eq!(
            wallet.to_lowercase(),
            "walletsigner(0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266)"
        );
    }
}
