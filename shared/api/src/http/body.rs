//! Parses request bodies that are declared with [`body!`](crate::body), which generates the parser, the error messages
//! and the OpenAPI schema.
//!
//! A body is always parsed completely, so that the response lists all validation errors. `null` counts as absent.
//!
//! The crate `deserr` does not fit, because it returns no value after an error, distinguishes `null` from an absent
//! field, and generates no schema.

use purser_domain::{Error, ErrorKind, Result, ValidationError, parse_json, parse_json_with_raw_field};
use serde_json::{Map, Value, json, value::RawValue};
use std::collections::BTreeMap;
use std::fmt;
use utoipa::openapi::{RefOr, Schema};

/// Parses a body as JSON, or returns 400 `invalid_request`. Ignores `Content-Type`, because the API accepts only JSON
/// (`docs/spec.md` §1).
pub fn parse_json_body(bytes: &[u8]) -> Result<Value> {
    parse_json(bytes).map_err(|error| Error::invalid(vec![error]))
}

/// Parses a body like [`parse_json_body`]. Also returns the unparsed text of the field `document`, so that a response
/// can repeat it unchanged.
pub fn parse_json_body_with_raw_field<'a>(bytes: &'a [u8], document: &str) -> Result<(Value, Option<&'a RawValue>)> {
    parse_json_with_raw_field(bytes, document).map_err(|error| Error::invalid(vec![error]))
}

/// The position of a value in a body. `Display` writes a JSON Pointer (RFC 6901).
#[derive(Clone, Copy, Debug)]
pub enum BodyPath<'a> {
    /// The whole body. The JSON Pointer is the empty string.
    Body,
    /// A field: the position of the object, and the name of the field.
    Member(&'a BodyPath<'a>, &'a str),
    /// An element of a list: the position of the list, and the index.
    Entry(&'a BodyPath<'a>, usize),
}

impl fmt::Display for BodyPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body => Ok(()),
            Self::Member(of, name) => write!(f, "{of}/{}", name.replace('~', "~0").replace('/', "~1")),
            Self::Entry(of, index) => write!(f, "{of}/{index}"),
        }
    }
}

/// Collects the validation errors of a request body.
#[derive(Debug, Default)]
pub struct ValidationErrors {
    found: Vec<ValidationError>,
    /// The first required field that is missing.
    missing: Option<&'static str>,
}

impl ValidationErrors {
    /// Adds a validation error.
    pub fn add_at(&mut self, path: BodyPath<'_>, message: impl Into<String>) {
        self.found.push(ValidationError::at_path(path.to_string(), message));
    }

    /// Adds validation errors that other code found.
    pub fn extend(&mut self, errors: impl IntoIterator<Item = ValidationError>) {
        self.found.extend(errors);
    }

    /// Returns whether there is a validation error at this JSON Pointer or below it.
    pub fn has_error_at(&self, path: &str) -> bool {
        self.found.iter().any(|error| error.path.starts_with(path))
    }

    /// Returns the body, or a 400 with all validation errors, sorted by path. The slug is `<field>_required` if a
    /// required field is missing, and else `invalid_request`.
    pub fn finish<T>(mut self, body: Option<T>) -> Result<T> {
        self.found.sort();
        match (body, self.missing) {
            (Some(body), None) if self.found.is_empty() => Ok(body),
            (_, Some(field)) => Err(ErrorKind::FieldRequired {
                field,
                problems: self.found,
            }
            .into()),
            (_, None) => {
                // Every failed parse adds a validation error, so `found` is not empty.
                Err(Error::invalid(self.found))
            }
        }
    }
}

/// A type that can occur in a body: a [`Field`](crate::Field), a list, an object ([`body!`](crate::body)) or an
/// [`Option`].
pub trait Member: Sized {
    /// Whether a body without this field is rejected.
    const REQUIRED: bool = true;
    /// The names of the object's fields. Empty for types that are not objects.
    const NAMES: &'static [&'static str] = &[];

    /// Parses a value that is not `null`. For an invalid value, adds a validation error and returns `None`.
    fn read(value: &Value, path: BodyPath<'_>, errors: &mut ValidationErrors) -> Option<Self>;

    /// Returns the value for a field that is absent or `null`.
    fn for_missing_field(_is_null: bool, _path: BodyPath<'_>, _errors: &mut ValidationErrors) -> Option<Self> {
        None
    }

    /// Returns the JSON schema, and adds named schemas to `schemas`.
    fn describe(schemas: &mut Schemas) -> Value;

    /// Parses a request body. The error lists all validation errors.
    fn parse(body: &Value) -> Result<Self> {
        let mut errors = ValidationErrors::default();
        let read = Self::read(body, BodyPath::Body, &mut errors);
        errors.finish(read)
    }
}

