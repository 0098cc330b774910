//! Reads a log's static objects and creates proofs from them.

use crate::tile::{TILE_WIDTH, TileError, TilePath, TilePathError, decode_entries, decode_hashes};
use crate::tree::{Hash, MAX_TREE_SIZE, ProofError, TreeHead};
use ct_merkle::{indices_for_consistency_proof, indices_for_inclusion_proof};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;

/// A storage with tiles: a bucket, a folder, a web server, or a map in a test.
pub trait TileReader {
    /// Why an object can't be read.
    type Error;

    /// Returns the bytes of the object at this path, relative to the log's prefix; `None` if there is no such object.
    fn get(&self, path: &TilePath) -> impl Future<Output = Result<Option<Vec<u8>>, Self::Error>> + Send;
}

/// Why the requested proof or entry can't be read from the tiles.
#[derive(Debug, thiserror::Error)]
pub enum ReadError<E> {
    /// The index is not in the tree, or the tree is too large.
    #[error("the log has no such entry or size")]
    Range,
    /// The object at this path does not exist.
    #[error("`{0}` is missing")]
    Missing(TilePath),
    /// The object at this path has malformed bytes.
    #[error("`{0}` is malformed")]
    Malformed(TilePath),
    /// The tiles do not lead to the root of the tree, so a tile was changed or belongs to another tree.
    #[error("the tiles do not lead to the root of the tree")]
    OtherTree,
    /// The storage failed.
    #[error("the tiles can't be read")]
    Reader(#[source] E),
}

impl<E> From<TilePathError> for ReadError<E> {
    fn from(TilePathError: TilePathError) -> Self {
        Self::Range
    }
}

impl<E> From<ProofError> for ReadError<E> {
    fn from(error: ProofError) -> Self {
        match error {
            ProofError::Range => Self::Range,
            ProofError::Hashes => Self::OtherTree,
        }
    }
}

/// Reads a tile or a bundle. Falls back to the full object, because a grown log may have deleted the partial object.
pub(crate) async fn read_tile<R: TileReader, T>(
    reader: &R,
    path: TilePath,
    decode: fn(&[u8]) -> Result<Vec<T>, TileError>,
) -> Result<Vec<T>, ReadError<R::Error>> {
    let mut places = vec![path];
    if !path.is_full() {
        places.push(path.to_full());
    }
    for place in places {
        let Some(bytes) = reader.get(&place).await.map_err(ReadError::Reader)? else {
            continue;
        };
        let mut items = decode(&bytes).map_err(|_| ReadError::Malformed(place))?;
        if items.len() != usize::from(place.width()) {
            return Err(ReadError::Malformed(place));
        }
        items.truncate(path.width().into());
        return Ok(items);
    }
    Err(ReadError::Missing(path))
}

/// The tiles that a proof needs. Each tile is read once.
struct Tiles<'a, R> {
    reader: &'a R,
    size: u64,
    read: BTreeMap<TilePath, Vec<Hash>>,
}

impl<R: TileReader> Tiles<'_, R> {
    /// Returns the root of a complete subtree with 2^`height` leaves. `subtree_index` counts the subtrees of this
    /// height from the left.
    async fn complete_subtree_root(&mut self, height: u32, subtree_index: u64) -> Result<Hash, ReadError<R::Error>> {
        // A tile spans eight levels of the tree.
        let (level, within) = (height / 8, height % 8);
        let count = self.size >> level.saturating_mul(8);
        let first = subtree_index << within;
        let index = first / TILE_WIDTH;
        let width = count.saturating_sub(index.saturating_mul(TILE_WIDTH)).min(TILE_WIDTH);
        let range = |_| ReadError::Range;
        let path = TilePath::for_hashes(
            u8::try_from(level).map_err(range)?,
            index,
            u16::try_from(width).map_err(range)?,
        )?;
        if !self.read.contains_key(&path) {
            let hashes = read_tile(self.reader, path, decode_hashes).await?;
            self.read.insert(path, hashes);
        }
        let start = usize::try_from(first % TILE_WIDTH).map_err(range)?;
        let end = start.saturating_add(1 << within);
        let hashes = self.read.get(&path).and_then(|hashes| hashes.get(start..end));
        hashes
            .map(Hash::root_from_leaf_hashes)
            .ok_or(ReadError::Malformed(path))
    }

    /// Returns the hash of the node with this number in an array-based tree (RFC 9420 appendix C), as `ct-merkle`
    /// numbers nodes.
    async fn node_hash(&mut self, number: u64) -> Result<Hash, ReadError<R::Error>> {
        let height = number.trailing_ones();
        let place = number.checked_shr(height.saturating_add(1)).unwrap_or(0);
        let start = place << height;
        self.leaf_range_root(start, self.size.saturating_sub(start).min(1 << height))
            .await
    }

    /// Returns the root over `leaves` leaves from leaf `start`. `start` must be a multiple of the largest
    /// power of two that is at most `leaves`.
    async fn leaf_range_root(&mut self, mut start: u64, leaves: u64) -> Result<Hash, ReadError<R::Error>> {
        // Complete subtrees from left to right, each at most half as large as the left neighbor (RFC 6962 §2.1).
        let mut subtrees = Vec::new();
        for height in (0..u64::BITS).rev() {
            if leaves & (1 << height) != 0 {
                subtrees.push(self.complete_subtree_root(height, start >> height).await?);
                start = start.saturating_add(1 << height);
            }
        }
        root_from_subtrees(subtrees).ok_or(ReadError::Range)
    }

    async fn node_hashes(&mut self, numbers: Vec<u64>) -> Result<Vec<Hash>, ReadError<R::Error>> {
        let mut hashes = Vec::with_capacity(numbers.len());
        for number in numbers {
            hashes.push(self.node_hash(number).await?);
        }
        Ok(hashes)
    }
}

