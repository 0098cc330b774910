/// Implements [`Fields`](crate::codec::item::Fields) for structs, and for enums whose variant is in an attribute.
///
/// ```ignore
/// fields! {
///     Approval {
///         id: sk(ApprovalId::parse),    // from the sort key (`pk`: the partition key), which the row's `Key` writes
///         owner: "owner",               // always present
///         note: "note" optional,        // an `Option`: absent if it is `None`
///         labels: "labels" or_default,  // absent if it is the default value
///         action: "action" unless(Action::Block), // absent if it is this value
///         resolution: part,             // a struct or enum whose attributes are in the same item
///         raise: part_if("until"),      // an `Option` of such a part, present if this attribute is present
///         is_new: unstored(false),      // not stored, with this value after reading
///     }
///     enum Resolution by "st" {
///         "pending" => Pending {},
///         "approved" => Approved { at: "resolved", by: "by" },
///         "expired" => Expired(at: "resolved"),
///     }
/// }
/// ```
///
/// A row is written as `Draft::new(&key).with_fields(&approval)` and read as `Row::new(table, item).read()`.
macro_rules! fields {
    () => {};
    ($name:ident {
        $($field:ident: $kind:tt $(($($detail:tt)*))? $($presence:ident $(($default:expr))?)?),* $(,)?
    } $($rest:tt)*) => {
        impl $crate::codec::item::Fields for $name {
            fn write_to(&self, draft: $crate::codec::item::Draft) -> $crate::codec::item::Draft {
                $(let draft = fields!(@write draft, &self.$field, $kind $(($($detail)*))? $($presence $(($default))?)?);)*
                draft
            }
            fn read_from(item: &$crate::codec::item::Item) -> Result<Self, $crate::codec::item::Unreadable> {
                Ok(Self { $($field: fields!(@read item, $kind $(($($detail)*))? $($presence $(($default))?)?)),* })
            }
        }
        fields! { $($rest)* }
    };
    (enum $name:ident by $tag:literal { $($value:tt => $variant:ident
        $(($only:ident: $only_kind:tt $(($($only_detail:tt)*))? $($only_presence:ident)?))?
        $({ $($field:ident: $kind:tt $(($($detail:tt)*))? $($presence:ident $(($default:expr))?)?),* $(,)? })?
    ),* $(,)? } $($rest:tt)*) => {
        impl $crate::codec::item::Fields for $name {
            fn write_to(&self, draft: $crate::codec::item::Draft) -> $crate::codec::item::Draft {
                match self {$(
                    Self::$variant $(($only))? $({ $($field),* })? => {
                        let draft = draft.with_value($tag, $crate::codec::attribute::encode_text($value));
                        $(let draft = fields!(@write draft, $only, $only_kind $(($($only_detail)*))? $($only_presence)?);)?
                        $($(let draft = fields!(@write draft, $field, $kind $(($($detail)*))? $($presence $(($default))?)?);)*)?
                        draft
                    }
                )*}
            }
            fn read_from(item: &$crate::codec::item::Item) -> Result<Self, $crate::codec::item::Unreadable> {
                match $crate::codec::item::field::<String>(item, $tag)?.as_str() {
                    $($value => {
                        $(let $only = fields!(@read item, $only_kind $(($($only_detail)*))? $($only_presence)?);)?
                        $($(let $field = fields!(@read item, $kind $(($($detail)*))? $($presence $(($default))?)?);)*)?
                        Ok(Self::$variant $(($only))? $({ $($field),* })?)
                    })*
                    _ => Err($crate::codec::item::Unreadable($tag)),
                }
            }
        }
        fields! { $($rest)* }
    };

    (@write $draft:ident, $value:expr, $name:literal) => { $draft.with($name, $value) };
    (@write $draft:ident, $value:expr, $name:literal optional) => { $draft.with_optional($name, $value.as_ref()) };
    (@write $draft:ident, $value:expr, $name:literal or_default) => {
        $draft.with_unless_default($name, $value, &Default::default())
    };
    (@write $draft:ident, $value:expr, $name:literal unless($default:expr)) => {
        $draft.with_unless_default($name, $value, &$default)
    };
    (@write $draft:ident, $value:expr, part) => { $draft.with_fields($value) };
    (@write $draft:ident, $value:expr, part_if($name:literal)) => {
        match $value {
            Some(part) => $draft.with_fields(part),
            None => $draft,
        }
    };
    (@write $draft:ident, $value:expr, $key_or_unstored:ident($source:expr)) => { $draft };

    (@read $item:ident, $name:literal) => { $crate::codec::item::field($item, $name)? };
    (@read $item:ident, $name:literal optional) => { $crate::codec::item::optional_field($item, $name)? };
    (@read $item:ident, $name:literal or_default) => {
        $crate::codec::item::optional_field($item, $name)?.unwrap_or_default()
    };
    (@read $item:ident, $name:literal unless($default:expr)) => {
        $crate::codec::item::optional_field($item, $name)?.unwrap_or($default)
    };
    (@read $item:ident, part) => { $crate::codec::item::Fields::read_from($item)? };
    (@read $item:ident, part_if($name:literal)) => {
        if $item.contains_key($name) {
            Some($crate::codec::item::Fields::read_from($item)?)
        } else {
            None
        }
    };
    (@read $item:ident, pk($parse:expr)) => { $crate::codec::item::parse_key_attribute($item, "pk", $parse)? };
    (@read $item:ident, sk($parse:expr)) => { $crate::codec::item::parse_key_attribute($item, "sk", $parse)? };
    (@read $item:ident, unstored($value:expr)) => { $value };
}
pub(crate) use fields;

/// Implements [`Attribute`](crate::codec::attribute::Attribute), as a map, for types with
/// [`Fields`](crate::codec::item::Fields).
macro_rules! stored_as_map {
    ($($name:ty),* $(,)?) => {$(
        impl $crate::codec::attribute::Attribute for $name {
            fn write(&self) -> aws_sdk_dynamodb::types::AttributeValue {
                let map = $crate::codec::item::Draft::new_map().with_fields(self);
                aws_sdk_dynamodb::types::AttributeValue::M(map.into_item())
            }
            fn read(value: &aws_sdk_dynamodb::types::AttributeValue) -> Option<Self> {
                $crate::codec::item::Fields::read_from(value.as_m().ok()?).ok()
            }
        }
    )*};
}
pub(crate) use stored_as_map;
