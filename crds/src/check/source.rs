//! What a ToolSource refers to: its document, its authorities, its credential and whom that may be shown.

use k8s_openapi::api::core::v1::Secret;

use super::hosts::{AllowedHosts, authority};
use super::{Finding, Held, config_map, is_ours, secret};
use crate::conditions::reason;
use crate::fields::SecretKeyRef;
use crate::{ToolSource, ToolSourceSpec, names};

/// What a ToolSource refers to, as it was found.
pub struct SourceReferences<'a> {
    /// What `spec.openapi.configMapKeyRef` names.
    pub document: Held<'a>,
    /// What `spec.auth` names.
    pub credential: Credential<'a>,
    /// What `spec.tls.caBundle.configMapKeyRef` names.
    pub ca_bundle: Held<'a>,
    /// Whether a Secret has to say which hosts it is for. One that says so is held to it anyway.
    pub requires_hosts: bool,
}

/// The Secret that a source's credential lies in.
#[derive(Clone, Copy, Debug)]
pub enum Credential<'a> {
    /// Nobody looked: only its name is checked.
    Unknown,
    /// There is no such Secret.
    NoObject,
    /// Whatever it holds, it is not for sources: it is where a key lies, or people's tokens.
    Ours,
    Secret(&'a Secret),
}

/// Checks what a ToolSource refers to: its document, its authorities, its credential. Each is ignored when nothing is
/// named.
pub fn tool_source(source: &ToolSource, found: SourceReferences<'_>) -> Vec<Finding> {
    let SourceReferences {
        document,
        credential,
        ca_bundle,
        requires_hosts,
    } = found;
    let spec = &source.spec;
    let mut findings = Vec::new();
    let maps = [
        (
            spec.document_ref(),
            document,
            "spec.openapi.configMapKeyRef",
        ),
        (
            spec.ca_ref(),
            ca_bundle,
            "spec.tls.caBundle.configMapKeyRef",
        ),
    ];
    for (reference, held, field) in maps {
        findings.extend(reference.and_then(|reference| config_map(reference, held, field)));
    }
    let Some((reference, field)) = spec.credential_ref() else {
        return findings;
    };
    let found = match credential {
        _ if names::is_own_secret(&reference.name) => Credential::Ours,
        Credential::Secret(secret) if is_ours(secret) => Credential::Ours,
        found => found,
    };
    let held = match found {
        Credential::Ours => {
            findings.push(not_for_sources(reference, field));
            return findings;
        }
        Credential::Unknown => Held::Unknown,
        Credential::NoObject => Held::NoObject,
        Credential::Secret(secret) => {
            findings.extend(hosts(spec, reference, field, secret, requires_hosts));
            let value = secret
                .data
                .as_ref()
                .and_then(|data| data.get(&reference.key));
            value.map_or(Held::NoKey, |value| Held::Value(&value.0))
        }
    };
    findings.extend(secret(reference, held, field, flaw_of_credential));
    findings
}

fn not_for_sources(reference: &SecretKeyRef, field: &str) -> Finding {
    let name = &reference.name;
    Finding {
        reason: reason::SECRET_INVALID,
        field: field.to_owned(),
        message: format!(
            "Secret {name} is one of Chandlery's own (a key, or people's tokens), or named like one: put the credential into one of yours"
        ),
    }
}

/// Holds a Secret to the hosts that it is for. What the annotation says is not repeated: who writes sources need not be
/// allowed to read Secrets.
fn hosts(
    spec: &ToolSourceSpec,
    reference: &SecretKeyRef,
    field: &str,
    secret: &Secret,
    requires_hosts: bool,
) -> Vec<Finding> {
    let name = &reference.name;
    let annotation = names::ALLOWED_HOSTS_ANNOTATION;
    let finding = |field: &str, message| Finding {
        reason: reason::SECRET_HOST_NOT_ALLOWED,
        field: field.to_owned(),
        message,
    };
    let annotations = secret.metadata.annotations.as_ref();
    let Some(written) = annotations.and_then(|annotations| annotations.get(annotation)) else {
        let message = format!(
            "Secret {name} does not say which hosts it is for, as it has to here: its owner annotates it with {annotation}"
        );
        let missing = requires_hosts.then(|| finding(field, message));
        return missing.into_iter().collect();
    };
    let allowed = AllowedHosts::parse(written);
    let shown_to = shown_to(spec).into_iter();
    shown_to
        .filter(|(url, _)| !allowed.allow(url))
        .map(|(url, field)| {
            let host = authority(url);
            let message = format!(
                "Secret {name} is not for {host}: correct {field}, or have its owner add the host to the annotation {annotation}"
            );
            finding(field, message)
        })
        .collect()
}

/// The URLs that the spec shows the credential to, and where each is written. A document that is read from elsewhere than
/// `baseUrl` is read without it; which servers a document names is not known here.
fn shown_to(spec: &ToolSourceSpec) -> Vec<(&str, &'static str)> {
    let mut urls = Vec::new();
    if let Some(mcp) = &spec.mcp {
        urls.push((mcp.url.as_str(), "spec.mcp.url"));
    }
    if let Some(openapi) = &spec.openapi {
        let base = openapi.base_url.as_deref();
        let document = openapi.url.as_deref();
        let base = base.map(|url| (url, "spec.openapi.baseUrl"));
        urls.extend(base.or(document.map(|url| (url, "spec.openapi.url"))));
    }
    let oauth = spec
        .auth
        .as_ref()
        .and_then(|auth| auth.oauth_client_credentials.as_ref());
    if let Some(oauth) = oauth {
        let field = "spec.auth.oauthClientCredentials.tokenUrl";
        urls.push((oauth.token_url.as_str(), field));
    }
    urls
}