/// Returns the root over complete subtrees, which are sorted by descending size.
pub(crate) fn root_from_subtrees(subtrees: Vec<Hash>) -> Option<Hash> {
    let mut smallest_first = subtrees.into_iter().rev();
    let last = smallest_first.next()?;
    Some(smallest_first.fold(last, |right, left| Hash::for_node(&left, &right)))
}

/// Returns the hashes that prove that the tree contains `entry` at `index` (RFC 6962 §2.1.1). The proof is verified
/// first, so changed tiles yield an error.
pub async fn build_inclusion_proof<R: TileReader>(
    reader: &R,
    tree: &TreeHead,
    index: u64,
    entry: &[u8],
) -> Result<Vec<Hash>, ReadError<R::Error>> {
    if tree.size > MAX_TREE_SIZE || index >= tree.size {
        return Err(ReadError::Range);
    }
    let mut tiles = Tiles {
        reader,
        size: tree.size,
        read: BTreeMap::new(),
    };
    let hashes = tiles.node_hashes(indices_for_inclusion_proof(tree.size, index)).await?;
    tree.verify_inclusion(entry, index, &hashes)?;
    Ok(hashes)
}

/// Returns the entries in a range, each proven against the tree. Fails if a bundle or a tile up to the root was
/// changed.
pub async fn read_proven_entries<R: TileReader>(
    reader: &R,
    tree: &TreeHead,
    range: Range<u64>,
) -> Result<Vec<Vec<u8>>, ReadError<R::Error>> {
    if tree.size > MAX_TREE_SIZE {
        return Err(ReadError::Range);
    }
    let entries = read_unverified_entries(reader, tree.size, range.clone()).await?;
    let mut tiles = Tiles {
        reader,
        size: tree.size,
        read: BTreeMap::new(),
    };
    for (index, entry) in range.zip(&entries) {
        let hashes = tiles.node_hashes(indices_for_inclusion_proof(tree.size, index)).await?;
        tree.verify_inclusion(entry, index, &hashes)?;
    }
    Ok(entries)
}

/// Returns the hashes that prove that the tree extends an older tree (RFC 6962 §2.1.2).
///
/// Returns [`ReadError::OtherTree`] or [`ReadError::Range`] for a log that was forked, truncated or rewritten.
pub async fn build_consistency_proof<R: TileReader>(
    reader: &R,
    older: &TreeHead,
    tree: &TreeHead,
) -> Result<Vec<Hash>, ReadError<R::Error>> {
    if tree.size > MAX_TREE_SIZE {
        return Err(ReadError::Range);
    }
    let added = tree.size.checked_sub(older.size).ok_or(ReadError::Range)?;
    let mut tiles = Tiles {
        reader,
        size: tree.size,
        read: BTreeMap::new(),
    };
    let hashes = match older.size {
        0 => Vec::new(),
        size => tiles.node_hashes(indices_for_consistency_proof(size, added)).await?,
    };
    tree.verify_consistency(older, &hashes)?;
    Ok(hashes)
}

/// Returns the root over a tree's first `size` entries, unverified. [`build_consistency_proof`] verifies the root.
pub async fn read_unverified_root<R: TileReader>(
    reader: &R,
    size: u64,
    tree: &TreeHead,
) -> Result<Hash, ReadError<R::Error>> {
    if tree.size > MAX_TREE_SIZE || size > tree.size {
        return Err(ReadError::Range);
    }
    if size == 0 {
        return Ok(Hash::for_empty_tree());
    }
    let mut tiles = Tiles {
        reader,
        size: tree.size,
        read: BTreeMap::new(),
    };
    tiles.leaf_range_root(0, size).await
}

/// Returns the entry at `index`, unverified. [`build_inclusion_proof`] verifies the entry.
pub async fn read_unverified_entry<R: TileReader>(
    reader: &R,
    size: u64,
    index: u64,
) -> Result<Vec<u8>, ReadError<R::Error>> {
    let entries = read_unverified_entries(reader, size, index..index.saturating_add(1)).await?;
    entries.into_iter().next().ok_or(ReadError::Range)
}

/// Returns the entries in a range of a tree with this size, unverified. [`build_inclusion_proof`] verifies an entry.
pub async fn read_unverified_entries<R: TileReader>(
    reader: &R,
    size: u64,
    range: Range<u64>,
) -> Result<Vec<Vec<u8>>, ReadError<R::Error>> {
    if range.end > size {
        return Err(ReadError::Range);
    }
    let mut found = Vec::new();
    let mut next = range.start;
    while next < range.end {
        let bundle = next / TILE_WIDTH;
        let first = bundle.saturating_mul(TILE_WIDTH);
        let width = size.saturating_sub(first).min(TILE_WIDTH);
        let path = TilePath::for_entries(bundle, u16::try_from(width).map_err(|_| ReadError::Range)?)?;
        let entries = read_tile(reader, path, decode_entries).await?;
        let end = range.end.min(first.saturating_add(width));
        let [skipped, count] = [next.saturating_sub(first), end.saturating_sub(next)].map(usize::try_from);
        let (Ok(skipped), Ok(count)) = (skipped, count) else {
            return Err(ReadError::Range);
        };
        found.extend(entries.into_iter().skip(skipped).take(count));
        next = end;
    }
    Ok(found)
}
