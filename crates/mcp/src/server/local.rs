//! The tools on standard input and output, for clients on this machine: those of the platform, and
//! local tools.

use std::pin::Pin;
use std::sync::Arc;

use rmcp::serve_server;
use serde_json::{Map, Value, json};
use types::permission::Permission;

use crate::server::lines::Lines;
use crate::server::{Backend, Server};
use crate::tools::{Effect, annotations, schemes};

/// Tools that act on this machine.
pub trait Local: Send + Sync + 'static {
    /// The tools, in display order.
    fn tools(&self) -> Vec<LocalTool>;

    /// Calls a tool; `None` if there is none of this name.
    fn call(&self, name: &str, arguments: Map<String, Value>) -> Option<LocalAnswer>;
}

/// A tool that acts on this machine.
#[derive(Debug, Clone)]
pub struct LocalTool {
    /// Name, with the prefix `svc_`.
    pub name: &'static str,
    /// Display name.
    pub title: &'static str,
    /// Purpose and usage, for models.
    pub description: &'static str,
    /// Effect of a call.
    pub effect: Effect,
    /// Permissions that the token of the context needs at least.
    pub scopes: &'static [Permission],
    /// JSON Schema of the arguments.
    pub input: Value,
    /// JSON Schema of the response.
    pub output: Value,
}

/// The future response of a local tool, or an error message for the model.
pub type LocalAnswer = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;

impl LocalTool {
    /// The tool's list entry, in the form of [`Tool::document`](crate::Tool::document).
    pub fn document(&self) -> Value {
        let schemes = schemes(Some(self.scopes));
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input,
            "outputSchema": self.output,
            "annotations": annotations(self.title, self.effect),
            "securitySchemes": schemes,
            "_meta": {"securitySchemes": schemes},
        })
    }
}

/// Serves the tools of the platform and of this machine until standard input ends.
///
/// # Errors
/// The client does not initialize an MCP session.
pub async fn stdio<B: Backend, L: Local>(server: Server<B>, local: L) -> Result<(), StdioError> {
    let server = server.with_local_tools(Arc::new(local));
    let lines = Lines::new(tokio::io::stdin(), tokio::io::stdout());
    let running = serve_server(server, lines)
        .await
        .map_err(|error| StdioError(error.to_string()))?;
    let ended = running.waiting().await;
    ended
        .map(drop)
        .map_err(|error| StdioError(error.to_string()))
}

/// The MCP session could not be started, or failed.
#[derive(Debug)]
pub struct StdioError(String);

impl std::fmt::Display for StdioError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StdioError {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{Extensions, Request};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, split};
    use tokio::sync::watch;
    use tokio::time::timeout;

    use super::*;
    use crate::server::ResponseFuture;
    use crate::tools::live::ProjectName;
    use crate::tools::terminals::TerminalRequest;

    /// A platform without any requests.
    struct NoPlatform;

    impl Backend for NoPlatform {
        fn base_url(&self) -> Arc<str> {
            "https://svc.example.com".into()
        }

        fn has_credential(&self, _: &Extensions) -> bool {
            false
        }

        fn send_request(&self, _: Request<Bytes>, _: &Extensions) -> ResponseFuture {
            Box::pin(std::future::pending())
        }

        fn send_to_engine(
            &self,
            _: ProjectName,
            _: Permission,
            _: Request<Bytes>,
            _: &Extensions,
        ) -> ResponseFuture {
            Box::pin(std::future::pending())
        }

        fn send_to_terminal(
            &self,
            _: ProjectName,
            _: Permission,
            _: TerminalRequest,
            _: &Extensions,
        ) -> ResponseFuture {
            Box::pin(std::future::pending())
        }
    }

    /// Counts the calls, which never end.
    struct HangingTool(watch::Sender<usize>);

    impl Local for HangingTool {
        fn tools(&self) -> Vec<LocalTool> {
            Vec::new()
        }

        fn call(&self, _: &str, _: Map<String, Value>) -> Option<LocalAnswer> {
            self.0.send_modify(|calls| *calls += 1);
            Some(Box::pin(std::future::pending()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_calls_are_limited() {
        let (calls, mut started) = watch::channel(0);
        let server = Server::new(NoPlatform).with_local_tools(Arc::new(HangingTool(calls)));
        let (theirs, ours) = tokio::io::duplex(1 << 20);
        let (read, write) = split(ours);
        let service = tokio::spawn(serve_server(server, Lines::new(read, write)));
        let (read, mut write) = split(theirs);
        let mut messages = vec![
            json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"}}}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        ];
        messages.extend((1..=25).map(|id| {
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": {"name": "svc_hang", "arguments": {}}})
        }));
        for message in messages {
            let line = format!("{message}\n");
            write.write_all(line.as_bytes()).await.unwrap();
        }
        let mut lines = BufReader::new(read).lines();
        let mut answer = async || {
            let line = timeout(WAIT_LIMIT, lines.next_line()).await.unwrap();
            serde_json::from_str::<Value>(&line.unwrap().unwrap()).unwrap()
        };
        assert_eq!(answer().await["id"], 0);
        assert_eq!(answer().await["error"]["code"], -32000);
        let running = started.wait_for(|calls| *calls == 24);
        timeout(WAIT_LIMIT, running).await.unwrap().unwrap();
        service.abort();
    }

    /// With Tokio's paused clock, this expires as soon as all tasks wait.
    const WAIT_LIMIT: Duration = Duration::from_mins(1);
}
