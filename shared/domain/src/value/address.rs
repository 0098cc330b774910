//! Wallet and token addresses: 20 bytes, compared as bytes and written with the EIP-55 checksum.

pub use alloy_primitives::Address;

/// Why a text is not an address that may receive money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text is not `0x` and 40 hexadecimal digits.
    #[error("must be `0x` and forty hexadecimal digits")]
    Form,
    /// The letter case does not match the EIP-55 checksum, probably because of a typing error.
    #[error("its letter case does not match its EIP-55 checksum")]
    Checksum,
    /// The address is the zero address. Money sent there would be lost.
    #[error("must not be the zero address")]
    Zero,
}

/// Parses an address in lower case, upper case or with a valid EIP-55 checksum. Rejects the zero address
/// (`docs/x402.md` §6).
pub fn parse_address(text: &str) -> Result<Address, AddressError> {
    let digits = text.strip_prefix("0x").ok_or(AddressError::Form)?;
    if digits.len() != 40 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(AddressError::Form);
    }
    let address: Address = text.parse().map_err(|_| AddressError::Form)?;
    let mixed = digits.bytes().any(|b| b.is_ascii_lowercase()) && digits.bytes().any(|b| b.is_ascii_uppercase());
    if mixed && address.to_checksum(None) != text {
        return Err(AddressError::Checksum);
    }
    if address == Address::ZERO {
        Err(AddressError::Zero)
    } else {
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wallet_addresses_are_parsed_strictly() {
        let checksummed = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
        let cases = [
            (checksummed.to_owned(), Ok(())),
            (checksummed.to_lowercase(), Ok(())),
            (
                format!("0x{}", checksummed.trim_start_matches("0x").to_uppercase()),
                Ok(()),
            ),
            (checksummed.replace("3C44C", "3c44C"), Err(AddressError::Checksum)),
            (checksummed.replace("0x", "0X"), Err(AddressError::Form)),
            (checksummed.replace("0x", ""), Err(AddressError::Form)),
            (format!("{checksummed}0"), Err(AddressError::Form)),
            (format!("0x{}", "0".repeat(40)), Err(AddressError::Zero)),
            ("merchant".to_owned(), Err(AddressError::Form)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_address(&text).map(|_| ()), expected, "{text}");
        }
    }
}
