//! Appends to a log: computes the objects to write from the right edge of the tree and the new entries.
//!
//! The caller must write all objects of [`AppendResult`] before it publishes the checkpoint of the new size. It may
//! publish only if the newest checkpoint is still the one before the append.
//!
//! Concurrent writers must append the same entries. Otherwise a writer that did not publish could overwrite a partial
//! tile of the published checkpoint.

use crate::reader::{ReadError, TileReader, read_tile, root_from_subtrees};
use crate::tile::{
    TILE_WIDTH, TileError, TilePath, TilePathError, decode_entries, decode_hashes, encode_entries, encode_hashes,
};
use crate::tree::{Hash, MAX_TREE_SIZE, TreeHead};

/// The right edge of a tree: the partial tile of each level and the partial bundle. It has at most 255 entries and 8
/// levels of 255 hashes, regardless of the log's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    size: u64,
    /// The hashes of each level's partial tile, starting with level 0. Empty for a level without a partial tile.
    levels: Vec<Vec<Hash>>,
    entries: Vec<Vec<u8>>,
}

/// The result of an append: the objects to write, and the new tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendResult {
    /// The size and root of the new tree, for the next checkpoint.
    pub head: TreeHead,
    /// The new tiles, including the last, partial tile of each changed level.
    pub tiles: Vec<(TilePath, Vec<u8>)>,
    /// The new bundles, including the last, partial bundle.
    pub bundles: Vec<(TilePath, Vec<u8>)>,
    /// The right edge of the new tree, for the next append.
    pub edge: Edge,
}

/// Why an append is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// An entry is empty, or longer than 65,535 bytes.
    #[error("an entry is empty or too long")]
    Entry,
    /// The log has the maximum number of entries.
    #[error("the log is full")]
    Full,
}

impl From<TileError> for AppendError {
    fn from(_: TileError) -> Self {
        Self::Entry
    }
}

impl From<TilePathError> for AppendError {
    fn from(TilePathError: TilePathError) -> Self {
        Self::Full
    }
}

