//! The charts: what they render to, which values they refuse, and the life of a release.
//!
//! A program of its own beside `tests/tests/cluster`, since here the release comes and goes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chandlery_tests::client::{Client, ERAS, Endpoint};
use chandlery_tests::namespace::{Namespace, in_namespace};
use chandlery_tests::{cluster, eventually, release};
use expect_test::{ExpectFile, expect_file};
use serde_json::Value;
use tokio::sync::Mutex;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/chandlery");
const CRDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/chandlery-crds");
const WATCH_NAMESPACES: &[&str] = &["--set", "watchNamespaces={red,blue}"];
const EVERYTHING: &[&str] = &[
    "--set=replicaCount=2,imagePullSecrets[0].name=pull,commonLabels.team=harbor,commonLabels.app\\.kubernetes\\.io/name=x",
    "--set=podLabels.tier=platform,podLabels.app\\.kubernetes\\.io/component=x,podAnnotations.note=hello",
    "--set=image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000,gateway.image.tag=v9",
    "--set=serviceMonitor.enabled=true,serviceMonitor.labels.release=prometheus,podMonitor.enabled=true",
    "--set=metrics.service.annotations.scrape=yes,serviceAccount.annotations.role=operator,priorityClassName=high",
    "--set=networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring,networkPolicy.apiServerPorts={6443}",
    "--set=nodeSelector.disk=ssd,tolerations[0].operator=Exists,topologySpreadConstraints[0].maxSkew=1",
    "--set=affinity.nodeAffinity.x=y,extraArgs={--lease-namespace=elsewhere},extraEnv[0].name=A,extraEnv[0].value=b",
    "--set=test.storageClassName=fast,log.format=text,log.level=debug,clusterDomain=example.internal,security.requireSecretHosts=true,security.privateRanges={203.0.0.0/16}",
];

#[test]
#[ignore = "needs the test cluster"]
fn helm_finds_nothing_to_complain_about() {
    for chart in [CHART, CRDS] {
        helm(&["lint", "--strict", chart]).expect("helm lint");
    }
}

#[test]
#[ignore = "needs the test cluster"]
fn the_chart_renders_as_before() {
    let check = |values: &[&str], expected: ExpectFile| expected.assert_eq(&render(values));
    check(&[], expect_file!["charts/default.yaml"]);
    check(
        WATCH_NAMESPACES,
        expect_file!["charts/watch-namespaces.yaml"],
    );
    check(EVERYTHING, expect_file!["charts/everything.yaml"]);
}

#[test]
#[ignore = "needs the test cluster"]
fn wrong_values_are_refused_with_a_reason() {
    let cases = [
        (
            "replicCount=2",
            "additional properties 'replicCount' not allowed",
        ),
        (
            "gateway.image.tga=x",
            "additional properties 'tga' not allowed",
        ),
        (
            "replicaCount=two",
            "at '/replicaCount': got string, want integer",
        ),
        (
            "image.pullPolicy=Sometimes",
            "'Always', 'IfNotPresent', 'Never'",
        ),
        ("image.digest=latest", "at '/image/digest'"),
        (
            "leaderElection.leaseDuration=soon",
            "at '/leaderElection/leaseDuration'",
        ),
        (
            "watchNamespaces={a.b}",
            "at '/watchNamespaces/0': 'a.b' does not match pattern",
        ),
        (
            "log.level=loud",
            "'error', 'warn', 'info', 'debug', 'trace'",
        ),
        (
            "networkPolicy.apiServerCidrs={anywhere}",
            "at '/networkPolicy/apiServerCidrs/0'",
        ),
        (
            "replicaCount=2,leaderElection.enabled=false",
            "set leaderElection.enabled=true or replicaCount=1",
        ),
        (
            "serviceAccount.create=false",
            "set serviceAccount.name to the ServiceAccount to use",
        ),
    ];
    for (value, reason) in cases {
        let error = template(&["--set", value]).expect_err(value);
        assert!(error.contains(reason), "{value}: {error}");
    }
}

