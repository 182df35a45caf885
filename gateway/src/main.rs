//! `chandlery`: the gateway and its command line.

use std::process::ExitCode;

/// Gives memory back soon after sessions close; its settings are compiled in (`.cargo/config.toml`).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    chandlery_gateway::app::main()
}
