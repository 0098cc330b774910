//! Describes an API operation by the handler's arguments, so that the description always matches what the handler
//! parses.

use crate::{
    AgentCredentials, CallerIds, OperatorCredentials, SessionToken,
    http::envelope::ErrorBody,
    http::errors::{self, ErrorDescription},
    http::openapi::{AGENT_KEY, INTERNAL_TOKEN, SESSION},
};
use axum::extract::{Path, Request, State};
use axum::handler::Handler;
use std::collections::BTreeMap;
use utoipa::openapi::{
    Content, HeaderBuilder, KnownFormat, ObjectBuilder, PathItem, Ref, RefOr, Required, Response, ResponseBuilder,
    Schema, SchemaFormat, Type,
    path::{Operation, Parameter, ParameterBuilder, ParameterIn},
    request_body::RequestBodyBuilder,
    security::SecurityRequirement,
};
use utoipa::{IntoResponses, ToSchema};
use utoipa_axum::router::UtoipaMethodRouter;

/// The OpenAPI description of one operation.
pub struct OperationDescription {
    pub(crate) operation: Operation,
    /// The named schemas of the request body.
    schemas: Vec<(String, RefOr<Schema>)>,
}

impl OperationDescription {
    /// Adds an error of the module `errors` to the responses of the operation.
    pub fn add_error<E: IntoResponses>(&mut self) {
        self.operation.responses.responses.extend(E::responses());
    }

    /// Adds an authentication scheme to the operation. A request needs only one of the operation's schemes.
    pub fn add_security(&mut self, scheme: &str) {
        let requirement = SecurityRequirement::new(scheme, Vec::<String>::new());
        self.operation.security.get_or_insert_default().push(requirement);
        self.add_error::<errors::TooManyRequests>();
        // Authentication reads database rows, and the database may throttle.
        self.add_error::<errors::TemporarilyUnavailable>();
    }

    /// Adds a parameter to the operation, unless the route already describes the parameter.
    pub fn add_parameter(&mut self, parameter: Parameter) {
        let parameters = self.operation.parameters.get_or_insert_default();
        let is_same = |known: &RefOr<Parameter>| match known {
            RefOr::T(known) => known.name == parameter.name && known.parameter_in == parameter.parameter_in,
            RefOr::Ref(_) => false,
        };
        if !parameters.iter().any(is_same) {
            parameters.push(RefOr::T(parameter));
        }
    }

    /// Adds an id in the URL's path to the operation's parameters, and the error for an unknown id to the responses.
    pub fn add_path_parameter(&mut self, name: &str, description: &str, is_uuid: bool) {
        let format = is_uuid.then_some(SchemaFormat::KnownFormat(KnownFormat::Uuid));
        let schema = ObjectBuilder::new().schema_type(Type::String).format(format).build();
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(description))
            .schema(Some(schema))
            .build();
        self.add_parameter(parameter);
        self.add_error::<errors::NotFound>();
    }

    /// Sets the schema of the operation's JSON request body.
    pub fn set_body<T: ToSchema>(&mut self, is_required: bool) {
        T::schemas(&mut self.schemas);
        self.schemas.push((T::name().into_owned(), T::schema()));
        let content = Content::new(Some(RefOr::Ref(Ref::from_schema_name(T::name()))));
        let body = RequestBodyBuilder::new()
            .content("application/json", content)
            .required(is_required.then_some(Required::True))
            .build();
        self.operation.request_body = Some(RefOr::T(body));
        self.add_error::<errors::FieldRequired>();
    }
}

/// A handler argument that describes itself in the OpenAPI document.
pub trait Argument {
    /// Adds to `operation` the request parameters from which this handler argument is parsed, and the errors that the
    /// parser returns for an invalid request.
    fn describe(operation: &mut OperationDescription);
}

/// Implements [`Argument`] for handler arguments that add nothing to the OpenAPI description.
macro_rules! undescribed {
    ($($name:ty),+) => {$(
        impl Argument for $name {
            fn describe(_: &mut OperationDescription) {}
        }
    )+};
}

undescribed!(axum::http::Uri, axum::http::HeaderMap, bytes::Bytes, CallerIds, Request);

impl<S> Argument for State<S> {
    fn describe(_: &mut OperationDescription) {}
}

/// Each route describes its own path parameters and their errors.
impl<T> Argument for Path<T> {
    fn describe(_: &mut OperationDescription) {}
}

impl Argument for AgentCredentials {
    fn describe(operation: &mut OperationDescription) {
        operation.add_security(AGENT_KEY);
        operation.add_error::<errors::InvalidAgentKey>();
        operation.add_error::<errors::InvalidAuthorizationHeader>();
        operation.add_error::<errors::KeyNotAllowed>();
    }
}

impl Argument for SessionToken {
    fn describe(operation: &mut OperationDescription) {
        operation.add_security(SESSION);
        operation.add_error::<errors::InvalidSession>();
        operation.add_error::<errors::NotEntitled>();
    }
}

