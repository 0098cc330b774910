//! The parser and the expansion of the macros [`views`](crate::views) and [`settings`](crate::settings).

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Error, Expr, Field, FnArg, Generics, Ident, ItemStruct, Result, Stmt, Token, Visibility, braced,
    parenthesized, parse_quote,
};

pub(crate) struct Views(Vec<View>);

struct View {
    schema: Option<Ident>,
    item: ItemStruct,
    constructor: Constructor,
    /// The `let` statements that the constructor runs before it sets the fields.
    statements: Vec<Stmt>,
    values: Vec<Expr>,
}

struct Constructor {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    name: Ident,
    arguments: Punctuated<FnArg, Token![,]>,
}

impl Parse for Views {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut views = Vec::new();
        while !input.is_empty() {
            views.push(input.parse()?);
        }
        Ok(Self(views))
    }
}

impl Parse for View {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (attributes, visibility) = (input.call(Attribute::parse_outer)?, input.parse::<Visibility>()?);
        input.parse::<Token![struct]>()?;
        let (name, generics) = (input.parse::<Ident>()?, input.parse::<Generics>()?);
        let schema = match input.parse::<Option<Token![as]>>()? {
            Some(_) => Some(input.parse()?),
            None => None,
        };
        let content;
        braced!(content in input);
        let constructor = content.parse()?;
        let mut statements = Vec::new();
        while content.peek(Token![let]) {
            statements.push(content.parse()?);
        }
        let mut fields = content.parse_terminated(Field::parse_named, Token![,])?;
        let values = fields
            .iter_mut()
            .map(|field| match (field.default.take(), &field.ident) {
                (Some((_, value)), _) => value,
                (None, name) => parse_quote!(#name),
            })
            .collect();
        Ok(Self {
            schema,
            item: parse_quote!(#(#attributes)* #visibility struct #name #generics { #fields }),
            constructor,
            statements,
            values,
        })
    }
}

impl Parse for Constructor {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (attributes, visibility) = (input.call(Attribute::parse_outer)?, input.parse()?);
        input.parse::<Token![fn]>()?;
        let name = input.parse()?;
        let arguments;
        parenthesized!(arguments in input);
        let arguments = Punctuated::parse_terminated(&arguments)?;
        input.parse::<Token![;]>()?;
        Ok(Self {
            attributes,
            visibility,
            name,
            arguments,
        })
    }
}

impl Views {
    /// Returns the structs with constructors. `describe` expands a struct with the schema name after `as`.
    pub(crate) fn expand(self, describe: fn(Option<Ident>, ItemStruct) -> TokenStream) -> TokenStream {
        self.0.into_iter().map(|view| view.expand(describe)).collect()
    }
}

impl View {
    fn expand(self, describe: fn(Option<Ident>, ItemStruct) -> TokenStream) -> TokenStream {
        let (view, statements, values) = (&self.item.ident, &self.statements, &self.values);
        let names = self.item.fields.iter().filter_map(|field| field.ident.as_ref());
        let (implementation, types, conditions) = self.item.generics.split_for_impl();
        let body = quote!({ #(#statements)* Self { #(#names: #values),* } });
        let Constructor {
            attributes,
            visibility,
            name,
            arguments,
        } = &self.constructor;
        let constructor = if name != "from" {
            quote!(impl #implementation #view #types #conditions {
                #(#attributes)* #visibility fn #name(#arguments) -> Self #body
            })
        } else if let Some(FnArg::Typed(argument)) = arguments.first() {
            let source = &argument.ty;
            quote!(impl #implementation From<#source> for #view #types #conditions {
                fn from(#arguments) -> Self #body
            })
        } else {
            Error::new_spanned(name, "needs an argument").into_compile_error()
        };
        let item = describe(self.schema, self.item);
        quote!(#item #constructor)
    }
}
