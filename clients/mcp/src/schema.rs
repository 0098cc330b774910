//! JSON schemas that can't be derived from types.

/// Implements `JsonSchema` with an inlined schema instead of a reference.
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

/// A non-negative integer, without Rust's format names, which JSON Schema does not define.
pub(crate) struct Whole;

inline_schema!(
    Whole,
    "Whole",
    schemars::json_schema!({"type": "integer", "minimum": 0})
);
