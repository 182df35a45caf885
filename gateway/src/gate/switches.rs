//! The switches of an Agent's spec, each with the field that a person would change (R-C-090…125).

use chandlery_crds::AgentSpec;

use crate::tool::Switch;

impl Switch {
    /// Whether the spec serves the switch's tools.
    pub fn is_on(self, spec: &AgentSpec) -> bool {
        let database = &spec.workspace_db;
        let code = &spec.code_execution;
        match self {
            Self::WorkspaceTools => spec.workspace_tools_enabled,
            Self::Database => database.enabled,
            Self::DatabaseWrites => database.enabled && !database.read_only,
            Self::DatabaseMigrations => {
                database.enabled && !database.read_only && database.allow_apply_migration
            }
            Self::PostgresConnection => spec.connections_db.postgres_enabled,
            Self::SupabaseConnection => spec.connections_db.supabase_enabled,
            Self::Documents => !spec.document_collection_ids.is_empty(),
            Self::Observability => spec.observability_enabled,
            Self::AgentInvocation => spec.agent_invocation_enabled,
            Self::Dashboards => spec.dashboards_enabled,
            Self::CodeExecution => code.enabled,
            Self::TypescriptSkills => code.enabled && !code.skills.is_empty(),
            Self::DataJobs => spec.data_jobs_enabled,
        }
    }

    /// What to write for the switch to be on, under `spec`.
    pub fn turn_on(self) -> &'static str {
        match self {
            Self::WorkspaceTools => "workspaceToolsEnabled: true",
            Self::Database => "workspaceDb.enabled: true",
            Self::DatabaseWrites => "workspaceDb.enabled: true with readOnly: false",
            Self::DatabaseMigrations => {
                "workspaceDb.allowApplyMigration: true with readOnly: false"
            }
            Self::PostgresConnection => "connectionsDb.postgresEnabled: true",
            Self::SupabaseConnection => "connectionsDb.supabaseEnabled: true",
            Self::Documents => "a collection under documentCollectionIds",
            Self::Observability => "observabilityEnabled: true",
            Self::AgentInvocation => "agentInvocationEnabled: true",
            Self::Dashboards => "dashboardsEnabled: true",
            Self::CodeExecution => "codeExecution.enabled: true",
            Self::TypescriptSkills => {
                "codeExecution.enabled: true and a skill under codeExecution.skills"
            }
            Self::DataJobs => "dataJobsEnabled: true",
        }
    }

    /// Whether an entry of `spec.tools` serves a tool of the switch while the switch is off. Only ours lets it: the
    /// others take tools away (R-C-098, R-C-104, R-C-125).
    pub fn yields_to_entries(self) -> bool {
        self == Self::WorkspaceTools
    }
}
