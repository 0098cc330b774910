//! URLs of the dashboard: a path with query parameters.

use url::form_urlencoded;

/// Returns the path with a query string. Parameters whose value is `None` are left out.
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
