//! Builds dashboard URLs with query parameters.

use url::form_urlencoded;

/// Appends the parameters to the path, except those whose value is `None`.
pub(crate) fn path_with_query(
    path: &str,
    parameters: impl IntoIterator<Item = (&'static str, Option<String>)>,
) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in parameters {
        if let Some(value) = value {
            query.append_pair(name, &value);
        }
    }
    match query.finish().as_str() {
        "" => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}
