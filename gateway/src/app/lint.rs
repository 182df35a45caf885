//! `chandlery lint`: what the API server and the operator would say of manifests, without either.

use std::path::PathBuf;
use std::process::ExitCode;

/// Files or folders to check.
#[derive(clap::Args)]
pub(super) struct Args {
    /// A manifest, or a folder of them. May be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
}

/// To be written.
pub(super) fn run(args: Args) -> ExitCode {
    let _ = args.files;
    ExitCode::FAILURE
}
