//! The address of an operation: a URL in which whole path segments may be parameters (RFC 6570 level 1).
//!
//! A parameter's value is one segment that is not empty and contains no encoded slash. Queries and fragments are not
//! compared.

use crate::{Network, parse_web_url};
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use url::{Host, Position, Url};

/// An http or https address with optional path parameters: `https://api.example/v1/companies/{id}`.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The URL with percent-encoded braces, because the URL standard encodes braces in paths.
    url: Url,
    /// The address as the operator wrote it.
    text: String,
    parameters: Parameters,
}

/// A bit mask of the path segments that are parameters. The first segment is the highest bit, so the mask is
/// a smaller number if the first parameter is in a later segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters(u64);

impl Parameters {
    /// The bit mask of an endpoint without parameters.
    pub(crate) const NONE: Self = Self(0);

    /// Returns a sort key: fewer parameters first; if equally many, the later first parameter first.
    pub(crate) const fn specificity_sort_key(self) -> (u32, u64) {
        (self.0.count_ones(), self.0)
    }

    fn is_parameter(self, segment: usize) -> bool {
        segment_bit(segment).is_some_and(|bit| self.0 & bit != 0)
    }
}

/// Returns the bit of a path segment in [`Parameters`]; `None` beyond [`MAX_SEGMENTS`].
fn segment_bit(segment: usize) -> Option<u64> {
    let place = u32::try_from(segment).ok()?;
    HIGHEST_BIT.checked_shr(place)
}

const HIGHEST_BIT: u64 = 1 << 63;
/// The maximum number of path segments of an endpoint with parameters.
const MAX_SEGMENTS: usize = 64;

impl Endpoint {
    /// The message of the validation error for a text that [`Endpoint::parse`] rejects.
    pub const FORM: &'static str = "must be an http or https address; a path parameter is one whole segment, `{name}`, \
                                    and each name stands once";

    /// Parses an address. Braces must enclose the name of a whole path segment (RFC 6570 §2.3, §3.2.2).
    pub fn parse(text: &str) -> Option<Self> {
        // The URL standard allows braces in a host, but a reader would mistake them for a parameter.
        let url = parse_web_url(text).filter(|url| !url.host_str().is_some_and(has_brace))?;
        let mut parameters = Parameters::NONE;
        let mut written = Vec::new();
        for (index, segment) in url.path().split('/').skip(1).enumerate() {
            if !has_brace(segment) {
                written.push(segment.to_owned());
                continue;
            }
            let name = format!("{{{}}}", parameter_name(segment)?);
            if written.contains(&name) || index >= MAX_SEGMENTS {
                return None;
            }
            parameters.0 |= segment_bit(index)?;
            written.push(name);
        }
        let (origin, rest) = (&url[..Position::BeforePath], &url[Position::AfterPath..]);
        let text = format!("{origin}/{}{rest}", written.join("/"));
        Some(Self { url, text, parameters })
    }

    /// Returns the address as the operator wrote it, with braces.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the URL; `None` if the endpoint has parameters.
    pub fn address(&self) -> Option<&Url> {
        (self.parameters == Parameters::NONE).then_some(&self.url)
    }

    pub(crate) fn example_url(&self) -> Url {
        let mut url = self.url.clone();
        let written = path_segments(&self.url).enumerate().map(|(index, segment)| {
            if self.parameters.is_parameter(index) {
                "x"
            } else {
                segment
            }
        });
        let path = written.collect::<Vec<_>>().join("/");
        url.set_path(&format!("/{path}"));
        url
    }

    /// Returns whether calls may be paid on this network: plain HTTP only on a test network.
    pub fn may_be_paid_on(&self, network: Network) -> bool {
        network.is_testnet() || self.scheme() == "https"
    }

    /// Returns the scheme: `http` or `https`.
    pub fn scheme(&self) -> &str {
        self.url.scheme()
    }

    /// Returns the URL's host: a domain or an IP address.
    pub fn host(&self) -> Option<Host<&str>> {
        self.url.host()
    }

    /// Returns the domain name, the IPv4 address, or the IPv6 address in brackets.
    pub fn host_str(&self) -> Option<&str> {
        self.url.host_str()
    }

