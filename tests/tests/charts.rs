//! What the charts render to, and which values they refuse. Needs Helm, which comes with the test cluster's programs;
//! no cluster. `tests/tests/cluster/charts.rs` installs them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use expect_test::{ExpectFile, expect_file};
use serde_json::Value;

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
    "--set=test.storageClassName=fast,log.format=text,log.level=debug,clusterDomain=example.internal",
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

fn objects(values: &[&str]) -> Vec<Value> {
    let parsed: Vec<Option<Value>> =
        serde_saphyr::from_multiple(&render(values)).expect("parse what Helm rendered");
    parsed.into_iter().flatten().collect()
}

#[track_caller]
fn render(values: &[&str]) -> String {
    template(values).expect("helm template")
}

fn template(values: &[&str]) -> Result<String, String> {
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

fn helm(arguments: &[&str]) -> Result<String, String> {
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
