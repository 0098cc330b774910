//! Types of single JSON values in request bodies: parsers and JSON schemas.

use crate::{BodyPath, Member, Schemas, ValidationErrors};
use purser_domain::{
    Address, AgentName, AgentStatus, Amount, ApprovalId, Category, DomainPattern, Duration, KeyId, LabelFilter,
    LabelKey, LabelValue, Labels, LimitAction, MAX_BUDGET_WINDOW, OperationSlug, OperationUuid, OperatorReason,
    Overrides, Permission, RuleId, SchedulePeriod, ServiceSlug, SourceNetwork, StartingLimits, Target, TemplateName,
    Timestamp, TrustStatus, TxHash, Url, UserId, ZoneName, is_displayable, parse_address, parse_web_url,
    parse_whole_number,
};
use serde_json::{Value, json};

/// A JSON Schema pattern for text without control characters.
const PRINTABLE: &str = "^[^\\x00-\\x1f\\x7f-\\x9f]*$";
/// A JSON Schema pattern for text without control characters and with at least one visible character.
const VISIBLE_TEXT_PATTERN: &str = "^[^\\x00-\\x1f\\x7f-\\x9f]*[^\\s\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x1f\\x7f-\\x9f]*$";
const LABEL_KEY: &str = "^[a-z][a-z0-9_.-]{0,29}$";
/// A JSON Schema pattern for a label's key or `key=value`.
const LABEL_FILTER: &str = "^[a-z][a-z0-9_.-]{0,29}(=[^\\x00-\\x1f\\x7f-\\x9f]{1,60})?$";
/// A JSON Schema pattern for http and https URLs in the characters of RFC 3986 §2. The parser percent-encodes other
/// characters.
pub const WEB: &str = "^https?://[A-Za-z0-9][A-Za-z0-9._~:/?#\\[\\]@!$&'()*+,;=%-]*$";
/// The maximum length of a URL from an agent, in bytes after percent-encoding. A statement with two such URLs fits into
/// the log.
const MAX_URL_BYTES: usize = 8_192;

/// A type of a single JSON value in request bodies.
pub trait Field: Sized {
    /// Parses the value; the error describes a valid value.
    fn read(value: &Value) -> Result<Self, String>;

    /// Returns the JSON schema of the value.
    fn schema() -> Value;
}

/// A type of list elements in request bodies, which have a separate schema in the OpenAPI document.
pub trait Listed: Field {
    /// The name of the list element's schema in the OpenAPI document.
    const NAME: &'static str;

    /// Returns the schema keywords of a list element in addition to [`Field::schema`], such as `description`.
    fn item_schema() -> Value;
}

impl<T: Field> Member for T {
    fn read(value: &Value, path: BodyPath<'_>, errors: &mut ValidationErrors) -> Option<Self> {
        <T as Field>::read(value)
            .map_err(|message| errors.add_at(path, message))
            .ok()
    }

    fn describe(_: &mut Schemas) -> Value {
        T::schema()
    }
}

/// `read` reports the errors of all elements, and returns `None` if any element is invalid.
impl<T: Listed> Member for Vec<T> {
    fn read(value: &Value, path: BodyPath<'_>, errors: &mut ValidationErrors) -> Option<Self> {
        let Some(entries) = value.as_array() else {
            errors.add_at(path, "must be a list");
            return None;
        };
        let mut values = Self::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            values.extend(<T as Member>::read(entry, BodyPath::Entry(&path, index), errors));
        }
        (values.len() == entries.len()).then_some(values)
    }

    fn describe(schemas: &mut Schemas) -> Value {
        let entry = schemas.add(
            T::NAME,
            crate::http::body::with_description(T::schema(), &[], T::item_schema()),
        );
        json!({"type": "array", "items": entry})
    }
}

impl Member for Labels {
    fn read(value: &Value, path: BodyPath<'_>, errors: &mut ValidationErrors) -> Option<Self> {
        Self::parse(value, &path.to_string())
            .map_err(|found| errors.extend(found))
            .ok()
    }

