//! The gateway without Kubernetes, as a process on loopback: what it prints, what it serves, and what it says of
//! manifests that are wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chandlery_tests::agents::Binding;
use chandlery_tests::client::{Client, ERAS, Endpoint, Era};
use chandlery_tests::standalone::Gateway;
use chandlery_tests::{clients, eventually, output, people, release};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::process::Command;

const SOON: Duration = Duration::from_secs(30);

const CLOCK: &str = "default.clock";
const RESEARCHER: &str = "default.researcher";

fn clock(more: &str) -> String {
    format!(
        "apiVersion: chandlery.dev/v1alpha1\nkind: Agent\nmetadata: {{name: clock}}\nspec:\n  workspaceRef: {{name: lab}}\n{more}"
    )
}

// Bar: "the printed snippet works as is with the Python `mcp` client in both eras".
#[tokio::test]
async fn the_printed_python_program_works_as_it_is() -> Result<()> {
    let gateway = Gateway::start().await?;
    let program = gateway.snippet(RESEARCHER, "Python")?;
    let older = program.replace("MODE = \"auto\"", "MODE = \"legacy\"");
    ensure!(program != older, "the program has a mode");
    for program in [program, older] {
        let file = gateway.root.path().join("agent.py");
        fs::write(&file, &program)?;
        let text = output(Command::new(clients::python()?).arg(&file)).await?;
        let (tools, now) = text.trim().split_once('\n').context("two lines")?;
        ensure!(
            tools.contains("agnt_datetime_now") && tools.contains("task"),
            "{tools}"
        );
        ensure!(now.contains("(") && now.contains("UTC"), "{now}");
    }
    gateway.stop().await.map(drop)
}

// Bar: "and with the MCP Inspector CLI".
#[tokio::test]
async fn the_printed_inspector_command_works_as_it_is() -> Result<()> {
    let gateway = Gateway::start().await?;
    let command = gateway.snippet(CLOCK, "MCP Inspector")?;
    // npx would fetch the package: the same version is installed already.
    let npx = gateway.root.path().join("npx");
    let (node, inspector) = (clients::node()?, clients::node_program("mcp-inspector")?);
    fs::write(
        &npx,
        format!(
            "#!/bin/sh\n[ \"$1\" = @modelcontextprotocol/inspector@2.12.0 ] || exit 9\nshift\nexec '{}' '{}' \"$@\"\n",
            node.display(),
            inspector.display()
        ),
    )?;
    fs::set_permissions(&npx, fs::Permissions::from_mode(0o755))?;
    let path = format!("{}:/usr/bin:/bin", gateway.root.path().display());
    for era in ["auto", "legacy"] {
        let command = command.replace("--protocol-era auto", &format!("--protocol-era {era}"));
        let mut shell = Command::new("sh");
        let shell = shell
            .args(["-c", &command])
            .env_clear()
            .env("PATH", &path)
            .env("HOME", gateway.root.path());
        let tools: Value = serde_json::from_str(&output(shell).await?)?;
        ensure!(
            tools["tools"][0]["name"] == "agnt_datetime_now"
                && tools["tools"]
                    .as_array()
                    .is_some_and(|tools| tools.iter().all(|tool| tool["name"] != "memory")),
            "{tools}"
        );
    }
    gateway.stop().await.map(drop)
}

#[tokio::test]
async fn the_printed_mcp_json_names_the_endpoint_and_not_the_key() -> Result<()> {
    let gateway = Gateway::start().await?;
    let config: Value = serde_json::from_str(&gateway.snippet(CLOCK, "Claude Code")?)?;
    let server = &config["mcpServers"]["default-clock"];
    ensure!(
        server["url"] == gateway.endpoint(CLOCK)?.uri.to_string(),
        "{config}"
    );
    ensure!(
        server["headers"]["Authorization"] == "Bearer ${CHANDLERY_KEY}",
        "{config}"
    );
    for agent in [CLOCK, RESEARCHER] {
        ensure!(
            !gateway.printed.contains(&gateway.key(agent)?),
            "a key was printed"
        );
        ensure!(
            !gateway.log().contains(&gateway.key(agent)?),
            "a key was logged"
        );
    }
    let connect = output(
        Command::new(release::programs().await?.join("chandlery"))
            .args([
                "connect",
                "clock",
                "--client=claude-code",
                "--data=data",
                "--url",
            ])
            .arg(gateway.shown("serving", "serving")?)
            .current_dir(gateway.root.path()),
    )
    .await?;
    ensure!(
        serde_json::from_str::<Value>(&connect)? == config,
        "{connect}"
    );
    gateway.stop().await.map(drop)
}

