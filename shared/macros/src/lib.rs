//! Macros that describe the HTTP API: [`macro@view`] and [`views`] for JSON objects in responses, and
//! [`macro@endpoint`] for handlers.

mod endpoint;
mod views;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::{
    Attribute, Field, GenericArgument, Ident, ItemFn, ItemStruct, PathArguments, Type, parse_macro_input, parse_quote,
};

/// The types that are UUIDs in JSON.
const UUIDS: [&str; 13] = [
    "AgentId",
    "ApprovalId",
    "AuditId",
    "BacktestId",
    "DeliveryId",
    "EventId",
    "OperationUuid",
    "RuleId",
    "ServiceId",
    "SettlementId",
    "TransactionId",
    "WebhookId",
    "Uuid",
];

/// Derives `Serialize` and `ToSchema` for a JSON object in a response.
///
/// The schema's name is the argument of the attribute. Without an argument, the schema's name is the name of the struct
/// without `View`. The attributes `serde` and `schema` can replace what the fields' types determine:
///
/// - A field of type `Option` is required and may be null. With the attribute `#[omit_none]` on the field or
///   the struct, a field without a value is absent instead.
/// - An id is a string with the format `uuid`, and a `Timestamp` is a string with the format `date-time`.
///
/// A struct with a field `count` gets the constructor `from_items`, which counts the items of the first `Vec`.
#[proc_macro_attribute]
pub fn view(name: TokenStream, item: TokenStream) -> TokenStream {
    let name = parse_macro_input!(name as Option<Ident>);
    describe_view(name, parse_macro_input!(item as ItemStruct)).into()
}

/// Declares JSON objects like [`macro@view`], each with a function that creates the object. Each field is followed by
/// its value:
///
/// ```ignore
/// views! {
///     /// How an operation is paid.
///     pub(crate) struct PaymentView<'a> as OperationPayment {
///         fn from(payment: &'a CatalogPayment);
///         let network = payment.network;
///
///         /// The amount per call, in micro-units.
///         amount_units: u64 = payment.amount.units(),
///         network: &'static str = network.name(),
///     }
/// }
/// ```
///
/// The name of the schema follows `as`. A function with the name `from` implements `From`. A field without a value is
/// the variable or argument of the same name.
#[proc_macro]
pub fn views(item: TokenStream) -> TokenStream {
    let views = parse_macro_input!(item as views::Views);
    views.expand(describe_view).into()
}

