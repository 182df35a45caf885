//! The four resources as CustomResourceDefinitions, just as they are applied to a cluster.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::Value;

use crate::names;
use crate::{Agent, ToolGrant, ToolSource, Workspace};

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