impl Edge {
    /// Returns the right edge of a tree without entries.
    pub const fn empty() -> Self {
        Self {
            size: 0,
            levels: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Returns the paths of the objects that form the edge of a tree: the partial tiles, then the partial bundle.
    pub fn object_paths(size: u64) -> Vec<TilePath> {
        let levels = (0..8_u8).filter_map(|level| {
            let count = size.checked_shr(u32::from(level).saturating_mul(8))?;
            let width = u16::try_from(count % TILE_WIDTH).ok()?;
            TilePath::for_hashes(level, count / TILE_WIDTH, width).ok()
        });
        let width = u16::try_from(size % TILE_WIDTH);
        let bundle = width
            .ok()
            .and_then(|width| TilePath::for_entries(size / TILE_WIDTH, width).ok());
        levels.chain(bundle).collect()
    }

    /// Reads the right edge of the tree with this head. Rejects objects that do not lead to the root, so that a changed
    /// tile is never extended.
    pub async fn read_right_edge<R: TileReader>(reader: &R, head: &TreeHead) -> Result<Self, ReadError<R::Error>> {
        if head.size > MAX_TREE_SIZE {
            return Err(ReadError::Range);
        }
        let mut edge = Self {
            size: head.size,
            ..Self::empty()
        };
        for level in 0..8_u8 {
            let count = head.size >> u32::from(level).saturating_mul(8);
            if count == 0 {
                break;
            }
            let width = u16::try_from(count % TILE_WIDTH).map_err(|_| ReadError::Range)?;
            let mut hashes = Vec::new();
            if width > 0 {
                let path = TilePath::for_hashes(level, count / TILE_WIDTH, width)?;
                hashes = read_tile(reader, path, decode_hashes).await?;
            }
            edge.levels.push(hashes);
        }
        let width = u16::try_from(head.size % TILE_WIDTH).map_err(|_| ReadError::Range)?;
        if width > 0 {
            let path = TilePath::for_entries(head.size / TILE_WIDTH, width)?;
            edge.entries = read_tile(reader, path, decode_entries).await?;
        }
        let leaves = edge.entries.iter().map(|entry| Hash::for_leaf(entry));
        let are_leaves = leaves.eq(edge.levels.first().into_iter().flatten().copied());
        if !are_leaves || edge.root() != head.root {
            return Err(ReadError::OtherTree);
        }
        Ok(edge)
    }

    /// Returns the number of entries in the log.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the size and root of the tree.
    pub fn tree_head(&self) -> TreeHead {
        TreeHead {
            size: self.size,
            root: self.root(),
        }
    }

    fn root(&self) -> Hash {
        let mut subtrees = Vec::new();
        for hashes in self.levels.iter().rev() {
            let mut rest = hashes.as_slice();
            // Each binary 1 in the width stands for a complete subtree (RFC 6962 §2.1). The largest subtree is on the
            // left.
            for height in (0..8).rev() {
                let width = 1_usize << height;
                if hashes.len() & width == 0 {
                    continue;
                }
                let Some((left, right)) = rest.split_at_checked(width) else {
                    continue;
                };
                subtrees.push(Hash::root_from_leaf_hashes(left));
                rest = right;
            }
        }
        root_from_subtrees(subtrees).unwrap_or_else(Hash::for_empty_tree)
    }

    /// Appends entries of 1 to 65,535 bytes: the exact bytes of statements.
    pub fn append_entries<T: AsRef<[u8]>>(&self, entries: &[T]) -> Result<AppendResult, AppendError> {
        let added = u64::try_from(entries.len()).map_err(|_| AppendError::Full)?;
        let size = self.size.checked_add(added).filter(|size| *size <= MAX_TREE_SIZE);
        let size = size.ok_or(AppendError::Full)?;
        let (mut tiles, mut bundles) = (Vec::new(), Vec::new());
        let mut edge = self.clone();
        if entries.is_empty() {
            let head = edge.tree_head();
            return Ok(AppendResult {
                head,
                tiles,
                bundles,
                edge,
            });
        }
        edge.size = size;

        let mut index = self.size / TILE_WIDTH;
        let mut hashes = Vec::with_capacity(entries.len());
        for entry in entries {
            let entry = entry.as_ref();
            if entry.is_empty() {
                return Err(AppendError::Entry);
            }
            hashes.push(Hash::for_leaf(entry));
            edge.entries.push(entry.to_vec());
            if is_full(&edge.entries) {
                bundles.push((TilePath::for_entries(index, 256)?, encode_entries(&edge.entries)?));
                edge.entries.clear();
                index = index.saturating_add(1);
            }
        }
        if let Some(width) = partial_tile_width(&edge.entries) {
            bundles.push((TilePath::for_entries(index, width)?, encode_entries(&edge.entries)?));
        }

        let mut level = 0_u8;
        // Each full tile is one hash in the level above.
        while !hashes.is_empty() {
            let before = self.size >> u32::from(level).saturating_mul(8);
            let mut index = before / TILE_WIDTH;
            if edge.levels.len() <= usize::from(level) {
                edge.levels.push(Vec::new());
            }
            let Some(tile) = edge.levels.get_mut(usize::from(level)) else {
                return Err(AppendError::Full);
            };
            let mut above = Vec::new();
            for hash in hashes {
                tile.push(hash);
                if is_full(tile) {
                    tiles.push((TilePath::for_hashes(level, index, 256)?, encode_hashes(tile)));
                    above.push(Hash::root_from_leaf_hashes(tile));
                    tile.clear();
                    index = index.saturating_add(1);
                }
            }
            if let Some(width) = partial_tile_width(tile) {
                tiles.push((TilePath::for_hashes(level, index, width)?, encode_hashes(tile)));
            }
            hashes = above;
            level = level.saturating_add(1);
        }
        let head = edge.tree_head();
        Ok(AppendResult {
            head,
            tiles,
            bundles,
            edge,
        })
    }
}

fn is_full<T>(tile: &[T]) -> bool {
    u64::try_from(tile.len()).is_ok_and(|width| width == TILE_WIDTH)
}

fn partial_tile_width<T>(tile: &[T]) -> Option<u16> {
    u16::try_from(tile.len()).ok().filter(|width| *width > 0)
}
