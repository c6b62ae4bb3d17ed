//! The server: it lists the tools and calls them. It holds no state of its own.

use std::sync::Arc;

use api::control::{Operation, plans, whoami};
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

use crate::call::{self, BadArgument};
use crate::live::{LiveList, ProjectName};
use crate::local::{Local, LocalTool};
use crate::result::{self, MissingAccess};
use crate::schema::CONFIRMED;
use crate::terminals::{Agent, TerminalAsk, TerminalTool, Way};
use crate::tools::{Call, Tool};
use crate::{discovery, tools};

/// What carries requests to the API.
pub trait Backend: Send + Sync + 'static {
    /// Where the platform is that requests go to now, without a slash at the end.
    fn base_url(&self) -> Arc<str>;

    /// Whether there is a credential to call with: without one, no request is made.
    fn has_credential(&self, caller: &Extensions) -> bool;

    /// The permissions of the credential, as far as they are known without asking anybody; `None`:
    /// not, or it is not narrowed.
    fn held(&self, _caller: &Extensions) -> Option<Permissions> {
        None
    }

    /// Carries a request out for a caller, who is known by the extensions of the request that
    /// brought the call. Failures of the way are answers too: a status and a problem.
    fn carry(&self, request: Request<Bytes>, caller: &Extensions) -> ResponseFuture;

    /// Carries a request out to the Engine API of a project, with the credential of the caller and
    /// nothing else of theirs. The permission is the one that the engine will ask for.
    ///
    /// A project that the caller has no part in answers 404, a permission that is missing 403 with
    /// a challenge, and 401 means that the person has to sign in. An engine that is not reached
    /// within seconds, answers at length, or does not take a credential that the platform takes is
    /// an answer too: 502 and a problem whose `detail` says what to do next.
    fn carry_to_engine(
        &self,
        project: ProjectName,
        needed: Permission,
        request: Request<Bytes>,
        caller: &Extensions,
    ) -> ResponseFuture;

    /// Does something that takes a stream of a terminal, in a project, with the credential of the
    /// caller. The answer is that of a request: 200 and the JSON of the tool, or a problem.
    fn carry_to_terminal(
        &self,
        project: ProjectName,
        needed: Permission,
        ask: TerminalAsk,
        caller: &Extensions,
    ) -> ResponseFuture;
}

/// Among the extensions of a request: the list of tools is left empty, for whoever brought the
/// request writes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListIsWritten;

/// The longest request. Arguments are short; nobody sends files here.
pub(crate) const MAX_REQUEST_BYTES: usize = 256 * 1024;

/// The answer, later.
pub type ResponseFuture = std::pin::Pin<Box<dyn Future<Output = Response<Bytes>> + Send>>;

/// The tools over a backend, and on a machine of its own those beside them.
pub struct Server<B> {
    backend: Arc<B>,
    beside: Option<Beside>,
}

/// What one client on this machine has beside the platform's tools.
#[derive(Clone)]
struct Beside {
    local: Arc<dyn Local>,
    /// Calls that may still begin. Over HTTP, connections are what is counted.
    places: Arc<Semaphore>,
}

impl<B> Clone for Server<B> {
    fn clone(&self) -> Self {
        Self {
            backend: Arc::clone(&self.backend),
            beside: self.beside.clone(),
        }
    }
}

impl<B: Backend> Server<B> {
    /// A server of the platform's tools.
    pub fn new(backend: B) -> Self {
        Self {
            backend: Arc::new(backend),
            beside: None,
        }
    }

    /// The same, with tools of this machine.
    pub(crate) fn beside(self, local: Arc<dyn Local>) -> Self {
        let places = Arc::new(Semaphore::new(MOST_CALLS));
        Self {
            beside: Some(Beside { local, places }),
            ..self
        }
    }

    fn local_tools(&self) -> Vec<LocalTool> {
        let beside = self.beside.iter();
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
        // Nobody learns what is wrong with arguments before signing in: 401 comes first.
        if tool.scopes().is_some() && !self.backend.has_credential(caller) {
            return self.challenge(tool, &MissingAccess::Login);
        }
        // Nor before it is known that the credential may do it at all: then comes 403, for all that
        // is missing at once (MC-6).
        if let Some(held) = self.backend.held(caller)
            && let Some(missing) = missing(tool, held)
        {
            return self.challenge(tool, &MissingAccess::Scope(&missing));
        }
        let performed = self.perform(tool, arguments, caller, agent).await;
        match performed {
            Ok(result) => result,
            Err(error) => match self.lacked(tool, caller).await {
                // The credential's permissions were not known here before (MC-6).
                Some(missing) => self.challenge(tool, &MissingAccess::Scope(&missing)),
                None => result::bad_argument(&error),
            },
        }
    }

