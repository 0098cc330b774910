//! An email address that the identity provider verified.

use std::fmt;

/// An email address in ASCII that is safe in a mail header. The address is never logged, so `Debug` omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct MailAddress(String);

impl MailAddress {
    /// The maximum length (RFC 5321 §4.5.3.1.3, without the angle brackets).
    pub const MAX: usize = 254;

    /// Parses an address. Quoted local parts and address literals are not supported.
    pub fn parse(text: &str) -> Option<Self> {
        let (local, domain) = text.split_once('@')?;
        let is_local = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&byte);
        let is_label = |label: &str| {
            let inner = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
        };
        let fits = text.len() <= Self::MAX && (1..=64).contains(&local.len());
        let is_named = local.bytes().all(is_local) && local.split('.').all(|part| !part.is_empty());
        (fits && is_named && domain.split('.').all(is_label)).then(|| Self(text.to_owned()))
    }

    /// Returns the complete address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for MailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MailAddress(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_addresses_contain_no_header_syntax() {
        for text in [
            "ann@example.com",
            "a.b+c@mail.example.co",
            "owner@example.test",
            "x@localhost",
        ] {
            let address = MailAddress::parse(text).unwrap();
            assert_eq!((address.as_str(), format!("{address:?}").contains(text)), (text, false));
        }
        let long = format!("a@{}.example", "b".repeat(254));
        for text in [
            "",
            "ann",
            "@example.com",
            "ann@",
            "ann@b@c",
            "ann @example.com",
            "ann@example.com\r\nBcc: b@example.com",
            "ann@example.com, b@example.com",
            "Ann <ann@example.com>",
            "\"a b\"@example.com",
            "ann@[127.0.0.1]",
            ".ann@example.com",
            "ann@exa..mple",
            "ann@-example.com",
            "änn@example.com",
            &long,
        ] {
            assert!(MailAddress::parse(text).is_none(), "{text}");
        }
    }
}