    fn describe(_: &mut Schemas) -> Value {
        json!({
            "type": "object",
            "maxProperties": Self::MAX,
            "propertyNames": {"type": "string", "pattern": LABEL_KEY},
            "additionalProperties": {
                "type": "string",
                "minLength": 1,
                "maxLength": LabelValue::MAX,
                "pattern": VISIBLE_TEXT_PATTERN,
            },
            "example": {"team": "search"},
        })
    }
}

/// Declares a newtype that implements `Field`, with a parser and a JSON schema.
#[macro_export]
macro_rules! field {
    ($(#[doc = $doc:literal])* $vis:vis struct $name:ident($inner:ty): $read:expr, $schema:expr $(,)?) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis struct $name($vis $inner);

        impl $crate::Field for $name {
            fn read(value: &::serde_json::Value) -> ::core::result::Result<Self, ::std::string::String> {
                let read: fn(&::serde_json::Value) -> ::core::result::Result<$inner, ::std::string::String> = $read;
                read(value).map(Self)
            }

            fn schema() -> ::serde_json::Value {
                $schema
            }
        }
    };
}

/// Implements [`Field`] for JSON strings. A row has the type, the parser, the error message and the schema.
macro_rules! texts {
    ($($type:ty: $read:expr, $form:expr, {$($schema:tt)*};)+) => {$(
        impl Field for $type {
            fn read(value: &Value) -> Result<Self, String> {
                value.as_str().and_then($read).ok_or_else(|| String::from($form))
            }

            fn schema() -> Value {
                json!({"type": "string", $($schema)*})
            }
        }
    )+};
}

texts! {
    AgentName: Self::parse, Self::FORM, {
        "minLength": 1,
        "maxLength": Self::MAX,
        "pattern": VISIBLE_TEXT_PATTERN,
    };
    AgentStatus: Self::from_name, Self::allowed_names_message(), {"pattern": one_of_message(Self::ALL.iter().map(|status| status.name()))};
    StartingLimits: Self::from_name, Self::allowed_names_message(), {"pattern": one_of_message(Self::ALL.iter().map(|limits| limits.name()))};
    OperatorReason: Self::parse, Self::FORM, {
        "minLength": 1,
        "maxLength": Self::MAX,
        "pattern": VISIBLE_TEXT_PATTERN,
    };
    LabelFilter: Self::parse, Self::FORM, {"pattern": LABEL_FILTER, "example": "team=search"};
    LabelKey: Self::parse, Self::FORM, {"pattern": LABEL_KEY};
    UserId: Self::parse, "must be 64 hexadecimal digits in lower case", {"pattern": "^[0-9a-f]{64}$"};
    ApprovalId: Self::parse, "must be a UUID", {"format": "uuid"};
    Category: Self::from_name, Self::allowed_names_message(), {
        "pattern": one_of_message(Self::ALL.iter().map(|category| category.name())),
        "example": "data",
    };
    OperationSlug: Self::parse, Self::FORM, {"maxLength": 128, "pattern": "^[a-z0-9_-]+(\\.[a-z0-9_-]+)+$"};
    OperationUuid: Self::parse, "must be a UUID", {"format": "uuid"};
    RuleId: Self::parse, "must be a UUID", {"format": "uuid"};
    Permission: Self::from_name, Self::allowed_names_message(), {"pattern": one_of_message(Self::ALL.iter().map(|may| may.name()))};
    ServiceSlug: Self::parse, Self::FORM, {"pattern": "^[a-z0-9_-]{1,128}$"};
    Target: parse_target, "must be an http or https URL with a host name", {
        "format": "uri",
        "pattern": WEB,
        "maxLength": MAX_URL_BYTES,
    };
    KeyId: Self::parse, "must be the id of an agent key", {"pattern": "^[0-9a-f]{16}$", "example": "0f1e2d3c4b5a6978"};
    LimitAction: Self::from_name, Self::allowed_names_message(), {"pattern": "^(block|ask)$", "example": "ask"};
    SchedulePeriod: Self::parse, "must be days and two different times, such as `monday-friday 09:00-17:00` or `monday,sunday 22:00-02:00`", {
        "pattern": schedule_period_pattern(),
        "maxLength": 80,
    };
    Timestamp: Self::parse, "must be an instant such as `2026-12-31T23:59:59Z`", {
        "format": "date-time",
        "example": "2026-12-31T23:59:59Z",
    };
    TemplateName: Self::parse, Self::FORM, {"pattern": "^[a-z0-9][a-z0-9_-]{0,49}$", "example": "research"};
    Overrides: Self::from_name, Self::allowed_names_message(), {"pattern": one_of_message(Self::ALL.iter().map(|overrides| overrides.name()))};
    TrustStatus: Self::from_name, Self::allowed_names_message(), {"pattern": one_of_message(Self::ALL.iter().map(|status| status.name()))};
    ZoneName: Self::parse, "must be the name of an IANA time zone, such as `Europe/Berlin`", {
        "pattern": "^[A-Za-z0-9+_-]+(/[A-Za-z0-9+_-]+)*$",
        "maxLength": 64,
        "example": "Europe/Berlin",
    };
    TxHash: Self::parse, "must be `0x` and sixty-four hexadecimal digits", {"pattern": "^0x[0-9a-fA-F]{64}$"};
}

fn schedule_period_pattern() -> String {
    let day = "(mon|tues|wednes|thurs|fri|satur|sun)day";
    let (days, time) = (format!("{day}(-{day})?"), "(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)");
    format!("^{days}(,{days})* {time}-{time}$")
}

fn one_of_message<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("^({})$", names.collect::<Vec<_>>().join("|"))
}

