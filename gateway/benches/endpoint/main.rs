//! Measures an agent's endpoint against a bare axum echo server: `make bench`.
//!
//! The gateway is the real program with key check, gate and audit on. It and the echo server run on one core, the load
//! on another, so that a ratio says what the gateway costs. Three rounds; the medians are printed, and a bar that is
//! missed ends the program with an error. `cargo bench -p chandlery-gateway --bench endpoint -- memory` measures that
//! alone, and so do `rates` and `proxy`: calls that go on to an MCP server, against a bare proxy.

#![expect(clippy::print_stdout, reason = "a bench prints")]

mod echo;
mod gateway;
mod load;
mod proxy;
mod report;

use std::process::ExitCode;

/// The core of whatever is measured.
const SERVER_CORE: &str = "1";
/// The core of the load.
const LOAD_CORE: &str = "0";
const ROUNDS: usize = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("echo") => echo::serve(),
        Some("upstream") => proxy::upstream(),
        Some("raw-proxy") => proxy::raw_proxy(arguments.get(1).map_or("", String::as_str)),
        Some("load") => report::measure(&arguments[1..]),
        // `cargo bench` adds flags of its own.
        _ => report::start(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
