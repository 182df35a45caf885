//! `crdgen [ROOT]` writes everything that is made from the resource types: the chart of CRDs and the reference page.
//!
//! A test fails when what is committed differs from what this program writes.

mod reference;

use std::path::{Path, PathBuf};
use std::{env, fs};

use chandlery_crds::crd::Kind;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

fn main() -> std::io::Result<()> {
    let root = env::args_os().nth(1).map_or_else(repository, PathBuf::from);
    for (path, text) in files() {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        fs::write(path, text)?;
    }
    Ok(())
}

/// The folder that holds this crate, where the files are committed.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every generated file: its path in the repository, and its text.
fn files() -> Vec<(PathBuf, String)> {
    let chart = Path::new("charts/chandlery-crds");
    let crds = Kind::ALL.map(Kind::crd);
    let mut files = vec![
        (
            PathBuf::from("docs/reference/resources.md"),
            reference::page(),
        ),
        (
            chart.join("Chart.yaml"),
            CHART.replace("VERSION", env!("CARGO_PKG_VERSION")),
        ),
        (chart.join("README.md"), README.to_owned()),
        (chart.join(".helmignore"), "crds.yaml\n".to_owned()),
        (
            chart.join("crds.yaml"),
            crds.iter()
                .map(yaml)
                .map(|crd| format!("---\n{crd}"))
                .collect(),
        ),
    ];
    files.extend(crds.into_iter().map(|crd| {
        let path = chart
            .join("templates")
            .join(format!("{}.yaml", crd.spec.names.plural));
        (path, template(crd))
    }));
    files
        .into_iter()
        .map(|(path, text)| match path.extension() {
            Some(extension) if extension == "yaml" => {
                (path, format!("# Written by crdgen; do not edit.\n{text}"))
            }
            _ => (path, text),
        })
        .collect()
}

/// A CRD that stays when the chart is uninstalled: deleting it would delete people's objects.
fn template(mut crd: CustomResourceDefinition) -> String {
    crd.metadata
        .annotations
        .get_or_insert_default()
        .insert("helm.sh/resource-policy".to_owned(), "keep".to_owned());
    let text = yaml(&crd);
    assert!(!text.contains("{{"), "Helm would read {{{{ as a template");
    text
}

fn yaml(crd: &CustomResourceDefinition) -> String {
    serde_saphyr::to_string(crd).expect("a CRD serializes")
}

const CHART: &str = "\
apiVersion: v2
name: chandlery-crds
description: The custom resources of Chandlery. Install it before the chart chandlery.
type: application
version: VERSION
appVersion: VERSION
kubeVersion: '>=1.33.0-0'
";

const README: &str = "\
# chandlery-crds

The four custom resources of Chandlery: `workspaces`, `agents`, `toolsources` and `toolgrants` of `chandlery.dev`.
They are a chart of their own, and templates, because Helm never upgrades what lies in a chart's `crds/` folder.

```sh
helm upgrade --install chandlery-crds charts/chandlery-crds
```

Uninstalling the chart keeps the resources, and with them everything that people made of them.
To remove them for good: `kubectl delete crd workspaces.chandlery.dev agents.chandlery.dev toolsources.chandlery.dev toolgrants.chandlery.dev`.

`crds.yaml` is the same without Helm, for `kubectl apply --server-side -f` and for GitOps.

All of this is written by `cargo run -p chandlery-crds --bin crdgen`; change the Rust types instead.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_files_are_what_crdgen_writes() {
        for (path, text) in files() {
            let committed = fs::read_to_string(repository().join(&path)).unwrap_or_default();
            assert!(
                committed == text,
                "{} is out of date: run `cargo run -p chandlery-crds --bin crdgen`",
                path.display()
            );
        }
    }

    #[test]
    fn the_examples_of_the_reference_page_are_whole() {
        let text = Kind::ALL.map(reference::example).join("---\n");
        let read = chandlery_crds::manifest::read("reference", &text);
        assert_eq!(read.problems, []);
        assert_eq!(chandlery_crds::check::all(&read.objects), []);
    }
}
