use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use chandlery_crds::ToolSource;
use expect_test::{Expect, expect, expect_file};
use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;
use serde_json::json;

use super::*;
use crate::api::{Kind, with_type};
use crate::objects::Live;
use crate::settings::PullPolicy;

fn settings() -> GatewaySettings {
    GatewaySettings {
        image: "registry.example/chandlery:1".to_owned(),
        image_pull_policy: Some(PullPolicy::IfNotPresent),
        operator_namespace: "chandlery-system".to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        require_secret_hosts: false,
        private_ranges: Vec::new(),
    }
}

fn workspace(spec: &str) -> Workspace {
    let text = format!(
        "apiVersion: chandlery.dev/v1alpha1\nkind: Workspace\nmetadata: {{name: crew, namespace: harbour, uid: u-crew, generation: 3}}\nspec: {spec}\n"
    );
    serde_saphyr::from_str(&text).unwrap()
}

fn observed() -> Observed {
    let api_server = network::ApiServer {
        address: IpAddr::from([198, 18, 255, 1]),
        port: 6443,
    };
    Observed {
        gateway: Seen {
            api_server: vec![api_server],
            ..Seen::default()
        },
        ..Observed::default()
    }
}

fn plan_of(spec: &str, observed: &Observed) -> Plan {
    plan(
        &workspace(spec),
        observed,
        &settings(),
        &mut || [7; 32],
        Timestamp::from_second(100).unwrap(),
    )
}

fn gateway(spec: &str) -> Gateway {
    plan_of(spec, &observed()).gateway.unwrap()
}

fn yaml(value: &impl Serialize) -> String {
    serde_saphyr::to_string(value).unwrap()
}

fn conditions(plan: &Plan) -> String {
    let status = |status: Option<bool>| {
        status.map_or("Unknown", |status| if status { "True" } else { "False" })
    };
    plan.conditions
        .iter()
        .map(|wanted| {
            format!(
                "{} {} {}: {}\n",
                wanted.kind,
                status(wanted.status),
                wanted.reason,
                wanted.message
            )
        })
        .collect()
}

#[track_caller]
fn check(spec: &str, observed: &Observed, expected: Expect) {
    expected.assert_eq(&conditions(&plan_of(spec, observed)));
}

/// Every object of the plainest account, as it is applied.
#[test]
fn an_account_gets_a_gateway_with_everything_around_it() {
    let plan = plan_of("{}", &observed());
    let Gateway {
        service_account,
        role,
        role_binding,
        policy,
        own_secret,
        claim,
        service,
        deployment,
        budget,
    } = plan.gateway.unwrap();
    assert!(
        budget.is_none(),
        "a budget for one pod would block every drain"
    );
    let SecretWrite::Create(own_secret) = own_secret else {
        panic!("{own_secret:?}")
    };
    let SecretWrite::Create(key_secret) = plan.key_secret else {
        panic!("{:?}", plan.key_secret)
    };
    let objects = [
        yaml(&with_type(&policy)),
        yaml(&with_type(&service_account)),
        yaml(&with_type(&role)),
        yaml(&with_type(&role_binding)),
        yaml(&with_type(&claim.unwrap())),
        yaml(&with_type(&service)),
        yaml(&with_type(&deployment)),
        yaml(&shown(&own_secret)),
        yaml(&shown(&key_secret)),
    ];
    expect_file!["snapshots/account.yaml"].assert_eq(&objects.join("---\n"));
}

/// A Secret with the names of its entries only.
fn shown(secret: &Secret) -> serde_json::Value {
    let mut value = with_type(secret);
    let names: Vec<&String> = secret.data.as_ref().unwrap().keys().collect();
    value["data"] = json!(names);
    value
}

