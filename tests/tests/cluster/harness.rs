//! The harness itself: what the other tests take for granted.

use std::time::Duration;

use chandlery_tests::{audit, cluster, eventually, namespace::in_namespace};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::runtime::conditions::is_pod_running;
use kube::runtime::wait::await_condition;

const POD_WITH_A_CLAIM: &str = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: holder}
spec:
  securityContext: {runAsNonRoot: true, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: pause
    image: localhost/pause:1
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
";

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn a_claim_gets_a_volume_and_the_volume_goes_with_it() {
    let mut volume = None;
    in_namespace(async |namespace| {
        namespace.apply(POD_WITH_A_CLAIM).await?;
        let running = await_condition(namespace.api::<Pod>(), "holder", is_pod_running());
        tokio::time::timeout(Duration::from_secs(60), running).await??;
        let claim = namespace.api::<PersistentVolumeClaim>().get("data").await?;
        volume = claim.spec.and_then(|spec| spec.volume_name);
        Ok(())
    })
    .await;
    let volume = volume.expect("the claim was bound");
    let volumes: Api<PersistentVolume> = Api::all(cluster::client().await.unwrap());
    eventually("the volume is gone", Duration::from_secs(30), async || {
        Ok(volumes.get_opt(&volume).await?.is_none().then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn pods_that_are_not_restricted_are_refused() {
    in_namespace(async |namespace| {
        let refusal = namespace
            .apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: 'localhost/pause:1'}]}}")
            .await
            .expect_err("Pod Security is enforced");
        assert!(format!("{refusal:#}").contains("violates PodSecurity \"restricted"), "{refusal:#}");
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster"]
async fn the_audit_log_tells_who_did_what() {
    in_namespace(async |namespace| {
        let mark = audit::mark()?;
        namespace.api::<Pod>().get_opt("nobody").await?;
        eventually("the log has it", Duration::from_secs(10), async || {
            let seen = audit::since(mark, |user| user == "admin")?
                .into_iter()
                .any(|event| {
                    event.verb == "get"
                        && event
                            .response_status
                            .is_some_and(|status| status.code == 404)
                        && event.object_ref.is_some_and(|object| {
                            object.resource == "pods"
                                && object.name == "nobody"
                                && object.namespace == namespace.name
                        })
                });
            Ok(seen.then_some(()))
        })
        .await
    })
    .await;
}
