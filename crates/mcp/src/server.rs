//! The MCP server: it lists the tools and calls them. It has no state of its own.

pub(crate) mod discovery;
pub(crate) mod lines;
pub(crate) mod local;

use std::sync::Arc;

use api::control::oauth::PROTECTED_RESOURCE;
use api::control::{Operation, plan_change, plans, whoami};
use bytes::Bytes;
use http::header::USER_AGENT;
use http::request::Parts;
use http::{Extensions, Request, Response, StatusCode};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, ErrorCode, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use types::permission::{Permission, Permissions};

use self::local::{Local, LocalTool};
use crate::result::{self, MissingAccess};
use crate::tools;
use crate::tools::call;
use crate::tools::call::BadArgument;
use crate::tools::live::{LiveList, LiveObject, ProjectName};
use crate::tools::schema::CONFIRMED;
use crate::tools::terminals::{Agent, TerminalRequest, TerminalTool, ToolImplementation};
use crate::tools::{Call, Tool};

/// Sends requests to the API.
pub trait Backend: Send + Sync + 'static {
    /// Current address of the platform, without a trailing slash.
    fn base_url(&self) -> Arc<str>;

    /// Path of the protected resource that the caller uses; empty: the origin.
    fn resource_path(&self, _caller: &Extensions) -> &'static str {
        ""
    }

    /// True if there is a credential for calls: without one, no request is sent.
    fn has_credential(&self, caller: &Extensions) -> bool;

    /// The permissions of the credential, if known without a request; `None`: unknown, or not
    /// restricted.
    fn known_permissions(&self, _caller: &Extensions) -> Option<Permissions> {
        None
    }

    /// Sends a request for a caller, which is identified by the extensions of the MCP request.
    /// Failures are responses as well: a status and a problem.
    fn send_request(&self, request: Request<Bytes>, caller: &Extensions) -> ResponseFuture;

    /// Sends a request to the Engine API of a project, with only the credential of the caller.
    /// `permission` is the one that the engine will check.
    ///
    /// A project that the caller has no access to results in 404, a missing permission in 403 with
    /// a challenge, and 401 means that the user has to sign in. If the engine cannot be reached
    /// within seconds, if its response is too long, or if it refuses a credential that the platform
    /// accepts, the result is a 502 and a problem whose `detail` states what to do next.
    fn send_to_engine(
        &self,
        project: ProjectName,
        needed: Permission,
        request: Request<Bytes>,
        caller: &Extensions,
    ) -> ResponseFuture;

    /// Performs an action on a terminal stream in a project, with the credential of the caller. The
    /// result is a response: 200 and the JSON of the tool, or a problem.
    fn send_to_terminal(
        &self,
        project: ProjectName,
        needed: Permission,
        ask: TerminalRequest,
        caller: &Extensions,
    ) -> ResponseFuture;
}

/// Extension of a request: the list of tools is left empty, because the transport inserts it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolListOmitted;

/// Maximum size of a request. Arguments are short; files are never sent here.
pub(crate) const MAX_REQUEST_BYTES: usize = 256 * 1024;

/// The future response.
pub type ResponseFuture = std::pin::Pin<Box<dyn Future<Output = Response<Bytes>> + Send>>;

/// The tools of a backend, and local tools if it runs on the user's machine.
pub struct Server<B> {
    backend: Arc<B>,
    local: Option<LocalTools>,
}

/// The local tools of one client.
#[derive(Clone)]
struct LocalTools {
    local: Arc<dyn Local>,
    /// Permits for concurrent calls. Over HTTP, connections are limited instead.
    permits: Arc<Semaphore>,
}

impl<B> Clone for Server<B> {
    fn clone(&self) -> Self {
        Self {
            backend: Arc::clone(&self.backend),
            local: self.local.clone(),
        }
    }
}

impl<B: Backend> Server<B> {
    /// Creates a server with the platform's tools.
    pub fn new(backend: B) -> Self {
        Self {
            backend: Arc::new(backend),
            local: None,
        }
    }

