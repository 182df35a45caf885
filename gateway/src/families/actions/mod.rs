//! Tools that hold several actions: `{"action": "<name>", "payload": {...}}`.
//!
//! One registry per tool says which fields an action takes; it decodes payloads, and help is printed from it.

mod help;
pub(crate) mod payload;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::tool::{Effect, Operation, Served, Switch, Tool, ToolError};
pub(crate) use payload::{Field, Payload, one_of, payload};

/// A tool and its actions; `A` is the family's enum of decoded calls.
pub(crate) struct ActionTool<A> {
    reference: Reference,
    decoders: Vec<Decoder<A>>,
}

type Decoder<A> = Box<dyn Fn(&str, Map<String, Value>) -> Result<A, ToolError> + Send + Sync>;

/// What there is to say about a tool.
pub(crate) struct Reference {
    tool: &'static str,
    title: &'static str,
    purpose: &'static str,
    /// What an agent should know before its first call.
    notes: &'static str,
    actions: Vec<Action>,
}

/// One action of a tool.
pub(crate) struct Action {
    pub(crate) name: &'static str,
    pub(crate) effect: Effect,
    /// One line.
    pub(crate) description: &'static str,
    /// A payload that works, as JSON; empty when the example needs none.
    pub(crate) example: &'static str,
    fields: &'static [Field],
}

/// A decoded call.
#[derive(Debug)]
pub(crate) enum Decoded<A> {
    Action(A),
    /// The text that answers the `help` action.
    Help(String),
}

payload! {
    Help {
        topic: Option<String> = "topic", "Name of the action to explain. Leave it out for the list of actions.";
    }
}

impl<A: 'static> ActionTool<A> {
    pub(crate) fn new(
        tool: &'static str,
        title: &'static str,
        purpose: &'static str,
        notes: &'static str,
    ) -> Self {
        Self {
            reference: Reference {
                tool,
                title,
                purpose,
                notes,
                actions: Vec::new(),
            },
            decoders: Vec::new(),
        }
    }

    /// Adds an action whose payload is `P`; `make` is the variant of `A` that holds it.
    pub(crate) fn action<P: Payload>(
        mut self,
        name: &'static str,
        effect: Effect,
        description: &'static str,
        example: &'static str,
        make: fn(P) -> A,
    ) -> Self {
        self.reference.actions.push(Action {
            name,
            effect,
            description,
            example,
            fields: P::FIELDS,
        });
        self.decoders.push(Box::new(move |full_name, payload| {
            payload::decode(full_name, payload).map(make)
        }));
        self
    }

    /// The tool as it is listed. The schema leaves room for flat calls; the payload is checked by [`Self::decode`].
    pub(crate) fn tool(&self) -> Tool {
        self.reference.listed()
    }

    /// Which action a call names, without looking at the rest of it.
    pub(crate) fn operation(&self, arguments: &RawValue) -> Operation {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            action: Cow<'a, str>,
        }
        let tool = self.reference.tool;
        let named = serde_json::from_str::<Named<'_>>(arguments.get());
        let action = named.as_ref().map_or("", |named| &named.action);
        if action == HELP {
            return Operation {
                name: format!("{tool}.{HELP}").into(),
                effect: Effect::Reads,
            };
        }
        match self.reference.find(action) {
            Some((_, action)) => Operation {
                name: format!("{tool}.{}", action.name).into(),
                effect: action.effect,
            },
            // It will be refused.
            None => Operation {
                name: tool.into(),
                effect: Effect::Reads,
            },
        }
    }

    /// Decodes a call strictly; what is wrong is told with the action and the field.
    pub(crate) fn decode(&self, arguments: &RawValue) -> Result<Decoded<A>, ToolError> {
        let (name, payload) = self.reference.split(arguments)?;
        if name == HELP {
            return self.reference.help(payload).map(Decoded::Help);
        }
        let Some((at, action)) = self.reference.find(&name) else {
            return Err(self.reference.unknown(&name));
        };
        let full_name = format!("{}.{}", self.reference.tool, action.name);
        self.decoders[at](&full_name, payload).map(Decoded::Action)
    }
}

/// Every tool has this action.
const HELP: &str = "help";

impl Reference {
    fn find(&self, name: &str) -> Option<(usize, &Action)> {
        let actions = self.actions.iter().enumerate();
        actions.into_iter().find(|(_, action)| action.name == name)
    }

