//! Builds a function's routes from the handlers' attributes [`endpoint`](crate::endpoint).

use crate::http::body::object_fields;
use crate::http::operation::{Arguments, describe_arguments};
use crate::{BodyPath, Failure, Query, ValidationErrors, parse_json_body};
use axum::{
    Router,
    body::Body,
    extract::Request,
    handler::Handler,
    http::Uri,
    middleware::{Next, from_fn},
    response::Response,
    routing::MethodRouter,
};
use http_body_util::{BodyExt as _, Collected};
use purser_domain::{Error, Result, ValidationError};
use std::sync::Arc;
use utoipa::{
    Path,
    openapi::{
        RefOr,
        path::{Parameter, ParameterIn},
    },
};
use utoipa_axum::PathItemExt as _;

/// Generates two functions from a list of handlers: `routes` returns the router, and `description` returns the OpenAPI
/// description, which a Lambda function does not need.
///
/// ```ignore
/// purser_api::routes!(Arc<Group>, tag = "things", list::list, service::service);
/// ```
///
/// `tag` applies to all routes without their own tag.
#[macro_export]
macro_rules! routes {
    ($state:ty, tag = $tag:literal, $($module:ident::$handler:ident),+ $(,)?) => {
        pub(crate) fn routes() -> ::axum::Router<$state> {
            $crate::router!($state, $($module::$handler),+)
        }

        /// Returns the OpenAPI description of this function's routes.
        pub(crate) fn description() -> ::utoipa::openapi::OpenApi {
            ::utoipa_axum::router::OpenApiRouter::<$state>::new()
                $(.routes($crate::describe_route(
                    $tag,
                    &$module::$handler,
                    ::utoipa_axum::routes!($module::$handler),
                )))+
                .into_openapi()
        }
    };
}

/// Builds the router of a list of handlers.
#[macro_export]
macro_rules! router {
    ($state:ty, $($module:ident::$handler:ident),+ $(,)?) => {{
        let routes = ::axum::Router::<$state>::new();
        $(
            let routes = ::utoipa_axum::paste! {
                $crate::add_route::<$module::[<__path_ $handler>], _, _, _>(routes, &$module::$handler)
            };
        )+
        routes
    }};
}

/// Adds a handler at the path in the handler's OpenAPI description. The route rejects query parameters and bodies that
/// are not described. [`router!`](crate::router) calls this function.
pub fn add_route<P, H, T, S>(routes: Router<S>, handler: &H) -> Router<S>
where
    P: Path,
    H: Handler<T, S>,
    T: Arguments + 'static,
    S: Clone + Send + Sync + 'static,
{
    let methods = P::methods().into_iter();
    let route = methods.fold(MethodRouter::new(), |route, method| {
        route.on(method.to_method_filter(), handler.clone())
    });
    let operation = describe_arguments::<T>(P::operation()).operation;
    let route = match operation.request_body {
        Some(_) => route,
        None => route.layer(from_fn(reject_requests_with_body)),
    };
    let known: Arc<[String]> = operation
        .parameters
        .into_iter()
        .flatten()
        .filter_map(query_parameter_name)
        .collect();
    let route = route.layer(from_fn(move |request: Request, next: Next| {
        let known = Arc::clone(&known);
        async move {
            reject_unknown_parameters(request.uri(), &known)?;
            Ok::<_, Failure>(next.run(request).await)
        }
    }));
    routes.route(&P::path(), route)
}

/// Rejects unknown query parameters, because the caller would expect an effect.
fn reject_unknown_parameters(uri: &Uri, names: &[String]) -> Result<()> {
    if uri.query().is_none_or(str::is_empty) {
        return Ok(());
    }
    let mut query = Query::from_uri(uri);
    query.add_unknown_parameter_errors(names);
    query.finish()
}

fn query_parameter_name(parameter: RefOr<Parameter>) -> Option<String> {
    match parameter {
        RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter.name),
        _ => None,
    }
}

/// Rejects a body that is neither empty nor `{}`, because the caller would expect an effect. Many clients send `{}`.
async fn reject_requests_with_body(request: Request, next: Next) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes);
    let body = body.map_err(|_| Error::invalid(vec![ValidationError::at_path("", "must arrive whole")]))?;
    if !body.is_empty() {
        let mut errors = ValidationErrors::default();
        let read = object_fields(&parse_json_body(&body)?, BodyPath::Body, &[], false, &mut errors).map(drop);
        errors.finish(read)?;
    }
    Ok(next.run(Request::from_parts(parts, Body::empty())).await)
}
