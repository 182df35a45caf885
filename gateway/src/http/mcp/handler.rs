//! What rmcp's service calls: each request goes to the pipeline or to the family that has the feature.

#![expect(
    deprecated,
    reason = "clients of the older era still set log levels and subscribe to resources"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, CustomRequest, CustomResult, ErrorCode, ErrorData, GetPromptRequestParams,
    GetPromptResponse, GetTaskParams, GetTaskResult, Implementation, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    PromptsCapability, ReadResourceRequestParams, ReadResourceResponse, ResourcesCapability,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, Tool,
    ToolsCapability, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::{error, warn};

use super::peer::Peer;
use super::sessions::Session;
use super::wire::Message;
use super::{Mcp, asking, results, tasks};
use crate::catalog::Catalog;
use crate::family::{Features, RpcError, TASKS};
use crate::http::access::Caller;
use crate::pipeline::{Answer, Patience, Request};
use crate::tool::Output;

/// Serves one request of one caller.
#[derive(Clone)]
pub(super) struct Handler {
    pub(super) mcp: Arc<Mcp>,
    pub(super) caller: Caller,
    pub(super) catalog: Arc<Catalog>,
    pub(super) is_newer: bool,
    /// Of the older era, but for `initialize`.
    session: Option<Arc<Session>>,
    /// The request as it was sent: arguments go to the tool as they came.
    pub(super) body: Bytes,
    /// What the agent is told as its session begins; `None` for what the families say to everyone.
    instructions: Option<String>,
}

/// How long the families have to say what an agent is told, and how long that may be of each.
const STANDING_TIME: Duration = Duration::from_secs(2);
const STANDING_CHARACTERS: usize = 8_000;

/// The methods of both eras. A request for one of them that could not be read had wrong parameters.
const METHODS: [&str; 8] = [
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "completion/complete",
];
/// The methods that only the older era has.
const OLDER_METHODS: [&str; 3] = [
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
];
/// The method that only the newer era has, and that takes parameters.
const NEWER_METHODS: [&str; 1] = ["subscriptions/listen"];

impl Handler {
    pub(super) fn newer(mcp: &Arc<Mcp>, caller: &Caller, body: &Bytes) -> Self {
        Self::new(mcp, caller, true, None, body)
    }

    pub(super) fn older(
        mcp: &Arc<Mcp>,
        caller: &Caller,
        session: Option<Arc<Session>>,
        body: &Bytes,
    ) -> Self {
        Self::new(mcp, caller, false, session, body)
    }

    fn new(
        mcp: &Arc<Mcp>,
        caller: &Caller,
        is_newer: bool,
        session: Option<Arc<Session>>,
        body: &Bytes,
    ) -> Self {
        Self {
            mcp: mcp.clone(),
            caller: caller.clone(),
            catalog: mcp.catalog(&caller.agent),
            is_newer,
            session,
            body: body.clone(),
            instructions: None,
        }
    }

    /// For the requests with which a session begins: asks the families what to tell this agent.
    pub(super) async fn with_instructions(mut self) -> Self {
        let mut told = self.catalog.instructions();
        let families = &self.catalog.families;
        let standing = families
            .iter()
            .map(|family| family.standing(&self.caller.agent));
        match tokio::time::timeout(STANDING_TIME, join_all(standing)).await {
            Ok(standing) => {
                for text in standing.into_iter().flatten() {
                    if !told.is_empty() {
                        told.push_str("\n\n");
                    }
                    told.extend(text.chars().take(STANDING_CHARACTERS));
                }
            }
            Err(_) => warn!(
                agent.name = %self.caller.agent.id,
                "the store was too slow: a session begins without the agent's own directives"
            ),
        }
        self.instructions = Some(told);
        self
    }

