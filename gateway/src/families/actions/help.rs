//! The texts of the `help` action, printed from the registry that decodes.

use std::fmt::Write as _;

use super::payload::Field;
use super::{Action, HELP, Reference};

impl Reference {
    /// One line per action.
    pub(super) fn list_of_actions(&self) -> String {
        let mut text = format!(
            "Usage: {} {{\"action\": \"<action>\", \"payload\": {{...}}}}\n\nActions:",
            self.tool
        );
        let help = "This list; with payload {\"topic\": \"<action>\"}, what that action takes.";
        let lines = self
            .actions
            .iter()
            .map(|action| (action.name, action.description));
        for (name, description) in lines.chain([(HELP, help)]) {
            // Writing to a String can't fail.
            let _ = write!(text, "\n  {name:<20} {description}");
        }
        text
    }

    /// An action's payload and an example.
    pub(super) fn explain(&self, action: &Action) -> String {
        let tool = self.tool;
        let mut text = usage(tool, action.name, action.fields);
        let _ = write!(text, "\n\n{}", action.description);
        for (heading, required) in [("Required", true), ("Optional", false)] {
            let mut fields = action
                .fields
                .iter()
                .filter(|field| field.required == required)
                .peekable();
            if fields.peek().is_some() {
                let _ = write!(text, "\n\n{heading}:");
            }
            for field in fields {
                let kind = field.kind.name();
                let _ = write!(
                    text,
                    "\n  {:<20} {kind:<8} {}",
                    field.name, field.description
                );
            }
        }
        let payload = match action.example {
            "" => String::new(),
            example => format!(", \"payload\": {example}"),
        };
        let _ = write!(
            text,
            "\n\nExample:\n  {tool} {{\"action\": \"{}\"{payload}}}",
            action.name
        );
        text
    }
}

fn usage(tool: &str, action: &str, fields: &[Field]) -> String {
    let mut parts: Vec<String> = fields
        .iter()
        .filter(|field| field.required)
        .map(|field| format!("\"{}\": <{}>", field.name, field.kind.name()))
        .collect();
    if fields.iter().any(|field| !field.required) {
        parts.push("...".to_owned());
    }
    let payload = match parts.as_slice() {
        [] => String::new(),
        parts => format!(", \"payload\": {{{}}}", parts.join(", ")),
    };
    format!("Usage: {tool} {{\"action\": \"{action}\"{payload}}}")
}