#[tokio::test]
async fn each_agent_opens_its_own_endpoint_with_its_own_key() -> Result<()> {
    let gateway = Gateway::start().await?;
    for era in ERAS {
        let clock = Client::connect(&gateway.endpoint(CLOCK)?, &gateway.key(CLOCK)?, era).await?;
        let tools = clock.tools().await?;
        ensure!(tools.contains(&"agnt_datetime_now".to_owned()), "{tools:?}");
        ensure!(!tools.contains(&"memory".to_owned()), "{tools:?}");
        let researcher = Client::connect(
            &gateway.endpoint(RESEARCHER)?,
            &gateway.key(RESEARCHER)?,
            era,
        )
        .await?;
        ensure!(researcher.tools().await?.contains(&"memory".to_owned()));
        researcher
            .call("agnt_datetime_now", json!({"timezone": "Europe/Berlin"}))
            .await?;
    }
    let endpoint = gateway.endpoint(CLOCK)?;
    ensure!(endpoint.status_for(&gateway.key(RESEARCHER)?).await? == StatusCode::FORBIDDEN);
    let unknown =
        output(Command::new(release::programs().await?.join("chandlery")).args(["key", "new"]))
            .await?;
    for key in [unknown.trim(), "", "chd_", "not a key"] {
        ensure!(
            endpoint.status_for(key).await? == StatusCode::UNAUTHORIZED,
            "{key}"
        );
    }
    gateway.stop().await.map(drop)
}

#[tokio::test]
async fn a_key_is_the_same_after_a_restart_and_only_its_owner_reads_it() -> Result<()> {
    let gateway = Gateway::start().await?;
    let keys = [gateway.key(CLOCK)?, gateway.key(RESEARCHER)?];
    let root = gateway.stop().await?;
    let mode =
        |path: PathBuf| -> Result<u32> { Ok(fs::metadata(path)?.permissions().mode() & 0o777) };
    ensure!(mode(root.path().join("data/keys"))? == 0o700);
    ensure!(mode(root.path().join("data/keys").join(CLOCK))? == 0o600);
    let gateway = Gateway::start_in(root).await?;
    ensure!(keys == [gateway.key(CLOCK)?, gateway.key(RESEARCHER)?]);
    ensure!(gateway.status(CLOCK).await? == StatusCode::OK);
    gateway.stop().await.map(drop)
}

// R-C-210: somebody can allow calls from the first minute on.
#[tokio::test]
async fn the_printed_token_is_that_of_an_admin_until_a_workspace_names_people() -> Result<()> {
    const ADMIN: &str = "token of admin:";
    let admin = async |gateway: &Gateway, token: &str| {
        let binding = Binding {
            endpoint: gateway.endpoint(RESEARCHER)?,
            key: gateway.key(RESEARCHER)?,
        };
        people::ask(&binding, token, "GET", "/api/v1/me").await
    };
    let gateway = Gateway::start().await?;
    let file = gateway.shown("people", "people    token of admin:")?;
    let mode = fs::metadata(&file)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "{file}: {mode:o}");
    let token = fs::read_to_string(&file)?;
    ensure!(!gateway.printed.contains(&token), "no token is printed");
    let (status, me) = admin(&gateway, &token).await?;
    ensure!(status == 200 && me["name"] == "admin", "{status} {me}");

    let gateway = Gateway::start_in(gateway.stop().await?).await?;
    ensure!(fs::read_to_string(&file)? == token, "the token stays");
    ensure!(admin(&gateway, &token).await?.0 == 200);
    let team = "apiVersion: chandlery.dev/v1alpha1\nkind: Workspace\nmetadata: {name: team}\nspec: {people: {tokensSecretRef: {name: p}}}\n";
    gateway.write("1-team.yaml", team)?;
    eventually("the admin is nobody", SOON, async || {
        Ok((admin(&gateway, &token).await?.0 == 401).then_some(()))
    })
    .await?;
    let gateway = Gateway::start_in(gateway.stop().await?).await?;
    ensure!(!gateway.printed.contains(ADMIN), "{}", gateway.printed);
    ensure!(
        gateway.log().contains("put the Secret p into this folder"),
        "{}",
        gateway.log()
    );
    Ok(())
}