fn is_within_max_url_bytes(text: &str, url: &Url) -> bool {
    text.len().max(url.as_str().len()) <= MAX_URL_BYTES
}

fn parse_target(text: &str) -> Option<Target> {
    let target = Target::parse(text).ok()?;
    is_within_max_url_bytes(text, target.url()).then_some(target)
}

field! {
    /// An HTTP method, in upper case.
    pub struct HttpMethod(String):
    |value| {
        let is_method =
            |text: &&str| (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphabetic());
        let method = value.as_str().filter(is_method).map(str::to_ascii_uppercase);
        method.ok_or_else(|| "must be an HTTP method".to_owned())
    },
    json!({"type": "string", "pattern": "^[A-Za-z]{1,16}$", "example": "GET"})
}

field! {
    /// The http or https URL of a provider call.
    pub struct CalledUrl(Url):
    |value| {
        let url = value.as_str().and_then(|text| parse_web_url(text).filter(|url| is_within_max_url_bytes(text, url)));
        url.ok_or_else(|| format!("must be an http or https URL of at most {MAX_URL_BYTES} bytes once it is encoded"))
    },
    json!({
        "type": "string",
        "format": "uri",
        "pattern": WEB,
        "maxLength": MAX_URL_BYTES,
        "example": "http://127.0.0.1:4020/weather",
    })
}

/// A text of 1 to `MAX` code points without control characters. JSON Schema counts the same (Validation §6.3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<const MAX: usize>(pub String);

impl<const MAX: usize> Field for Text<MAX> {
    fn read(value: &Value) -> Result<Self, String> {
        match value.as_str() {
            Some(text) if (1..=MAX).contains(&text.chars().count()) && !text.chars().any(char::is_control) => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(format!(
                "must be a string of 1 to {MAX} characters without control characters"
            )),
        }
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": MAX, "pattern": PRINTABLE})
    }
}

/// A text of 1 to `MAX` characters that users read. It has a visible character, and no control characters or direction
/// marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownText<const MAX: usize>(pub String);

impl<const MAX: usize> Field for ShownText<MAX> {
    fn read(value: &Value) -> Result<Self, String> {
        let text = <Text<MAX> as Field>::read(value).ok().map(|text| text.0);
        text.filter(|text| is_displayable(text)).map(Self).ok_or_else(|| {
            format!("must be a string of 1 to {MAX} characters, some of them visible, without control characters and direction marks")
        })
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": MAX, "pattern": VISIBLE_TEXT_PATTERN})
    }
}