    fn features(&self) -> Features {
        self.catalog.features()
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let features = self.features();
        let mut capabilities = ServerCapabilities::default();
        let mut tools = ToolsCapability::default();
        tools.list_changed = self
            .mcp
            .tells_changes(&self.caller.agent, self.is_newer)
            .then_some(true);
        capabilities.tools = Some(tools);
        capabilities.prompts = features.prompts.then(|| {
            let mut prompts = PromptsCapability::default();
            prompts.list_changed = features.prompt_changes.then_some(true);
            prompts
        });
        capabilities.resources = features.resources.then(|| {
            let mut resources = ResourcesCapability::default();
            resources.subscribe = features.subscriptions.then_some(true);
            resources.list_changed = features.resource_changes.then_some(true);
            resources
        });
        capabilities.completions = features.completions.then(Default::default);
        capabilities.logging = features.logging.then(Default::default);
        if self.is_newer && (self.catalog.may_ask() || features.tasks) {
            let tasks = BTreeMap::from([(TASKS.to_owned(), Default::default())]);
            capabilities.extensions = Some(tasks);
        }
        let server =
            Implementation::new("chandlery", env!("CARGO_PKG_VERSION")).with_title("Chandlery");
        let info = ServerConfig::new(capabilities).with_server_info(server);
        let told = self.instructions.clone();
        match told.unwrap_or_else(|| self.catalog.instructions()) {
            none if none.is_empty() => info,
            instructions => info.with_instructions(instructions),
        }
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let list = self
            .mcp
            .list_for(&self.caller.agent, self.session.as_deref());
        let cursor = request.and_then(|request| request.cursor);
        let page = list.page(cursor.as_deref()).ok_or_else(|| {
            ErrorData::invalid_params(
                "Unknown cursor: the list has changed; start again without a cursor",
                None,
            )
        })?;
        let tail = self.mcp.tail(&self.caller.agent, self.is_newer);
        let page = [page, tail.as_bytes()].concat();
        serde_json::from_slice(&page).map_err(|cause| broken("tools/list", &cause))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.into_owned();
        let cancelled = context.ct.clone();
        let peer = Peer::new(context, &self.body);
        let worker = match &self.session {
            Some(session) => Some(session.to_string()),
            None => peer.worker(),
        };
        let arguments = arguments(&self.body);
        let (mcp, caller) = (&self.mcp, &self.caller);
        let retry = asking::take_answer(mcp, caller, &name, &arguments, peer.sent_back()).await?;
        let peer = Arc::new(peer.with_retry(retry));
        let patience = asking::patience(&*peer);
        let call = self.mcp.pipeline.call(Request {
            agent: self.caller.agent.clone(),
            key_id: self.caller.key_id.clone(),
            tool: name.clone(),
            arguments: arguments.clone(),
            worker,
            client: peer.clone(),
            patience,
            cancelled,
        });
        let answer = peer
            .progress_while(self.mcp.settings.progress_interval, call)
            .await;
        let result = match answer {
            Answer::Done(Output::NeedsInput(mut questions)) => {
                asking::seal_state(mcp, caller, &name, &arguments, &mut questions)?;
                return serde_json::from_value(questions)
                    .map(CallToolResponse::InputRequired)
                    .map_err(|cause| broken("tools/call", &cause));
            }
            Answer::Done(Output::Task { source, task }) if patience == Patience::Leave => {
                return tasks::begun(mcp, caller, &name, source, task).map(CallToolResponse::Task);
            }
            Answer::Done(output) => results::done(output, self.is_newer),
            Answer::Failed(failure) => match results::protocol_error(&failure) {
                Some(error) => return Err(rpc_error(error)),
                None => results::failed(&failure.message, self.is_newer).into(),
            },
            Answer::Awaiting(awaiting) if self.is_newer => {
                return asking::tell(mcp, caller, &name, &arguments, &awaiting, patience);
            }
            Answer::Awaiting(awaiting) => results::awaiting(&name, &awaiting, false).into(),
            Answer::UnknownTool => {
                return Err(ErrorData::invalid_params(
                    results::unknown_tool(&name),
                    None,
                ));
            }
            // Nobody reads it: the client has gone or has cancelled the call.
            Answer::Cancelled => return Err(ErrorData::internal_error("cancelled", None)),
        };
        serde_json::from_slice(&result)
            .map(CallToolResponse::Complete)
            .map_err(|cause| broken("tools/call", &cause))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        tasks::get(self, &request.task_id, context).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::update(self, &request.task_id, context).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::cancel(self, &request.task_id, context).await
    }