// The schema is what catches a typo, so it has to know every value, and no more than there are.
#[test]
fn values_and_schema_name_the_same_things() {
    fn compare(path: &str, values: &Value, schema: &Value, root: &Value) {
        let schema = match schema["$ref"].as_str() {
            Some(reference) => root
                .pointer(&reference[1..])
                .unwrap_or_else(|| panic!("{reference} is missing")),
            None => schema,
        };
        let (Some(values), Some(properties)) =
            (values.as_object(), schema["properties"].as_object())
        else {
            return;
        };
        assert_eq!(
            schema["additionalProperties"], false,
            "{path} lets typos through"
        );
        let written: BTreeSet<&String> = values.keys().collect();
        // Helm itself hands `global` to every chart that is part of another.
        let known: BTreeSet<&String> = properties.keys().filter(|key| *key != "global").collect();
        assert_eq!(written, known, "below {path}");
        for (key, value) in values {
            compare(&format!("{path}.{key}"), value, &properties[key], root);
        }
    }
    let chart = Path::new(CHART);
    let text = std::fs::read_to_string(chart.join("values.yaml")).expect("read values.yaml");
    let values: Value = serde_saphyr::from_str(&text).expect("parse values.yaml");
    let schema =
        std::fs::read_to_string(chart.join("values.schema.json")).expect("read the schema");
    let schema: Value = serde_json::from_str(&schema).expect("parse the schema");
    compare("values", &values, &schema, &schema);
    for key in values.as_object().expect("values are a map").keys() {
        assert!(
            text.contains(&format!("# {key}")),
            "no comment in values.yaml begins with {key}"
        );
    }
}

// P20: no `*` in verbs or resources, no list or watch of Secrets. R: Roles instead of ClusterRoles with a list.
#[test]
#[ignore = "needs the test cluster"]
fn rights_are_exact() {
    for values in [&[][..], WATCH_NAMESPACES, EVERYTHING] {
        for object in objects(values) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            assert_eq!(object["aggregationRule"], Value::Null, "{name}");
            for rule in object["rules"].as_array().into_iter().flatten() {
                let has = |field: &str, word: &str| {
                    rule[field]
                        .as_array()
                        .is_some_and(|words| words.iter().any(|w| w == word))
                };
                for field in ["verbs", "resources", "apiGroups"] {
                    assert!(!has(field, "*"), "{name} grants every one of {field}");
                }
                assert!(
                    !has("verbs", "escalate") && !has("verbs", "bind"),
                    "{name}: {rule}"
                );
                if has("resources", "secrets") {
                    assert!(
                        !has("verbs", "list") && !has("verbs", "watch"),
                        "{name}: {rule}"
                    );
                }
            }
            let labels = object["metadata"]["labels"].as_object();
            assert!(
                !labels.is_some_and(|l| l.keys().any(|key| key.contains("aggregate-to"))),
                "{name} aggregates into a role of Kubernetes' own"
            );
        }
    }
    let bindings = |values, kind| objects(values).iter().filter(|o| o["kind"] == kind).count();
    assert_eq!(bindings(&[], "ClusterRoleBinding"), 1);
    assert_eq!(bindings(WATCH_NAMESPACES, "ClusterRoleBinding"), 0);
}

// P20: the chart grants what the operator says that it needs, and nothing else.
#[tokio::test]
#[ignore = "needs the test cluster"]
async fn the_operator_gets_the_rights_that_it_asks_for() {
    release::images().await.expect("build the operator");
    let test = std::env::current_exe().expect("this test has a path");
    let operator = test
        .ancestors()
        .nth(2)
        .expect("cargo's target directory")
        .join("chandlery-operator");
    let printed = Command::new(operator)
        .arg("--print-rights")
        .output()
        .expect("start the operator");
    let asked: Vec<Value> = serde_json::from_slice(&printed.stdout).expect("rights are JSON");

    let mut wanted = BTreeSet::new();
    for right in &asked {
        let place = right["where"].as_str().unwrap_or_default();
        // The lease has a name that the chart knows and the operator is told.
        let names = match place {
            "lease" if right["verbs"] != serde_json::json!(["create"]) => {
                "chandlery-operator".to_owned()
            }
            _ => words(&right["resourceNames"]).join(","),
        };
        for resource in words(&right["resources"]) {
            for verb in words(&right["verbs"]) {
                wanted.insert(format!(
                    "{place} {} {resource} {names} {verb}",
                    right["apiGroup"]
                ));
            }
        }
    }
    let mut granted = BTreeSet::new();
    for role in objects(&[]) {
        let place = match role["metadata"]["name"].as_str() {
            Some("chandlery-operator") if role["kind"] == "ClusterRole" => "watched",
            Some("chandlery-operator-lease") if role["kind"] == "Role" => "lease",
            Some("chandlery-operator-chandlery-system") if role["kind"] == "Role" => "default",
            _ => continue,
        };
        for rule in role["rules"].as_array().into_iter().flatten() {
            let names = words(&rule["resourceNames"]).join(",");
            for resource in words(&rule["resources"]) {
                for verb in words(&rule["verbs"]) {
                    granted.insert(format!(
                        "{place} {} {resource} {names} {verb}",
                        rule["apiGroups"][0]
                    ));
                }
            }
        }
    }
    assert_eq!(granted, wanted);
}

