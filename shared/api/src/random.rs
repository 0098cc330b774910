//! Chance, from the operating system.

use purser_domain::{Error, Result};

/// Random bytes for identifiers and key secrets.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Error::internal("reading random bytes", error))?;
    Ok(bytes)
}