    /// Returns whether a called URL matches: equal scheme, host, port and segments, except for parameters.
    ///
    /// An encoded slash or backslash matches no parameter, because some servers decode it into two segments.
    pub fn is_match_for_url(&self, url: &Url) -> bool {
        let same_place = self.url.scheme() == url.scheme()
            && self.url.host() == url.host()
            && self.url.port_or_known_default() == url.port_or_known_default();
        let mut ours = path_segments(&self.url).enumerate();
        let mut theirs = path_segments(url);
        let same_path = ours.by_ref().all(|(index, ours)| {
            theirs.next().is_some_and(|theirs| {
                if self.parameters.is_parameter(index) {
                    is_parameter_value(theirs)
                } else {
                    ours == theirs
                }
            })
        });
        same_place && same_path && theirs.next().is_none()
    }

    /// Returns the percent-encoded value of a path parameter in a called URL.
    pub(crate) fn parameter_value<'u>(&self, name: &str, url: &'u Url) -> Option<&'u str> {
        let mut both = path_segments(&self.url).zip(path_segments(url));
        both.find_map(|(ours, theirs)| (parameter_name(ours) == Some(name)).then_some(theirs))
    }

    /// Returns whether a URL could match both endpoints.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let same_place = self.url.scheme() == other.url.scheme()
            && self.url.host() == other.url.host()
            && self.url.port_or_known_default() == other.url.port_or_known_default();
        let mut theirs = path_segments(&other.url);
        let same_path = path_segments(&self.url).enumerate().all(|(index, ours)| {
            let is_parameter = self.parameters.is_parameter(index) || other.parameters.is_parameter(index);
            theirs.next().is_some_and(|theirs| is_parameter || ours == theirs)
        });
        same_place && same_path && theirs.next().is_none()
    }

    pub(crate) const fn parameters(&self) -> Parameters {
        self.parameters
    }

    /// Returns a digest that is equal for all URLs that match the endpoint ([`url_digest_ignoring_parameters`]).
    pub(crate) fn digest(&self) -> u64 {
        url_digest_ignoring_parameters(&self.url, self.parameters)
    }

    /// Returns a digest of the scheme, host, port and number of segments ([`url_segment_count_digest`]).
    pub(crate) fn segment_count_digest(&self) -> u64 {
        url_segment_count_digest(&self.url)
    }
}

/// Returns a digest of the URL without the values of these parameters.
pub(crate) fn url_digest_ignoring_parameters(url: &Url, parameters: Parameters) -> u64 {
    let mut digest = url_origin_hasher(url);
    for (index, segment) in path_segments(url).enumerate() {
        if parameters.is_parameter(index) {
            0_u8.hash(&mut digest);
        } else {
            segment.hash(&mut digest);
        }
    }
    digest.finish()
}

/// Returns a digest of the URL's scheme, host, port and number of segments.
pub(crate) fn url_segment_count_digest(url: &Url) -> u64 {
    let mut digest = url_origin_hasher(url);
    path_segments(url).count().hash(&mut digest);
    digest.finish()
}

pub(crate) fn host_digest(host: Option<&Host<&str>>) -> u64 {
    let mut digest = DefaultHasher::new();
    host.hash(&mut digest);
    digest.finish()
}

fn url_origin_hasher(url: &Url) -> DefaultHasher {
    let mut digest = DefaultHasher::new();
    url.scheme().hash(&mut digest);
    url.host().hash(&mut digest);
    url.port_or_known_default().hash(&mut digest);
    digest
}

/// Returns the path segments. Trailing slashes are ignored.
fn path_segments(url: &Url) -> impl Iterator<Item = &str> {
    url.path().trim_end_matches('/').split('/').skip(1)
}

fn has_brace(segment: &str) -> bool {
    contains_percent_encoded(segment, *b"7b")
        || contains_percent_encoded(segment, *b"7d")
        || segment.contains(['{', '}'])
}

/// Returns whether the segment contains `%` and these lower-case hexadecimal digits, in either case.
fn contains_percent_encoded(segment: &str, digits: [u8; 2]) -> bool {
    let [high, low] = digits;
    let bytes = segment.as_bytes();
    bytes
        .windows(3)
        .any(|three| matches!(three, [b'%', a, b] if a.eq_ignore_ascii_case(&high) && b.eq_ignore_ascii_case(&low)))
}

/// Returns the name in `%7Bname%7D`, which is `{name}` percent-encoded.
fn parameter_name(segment: &str) -> Option<&str> {
    let name = segment.strip_prefix("%7B")?.strip_suffix("%7D")?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some(name)
}