    /// Adds tools of this machine.
    pub(crate) fn with_local_tools(self, local: Arc<dyn Local>) -> Self {
        let places = Arc::new(Semaphore::new(MOST_CALLS));
        Self {
            local: Some(LocalTools {
                local,
                permits: places,
            }),
            ..self
        }
    }

    fn local_tools(&self) -> Vec<LocalTool> {
        let beside = self.local.iter();
        beside.flat_map(|beside| beside.local.tools()).collect()
    }

    /// Calls a tool.
    pub async fn call(
        &self,
        tool: &Tool,
        arguments: Map<String, Value>,
        caller: &Extensions,
        agent: Agent,
    ) -> CallToolResult {
        match tool.call {
            Call::Discovery if arguments.is_empty() => {
                let base_url = self.backend.base_url();
                let found = discovery::discovery(&base_url, &self.local_tools());
                return result::structured(found);
            }
            Call::OpenApi => {
                return discovery::openapi(&arguments)
                    .map_or_else(|error| result::bad_argument(&error), result::structured);
            }
            _ => {}
        }
        // Arguments are not validated before sign-in: 401 comes first.
        if tool.scopes().is_some() && !self.backend.has_credential(caller) {
            return self.challenge(tool, &MissingAccess::Login, caller);
        }
        // If the credential is known to lack a permission, 403 comes next, for all missing
        // permissions together (MC-6).
        if let Some(held) = self.backend.known_permissions(caller)
            && let Some(missing) = missing(tool, held)
        {
            return self.challenge(tool, &MissingAccess::Scope(&missing), caller);
        }
        let performed = self.perform(tool, arguments, caller, agent).await;
        match performed {
            Ok(result) => result,
            Err(error) => match self.missing_scopes(tool, caller).await {
                // The credential's permissions were not known locally (MC-6).
                Some(missing) => self.challenge(tool, &MissingAccess::Scope(&missing), caller),
                None => result::bad_argument(&error),
            },
        }
    }

    /// Performs a call that the locally known permissions allow.
    async fn perform(
        &self,
        tool: &Tool,
        mut arguments: Map<String, Value>,
        caller: &Extensions,
        agent: Agent,
    ) -> CallFuture {
        let has_cost = matches!(tool.call, Call::CreateProject | Call::ChangePlan);
        if has_cost && arguments.remove(CONFIRMED) != Some(Value::Bool(true)) {
            return match tool.call {
                Call::ChangePlan => self.unconfirmed_change(&arguments, caller).await,
                _ => self.unconfirmed(&arguments, caller).await,
            };
        }
        if let Call::Live(list) = tool.call {
            return self.list_live(tool, list, arguments, caller).await;
        }
        if let Call::LiveObject(object) = tool.call {
            return self.operate_live(tool, object, arguments, caller).await;
        }
        if let Call::Terminal(of) = tool.call {
            return self.terminal(tool, of, arguments, caller, agent).await;
        }
        let operation = call::choose(tool, &arguments)?;
        self.operate(tool, operation, &arguments, caller).await
    }

    async fn operate(
        &self,
        tool: &Tool,
        operation: &Operation,
        arguments: &Map<String, Value>,
        caller: &Extensions,
    ) -> CallFuture {
        let request = call::request(tool, operation, arguments)?;
        let response = self.backend.send_request(request, caller).await;
        let argument_of = |field: &str| call::argument_of(tool, operation, field);
        self.of_response(tool, &response, caller, argument_of).await
    }

    /// The result for a response that needs no conversion. `argument_of` finds the tool's argument
    /// for a field that a refusal names.
    async fn of_response(
        &self,
        tool: &Tool,
        response: &Response<Bytes>,
        caller: &Extensions,
        argument_of: impl Fn(&str) -> String,
    ) -> CallFuture {
        if let Some(refused) = self.challenge_for_all(tool, response, caller).await {
            return Ok(refused);
        }
        let (scopes, metadata) = (scopes(tool), self.resource_metadata(caller));
        Ok(result::of_response(
            response,
            &scopes,
            &metadata,
            argument_of,
        ))
    }