impl Field for bool {
    fn read(value: &Value) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| "must be true or false".to_owned())
    }

    fn schema() -> Value {
        json!({"type": "boolean"})
    }
}

/// An amount in micro-units.
impl Field for Amount {
    fn read(value: &Value) -> Result<Self, String> {
        parse_amount_at_least(0, value)
    }

    fn schema() -> Value {
        amount_schema(0)
    }
}

field! {
    /// An amount of at least one micro-unit.
    pub struct Price(Amount): |value| parse_amount_at_least(1, value), amount_schema(1)
}

fn parse_amount_at_least(min_units: u64, value: &Value) -> Result<Amount, String> {
    let units = parse_whole_number(value).filter(|units| *units >= min_units);
    units.and_then(Amount::from_units).ok_or_else(|| {
        format!(
            "must be a whole number of micro-units from {min_units} to {}",
            Amount::MAX
        )
    })
}

fn amount_schema(min_units: u64) -> Value {
    json!({"type": "integer", "format": "int64", "minimum": min_units, "maximum": Amount::MAX.units()})
}

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number<const MIN: u32, const MAX: u32>(pub u32);

impl<const MIN: u32, const MAX: u32> Field for Number<MIN, MAX> {
    fn read(value: &Value) -> Result<Self, String> {
        let number = parse_whole_number(value).and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| (MIN..=MAX).contains(number));
        number
            .map(Self)
            .ok_or_else(|| format!("must be a whole number from {MIN} to {MAX}"))
    }

    fn schema() -> Value {
        json!({"type": "integer", "format": "int32", "minimum": MIN, "maximum": MAX})
    }
}

/// A duration of a rule's window, interval or period: `MIN` seconds to [`MAX_BUDGET_WINDOW`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSeconds<const MIN: u64>(pub Duration);

impl<const MIN: u64> Field for RuleSeconds<MIN> {
    fn read(value: &Value) -> Result<Self, String> {
        const MAX: u64 = MAX_BUDGET_WINDOW.secs();
        let duration = parse_seconds(value).ok_or("must be a whole number of seconds")?;
        let is_in_range = (MIN..=MAX).contains(&duration.secs());
        is_in_range
            .then_some(Self(duration))
            .ok_or_else(|| format!("must be a whole number of seconds from {MIN} to {MAX}"))
    }

    fn schema() -> Value {
        json!({"type": "integer", "format": "int32", "minimum": MIN, "maximum": MAX_BUDGET_WINDOW.secs()})
    }
}

/// Parses a whole number of seconds.
pub fn parse_seconds(value: &Value) -> Option<Duration> {
    let seconds = u32::try_from(parse_whole_number(value)?).ok()?;
    Some(Duration::from_secs_u32(seconds))
}

/// The zero address is invalid, because nobody owns it. Mixed case must be a valid EIP-55 checksum.
impl Field for Address {
    fn read(value: &Value) -> Result<Self, String> {
        let text = value.as_str().ok_or("must be a text")?;
        parse_address(text).map_err(|error| error.to_string())
    }

    fn schema() -> Value {
        json!({"type": "string", "format": "evm-address", "pattern": "^0x(?!0{40}$)[0-9a-fA-F]{40}$"})
    }
}

impl Field for SourceNetwork {
    fn read(value: &Value) -> Result<Self, String> {
        let text = value.as_str().ok_or("must be a text")?;
        Self::parse(text)
    }

    fn schema() -> Value {
        json!({"type": "string", "format": "cidr", "pattern": "^[0-9A-Fa-f.:]+/[0-9]{1,3}$"})
    }
}

impl Field for DomainPattern {
    fn read(value: &Value) -> Result<Self, String> {
        let text = value.as_str().ok_or("must be a text")?;
        Self::parse(text).map_err(str::to_owned)
    }

    fn schema() -> Value {
        json!({"type": "string", "format": "host-pattern", "minLength": 1})
    }
}

