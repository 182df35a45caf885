//! Schemas of Kubernetes' own types that our resources hold: bounded, with rules, and without the fields that a
//! gateway has no use for.
//!
//! The derived ones have neither bounds nor enums, and a mistake in them would only show once the operator applies
//! the Deployment.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A LabelSelector that says something: an empty one would select everything.
pub(crate) fn some_labels(_: &mut SchemaGenerator) -> Schema {
    let mut schema = label_selector("Which labels an object must have.");
    schema["x-kubernetes-validations"] = json!([{
        "rule": "(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
        "message": "an empty selector would select all: write all: true for that",
    }]);
    into_schema(schema)
}

/// Peers of a NetworkPolicy.
pub(crate) fn peers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "description": "Pods by labels, or addresses.",
            "type": "object",
            "properties": {
                "podSelector": label_selector("Pods with these labels; in this namespace unless namespaceSelector is written too."),
                "namespaceSelector": label_selector("Namespaces with these labels; all of their pods unless podSelector is written too."),
                "ipBlock": {
                    "description": "Addresses outside the cluster.",
                    "type": "object",
                    "required": ["cidr"],
                    "properties": {
                        "cidr": text(64, "A network, such as 10.20.0.0/16."),
                        "except": {
                            "description": "Networks inside cidr that are left out.",
                            "type": "array",
                            "maxItems": 32,
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string", "maxLength": 64},
                        },
                    },
                    "x-kubernetes-validations": [
                        {"rule": "isCIDR(self.cidr)", "message": "write a CIDR, such as 10.20.0.0/16", "fieldPath": ".cidr"},
                        {
                            "rule": "!has(self.except) || !isCIDR(self.cidr) || self.except.all(network, isCIDR(network) && cidr(self.cidr).containsCIDR(network))",
                            "message": "write networks inside cidr, such as 10.20.30.0/24",
                            "fieldPath": ".except",
                        },
                    ],
                },
            },
            "x-kubernetes-validations": [{
                "rule": "has(self.ipBlock) != (has(self.podSelector) || has(self.namespaceSelector))",
                "message": "write podSelector, namespaceSelector or both, or else ipBlock",
            }],
        },
    })
}

/// CPU and memory of a container.
pub(crate) fn resources(_: &mut SchemaGenerator) -> Schema {
    let amounts = |description: &str| {
        json!({
            "description": description,
            "type": "object",
            "maxProperties": 3,
            "additionalProperties": {"x-kubernetes-int-or-string": true},
            "x-kubernetes-validations": [{
                "rule": "self.all(name, isQuantity(string(self[name])))",
                "message": "write an amount, such as 500m or 256Mi",
            }],
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "limits": amounts("The most that the container may use, such as memory: 512Mi."),
            "requests": amounts("What is set aside for the container, such as cpu: 100m. Default: the limits."),
        },
        "x-kubernetes-validations": [{
            "rule": "!has(self.limits) || !has(self.requests) || self.requests.all(name, !(name in self.limits) || !isQuantity(string(self.requests[name])) || !isQuantity(string(self.limits[name])) || quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)",
            "message": "a request may not be more than its limit",
            "fieldPath": ".requests",
        }],
    })
}

/// Secrets to pull an image with.
pub(crate) fn pull_secrets(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": text(253, "Name of the Secret, in the same namespace.")},
        },
    })
}

/// Taints that pods tolerate.
pub(crate) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "description": "A taint that the pods tolerate.",
            "type": "object",
            "properties": {
                "key": text(317, "Key of the taint. Left out: every taint, with operator Exists."),
                "operator": word(&["Exists", "Equal"], "How value is compared. Default: Equal."),
                "value": {"description": "Value of the taint, for operator Equal.", "type": "string", "maxLength": 63},
                "effect": word(&["NoSchedule", "PreferNoSchedule", "NoExecute"], "Effect of the taint. Left out: all of them."),
                "tolerationSeconds": {"description": "How long a taint of effect NoExecute is tolerated. Default: for ever.", "type": "integer", "format": "int64"},
            },
            "x-kubernetes-validations": [
                {"rule": "has(self.key) || (has(self.operator) && self.operator == 'Exists')", "message": "write a key, or operator: Exists"},
                {"rule": "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''", "message": "operator Exists takes no value", "fieldPath": ".value"},
                {"rule": "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')", "message": "tolerationSeconds needs effect: NoExecute", "fieldPath": ".tolerationSeconds"},
            ],
        },
    })
}

