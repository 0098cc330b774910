//! A group's routes, from the `utoipa::path` of its handlers.

use axum::{Router, handler::Handler, routing::MethodRouter};
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

/// Adds a handler to the routes, at the path in its description; used by [`routes!`](crate::routes).
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
    routes.route(&P::path(), route)
}