    /// The names of the actions, `help` last.
    fn names(&self) -> Vec<&'static str> {
        let names = self.actions.iter().map(|action| action.name);
        names.chain([HELP]).collect()
    }

    fn listed(&self) -> Tool {
        let tool = self.tool;
        let schema = json!({
            "type": "object",
            "properties": {
                "action": {
                    "type": "string",
                    "enum": self.names(),
                    "description": "What to do."
                },
                "payload": {
                    "type": "object",
                    "description": format!(
                        "The action's fields. {{\"action\": \"help\", \"payload\": {{\"topic\": \"<action>\"}}}} lists them."
                    )
                }
            },
            "required": ["action"]
        });
        let mut description = format!("{}\n\n{}", self.purpose, self.list_of_actions());
        if !self.notes.is_empty() {
            description.push_str("\n\n");
            description.push_str(self.notes);
        }
        Tool {
            name: tool.into(),
            title: self.title.into(),
            description: description.into(),
            input_schema: schema.as_object().cloned().unwrap_or_default(),
            effect: self.effect(),
            served: Served::Switch(Switch::WorkspaceTools),
            group: None,
            interactive: false,
            origin: None,
        }
    }

    /// The strongest effect of any action; idempotent when all that write are.
    fn effect(&self) -> Effect {
        self.actions
            .iter()
            .fold(Effect::Reads, |all, action| all.strongest(action.effect))
    }

    /// The action's name and its payload. Fields next to `action` are moved into the payload.
    fn split(&self, arguments: &RawValue) -> Result<(String, Map<String, Value>), ToolError> {
        let tool = self.tool;
        let wrong = |message: String| ToolError::arguments(format!("{tool}: {message}"));
        let mut arguments: Map<String, Value> = serde_json::from_str(arguments.get())
            .map_err(|error| wrong(format!("the arguments are not a JSON object: {error}")))?;
        let name = match arguments.remove("action") {
            Some(Value::String(name)) => name,
            Some(other) => {
                return Err(wrong(format!(
                    "action must be a string, not {}; write one of {}",
                    payload::kind_of(&other),
                    self.names().join(", ")
                )));
            }
            None => {
                return Err(wrong(format!(
                    "action is missing; write {{\"action\": \"<action>\", \"payload\": {{...}}}} with one of {}",
                    self.names().join(", ")
                )));
            }
        };
        let mut payload = match arguments.remove("payload") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(payload)) => payload,
            Some(other) => {
                return Err(wrong(format!(
                    "the payload of {name} must be an object, not {}",
                    payload::kind_of(&other)
                )));
            }
        };
        for (field, value) in arguments {
            let twice = payload.get(&field).is_some_and(|inside| *inside != value);
            if twice {
                return Err(ToolError::arguments(format!(
                    "{tool}.{name}: {field} stands next to action and in payload with different values; keep the one in payload"
                )));
            }
            payload.insert(field, value);
        }
        Ok((name, payload))
    }

    fn unknown(&self, name: &str) -> ToolError {
        let names = self.names();
        let tool = self.tool;
        let meant = nearest(tool, name, &names)
            .map(|near| format!(" Did you mean {near}?"))
            .unwrap_or_default();
        let name: String = name.chars().take(64).collect();
        ToolError::arguments(format!(
            "{tool}: there is no action \"{name}\".{meant} The actions are {}.",
            names.join(", ")
        ))
    }

    fn help(&self, payload: Map<String, Value>) -> Result<String, ToolError> {
        let full_name = format!("{}.{HELP}", self.tool);
        let Help { topic } = payload::decode(&full_name, payload)?;
        let topic = topic.as_deref().unwrap_or(HELP);
        let prefix = format!("{}.", self.tool);
        match topic.strip_prefix(&prefix).unwrap_or(topic) {
            HELP => Ok(self.list_of_actions()),
            topic => match self.find(topic) {
                Some((_, action)) => Ok(self.explain(action)),
                None => Err(self.unknown(topic)),
            },
        }
    }
}

/// The name that the caller may have meant: the same but for case and separators, or a slip or two away.
fn nearest<'a>(tool: &str, name: &str, names: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| -> Vec<char> {
        let kept = text.chars().filter(|c| c.is_alphanumeric()).take(64);
        kept.flat_map(char::to_lowercase).collect()
    };
    let wanted = plain(name);
    let bare = plain(&name.to_lowercase().replace(tool, ""));
    let distance = |candidate: &str| {
        let candidate = plain(candidate);
        slips(&wanted, &candidate).min(slips(&bare, &candidate))
    };
    let (distance, near) = names.iter().map(|near| (distance(near), *near)).min()?;
    (distance <= 2 && distance < near.len()).then_some(near)
}

/// How many characters must be added, dropped or replaced to make one of the other.
fn slips(one: &[char], other: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let replaced = corner + usize::from(a != b);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

/// The arguments of a call under an older, single-purpose name, as those of the action that took its place.
pub(crate) fn as_payload_of(action: &str, arguments: &RawValue) -> Box<RawValue> {
    let wrapped = format!(
        "{{\"action\":\"{action}\",\"payload\":{}}}",
        arguments.get()
    );
    #[expect(clippy::expect_used, reason = "JSON in an object is JSON")]
    RawValue::from_string(wrapped).expect("an object")
}
