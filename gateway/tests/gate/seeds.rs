//! The seed's tools whose families are not built yet, with what decides about them: enough to list and to call them.
//!
//! When a family lands, its tools go away here.

use std::collections::BTreeMap;
use std::sync::Arc;

use chandlery_gateway::family::{Call, Family};
use chandlery_gateway::gate::Permit;
use chandlery_gateway::tool::{Effect, Group, Output, Served, Switch, Tool, ToolError};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

/// What has been executed: per tool, the arguments of each call.
#[derive(Default)]
pub(crate) struct Executed(Mutex<BTreeMap<String, Vec<Value>>>);

impl Executed {
    pub(crate) fn of(&self, tool: &str) -> Vec<Value> {
        self.0.lock().get(tool).cloned().unwrap_or_default()
    }

    pub(crate) fn count(&self, tool: &str) -> usize {
        self.of(tool).len()
    }
}

pub(crate) struct Seeds {
    pub(crate) executed: Arc<Executed>,
    /// How many more tools there are, `bulk_0` and so on.
    pub(crate) bulk: usize,
}

const READS: Effect = Effect::Reads;
const WRITES: Effect = Effect::Writes { idempotent: false };

/// Name, effect, what serves it, and the grouped tool with the action in it.
type Row = (
    &'static str,
    Effect,
    Served,
    Option<(&'static str, &'static str)>,
);

const fn on(switch: Switch) -> Served {
    Served::Switch(switch)
}

const ROWS: &[Row] = &[
    (
        "agnt_files_list",
        READS,
        Served::Always,
        Some(("agnt_files_read", "list")),
    ),
    (
        "agnt_files_get",
        READS,
        Served::Always,
        Some(("agnt_files_read", "get")),
    ),
    (
        "agnt_files_read",
        READS,
        Served::Always,
        Some(("agnt_files_read", "read")),
    ),
    (
        "agnt_files_upload",
        WRITES,
        Served::Always,
        Some(("agnt_files_write", "upload")),
    ),
    (
        "agnt_queues_enqueue",
        WRITES,
        Served::Always,
        Some(("agnt_queues_write", "enqueue")),
    ),
    (
        "agnt_queues_enqueue_batch",
        WRITES,
        Served::Always,
        Some(("agnt_queues_write", "enqueue_batch")),
    ),
    (
        "agnt_queues_list",
        READS,
        Served::Always,
        Some(("agnt_queues_read", "list")),
    ),
    (
        "agnt_queues_list_items",
        READS,
        Served::Always,
        Some(("agnt_queues_read", "list_items")),
    ),
    ("agnt_data_job_submit", WRITES, on(Switch::DataJobs), None),
    (
        "agnt_db_status",
        READS,
        on(Switch::Database),
        Some(("agnt_db_read", "status")),
    ),
    (
        "agnt_db_list_tables",
        READS,
        on(Switch::Database),
        Some(("agnt_db_read", "list_tables")),
    ),
    (
        "agnt_db_list_extensions",
        READS,
        on(Switch::Database),
        Some(("agnt_db_read", "list_extensions")),
    ),
    (
        "agnt_db_list_migrations",
        READS,
        on(Switch::Database),
        Some(("agnt_db_read", "list_migrations")),
    ),
    (
        "agnt_db_select",
        READS,
        on(Switch::Database),
        Some(("agnt_db_read", "select")),
    ),
    (
        "agnt_db_insert",
        WRITES,
        on(Switch::DatabaseWrites),
        Some(("agnt_db_write", "insert")),
    ),
    (
        "agnt_db_upsert",
        WRITES,
        on(Switch::DatabaseWrites),
        Some(("agnt_db_write", "upsert")),
    ),
    (
        "agnt_db_update",
        WRITES,
        on(Switch::DatabaseWrites),
        Some(("agnt_db_write", "update")),
    ),
    (
        "agnt_db_delete",
        WRITES,
        on(Switch::DatabaseWrites),
        Some(("agnt_db_write", "delete")),
    ),
    (
        "agnt_db_load_csv",
        WRITES,
        on(Switch::DatabaseWrites),
        Some(("agnt_db_write", "load_csv")),
    ),
    (
        "agnt_db_execute_sql",
        WRITES,
        on(Switch::Database),
        Some(("agnt_db_sql", "execute_sql")),
    ),
    (
        "agnt_db_apply_migration",
        WRITES,
        on(Switch::DatabaseMigrations),
        Some(("agnt_db_sql", "apply_migration")),
    ),
    (
        "agnt_sync_status",
        READS,
        on(Switch::Database),
        Some(("agnt_sync_read", "status")),
    ),
    (
        "agnt_sync_changes",
        READS,
        on(Switch::Database),
        Some(("agnt_sync_read", "changes")),
    ),
    (
        "connection_postgres_query",
        READS,
        on(Switch::PostgresConnection),
        None,
    ),
    (
        "connection_postgres_schema",
        READS,
        on(Switch::PostgresConnection),
        None,
    ),
    (
        "connection_supabase_query",
        READS,
        on(Switch::SupabaseConnection),
        None,
    ),
    (
        "connection_supabase_schema",
        READS,
        on(Switch::SupabaseConnection),
        None,
    ),
    (
        "agnt_documents_search",
        READS,
        on(Switch::Documents),
        Some(("agnt_documents_read", "search")),
    ),
    (
        "agnt_documents_read",
        READS,
        on(Switch::Documents),
        Some(("agnt_documents_read", "read")),
    ),
    (
        "agnt_observability_read_session",
        READS,
        on(Switch::Observability),
        None,
    ),
    (
        "agnt_agents_dispatch",
        WRITES,
        on(Switch::AgentInvocation),
        Some(("agnt_agents_run", "dispatch")),
    ),
    (
        "agnt_agents_session_start",
        WRITES,
        on(Switch::AgentInvocation),
        Some(("agnt_agents_run", "session_start")),
    ),
    (
        "agnt_agents_session_send",
        WRITES,
        on(Switch::AgentInvocation),
        Some(("agnt_agents_run", "session_send")),
    ),
    (
        "agnt_agents_session_poll",
        READS,
        on(Switch::AgentInvocation),
        None,
    ),
    ("agnt_dashboards_read", READS, on(Switch::Dashboards), None),
    (
        "agnt_skill_manifest",
        READS,
        on(Switch::CodeExecution),
        None,
    ),
    (
        "agnt_typescript_run_skill",
        WRITES,
        on(Switch::TypescriptSkills),
        None,
    ),
    (
        "agnt_typescript_skill_status",
        READS,
        on(Switch::TypescriptSkills),
        None,
    ),
    ("agnt_credits_balance", READS, Served::Entry, None),
    ("agnt_usage_recent", READS, Served::Entry, None),
    ("agnt_webhooks_send", WRITES, Served::Entry, None),
    ("agnt_webhooks_receive_recent", READS, Served::Entry, None),
    ("agnt_webhooks_inbound_url", READS, Served::Entry, None),
    ("escalate_to_human", WRITES, Served::Entry, None),
    ("notify_human", WRITES, Served::Entry, None),
    ("agnt_report", WRITES, Served::Entry, None),
    ("agnt_sessions_read", READS, Served::Entry, None),
    ("agnt_memory_save", WRITES, Served::Entry, None),
    ("agnt_email_send", WRITES, Served::Entry, None),
    // Never on an agent's endpoint, whatever a family says of them.
    ("agnt_onboarding", READS, Served::Always, None),
    ("agnt_platform_map", READS, Served::Always, None),
    ("agnt_tools_search", READS, Served::Always, None),
    ("agnt_tools_enable", WRITES, Served::Always, None),
    ("agnt_tools_disable", WRITES, Served::Always, None),
    ("agnt_tools_list_enabled", READS, Served::Always, None),
    ("agnt_subscription_get", READS, Served::Always, None),
    ("agnt_subscription_preview", READS, Served::Always, None),
    ("agnt_subscription_change", WRITES, Served::Always, None),
    ("agnt_setup_claim", WRITES, Served::Always, None),
    ("agnt_bounties_list", READS, Served::Always, None),
    ("agnt_bounties_claim", WRITES, Served::Always, None),
    ("agnt_agents_create", WRITES, Served::Always, None),
    ("agnt_schedules_create", WRITES, Served::Always, None),
    ("agnt_queues_create", WRITES, Served::Always, None),
    (
        "agnt_webhooks_create_endpoint",
        WRITES,
        Served::Always,
        None,
    ),
    ("agnt_knowledge_create", WRITES, Served::Always, None),
    ("agnt_platform_guidance", READS, Served::Always, None),
    ("agnt_data_job_create", WRITES, Served::Always, None),
    ("agnt_sync_create", WRITES, Served::Always, None),
    ("agnt_slack_bind_channel", WRITES, Served::Always, None),
    ("agnt_imessage_bind_number", WRITES, Served::Always, None),
];