    async fn list_live(
        &self,
        tool: &Tool,
        list: &LiveList,
        arguments: Map<String, Value>,
        caller: &Extensions,
    ) -> CallFuture {
        let (project, request) = list.request(arguments)?;
        let Some(needed) = list.permission() else {
            return Ok(result::failure(NO_LIST));
        };
        let sent = self
            .backend
            .send_to_engine(project, needed, request, caller);
        let response = sent.await;
        if response.status() == StatusCode::OK {
            let answer = list.answer(&response);
            return Ok(answer.map_or_else(|| result::failure(NO_LIST), result::structured));
        }
        // The engine's names for the parts of `params` equal the tool's argument names.
        self.of_response(tool, &response, caller, str::to_owned)
            .await
    }

    async fn operate_live(
        &self,
        tool: &Tool,
        object: &LiveObject,
        arguments: Map<String, Value>,
        caller: &Extensions,
    ) -> CallFuture {
        let (project, request) = object.request(arguments)?;
        let Some(needed) = object.permission() else {
            return Ok(result::failure(NO_LIST));
        };
        let carried = self
            .backend
            .send_to_engine(project, needed, request, caller);
        let name_of = |field: &str| object.name_of(field);
        self.of_response(tool, &carried.await, caller, name_of)
            .await
    }

    async fn terminal(
        &self,
        tool: &Tool,
        of: &TerminalTool,
        arguments: Map<String, Value>,
        caller: &Extensions,
        agent: Agent,
    ) -> CallFuture {
        let (project, arguments) = of.read(arguments)?;
        let Some(needed) = of.scopes.first().copied() else {
            return Ok(result::failure(NO_LIST));
        };
        let response = match of.implementation {
            ToolImplementation::Operation(verb, path, _) => {
                let request = of.request((verb, path), &arguments)?;
                self.backend
                    .send_to_engine(project, needed, request, caller)
                    .await
            }
            ToolImplementation::Stream(act) => {
                let ask = TerminalRequest {
                    act,
                    arguments,
                    agent,
                };
                self.backend
                    .send_to_terminal(project, needed, ask, caller)
                    .await
            }
        };
        if let ToolImplementation::Operation(_, _, answer) = of.implementation
            && response.status().is_success()
        {
            let answer = answer.parse(&response);
            return Ok(answer.map_or_else(|| result::failure(NO_LIST), result::structured));
        }
        let name_of = |field: &str| of.name_of(field);
        self.of_response(tool, &response, caller, name_of).await
    }

    /// CP-4g: nothing is created; the response contains the information that the user has to see.
    async fn unconfirmed(&self, arguments: &Map<String, Value>, caller: &Extensions) -> CallFuture {
        let Some(preview) = Tool::find("svc_project_creation_options") else {
            return Ok(result::failure(CONFIRMATION_REQUIRED));
        };
        let workspace = arguments
            .get("workspace_id")
            .map(|id| ("workspace_id".to_owned(), id.clone()));
        let arguments_of_preview: Map<String, Value> = workspace.into_iter().collect();
        let preview_result = self
            .operate(
                preview,
                plans::PLAN_CONFIGURATION,
                &arguments_of_preview,
                caller,
            )
            .await?;
        // A caller that may not even read the options gets that refusal.
        let Some(options) = preview_result.structured_content else {
            return Ok(preview_result);
        };
        let plan = arguments.get("plan").and_then(Value::as_str);
        let option = options
            .get("plans")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .find(|option| option.get("plan").and_then(Value::as_str) == plan);
        match option {
            Some(option) => Ok(result::failure(format!(
                "{CONFIRMATION_REQUIRED} It is: {}\nThe preview: {option}",
                option.get("billingImpact").unwrap_or(&Value::Null),
            ))),
            None => Err(BadArgument::new("plan", "the preview has no such plan")),
        }
    }

