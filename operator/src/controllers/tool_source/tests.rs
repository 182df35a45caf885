use expect_test::{Expect, expect};
use k8s_openapi::ByteString;

use super::*;

#[track_caller]
fn check(spec: &str, observed: &Observed, expected: Expect) {
    let text = format!(
        "apiVersion: chandlery.dev/v1alpha1\nkind: ToolSource\nmetadata: {{name: crm, generation: 1}}\nspec: {spec}\n"
    );
    let source: ToolSource = serde_saphyr::from_str(&text).unwrap();
    let status = status(&source, &plan(&source, observed), Timestamp::UNIX_EPOCH);
    let said = status.conditions.iter().map(|condition| {
        format!(
            "{} {} {}: {}\n",
            condition.type_, condition.status, condition.reason, condition.message
        )
    });
    expected.assert_eq(&said.collect::<String>());
}

#[test]
fn a_source_is_ready_when_what_it_refers_to_is_there() {
    let spec = "{mcp: {url: 'https://crm.example/mcp'}, auth: {bearer: {secretKeyRef: {name: crm, key: token}}}}";
    check(
        spec,
        &Observed::default(),
        expect![[r#"
            ResolvedRefs False SecretNotFound: there is no Secret crm in this namespace: make it, or correct the name
            Ready False SecretNotFound: there is no Secret crm in this namespace: make it, or correct the name
            Reconciling True SecretNotFound: there is no Secret crm in this namespace: make it, or correct the name
        "#]],
    );
    let data = [("token".to_owned(), ByteString(b"s3cret".to_vec()))].into();
    let credential = Some(Secret {
        data: Some(data),
        ..Secret::default()
    });
    check(
        spec,
        &Observed {
            credential,
            ..Observed::default()
        },
        expect![[r#"
            ResolvedRefs True Resolved: everything named is there
            Ready True Ready: everything that the source refers to is there
        "#]],
    );
    check(
        "{openapi: {configMapKeyRef: {name: api, key: openapi.json}}}",
        &Observed {
            document: Some(ConfigMap::default()),
            ..Observed::default()
        },
        expect![[r#"
            ResolvedRefs False ConfigMapNotFound: ConfigMap api has no key openapi.json: add it, or name another key
            Ready False ConfigMapNotFound: ConfigMap api has no key openapi.json: add it, or name another key
            Reconciling True ConfigMapNotFound: ConfigMap api has no key openapi.json: add it, or name another key
        "#]],
    );
}