#[test]
fn replicas_on_postgres_roll_over_and_have_a_budget_and_no_claim() {
    let gateway = gateway(
        "{gateway: {replicas: 3}, store: {postgres: {urlFrom: {secretKeyRef: {name: db, key: url}}}}}",
    );
    assert!(gateway.claim.is_none());
    let budget = gateway.budget.unwrap().spec.unwrap();
    assert_eq!(
        serde_json::to_value(budget.max_unavailable).unwrap(),
        json!(1)
    );
    let spec = gateway.deployment.spec.unwrap();
    assert_eq!(spec.replicas, Some(3));
    expect![[r#"
        rollingUpdate:
          maxSurge: 1
          maxUnavailable: 0
        type: RollingUpdate
    "#]]
    .assert_eq(&yaml(&spec.strategy.unwrap()));
    let container = &spec.template.spec.unwrap().containers[0];
    expect![[r#"
        - name: CHANDLERY_STORE_URL
          valueFrom:
            secretKeyRef:
              key: url
              name: db
    "#]]
    .assert_eq(&yaml(&container.env));
    assert!(
        container.lifecycle.is_some(),
        "a pod that leaves goes on taking calls until all have heard of it"
    );
}

#[test]
fn knobs_reach_the_pods() {
    let spec = "{gateway: {hostnames: [mcp.example.com], maxConfigStaleness: 30m, image: 'mine:2', priorityClassName: high, \
                nodeSelector: {disk: fast}, tolerations: [{key: a}], imagePullSecrets: [{name: pull}], \
                resources: {limits: {memory: 1Gi}}}}";
    let pod = gateway(spec)
        .deployment
        .spec
        .unwrap()
        .template
        .spec
        .unwrap();
    let arguments = pod.containers[0].args.clone().unwrap().join(" ");
    assert!(
        arguments.contains("--hostname mcp.example.com --max-config-staleness 30m"),
        "{arguments}"
    );
    assert_eq!(pod.containers[0].image.as_deref(), Some("mine:2"));
    assert_eq!(pod.priority_class_name.as_deref(), Some("high"));
    assert_eq!(pod.node_selector.unwrap()["disk"], "fast");
    assert_eq!(pod.tolerations.unwrap()[0].key.as_deref(), Some("a"));
    assert_eq!(pod.image_pull_secrets.unwrap()[0].name, "pull");
    assert_eq!(
        pod.containers[0]
            .resources
            .as_ref()
            .unwrap()
            .limits
            .as_ref()
            .unwrap()["memory"]
            .0,
        "1Gi"
    );
}

#[test]
fn who_may_reach_a_gateway_is_whom_the_spec_names() {
    let ingress = |spec: &str| yaml(&gateway(spec).policy.spec.unwrap().ingress.unwrap());
    expect![[r#"
        - from:
          - podSelector:
              matchLabels:
                app: agent
          ports:
          - port: 8080
            protocol: TCP
        - from:
          - namespaceSelector:
              matchLabels:
                kubernetes.io/metadata.name: chandlery-system
            podSelector:
              matchLabels:
                app.kubernetes.io/component: operator
                app.kubernetes.io/name: chandlery
          ports:
          - port: 8081
            protocol: TCP
    "#]]
    .assert_eq(&ingress(
        "{gateway: {allowedFrom: [{podSelector: {matchLabels: {app: agent}}}]}}",
    ));
    // Nobody is nobody: a rule without peers would let everybody in.
    assert!(!ingress("{gateway: {allowedFrom: []}}").contains("8080"));
}

#[test]
fn what_a_gateway_may_reach_grows_by_the_networks_that_the_spec_names() {
    let egress = gateway("{gateway: {egressCidrs: [10.1.0.0/16]}}")
        .policy
        .spec
        .unwrap()
        .egress
        .unwrap();
    expect![[r#"
        to:
        - ipBlock:
            cidr: 10.1.0.0/16
    "#]]
    .assert_eq(&yaml(egress.last().unwrap()));
    assert_eq!(egress.len(), 3, "DNS, the API server, and that network");
}

#[test]
fn only_a_claim_that_may_be_deleted_has_an_owner() {
    let owners = |spec: &str| gateway(spec).claim.unwrap().metadata.owner_references;
    assert_eq!(owners("{store: {sqlite: {size: 2Gi}}}"), None);
    assert_eq!(
        owners("{store: {sqlite: {size: 2Gi}, deletionPolicy: Delete}}").unwrap()[0].uid,
        "u-crew"
    );
}

#[test]
fn no_object_that_people_made_is_taken_over() {
    let mut observed = observed();
    observed.gateway.service = Live::Foreign;
    observed.gateway.claim = Live::Foreign;
    let plan = plan_of("{}", &observed);
    assert!(plan.gateway.is_none());
    expect![[r#"
        StoreReady False Progressing: the volume claim waits for its volume
        GatewayReady False GatewayNotReady: 0 of 1 replicas serve
        Ready False Conflict: PersistentVolumeClaim "gateway-crew-store" and Service "gateway-crew" exist and are not Chandlery's: rename or delete them, or give the Workspace another name
        Stalled True Conflict: PersistentVolumeClaim "gateway-crew-store" and Service "gateway-crew" exist and are not Chandlery's: rename or delete them, or give the Workspace another name
    "#]]
    .assert_eq(&conditions(&plan));
    observed = self::observed();
    observed.gateway.own_secret = Some(Secret::default());
    let plan = plan_of("{}", &observed);
    assert!(plan.gateway.is_none());
    assert_eq!(
        plan.conditions.last().unwrap().reason,
        reason::SECRET_CONFLICT
    );
}

#[test]
fn the_gateways_keys_are_kept_and_only_missing_ones_are_made() {
    let SecretWrite::Create(mut secret) = gateway("{}").own_secret else {
        panic!()
    };
    secret.metadata.resource_version = Some("5".to_owned());
    let mut observed = observed();
    observed.gateway.own_secret = Some(secret.clone());
    assert!(matches!(
        plan_of("{}", &observed).gateway.unwrap().own_secret,
        SecretWrite::Nothing
    ));

    secret.data.as_mut().unwrap().remove("state-key");
    observed.gateway.own_secret = Some(secret.clone());
    let SecretWrite::Update(updated) = plan_of("{}", &observed).gateway.unwrap().own_secret else {
        panic!()
    };
    assert_eq!(updated.metadata.resource_version.as_deref(), Some("5"));
    assert_eq!(
        updated.data.as_ref().unwrap()["audit-key"],
        secret.data.as_ref().unwrap()["audit-key"]
    );
    assert!(updated.data.unwrap().contains_key("state-key"));
}

fn live<K: Kind>(value: serde_json::Value) -> Live<K> {
    Live::Ours(Arc::new(serde_json::from_value(value).unwrap()))
}

fn running() -> Observed {
    let mut observed = observed();
    observed.gateway.claim = live(json!({ "metadata": {}, "status": { "phase": "Bound" } }));
    observed.gateway.deployment = live(json!({
        "metadata": { "generation": 2 },
        "status": { "observedGeneration": 2, "readyReplicas": 1, "updatedReplicas": 1 },
    }));
    observed
}

#[test]
fn an_account_is_ready_when_its_store_is_and_all_replicas_serve() {
    check(
        "{}",
        &running(),
        expect![[r#"
            StoreReady True ClaimBound: the volume claim is bound
            GatewayReady True ReplicasServe: 1 of 1 replicas serve
            Ready True Ready: the Workspace is served
        "#]],
    );
    let mut stuck = running();
    stuck.gateway.deployment = live(json!({ "metadata": { "generation": 2 }, "status": {
        "observedGeneration": 2,
        "conditions": [{ "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded" }],
    } }));
    let pod = json!({ "metadata": { "name": "gateway-crew-1" }, "status": { "containerStatuses": [
        { "name": "gateway", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": { "waiting": { "reason": "ImagePullBackOff" } } },
    ] } });
    stuck.gateway.pods = vec![Arc::new(serde_json::from_value(pod).unwrap())];
    check(
        "{}",
        &stuck,
        expect![[r#"
            StoreReady True ClaimBound: the volume claim is bound
            GatewayReady False GatewayNotReady: 0 of 1 replicas serve; pod gateway-crew-1: ImagePullBackOff
            Ready False GatewayNotReady: the gateway's pods do not get ready: look at the Deployment's events and the pods' logs
            Stalled True GatewayNotReady: the gateway's pods do not get ready: look at the Deployment's events and the pods' logs
        "#]],
    );
}

#[test]
fn the_gateway_may_read_the_one_secret_of_its_people() {
    let role = gateway("{people: {tokensSecretRef: {name: our-people}}}").role;
    expect![[r#"
        - apiGroups:
          - chandlery.dev
          resources:
          - workspaces
          - agents
          - toolsources
          - toolgrants
          verbs:
          - list
          - watch
        - apiGroups:
          - ""
          resourceNames:
          - our-people
          resources:
          - secrets
          verbs:
          - get
    "#]]
    .assert_eq(&yaml(&role.rules));
}

fn source(name: &str, spec: &str) -> Arc<ToolSource> {
    let text = format!(
        "apiVersion: chandlery.dev/v1alpha1\nkind: ToolSource\nmetadata: {{name: {name}, namespace: harbour}}\nspec: {spec}\n"
    );
    Arc::new(serde_saphyr::from_str(&text).unwrap())
}

/// A source whose credential lies in that Secret.
fn shows(secret: &str) -> Arc<ToolSource> {
    let spec = format!(
        "{{mcp: {{url: 'https://{secret}.example'}}, auth: {{bearer: {{secretKeyRef: {{name: {secret}, key: token}}}}}}}}"
    );
    source(secret, &spec)
}

#[test]
fn the_gateway_may_read_what_its_sources_name() {
    let mut observed = running();
    let api = "{openapi: {configMapKeyRef: {name: api, key: a}}, tls: {caBundle: {configMapKeyRef: {name: ca, key: c}}}}";
    let hr = "{openapi: {configMapKeyRef: {name: api, key: b}}, auth: {basic: {username: u, secretKeyRef: {name: crm, key: password}}}}";
    observed.gateway.sources = vec![shows("zoo"), source("api", api), source("hr", hr)];
    observed
        .gateway
        .sources
        .extend([shows("crm"), shows("kept")]);
    observed.gateway.kept_secrets = BTreeSet::from(["kept".to_owned()]);
    let plan = plan_of("{people: {tokensSecretRef: {name: people}}}", &observed);
    let rules = plan.gateway.unwrap().role.rules.unwrap();
    expect![[r#"
        - apiGroups:
          - ""
          resourceNames:
          - crm
          - people
          - zoo
          resources:
          - secrets
          verbs:
          - get
        - apiGroups:
          - ""
          resourceNames:
          - api
          - ca
          resources:
          - configmaps
          verbs:
          - get
    "#]]
    .assert_eq(&yaml(&rules[1..].to_vec()));
}

#[test]
fn a_role_names_only_so_many_secrets_and_the_workspace_says_so() {
    let mut observed = running();
    let sources = (0..=MOST_NAMES).map(|at| shows(&format!("s{at:03}")));
    observed.gateway.sources = sources.collect();
    let plan = plan_of("{}", &observed);
    expect![[r#"
        StoreReady True ClaimBound: the volume claim is bound
        GatewayReady True ReplicasServe: 1 of 1 replicas serve
        Ready False Invalid: its ToolSources name more than 256 Secrets or ConfigMaps, and its gateway may read the first 256: let sources share them, or grant some to another account
        Stalled True Invalid: its ToolSources name more than 256 Secrets or ConfigMaps, and its gateway may read the first 256: let sources share them, or grant some to another account
    "#]]
    .assert_eq(&conditions(&plan));
    let rules = plan.gateway.unwrap().role.rules.unwrap();
    assert_eq!(rules[1].resource_names.as_ref().unwrap().len(), MOST_NAMES);
}

#[test]
fn gateways_require_of_secrets_what_the_operator_requires() {
    let arguments = |require_secret_hosts| {
        let settings = GatewaySettings {
            require_secret_hosts,
            private_ranges: vec!["203.0.0.0/16".to_owned()],
            ..settings()
        };
        let plan = plan(
            &workspace("{}"),
            &observed(),
            &settings,
            &mut || [7; 32],
            Timestamp::UNIX_EPOCH,
        );
        let pod = plan.gateway.unwrap().deployment.spec.unwrap().template.spec;
        pod.unwrap().containers[0].args.clone().unwrap()
    };
    let flag = "--require-secret-hosts".to_owned();
    assert!(arguments(true).contains(&flag));
    let range = ["--private-range", "203.0.0.0/16"];
    assert!(arguments(false).windows(2).any(|pair| pair == range));
    assert!(!arguments(false).contains(&flag));
}

#[test]
fn tokens_of_people_that_do_not_work_are_said() {
    let spec = "{people: {tokensSecretRef: {name: our-people}}}";
    check(
        spec,
        &running(),
        expect![[r#"
        StoreReady True ClaimBound: the volume claim is bound
        GatewayReady True ReplicasServe: 1 of 1 replicas serve
        ResolvedRefs False SecretNotFound: there is no Secret our-people in this namespace: make it, or correct the name
        Ready False SecretNotFound: there is no Secret our-people in this namespace: make it, or correct the name
        Reconciling True SecretNotFound: there is no Secret our-people in this namespace: make it, or correct the name
    "#]],
    );
    let tokens = json!({"alice": Key::from_random([1; 32]).expose(), "bob": "hunter2"});
    let mut with_secret = running();
    with_secret.gateway.people_secret = Some(secret_of(&tokens));
    check(
        spec,
        &with_secret,
        expect![[r#"
        StoreReady True ClaimBound: the volume claim is bound
        GatewayReady True ReplicasServe: 1 of 1 replicas serve
        ResolvedRefs False SecretInvalid: key bob of Secret our-people holds no key in Chandlery's format: `chandlery key new` makes one
        Ready False SecretInvalid: key bob of Secret our-people holds no key in Chandlery's format: `chandlery key new` makes one
        Stalled True SecretInvalid: key bob of Secret our-people holds no key in Chandlery's format: `chandlery key new` makes one
    "#]],
    );
    with_secret.gateway.people_secret = Some(secret_of(&json!({})));
    check(
        spec,
        &with_secret,
        expect![[r#"
        StoreReady True ClaimBound: the volume claim is bound
        GatewayReady True ReplicasServe: 1 of 1 replicas serve
        ResolvedRefs True Resolved: everything named is there
        Ready True Ready: the Workspace is served
    "#]],
    );
}

#[test]
fn no_gateway_may_read_a_key_because_a_workspace_names_its_secret() {
    let spec = "{people: {tokensSecretRef: {name: agent-a-mcp}}}";
    let mut observed = running();
    let mut secret = secret_of(&json!({}));
    secret.metadata.owner_references = serde_json::from_value(json!([
        {"apiVersion": "chandlery.dev/v1alpha1", "kind": "Agent", "name": "a", "uid": "u"}
    ]))
    .unwrap();
    observed.gateway.people_secret = Some(secret);
    check(
        spec,
        &observed,
        expect![[r#"
        StoreReady True ClaimBound: the volume claim is bound
        GatewayReady True ReplicasServe: 1 of 1 replicas serve
        ResolvedRefs False SecretInvalid: Secret agent-a-mcp is one of Chandlery's own: write people's tokens into one of yours
        Ready False SecretInvalid: Secret agent-a-mcp is one of Chandlery's own: write people's tokens into one of yours
        Stalled True SecretInvalid: Secret agent-a-mcp is one of Chandlery's own: write people's tokens into one of yours
    "#]],
    );
    let rules = plan_of(spec, &observed)
        .gateway
        .unwrap()
        .role
        .rules
        .unwrap();
    assert_eq!(rules.len(), 1);
}

fn secret_of(values: &serde_json::Value) -> Secret {
    let values: std::collections::BTreeMap<String, String> =
        serde_json::from_value(values.clone()).unwrap();
    let bytes = |text: String| k8s_openapi::ByteString(text.into_bytes());
    Secret {
        data: Some(
            values
                .into_iter()
                .map(|(name, text)| (name, bytes(text)))
                .collect(),
        ),
        ..Secret::default()
    }
}

#[test]
fn a_database_needs_its_url() {
    check(
        "{store: {postgres: {urlFrom: {secretKeyRef: {name: db, key: url}}}}}",
        &running(),
        expect![[r#"
            StoreReady False SecretNotFound: there is no Secret db in this namespace: make it, or correct the name
            GatewayReady True ReplicasServe: 1 of 1 replicas serve
            Ready False SecretNotFound: there is no Secret db in this namespace: make it, or correct the name
            Reconciling True SecretNotFound: there is no Secret db in this namespace: make it, or correct the name
        "#]],
    );
}

#[test]
fn a_member_is_as_ready_as_its_account() {
    check(
        "{accountRef: {name: home}}",
        &Observed::default(),
        expect![[r#"
            Ready False AccountNotFound: accountRef names Workspace home, which is not in this namespace: make it, or correct accountRef
            Reconciling True AccountNotFound: accountRef names Workspace home, which is not in this namespace: make it, or correct accountRef
        "#]],
    );
    let account = |spec: &str| Observed {
        account: Some(Arc::new(workspace(spec))),
        ..Observed::default()
    };
    check(
        "{accountRef: {name: home}}",
        &account("{accountRef: {name: far}}"),
        expect![[r#"
            Ready False AccountRefersToAnother: accountRef names Workspace home, which is no account itself: name its account far instead
            Stalled True AccountRefersToAnother: accountRef names Workspace home, which is no account itself: name its account far instead
        "#]],
    );
    let mut ready = workspace("{}");
    let wanted = [Wanted::new(kind::READY, Some(true), reason::READY, "")];
    ready.status = Some(chandlery_crds::WorkspaceStatus {
        conditions: chandlery_crds::conditions::merge(&[], &wanted, 1, Timestamp::UNIX_EPOCH),
        ..Default::default()
    });
    let observed = Observed {
        account: Some(Arc::new(ready)),
        ..Observed::default()
    };
    let plan = plan_of("{accountRef: {name: home}}", &observed);
    assert!(plan.gateway.is_none());
    expect![[r#"
        Ready True Ready: the Workspace is served
    "#]]
    .assert_eq(&conditions(&plan));
}
