//! Fuzz targets: functions of arbitrary bytes, each of which checks a property and panics if it does not hold.
//!
//! libFuzzer calls them in search of new paths (`fuzz/run.sh`). The test `corpus` calls the same functions with every
//! file of `corpus/<target>`, so findings stay fixed. [`TARGETS`] is the list for both.
//!
//! A target uses the product's public interface and checks its property independently: it decides what is right by its
//! own direct implementation of the contract. Deliberately elsewhere: the answers of single endpoints
//! (`tests/it/bad_input.rs`), and the promises of the API as a whole (`infra/schemathesis`).

mod canonical_json;
mod hosts;
mod node_answers;
mod payment_requirement;
mod payment_response;

pub use canonical_json::canonical_json;
pub use hosts::hosts;
pub use node_answers::node_answers;
pub use payment_requirement::payment_requirement;
pub use payment_response::payment_response;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also the name of its binary and of its corpus folder.
pub const TARGETS: [(&str, Target); 5] = [
    ("canonical_json", canonical_json),
    ("hosts", hosts),
    ("node_answers", node_answers),
    ("payment_requirement", payment_requirement),
    ("payment_response", payment_response),
];
