//! The four resources as CustomResourceDefinitions, just as they are applied to a cluster.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::core::object::HasSpec;
use kube::{CustomResourceExt as _, Resource};
use serde_json::Value;

use crate::names;
use crate::{Agent, ToolGrant, ToolSource, Workspace};

/// The object with what an API server would give it; its generation grows with every change of the spec since `before`.
pub fn identified<K>(object: &K, uid: &str, created_at: &Timestamp, before: Option<&K>) -> K
where
    K: Clone + HasSpec + Resource,
    K::Spec: PartialEq,
{
    let before = before.filter(|old| old.meta().uid.as_deref() == Some(uid));
    let generation = before.map_or(1, |old| {
        let is_same = old.spec() == object.spec();
        old.meta().generation.unwrap_or_default() + i64::from(!is_same)
    });
    let mut object = object.clone();
    let metadata = object.meta_mut();
    metadata.uid = Some(uid.to_owned());
    metadata.creation_timestamp = Some(Time(*created_at));
    metadata.generation = Some(generation);
    object
}

/// One of the four resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Workspace,
    Agent,
    ToolSource,
    ToolGrant,
}

impl Kind {
    /// In the order in which people make them.
    pub const ALL: [Kind; 4] = [
        Kind::Workspace,
        Kind::Agent,
        Kind::ToolSource,
        Kind::ToolGrant,
    ];

    /// The name in `kind:`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Workspace => "Workspace",
            Kind::Agent => "Agent",
            Kind::ToolSource => "ToolSource",
            Kind::ToolGrant => "ToolGrant",
        }
    }

    /// The kind of that `kind:`, in our group.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The definition to apply.
    pub fn crd(self) -> CustomResourceDefinition {
        let mut crd = match self {
            Kind::Workspace => Workspace::crd(),
            Kind::Agent => Agent::crd(),
            Kind::ToolSource => ToolSource::crd(),
            Kind::ToolGrant => ToolGrant::crd(),
        };
        for version in &mut crd.spec.versions {
            if let Some(schema) = version
                .schema
                .as_mut()
                .and_then(|schema| schema.open_api_v3_schema.as_mut())
            {
                let mut value = serde_json::to_value(&*schema).expect("a schema serializes");
                tidy(&mut value);
                *schema = serde_json::from_value(value).expect("a tidied schema is a schema");
            }
        }
        crd
    }

    /// The schema of whole objects, `metadata` left to Kubernetes.
    pub fn schema(self) -> Value {
        let crd = self.crd();
        let version = crd
            .spec
            .versions
            .iter()
            .find(|version| version.name == names::VERSION);
        let schema =
            version.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
        serde_json::to_value(schema.expect("each version has a schema"))
            .expect("a schema serializes")
    }
}

/// Brings a derived schema into the form that the API server and `kubectl explain` do best with.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // A null that somebody writes is dropped then, as it is from Kubernetes' own resources;
            // a nullable field would keep it, and `has()` would say false of it.
            fields.remove("nullable");
            if fields.get("title").is_some_and(Value::is_string) {
                fields.remove("title");
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = paragraphs(text);
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// The text with each paragraph on one line: `kubectl explain` wraps it anew.
fn paragraphs(text: &str) -> String {
    text.split("\n\n")
        .map(|paragraph| {
            paragraph
                .lines()
                .map(str::trim)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect::<Vec<_>>()
        .join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `look` with every schema below `schema`, its path and whether it lies inside a list's items.
    fn visit(
        schema: &Value,
        path: &str,
        in_items: bool,
        look: &mut impl FnMut(&Value, &str, bool),
    ) {
        look(schema, path, in_items);
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            visit(field, &format!("{path}.{name}"), in_items, look);
        }
        for (key, in_items) in [("items", true), ("additionalProperties", in_items)] {
            if schema[key].is_object() {
                visit(&schema[key], &format!("{path}[]"), in_items, look);
            }
        }
    }

    fn each(mut look: impl FnMut(&Value, &str, bool)) {
        for kind in Kind::ALL {
            visit(&kind.schema(), kind.name(), false, &mut look);
        }
    }

    #[test]
    fn every_field_is_explained_with_its_default() {
        each(|schema, path, _| {
            let text = schema["description"].as_str().unwrap_or_default();
            assert!(
                path.ends_with("[]") || !text.is_empty(),
                "{path} has no description"
            );
            if let Some(default) = schema.get("default").filter(|_| path.contains(".spec")) {
                let default = default
                    .as_str()
                    .map_or_else(|| default.to_string(), str::to_owned);
                assert!(
                    text.contains(&format!("Default: {default}")),
                    "{path} does not name {default}: {text}"
                );
            }
        });
    }

    // CEL's cost is estimated from the bounds: an unbounded list makes a CRD be refused once it gets a rule.
    #[test]
    fn every_list_map_and_string_has_a_bound() {
        each(|schema, path, _| {
            let bound = match schema["type"].as_str() {
                Some("array") => "maxItems",
                Some("string")
                    if schema.get("enum").is_none() && schema["format"] != "date-time" =>
                {
                    "maxLength"
                }
                Some("object") if schema["additionalProperties"].is_object() => "maxProperties",
                _ => return,
            };
            assert!(schema[bound].is_u64(), "{path} has no {bound}");
        });
    }

    #[test]
    fn every_list_says_how_it_is_merged() {
        each(|schema, path, _| {
            assert!(
                schema["type"] != "array" || schema["x-kubernetes-list-type"].is_string(),
                "{path}"
            );
        });
    }

    // They would show as drift in GitOps tools.
    #[test]
    fn no_default_lies_inside_a_list() {
        each(|schema, path, in_items| {
            assert!(!in_items || schema.get("default").is_none(), "{path}")
        });
    }

    // `schema::validate` knows no others: one more here needs code there.
    #[test]
    fn schemas_use_known_keywords_only() {
        let known = [
            "additionalProperties",
            "default",
            "description",
            "enum",
            "format",
            "items",
            "maxItems",
            "maxLength",
            "maxProperties",
            "maximum",
            "minItems",
            "minLength",
            "minimum",
            "properties",
            "required",
            "type",
            "x-kubernetes-int-or-string",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-list-type",
            "x-kubernetes-map-type",
            "x-kubernetes-validations",
        ];
        each(|schema, path, _| {
            for keyword in schema
                .as_object()
                .into_iter()
                .flatten()
                .map(|(keyword, _)| keyword)
            {
                assert!(known.contains(&keyword.as_str()), "{path} uses {keyword}");
            }
        });
    }
}