    /// Carries a call out whose caller may make it, as far as is known here.
    async fn perform(
        &self,
        tool: &Tool,
        mut arguments: Map<String, Value>,
        caller: &Extensions,
        agent: Agent,
    ) -> CallFuture {
        if let Call::CreateProject = tool.call
            && arguments.remove(CONFIRMED) != Some(Value::Bool(true))
        {
            return self.unconfirmed(&arguments, caller).await;
        }
        if let Call::Live(list) = tool.call {
            return self.list_live(tool, list, arguments, caller).await;
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
        let response = self.backend.carry(request, caller).await;
        if let Some(refused) = self.lacks_more(tool, &response, caller).await {
            return Ok(refused);
        }
        Ok(result::of_response(
            &response,
            &scopes(tool),
            &self.resource_metadata(),
            |field| call::argument_of(tool, operation, field),
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
        let carried = self
            .backend
            .carry_to_engine(project, needed, request, caller);
        let response = carried.await;
        if response.status() == StatusCode::OK {
            let answer = list.answer(&response);
            return Ok(answer.map_or_else(|| result::failure(NO_LIST), result::structured));
        }
        if let Some(refused) = self.lacks_more(tool, &response, caller).await {
            return Ok(refused);
        }
        Ok(result::of_response(
            &response,
            &scopes(tool),
            &self.resource_metadata(),
            // The engine calls the parts of `params` as the tool calls its arguments.
            str::to_owned,
        ))
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
        let response = match of.way {
            Way::Operation(verb, path, _) => {
                let request = of.request((verb, path), &arguments)?;
                self.backend
                    .carry_to_engine(project, needed, request, caller)
                    .await
            }
            Way::Stream(act) => {
                let ask = TerminalAsk {
                    act,
                    arguments,
                    agent,
                };
                self.backend
                    .carry_to_terminal(project, needed, ask, caller)
                    .await
            }
        };
        if let Way::Operation(_, _, answer) = of.way
            && response.status().is_success()
        {
            let answer = answer.of(&response);
            return Ok(answer.map_or_else(|| result::failure(NO_LIST), result::structured));
        }
        if let Some(refused) = self.lacks_more(tool, &response, caller).await {
            return Ok(refused);
        }
        Ok(result::of_response(
            &response,
            &scopes(tool),
            &self.resource_metadata(),
            |field| of.name_of(field),
        ))
    }

    /// CP-4g: nothing is created; the answer says what the person has to see.
    async fn unconfirmed(&self, arguments: &Map<String, Value>, caller: &Extensions) -> CallFuture {
        let Some(preview) = Tool::find("svc_project_creation_options") else {
            return Ok(result::failure(UNCONFIRMED));
        };
        let workspace = arguments
            .get("workspace_id")
            .map(|id| ("workspace_id".to_owned(), id.clone()));
        let asked: Map<String, Value> = workspace.into_iter().collect();
        let shown = self
            .operate(preview, plans::PLAN_CONFIGURATION, &asked, caller)
            .await?;
        // Who may not even look is told that.
        let Some(options) = shown.structured_content else {
            return Ok(shown);
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
                "{UNCONFIRMED} It is: {}\nThe preview: {option}",
                option.get("billingImpact").unwrap_or(&Value::Null),
            ))),
            None => Err(BadArgument::new("plan", "the preview has no such plan")),
        }
    }

    /// MC-6: whoever refuses names what it looked at, and a tool may need more. What else the
    /// credential lacks is asked of the platform, so that the person is asked once.
    async fn lacks_more(
        &self,
        tool: &Tool,
        response: &Response<Bytes>,
        caller: &Extensions,
    ) -> Option<CallToolResult> {
        let first = result::missing_scope(response)?;
        if tool.scopes()?.len() < 2 {
            return None;
        }
        let held = self.permissions(caller).await?;
        // What was refused is missing where the person's role lacks it, too.
        let refused = first.split(' ').filter_map(|name| name.parse().ok());
        let all = missing_of(tool, held).chain(refused);
        let all: Permissions = all.collect();
        Some(self.challenge(tool, &MissingAccess::Scope(&all.to_string())))
    }

    /// The permissions that the tool needs and the credential lacks, as the platform knows them.
    async fn lacked(&self, tool: &Tool, caller: &Extensions) -> Option<String> {
        tool.scopes()?;
        missing(tool, self.permissions(caller).await?)
    }

