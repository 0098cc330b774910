//! Random bytes from the operating system. Handlers get the source as an argument.

use purser_domain::{Error, Result};
use std::{fmt, sync::Arc};

/// Returns random bytes for ids and key secrets.
pub fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Error::internal("reading random bytes", error))?;
    Ok(bytes)
}

/// A source of random bytes. Clones share the source.
#[derive(Clone)]
pub struct Entropy(Source);

#[derive(Clone)]
enum Source {
    System,
    Drawn(Arc<Draw>),
}

type Draw = dyn Fn(&mut [u8]) + Send + Sync;

impl Entropy {
    /// Creates a source of the operating system's random bytes.
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// Creates a source that calls `fill`, for the simulation, which must be reproducible.
    pub fn from_fn(fill: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        Self(Source::Drawn(Arc::new(fill)))
    }

    /// Returns random bytes for ids and key secrets.
    pub fn random_bytes<const N: usize>(&self) -> Result<[u8; N]> {
        match &self.0 {
            Source::System => random_bytes(),
            Source::Drawn(draw) => {
                let mut bytes = [0; N];
                draw(&mut bytes);
                Ok(bytes)
            }
        }
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_returns_drawn_bytes_or_distinct_system_bytes() {
        let drawn = Entropy::from_fn(|bytes| bytes.fill(7));
        assert_eq!(drawn.clone().random_bytes::<3>().unwrap(), [7; 3]);
        let [first, second] = [(); 2].map(|()| Entropy::system().random_bytes::<16>().unwrap());
        assert_ne!(first, second);
    }
}
