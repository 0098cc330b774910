//! Schemas that types can't tell by themselves.

/// A schema that stands in its place, without a name of its own.
macro_rules! inline_schema {
    ($type:ty, $name:literal, $schema:expr $(, $($generic:tt)*)?) => {
        impl $(<$($generic)*>)? ::schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                $schema
            }
        }
    };
}
pub(crate) use inline_schema;

/// A whole number: JSON Schema has no formats for those of Rust.
pub(crate) struct Whole;

inline_schema!(
    Whole,
    "Whole",
    schemars::json_schema!({"type": "integer", "minimum": 0})
);
