//! Readable names that users and agents use instead of UUIDs.

use std::fmt;

macro_rules! slugs {
    ($($(#[$doc:meta])* $name:ident, $valid:expr, $message:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The message of the validation error for a text that [`Self::parse`] rejects.
            pub const FORM: &'static str = $message;

            /// Parses a slug. Returns `None` for any other text.
            pub fn parse(text: &str) -> Option<Self> {
                let valid: fn(&str) -> bool = $valid;
                (text.len() <= 128 && valid(text)).then(|| Self(text.to_owned()))
            }

            /// Returns the slug, which has at most 128 bytes.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

slugs! {
    /// A service's slug: `lab-weather`.
    ServiceSlug, is_slug_word, "must be a slug of lower-case letters, digits, `-` and `_`";
    /// The name of an operator, which shows whose token was used (`docs/runbook.md`).
    OperatorName, is_slug_word, "must be a name of lower-case letters, digits, `-` and `_`";
    /// An operation's slug, `<domain>.<action>` (`docs/spec.md` §2.3): `weather.current`.
    OperationSlug, |text| text.split('.').count() >= 2 && text.split('.').all(is_slug_word),
        "must be an operation slug of the form `<domain>.<action>`";
}

impl OperatorName {
    /// The prefix in the name of an operator who acts in a browser. Registered names can't contain this prefix.
    const IN_BROWSER: &'static str = "browser:";

    /// Parses an operator's stored name, with or without the prefix of an operator who acts in a browser.
    pub fn from_stored(text: &str) -> Option<Self> {
        let registered = Self::parse(text.strip_prefix(Self::IN_BROWSER).unwrap_or(text))?;
        Some(if text.starts_with(Self::IN_BROWSER) {
            registered.browser_session_name()
        } else {
            registered
        })
    }

    /// Returns the name that is recorded for this operator's actions in a browser.
    #[must_use]
    pub fn browser_session_name(&self) -> Self {
        Self(format!("{}{}", Self::IN_BROWSER, self.registered_name()))
    }

    /// Returns whether the operator acted in a browser.
    pub fn is_browser_session_name(&self) -> bool {
        self.0.starts_with(Self::IN_BROWSER)
    }

    /// Returns whether both names belong to the same operator, with a token or in a browser.
    pub fn is_same_operator(&self, other: &Self) -> bool {
        self.registered_name() == other.registered_name()
    }

    fn registered_name(&self) -> &str {
        self.0.strip_prefix(Self::IN_BROWSER).unwrap_or(&self.0)
    }
}

impl OperationSlug {
    /// Returns whether a word of the slug begins with `scrape`, `scraping` or `crawl` (`docs/decisions.md` §9).
    pub fn suggests_fetching(&self) -> bool {
        let mut words = self.0.split(['.', '-', '_']);
        words.any(|word| {
            ["scrape", "scraping", "crawl"]
                .iter()
                .any(|verb| word.starts_with(verb))
        })
    }
}

fn is_slug_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operator_names_for_tokens_and_browser_sessions_match_the_same_operator() {
        let ada = OperatorName::parse("ada").unwrap();
        let (there, bob) = (ada.browser_session_name(), OperatorName::parse("bob").unwrap());
        assert_eq!(there.as_str(), "browser:ada");
        assert_eq!(there.browser_session_name(), there);
        assert!(there.is_browser_session_name() && !ada.is_browser_session_name());
        assert!(ada.is_same_operator(&there) && there.is_same_operator(&ada));
        assert!(!bob.is_same_operator(&there) && !bob.browser_session_name().is_same_operator(&there));
        for name in [&ada, &there] {
            assert_eq!(OperatorName::from_stored(name.as_str()).as_ref(), Some(name));
        }
        assert_eq!(OperatorName::parse("browser:ada"), None);
        for text in [
            "browser:",
            "browser:browser:ada",
            "browser:Ada",
            "browser",
            "ada:browser",
        ] {
            assert_eq!(OperatorName::from_stored(text).is_some(), text == "browser", "{text}");
        }
    }

    #[test]
    fn slugs_contain_only_lower_case_words() {
        assert!(ServiceSlug::parse("lab-weather_2").is_some());
        assert!(OperationSlug::parse("weather.current").is_some());
        for text in ["", "Lab", "a b", "a/b", "a.b", "\u{e9}", &"a".repeat(129)] {
            assert!(ServiceSlug::parse(text).is_none(), "{text:?}");
        }
        for text in ["", "weather", "weather.", ".current", "a..b", "a.B"] {
            assert!(OperationSlug::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn scrape_and_crawl_are_recognized_in_slugs() {
        let rows = [
            ("web.scrape", true),
            ("web.crawl-site", true),
            ("page.bulk-scrape", true),
            ("page.bulk_crawler", true),
            ("page.web-scraping", true),
            ("scrape.page", true),
            ("web.v2.scrape", true),
            ("web.search", false),
            ("sky.skyscraper", false),
        ];
        for (slug, expected) in rows {
            let slug = OperationSlug::parse(slug).unwrap();
            assert_eq!(slug.suggests_fetching(), expected, "{slug}");
        }
    }
}