/// Implements [`Listed`]. A row has the type, the schema's name and the additional schema keywords.
macro_rules! listed {
    ($($type:ty as $name:literal: {$($entry:tt)*};)+) => {$(
        impl Listed for $type {
            const NAME: &'static str = $name;

            fn item_schema() -> Value {
                json!({$($entry)*})
            }
        }
    )+};
}

listed! {
    KeyId as "KeyId": {"description": "The ID of an agent key.", "example": "0f1e2d3c4b5a6978"};
    SchedulePeriod as "SchedulePeriod": {
        "description": "The days on which a period starts, as names and ranges with commas between them, and the times of \
            the start and the end. An end before the start is on the next day.",
        "example": "monday-friday 09:00-17:00",
    };
    RuleId as "RuleReference": {"description": "The ID of a rule of the agent."};
    Address as "NamedWallet": {
        "description": "`0x` and 40 hexadecimal digits. In mixed case, it must have a valid EIP-55 checksum.",
    };
    Category as "NamedCategory": {"description": "A category of the catalog, such as `finance`."};
    LabelKey as "NamedLabel": {"description": "The key of a label.", "example": "team"};
    DomainPattern as "HostPattern": {
        "description": "A host name, a glob such as `*.example.com`, an IP address, or `*`.",
        "example": "*.example.com",
    };
    Permission as "KeyPermission": {"description": "`read`: lists and policies; `pay`: preflights and payments."};
    SourceNetwork as "SourceNetwork": {
        "description": "An IPv4 or IPv6 CIDR block without host bits.",
        "example": "203.0.113.0/24",
    };
    OperationSlug as "NamedOperation": {
        "description": "The slug of an operation of the service.",
        "example": "web.search",
    };
    ServiceSlug as "NamedService": {"description": "The slug of a service in the catalog.", "example": "lab-search"};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_lengths_are_counted_in_characters() {
        for (text, fits) in [
            ("\u{1f4a1}".repeat(8), true),
            ("\u{1f4a1}".repeat(9), false),
            ("e\u{301}".repeat(4), true),
            ("e\u{301}".repeat(5), false),
            (String::new(), false),
            ("a\u{85}".to_owned(), false),
        ] {
            assert_eq!(<Text<8> as Field>::read(&json!(text)).is_ok(), fits, "{text:?}");
        }
    }

    #[test]
    fn numbers_in_a_range_accept_any_notation_of_an_integer() {
        let rows = [
            ("3", Some(3)),
            ("3.0", Some(3)),
            ("0.0", Some(0)),
            ("3.5", None),
            ("11", None),
            ("-1", None),
            ("\"3\"", None),
        ];
        for (text, expected) in rows {
            let value = serde_json::from_str(text).unwrap();
            let number = <Number<0, 10> as Field>::read(&value);
            assert_eq!(number.ok().map(|number| number.0), expected, "{text}");
        }
    }

    #[test]
    fn amounts_accept_any_notation_of_an_integer() {
        let units = |text: &str| {
            let value = serde_json::from_str(text).unwrap();
            <Amount as Field>::read(&value).ok().map(Amount::units)
        };
        let rows = [
            ("5", Some(5)),
            ("5.0", Some(5)),
            ("5e0", Some(5)),
            ("1.5e1", Some(15)),
            ("1e3", Some(1_000)),
            ("0.0", Some(0)),
            ("-0", Some(0)),
            ("9007199254740991", Some(9_007_199_254_740_991)),
            ("9007199254740991.0", Some(9_007_199_254_740_991)),
            ("9007199254740992.0", None),
            ("1e16", None),
            ("1e300", None),
            ("0.5", None),
            ("4.999999", None),
            ("-1.0", None),
            ("\"5\"", None),
            ("true", None),
        ];
        for (text, expected) in rows {
            assert_eq!(units(text), expected, "{text}");
        }
        assert!(<Price as Field>::read(&json!(0.0)).is_err());
        assert_eq!(parse_seconds(&json!(60.0)), Some(Duration::from_secs_u32(60)));
        assert_eq!(parse_seconds(&json!(60.5)), None);
    }
}