    /// The permissions of the credential; `None` where the platform does not answer.
    async fn permissions(&self, caller: &Extensions) -> Option<Permissions> {
        let request = Request::get(whoami::WHOAMI.path).body(Bytes::new()).ok()?;
        let answer = self.backend.carry(request, caller).await;
        let whoami: Value = serde_json::from_slice(answer.body()).ok()?;
        let held = whoami.get("permissions")?.as_array()?.iter();
        Some(
            held.filter_map(|name| name.as_str()?.parse().ok())
                .collect(),
        )
    }

    fn challenge(&self, tool: &Tool, missing: &MissingAccess<'_>) -> CallToolResult {
        result::challenge(missing, &scopes(tool), &self.resource_metadata())
    }

    fn resource_metadata(&self) -> String {
        let base_url = self.backend.base_url();
        format!("{base_url}/.well-known/oauth-protected-resource")
    }
}

/// The result of a call, unless an argument is wrong.
type CallFuture = Result<CallToolResult, BadArgument>;

const UNCONFIRMED: &str = "Nothing was created. Show the billing impact of this plan to the \
     person, and call again with confirmed: true and the creation_fingerprint of the preview once \
     they have agreed.";

const NO_LIST: &str = "The engine of this project answered with something else. Tell the \
     person: whoever runs the platform has to look at it.";

/// What a tool needs and a credential with these permissions lacks; `None`: nothing.
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
        let is_written = parts.and_then(|parts| parts.extensions.get::<ListIsWritten>());
        if let Some(ListIsWritten) = is_written {
            return Ok(ListToolsResult::with_all_items(Vec::new()));
        }
        let mut listed = tools::listed();
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
        let places = self.beside.as_ref().map(|beside| &beside.places);
        let Ok(_place) = places.map(|places| places.try_acquire()).transpose() else {
            let message = format!("{MOST_CALLS} calls are running; wait for one to end");
            return Err(ErrorData::new(BUSY, message, None));
        };
        let Some(tool) = Tool::find(&request.name) else {
            let beside = self.beside.as_ref();
            let answer = beside.and_then(|beside| beside.local.call(&request.name, arguments));
            if let Some(answer) = answer {
                let result = answer.await;
                return Ok(result
                    .map_or_else(result::failure, result::structured)
                    .into());
            }
            let name: String = request.name.chars().take(MAX_NAME_SHOWN).collect();
            let message = format!("there is no tool {name:?}; tools/list names them");
            return Err(ErrorData::invalid_params(message, None));
        };
        let nobody = Extensions::new();
        let parts = context.extensions.get::<Parts>();
        let caller = parts.map_or(&nobody, |parts| &parts.extensions);
        let agent = agent(&context, parts);
        Ok(self.call(tool, arguments, caller, agent).await.into())
    }

    // Prompts and resources are declared, and there are none: clients ask everybody for the lists, and
    // the SDK answers with empty ones. What is not declared is not there (-32601).

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }
}

/// The AI client, as it says: with the request, in the handshake of a connection, or in the field that
/// HTTP has for it, where there is no handshake.
fn agent(context: &RequestContext<RoleServer>, parts: Option<&Parts>) -> Agent {
    let said = context.meta.client_info();
    let greeted = || Some(context.peer.peer_info()?.client_info.clone());
    let said = said.or_else(|| if parts.is_none() { greeted() } else { None });
    if let Some(client) = said {
        return Agent {
            name: cut(&client.name),
            version: cut(&client.version),
        };
    }
    let field = parts.and_then(|parts| parts.headers.get(USER_AGENT));
    let field = field.and_then(|field| field.to_str().ok());
    let product = field.and_then(|field| field.split_whitespace().next());
    let (name, version) = product.map_or(("an AI client", ""), |product| {
        product.split_once('/').unwrap_or((product, ""))
    });
    Agent {
        name: cut(name),
        version: cut(version),
    }
}

/// A name as others are shown it.
fn cut(text: &str) -> String {
    let shown = text.chars().filter(|c| !c.is_control());
    shown.take(MAX_NAME_SHOWN).collect()
}

/// More than a model has in hand at once; each waits for the network for half a minute at most.
const MOST_CALLS: usize = 24;
/// Of the codes that JSON-RPC leaves to servers (section 5.1).
const BUSY: ErrorCode = ErrorCode(-32000);
/// Long enough for every name of ours.
const MAX_NAME_SHOWN: usize = 64;
