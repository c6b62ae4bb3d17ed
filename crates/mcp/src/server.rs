//! The server: it lists the tools and calls them. It holds no state of its own.

use std::sync::Arc;

use api::control::{Operation, plans};
use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, Request, Response};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Map, Value};
use types::permission::Permissions;

use crate::call::{self, BadArgument};
use crate::result::{self, Missing};
use crate::schema::CONFIRMED;
use crate::tools::{Call, Tool};
use crate::{discovery, tools};

/// What carries requests to the API.
pub trait Backend: Send + Sync + 'static {
    /// Whether there is a credential to call with: without one, no request is made.
    fn has_credential(&self, caller: &Extensions) -> bool;

    /// Carries a request out for a caller, who is known by the extensions of the request that
    /// brought the call. Failures of the way are answers too: a status and a problem.
    fn carry(&self, request: Request<Bytes>, caller: &Extensions) -> Carried;
}

/// The answer, later.
pub type Carried = std::pin::Pin<Box<dyn Future<Output = Response<Bytes>> + Send>>;

/// The tools over a backend.
#[derive(Debug)]
pub struct Server<B> {
    backend: Arc<B>,
    base_url: Arc<str>,
}

impl<B> Clone for Server<B> {
    fn clone(&self) -> Self {
        Self {
            backend: Arc::clone(&self.backend),
            base_url: Arc::clone(&self.base_url),
        }
    }
}

impl<B: Backend> Server<B> {
    /// A server for the platform at `base_url`.
    pub fn new(backend: B, base_url: &str) -> Self {
        Self {
            backend: Arc::new(backend),
            base_url: base_url.into(),
        }
    }

    /// Calls a tool.
    pub async fn call(
        &self,
        tool: &Tool,
        mut arguments: Map<String, Value>,
        caller: &Extensions,
    ) -> CallToolResult {
        match tool.call {
            Call::Discovery if arguments.is_empty() => {
                return result::structured(discovery::discovery(&self.base_url));
            }
            Call::OpenApi => {
                return discovery::openapi(&arguments)
                    .map_or_else(|error| result::bad_argument(&error), result::structured);
            }
            _ => {}
        }
        // Nobody learns what is wrong with arguments before signing in: 401 comes first.
        if tool.scopes().is_some() && !self.backend.has_credential(caller) {
            return self.challenge(tool, &Missing::Login);
        }
        if let Call::CreateProject = tool.call
            && arguments.remove(CONFIRMED) != Some(Value::Bool(true))
        {
            return self.unconfirmed(&arguments, caller).await;
        }
        match call::choose(tool, &arguments) {
            Ok(operation) => self.operate(tool, operation, &arguments, caller).await,
            Err(error) => result::bad_argument(&error),
        }
    }

    async fn operate(
        &self,
        tool: &Tool,
        operation: &Operation,
        arguments: &Map<String, Value>,
        caller: &Extensions,
    ) -> CallToolResult {
        let request = match call::request(tool, operation, arguments) {
            Ok(request) => request,
            Err(error) => return result::bad_argument(&error),
        };
        let response = self.backend.carry(request, caller).await;
        result::of_response(
            &response,
            &scopes(tool),
            &self.resource_metadata(),
            |field| call::argument_of(tool, operation, field),
        )
    }

    /// CP-4g: nothing is created; the answer says what the person has to see.
    async fn unconfirmed(
        &self,
        arguments: &Map<String, Value>,
        caller: &Extensions,
    ) -> CallToolResult {
        let Some(preview) = Tool::find("svc_project_creation_options") else {
            return result::failure(UNCONFIRMED);
        };
        let workspace = arguments
            .get("workspace_id")
            .map(|id| ("workspace_id".to_owned(), id.clone()));
        let asked: Map<String, Value> = workspace.into_iter().collect();
        let shown = self
            .operate(preview, plans::PLAN_CONFIGURATION, &asked, caller)
            .await;
        // Who may not even look is told that.
        let Some(options) = shown.structured_content else {
            return shown;
        };
        let plan = arguments.get("plan").and_then(Value::as_str);
        let option = options
            .get("plans")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .find(|option| option.get("plan").and_then(Value::as_str) == plan);
        match option {
            Some(option) => result::failure(format!(
                "{UNCONFIRMED} It is: {}\nThe preview: {option}",
                option.get("billingImpact").unwrap_or(&Value::Null),
            )),
            None => result::bad_argument(&BadArgument::new("plan", "the preview has no such plan")),
        }
    }

    fn challenge(&self, tool: &Tool, missing: &Missing<'_>) -> CallToolResult {
        result::challenge(missing, &scopes(tool), &self.resource_metadata())
    }

    fn resource_metadata(&self) -> String {
        format!("{}/.well-known/oauth-protected-resource", self.base_url)
    }
}

const UNCONFIRMED: &str = "Nothing was created. Show the billing impact of this plan to the \
     person, and call again with confirmed: true and the creation_fingerprint of the preview once \
     they have agreed.";

fn scopes(tool: &Tool) -> String {
    let scopes: Permissions = tool.scopes().into_iter().flatten().collect();
    scopes.to_string()
}

impl<B: Backend> ServerHandler for Server<B> {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("svc", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(discovery::INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::listed()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = Tool::find(&request.name) else {
            let name: String = request.name.chars().take(MAX_NAME_SHOWN).collect();
            let message = format!("there is no tool {name:?}; tools/list names them");
            return Err(ErrorData::invalid_params(message, None));
        };
        let nobody = Extensions::new();
        let caller = context.extensions.get::<Parts>();
        let caller = caller.map_or(&nobody, |parts| &parts.extensions);
        let arguments = request.arguments.unwrap_or_default();
        Ok(self.call(tool, arguments, caller).await.into())
    }
}

/// Long enough for every name of ours.
const MAX_NAME_SHOWN: usize = 64;
