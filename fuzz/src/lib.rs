//! Fuzz targets: functions of arbitrary bytes that compare the product with a second, direct implementation of the
//! specification.
//!
//! libFuzzer calls the targets (`fuzz/run.sh`). The test `corpus` replays the inputs in `corpus/<target>`.

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

/// A function that checks a property of arbitrary bytes. Panics if the property does not hold.
pub type Target = fn(&[u8]);

/// All fuzz targets by name. The target's binary and its corpus folder have the same name.
pub const TARGETS: [(&str, Target); 5] = [
    ("canonical_json", canonical_json),
    ("hosts", hosts),
    ("node_answers", node_answers),
    ("payment_requirement", payment_requirement),
    ("payment_response", payment_response),
];
