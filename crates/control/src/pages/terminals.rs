//! Browser terminal pages: the list, an open terminal, a watched one, and a recording.
//!
//! A page contains the user, the project, and the address of the project's engine. Its script does
//! the rest with short-lived tokens, which it requests with the session cookie. The engine decides
//! what the user may do. The page only hides the actions that the engine would refuse.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use types::permission::Permission;
use types::problem::Problem;

use super::layout::{PageRefusal, terminal_page};
use super::signed_in;
use super::terminal_files::has_terminal;
use crate::app::App;
use crate::caller::access;
use crate::http_api::extract::Path;
use crate::people::session::Visitor;
use crate::projects::region_of;
use crate::workspaces::role::Role;

#[derive(Template)]
#[template(path = "terminals.html")]
struct ListPage {
    context: TerminalContext,
}

#[derive(Template)]
#[template(path = "terminal.html")]
struct TerminalPage {
    context: TerminalContext,
    view: View,
    /// The server or session in the page's path.
    subject: String,
}

/// Data of all terminal pages.
struct TerminalContext {
    project: String,
    workspace: String,
    project_name: String,
    user: String,
    /// Origin of the engine, `https://<endpoint>.<domain>[:port]`.
    engine: String,
    /// Names of the permissions that the user's role allows.
    may: String,
    has_terminal: bool,
    may_replay: bool,
}

/// Kind of a terminal page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Open,
    Watch,
    Replay,
}

impl View {
    fn title(self) -> &'static str {
        match self {
            Self::Open => "Terminal",
            Self::Watch => "Session",
            Self::Replay => "Recording",
        }
    }

    fn script(self) -> &'static str {
        match self {
            Self::Open => "open.mjs",
            Self::Watch => "watch.mjs",
            Self::Replay => "replay.mjs",
        }
    }
}

/// `GET /projects/{project_id}/terminals`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(project): Path<String>,
) -> Result<Response, PageRefusal> {
    let path = format!("/projects/{}/terminals", segment(&project));
    let (context, domain) = context(&app, visitor, &project, &path).await?;
    let connect = connect_sources(&context, &domain, false);
    Ok(terminal_page(&ListPage { context }, &connect))
}

/// `GET /projects/{project_id}/terminals/{server}`
pub(super) async fn open(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path((project, server)): Path<(String, String)>,
) -> Result<Response, PageRefusal> {
    show(&app, visitor, &project, server, View::Open).await
}

/// `GET /projects/{project_id}/sessions/{session}`
pub(super) async fn watch(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path((project, session)): Path<(String, String)>,
) -> Result<Response, PageRefusal> {
    show(&app, visitor, &project, session, View::Watch).await
}

/// `GET /projects/{project_id}/sessions/{session}/replay`
pub(super) async fn replay(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path((project, session)): Path<(String, String)>,
) -> Result<Response, PageRefusal> {
    show(&app, visitor, &project, session, View::Replay).await
}

async fn show(
    app: &App,
    visitor: Visitor,
    project: &str,
    subject: String,
    view: View,
) -> Result<Response, PageRefusal> {
    let (first, second) = (segment(project), segment(&subject));
    let path = match view {
        View::Open => format!("/projects/{first}/terminals/{second}"),
        View::Watch => format!("/projects/{first}/sessions/{second}"),
        View::Replay => format!("/projects/{first}/sessions/{second}/replay"),
    };
    let (context, domain) = context(app, visitor, project, &path).await?;
    let connect = connect_sources(&context, &domain, view == View::Open);
    let page = TerminalPage {
        context,
        view,
        subject,
    };
    Ok(terminal_page(&page, &connect))
}

/// The project, if the user is a member who may see sessions, and the tunnel address of its engine.
async fn context(
    app: &App,
    visitor: Visitor,
    project: &str,
    path: &str,
) -> Result<(TerminalContext, String), PageRefusal> {
    let who = signed_in(visitor, path)?.principal();
    let permission = Permission::WebttySessionsReadOnly;
    if !who.allows(permission) {
        return Err(Problem::insufficient_scope(permission).into());
    }
    let mut read = app.store.read().await?;
    let found = access::project(&mut read, &who, project, permission).await?;
    drop(read);
    let region = region_of(app, &found.project).ok_or_else(Problem::unavailable)?;
    let role = Role::from(found.role);
    let may = |permission: &Permission| role.allows(*permission) && who.allows(*permission);
    let names = TERMINAL_PERMISSIONS
        .iter()
        .filter(|permission| may(permission));
    let names: Vec<_> = names.map(|permission| permission.as_str()).collect();
    let port = match region.engine_port {
        443 => String::new(),
        port => format!(":{port}"),
    };
    let domain = format!("{}{port}", region.domain);
    Ok((
        TerminalContext {
            project: found.project.id.to_string(),
            workspace: found.project.workspace_id.to_string(),
            project_name: found.project.name,
            user: who.user.id.to_string(),
            engine: format!("https://{}.{domain}", found.project.endpoint),
            may: names.join(" "),
            has_terminal: has_terminal(),
            may_replay: may(&Permission::WebttyLogsReadOnly),
        },
        domain,
    ))
}

/// Addresses that the script of a page may connect to: the engine of the project and, for opening a
/// terminal, its tunnels. Only the engine has the names of the tunnels.
fn connect_sources(context: &TerminalContext, domain: &str, opens: bool) -> Vec<String> {
    let engine = &context.engine;
    let stream = engine.replacen("https:", "wss:", 1);
    let mut all = vec![engine.clone(), stream];
    if opens {
        all.push(format!("wss://*.t.{domain}"));
    }
    all
}

/// Part of a path to return to. A text that is not a plain word cannot name a resource, and is left
/// out.
fn segment(text: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.chars().filter(plain).collect()
}

/// Permissions that the scripts request in tokens, and that determine the buttons.
const TERMINAL_PERMISSIONS: [Permission; 7] = [
    Permission::TunnelsResourcesReadOnly,
    Permission::TunnelsStreamsCreateDelete,
    Permission::WebttySessionsReadOnly,
    Permission::WebttySessionsReadWrite,
    Permission::WebttyLogsReadOnly,
    Permission::NetworkWebttyServersReadOnly,
    Permission::NetworkWebttyServersReadWrite,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_path_has_only_plain_words() {
        assert_eq!(segment("wts_01J-a.b"), "wts_01J-a.b");
        assert_eq!(segment("../x?y#z%2f\"<>"), "..xyz2f");
    }
}
