//! Fuzz targets: functions of any bytes, each of which states what must hold and panics where it does not.
//!
//! libFuzzer calls them in search of new paths (`make fuzz`); the test `corpus` calls the same functions with every file
//! of `corpus/<target>`, so what was once found stays found. [`TARGETS`] is the list of both.
//!
//! A target looks at the product through what it publishes, and states its property in other words than the product's
//! own: where it says what is right, it does so by a plain reading of the contract. What one endpoint answers is
//! deliberately elsewhere (`tests/it/bad_input.rs`), and so is what the API promises as a whole (`infra/hostile`).

mod canonical_json;
mod gateway_event;
mod headers;
mod hosts;
mod node_answers;
mod payment_requirement;
mod payment_response;
mod request_body;

pub use canonical_json::canonical_json;
pub use gateway_event::gateway_event;
pub use headers::headers;
pub use hosts::hosts;
pub use node_answers::node_answers;
pub use payment_requirement::payment_requirement;
pub use payment_response::payment_response;
pub use request_body::request_body;

/// One target.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also the name of its binary and of its folder of the corpus.
pub const TARGETS: [(&str, Target); 8] = [
    ("canonical_json", canonical_json),
    ("gateway_event", gateway_event),
    ("headers", headers),
    ("hosts", hosts),
    ("node_answers", node_answers),
    ("payment_requirement", payment_requirement),
    ("payment_response", payment_response),
    ("request_body", request_body),
];
