//! From a ToolSource to its connector: what both kinds have in common, and which kind it is.

use std::sync::Arc;

use chandlery_crds::conditions::reason;
use chandlery_crds::fields::{ConfigMapKeyRef, SecretKeyRef};
use chandlery_crds::{AuthSpec, ToolSourceSpec};
use url::Url;

use super::{openapi, remote};
use crate::connector::{Connector, Failure};
use crate::directory::{ReferenceError, References, ToolSource};
use crate::outbound::{
    self, CredentialSpec, Outbound, OutboundError, SecretKey, Upstream, UpstreamSettings,
};
use crate::usage::Usage;

/// Calls of one source at once; as many may wait.
const CONCURRENCY: usize = 128;

/// What connectors are made with.
#[derive(Clone)]
pub struct Connectors {
    pub outbound: Outbound,
    pub references: Arc<dyn References>,
    pub usage: Usage,
}

/// One ToolSource, and what it takes to reach it.
pub struct Site {
    with: Connectors,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) spec: ToolSourceSpec,
    ca_bundle: Option<String>,
}

impl Connectors {
    /// Makes the connector of a source named `<namespace>.<name>`.
    pub async fn connect(
        &self,
        id: &str,
        source: &ToolSource,
    ) -> Result<Arc<dyn Connector>, Failure> {
        let (namespace, name) = id.split_once('.').unwrap_or(("", id));
        let mut site = Site {
            with: self.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            spec: source.spec.clone(),
            ca_bundle: None,
        };
        site.ca_bundle = site.read_ca_bundle().await?;
        match (&site.spec.openapi, &site.spec.mcp) {
            (Some(_), _) => openapi::connect(site),
            (None, Some(_)) => remote::connect(site),
            (None, None) => Err(Failure::new(
                reason::INVALID,
                "write exactly one of: openapi, mcp",
            )),
        }
    }
}

impl Site {
    /// `<namespace>.<name>`.
    pub(super) fn id(&self) -> String {
        format!("{}.{}", self.namespace, self.name)
    }

    /// What the names of its tools begin with.
    pub(super) fn prefix(&self) -> String {
        self.spec.prefix(&self.name)
    }

    pub(super) fn usage(&self) -> &Usage {
        &self.with.usage
    }

    /// The way to the service itself, with the credential.
    pub(super) fn upstream(&self, base: Url) -> Result<Arc<Upstream>, Failure> {
        self.way(base, true, self.spec.max_response_bytes())
    }

    /// A way to something of the source's, with its credential or without.
    pub(super) fn way(
        &self,
        base: Url,
        has_credential: bool,
        max_response_bytes: usize,
    ) -> Result<Arc<Upstream>, Failure> {
        let mut settings = UpstreamSettings {
            name: self.id(),
            base,
            allowed_hosts: self.spec.allowed_hosts.clone(),
            ca_bundle: self.ca_bundle.clone(),
            timeout: self.spec.timeout(),
            max_response_bytes,
            concurrency: CONCURRENCY,
            credential: None,
        };
        if let Some(auth) = self.spec.auth.as_ref().filter(|_| has_credential) {
            let spec = credential(auth)?;
            let references = self.with.references.clone();
            let made = self
                .with
                .outbound
                .credential(spec, &self.namespace, references, &settings);
            settings.credential = Some(made.map_err(failure)?);
        }
        self.with.outbound.upstream(settings).map_err(failure)
    }

    /// A text of a ConfigMap in the source's namespace.
    pub(super) async fn config_map(&self, reference: &ConfigMapKeyRef) -> Result<String, Failure> {
        let ConfigMapKeyRef { name, key } = reference;
        let read = self.with.references.config_map(&self.namespace, name);
        let mut texts = read.await.map_err(|error| match error {
            ReferenceError::Missing { .. } => {
                Failure::new(reason::CONFIG_MAP_NOT_FOUND, error.to_string())
            }
            _ => Failure::new(reason::UNREACHABLE, error.to_string()),
        })?;
        texts.remove(key).ok_or_else(|| {
            let message = format!("ConfigMap {name} has no key {key}: add it, or name another key");
            Failure::new(reason::CONFIG_MAP_NOT_FOUND, message)
        })
    }

    async fn read_ca_bundle(&self) -> Result<Option<String>, Failure> {
        if let Some(reference) = self.spec.ca_ref() {
            return self.config_map(reference).await.map(Some);
        }
        let tls = self.spec.tls.as_ref();
        let bundle = tls.and_then(|tls| tls.ca_bundle.as_ref());
        Ok(bundle.and_then(|bundle| bundle.inline.clone()))
    }
}

/// A URL that a person wrote.
pub(super) fn url(text: &str, field: &str) -> Result<Url, Failure> {
    outbound::parse(text)
        .map_err(|blocked| Failure::new(reason::BLOCKED, format!("{field}: {blocked}")))
}

/// What it means for a source that it could not be reached.
pub(super) fn failure(error: OutboundError) -> Failure {
    let reason = match &error {
        OutboundError::Blocked(_) => reason::BLOCKED,
        OutboundError::Credential(_) => reason::CREDENTIAL_REFUSED,
        _ => reason::UNREACHABLE,
    };
    Failure::new(reason, error.to_string())
}

fn credential(auth: &AuthSpec) -> Result<CredentialSpec, Failure> {
    let key = |reference: &SecretKeyRef| SecretKey {
        name: reference.name.clone(),
        key: reference.key.clone(),
    };
    if let Some(bearer) = &auth.bearer {
        let secret = key(&bearer.secret_key_ref);
        Ok(CredentialSpec::Bearer { secret })
    } else if let Some(header) = &auth.header {
        Ok(CredentialSpec::Header {
            name: header.name.clone(),
            secret: key(&header.secret_key_ref),
        })
    } else if let Some(query) = &auth.query {
        Ok(CredentialSpec::Query {
            name: query.name.clone(),
            secret: key(&query.secret_key_ref),
        })
    } else if let Some(basic) = &auth.basic {
        Ok(CredentialSpec::Basic {
            username: basic.username.clone(),
            secret: key(&basic.secret_key_ref),
        })
    } else if let Some(oauth) = &auth.oauth_client_credentials {
        Ok(CredentialSpec::OauthClientCredentials {
            token_url: url(
                &oauth.token_url,
                "spec.auth.oauthClientCredentials.tokenUrl",
            )?,
            client_id: oauth.client_id.clone(),
            secret: key(&oauth.secret_key_ref),
            scopes: oauth.scopes.clone(),
            audience: oauth.audience.clone(),
        })
    } else {
        Err(Failure::new(
            reason::INVALID,
            "spec.auth: write exactly one of: bearer, header, query, basic, oauthClientCredentials",
        ))
    }
}