/// What goes into a header may hold no line break; a trailing one is the most common slip.
fn flaw_of_credential(value: &[u8]) -> Option<&'static str> {
    if value.is_empty() {
        return Some("is empty: put the credential there");
    }
    let is_visible = value.iter().all(|byte| (0x20..0x7f).contains(byte));
    (!is_visible).then_some("cannot be sent in a header: write it without a line break, in ASCII")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn annotated(hosts: Option<&str>) -> Secret {
        let annotation = |hosts: &str| {
            BTreeMap::from([(names::ALLOWED_HOSTS_ANNOTATION.to_owned(), hosts.to_owned())])
        };
        let data = [("token".to_owned(), ByteString(b"s3cret".to_vec()))].into();
        Secret {
            data: Some(data),
            metadata: ObjectMeta {
                annotations: hosts.map(annotation),
                ..ObjectMeta::default()
            },
            ..Secret::default()
        }
    }

    #[track_caller]
    fn check(spec: &str, hosts: Option<&str>, requires_hosts: bool, expected: &[&str]) {
        let text = format!(
            "apiVersion: chandlery.dev/v1alpha1\nkind: ToolSource\nmetadata: {{name: crm}}\nspec: {spec}\n"
        );
        let source: ToolSource = serde_saphyr::from_str(&text).unwrap();
        let secret = annotated(hosts);
        let found = SourceReferences {
            document: Held::Unknown,
            credential: Credential::Secret(&secret),
            ca_bundle: Held::Unknown,
            requires_hosts,
        };
        let findings = tool_source(&source, found);
        let said: Vec<String> = findings
            .iter()
            .map(|finding| format!("{} {}: {}", finding.reason, finding.field, finding.message))
            .collect();
        assert_eq!(said, expected);
    }

    const BEARER: &str = "auth: {bearer: {secretKeyRef: {name: s, key: token}}}";

    #[test]
    fn a_secret_that_names_hosts_is_for_them_alone() {
        let mcp = format!("{{mcp: {{url: 'https://crm.example/mcp'}}, {BEARER}}}");
        check(&mcp, Some("crm.example"), false, &[]);
        check(
            &mcp,
            Some("hr.example, *.crm.example"),
            false,
            &[
                "SecretHostNotAllowed spec.mcp.url: Secret s is not for crm.example: correct spec.mcp.url, or have its owner add the host to the annotation chandlery.dev/allowed-hosts",
            ],
        );
        let openapi = format!(
            "{{openapi: {{url: 'https://docs.example/api', baseUrl: 'https://crm.example:8443/v1'}}, {BEARER}}}"
        );
        check(&openapi, Some("crm.example:8443"), false, &[]);
        let no_base = format!("{{openapi: {{url: 'https://docs.example/api'}}, {BEARER}}}");
        check(
            &no_base,
            Some("crm.example"),
            false,
            &[
                "SecretHostNotAllowed spec.openapi.url: Secret s is not for docs.example: correct spec.openapi.url, or have its owner add the host to the annotation chandlery.dev/allowed-hosts",
            ],
        );
        check(
            "{mcp: {url: 'https://crm.example'}, auth: {oauthClientCredentials: {tokenUrl: 'https://login.example/token', clientId: c, secretKeyRef: {name: s, key: token}}}}",
            Some("crm.example"),
            false,
            &[
                "SecretHostNotAllowed spec.auth.oauthClientCredentials.tokenUrl: Secret s is not for login.example: correct spec.auth.oauthClientCredentials.tokenUrl, or have its owner add the host to the annotation chandlery.dev/allowed-hosts",
            ],
        );
    }

    #[test]
    fn a_secret_has_to_name_hosts_where_that_is_required() {
        let mcp = format!("{{mcp: {{url: 'https://crm.example/mcp'}}, {BEARER}}}");
        check(&mcp, None, false, &[]);
        check(
            &mcp,
            None,
            true,
            &[
                "SecretHostNotAllowed spec.auth.bearer.secretKeyRef: Secret s does not say which hosts it is for, as it has to here: its owner annotates it with chandlery.dev/allowed-hosts",
            ],
        );
        check(&mcp, Some("*.example"), true, &[]);
    }

    #[test]
    fn no_secret_of_ours_is_a_credential() {
        for name in [
            "agent-a-mcp",
            "workspace-w-mcp",
            "manage-w-mcp",
            "gateway-w",
        ] {
            check(
                &format!(
                    "{{mcp: {{url: 'https://crm.example'}}, auth: {{bearer: {{secretKeyRef: {{name: {name}, key: token}}}}}}}}"
                ),
                None,
                false,
                &[&format!(
                    "SecretInvalid spec.auth.bearer.secretKeyRef: Secret {name} is one of Chandlery's own (a key, or people's tokens), or named like one: put the credential into one of yours"
                )],
            );
        }
    }
}
