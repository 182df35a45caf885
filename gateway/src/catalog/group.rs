//! Grouped tools: one tool for the operations of one resource and risk level, told apart by `action` (R-C-161…177).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::families::view;
use crate::tool::{Effect, Served, Tool, ToolError};

static MARKDOWN: LazyLock<Box<RawValue>> =
    LazyLock::new(|| RawValue::from_string("\"markdown\"".to_owned()).expect("a string is JSON"));

/// The argument that picks the operation.
const ACTION: &str = "action";

/// The tool that stands for `operations`, which all name the same group.
pub(super) fn merge(operations: &[&Tool]) -> Tool {
    let group = operations.first().and_then(|tool| tool.group.as_ref());
    let (name, title, purpose) = group.map_or_else(Default::default, |group| {
        (
            group.name.clone(),
            group.title.clone(),
            group.description.clone(),
        )
    });
    let mut description = format!("{purpose}\n\nActions:");
    for tool in operations {
        let line = tool.description.lines().next().unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = write!(description, "\n- {} ({}): {line}", action(tool), tool.name);
    }
    Tool {
        name,
        title,
        description: description.into(),
        input_schema: schema(operations),
        effect: operations
            .iter()
            .fold(Effect::Reads, |all, tool| all.strongest(tool.effect)),
        served: Served::Entry,
        group: None,
        interactive: operations.iter().any(|tool| tool.interactive),
        origin: None,
    }
}

/// The operations' arguments together, and `action` (R-C-202).
fn schema(operations: &[&Tool]) -> Map<String, Value> {
    let actions: Vec<&str> = operations.iter().map(|tool| action(tool)).collect();
    let mut properties = Map::new();
    properties.insert(
        ACTION.to_owned(),
        json!({"type": "string", "enum": actions, "description": "What to do; each action takes its own arguments."}),
    );
    let mut users: BTreeMap<&String, Vec<(&str, &Value)>> = BTreeMap::new();
    for tool in operations {
        for (name, schema) in properties_of(tool) {
            users.entry(name).or_default().push((action(tool), schema));
        }
    }
    for (name, uses) in users {
        let mut distinct: Vec<&Value> = Vec::new();
        for (_, schema) in &uses {
            if !distinct.contains(schema) {
                distinct.push(schema);
            }
        }
        let mut merged = match distinct.as_slice() {
            [one] => (*one).clone(),
            several => json!({"anyOf": several}),
        };
        if uses.len() < operations.len()
            && let Some(schema) = merged.as_object_mut()
        {
            let of: Vec<&str> = uses.iter().map(|(action, _)| *action).collect();
            let of = format!("Of {}.", of.join(", "));
            let text = match schema.get("description").and_then(Value::as_str) {
                Some(text) => format!("{of} {text}"),
                None => of,
            };
            schema.insert("description".to_owned(), text.into());
        }
        properties.insert(name.clone(), merged);
    }
    if operations.iter().any(|tool| is_data(tool)) {
        for (name, schema) in view::arguments() {
            properties.entry(name).or_insert(schema);
        }
    }
    let is_closed = operations
        .iter()
        .all(|tool| tool.input_schema.get("additionalProperties") == Some(&Value::Bool(false)));
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties.into());
    schema.insert("required".to_owned(), json!([ACTION]));
    if is_closed {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    schema
}

/// Whether the caller chooses how answers look (R-C-203).
fn is_data(tool: &Tool) -> bool {
    tool.origin.as_ref().is_some_and(|origin| origin.is_data)
}

fn action(tool: &Tool) -> &str {
    tool.group.as_ref().map_or("", |group| &group.action)
}

fn properties_of(tool: &Tool) -> impl Iterator<Item = (&String, &Value)> {
    let properties = tool.input_schema.get("properties");
    properties.and_then(Value::as_object).into_iter().flatten()
}