/// `None` for an absent, `null` or invalid field. An invalid field also adds a validation error.
impl<T: Member> Member for Option<T> {
    const REQUIRED: bool = false;

    fn read(value: &Value, path: BodyPath<'_>, errors: &mut ValidationErrors) -> Option<Self> {
        Some(T::read(value, path, errors))
    }

    fn for_missing_field(_: bool, _: BodyPath<'_>, _: &mut ValidationErrors) -> Option<Self> {
        Some(None)
    }

    fn describe(schemas: &mut Schemas) -> Value {
        let mut schema = T::describe(schemas);
        if schema.get("$ref").is_some() {
            return json!({"oneOf": [schema, {"type": "null"}]});
        }
        if let Some(kind) = schema.get_mut("type") {
            *kind = json!([kind.take(), "null"]);
        }
        schema
    }
}

/// A field for which absent and `null` have different meanings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nullable<T> {
    /// The field is absent or invalid. An invalid value also adds a validation error.
    Absent,
    /// The field is `null`.
    Null,
    /// The field has a valid value.
    Value(T),
}

impl<T: Member> Member for Nullable<T> {
    const REQUIRED: bool = false;

    fn read(value: &Value, path: BodyPath<'_>, errors: &mut ValidationErrors) -> Option<Self> {
        Some(T::read(value, path, errors).map_or(Self::Absent, Self::Value))
    }

    fn for_missing_field(is_null: bool, _: BodyPath<'_>, _: &mut ValidationErrors) -> Option<Self> {
        Some(if is_null { Self::Null } else { Self::Absent })
    }

    fn describe(schemas: &mut Schemas) -> Value {
        Option::<T>::describe(schemas)
    }
}

/// Returns the object's fields. Adds validation errors for missing fields and, unless `others` are allowed, for unknown
/// fields. [`body!`](crate::body) calls this function.
pub fn object_fields<'a>(
    value: &'a Value,
    path: BodyPath<'_>,
    known_fields: &[(&'static str, bool)],
    may_have_others: bool,
    errors: &mut ValidationErrors,
) -> Option<&'a Map<String, Value>> {
    let Some(fields) = value.as_object() else {
        errors.add_at(path, "must be an object");
        return None;
    };
    for (name, required) in known_fields {
        // The first missing field in the documented order determines the error slug.
        if *required && fields.get(*name).is_none_or(Value::is_null) {
            errors.add_at(BodyPath::Member(&path, name), "is required");
            errors.missing.get_or_insert(name);
        }
    }
    let unknown = fields
        .keys()
        .filter(|key| known_fields.iter().all(|(name, _)| name != key));
    for name in unknown.filter(|_| !may_have_others) {
        errors.add_at(BodyPath::Member(&path, name), "is not a field of this request");
    }
    Some(fields)
}

/// Finds the object's variant by the tag field, without which the other fields can't be parsed. [`body!`](crate::body)
/// calls this function.
pub fn parse_variant_tag<'a>(
    value: &'a Value,
    name: &'static str,
    values: &[&str],
    path: BodyPath<'_>,
    errors: &mut ValidationErrors,
) -> Option<&'a str> {
    let tag = object_fields(value, path, &[(name, true)], true, errors)?.get(name)?;
    let known = tag.as_str().filter(|tag| values.contains(tag));
    if known.is_none() && !tag.is_null() {
        let message = format!("must be one of: {}", values.join(", "));
        errors.add_at(BodyPath::Member(&path, name), message);
    }
    known
}

/// Parses one field of an object. [`body!`](crate::body) calls this function.
pub fn parse_field<T: Member>(
    fields: &Map<String, Value>,
    name: &str,
    path: BodyPath<'_>,
    errors: &mut ValidationErrors,
) -> Option<T> {
    let field_path = BodyPath::Member(&path, name);
    match fields.get(name) {
        Some(Value::Null) => T::for_missing_field(true, field_path, errors),
        None => T::for_missing_field(false, field_path, errors),
        Some(value) => T::read(value, field_path, errors),
    }
}

