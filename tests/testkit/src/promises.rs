//! Checks that each operation returns only the errors that `docs/openapi.json` lists for the operation.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::sync::LazyLock;

/// The status and the slug of an error.
pub type PromisedError = (u16, String);

/// An operation of the API, with the errors that its description lists.
struct Operation {
    id: String,
    method: String,
    /// The segments of the path. A parameter is `{name}`.
    path: Vec<String>,
    errors: BTreeSet<PromisedError>,
}

static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let document: Value = serde_json::from_slice(&fs::read(path).expect(path)).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods");
        methods.iter().map(|(method, operation)| Operation {
            id: operation["operationId"].as_str().expect("an id").to_owned(),
            method: method.to_ascii_uppercase(),
            path: path.split('/').map(str::to_owned).collect(),
            errors: errors_of(operation),
        })
    });
    operations.collect()
});

/// Parses the errors in the responses' descriptions, which are lines of the form "- `slug`: text".
fn errors_of(operation: &Value) -> BTreeSet<PromisedError> {
    let responses = operation["responses"].as_object().expect("responses");
    let errors = responses.iter().flat_map(|(status, response)| {
        let status = status.parse().expect("a status");
        let text = response["description"].as_str().unwrap_or_default();
        text.lines().filter_map(move |line| {
            let (slug, _) = line.strip_prefix("- `")?.split_once('`')?;
            Some((status, slug.to_owned()))
        })
    });
    errors.collect()
}

/// Returns the listed errors of all operations, by operation id.
pub fn promised_errors() -> BTreeMap<String, BTreeSet<PromisedError>> {
    let operations = OPERATIONS.iter();
    operations
        .map(|operation| (operation.id.clone(), operation.errors.clone()))
        .collect()
}

/// Asserts that the description of the request's operation lists this error. Accepts all errors of pages, of `/mcp` and
/// of unknown routes.
pub fn assert_promised(method: &str, path: &str, status: u16, body: &Value) {
    let Some(slug) = body["error"].as_str().filter(|_| status >= 400 && path != "/mcp") else {
        return;
    };
    let Some(operation) = find_operation(method, path) else {
        return;
    };
    let slug = if status == 400 && slug.ends_with("_required") {
        "<field>_required"
    } else {
        slug
    };
    assert!(
        operation.errors.contains(&(status, slug.to_owned())),
        "the description of `{}` does not list {status} `{slug}`, which {method} {path} returned",
        operation.id,
    );
    if let Some(file) = std::env::var_os("RECORD_ERRORS") {
        let line = format!("{} {status} {slug}\n", operation.id);
        let file = fs::File::options().append(true).create(true).open(file);
        file.expect("a file").write_all(line.as_bytes()).expect("written");
    }
}

/// Finds the operation of a path. Prefers a literal path segment to a parameter.
fn find_operation(method: &str, path: &str) -> Option<&'static Operation> {
    let segments: Vec<&str> = path.split('/').collect();
    let is_parameter = |segment: &String| segment.starts_with('{');
    let matches = |operation: &&Operation| {
        operation.method == method
            && operation.path.len() == segments.len()
            && operation.path.iter().zip(&segments).all(|(known, segment)| {
                if is_parameter(known) {
                    !segment.is_empty()
                } else {
                    known == segment
                }
            })
    };
    let operations = OPERATIONS.iter().filter(matches);
    operations.min_by_key(|operation| operation.path.iter().filter(|segment| is_parameter(segment)).count())
}