    /// Lets rmcp check the headers that mirror arguments.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tool = self.catalog.tools.iter().find(|tool| tool.name == name)?;
        Some(Tool::new(
            tool.name.clone(),
            tool.description.clone(),
            tool.input_schema.clone(),
        ))
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.relay_list(|has| has.prompts, "prompts/list", request, context)
            .await
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let result: Value = self
            .relay(|has| has.prompts, "prompts/get", request, context)
            .await?;
        let response = if needs_input(&result) {
            serde_json::from_value(result).map(GetPromptResponse::InputRequired)
        } else {
            serde_json::from_value(result).map(GetPromptResponse::Complete)
        };
        response.map_err(|cause| broken("prompts/get", &cause))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.relay_list(|has| has.resources, "resources/list", request, context)
            .await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.relay_list(
            |has| has.resources,
            "resources/templates/list",
            request,
            context,
        )
        .await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let result: Value = self
            .relay(|has| has.resources, "resources/read", request, context)
            .await?;
        let response = if needs_input(&result) {
            serde_json::from_value(result).map(ReadResourceResponse::InputRequired)
        } else {
            serde_json::from_value(result).map(ReadResourceResponse::Complete)
        };
        response.map_err(|cause| broken("resources/read", &cause))
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let uri = request.uri.clone();
        let asked = self.relay(
            |has| has.subscriptions,
            "resources/subscribe",
            request,
            context,
        );
        let _: Value = asked.await?;
        match &self.session {
            Some(session) if !session.subscribe(uri, &self.catalog) => {
                Err(ErrorData::invalid_params(
                    "Too many subscriptions: a session may have 64, of URIs of 2,048 bytes at most; unsubscribe from one first",
                    None,
                ))
            }
            _ => Ok(()),
        }
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if let Some(session) = &self.session {
            session.unsubscribe(&request.uri, &self.catalog);
        }
        self.relay(
            |has| has.subscriptions,
            "resources/unsubscribe",
            request,
            context,
        )
        .await
        .map(|_: Value| ())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.relay(
            |has| has.completions,
            "completion/complete",
            request,
            context,
        )
        .await
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if let Some(session) = &self.session {
            session.wants_logs();
        }
        self.relay_all(|has| has.logging, "logging/setLevel", request, context)
            .await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        let own: &[&str] = if self.is_newer {
            &NEWER_METHODS
        } else {
            &OLDER_METHODS
        };
        if METHODS.iter().chain(own).any(|known| *known == method) {
            Err(ErrorData::invalid_params(
                format!("Invalid params for {method}"),
                None,
            ))
        } else {
            Err(not_found(&method))
        }
    }
}

/// The arguments of a request, as they were sent.
pub(super) fn arguments(body: &[u8]) -> Box<RawValue> {
    Message::parse(body)
        .ok()
        .and_then(|message| message.params()?.arguments.map(RawValue::to_owned))
        .unwrap_or_else(no_arguments)
}

/// What a call without arguments has.
pub(super) fn no_arguments() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
}

pub(super) fn needs_input(result: &Value) -> bool {
    result["resultType"] == "input_required"
}

pub(super) fn not_found(method: &str) -> ErrorData {
    ErrorData::new(
        ErrorCode::METHOD_NOT_FOUND,
        format!("Method not found: {method}"),
        None,
    )
}

pub(super) fn rpc_error(failure: RpcError) -> ErrorData {
    let RpcError {
        code,
        message,
        data,
    } = failure;
    ErrorData::new(ErrorCode(code), message, data)
}

/// A family's answer that the protocol does not know: a mistake in the program.
pub(super) fn broken(method: &str, cause: &serde_json::Error) -> ErrorData {
    error!(rpc.method = method, error = %cause, "an answer does not fit the protocol");
    ErrorData::internal_error("the answer does not fit the protocol", None)
}