#[tokio::test]
async fn a_changed_manifest_is_served_within_a_second() -> Result<()> {
    let gateway = Gateway::start().await?;
    let client = Client::connect(
        &gateway.endpoint(CLOCK)?,
        &gateway.key(CLOCK)?,
        Era::Stateless,
    )
    .await?;
    let mut times = Vec::new();
    for on in [true, false, true, false, true] {
        gateway.write(
            "4-clock.yaml",
            &clock(&format!("  workspaceToolsEnabled: {on}\n")),
        )?;
        let changed = Instant::now();
        eventually("the new list", SOON, async || {
            let has = client.tools().await?.contains(&"memory".to_owned());
            Ok((has == on).then_some(()))
        })
        .await?;
        times.push(changed.elapsed());
    }
    times.sort();
    ensure!(times[2] <= Duration::from_secs(1), "{times:?}");
    gateway.stop().await.map(drop)
}

#[tokio::test]
async fn a_disabled_agent_is_shut_out_until_it_is_deployed_again() -> Result<()> {
    let gateway = Gateway::start().await?;
    let (endpoint, key) = (gateway.endpoint(CLOCK)?, gateway.key(CLOCK)?);
    let becomes = async |status: StatusCode| {
        let what = format!("the key answers {status}");
        eventually(&what, SOON, async || {
            Ok((endpoint.status_for(&key).await? == status).then_some(()))
        })
        .await
    };
    for (state, status) in [("Disabled", 401), ("Deployed", 200), ("Archived", 401)] {
        gateway.write("4-clock.yaml", &clock(&format!("  state: {state}\n")))?;
        becomes(StatusCode::from_u16(status)?).await?;
    }
    gateway.write("4-clock.yaml", &clock(""))?;
    eventually("a new key", SOON, async || {
        let is_new = gateway.key(CLOCK).is_ok_and(|now| now != key);
        Ok((is_new && gateway.status(CLOCK).await? == StatusCode::OK).then_some(()))
    })
    .await?;
    becomes(StatusCode::UNAUTHORIZED).await?;
    let key = gateway.key(CLOCK)?;
    fs::remove_file(gateway.root.path().join("manifests/4-clock.yaml"))?;
    eventually("the removed agent is shut out", SOON, async || {
        Ok((endpoint.status_for(&key).await? == StatusCode::UNAUTHORIZED).then_some(()))
    })
    .await?;
    ensure!(gateway.status(RESEARCHER).await? == StatusCode::OK);
    gateway.stop().await.map(drop)
}

#[tokio::test]
async fn a_broken_file_is_reported_and_its_last_good_content_stays() -> Result<()> {
    let gateway = Gateway::start().await?;
    let broken = clock("  tools: []\n  toools: []\n");
    gateway.write("4-clock.yaml", &broken)?;
    eventually("the report", SOON, async || {
        let line = r#"manifests/4-clock.yaml:7: Agent/clock: unknown field "spec.toools""#;
        Ok(gateway
            .log()
            .replace("\\\"", "\"")
            .contains(line)
            .then_some(()))
    })
    .await?;
    ensure!(gateway.status(CLOCK).await? == StatusCode::OK);
    gateway.write(
        "5-more.yaml",
        &clock("").replace("name: clock", "name: more"),
    )?;
    eventually("other files are taken", SOON, async || {
        Ok(gateway
            .root
            .path()
            .join("data/keys/default.more")
            .is_file()
            .then_some(()))
    })
    .await?;
    gateway.write("4-clock.yaml", &clock("  workspaceToolsEnabled: true\n"))?;
    let client = Client::connect(
        &gateway.endpoint(CLOCK)?,
        &gateway.key(CLOCK)?,
        Era::Stateless,
    )
    .await?;
    eventually("the file once it is right", SOON, async || {
        let tools = client.tools().await?;
        Ok(tools.contains(&"memory".to_owned()).then_some(()))
    })
    .await?;
    gateway.stop().await.map(drop)
}

