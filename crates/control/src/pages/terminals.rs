//! Terminals in a browser: what there is to open, one that is open, one that is watched, one that
//! was recorded.
//!
//! A page says who looks, which project it is about and where that project's engine is; its script
//! does the rest, with short-lived tokens that it asks for with the session's cookie. What of it the
//! person may do is judged by the engine; the page only leaves out what it would refuse.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use types::permission::Permission;
use types::problem::Problem;

use super::layout::{PageRefusal, terminal_page};
use super::signed_in;
use super::terminal_files::has_terminal;
use crate::access;
use crate::app::App;
use crate::extract::Path;
use crate::people::session::Visitor;
use crate::projects::region_of;
use crate::workspaces::role::Role;

#[derive(Template)]
#[template(path = "terminals.html")]
struct ListPage {
    place: Place,
}

#[derive(Template)]
#[template(path = "terminal.html")]
struct TerminalPage {
    place: Place,
    view: View,
    /// The server or session that the address names.
    subject: String,
}

/// What all of these pages say.
struct Place {
    project: String,
    workspace: String,
    project_name: String,
    user: String,
    /// Origin of the engine, `https://<endpoint>.<domain>[:port]`.
    engine: String,
    /// Permissions that the role of the person allows, by their names.
    may: String,
    has_terminal: bool,
    may_replay: bool,
}

/// What a terminal page is for.
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
    let (place, domain) = place(&app, visitor, &project, &path).await?;
    let connect = connect(&place, &domain, false);
    Ok(terminal_page(&ListPage { place }, &connect))
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
    let (place, domain) = place(app, visitor, project, &path).await?;
    let connect = connect(&place, &domain, view == View::Open);
    let page = TerminalPage {
        place,
        view,
        subject,
    };
    Ok(terminal_page(&page, &connect))
}

/// The project, for a member who may see sessions, and the address of tunnels of its engine.
async fn place(
    app: &App,
    visitor: Visitor,
    project: &str,
    path: &str,
) -> Result<(Place, String), PageRefusal> {
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
    let names = ASKED.iter().filter(|permission| may(permission));
    let names: Vec<_> = names.map(|permission| permission.as_str()).collect();
    let port = match region.engine_port {
        443 => String::new(),
        port => format!(":{port}"),
    };
    let domain = format!("{}{port}", region.domain);
    Ok((
        Place {
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

/// Where the script of a page may connect to: the engine of the project, and where a terminal is
/// opened, the tunnels beside it, whose names are known to the engine alone.
fn connect(place: &Place, domain: &str, opens: bool) -> Vec<String> {
    let engine = &place.engine;
    let stream = engine.replacen("https:", "wss:", 1);
    let mut all = vec![engine.clone(), stream];
    if opens {
        all.push(format!("wss://*.t.{domain}"));
    }
    all
}

/// Part of an address of ours to come back to; what is no plain word names nothing, and so may be
/// left out.
fn segment(text: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.chars().filter(plain).collect()
}

/// What the scripts ask tokens for, and what decides which buttons there are.
const ASKED: [Permission; 7] = [
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
    fn an_address_to_come_back_to_has_plain_words_alone() {
        assert_eq!(segment("wts_01J-a.b"), "wts_01J-a.b");
        assert_eq!(segment("../x?y#z%2f\"<>"), "..xyz2f");
    }
}
