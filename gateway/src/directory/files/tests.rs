use chandlery_crds::check;
use chandlery_crds::key::Key;
use secrecy::ExposeSecret as _;

use super::*;
use crate::auth;
use crate::directory::Directory;

const HOME: &str =
    "apiVersion: chandlery.dev/v1alpha1\nkind: Workspace\nmetadata: {name: home}\nspec: {}\n";

fn agent(name: &str, more: &str) -> String {
    format!(
        "apiVersion: chandlery.dev/v1alpha1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  workspaceRef: {{name: home}}\n{more}"
    )
}

struct Folder {
    root: tempfile::TempDir,
    files: Option<Files>,
    directory: Directory,
}

impl Folder {
    fn new(manifests: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("manifests")).unwrap();
        let folder = Self {
            root,
            files: None,
            directory: Directory::new().1,
        };
        folder.write(manifests);
        folder
    }

    fn write(&self, manifests: &[(&str, &str)]) {
        for (name, text) in manifests {
            std::fs::write(self.root.path().join("manifests").join(name), text).unwrap();
        }
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.root.path().join("manifests").join(name)).unwrap();
    }

    fn start(&mut self) -> Result<(), String> {
        let (publisher, directory) = Directory::new();
        self.directory = directory;
        let (manifests, data) = (
            self.root.path().join("manifests"),
            self.root.path().join("data"),
        );
        let files = Files::open(
            &manifests,
            &data,
            Box::new(|objects, _| check::all(objects)),
            Clock::system(),
            publisher,
        )
        .map_err(|error| {
            error
                .to_string()
                .replace(&*manifests.to_string_lossy(), "…")
        })?;
        self.files = Some(files);
        Ok(())
    }

    /// Two looks at the folder, as many as a change takes.
    fn look(&mut self) {
        let files = self.files.as_mut().unwrap();
        let look = files.step(None);
        files.step(look.as_ref());
    }

    fn agents(&self) -> Vec<String> {
        let snapshot = self.directory.snapshot().unwrap();
        let mut agents: Vec<String> = snapshot.agents.keys().cloned().collect();
        agents.sort();
        agents
    }

    fn key(&self, agent: &str) -> Option<String> {
        std::fs::read_to_string(key_file(&self.root.path().join("data"), agent)).ok()
    }

    fn opens(&self, key: &str) -> bool {
        auth::identify(
            &self.directory.snapshot().unwrap(),
            key,
            jiff::Timestamp::now(),
        )
        .is_some()
    }
}

#[test]
fn the_same_key_opens_after_a_restart_and_none_after_removal() {
    let (a, b) = (agent("a", ""), agent("b", ""));
    let mut folder = Folder::new(&[
        ("home.yaml", HOME),
        ("a.yaml", &a),
        ("b.yml", &b),
        ("notes.txt", "-"),
    ]);
    folder.start().unwrap();
    assert_eq!(folder.agents(), ["default.a", "default.b"]);
    let key = folder.key("default.a").unwrap();
    assert!(folder.opens(&key));
    folder.start().unwrap();
    assert!(folder.opens(&key));
    folder.remove("a.yaml");
    folder.look();
    assert_eq!(folder.agents(), ["default.b"]);
    assert!(!folder.opens(&key) && folder.key("default.a").is_none());
}

#[test]
fn a_disabled_agent_keeps_its_key_and_an_archived_one_does_not() {
    let mut folder = Folder::new(&[("home.yaml", HOME), ("a.yaml", &agent("a", ""))]);
    folder.start().unwrap();
    let key = folder.key("default.a").unwrap();
    folder.write(&[("a.yaml", &agent("a", "  state: Disabled\n"))]);
    folder.look();
    assert!(!folder.opens(&key));
    folder.write(&[("a.yaml", &agent("a", "  state: Deployed\n"))]);
    folder.look();
    assert!(folder.opens(&key));
    folder.write(&[("a.yaml", &agent("a", "  state: Archived\n"))]);
    folder.look();
    folder.write(&[("a.yaml", &agent("a", ""))]);
    folder.look();
    assert!(!folder.opens(&key) && folder.opens(&folder.key("default.a").unwrap()));
}

#[test]
fn a_broken_file_keeps_its_last_good_content_and_holds_up_no_other() {
    let mut folder = Folder::new(&[("home.yaml", HOME), ("a.yaml", &agent("a", ""))]);
    folder.start().unwrap();
    let both = format!("{}---\n{}", agent("c", ""), agent("a", "  toools: []\n"));
    folder.write(&[("a.yaml", &both), ("b.yaml", &agent("b", ""))]);
    folder.look();
    assert_eq!(folder.agents(), ["default.a", "default.b"]);
}

#[tokio::test]
async fn secrets_and_config_maps_are_read_as_the_folder_has_them() {
    let secret = |value: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n  annotations: {{chandlery.dev/allowed-hosts: \"a.example, *.b.example:8443,\"}}\nstringData: {{k: {value}}}\n"
        )
    };
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {doc: '{}'}\nbinaryData: {more: e30=, raw: /w==}\n";
    let mut folder = Folder::new(&[
        ("home.yaml", HOME),
        ("s.yaml", &secret("old")),
        ("m.yaml", map),
    ]);
    folder.start().unwrap();
    let references = folder.files.as_ref().unwrap().references();
    let read = async || {
        let secret = references.secret("default", "s").await.unwrap();
        let allowed = secret.allowed_hosts.unwrap();
        assert!(allowed.allow("https://a.example") && !allowed.allow("https://c.example"));
        secret.data["k"].expose_secret().to_vec()
    };
    assert_eq!(read().await, b"old");
    let texts = references.config_map("default", "m").await.unwrap();
    assert_eq!(texts.keys().collect::<Vec<_>>(), ["doc", "more"]);
    folder.write(&[("s.yaml", &secret("newer"))]);
    folder.look();
    assert_eq!(read().await, b"newer");
    folder.remove("s.yaml");
    folder.look();
    let gone = references.secret("default", "s").await.unwrap_err();
    assert_eq!(gone.to_string(), "there is no Secret s");
    assert!(references.config_map("other", "m").await.is_err());
}

