//! The examples of sources, tried with their stand-ins as a newcomer would.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Gateway, SOON};
use crate::program::{imported, objects, of_kind};
use crate::said::Said;

/// The stand-in of an example on a port of its own; it ends with this.
struct Stand {
    child: Child,
    port: String,
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples")
        .join(name)
}

impl Stand {
    fn start(name: &str) -> Self {
        let port = free_port();
        let child = Command::new("python3")
            .args([&example(name).join("fake.py").to_string_lossy(), &*port])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stand = Self { child, port };
        let deadline = Instant::now() + SOON;
        while std::net::TcpStream::connect(format!("127.0.0.1:{}", stand.port)).is_err() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(50));
        }
        stand
    }

    /// The manifests of the example in the namespace `team`, about this port instead of `port`.
    fn manifests(&self, name: &str, port: &str) -> Vec<Value> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(example(name))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
            .collect();
        files.sort();
        let texts = files
            .iter()
            .map(|path| std::fs::read_to_string(path).unwrap());
        let mut manifests: Vec<Value> = texts
            .flat_map(|text| objects(&text.replace(port, &self.port)))
            .collect();
        for manifest in &mut manifests {
            manifest["metadata"]["namespace"] = json!("team");
        }
        manifests
    }
}

fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_a_document_can_be_tried() {
    let stand = Stand::start("openapi");
    let gateway = Gateway::start(&stand.manifests("openapi", "9911"), &[]).await;
    let lists = [
        "petshop_orders_read",
        "petshop_orders_write",
        "petshop_orders_delete",
        "petshop_pets_read",
        "petshop_pets_write",
    ];
    let deadline = Instant::now() + SOON;
    while gateway.list("seller").await.len() < lists.len() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let listed = gateway.list("seller").await;
    assert!(
        lists
            .iter()
            .all(|name| listed.iter().any(|own| own == name)),
        "{listed:?}"
    );
    let asked = json!({"action": "listPets", "status": ["available"], "limit": 1, "response_format": "raw"});
    let said = gateway.call("seller", "petshop_pets_read", asked).await;
    assert!(
        said.text().contains("Minka") && !said.text().contains("Bello"),
        "{said:?}"
    );
    let photo = json!({"action": "uploadPhoto", "petId": 1, "photo": "iVBORw0KGgo="});
    let said = gateway
        .call("seller", "petshop_pets_write", photo.clone())
        .await;
    let Said::Awaiting(id) = said else {
        panic!("{said:?}");
    };
    gateway
        .api("POST", &format!("/approvals/{id}/approve"))
        .await;
    let said = gateway.call("seller", "petshop_pets_write", photo).await;
    assert!(said.text().contains("/pets/1/photos/1"), "{said:?}");

    // Its document says that the service is elsewhere than where it was read, so that is written down.
    let url = format!("http://127.0.0.1:{}/openapi.yaml", stand.port);
    let hosts = ["--allow-host", "127.0.0.1", "--name", "customers"];
    let text = imported(&[&["openapi", &url][..], &hosts].concat(), "").await;
    let objects = objects(&text);
    let spec = &of_kind(&objects, "ToolSource")["spec"];
    assert_eq!(
        spec["openapi"],
        json!({"url": url, "baseUrl": "http://127.0.0.1:9911/v1"})
    );
    assert_eq!(spec["auth"]["bearer"]["secretKeyRef"]["key"], "token");
    assert_eq!(
        of_kind(&objects, "ToolGrant")["spec"]["tools"]
            .as_array()
            .unwrap()
            .len(),
        6
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_a_remote_server_can_be_tried() {
    let stand = Stand::start("remote-mcp");
    let manifests = stand.manifests("remote-mcp", "9912");
    let gateway = Gateway::start(&manifests, &[]).await;
    gateway
        .until_listed(
            "reader",
            &["library_find_books", "library_get_book", "library_add_book"],
        )
        .await;
    let said = gateway
        .call("reader", "library_find_books", json!({"words": "moby"}))
        .await;
    assert_eq!(said.text(), r#"{"2": "Moby-Dick"}"#);

    let url = format!("http://127.0.0.1:{}/mcp", stand.port);
    let text = imported(
        &[
            "mcp",
            &url,
            "--allow-host",
            "127.0.0.1",
            "--name",
            "customers",
        ],
        "",
    )
    .await;
    let found = objects(&text);
    // The revision that the example approves is the one that there is.
    let approved = |objects: &[Value]| {
        of_kind(objects, "ToolSource")["spec"]["pinning"]["approvedRevision"].clone()
    };
    assert_eq!(approved(&manifests), approved(&found));
}