    /// Nothing is changed; the response contains the information that the user has to see.
    async fn unconfirmed_change(
        &self,
        arguments: &Map<String, Value>,
        caller: &Extensions,
    ) -> CallFuture {
        let Some(preview) = Tool::find("svc_project_plan_preview") else {
            return Ok(result::failure(CHANGE_CONFIRMATION_REQUIRED));
        };
        let given = arguments.iter();
        let given = given.filter(|(name, _)| matches!(name.as_str(), "project_id" | "plan"));
        let given = given.map(|(name, value)| (name.clone(), value.clone()));
        let given: Map<String, Value> = given.collect();
        let operation = plan_change::PREVIEW;
        let previewed = self.operate(preview, operation, &given, caller).await?;
        // A caller that may not even read the preview gets that refusal.
        let Some(change) = previewed.structured_content else {
            return Ok(previewed);
        };
        Ok(result::failure(format!(
            "{CHANGE_CONFIRMATION_REQUIRED} It is: {}\nThe preview: {change}",
            change.get("billingImpact").unwrap_or(&Value::Null),
        )))
    }

    /// MC-6: a refusal names only the permission that was checked, but a tool may need more. The
    /// other missing permissions are requested from the platform, so that the user is asked only
    /// once.
    async fn challenge_for_all(
        &self,
        tool: &Tool,
        response: &Response<Bytes>,
        caller: &Extensions,
    ) -> Option<CallToolResult> {
        let first = result::missing_scope(response)?;
        if tool.scopes()?.len() < 2 {
            return None;
        }
        let permissions = self.permissions(caller).await?;
        // The refused permission counts as missing even if only the user's role lacks it.
        let refused = first.split(' ').filter_map(|name| name.parse().ok());
        let all = missing_of(tool, permissions).chain(refused);
        let all: Permissions = all.collect();
        Some(self.challenge(tool, &MissingAccess::Scope(&all.to_string()), caller))
    }

    /// The permissions that the tool needs and the credential lacks, according to the platform.
    async fn missing_scopes(&self, tool: &Tool, caller: &Extensions) -> Option<String> {
        tool.scopes()?;
        missing(tool, self.permissions(caller).await?)
    }

    /// The permissions of the credential; `None` if the platform does not respond.
    async fn permissions(&self, caller: &Extensions) -> Option<Permissions> {
        let request = Request::get(whoami::WHOAMI.path).body(Bytes::new()).ok()?;
        let answer = self.backend.send_request(request, caller).await;
        let whoami: Value = serde_json::from_slice(answer.body()).ok()?;
        let held = whoami.get("permissions")?.as_array()?.iter();
        Some(
            held.filter_map(|name| name.as_str()?.parse().ok())
                .collect(),
        )
    }

    fn challenge(
        &self,
        tool: &Tool,
        missing: &MissingAccess<'_>,
        caller: &Extensions,
    ) -> CallToolResult {
        result::challenge(missing, &scopes(tool), &self.resource_metadata(caller))
    }

    /// Address of the metadata of the caller's resource (RFC 9728 section 3.1).
    fn resource_metadata(&self, caller: &Extensions) -> String {
        let base_url = self.backend.base_url();
        let path = self.backend.resource_path(caller);
        format!("{base_url}{}{path}", PROTECTED_RESOURCE.path)
    }
}

/// The result of a call, or an invalid argument.
type CallFuture = Result<CallToolResult, BadArgument>;

const CONFIRMATION_REQUIRED: &str = "Nothing was created. Show the billing impact of this plan to the user, \
                           and call again with confirmed: true and the creation_fingerprint of the \
                           preview once they have agreed.";

const CHANGE_CONFIRMATION_REQUIRED: &str = "Nothing was changed. Show the billing impact of this plan to \
                           the user, and call again with confirmed: true and the \
                           change_fingerprint of the preview once they have agreed.";

const NO_LIST: &str = "The engine of this project sent an unexpected response. Tell the user: the \
                       platform's operator has to look at it.";

