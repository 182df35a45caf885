//! What a document says about the credential that its service wants.

use chandlery_crds::AuthSpec;
use chandlery_crds::fields::{SecretKeyRef, SecretSource};
use chandlery_crds::tool_source::{BasicAuth, HeaderAuth, OauthClientCredentials, QueryAuth};
use serde_json::Value;

use super::{Unreadable, pointer, text};
use crate::outbound;

/// Where a service that wants a user name or a client's id says nothing of it.
pub const PLACEHOLDER: &str = "CHANGE-ME";

/// The credential that the document asks for first and a ToolSource can have, its value in the Secret `secret`; `None`
/// where it asks for none. What only its owner knows is [`PLACEHOLDER`].
pub fn suggested_auth(document: &[u8], secret: &str) -> Result<Option<AuthSpec>, Unreadable> {
    let root = text::read(document)?;
    let schemes = &root["components"]["securitySchemes"];
    let required = root["security"].as_array().into_iter().flatten();
    let required = required
        .filter_map(Value::as_object)
        .flat_map(|all| all.keys());
    let all = schemes.as_object().into_iter().flat_map(|all| all.keys());
    let mut named = required.chain(all).map(|name| &schemes[name.as_str()]);
    Ok(named.find_map(|scheme| auth(pointer::resolve(&root, scheme).ok()?, secret)))
}

fn auth(scheme: &Value, secret: &str) -> Option<AuthSpec> {
    let secret_key_ref = |key: &str| SecretKeyRef {
        name: secret.to_owned(),
        key: key.to_owned(),
    };
    let word = |field: &str| scheme[field].as_str().unwrap_or_default();
    // What a ToolSource could not say is not suggested.
    let is_name = |more: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
        !word("name").is_empty() && word("name").chars().all(fits)
    };
    let none = AuthSpec::default();
    let bearer = || AuthSpec {
        bearer: Some(SecretSource {
            secret_key_ref: secret_key_ref("token"),
        }),
        ..AuthSpec::default()
    };
    let is_basic = word("scheme").eq_ignore_ascii_case("basic");
    Some(match (word("type"), word("in")) {
        ("http", _) if is_basic => AuthSpec {
            basic: Some(BasicAuth {
                username: PLACEHOLDER.to_owned(),
                secret_key_ref: secret_key_ref("password"),
            }),
            ..none
        },
        ("http", _) if word("scheme").eq_ignore_ascii_case("bearer") => bearer(),
        ("apiKey", "header") if is_name("-") => AuthSpec {
            header: Some(HeaderAuth {
                name: word("name").to_owned(),
                secret_key_ref: secret_key_ref("key"),
            }),
            ..none
        },
        ("apiKey", "query") if is_name("_.-") => AuthSpec {
            query: Some(QueryAuth {
                name: word("name").to_owned(),
                secret_key_ref: secret_key_ref("key"),
            }),
            ..none
        },
        ("oauth2", _) => match scheme["flows"]["clientCredentials"]["tokenUrl"].as_str() {
            Some(token_url) if outbound::parse(token_url).is_ok() => AuthSpec {
                oauth_client_credentials: Some(OauthClientCredentials {
                    token_url: token_url.to_owned(),
                    client_id: PLACEHOLDER.to_owned(),
                    secret_key_ref: secret_key_ref("clientSecret"),
                    scopes: Vec::new(),
                    audience: None,
                }),
                ..none
            },
            // Somebody gets a token elsewhere.
            _ => bearer(),
        },
        ("openIdConnect", _) => bearer(),
        _ => return None,
    })
}