/// The named schemas of the OpenAPI document.
#[derive(Default)]
pub struct Schemas(BTreeMap<String, RefOr<Schema>>);

impl Schemas {
    /// Adds a schema, and returns a reference to it.
    pub fn add(&mut self, name: &str, schema: Value) -> Value {
        // An invalid schema is missing from the document, so the test of the committed document fails.
        let schema = serde_json::from_value(schema).unwrap_or_default();
        self.add_schema(name, schema)
    }

    /// Adds a schema that belongs to no [`Member`], and returns a reference to it.
    pub fn add_schema(&mut self, name: &str, schema: RefOr<Schema>) -> Value {
        self.0.insert(name.to_owned(), schema);
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    /// Returns the schema of `T`, and the schemas to which it refers.
    pub fn for_type<T: Member>(name: &str) -> (RefOr<Schema>, Vec<(String, RefOr<Schema>)>) {
        let mut schemas = Self::default();
        T::describe(&mut schemas);
        let own = schemas.0.remove(name).unwrap_or_default();
        (own, schemas.0.into_iter().collect())
    }
}

/// Adds a description and the JSON fields in `fields` to a schema. [`body!`](crate::body) calls this function.
pub fn with_description(mut schema: Value, lines: &[&str], fields: Value) -> Value {
    let target = match schema.pointer_mut("/oneOf/0") {
        Some(reference) => reference.as_object_mut(),
        None => schema.as_object_mut(),
    };
    if let (Some(target), Value::Object(more)) = (target, fields) {
        if !lines.is_empty() {
            target.insert("description".to_owned(), join_description_lines(lines));
        }
        target.extend(more);
    }
    schema
}

fn join_description_lines(lines: &[&str]) -> Value {
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    json!(lines.join("\n"))
}

/// Builds the schema of an enum. [`body!`](crate::body) calls this function.
pub fn enum_schema(descriptions: &[&str], variants: &[Value]) -> Value {
    json!({"oneOf": variants, "description": join_description_lines(descriptions)})
}

/// Builds the schema of an object. [`body!`](crate::body) calls this function.
pub fn object_schema(descriptions: &[&str], fields: Vec<(&str, bool, Value)>, may_have_others: bool) -> Value {
    let required = fields.iter().filter(|(_, required, _)| *required);
    let required: Vec<&str> = required.map(|(name, ..)| *name).collect();
    let required = json!(required);
    let properties: Value = fields
        .into_iter()
        .map(|(name, _, schema)| (name.to_owned(), schema))
        .collect();
    let closed = if may_have_others {
        json!({})
    } else {
        json!({"additionalProperties": false})
    };
    let schema = json!({"type": "object", "required": required, "properties": properties});
    with_description(schema, descriptions, closed)
}

/// Declares the type, the parser ([`Member`]) and the schema of a body.
///
/// - The doc comment of a field becomes the description in the schema.
/// - JSON after `=` is added to the schema of this field, for example `{"example": "spare"}`.
/// - The schema has the name of the type, or the name after `as`.
/// - With `and others`, the body may contain unknown fields.
/// - For an `enum`, the name after `by` is the field that contains the name of the variant.
///
/// ```
/// purser_api::body! {
///     /// How to rotate.
///     pub(crate) struct Rotate as "RotateBody" {
///         /// Whether the old key ends at once.
///         at_once: bool,
///         /// The name of the new key, for users.
///         name: Option<purser_api::Text<32>> = {"example": "spare"},
///     }
/// }
/// use purser_api::Member as _;
/// assert!(Rotate::parse(&serde_json::json!({"at_once": true})).is_ok());
/// ```
#[macro_export]
macro_rules! body {
    (
        $(#[doc = $about:literal])*
        $vis:vis struct $name:ident $(as $component:literal)? $(and $others:ident)? {
            $($(#[doc = $doc:literal])* $seen:vis $member:ident: $type:ty $(= {$($more:tt)*})?),* $(,)?
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis struct $name {
            $($(#[doc = $doc])* $seen $member: $type,)*
        }

        impl $crate::Member for $name {
            const NAMES: &'static [&'static str] = &[$(stringify!($member)),*];

            fn read(
                value: &::serde_json::Value,
                path: $crate::BodyPath<'_>,
                errors: &mut $crate::ValidationErrors,
            ) -> ::core::option::Option<Self> {
                let known: &[(&'static str, bool)] =
                    &[$((stringify!($member), <$type as $crate::Member>::REQUIRED)),*];
                let others: &[&str] = &[$(stringify!($others))?];
                let _members = $crate::body::object_fields(value, path, known, !others.is_empty(), errors)?;
                $(let $member = $crate::body::parse_field(_members, stringify!($member), path, errors);)*
                ::core::option::Option::Some(Self { $($member: $member?,)* })
            }

            fn describe(schemas: &mut $crate::Schemas) -> ::serde_json::Value {
                let others: &[&str] = &[$(stringify!($others))?];
                let members = $crate::body!(@describe schemas: $([$($doc)*] $member: $type {$($($more)*)?},)*);
                let schema = $crate::body::object_schema(&[$($about),*], members, !others.is_empty());
                schemas.add(&<Self as ::utoipa::ToSchema>::name(), schema)
            }
        }

        $crate::schema!($name $(as $component)?);
    };
    (
        $(#[doc = $about:literal])*
        $vis:vis enum $name:ident by $tag:ident {
            $(
                $(#[doc = $of:literal])*
                $variant:ident = $value:literal {
                    $($(#[doc = $doc:literal])* $member:ident: $type:ty $(= {$($more:tt)*})?),* $(,)?
                }
            )+
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[doc = $of])* $variant { $($(#[doc = $doc])* $member: $type),* },)+
        }

        impl $crate::Member for $name {
            fn read(
                value: &::serde_json::Value,
                path: $crate::BodyPath<'_>,
                errors: &mut $crate::ValidationErrors,
            ) -> ::core::option::Option<Self> {
                let values: &[&str] = &[$($value),+];
                match $crate::body::parse_variant_tag(value, stringify!($tag), values, path, errors)? {
                    $($value => {
                        let known: &[(&'static str, bool)] =
                            &[(stringify!($tag), true), $((stringify!($member), <$type as $crate::Member>::REQUIRED)),*];
                        let _members = $crate::body::object_fields(value, path, known, false, errors)?;
                        $(let $member = $crate::body::parse_field(_members, stringify!($member), path, errors);)*
                        ::core::option::Option::Some(Self::$variant { $($member: $member?),* })
                    })+
                    _ => ::core::option::Option::None,
                }
            }

            fn describe(schemas: &mut $crate::Schemas) -> ::serde_json::Value {
                let variants = [$({
                    let tag = ::serde_json::json!({"type": "string", "enum": [$value]});
                    let mut members =
                        $crate::body!(@describe schemas: $([$($doc)*] $member: $type {$($($more)*)?},)*);
                    members.push((stringify!($tag), true, tag));
                    $crate::body::object_schema(&[$($of),*], members, false)
                }),+];
                schemas.add(stringify!($name), $crate::body::enum_schema(&[$($about),*], &variants))
            }
        }

        $crate::schema!($name);
    };
    (@describe $schemas:ident: $([$($doc:literal)*] $member:ident: $type:ty {$($more:tt)*},)*) => {
        ::std::vec![$((
            stringify!($member),
            <$type as $crate::Member>::REQUIRED,
            $crate::body::with_description(
                <$type as $crate::Member>::describe($schemas),
                &[$($doc),*],
                ::serde_json::json!({$($more)*}),
            ),
        )),*]
    };
}

/// Adds the schema of a [`Member`] type to the OpenAPI document. [`body!`](crate::body) uses this macro.
#[macro_export]
macro_rules! schema {
    ($name:ident $(as $component:literal)?) => {
        impl ::utoipa::PartialSchema for $name {
            fn schema() -> ::utoipa::openapi::RefOr<::utoipa::openapi::Schema> {
                $crate::Schemas::for_type::<Self>(&<Self as ::utoipa::ToSchema>::name()).0
            }
        }

        impl ::utoipa::ToSchema for $name {
            fn name() -> ::std::borrow::Cow<'static, str> {
                let names: &[&'static str] = &[$($component,)? stringify!($name)];
                ::std::borrow::Cow::Borrowed(names.first().copied().unwrap_or_default())
            }

            fn schemas(
                schemas: &mut ::std::vec::Vec<(
                    ::std::string::String,
                    ::utoipa::openapi::RefOr<::utoipa::openapi::Schema>,
                )>,
            ) {
                schemas.extend($crate::Schemas::for_type::<Self>(&<Self as ::utoipa::ToSchema>::name()).1);
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Text;

    crate::body! {
        /// The called operation.
        struct Call {
            url: Text<8>,
            method: Option<Text<4>>,
        }
    }

    crate::body! {
        /// A thing,
        /// in two lines.
        pub(crate) struct Thing as "SomeThing" {
            /// The call.
            call: Call,
            key: Text<8> = {"example": "k"},
            again: Nullable<bool>,
            /// Another call.
            other: Option<Call>,
        }
    }

    crate::body! {
        /// Whatever.
        struct Open and others {
            key: Text<8>,
        }
    }

    /// Returns the error's slug, and the paths of all validation errors.
    fn refused<T: Member + fmt::Debug>(body: &Value) -> (String, Vec<String>) {
        let error = T::parse(body).unwrap_err();
        let (ErrorKind::FieldRequired { problems, .. } | ErrorKind::InvalidRequest(problems)) = error.kind() else {
            panic!("{error}");
        };
        let paths = problems.iter().map(|problem| problem.path.clone()).collect();
        (error.kind().slug(), paths)
    }

    /// The first missing field in the documented order determines the error slug.
    #[test]
    fn every_validation_error_has_a_json_pointer() {
        let rows = [
            (json!([]), "invalid_request", vec![""]),
            (
                json!({"key": "k", "call": 7, "a~b/c": 1}),
                "invalid_request",
                vec!["/a~0b~1c", "/call"],
            ),
            (
                json!({"key": "", "call": {"url": "u", "verb": 1}, "again": 1, "other": {"url": 1}}),
                "invalid_request",
                vec!["/again", "/call/verb", "/key", "/other/url"],
            ),
            // The fields of the whole body come first, in the documented order.
            (
                json!({"call": {"method": "", "url": null}, "z": 1}),
                "key_required",
                vec!["/call/method", "/call/url", "/key", "/z"],
            ),
            (json!({"key": null}), "call_required", vec!["/call", "/key"]),
            (json!({"key": 1, "call": {}}), "url_required", vec!["/call/url", "/key"]),
        ];
        for (body, slug, paths) in rows {
            let paths: Vec<String> = paths.into_iter().map(str::to_owned).collect();
            assert_eq!(refused::<Thing>(&body), (slug.to_owned(), paths), "{body}");
        }
        assert!(Open::parse(&json!({"key": "k", "x": 1})).is_ok());
    }

    #[test]
    fn nullable_fields_distinguish_absent_from_null() {
        let rows = [
            (json!({}), Nullable::Absent),
            (json!({"again": null}), Nullable::Null),
            (json!({"again": false}), Nullable::Value(false)),
        ];
        for (mut body, again) in rows {
            body["key"] = json!("k");
            body["call"] = json!({"url": "u", "method": null});
            let call = Call {
                url: Text("u".to_owned()),
                method: None,
            };
            let thing = Thing {
                call,
                key: Text("k".to_owned()),
                again,
                other: None,
            };
            assert_eq!(Thing::parse(&body).unwrap(), thing, "{body}");
        }
    }

    #[test]
    fn parsed_fields_match_the_generated_schema() {
        let (schema, others) = Schemas::for_type::<Thing>("SomeThing");
        let text = |most| json!({"type": "string", "minLength": 1, "maxLength": most, "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]*$"});
        let call = "#/components/schemas/Call";
        let expected = json!({
            "type": "object",
            "description": "A thing,\nin two lines.",
            "required": ["call", "key"],
            "properties": {
                "call": {"$ref": call, "description": "The call."},
                "key": with_description(text(8), &[], json!({"example": "k"})),
                "again": {"type": ["boolean", "null"]},
                "other": {"oneOf": [{"$ref": call, "description": "Another call."}, {"type": "null"}]},
            },
            "additionalProperties": false,
        });
        assert_eq!(serde_json::to_value(schema).unwrap(), expected);
        let names: Vec<&str> = others.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Call"]);
        let (open, _) = Schemas::for_type::<Open>("Open");
        assert!(
            serde_json::to_value(open)
                .unwrap()
                .get("additionalProperties")
                .is_none()
        );
    }
}