/// Declares structs with a function that reads the struct from the environment, in the syntax of [`views`].
#[proc_macro]
pub fn settings(item: TokenStream) -> TokenStream {
    let settings = parse_macro_input!(item as views::Views);
    settings.expand(|_, item| quote!(#item)).into()
}

fn describe_view(name: Option<Ident>, mut item: ItemStruct) -> Tokens {
    let omits_none = remove_attribute(&mut item.attrs, "omit_none");
    item.fields
        .iter_mut()
        .for_each(|field| add_field_attributes(field, omits_none));
    let own_name = item.ident.to_string();
    let name = name.unwrap_or_else(|| format_ident!("{}", own_name.strip_suffix("View").unwrap_or(&own_name)));
    let constructor = list_constructor(&item);
    quote! {
        #[derive(::serde::Serialize, ::utoipa::ToSchema)]
        #[schema(as = #name)]
        #item
        #constructor
    }
}

/// Returns the constructor `from_items` of a struct with a field `count`. The arguments are all other fields.
fn list_constructor(list: &ItemStruct) -> Option<Tokens> {
    let names: Vec<&Ident> = list.fields.iter().filter_map(|field| field.ident.as_ref()).collect();
    names.iter().find(|name| **name == "count")?;
    let items = list
        .fields
        .iter()
        .find(|field| type_argument(&field.ty, "Vec").is_some())?;
    let (items, item_type) = (items.ident.as_ref()?, type_argument(&items.ty, "Vec")?);
    let arguments = list
        .fields
        .iter()
        .filter(|field| field.ident.as_ref().is_some_and(|name| name != "count"));
    let arguments = arguments.map(|field| {
        let (name, field_type) = (&field.ident, &field.ty);
        if name.as_ref() == Some(items) {
            quote!(#name: impl ::core::iter::IntoIterator<Item = #item_type>)
        } else {
            quote!(#name: #field_type)
        }
    });
    let (visibility, name) = (&list.vis, &list.ident);
    let (implementation, types, conditions) = list.generics.split_for_impl();
    Some(quote! {
        impl #implementation #name #types #conditions {
            /// Creates a list, and counts the items.
            #visibility fn from_items(#(#arguments),*) -> Self {
                let #items: ::std::vec::Vec<#item_type> = #items.into_iter().collect();
                let count = #items.len();
                Self { #(#names),* }
            }
        }
    })
}

/// Describes a handler in the OpenAPI document: `#[endpoint(get "/webhooks", returns = "Your webhooks.")]`.
///
/// Takes the arguments of `utoipa::path`, and in place of `responses(…)`:
///
/// - `returns`: the description of the successful response
/// - `status` and `body`, if the status is not 200, or the body is not `T` of the returned `Json<T>`
/// - `etag`: the noun for the record whose version the header `ETag` contains
/// - `content_type`, `headers(…)` and `links(…)` of the response, as in `utoipa::path`
/// - `cached()`: the response is 304 for a current `If-None-Match`
/// - `errors(…)`: the names of the errors in `purser_api::errors` that no argument of the handler describes
#[proc_macro_attribute]
pub fn endpoint(arguments: TokenStream, handler: TokenStream) -> TokenStream {
    let arguments = parse_macro_input!(arguments as endpoint::Arguments);
    let handler = parse_macro_input!(handler as ItemFn);
    match arguments.describe(&handler) {
        Ok(description) => quote!(#description #handler).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

fn remove_attribute(attributes: &mut Vec<Attribute>, name: &str) -> bool {
    let count = attributes.len();
    attributes.retain(|attribute| !attribute.path().is_ident(name));
    attributes.len() < count
}

fn add_field_attributes(field: &mut Field, omits_none: bool) {
    let is_nullable =
        type_argument(&field.ty, "Option").is_some() && !has_argument(&field.attrs, "skip_serializing_if");
    if remove_attribute(&mut field.attrs, "omit_none") || omits_none && is_nullable {
        field
            .attrs
            .push(parse_quote!(#[serde(skip_serializing_if = "Option::is_none")]));
        field.attrs.push(parse_quote!(#[schema(nullable = false)]));
    } else if is_nullable && !has_argument(&field.attrs, "required") {
        field.attrs.push(parse_quote!(#[schema(required)]));
    }
    if let Some(schema) = scalar_schema(&field.ty)
        && !has_argument(&field.attrs, "value_type")
    {
        field.attrs.push(parse_quote!(#[schema(#schema)]));
    }
}

fn has_argument(attributes: &[Attribute], name: &str) -> bool {
    let is_name = |token: proc_macro2::TokenTree| token.to_string() == name;
    let mut lists = attributes
        .iter()
        .filter_map(|attribute| attribute.meta.require_list().ok());
    lists.any(|list| list.tokens.clone().into_iter().any(is_name))
}

/// Returns the schema of an id or a time, or of an optional or listed id or time.
fn scalar_schema(field_type: &Type) -> Option<Tokens> {
    let value_type = json_type(field_type)?;
    let is_time = !value_type.to_string().contains("Uuid");
    let format = is_time.then(|| quote!(, format = DateTime));
    Some(quote!(value_type = #value_type #format))
}

fn json_type(field_type: &Type) -> Option<Tokens> {
    for wrapper in ["Option", "Vec"] {
        if let Some(inner) = type_argument(field_type, wrapper) {
            let (wrapper, inner) = (format_ident!("{wrapper}"), json_type(inner)?);
            return Some(quote!(#wrapper<#inner>));
        }
    }
    let Type::Path(path) = field_type else { return None };
    let name = path.path.segments.last()?.ident.to_string();
    if name == "Timestamp" {
        return Some(quote!(String));
    }
    UUIDS.contains(&name.as_str()).then(|| quote!(uuid::Uuid))
}

/// Returns `T` of a type `wrapper<T>`.
fn type_argument<'a>(field_type: &'a Type, wrapper: &str) -> Option<&'a Type> {
    let Type::Path(path) = field_type else { return None };
    let segment = path.path.segments.last().filter(|segment| segment.ident == wrapper)?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
        return None;
    };
    match arguments.args.first()? {
        GenericArgument::Type(argument) => Some(argument),
        _ => None,
    }
}
