//! The exchange with a witness (c2sp.org/tlog-witness): the body of `add-checkpoint`, and what its response has.

use crate::decimal;
use crate::note::{Note, VerifierKey};
use crate::tree::Hash;
use std::fmt::Write as _;

/// The body of a call of `add-checkpoint`: the size of the tree that the witness cosigned last, the proof that the
/// checkpoint's tree continues it, and the checkpoint.
pub fn add_checkpoint(older: u64, proof: &[Hash], checkpoint: &str) -> String {
    let mut body = format!("old {older}\n");
    for hash in proof {
        // Writing to a text can't fail.
        let _written = writeln!(body, "{hash}");
    }
    format!("{body}\n{checkpoint}")
}

/// The first line that is a valid cosignature of the checkpoint by this witness, with its line break.
pub fn find_cosignature(lines: &str, witness: &VerifierKey, checkpoint: &str) -> Option<String> {
    let mut lines = lines.lines().map(|line| format!("{line}\n"));
    lines.find(|line| {
        let note = Note::parse(&format!("{checkpoint}{line}"));
        note.is_ok_and(|note| note.verify_cosignature(witness).is_ok())
    })
}

/// The size of the tree that the witness cosigned last, as its response with the status 409 has it.
pub fn parse_cosigned_size(body: &str) -> Option<u64> {
    decimal::parse(body.strip_suffix('\n')?)
}
