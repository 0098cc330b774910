//! Stores objects by key in an S3 bucket or, in the local stack and in tests, in a folder.

use aws_sdk_s3::{
    Client,
    error::{DisplayErrorContext, ProvideErrorMetadata as _},
    primitives::ByteStream,
    types::ChecksumAlgorithm,
};
use aws_types::SdkConfig;
use purser_domain::{Error, Result};
use sha2::{Digest as _, Sha256};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Mutex, time::sleep};

/// The maximum number of concurrent calls. At 30 ms a call, this is below S3's limit per prefix.
pub(crate) const MAX_CONCURRENT_REQUESTS: usize = 96;

/// The log's object store. Clones share all state.
#[derive(Clone, Debug)]
pub struct ObjectStore(Place);

#[derive(Clone, Debug)]
enum Place {
    Bucket { client: Client, bucket: Arc<str> },
    Folder(Arc<Folder>),
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// The number of writes until writes fail; `None` for no limit.
    remaining_writes: Option<AtomicU32>,
    /// The delay of each call, for tests.
    latency: Duration,
    /// Held during a conditional write. The local stack is a single process, so a lock is sufficient.
    lock: Mutex<()>,
}

/// The version of an object: S3's `ETag`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectVersion(String);

/// An object with content and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// The bytes that the object contains.
    pub bytes: Vec<u8>,
    /// The version for [`ObjectStore::put_if_version`].
    pub version: ObjectVersion,
}

impl ObjectStore {
    /// Opens the bucket with this name, or a folder if the name is `folder:<path>`. The local stack uses a folder.
    pub fn open(aws: &SdkConfig, name: &str) -> Self {
        match name.strip_prefix("folder:") {
            Some(path) => Self::open_folder(path),
            None => Self::open_bucket(aws, name),
        }
    }

    /// Opens a bucket.
    pub fn open_bucket(aws: &SdkConfig, bucket: impl Into<Arc<str>>) -> Self {
        Self(Place::Bucket {
            client: Client::new(aws),
            bucket: bucket.into(),
        })
    }

    /// Opens a folder as an object store. The first write creates the folder.
    pub fn open_folder(path: impl Into<PathBuf>) -> Self {
        Self::new_folder_store(path.into(), None, Duration::ZERO)
    }

    /// Opens a folder in which only the first `max_writes` writes and deletions succeed, for tests of interrupted runs.
    pub fn open_folder_with_write_limit(path: impl Into<PathBuf>, max_writes: u32) -> Self {
        Self::new_folder_store(path.into(), Some(AtomicU32::new(max_writes)), Duration::ZERO)
    }

    /// Opens a folder that delays each call by `latency`, for tests that count consecutive calls.
    pub fn open_folder_with_latency(path: impl Into<PathBuf>, latency: Duration) -> Self {
        Self::new_folder_store(path.into(), None, latency)
    }

    fn new_folder_store(path: PathBuf, remaining_writes: Option<AtomicU32>, latency: Duration) -> Self {
        let folder = Folder {
            path,
            remaining_writes,
            latency,
            lock: Mutex::new(()),
        };
        Self(Place::Folder(Arc::new(folder)))
    }

    /// Reads an object; `None` if the object does not exist.
    pub async fn get(&self, key: &str) -> Result<Option<StoredObject>> {
        const READING: &str = "reading an object";
        match &self.0 {
            Place::Bucket { client, bucket } => {
                let sent = client.get_object().bucket(&**bucket).key(key).send().await;
                let found = match sent {
                    Ok(found) => found,
                    Err(error) if error.code() == Some("NoSuchKey") => return Ok(None),
                    Err(error) => return Err(unavailable_error(READING, &error)),
                };
                let version = ObjectVersion(found.e_tag.unwrap_or_default());
                let bytes = found.body.collect().await;
                let bytes = bytes.map_err(|error| Error::temporarily_unavailable(READING, error))?;
                Ok(Some(StoredObject {
                    bytes: bytes.to_vec(),
                    version,
                }))
            }
            Place::Folder(folder) => {
                folder.simulate_latency().await;
                folder.get(key).map_err(|error| Error::internal(READING, error))
            }
        }
    }