#[test]
fn an_object_stays_with_the_file_that_had_it() {
    let mut folder = Folder::new(&[("home.yaml", HOME), ("b.yaml", &agent("x", ""))]);
    folder.start().unwrap();
    folder.write(&[(
        "a.yaml",
        &format!("{}---\n{}", agent("z", ""), agent("x", "")),
    )]);
    folder.look();
    assert_eq!(folder.agents(), ["default.x"]);
    folder.remove("b.yaml");
    folder.look();
    assert_eq!(folder.agents(), ["default.x", "default.z"]);
}

#[test]
fn what_is_immutable_in_a_cluster_is_so_here() {
    let mut folder = Folder::new(&[("home.yaml", HOME), ("a.yaml", &agent("a", ""))]);
    folder.start().unwrap();
    let moved = agent("a", "").replace("name: home", "name: away");
    folder.write(&[("a.yaml", &moved)]);
    folder.look();
    assert_eq!(folder.agents(), ["default.a"]);
}

#[test]
fn a_folder_that_is_wrong_at_the_start_is_refused() {
    let mut folder = Folder::new(&[
        ("home.yaml", HOME),
        ("a.yaml", &agent("a", "  state: Running\n")),
        ("b.json", "{"),
    ]);
    expect_test::expect![[r#"
        …/a.yaml:6: Agent/a: spec.state: Unsupported value: "Running": supported values: "Draft", "Deployed", "Disabled", "Archived"
        …/b.json:1: cannot be read as YAML: unclosed bracket '{'"#]]
    .assert_eq(&folder.start().unwrap_err());
}

#[test]
fn a_key_of_ones_own_comes_from_a_secret_of_the_folder() {
    let key = Key::from_random([5; 32]);
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: mine}}\nstringData: {{token: {}}}\n",
        key.expose()
    );
    let theirs = agent("a", "  key: {existingSecretRef: {name: mine}}\n");
    let mut folder = Folder::new(&[("home.yaml", HOME), ("a.yaml", &theirs)]);
    folder.start().unwrap();
    assert!(!folder.opens(key.expose()));
    folder.write(&[("secret.yaml", &secret)]);
    folder.look();
    assert!(folder.opens(key.expose()) && folder.key("default.a").is_none());
}

#[test]
fn people_are_those_of_the_secret_or_an_admin_whose_token_stays() {
    let mut folder = Folder::new(&[("home.yaml", HOME)]);
    let people = |folder: &Folder| {
        let snapshot = folder.directory.snapshot().unwrap();
        let mut names: Vec<String> = snapshot
            .people
            .values()
            .map(|person| format!("{} of {}", person.name, person.accounts.join(" and ")))
            .collect();
        names.sort();
        names
    };
    let token = |folder: &Folder| {
        std::fs::read_to_string(person_file(&folder.root.path().join("data"), ADMIN)).unwrap()
    };
    folder.start().unwrap();
    assert_eq!(people(&folder), ["admin of default.home"]);
    let made = token(&folder);
    folder.start().unwrap();
    assert_eq!(token(&folder), made);
    let snapshot = folder.directory.snapshot().unwrap();
    assert!(auth::person(&snapshot, &made).is_some());
    std::fs::remove_file(person_file(&folder.root.path().join("data"), ADMIN)).unwrap();
    folder.look();
    assert_ne!(token(&folder), made);
    let snapshot = folder.directory.snapshot().unwrap();
    assert!(auth::person(&snapshot, &made).is_none());
    assert!(auth::person(&snapshot, &token(&folder)).is_some());

    folder.write(&[(
        "home.yaml",
        &HOME.replace("{}", "{people: {tokensSecretRef: {name: p}}}"),
    )]);
    folder.look();
    assert_eq!(people(&folder), [""; 0]);
    let key = Key::from_random([5; 32]);
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: p}}\nstringData: {{alice: '{}', bob: hunter2}}\n",
        key.expose()
    );
    folder.write(&[("p.yaml", &secret)]);
    folder.look();
    assert_eq!(people(&folder), ["alice of default.home"]);
    // An agent's key is no person's token.
    let mine = agent("a", "  key: {existingSecretRef: {name: p, key: alice}}\n");
    folder.write(&[("a.yaml", &mine)]);
    folder.look();
    assert_eq!(people(&folder), [""; 0]);
    assert!(folder.opens(key.expose()));
}

#[test]
fn a_key_file_that_is_removed_is_made_anew() {
    let mut folder = Folder::new(&[("home.yaml", HOME), ("a.yaml", &agent("a", ""))]);
    folder.start().unwrap();
    let key = folder.key("default.a").unwrap();
    std::fs::remove_file(key_file(&folder.root.path().join("data"), "default.a")).unwrap();
    folder.look();
    assert!(!folder.opens(&key) && folder.opens(&folder.key("default.a").unwrap()));
}
