//! The arguments of the attribute [`endpoint`](crate::endpoint), and the description of a handler in OpenAPI.

use crate::type_argument;
use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, ItemFn, LitInt, LitStr, Result, ReturnType, Token, Type, parenthesized};

#[derive(Default)]
pub(crate) struct Arguments {
    /// The method, the path, and other arguments for `utoipa::path`.
    others: Vec<TokenStream>,
    returns: Option<LitStr>,
    status: Option<LitInt>,
    body: Option<Type>,
    etag: Option<LitStr>,
    content_type: Option<LitStr>,
    is_cached: bool,
    /// The arguments `headers(…)` and `links(…)`, which describe the response.
    response_parts: Vec<TokenStream>,
    errors: Vec<Ident>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut arguments = Self::default();
        let (method, path): (Ident, LitStr) = (input.parse()?, input.parse()?);
        arguments.others.push(quote!(#method, path = #path));
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            arguments.parse_one(input)?;
        }
        Ok(arguments)
    }
}

impl Arguments {
    fn parse_one(&mut self, input: ParseStream<'_>) -> Result<()> {
        let name: Ident = input.parse()?;
        if input.parse::<Option<Token![=]>>()?.is_some() {
            match name.to_string().as_str() {
                "returns" => self.returns = Some(input.parse()?),
                "status" => self.status = Some(input.parse()?),
                "body" => self.body = Some(input.parse()?),
                "etag" => self.etag = Some(input.parse()?),
                "content_type" => self.content_type = Some(input.parse()?),
                _ => {
                    let value: syn::Expr = input.parse()?;
                    self.others.push(quote!(#name = #value));
                }
            }
        } else {
            let content;
            parenthesized!(content in input);
            match name.to_string().as_str() {
                "errors" => {
                    let errors = Punctuated::<Ident, Token![,]>::parse_terminated(&content)?;
                    self.errors.extend(errors);
                }
                "cached" => self.is_cached = true,
                "headers" | "links" => {
                    let content: TokenStream = content.parse()?;
                    self.response_parts.push(quote!(#name(#content)));
                }
                _ => {
                    let content: TokenStream = content.parse()?;
                    self.others.push(quote!(#name(#content)));
                }
            }
        }
        Ok(())
    }

    /// Returns the attribute `utoipa::path` for the handler.
    pub(crate) fn describe(self, handler: &ItemFn) -> Result<TokenStream> {
        let others = &self.others;
        let Some(returns) = &self.returns else {
            if let Some(error) = self.errors.first() {
                return Err(Error::new_spanned(
                    error,
                    "needs `returns`; without it, list errors in `responses`",
                ));
            }
            return Ok(quote!(#[::utoipa::path(#(#others),*)]));
        };
        let status = self
            .status
            .map_or_else(|| quote!(200), |status| status.to_token_stream());
        let missing = || Error::new_spanned(&handler.sig.output, "needs `body`, because no `Json<…>` is returned");
        let body = self
            .body
            .as_ref()
            .or_else(|| json_response_type(handler))
            .ok_or_else(missing)?;
        let parts = &self.response_parts;
        let version = self.etag.map(|noun| {
            let text = format!(
                "The {}'s version. Send it in `If-Match` with the next update.",
                noun.value()
            );
            quote!(, headers(("ETag" = String, description = #text)))
        });
        let content_type = self
            .content_type
            .map(|content_type| quote!(, content_type = #content_type));
        let not_modified = self.is_cached.then(|| {
            let text = "Not modified, because `If-None-Match` has the current `ETag`.";
            quote!((status = 304, description = #text),)
        });
        let errors = &self.errors;
        Ok(quote! {
            #[::utoipa::path(#(#others,)* responses(
                (status = #status, body = #body #content_type, description = #returns #version #(, #parts)*),
                #not_modified
                #(purser_api::errors::#errors),*
            ))]
        })
    }
}

/// Returns `T` if the handler returns `Reply<Json<T>>`.
fn json_response_type(handler: &ItemFn) -> Option<&Type> {
    let ReturnType::Type(_, output) = &handler.sig.output else {
        return None;
    };
    type_argument(type_argument(output, "Reply")?, "Json")
}
