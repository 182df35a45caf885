//! `chandlery audit verify`: whether the record of calls is what was written.

use std::path::PathBuf;
use std::process::ExitCode;

use chandlery_crds::names::{self, gateway_secret};
use secrecy::SecretString;

use super::cli::{fail, note, print};
use crate::audit::{Noted, verify};
use crate::directory::chain;
use crate::store::StoreUrl;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Check every row against the account's key: none was changed, taken out, put in or moved.
    Verify(VerifyArgs),
}

#[derive(clap::Args)]
pub(super) struct VerifyArgs {
    /// Folder of the SQLite store. It is only read, and the gateway may go on meanwhile.
    #[arg(long, value_name = "DIR", default_value = super::settings::DATA)]
    data: PathBuf,
    /// URL of a PostgreSQL store, instead of SQLite.
    #[arg(long, value_name = "URL", env = names::STORE_URL_ENV, hide_env_values = true)]
    store: Option<SecretString>,
    /// Folder of the account's own keys. Default: the data folder.
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// A head that the log told earlier, as <WORKSPACE>=<SEQ>:<MAC>: shows whether the chain was cut off or replaced as
    /// a whole. May be repeated.
    #[arg(long = "head", value_name = "HEAD", value_parser = head)]
    heads: Vec<Noted>,
}

fn head(text: &str) -> Result<Noted, String> {
    let parse = || {
        let (workspace, noted) = text.split_once('=')?;
        let (seq, mac) = noted.split_once(':')?;
        let is_hex = mac.len() == 64 && mac.bytes().all(|byte| byte.is_ascii_hexdigit());
        let seq = seq.parse().ok().filter(|seq| *seq >= 0)?;
        is_hex.then(|| Noted {
            workspace: workspace.to_owned(),
            seq,
            mac: mac.to_ascii_lowercase(),
        })
    };
    parse().ok_or_else(|| {
        "write <workspace>=<seq>:<mac>, as the log line \"audit chain head\" has them".to_owned()
    })
}

pub(super) fn run(command: Command) -> ExitCode {
    let Command::Verify(args) = command;
    let url = match args.store {
        Some(url) => StoreUrl::Postgres(url),
        None => StoreUrl::Sqlite(args.data.clone()),
    };
    let keys = args.keys.unwrap_or(args.data);
    // Byte for byte as the gateway reads it.
    let file = keys.join(gateway_secret::AUDIT_KEY);
    let key = match std::fs::read_to_string(&file) {
        Ok(key) => SecretString::from(key),
        Err(error) => {
            return fail(format_args!(
                "read {}: {error}; write --keys with the folder of the account's keys, or --data with the gateway's data folder",
                file.display()
            ));
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let verdicts = match runtime {
        Ok(runtime) => runtime.block_on(verify(&url, &key, &args.heads)),
        Err(error) => return fail(format_args!("start: {error}")),
    };
    let verdicts = match verdicts {
        Ok(verdicts) => verdicts,
        Err(error) => return fail(chain(&error)),
    };
    if verdicts.is_empty() {
        note("there are no rows yet");
    }
    let mut code = ExitCode::SUCCESS;
    for verdict in verdicts {
        let line = match &verdict.flaw {
            None => format!(
                "{}: {} rows, sound; head {}:{}",
                verdict.workspace, verdict.sound, verdict.sound, verdict.mac
            ),
            Some(flaw) => {
                code = ExitCode::FAILURE;
                format!(
                    "{}: {} rows are sound, then: {flaw}",
                    verdict.workspace, verdict.sound
                )
            }
        };
        if print(line) != ExitCode::SUCCESS {
            return ExitCode::FAILURE;
        }
    }
    code
}
