//! The protocol with a witness (c2sp.org/tlog-witness): the body of an `add-checkpoint` request, and the response.

use crate::decimal;
use crate::note::{Note, VerifierKey};
use crate::tree::Hash;
use std::fmt::Write as _;

/// Returns the body of an `add-checkpoint` request. `older_size` is the size of the tree that the witness cosigned
/// last.
pub fn build_add_checkpoint_body(older_size: u64, proof: &[Hash], checkpoint: &str) -> String {
    let mut body = format!("old {older_size}\n");
    for hash in proof {
        // Writing to a `String` can't fail.
        let _written = writeln!(body, "{hash}");
    }
    format!("{body}\n{checkpoint}")
}

/// Returns the first line with a valid cosignature of the checkpoint by this witness, with the line break.
pub fn find_cosignature(lines: &str, witness: &VerifierKey, checkpoint: &str) -> Option<String> {
    let mut lines = lines.lines().map(|line| format!("{line}\n"));
    lines.find(|line| {
        let note = Note::parse(&format!("{checkpoint}{line}"));
        note.is_ok_and(|note| note.verified_cosignature_time_secs(witness).is_ok())
    })
}

/// Parses the size of the tree that the witness cosigned last, from a response with status 409.
pub fn parse_cosigned_size(body: &str) -> Option<u64> {
    decimal::parse_decimal(body.strip_suffix('\n')?)
}
