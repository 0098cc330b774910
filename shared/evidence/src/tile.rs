//! Tiles and entry bundles (c2sp.org/tlog-tiles): the paths and bytes of a log's static objects.

use crate::decimal;
use crate::statement::MAX_STATEMENT_BYTES;
use crate::tree::Hash;
use std::fmt;
use std::str::FromStr;

/// The number of hashes in a full tile, and of entries in a full bundle.
pub const TILE_WIDTH: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Content {
    Hashes { level: u8 },
    Entries,
}

/// The path of a tile or an entry bundle in the log, for example `tile/0/x001/234.p/11` or `tile/entries/000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TilePath {
    content: Content,
    index: u64,
    /// The number of hashes or entries: 1 to 256.
    width: u16,
}

/// The error for a text that is not the path of a tile or a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path is not the path of a tile or an entry bundle")]
pub struct TilePathError;

impl TilePath {
    /// Creates the path of the tile with this index at this level (0 to 63), with `width` hashes (1 to 256).
    pub fn for_hashes(level: u8, index: u64, width: u16) -> Result<Self, TilePathError> {
        (level < 64)
            .then(|| Self::new(Content::Hashes { level }, index, width))
            .ok_or(TilePathError)?
    }

    /// Creates the path of the bundle with this index, with `width` entries (1 to 256).
    pub fn for_entries(index: u64, width: u16) -> Result<Self, TilePathError> {
        Self::new(Content::Entries, index, width)
    }

    fn new(content: Content, index: u64, width: u16) -> Result<Self, TilePathError> {
        (1..=TILE_WIDTH)
            .contains(&u64::from(width))
            .then_some(Self { content, index, width })
            .ok_or(TilePathError)
    }

    /// Returns whether the tile is full. A full tile never changes and replaces the partial tiles.
    pub fn is_full(&self) -> bool {
        u64::from(self.width) == TILE_WIDTH
    }

    /// Returns whether the object contains entries instead of hashes.
    pub fn is_entry_bundle(&self) -> bool {
        self.content == Content::Entries
    }

    /// Returns the number of hashes in the tile, or of entries in the bundle: 1 to 256.
    pub const fn width(&self) -> u16 {
        self.width
    }

    /// Returns the path of the full tile with the same index.
    #[must_use]
    pub const fn to_full(self) -> Self {
        Self { width: 256, ..self }
    }
}

impl fmt::Display for TilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.content {
            Content::Hashes { level } => write!(f, "tile/{level}/")?,
            Content::Entries => f.write_str("tile/entries/")?,
        }
        // The index is in groups of three digits. All groups except the last have the prefix `x`.
        let digits = self.index.to_string();
        let padded = digits.len().next_multiple_of(3);
        let digits = format!("{digits:0>padded$}");
        let mut rest = digits.as_str();
        while let Some((group, later)) = rest.split_at_checked(3).filter(|(_, later)| !later.is_empty()) {
            write!(f, "x{group}/")?;
            rest = later;
        }
        f.write_str(rest)?;
        if !self.is_full() {
            write!(f, ".p/{}", self.width)?;
        }
        Ok(())
    }
}

impl FromStr for TilePath {
    type Err = TilePathError;

    fn from_str(text: &str) -> Result<Self, TilePathError> {
        let rest = text.strip_prefix("tile/").ok_or(TilePathError)?;
        let (content, rest) = rest.split_once('/').ok_or(TilePathError)?;
        let (index, width) = match rest.split_once(".p/") {
            Some((index, width)) => (index, decimal::parse_decimal(width).ok_or(TilePathError)?),
            None => (rest, TILE_WIDTH),
        };
        let digits: String = index.split('/').map(|group| group.trim_start_matches('x')).collect();
        let index = digits.parse().map_err(|_| TilePathError)?;
        let width = u16::try_from(width).map_err(|_| TilePathError)?;
        let path = match content {
            "entries" => Self::for_entries(index, width)?,
            level => Self::for_hashes(level.parse().map_err(|_| TilePathError)?, index, width)?,
        };
        // Rejects any text that is not the canonical form of the path.
        (path.to_string() == text).then_some(path).ok_or(TilePathError)
    }
}

/// Why the bytes of a tile are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TileError {
    /// The tile is not a sequence of hashes, or the bundle is not a sequence of lengths and entries.
    #[error("the tile's bytes are not hashes or entries")]
    Bytes,
    /// An entry is longer than 65,535 bytes.
    #[error("an entry is longer than {MAX_STATEMENT_BYTES} bytes")]
    TooLong,
}

/// Encodes the hashes of a tile: 32 bytes per hash.
pub fn encode_hashes(hashes: &[Hash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| *hash.as_bytes()).collect()
}

/// Decodes the hashes of a tile. Fails unless the length is a multiple of 32 bytes.
pub fn decode_hashes(bytes: &[u8]) -> Result<Vec<Hash>, TileError> {
    let (hashes, rest) = bytes.as_chunks();
    rest.is_empty()
        .then(|| hashes.iter().copied().map(Hash::new).collect())
        .ok_or(TileError::Bytes)
}

/// Encodes the entries of a bundle, each after its length (16 bits, big-endian).
pub fn encode_entries<T: AsRef<[u8]>>(entries: &[T]) -> Result<Vec<u8>, TileError> {
    let mut bytes = Vec::new();
    for entry in entries {
        let entry = entry.as_ref();
        let length = u16::try_from(entry.len()).map_err(|_| TileError::TooLong)?;
        bytes.extend(length.to_be_bytes());
        bytes.extend(entry);
    }
    Ok(bytes)
}

/// Decodes the entries of a bundle.
pub fn decode_entries(mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, TileError> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk().ok_or(TileError::Bytes)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (entry, rest) = rest.split_at_checked(length).ok_or(TileError::Bytes)?;
        entries.push(entry.to_vec());
        bytes = rest;
    }
    Ok(entries)
}
