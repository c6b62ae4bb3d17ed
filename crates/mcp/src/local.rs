//! The tools on standard input and output, for clients of this machine: those of the platform, and
//! those that only a program beside them can have.

use std::pin::Pin;
use std::sync::Arc;

use rmcp::serve_server;
use serde_json::{Map, Value, json};
use types::permission::Permission;

use crate::lines::Lines;
use crate::server::{Backend, Server};
use crate::tools::{Effect, annotations, schemes};

/// Tools that act on this machine.
pub trait Local: Send + Sync + 'static {
    /// The tools, in the order in which they are listed.
    fn tools(&self) -> Vec<LocalTool>;

    /// Calls a tool; `None` where there is none of this name.
    fn call(&self, name: &str, arguments: Map<String, Value>) -> Option<LocalAnswer>;
}

/// A tool that acts on this machine.
#[derive(Debug, Clone)]
pub struct LocalTool {
    /// Name, with the prefix `svc_`.
    pub name: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// What it does and when to use it, for models.
    pub description: &'static str,
    /// What it does to the world.
    pub effect: Effect,
    /// The least that the token of the context has to hold.
    pub scopes: &'static [Permission],
    /// JSON Schema of the arguments.
    pub input: Value,
    /// JSON Schema of the answer.
    pub output: Value,
}

/// The answer of a local tool, later, or what the model is told of its failure.
pub type LocalAnswer = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;

impl LocalTool {
    /// The tool as it is listed, in the form of [`Tool::document`](crate::Tool::document).
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
/// When what comes in begins no conversation of the protocol.
pub async fn stdio<B: Backend, L: Local>(server: Server<B>, local: L) -> Result<(), StdioError> {
    let server = server.beside(Arc::new(local));
    let lines = Lines::new(tokio::io::stdin(), tokio::io::stdout());
    let running = serve_server(server, lines)
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
