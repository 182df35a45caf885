//! What `chandlery import` is told, and the credential that it is told of.

use chandlery_crds::AuthSpec;
use chandlery_crds::fields::{SecretKeyRef, SecretSource};
use chandlery_crds::tool_source::HeaderAuth;
use secrecy::SecretSlice;

#[derive(clap::Subcommand)]
pub(in crate::app) enum Command {
    /// From an OpenAPI document.
    Openapi(OpenapiArgs),
    /// From a remote MCP server, which is asked what it offers.
    Mcp(McpArgs),
}

#[derive(clap::Args)]
pub(in crate::app) struct OpenapiArgs {
    /// The document: a URL, a file, or `-` for standard input.
    #[arg(value_name = "URL|FILE")]
    pub(super) document: String,
    /// Where the service listens. Default: the first server that the document names.
    #[arg(long, value_name = "URL")]
    pub(super) base_url: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(clap::Args)]
pub(in crate::app) struct McpArgs {
    /// Where the server listens (Streamable HTTP).
    pub(super) url: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// What both kinds are told.
#[derive(clap::Args)]
pub(in crate::app) struct Common {
    /// Name of the ToolSource. Default: one made from the document's title or the server's host.
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Namespace of all of it. Default: none is written.
    #[arg(long)]
    pub(super) namespace: Option<String>,
    /// The Workspace whose agents the grant is about.
    #[arg(long, value_name = "NAME", default_value = "team")]
    pub(super) workspace: String,
    /// An agent that is granted the tools. May be repeated.
    #[arg(long = "agent", value_name = "NAME", default_value = "my-agent")]
    pub(super) agents: Vec<String>,
    /// A private or in-cluster host that may be asked, as `allowedHosts` has it. May be repeated.
    #[arg(long = "allow-host", value_name = "HOST")]
    pub(super) allowed_hosts: Vec<String>,
    /// Send the value of this environment variable as a bearer token.
    #[arg(
        long,
        value_name = "VARIABLE",
        conflicts_with = "header_from_env",
        value_parser = named_variable
    )]
    bearer_from_env: Option<String>,
    /// Send the value of an environment variable in a header.
    #[arg(long, value_name = "HEADER=VARIABLE", value_parser = header_variable)]
    header_from_env: Option<(String, String)>,
}

/// A credential that is sent while importing.
pub(super) struct Sent {
    pub(super) auth: AuthSpec,
    /// Of its Secret.
    pub(super) key: &'static str,
    pub(super) value: SecretSlice<u8>,
}

impl Common {
    /// The credential that goes along.
    pub(super) fn credential(&self, name: &str) -> Result<Option<Sent>, String> {
        let reference = |key: &str| SecretKeyRef {
            name: name.to_owned(),
            key: key.to_owned(),
        };
        let value = |variable: &str| match std::env::var(variable) {
            Ok(value) if !value.trim().is_empty() => {
                Ok(SecretSlice::from(value.trim().as_bytes().to_vec()))
            }
            _ => Err(format!("the environment variable {variable} holds nothing")),
        };
        if let Some(variable) = &self.bearer_from_env {
            let auth = AuthSpec {
                bearer: Some(SecretSource {
                    secret_key_ref: reference("token"),
                }),
                ..AuthSpec::default()
            };
            return Ok(Some(Sent {
                auth,
                key: "token",
                value: value(variable)?,
            }));
        }
        let Some((header, variable)) = &self.header_from_env else {
            return Ok(None);
        };
        let auth = AuthSpec {
            header: Some(HeaderAuth {
                name: header.clone(),
                secret_key_ref: reference("key"),
            }),
            ..AuthSpec::default()
        };
        Ok(Some(Sent {
            auth,
            key: "key",
            value: value(variable)?,
        }))
    }
}

fn named_variable(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match !text.is_empty() && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err("write the name of an environment variable, not its value".to_owned()),
    }
}

fn header_variable(text: &str) -> Result<(String, String), String> {
    let (header, variable) = text
        .split_once('=')
        .ok_or("write HEADER=VARIABLE, such as X-Api-Key=CRM_KEY")?;
    Ok((header.to_owned(), named_variable(variable)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_not_taken_for_the_name_of_a_variable() {
        assert!(named_variable("CRM_TOKEN").is_ok());
        assert!(named_variable("sk-live-123").is_err());
        assert!(header_variable("X-Api-Key=CRM").is_ok());
        assert!(header_variable("CRM").is_err());
    }
}
