//! `chandlery import`: a ToolSource and a ToolGrant for what is there, written to be looked at and changed.

mod args;
mod held;
mod names;
mod write;

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chandlery_crds::conditions::reason;
use chandlery_crds::fields::ConfigMapKeyRef;
use chandlery_crds::tool_source::{McpSpec, OpenapiSpec};
use chandlery_crds::{PinningSpec, ToolSourceSpec, manifest};
use jiff::Timestamp;
use tokio::time::timeout;
use url::Url;

pub(super) use self::args::Command;
use self::args::{Common, Sent};
use self::held::Held;
use self::names::{of_host, slug};
use self::write::{Draft, write};
use super::cli::{fail, print, usage};
use crate::connector::{Connector, Failure};
use crate::directory::ToolSource;
use crate::families::connect::Connectors;
use crate::families::openapi;
use crate::outbound::{self, Outbound};
use crate::sources::{self, Look};
use crate::usage::Usage;

/// How long what is imported may take to be had.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a document that a ConfigMap has room for, beside what else it holds.
const ROOM: usize = 1_000_000;

pub(super) fn run(command: Command) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(format_args!("start: {error}")),
    };
    let (what, common) = match command {
        Command::Openapi(args) => {
            if let Some(wrong) = args.base_url.as_deref().and_then(wrong_url) {
                return usage(format_args!("--base-url: {wrong}"));
            }
            match Document::find(args.document) {
                Ok(document) => (What::Openapi(document, args.base_url), args.common),
                Err(error) => return usage(error),
            }
        }
        Command::Mcp(args) => match wrong_url(&args.url) {
            Some(wrong) => return usage(format_args!("{}: {wrong}", args.url)),
            None => (What::Mcp(args.url), args.common),
        },
    };
    match runtime.block_on(import(what, common)) {
        Ok(text) => print(text.trim_end()),
        Err(error) => fail(error),
    }
}

/// What is imported.
enum What {
    /// A document, and where its service listens.
    Openapi(Document, Option<String>),
    /// An MCP server's URL.
    Mcp(String),
}

enum Document {
    At(String),
    Text(String),
}

impl Document {
    fn find(from: String) -> Result<Self, String> {
        if from.contains("://") {
            return match wrong_url(&from) {
                Some(wrong) => Err(format!("{from}: {wrong}")),
                None => Ok(Self::At(from)),
            };
        }
        let mut text = String::new();
        let read = if from == "-" {
            std::io::stdin().read_to_string(&mut text).map(drop)
        } else {
            std::fs::read_to_string(Path::new(&from)).map(|read| text = read)
        };
        read.map_err(|error| format!("read {from}: {error}"))?;
        if text.len() > ROOM {
            return Err(format!(
                "{from} has {} bytes, and a ConfigMap has room for {ROOM}: put the document where it can be fetched, and import its URL",
                text.len()
            ));
        }
        Ok(Self::Text(text))
    }
}

