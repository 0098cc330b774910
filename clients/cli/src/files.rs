//! Reads the files in the arguments of `verify`, `replay` and `log`.

use crate::exit::Failure;
use purser_verify::Trust;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// The maximum length of a file, in bytes. A statement has at most 64 KiB.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Reads a trust file. A deployment serves this JSON document at `/log/trust`.
pub(crate) fn read_trust(path: &Path) -> Result<Trust, Failure> {
    let unreadable = |reason| Failure::Unreadable(format!("{} can't be verified: {reason}", path.display()));
    Trust::parse(&read_text(path)?).map_err(unreadable)
}

/// Reads a file without trimming, because the exact bytes of a statement are signed.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let unreadable = |reason: String| Failure::Unreadable(format!("{} can't be read: {reason}", path.display()));
    let mut text = String::new();
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let length = file.take(MAX_FILE_BYTES).read_to_string(&mut text);
    let length = length.map_err(|error| unreadable(error.to_string()))?;
    if u64::try_from(length).is_ok_and(|length| length >= MAX_FILE_BYTES) {
        return Err(unreadable("it is longer than 1 MiB".to_owned()));
    }
    Ok(text)
}