    /// Writes an object, and replaces an existing object.
    pub async fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        const WRITING: &str = "writing an object";
        match &self.0 {
            Place::Bucket { client, bucket } => {
                let put = client.put_object().bucket(&**bucket).key(key);
                let sent = put.body(ByteStream::from(bytes.to_vec())).send().await;
                sent.map_err(|error| unavailable_error(WRITING, &error))?;
                Ok(())
            }
            Place::Folder(folder) => {
                folder.simulate_latency().await;
                folder.put(key, bytes).map_err(|error| Error::internal(WRITING, error))
            }
        }
    }

    /// Writes an object if the existing object has this version or, for `None`, if no object exists (S3 user guide,
    /// "Conditional writes").
    ///
    /// Returns `false` if the condition failed. An earlier attempt of the same call may have written the object.
    pub async fn put_if_version(&self, key: &str, bytes: &[u8], version: Option<&ObjectVersion>) -> Result<bool> {
        const WRITING: &str = "writing an object conditionally";
        match &self.0 {
            Place::Bucket { client, bucket } => {
                // A bucket with Object Lock requires a checksum (API reference, `PutObject`).
                let put = client.put_object().bucket(&**bucket).key(key);
                let put = put.checksum_algorithm(ChecksumAlgorithm::Sha256);
                let put = match version {
                    Some(ObjectVersion(version)) => put.if_match(version),
                    None => put.if_none_match("*"),
                };
                match put.body(ByteStream::from(bytes.to_vec())).send().await {
                    Ok(_) => Ok(true),
                    Err(error) => match error.code() {
                        // `ConditionalRequestConflict` means a concurrent write. `NoSuchKey` means that the object was
                        // deleted.
                        Some("PreconditionFailed" | "ConditionalRequestConflict" | "NoSuchKey") => Ok(false),
                        _ => Err(unavailable_error(WRITING, &error)),
                    },
                }
            }
            Place::Folder(folder) => {
                folder.simulate_latency().await;
                let _held = folder.lock.lock().await;
                let present = folder.get(key).map_err(|error| Error::internal(WRITING, error))?;
                if present.map(|object| object.version).as_ref() != version {
                    return Ok(false);
                }
                folder
                    .put(key, bytes)
                    .map_err(|error| Error::internal(WRITING, error))?;
                Ok(true)
            }
        }
    }

    /// Lists up to `max_keys` keys (at most 1,000) that have this prefix and sort after `after`, in order.
    pub async fn list(&self, prefix: &str, after: Option<&str>, max_keys: u16) -> Result<Vec<String>> {
        const LISTING: &str = "listing objects";
        match &self.0 {
            Place::Bucket { client, bucket } => {
                let list = client.list_objects_v2().bucket(&**bucket).prefix(prefix);
                let list = list.set_start_after(after.map(str::to_owned)).max_keys(max_keys.into());
                let listed = list.send().await.map_err(|error| unavailable_error(LISTING, &error))?;
                Ok(listed
                    .contents
                    .into_iter()
                    .flatten()
                    .filter_map(|object| object.key)
                    .collect())
            }
            Place::Folder(folder) => {
                folder.simulate_latency().await;
                let mut keys = Vec::new();
                let found = collect_keys(&folder.path, &folder.path, &mut keys);
                found.map_err(|error| Error::internal(LISTING, error))?;
                keys.retain(|key| key.starts_with(prefix) && after.is_none_or(|after| key.as_str() > after));
                keys.sort_unstable();
                keys.truncate(max_keys.into());
                Ok(keys)
            }
        }
    }

    /// Deletes an object if it exists.
    pub async fn delete(&self, key: &str) -> Result<()> {
        const DELETING: &str = "deleting an object";
        match &self.0 {
            Place::Bucket { client, bucket } => {
                let sent = client.delete_object().bucket(&**bucket).key(key).send().await;
                sent.map_err(|error| unavailable_error(DELETING, &error))?;
                Ok(())
            }
            Place::Folder(folder) => {
                folder.simulate_latency().await;
                folder.delete(key).map_err(|error| Error::internal(DELETING, error))
            }
        }
    }
}

fn unavailable_error<E: std::error::Error>(operation: &'static str, error: &E) -> Error {
    Error::temporarily_unavailable(operation, DisplayErrorContext(error).to_string())
}

impl Folder {
    async fn simulate_latency(&self) {
        if !self.latency.is_zero() {
            sleep(self.latency).await;
        }
    }

    fn get(&self, key: &str) -> io::Result<Option<StoredObject>> {
        match fs::read(self.path.join(key)) {
            Ok(bytes) => {
                let version = ObjectVersion(format!("{:x?}", Sha256::digest(&bytes)));
                Ok(Some(StoredObject { bytes, version }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn take_write_permit(&self) -> io::Result<()> {
        let Some(writes) = &self.remaining_writes else {
            return Ok(());
        };
        let remaining = writes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |remaining| remaining.checked_sub(1));
        remaining.map(|_| ()).map_err(|_| io::Error::other("interrupted"))
    }

    fn delete(&self, key: &str) -> io::Result<()> {
        self.take_write_permit()?;
        match fs::remove_file(self.path.join(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes a temporary file and renames it, so that a reader never sees a partial object.
    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.take_write_permit()?;
        let path = self.path.join(key);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let beside = self.path.join(format!(".{}", uuid::Uuid::new_v4()));
        fs::write(&beside, bytes)?;
        fs::rename(beside, path)
    }
}

/// Collects the keys of all files in a folder, except temporary files.
fn collect_keys(root: &Path, folder: &Path, keys: &mut Vec<String>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect_keys(root, &path, keys)?;
        } else if let Some(key) = path.strip_prefix(root).ok().and_then(Path::to_str)
            && !key.starts_with('.')
        {
            keys.push(key.to_owned());
        }
    }
    Ok(())
}
