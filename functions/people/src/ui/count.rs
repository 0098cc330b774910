//! Numbers of things, in words.

use std::fmt::Display;

/// `1 rule`, `2 rules`.
pub(crate) fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, thing: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {thing}{plural}")
}