/// Whether the arguments are a grouped tool's.
pub(super) fn picks(arguments: &RawValue) -> bool {
    #[derive(serde::Deserialize)]
    struct Probe {
        action: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_str::<Probe>(arguments.get()).is_ok_and(|probe| probe.action.is_some())
}

/// Whether the operation takes arguments that it does not name: what a sibling has one of its own for is its, too.
fn is_open(tool: &Tool) -> bool {
    let others = tool.input_schema.get("additionalProperties");
    others.is_some_and(|others| *others != Value::Bool(false))
}

/// The operation that the arguments pick, as an index into `operations`, and what it gets of them: its own arguments,
/// and those that no operation of the group knows, for it to refuse (R-C-177). One that takes any gets them all.
pub(super) fn pick(
    name: &str,
    operations: &[&Tool],
    arguments: &RawValue,
) -> Result<(usize, Box<RawValue>), ToolError> {
    let all = || {
        let actions: Vec<&str> = operations.iter().map(|tool| action(tool)).collect();
        actions.join(", ")
    };
    let mut arguments: BTreeMap<String, &RawValue> = serde_json::from_str(arguments.get())
        .map_err(|_| ToolError::arguments(format!("{name}: the arguments must be an object")))?;
    let Some(wanted) = arguments.remove(ACTION) else {
        return Err(ToolError::arguments(format!(
            "{name}: action is missing; write one of {}",
            all()
        )));
    };
    let Ok(wanted) = serde_json::from_str::<String>(wanted.get()) else {
        return Err(ToolError::arguments(format!(
            "{name}: action must be a string; write one of {}",
            all()
        )));
    };
    let Some(at) = operations.iter().position(|tool| action(tool) == wanted) else {
        let wanted: String = wanted.chars().take(64).collect();
        return Err(ToolError::arguments(format!(
            "{name}: there is no action \"{wanted}\"; write one of {}",
            all()
        )));
    };
    arguments.retain(|argument, _| {
        let knows = |tool: &&Tool| properties_of(tool).any(|(name, _)| name == argument);
        is_open(operations[at]) || knows(&operations[at]) || !operations.iter().any(knows)
    });
    if is_data(operations[at]) {
        // R-C-204: compact, unless asked otherwise.
        arguments
            .entry(view::FORMAT.to_owned())
            .or_insert(&MARKDOWN);
    }
    serde_json::value::to_raw_value(&arguments)
        .map(|own| (at, own))
        .map_err(|_| ToolError::arguments(format!("{name}: the arguments cannot be read")))
}

#[cfg(test)]
mod tests {
    use crate::tool::Group;

    use super::*;

    fn operation(name: &'static str, action: &'static str, properties: Value) -> Tool {
        Tool {
            name: name.into(),
            title: name.into(),
            description: format!("What {action} does.\n\nMore of it.").into(),
            input_schema:
                json!({"type": "object", "properties": properties, "additionalProperties": false})
                    .as_object()
                    .cloned()
                    .unwrap(),
            effect: Effect::Reads,
            served: Served::Always,
            group: Some(Group {
                name: "shop_read".into(),
                title: "Shop".into(),
                description: "Looks into the shop.".into(),
                action: action.into(),
            }),
            interactive: false,
            origin: None,
        }
    }

    fn shop() -> [Tool; 3] {
        let id = json!({"type": "string", "description": "Id of the order."});
        [
            operation("shop_get", "get", json!({"id": id})),
            operation("shop_list", "list", json!({"limit": {"type": "integer"}})),
            operation(
                "shop_find",
                "find",
                json!({"id": id, "limit": {"type": "string"}}),
            ),
        ]
    }

    // R-C-161, R-C-170, R-C-202
    #[test]
    fn a_group_has_its_operations_arguments_and_an_action() {
        let shop = shop();
        let tool = merge(&shop.each_ref());
        assert_eq!(tool.name, "shop_read");
        assert_eq!(
            tool.description,
            "Looks into the shop.\n\nActions:\n- get (shop_get): What get does.\n- list (shop_list): What list does.\n- find (shop_find): What find does."
        );
        let expected = json!({
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["get", "list", "find"], "description": "What to do; each action takes its own arguments."},
                "id": {"type": "string", "description": "Of get, find. Id of the order."},
                "limit": {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": "Of list, find."},
            },
            "required": ["action"],
            "additionalProperties": false,
        });
        assert_eq!(Value::Object(tool.input_schema), expected);
    }

    #[test]
    fn an_action_that_takes_any_argument_gets_what_its_siblings_name() {
        let mut shop = shop();
        shop[1]
            .input_schema
            .insert("additionalProperties".to_owned(), json!({}));
        check_in(
            &shop,
            json!({"action": "list", "limit": 3, "id": "7", "other": 1}),
            Ok((1, json!({"limit": 3, "id": "7", "other": 1}))),
        );
    }

    #[track_caller]
    fn check(arguments: Value, expected: Result<(usize, Value), &str>) {
        check_in(&shop(), arguments, expected);
    }

    #[track_caller]
    fn check_in(shop: &[Tool; 3], arguments: Value, expected: Result<(usize, Value), &str>) {
        let raw = serde_json::value::to_raw_value(&arguments).unwrap();
        match (pick("shop_read", &shop.each_ref(), &raw), expected) {
            (Ok((at, own)), Ok((expected_at, expected))) => {
                let own: Value = serde_json::from_str(own.get()).unwrap();
                assert_eq!((at, own), (expected_at, expected));
            }
            (Err(error), Err(words)) => assert!(error.message.contains(words), "{error}"),
            (picked, expected) => panic!("{picked:?} instead of {expected:?}"),
        }
    }

    // R-C-177
    #[test]
    fn only_the_picked_actions_arguments_are_passed_on() {
        check(
            json!({"action": "get", "id": "7", "limit": 3}),
            Ok((0, json!({"id": "7"}))),
        );
        check(
            json!({"action": "find", "id": "7", "limit": "3"}),
            Ok((2, json!({"id": "7", "limit": "3"}))),
        );
        check(
            json!({"action": "list", "page": 2}),
            Ok((1, json!({"page": 2}))),
        );
        check(
            json!({"id": "7"}),
            Err("shop_read: action is missing; write one of get, list, find"),
        );
        check(json!({"action": 7}), Err("action must be a string"));
        check(
            json!({"action": "drop"}),
            Err("there is no action \"drop\"; write one of get, list, find"),
        );
    }
}