async fn import(what: What, common: Common) -> Result<String, String> {
    let mut spec = ToolSourceSpec {
        allowed_hosts: common.allowed_hosts.clone(),
        ..ToolSourceSpec::default()
    };
    let mut held = Held::default();
    let is_document = matches!(what, What::Openapi(..));
    let name = common.name.clone();
    let mut name = name.unwrap_or_else(|| match &what {
        What::Openapi(Document::At(url), _) | What::Mcp(url) => of_host(url),
        What::Openapi(Document::Text(_), _) => "service".to_owned(),
    });
    match what {
        What::Openapi(document, base_url) => {
            let mut openapi = OpenapiSpec {
                base_url,
                ..OpenapiSpec::default()
            };
            match document {
                Document::At(url) => openapi.url = Some(url),
                Document::Text(text) => {
                    let key = file_name(&text).to_owned();
                    let map = format!("{name}-openapi");
                    held.config_map.insert(key.clone(), text);
                    openapi.config_map_key_ref = Some(ConfigMapKeyRef { name: map, key });
                }
            }
            spec.openapi = Some(openapi);
        }
        What::Mcp(url) => spec.mcp = Some(McpSpec { url }),
    }
    let sent = common.credential(&name)?;
    if let Some(Sent { auth, key, value }) = &sent {
        spec.auth = Some(auth.clone());
        held.secret.insert((*key).to_owned(), value.clone());
    }
    let document = held.config_map.clone();
    let outbound = Outbound::new(outbound::Settings::default());
    let connectors = Connectors {
        outbound: outbound.map_err(|error| error.to_string())?,
        references: Arc::new(held),
        usage: Usage::nowhere(),
    };
    let asked = with_base(&spec);
    let answer = fetch(&connectors, &name, &asked).await.map_err(told)?;
    if is_document {
        let offer = openapi::offer(&name, &without_auth(&spec), &answer).map_err(told)?;
        if common.name.is_none() && !offer.document.title.is_empty() {
            name = slug(&offer.document.title);
        }
        let is_sent = sent.is_some();
        spec.auth = match sent {
            // Its Secret is named like the source, which has its name only now.
            Some(_) => common.credential(&name)?.map(|sent| sent.auth),
            None => {
                let suggested = openapi::suggested_auth(&answer, &name);
                suggested.map_err(|error| error.to_string())?
            }
        };
        let openapi = spec.openapi.get_or_insert_default();
        if let Some(reference) = &mut openapi.config_map_key_ref {
            reference.name = format!("{name}-openapi");
        }
        let is_elsewhere =
            |url: &String| Url::parse(url).is_ok_and(|from| from.origin() != offer.base.origin());
        // A credential goes nowhere that a document alone has named, and to a document only where the service is said
        // to be.
        let is_elsewhere = openapi.url.as_ref().is_some_and(is_elsewhere);
        if spec.auth.is_some() && (is_elsewhere || is_sent && openapi.url.is_some()) {
            openapi.base_url.get_or_insert(offer.base.to_string());
        }
    }
    let look = look(&connectors, &name, &spec, &answer)
        .await
        .map_err(told)?;
    if look.tools.is_empty() {
        let first = look.left_out.first();
        let why = first.map_or_else(String::new, |noted| {
            format!(": {} is left out, since {}", noted.name, noted.message)
        });
        return Err(format!("nothing that it offers can be a tool{why}"));
    }
    spec.pinning = Some(PinningSpec {
        approved_revision: Some(look.revision.clone()),
        ..PinningSpec::default()
    });
    let draft = Draft {
        name,
        namespace: common.namespace,
        workspace: common.workspace,
        agents: common.agents,
        spec,
        document: document.into_iter().next(),
        look,
    };
    let text = write(&draft).map_err(|error| format!("write the manifests: {error}"))?;
    match manifest::read("import", &text).problems.first() {
        None => Ok(text),
        Some(problem) => Err(format!("what was found cannot be written: {problem}")),
    }
}

async fn connect(
    connectors: &Connectors,
    name: &str,
    spec: &ToolSourceSpec,
) -> Result<Arc<dyn Connector>, Failure> {
    let source = ToolSource {
        uid: String::new(),
        generation: 1,
        created_at: None::<Timestamp>,
        spec: spec.clone(),
    };
    connectors
        .connect(&format!("default.{name}"), &source)
        .await
}

async fn fetch(
    connectors: &Connectors,
    name: &str,
    spec: &ToolSourceSpec,
) -> Result<Bytes, Failure> {
    let connector = connect(connectors, name, spec).await?;
    let answer = timeout(PATIENCE, connector.fetch()).await;
    answer.unwrap_or_else(|_| {
        let message = "it did not say within a minute what it offers";
        Err(Failure::new(reason::UNREACHABLE, message))
    })
}

async fn look(
    connectors: &Connectors,
    name: &str,
    spec: &ToolSourceSpec,
    answer: &Bytes,
) -> Result<Look, Failure> {
    let connector = connect(connectors, name, spec).await?;
    sources::look(&*connector, answer)
}

/// What went wrong, in the words of who is at a terminal.
fn told(failure: Failure) -> String {
    let message = match failure.reason {
        reason::CREDENTIAL_REFUSED => format!(
            "{}; --bearer-from-env and --header-from-env send a credential",
            failure.message
        ),
        _ => failure.message,
    };
    message
        .replace("under allowedHosts of the ToolSource", "with --allow-host")
        .replace("write spec.openapi.baseUrl", "write --base-url")
}

/// With the document's own place for the service's, where nobody said another: whoever gives a credential along with a URL
/// means it for there.
fn with_base(spec: &ToolSourceSpec) -> ToolSourceSpec {
    let mut spec = spec.clone();
    if let Some(openapi) = &mut spec.openapi
        && openapi.base_url.is_none()
    {
        openapi.base_url.clone_from(&openapi.url);
    }
    spec
}

fn without_auth(spec: &ToolSourceSpec) -> ToolSourceSpec {
    ToolSourceSpec {
        auth: None,
        ..spec.clone()
    }
}

fn wrong_url(text: &str) -> Option<String> {
    outbound::parse(text)
        .err()
        .map(|blocked| blocked.to_string())
}

/// The key under which a ConfigMap holds the document.
fn file_name(text: &str) -> &'static str {
    match text.trim_start().starts_with('{') {
        true => "openapi.json",
        false => "openapi.yaml",
    }
}