impl Argument for OperatorCredentials {
    fn describe(operation: &mut OperationDescription) {
        operation.add_security(INTERNAL_TOKEN);
        operation.add_error::<errors::InvalidInternalToken>();
    }
}

/// The arguments of a handler: axum's `T` in `Handler<T, S>`.
pub trait Arguments {
    /// Adds the parameters, the body and the errors of every handler argument to `operation`.
    fn describe(operation: &mut OperationDescription);
}

macro_rules! arguments {
    ($($argument:ident)*) => {
        impl<M, $($argument: Argument),*> Arguments for (M, $($argument,)*) {
            fn describe(operation: &mut OperationDescription) {
                $($argument::describe(operation);)*
            }
        }
    };
}

/// A handler without arguments adds nothing to the OpenAPI description.
impl<M> Arguments for (M,) {
    fn describe(_: &mut OperationDescription) {}
}

arguments!(A);
arguments!(A B);
arguments!(A B C);
arguments!(A B C D);
arguments!(A B C D E);
arguments!(A B C D E F);
arguments!(A B C D E F G);

/// Completes the description of a route with a tag, the parameters, the body and all errors. [`routes!`](crate::routes)
/// calls this function.
pub fn describe_route<H, T, S>(
    tag: &str,
    _: &H,
    (mut schemas, mut paths, router): UtoipaMethodRouter<S>,
) -> UtoipaMethodRouter<S>
where
    H: Handler<T, S>,
    T: Arguments,
{
    for (path, item) in &mut paths.paths {
        let is_read = item.get.is_some();
        for operation in operations(item) {
            let mut description = describe_arguments::<T>(std::mem::take(operation));
            description.add_error::<errors::InvalidRequest>();
            description.add_error::<errors::InternalError>();
            if !is_read {
                description.add_error::<errors::RequestTooLarge>();
            }
            schemas.append(&mut description.schemas);
            *operation = description.operation;
            operation.tags.get_or_insert_with(|| vec![tag.to_owned()]);
            add_error_responses(operation, path);
        }
    }
    (schemas, paths, router)
}

pub(crate) fn describe_arguments<T: Arguments>(operation: Operation) -> OperationDescription {
    let mut description = OperationDescription {
        operation,
        schemas: Vec::new(),
    };
    T::describe(&mut description);
    description
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let methods = [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.delete,
        &mut item.patch,
    ];
    methods.into_iter().flatten()
}

/// Replaces the placeholders of errors in the operation by one response per HTTP status. Keeps the responses that the
/// route itself describes.
fn add_error_responses(operation: &mut Operation, path: &str) {
    let responses = &mut operation.responses.responses;
    let mut texts = BTreeMap::<u16, Vec<String>>::new();
    for error in errors::ALL {
        if responses.remove(error.name).is_some() {
            let text = describe_error(error, path);
            texts.entry(error.status).or_default().push(text);
        }
    }
    for (status, texts) in texts {
        let response = || RefOr::T(error_response(status, &texts.join("\n")));
        responses.entry(status.to_string()).or_insert_with(response);
    }
}

fn describe_error(error: &ErrorDescription, path: &str) -> String {
    let parameters: Vec<&str> = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .collect();
    let text = match parameters.as_slice() {
        [first, others @ ..] if error.slug == "not_found" => describe_not_found(first, others),
        _ => error.text.to_owned(),
    };
    format!("- `{}`: {text}", error.slug)
}

/// Describes the error `not_found` of a path with parameters. The first parameter identifies an object, and each other
/// parameter a part of the object.
fn describe_not_found(first: &str, others: &[&str]) -> String {
    let object = object_noun_for_parameter(first);
    let missing: Vec<String> = others
        .iter()
        .map(|name| format!("no {} with this `{name}`", object_noun_for_parameter(name)))
        .collect();
    let parts = if missing.is_empty() {
        String::new()
    } else {
        format!(", or the {object} has {}", missing.join(" or "))
    };
    format!("No {object} that you may access has this `{first}`{parts}. Check the path.")
}

/// Returns the noun for the object that a path parameter identifies, such as "agent" for `agentId`.
fn object_noun_for_parameter(parameter: &str) -> &str {
    match parameter {
        "id" => "approval",
        "person" => "owner",
        "templateName" => "policy template",
        "transactionId" => "decision",
        _ => parameter.strip_suffix("Id").unwrap_or(parameter),
    }
}

fn error_response(status: u16, description: &str) -> Response {
    let content = Content::new(Some(RefOr::Ref(Ref::from_schema_name(ErrorBody::name()))));
    let response = ResponseBuilder::new()
        .description(description)
        .content("application/json", content);
    if matches!(status, 429 | 503) {
        let seconds = ObjectBuilder::new().schema_type(Type::Integer).build();
        let header = HeaderBuilder::new()
            .schema(Some(seconds))
            .description(Some("Whole seconds to wait."))
            .build();
        return response.header("Retry-After", header).build();
    }
    response.build()
}