/// How pods spread over nodes and zones.
pub(crate) fn spread(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["topologyKey", "whenUnsatisfiable"],
        "items": {
            "description": "How the pods spread over one kind of place.",
            "type": "object",
            "required": ["maxSkew", "topologyKey", "whenUnsatisfiable"],
            "properties": {
                "maxSkew": {"description": "By how many pods places may differ.", "type": "integer", "format": "int32", "minimum": 1},
                "topologyKey": text(317, "Label of the nodes that says in which place they are, such as topology.kubernetes.io/zone."),
                "whenUnsatisfiable": word(&["DoNotSchedule", "ScheduleAnyway"], "What becomes of a pod that would break the rule."),
                "minDomains": {"description": "At least how many places there must be, with DoNotSchedule. Default: 1.", "type": "integer", "format": "int32", "minimum": 1},
                "labelSelector": label_selector("Which pods are counted."),
                "matchLabelKeys": {
                    "description": "Labels of the pod itself that counted pods share, such as pod-template-hash.",
                    "type": "array",
                    "maxItems": 16,
                    "x-kubernetes-list-type": "set",
                    "items": {"type": "string", "minLength": 1, "maxLength": 317},
                },
                "nodeAffinityPolicy": word(&["Honor", "Ignore"], "Whether only nodes that nodeSelector allows are counted. Default: Honor."),
                "nodeTaintsPolicy": word(&["Honor", "Ignore"], "Whether only nodes whose taints are tolerated are counted. Default: Ignore."),
            },
            "x-kubernetes-validations": [
                {"rule": "!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'", "message": "minDomains needs whenUnsatisfiable: DoNotSchedule", "fieldPath": ".minDomains"},
            ],
        },
    })
}

/// A status' conditions.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "description": "One aspect of the object's state.",
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": text(316, "Which aspect."),
                "status": word(&["True", "False", "Unknown"], "Whether it holds."),
                "reason": text(1024, "Why, as one word for programs."),
                "message": {"description": "Why, as a sentence for people.", "type": "string", "maxLength": 32768},
                "observedGeneration": {"description": "The metadata.generation that this is about.", "type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"description": "When status last changed.", "type": "string", "format": "date-time"},
            },
        },
    })
}

/// A LabelSelector: all of its labels and expressions must hold.
fn label_selector(description: &str) -> Value {
    json!({
        "description": description,
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels and their values.",
                "type": "object",
                "maxProperties": 16,
                "additionalProperties": {"type": "string", "maxLength": 63},
            },
            "matchExpressions": {
                "description": "Conditions on labels.",
                "type": "array",
                "maxItems": 16,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "description": "A condition on one label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": text(317, "Key of the label."),
                        "operator": word(&["In", "NotIn", "Exists", "DoesNotExist"], "How the label is compared."),
                        "values": {
                            "description": "Values for In and NotIn.",
                            "type": "array",
                            "maxItems": 32,
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string", "maxLength": 63},
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                        "message": "In and NotIn need values, Exists and DoesNotExist take none",
                        "fieldPath": ".values",
                    }],
                },
            },
        },
    })
}

fn text(most: u64, description: &str) -> Value {
    json!({"description": description, "type": "string", "minLength": 1, "maxLength": most})
}

fn word(words: &[&str], description: &str) -> Value {
    json!({"description": description, "type": "string", "enum": words})
}

fn into_schema(value: Value) -> Schema {
    Schema::try_from(value).expect("an object is a schema")
}