#[tokio::test]
async fn a_start_on_what_is_wrong_says_what_to_write_instead() -> Result<()> {
    let root = tempfile::tempdir()?;
    fs::create_dir(root.path().join("manifests"))?;
    fs::write(
        root.path().join("manifests/a.yaml"),
        clock("  state: Sleeping\n"),
    )?;
    let program = release::programs().await?.join("chandlery");
    let serve = async |arguments: &[&str], root: &Path| -> Result<(Option<i32>, String)> {
        let mut command = Command::new(&program);
        let command = command
            .arg("serve")
            .args(arguments)
            .current_dir(root)
            .kill_on_drop(true);
        let ran = tokio::time::timeout(SOON, command.output()).await??;
        Ok((
            ran.status.code(),
            String::from_utf8_lossy(&ran.stderr).into_owned(),
        ))
    };
    let ports = ["--listen=127.0.0.1:0", "--health=127.0.0.1:0"];
    for (arguments, code, words) in [
        (
            vec!["--manifests=manifests", "--data=data"],
            1,
            "manifests/a.yaml:6: Agent/clock: spec.state: Unsupported value",
        ),
        (
            vec!["--manifests=nowhere"],
            2,
            "--manifests nowhere: there is no such folder",
        ),
        (
            vec!["--account=team", "--internal=127.0.0.1:0", "--keys=."],
            2,
            "write the account as <namespace>/<name>",
        ),
        (
            vec!["--manifests=manifests", "--max-config-staleness=5"],
            2,
            "write a duration with its unit",
        ),
        (vec![], 2, "--manifests"),
    ] {
        let (found, said) = serve(&[&ports[..], &arguments].concat(), root.path()).await?;
        ensure!(
            found == Some(code) && said.contains(words),
            "{arguments:?}: {found:?} {said}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn health_and_metrics_say_how_it_is() -> Result<()> {
    let gateway = Gateway::start().await?;
    let uri: http::Uri = gateway.shown("health", "health")?.parse()?;
    let health = Endpoint {
        address: uri.authority().context("an address")?.as_str().parse()?,
        uri,
    };
    for (path, status) in [("/livez", 200), ("/readyz", 200), ("/elsewhere", 404)] {
        ensure!(
            health
                .at(path)?
                .send("GET", &[], String::new())
                .await?
                .status
                == status,
            "{path}"
        );
    }
    let program = release::programs().await?.join("chandlery");
    output(Command::new(&program).args(["probe", &health.uri.to_string()])).await?;
    ensure!(
        output(Command::new(&program).args(["probe", &health.at("/elsewhere")?.uri.to_string()]))
            .await
            .is_err()
    );
    let client = Client::connect(
        &gateway.endpoint(CLOCK)?,
        &gateway.key(CLOCK)?,
        Era::Sessions,
    )
    .await?;
    client.call("agnt_datetime_now", json!({})).await?;
    gateway.endpoint(CLOCK)?.status_for("chd_wrong").await?;
    let metrics = health
        .at("/metrics")?
        .send("GET", &[], String::new())
        .await?
        .body;
    for line in [
        "chandlery_tool_calls_total{outcome=\"done\"} 1",
        "chandlery_requests_refused_total{reason=\"key\"} 1",
        "chandlery_config_connected 1",
        "chandlery_agents 2",
    ] {
        ensure!(
            metrics.as_str().is_some_and(|text| text.contains(line)),
            "{line}: {metrics}"
        );
    }
    gateway.stop().await.map(drop)
}
