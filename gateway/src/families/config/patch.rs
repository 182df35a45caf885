//! Whether a patch makes a spec that the API server would take.

use chandlery_crds::manifest;
use serde_json::{Map, Value, json};

use crate::directory::Agent;

/// Bytes of a patch, written without spaces.
const LIMIT: usize = 16 * 1024;

/// The patch as it is kept, or what is wrong with it.
pub(super) fn check(agent: &Agent, patch: &Map<String, Value>) -> Result<String, String> {
    if patch.is_empty() {
        return Err(
            "patch is empty: write the fields of your Agent's spec that should change".to_owned(),
        );
    }
    let text = Value::Object(patch.clone()).to_string();
    if text.len() > LIMIT {
        return Err(format!(
            "patch is {} bytes; the limit is {LIMIT} bytes (16 KiB), and nothing was done: ask for less at once",
            text.len()
        ));
    }
    for (field, why) in [
        ("workspaceRef", "an agent stays in its Workspace"),
        ("listing", "it is fixed for the agent's life"),
    ] {
        if patch.contains_key(field) {
            return Err(format!("patch may not change {field}: {why}"));
        }
    }
    let Ok(spec) = serde_json::to_value(&agent.spec) else {
        return Ok(text);
    };
    let mut patched = spec.clone();
    merge(&mut patched, patch);
    match problem(agent, patched) {
        // A spec that is not in order by itself says nothing about the patch.
        Some(found) if problem(agent, spec).is_none() => {
            Err(format!("patch makes a spec that is not valid: {found}"))
        }
        _ => Ok(text),
    }
}

/// What the API server would say of the agent with this spec.
fn problem(agent: &Agent, spec: Value) -> Option<String> {
    let (namespace, name) = agent.id.split_once('.').unwrap_or(("", &agent.id));
    let manifest = json!({
        "apiVersion": "chandlery.dev/v1alpha1",
        "kind": "Agent",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    });
    let read = manifest::read("patch", &manifest.to_string());
    read.problems.first().map(|problem| match &*problem.field {
        "" => problem.message.clone(),
        field => format!("{field}: {}", problem.message),
    })
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Map<String, Value>) {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    for (name, value) in patch {
        match value {
            Value::Null => {
                fields.remove(name);
            }
            Value::Object(inner) => merge(fields.entry(name.clone()).or_insert(Value::Null), inner),
            other => {
                fields.insert(name.clone(), other.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_patch_adds_replaces_and_removes() {
        let mut spec = json!({"tools": ["a"], "workspaceDb": {"enabled": true, "readOnly": false}, "state": "Draft"});
        let patch = json!({"tools": ["b"], "workspaceDb": {"readOnly": true, "enabled": null}, "state": null, "permissions": {"default": "ask", "x": null}});
        merge(&mut spec, patch.as_object().expect("an object"));
        let expected = json!({"tools": ["b"], "workspaceDb": {"readOnly": true}, "permissions": {"default": "ask"}});
        assert_eq!(spec, expected);
    }
}