/// Returns whether the segment may be a parameter's value: not empty, without an encoded slash or backslash.
fn is_parameter_value(segment: &str) -> bool {
    !segment.is_empty() && !contains_percent_encoded(segment, *b"2f") && !contains_percent_encoded(segment, *b"5c")
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Endpoint {
        Endpoint::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn endpoints_survive_formatting_and_parsing() {
        let rows = [
            ("https://a.example", "https://a.example/"),
            ("https://A.example:443/x?q=1", "https://a.example/x?q=1"),
            ("https://a.example/v1/{id}", "https://a.example/v1/{id}"),
            ("https://a.example/v1/%7Bid%7D/", "https://a.example/v1/{id}/"),
            (
                "https://a.example/{a}/x/{b_2}?q={c}#{d}",
                "https://a.example/{a}/x/{b_2}?q={c}#{d}",
            ),
            ("https://a.example//x", "https://a.example//x"),
        ];
        for (text, written) in rows {
            let read = endpoint(text);
            assert_eq!(read.as_str(), written);
            assert_eq!(endpoint(written), read, "{text}");
            assert!(read.is_match_for_url(&read.example_url()), "{text}");
        }
    }

    #[test]
    fn path_parameters_must_be_whole_segments() {
        for text in [
            "https://a.example/{}",
            "https://a.example/{id",
            "https://a.example/id}",
            "https://a.example/x{id}",
            "https://a.example/{id}.json",
            "https://a.example/{a}{b}",
            "https://a.example/{a,b}",
            "https://a.example/{+path}",
            "https://a.example/{a-b}",
            "https://a.example/{a}/{a}",
            "https://{host}.example/",
            "https://a.example/x\\{id}",
            "ftp://a.example/{id}",
        ] {
            assert_eq!(Endpoint::parse(text), None, "{text}");
        }
        let deep = |count: usize| format!("https://a.example{}/{{id}}", "/x".repeat(count));
        assert!(Endpoint::parse(&deep(63)).is_some());
        assert!(Endpoint::parse(&deep(64)).is_none());
    }

    #[test]
    fn a_path_parameter_matches_one_segment() {
        let template = "https://a.example/v1/companies/{id}";
        let rows = [
            ("https://a.example/v1/companies/5", true),
            ("https://a.example/v1/companies/5/?q=1#x", true),
            ("https://a.example/v1/companies/a%20b", true),
            ("https://a.example/v1/companies/%7Bid%7D", true),
            ("https://a.example/v1/companies/", false),
            ("https://a.example/v1/companies", false),
            ("https://a.example/v1/companies/5/filings", false),
            ("https://a.example/v1/companies//5", false),
            ("https://a.example/v1/companies/..%2fadmin", false),
            ("https://a.example/v1/companies/..%5Cadmin", false),
            ("https://a.example/v1/companies/%2e%2e", false),
            ("https://a.example/v1/people/5", false),
            ("https://a.example:8443/v1/companies/5", false),
            ("http://a.example/v1/companies/5", false),
            ("https://a.example.evil.test/v1/companies/5", false),
        ];
        for (url, expected) in rows {
            let url = Url::parse(url).unwrap();
            assert_eq!(endpoint(template).is_match_for_url(&url), expected, "{url}");
        }
        assert!(endpoint(template).address().is_none());
        assert!(endpoint("https://a.example/v1").address().is_some());
    }

    #[test]
    fn endpoints_have_the_same_digest_as_matching_urls() {
        let url = Url::parse("https://a.example/v1/x/5").unwrap();
        for text in [
            "https://a.example/v1/x/5/",
            "https://a.example/v1/x/{id}",
            "https://a.example/{a}/{b}/{c}",
        ] {
            let endpoint = endpoint(text);
            assert!(endpoint.is_match_for_url(&url));
            assert_eq!(
                endpoint.digest(),
                url_digest_ignoring_parameters(&url, endpoint.parameters()),
                "{text}"
            );
            assert_eq!(endpoint.segment_count_digest(), url_segment_count_digest(&url));
        }
    }

    #[test]
    fn literal_endpoints_precede_parameterized_ones() {
        let of = |text: &str| {
            endpoint(&format!("https://a.example{text}"))
                .parameters()
                .specificity_sort_key()
        };
        let in_order = [
            "/v1/x/5",
            "/v1/x/{c}",
            "/v1/{b}/5",
            "/{a}/x/5",
            "/v1/{b}/{c}",
            "/{a}/x/{c}",
            "/{a}/{b}/{c}",
        ];
        assert!(in_order.windows(2).all(|pair| of(pair[0]) < of(pair[1])));
    }
}