const AGENT: &str = "
apiVersion: chandlery.dev/v1alpha1
kind: Workspace
metadata: {name: crew}
spec: {store: {sqlite: {size: 64Mi}, deletionPolicy: Delete}}
---
apiVersion: chandlery.dev/v1alpha1
kind: Agent
metadata: {name: researcher}
spec: {workspaceRef: {name: crew}}
";

/// Held by whoever installs: there is one release at a time.
static RELEASE: Mutex<()> = Mutex::const_new(());

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_release_is_tested_upgraded_rolled_back_and_uninstalled() {
    let _alone = RELEASE.lock().await;
    install(&[]).await.expect("install the charts");
    in_namespace(async |namespace| {
        namespace.apply(AGENT).await?;
        ready(namespace).await?;
        let key = key(namespace).await?;
        calls(namespace, &key).await?;

        let tested = managed(&["test", "chandlery", "--timeout=240s", "--logs"]).await?;
        ensure!(tested.contains("Succeeded") && tested.contains("POD LOGS"), "{tested}");
        let left = ["get", "workspaces.chandlery.dev,agents.chandlery.dev,pods", "--selector=helm.sh/chart", EVERYWHERE, NAMES];
        nothing("helm test leaves nothing", async || cluster::kubectl(&left).await).await?;

        // The status decides which keys work, so that not even an administrator may write it.
        let digest = r#"{"status": {"keys": [{"id": "mine", "digest": "sha256:00", "createdAt": "2026-11-30T00:00:00Z"}]}}"#;
        let patch = ["patch", "agents.chandlery.dev/researcher", "--subresource=status", "--type=merge", "--patch", digest];
        let refused = namespace.kubectl(&patch).await.expect_err("a policy forbids it");
        ensure!(format!("{refused:#}").contains("only the operator"), "{refused:#}");

        managed(&["upgrade", "chandlery", CHART, "--reuse-values", "--set=replicaCount=2", "--wait"]).await?;
        ensure!(operators().await? == "2", "the upgrade brings a second operator");
        managed(&["rollback", "chandlery", "--wait"]).await?;
        ensure!(operators().await? == "1", "the rollback takes it away");
        ready(namespace).await?;

        managed(&["uninstall", "chandlery", "--wait"]).await?;
        managed(&["uninstall", "chandlery-crds", "--wait"]).await?;
        let left = ["get", MADE_BY_THE_CHART, "--selector=app.kubernetes.io/instance=chandlery", EVERYWHERE, NAMES];
        nothing("helm uninstall leaves nothing", async || cluster::kubectl(&left).await).await?;
        calls(namespace, &key).await.context("people's agents are served on")?;

        // With the operator gone, deletions wait for nobody and leave nothing.
        namespace.kubectl(&["delete", "--timeout=60s", "agents.chandlery.dev/researcher", "workspaces.chandlery.dev/crew"]).await?;
        let left = ["get", MADE_BY_THE_OPERATOR, "--selector=chandlery.dev/workspace=crew", NAMES];
        nothing("everything of the Workspace is gone", async || namespace.kubectl(&left).await).await
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_release_for_some_namespaces_serves_these_alone() {
    let _alone = RELEASE.lock().await;
    // One that was left from elsewhere would look after every namespace.
    managed(&["uninstall", "chandlery", "--ignore-not-found", "--wait"])
        .await
        .expect("uninstall what was there");
    release::crds().await.expect("install the CRDs");
    in_namespace(async |elsewhere| {
        elsewhere.apply(AGENT).await?;
        in_namespace(async |namespace| {
            install(&[&format!("--set=watchNamespaces={{{}}}", namespace.name)]).await?;
            namespace.apply(AGENT).await?;
            ready(namespace).await?;
            calls(namespace, &key(namespace).await?).await?;
            let tested = managed(&["test", "chandlery", "--timeout=240s"]).await?;
            ensure!(tested.contains("Succeeded"), "{tested}");
            managed(&["uninstall", "chandlery", "--wait"])
                .await
                .map(drop)
        })
        .await;
        let status = [
            "get",
            "agents.chandlery.dev/researcher",
            "--output=jsonpath={.status}",
        ];
        let status = elsewhere.kubectl(&status).await?;
        ensure!(status.is_empty(), "somebody looked after it: {status}");
        Ok(())
    })
    .await;
}

const EVERYWHERE: &str = "--all-namespaces";
const NAMES: &str = "--output=name";
const MADE_BY_THE_CHART: &str = "all,serviceaccounts,networkpolicies,poddisruptionbudgets,roles,rolebindings,clusterroles,\
    clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings";
const MADE_BY_THE_OPERATOR: &str = "all,serviceaccounts,secrets,networkpolicies,poddisruptionbudgets,roles,rolebindings,\
    persistentvolumeclaims";

/// Installs both charts with the images of the programs as they are now.
async fn install(values: &[&str]) -> Result<()> {
    release::crds().await?;
    let (gateway, operator) = release::images().await?;
    let tag = |image: &str| image.rsplit(':').next().unwrap_or_default().to_owned();
    let tags = format!(
        "--set=image.tag={},gateway.image.tag={}",
        tag(&operator),
        tag(&gateway)
    );
    let upgrade = ["upgrade", "--install", "--wait", "--timeout=180s"];
    managed(&[&upgrade[..], &["chandlery-crds", CRDS]].concat()).await?;
    managed(&[&upgrade[..], &["chandlery", CHART, &tags], values].concat())
        .await
        .map(drop)
}

/// Helm, on releases in the operator's namespace, which enforces Pod Security *restricted*.
async fn managed(arguments: &[&str]) -> Result<String> {
    cluster::helm(&[arguments, &["--namespace", release::NAMESPACE]].concat()).await
}

/// Waits until `list` has nothing more to show.
async fn nothing(what: &str, list: impl AsyncFn() -> Result<String>) -> Result<()> {
    eventually(what, Duration::from_secs(60), async || {
        let left = list().await?;
        ensure!(left.is_empty(), "there is {left}");
        Ok(Some(()))
    })
    .await
}

async fn operators() -> Result<String> {
    let replicas = [
        "get",
        "deployment/chandlery-operator",
        "--output=jsonpath={.status.readyReplicas}",
    ];
    cluster::kubectl(&[&replicas[..], &["--namespace", release::NAMESPACE]].concat()).await
}

async fn ready(namespace: &Namespace) -> Result<()> {
    let wait = [
        "wait",
        "--for=condition=Ready",
        "agents.chandlery.dev/researcher",
        "--timeout=120s",
    ];
    namespace.kubectl(&wait).await.map(drop)
}

async fn key(namespace: &Namespace) -> Result<String> {
    let token = "--output=go-template={{.data.token | base64decode}}";
    namespace
        .kubectl(&["get", "secret/agent-researcher-mcp", token])
        .await
}

/// The key opens the agent's endpoint, in both protocol eras.
async fn calls(namespace: &Namespace, key: &str) -> Result<()> {
    let url = [
        "get",
        "agents.chandlery.dev/researcher",
        "--output=jsonpath={.status.endpoint}",
    ];
    let endpoint = Endpoint::of_service(&namespace.client, &namespace.kubectl(&url).await?).await?;
    for era in ERAS {
        let client = Client::connect(&endpoint, key, era).await?;
        client
            .call("agnt_datetime_now", serde_json::json!({}))
            .await?;
    }
    Ok(())
}

fn words(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn objects(values: &[&str]) -> Vec<Value> {
    let parsed: Vec<Option<Value>> =
        serde_saphyr::from_multiple(&render(values)).expect("parse what Helm rendered");
    parsed.into_iter().flatten().collect()
}

#[track_caller]
fn render(values: &[&str]) -> String {
    template(values).expect("helm template")
}

fn template(values: &[&str]) -> std::result::Result<String, String> {
    helm(
        &[
            &[
                "template",
                "chandlery",
                CHART,
                "--namespace=chandlery-system",
            ],
            values,
        ]
        .concat(),
    )
}

fn helm(arguments: &[&str]) -> std::result::Result<String, String> {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(program())
        .args(arguments)
        .current_dir(REPOSITORY)
        .output()
        .expect("start Helm");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if status.success() {
        Ok(text(&stdout))
    } else {
        Err(text(&stdout) + &text(&stderr))
    }
}

/// Helm among the test cluster's programs; `make test` builds them.
fn program() -> std::path::PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || Path::new(&std::env::var_os("HOME").expect("HOME is set")).join(".cache"),
        Into::into,
    );
    let helm = cache.join("chandlery/cluster-bin/helm");
    assert!(
        helm.exists(),
        "{} is missing: run `tests/cluster/cluster build`",
        helm.display()
    );
    helm
}
