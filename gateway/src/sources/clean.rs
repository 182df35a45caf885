//! What of a tool an agent reads, made fit to be read: nothing hidden, and nothing endless.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::connector::visible;
use crate::tool::Tool;

/// Characters of a description.
const DESCRIPTION: usize = 16_000;
/// Characters of a description within a schema.
const OF_ARGUMENT: usize = 2_000;

/// Takes hidden characters out of a tool and cuts texts that are too long; whether anything was hidden.
pub(super) fn tool(tool: &mut Tool) -> bool {
    let mut hidden = text(&mut tool.title, 200);
    hidden |= text(&mut tool.description, DESCRIPTION);
    hidden |= schema(&mut tool.input_schema);
    if let Some(output) = tool
        .origin
        .as_mut()
        .and_then(|origin| origin.output_schema.as_mut())
    {
        hidden |= schema(output);
    }
    if let Some(group) = &mut tool.group {
        hidden |= text(&mut group.description, DESCRIPTION);
    }
    hidden
}

fn text(text: &mut Cow<'static, str>, longest: usize) -> bool {
    let seen = visible(text);
    let hidden = matches!(seen, Cow::Owned(_)) && seen != *text;
    if let Some((end, _)) = seen.char_indices().nth(longest) {
        *text = format!("{}…", &seen[..end]).into();
    } else if hidden {
        *text = seen.into_owned().into();
    }
    hidden
}

/// The texts of a schema, wherever they are.
fn schema(of: &mut Map<String, Value>) -> bool {
    let mut hidden = false;
    for (key, value) in of.iter_mut() {
        match value {
            Value::String(said) if key == "description" || key == "title" => {
                let mut seen = Cow::Owned(std::mem::take(said));
                hidden |= text(&mut seen, OF_ARGUMENT);
                *said = seen.into_owned();
            }
            Value::Object(inner) => hidden |= schema(inner),
            Value::Array(items) => {
                for item in items.iter_mut().filter_map(Value::as_object_mut) {
                    hidden |= schema(item);
                }
            }
            _ => {}
        }
    }
    hidden
}