fn tool(&(name, effect, served, group): &Row) -> Tool {
    let own = name.rsplit('_').next().unwrap_or(name);
    let schema = json!({
        "type": "object",
        "properties": {
            own: {"type": "string", "description": "Something of this operation alone."},
            "amount": {"type": "number", "description": "How much."},
            "rows": {"type": "array", "description": "What to write."},
        },
    });
    Tool {
        name: name.into(),
        title: name.into(),
        description: format!("What {name} does.").into(),
        input_schema: schema.as_object().cloned().unwrap_or_default(),
        effect,
        served,
        group: group.map(|(group, action)| Group {
            name: group.into(),
            title: group.into(),
            description: format!("All of {group}.").into(),
            action: action.into(),
        }),
        interactive: false,
        origin: None,
    }
}

impl Family for Seeds {
    fn tools(&self) -> Vec<Tool> {
        let bulk = (0..self.bulk).map(|at| Tool {
            name: format!("bulk_{at}").into(),
            title: "Bulk".into(),
            description: "One of very many tools, described in a sentence of usual length.".into(),
            input_schema: Map::from_iter([("type".to_owned(), json!("object"))]),
            effect: READS,
            served: Served::Entry,
            group: None,
            interactive: false,
            origin: None,
        });
        ROWS.iter().map(tool).chain(bulk).collect()
    }

    fn call<'a>(
        &'a self,
        permit: &'a Permit<'a>,
        call: Call<'a>,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        Box::pin(async move {
            let arguments: Value = serde_json::from_str(call.arguments.get())
                .map_err(|error| ToolError::arguments(error.to_string()))?;
            let name = permit.tool().name.to_string();
            let mut executed = self.executed.0.lock();
            let calls = executed.entry(name.clone()).or_default();
            calls.push(arguments.clone());
            Ok(Output::Text(format!("{name} #{} {arguments}", calls.len())))
        })
    }
}
