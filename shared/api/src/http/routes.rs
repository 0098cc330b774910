//! A group's routes, from the `utoipa::path` of its handlers.

use crate::http::body::members;
use crate::{Failure, Place, Problems, json_body};
use axum::{
    Router,
    body::Body,
    extract::Request,
    handler::Handler,
    middleware::{Next, from_fn},
    response::Response,
    routing::MethodRouter,
};
use http_body_util::{BodyExt as _, Collected};
use purser_domain::{Error, Problem, Result};
use utoipa::Path;
use utoipa_axum::PathItemExt as _;

/// Creates two functions from a group's handlers: `routes`, the router that is served, and `description`, its part of
/// the OpenAPI document. The start of a function calls only the first: the schemas are some hundred objects, and no
/// request needs them.
///
/// ```ignore
/// purser_api::routes!(Arc<Group>, list::list, service::service);
/// ```
#[macro_export]
macro_rules! routes {
    ($state:ty, $($module:ident::$handler:ident),+ $(,)?) => {
        /// The group's routes.
        pub(crate) fn routes() -> ::axum::Router<$state> {
            let routes = ::axum::Router::new();
            $(
                let routes = ::utoipa_axum::paste! {
                    $crate::described::<$module::[<__path_ $handler>], _, _, _>(routes, &$module::$handler)
                };
            )+
            routes
        }

        /// The routes' part of the OpenAPI document.
        pub(crate) fn description() -> ::utoipa::openapi::OpenApi {
            ::utoipa_axum::router::OpenApiRouter::<$state>::new()
                $(.routes(::utoipa_axum::routes!($module::$handler)))+
                .into_openapi()
        }
    };
}

/// Adds a handler to the routes, at the path in its description; used by [`routes!`](crate::routes). A route whose
/// description has no body rejects one.
pub fn described<P, H, T, S>(routes: Router<S>, handler: &H) -> Router<S>
where
    P: Path,
    H: Handler<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    let methods = P::methods().into_iter();
    let route = methods.fold(MethodRouter::new(), |route, method| {
        route.on(method.to_method_filter(), handler.clone())
    });
    let route = match P::operation().request_body {
        Some(_) => route,
        None => route.layer(from_fn(without_body)),
    };
    routes.route(&P::path(), route)
}

/// Rejects a body that is neither empty nor an empty object, which many programs send: a field that the route ignores
/// must not look as if it had an effect.
async fn without_body(request: Request, next: Next) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes);
    let body = body.map_err(|_| Error::invalid(vec![Problem::at("", "must arrive whole")]))?;
    if !body.is_empty() {
        let mut problems = Problems::default();
        let read = members(&json_body(&body)?, Place::Body, &[], false, &mut problems).map(drop);
        problems.finish(read)?;
    }
    Ok(next.run(Request::from_parts(parts, Body::empty())).await)
}
