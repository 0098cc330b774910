//! The session cookie, and one cookie for each pending sign-in, so that a user can sign in from two tabs at the same
//! time.
//!
//! Scripts can't read the cookies, and browsers don't send them with other sites' forms (`SameSite=Lax`). Over HTTPS,
//! their names begin with `__Host-`, so that only this host can set them (RFC 6265bis §4.1.3.2).

use crate::sessions::origin::Origin;
use axum::http::{HeaderMap, HeaderValue, header};
use purser_domain::{Duration, Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cookie<'a> {
    /// The session cookie, with the user id and the session's secret.
    Session,
    /// The pending sign-in with this tag.
    PendingSignIn(&'a str),
}

/// In bytes. Browsers silently drop cookies above 4,096 bytes, including name and attributes (RFC 6265 §6.1).
const MAX_VALUE_BYTES: usize = 3_900;

/// The tag of the pending sign-in follows this prefix.
const SIGN_IN: &str = "purser-sign-in-";

impl Cookie<'_> {
    fn cookie_name(self, secure: bool) -> String {
        let host = if secure { "__Host-" } else { "" };
        match self {
            Self::Session => format!("{host}purser-session"),
            Self::PendingSignIn(tag) => format!("{host}{SIGN_IN}{tag}"),
        }
    }

    /// Returns the header `Set-Cookie` for this cookie. `value` may consist of letters, digits, `-`, `_` and `.`.
    pub(crate) fn set_cookie_header(self, origin: &Origin, value: &str, age: Duration) -> Result<HeaderValue> {
        let is_plain = value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !is_plain || value.len() > MAX_VALUE_BYTES {
            return Err(Error::internal(
                "setting a cookie",
                "the value is too long or has an invalid character",
            ));
        }
        let secure = origin.is_secure();
        let (name, age) = (self.cookie_name(secure), age.secs());
        let secure = if secure { "; Secure" } else { "" };
        let text = format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}");
        HeaderValue::from_str(&text).map_err(|error| Error::internal("setting a cookie", error))
    }

    pub(crate) fn clear_cookie_header(self, origin: &Origin) -> Result<HeaderValue> {
        self.set_cookie_header(origin, "", Duration::from_secs_u32(0))
    }

    /// Returns `None` if the cookie occurs twice, because another party must have set one of the two.
    pub(crate) fn find_value(self, headers: &HeaderMap, origin: &Origin) -> Option<String> {
        let name = self.cookie_name(origin.is_secure());
        let mut values = cookie_pairs(headers)
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value);
        let (value, again) = (values.next(), values.next());
        value
            .filter(|value| !value.is_empty() && again.is_none())
            .map(str::to_owned)
    }
}

/// Returns the tags and values of a request's pending sign-in cookies.
pub(crate) fn pending_sign_in_cookies<'a>(
    headers: &'a HeaderMap,
    origin: &Origin,
) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
    let prefix = Cookie::PendingSignIn("").cookie_name(origin.is_secure());
    cookie_pairs(headers).filter_map(move |(name, value)| Some((name.strip_prefix(prefix.as_str())?, value)))
}

fn cookie_pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Extensions;

    fn origin(url: &str) -> Origin {
        Origin::for_request(Some(url), &Extensions::new()).unwrap()
    }

    /// Over HTTPS, cookies also have `Secure` and the prefix `__Host-`.
    #[test]
    fn cookies_are_http_only_and_same_site_lax() {
        let rows = [
            (
                "https://purser.example",
                "__Host-purser-session=a.b-c_1; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax; Secure",
                "__Host-purser-sign-in-a_1=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax; Secure",
            ),
            (
                "http://127.0.0.1:3000",
                "purser-session=a.b-c_1; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax",
                "purser-sign-in-a_1=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax",
            ),
        ];
        for (url, set, clear) in rows {
            let origin = origin(url);
            let age = Duration::from_secs_u32(3_600);
            assert_eq!(Cookie::Session.set_cookie_header(&origin, "a.b-c_1", age).unwrap(), set);
            assert_eq!(
                Cookie::PendingSignIn("a_1").clear_cookie_header(&origin).unwrap(),
                clear
            );
        }
    }

    #[test]
    fn only_valid_short_values_become_cookies() {
        let origin = origin("https://purser.example");
        for value in ["a;b", "a b", "a\r\nSet-Cookie: x=y", "\u{e9}", &"a".repeat(3_901)] {
            assert!(
                Cookie::Session
                    .set_cookie_header(&origin, value, Duration::DAY)
                    .is_err(),
                "{value:?}"
            );
        }
        assert!(
            Cookie::Session
                .set_cookie_header(&origin, &"a".repeat(3_900), Duration::DAY)
                .is_ok()
        );
    }

    #[test]
    fn duplicate_cookies_are_ignored() {
        let rows: [(&[&str], Option<&str>); 7] = [
            (&["purser-session=a.b.c"], Some("a.b.c")),
            (&["x=1; purser-session=a=b ; y=2"], Some("a=b")),
            (&["x=1", "purser-session=a"], Some("a")),
            (&["purser-session=a; purser-session=b"], None),
            (&["__Host-purser-session=a"], None),
            (&["xpurser-session=a; purser-session="], None),
            (&[], None),
        ];
        let origin = origin("http://127.0.0.1:3000");
        for (lines, expected) in rows {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, HeaderValue::from_str(line).unwrap());
            }
            assert_eq!(
                Cookie::Session.find_value(&headers, &origin).as_deref(),
                expected,
                "{lines:?}"
            );
        }
    }
}
