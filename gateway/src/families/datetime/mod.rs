//! `agnt_datetime_now`: the real current date and time (R-C-071).

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;

use crate::families::Entry;
use crate::family::{Call, Family};
use crate::gate::Permit;
use crate::store::Clock;
use crate::tool::{Effect, Output, Served, Tool, ToolError};

pub struct Datetime {
    clock: Clock,
}

impl Datetime {
    pub fn new(clock: Clock) -> Self {
        Self { clock }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    timezone: Option<String>,
}

/// The line that `families/mod.rs` has of this family.
pub const FAMILY: Entry = Entry {
    tools,
    make: |store| Arc::new(Datetime::new(store.clock())),
};

fn tools() -> Vec<Tool> {
    let schema = json!({
        "type": "object",
        "properties": {
            "timezone": {"type": "string", "description": "IANA time zone such as Europe/Berlin. Default: UTC."}
        },
        "additionalProperties": false
    });
    vec![Tool {
        name: "agnt_datetime_now".into(),
        title: "Current date and time".into(),
        description: "The real current date and time. Call it instead of guessing what day it is."
            .into(),
        input_schema: schema.as_object().cloned().unwrap_or_default(),
        effect: Effect::Reads,
        served: Served::Always,
        interactive: false,
    }]
}

impl Family for Datetime {
    fn tools(&self) -> Vec<Tool> {
        tools()
    }

    fn call<'a>(
        &'a self,
        _permit: &'a Permit<'a>,
        call: Call<'a>,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        Box::pin(async move {
            let arguments: Arguments = serde_json::from_str(call.arguments.get())
                .map_err(|error| ToolError::arguments(format!("agnt_datetime_now: {error}")))?;
            let zone = arguments.timezone.as_deref().unwrap_or("UTC");
            let now = self.clock.now().in_tz(zone).map_err(|_| {
                ToolError::arguments(format!(
                    "agnt_datetime_now: \"{zone}\" is not a time zone; write an IANA name such as Europe/Berlin, or leave timezone out for UTC"
                ))
            })?;
            Ok(Output::Text(
                now.strftime("%Y-%m-%dT%H:%M:%S%:z (%A, %Q)").to_string(),
            ))
        })
    }
}
