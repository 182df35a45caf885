//! Log lines on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use super::settings::LogFormat;

/// rmcp says something of every request at `info`.
const QUIETED: &str = "rmcp=error";

/// Starts logging; `levels` are directives such as `info` or `chandlery_gateway=debug`.
pub(super) fn start(format: LogFormat, levels: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(format!("{levels},{QUIETED}"))
        .map_err(|error| format!("--log {levels}: {error}"))?;
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .try_init()
        .map_err(|error| error.to_string())
}
