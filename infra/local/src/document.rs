//! Generates the OpenAPI document of all functions.

use std::{collections::BTreeMap, mem};
use utoipa::openapi::{
    OpenApi, Ref, RefOr, Response, Schema, Type,
    extensions::Extensions,
    schema::{ArrayItems, Object, OneOf, OneOfBuilder, SchemaType},
};

type Schemas = BTreeMap<String, RefOr<Schema>>;

/// Returns the text of `docs/openapi.json`.
pub fn openapi() -> Result<String, serde_json::Error> {
    let groups = [
        purser_catalog::openapi(),
        purser_payments::openapi(),
        purser_agents::openapi(),
        purser_dashboard::openapi(),
        purser_internal::openapi(),
        purser_mcp_function::openapi(),
        purser_oauth::openapi(),
    ];
    let mut document = purser_api::merge_documents(groups);
    name_schemas(&mut document);
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    Ok(text)
}

/// Names schemas that client generators would otherwise number or leave out (`tests/generators`).
fn name_schemas(document: &mut OpenApi) {
    if let Some(components) = &mut document.components {
        let mut schemas: Schemas = mem::take(&mut components.schemas).into_iter().collect();
        let all = schemas.clone();
        for schema in schemas.values_mut() {
            if let Some(distributed) = distribute(schema, &all) {
                *schema = RefOr::T(Schema::OneOf(distributed));
            }
        }
        let mut variants = Schemas::new();
        for (name, schema) in &mut schemas {
            if let RefOr::T(Schema::OneOf(one_of)) = schema {
                one_of
                    .items
                    .iter_mut()
                    .for_each(|item| name_variant(name, item, &mut variants));
            }
        }
        schemas.extend(variants);
        schemas.values_mut().for_each(name_parts);
        components.schemas = schemas.into_iter().collect();
    }
    for item in document.paths.paths.values_mut() {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
            &mut item.patch,
        ];
        for operation in operations.into_iter().flatten() {
            let name = pascal_case(operation.operation_id.as_deref().unwrap_or_default());
            for response in operation.responses.responses.values_mut() {
                name_content(&name, response);
            }
        }
    }
}

/// Moves the common fields of a rule's schema into each alternative, so that each is one object.
fn distribute(schema: &RefOr<Schema>, schemas: &Schemas) -> Option<OneOf> {
    let RefOr::T(Schema::AllOf(all_of)) = schema else {
        return None;
    };
    let [variants, RefOr::T(Schema::Object(more))] = all_of.items.as_slice() else {
        return None;
    };
    let variants = match resolve(variants, schemas)? {
        RefOr::T(Schema::OneOf(variants)) => variants.clone(),
        other => distribute(other, schemas)?,
    };
    let mut one_of = OneOfBuilder::new().description(all_of.description.clone());
    for variant in &variants.items {
        let RefOr::T(Schema::Object(variant)) = resolve(variant, schemas)? else {
            return None;
        };
        let mut variant = variant.clone();
        variant.properties.extend(more.properties.clone());
        variant.required.extend(more.required.clone());
        one_of = one_of.item(Schema::Object(variant));
    }
    Some(one_of.build())
}

fn resolve<'a>(schema: &'a RefOr<Schema>, schemas: &'a Schemas) -> Option<&'a RefOr<Schema>> {
    match schema {
        RefOr::Ref(reference) => schemas.get(reference.ref_location.rsplit('/').next()?),
        RefOr::T(_) => Some(schema),
    }
}

/// Turns an alternative into a component, named by its `kind`.
fn name_variant(parent: &str, variant: &mut RefOr<Schema>, variants: &mut Schemas) {
    let RefOr::T(Schema::Object(object)) = variant else {
        return;
    };
    if let Some(kind) = object.properties.values().find_map(constant) {
        let name = format!("{}{parent}", pascal_case(kind));
        let reference = RefOr::Ref(Ref::from_schema_name(&name));
        variants.insert(name, mem::replace(variant, reference));
    } else if is_object(object) {
        object.title = Some(format!("{parent}Object"));
    }
}

/// Returns the only value of a string schema.
fn constant(schema: &RefOr<Schema>) -> Option<&str> {
    match schema {
        RefOr::T(Schema::Object(Object {
            enum_values: Some(values),
            ..
        })) => match values.as_slice() {
            [value] => value.as_str(),
            _ => None,
        },
        _ => None,
    }
}

fn is_object(object: &Object) -> bool {
    match &object.schema_type {
        SchemaType::Type(kind) => *kind == Type::Object,
        SchemaType::Array(kinds) => kinds.contains(&Type::Object),
        SchemaType::AnyValue => false,
    }
}

/// Gives a title to nullable objects, and turns string schemas with one value into a `const`.
fn name_parts(schema: &mut RefOr<Schema>) {
    let value = constant(schema).map(str::to_owned);
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => {
            if let Some(value) = value {
                object.enum_values = None;
                object.extensions = Some(Extensions::from_iter([("const", value)]));
            }
            for (name, property) in &mut object.properties {
                if let RefOr::T(Schema::Object(property)) = property
                    && matches!(property.schema_type, SchemaType::Array(_))
                    && is_object(property)
                {
                    property.title = Some(pascal_case(name));
                }
                name_parts(property);
            }
        }
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                name_parts(items);
            }
        }
        Schema::OneOf(one_of) => one_of.items.iter_mut().for_each(name_parts),
        Schema::AllOf(all_of) => all_of.items.iter_mut().for_each(name_parts),
        Schema::AnyOf(any_of) => any_of.items.iter_mut().for_each(name_parts),
        _ => {}
    }
}

fn name_content(operation: &str, response: &mut RefOr<Response>) {
    let RefOr::T(response) = response else { return };
    for content in response.content.values_mut() {
        if let RefOr::T(content) = content
            && let Some(RefOr::T(Schema::Object(object))) = &mut content.schema
            && is_object(object)
        {
            object.title = Some(format!("{operation}Content"));
        }
    }
}

fn pascal_case(text: &str) -> String {
    let mut name = String::new();
    for word in text.split(['_', '-', '.']) {
        let mut letters = word.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    name
}
