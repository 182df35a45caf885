//! People as the gateway knows them: by tokens out of a Secret.

use anyhow::Result;
use chandlery_crds::key::Key;
use serde_json::{Value, json};

use crate::agents::{Binding, DESK};
use crate::namespace::Namespace;

/// Name of the Secret with people's tokens, in every namespace that has one.
pub const TOKENS: &str = "our-people";

/// [`DESK`], whose people have tokens.
pub fn desk_with_people() -> String {
    let people = format!("{{people: {{tokensSecretRef: {{name: {TOKENS}}}}}, store: ");
    DESK.replace("{store: ", &people)
}

impl Namespace {
    /// Writes the one token of `alice`, with a line break behind it as editors leave one.
    pub async fn write_token(&self, alice: &Key) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": TOKENS},
            "stringData": {"alice": format!("{}\n", alice.expose())},
        });
        self.apply(&secret.to_string()).await
    }
}

/// What the API for people answers at the gateway of an agent.
pub async fn ask(agent: &Binding, token: &str, method: &str, path: &str) -> Result<(u16, Value)> {
    let authorization = format!("Bearer {token}");
    let mut headers = vec![("authorization", authorization.as_str())];
    let mut body = String::new();
    if method == "POST" {
        headers.push(("content-type", "application/json"));
        "{}".clone_into(&mut body);
    }
    let endpoint = agent.endpoint.at(path)?;
    let answer = endpoint.send(method, &headers, body).await?;
    Ok((answer.status.as_u16(), answer.body))
}
