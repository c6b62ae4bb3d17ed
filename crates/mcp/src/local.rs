//! The tools on standard input and output, for clients of this machine: those of the platform, and
//! those that only a program beside them can have.

use std::pin::Pin;
use std::sync::Arc;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ListToolsResult, PaginatedRequestParams, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, serve_server};
use serde_json::{Map, Value};

use crate::result;
use crate::server::{Backend, Server};

/// Tools that act on this machine.
pub trait Local: Send + Sync + 'static {
    /// The tools as they are listed, in the form of [`documents`](crate::documents).
    fn documents(&self) -> Vec<Value>;

    /// Calls a tool; `None` where there is none of this name.
    fn call(&self, name: &str, arguments: Map<String, Value>) -> Option<LocalAnswer>;
}

/// The answer of a local tool, later, or what the model is told of its failure.
pub type LocalAnswer = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;

/// Serves the tools of the platform and of this machine until standard input ends.
///
/// # Errors
/// When what comes in begins no conversation of the protocol.
pub async fn stdio<B: Backend, L: Local>(server: Server<B>, local: L) -> Result<(), StdioError> {
    let handler = Stdio {
        server,
        local: Arc::new(local),
    };
    let running = serve_server(handler, rmcp::transport::io::stdio())
        .await
        .map_err(|error| StdioError(error.to_string()))?;
    let ended = running.waiting().await;
    ended
        .map(drop)
        .map_err(|error| StdioError(error.to_string()))
}

/// The conversation could not be begun, or broke.
#[derive(Debug)]
pub struct StdioError(String);

impl std::fmt::Display for StdioError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StdioError {}

struct Stdio<B, L> {
    server: Server<B>,
    local: Arc<L>,
}

impl<B: Backend, L: Local> ServerHandler for Stdio<B, L> {
    fn get_info(&self) -> ServerConfig {
        self.server.get_info()
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut listed = self.server.list_tools(request, context).await?;
        let documents = self.local.documents().into_iter();
        let local = documents.map(serde_json::from_value);
        listed.tools.extend(local.filter_map(Result::ok));
        Ok(listed)
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.take().unwrap_or_default();
        if let Some(answer) = self.local.call(&request.name, arguments.clone()) {
            let result = answer.await;
            return Ok(result
                .map_or_else(result::failure, result::structured)
                .into());
        }
        request.arguments = Some(arguments);
        self.server.call_tool(request, context).await
    }
}