/// The permissions that a tool needs and a credential with these permissions lacks; `None` if there
/// are none.
fn missing(tool: &Tool, held: Permissions) -> Option<String> {
    let missing: Permissions = missing_of(tool, held).collect();
    let missing = missing.to_string();
    (!missing.is_empty()).then_some(missing)
}

fn missing_of(tool: &Tool, held: Permissions) -> impl Iterator<Item = Permission> {
    let needed = tool.scopes().into_iter().flatten();
    needed.filter(move |permission| !held.contains(*permission))
}

fn scopes(tool: &Tool) -> String {
    let scopes: Permissions = tool.scopes().into_iter().flatten().collect();
    scopes.to_string()
}

impl<B: Backend> ServerHandler for Server<B> {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_prompts()
                .enable_resources()
                .build(),
        );
        info.server_info = Implementation::new("svc", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(discovery::INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let is_written = parts.and_then(|parts| parts.extensions.get::<ToolListOmitted>());
        if let Some(ToolListOmitted) = is_written {
            return Ok(ListToolsResult::with_all_items(Vec::new()));
        }
        let mut listed = tools::sdk_tools();
        let local = self.local_tools().into_iter();
        listed.extend(local.filter_map(|tool| serde_json::from_value(tool.document()).ok()));
        Ok(ListToolsResult::with_all_items(listed))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let places = self.local.as_ref().map(|beside| &beside.permits);
        let Ok(_place) = places.map(|places| places.try_acquire()).transpose() else {
            let message = format!("{MOST_CALLS} calls are running; wait for one to end");
            return Err(ErrorData::new(BUSY, message, None));
        };
        let Some(tool) = Tool::find(&request.name) else {
            let beside = self.local.as_ref();
            let answer = beside.and_then(|beside| beside.local.call(&request.name, arguments));
            if let Some(answer) = answer {
                let result = answer.await;
                return Ok(result
                    .map_or_else(result::failure, result::structured)
                    .into());
            }
            let name: String = request.name.chars().take(MAX_NAME_SHOWN).collect();
            let message = format!("tool {name:?} does not exist; see tools/list");
            return Err(ErrorData::invalid_params(message, None));
        };
        let nobody = Extensions::new();
        let parts = context.extensions.get::<Parts>();
        let caller = parts.map_or(&nobody, |parts| &parts.extensions);
        let agent = agent(&context, parts);
        Ok(self.call(tool, arguments, caller, agent).await.into())
    }

    // Prompts and resources are declared but empty: clients request the lists from every server,
    // and the SDK returns empty ones. Undeclared methods do not exist (-32601).

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }
}

/// The name of the AI client: from the request, from the handshake of a connection, or without a
/// handshake from the HTTP header field.
fn agent(context: &RequestContext<RoleServer>, parts: Option<&Parts>) -> Agent {
    let info = context.meta.client_info();
    let greeted = || Some(context.peer.peer_info()?.client_info.clone());
    let info = info.or_else(|| if parts.is_none() { greeted() } else { None });
    if let Some(client) = info {
        return Agent {
            name: shorten(&client.name),
            version: shorten(&client.version),
        };
    }
    let field = parts.and_then(|parts| parts.headers.get(USER_AGENT));
    let field = field.and_then(|field| field.to_str().ok());
    let product = field.and_then(|field| field.split_whitespace().next());
    let (name, version) = product.map_or(("an AI client", ""), |product| {
        product.split_once('/').unwrap_or((product, ""))
    });
    Agent {
        name: shorten(name),
        version: shorten(version),
    }
}

/// A name, shortened for display.
fn shorten(text: &str) -> String {
    let printable = text.chars().filter(|c| !c.is_control());
    printable.take(MAX_NAME_SHOWN).collect()
}

/// More calls than a model has in progress at a time; each waits for the network for at most half a
/// minute.
const MOST_CALLS: usize = 24;
/// One of the codes that JSON-RPC reserves for servers (section 5.1).
const BUSY: ErrorCode = ErrorCode(-32000);
/// Long enough for every real name.
const MAX_NAME_SHOWN: usize = 64;
