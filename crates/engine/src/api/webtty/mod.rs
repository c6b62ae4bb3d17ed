//! Managed terminals: participants, requests for control, and their resolution (EN-8).
//!
//! No response here contains bytes of a terminal (WT-3): the stream of a participant is WebTTY, on
//! a separate connection. A session is visible to callers that may see the tunnel of its server.

mod capabilities;
mod control_requests;
mod groups;
mod participants;
mod recordings;
mod sessions;
mod stream;

use std::sync::Arc;

use ::api::webtty::{self as paths, Session};
use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use credentials::VerifiedToken;
use daemon::problem::Refusal;
use http::header::CACHE_CONTROL;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tty::managed::{Person, SessionRefusalError};
use types::boundary::ListScope;
use types::json;
use types::permission::Permission;
use types::problem::Problem;
use types::tunnel::Tunnel;

use super::Api;
use super::caller::Caller;
use crate::access::BoundaryDenial;
use crate::directory::Project;
use crate::live::LoadMetric;
use crate::webtty::{RunningSession, SessionEntry, without_arguments};

/// The routes.
pub(super) fn router<A: LoadMetric>() -> Router<Arc<Api<A>>> {
    Router::new()
        .route(paths::CAPABILITIES, get(capabilities::capabilities::<A>))
        .route(paths::SESSIONS, get(sessions::list::<A>))
        .route(
            paths::SESSION,
            get(sessions::one::<A>).delete(sessions::terminate::<A>),
        )
        .route(
            paths::PARTICIPANTS,
            get(participants::list::<A>).post(participants::attach::<A>),
        )
        .route(paths::PARTICIPANT, post(participants::detach::<A>))
        .route(
            paths::STREAM,
            get(stream::join::<A>).connect(stream::join::<A>),
        )
        .route(
            paths::CONTROL_REQUESTS,
            get(control_requests::list::<A>).post(control_requests::create::<A>),
        )
        .route(paths::CONTROL_REQUEST, post(control_requests::resolve::<A>))
        .route(paths::KEY_GRANTS, get(sessions::key_grants::<A>))
        .route(paths::GROUPS, get(groups::list::<A>))
        .route(paths::GROUP, get(groups::one::<A>))
        .merge(recordings::router())
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

impl<A> Api<A> {
    /// The sessions that a caller sees, in the order of lists.
    fn sessions_of(&self, token: &VerifiedToken, project: &Project) -> Vec<SessionEntry> {
        let mut all = self.terminals.project_sessions(&project.id);
        all.retain(|known| is_session_visible(token, project, known));
        all
    }

    /// A session that the caller sees; any other one is reported as not found.
    fn session_of<N>(&self, caller: &Caller<N>, id: &str) -> Result<SessionEntry, Refusal> {
        let known = self.terminals.find(&caller.project.id, id);
        known
            .filter(|known| is_session_visible(&caller.token, &caller.project, known))
            .ok_or_else(|| Problem::not_found().into())
    }

    /// An active session that the caller sees, at a server that the caller may use.
    fn running_of<N>(
        &self,
        caller: &Caller<N>,
        id: &str,
        permission: Permission,
    ) -> Result<Arc<RunningSession>, Refusal> {
        let known = self.session_of(caller, id)?;
        let project = &caller.project;
        let state = project.state();
        let workspace = state.workspace_id.as_deref();
        let boundary = caller.token.limits.boundary();
        let reached = boundary.connect(&project.id, workspace, known.tunnel(), None);
        reached.map_err(|refusal| BoundaryDenial::Boundary {
            permission,
            field: refusal.field,
        })?;
        let SessionEntry::Running(running) = known else {
            return Err(refused(SessionRefusalError::NotActive).into());
        };
        let policy = &running.attributes.policy;
        policy.admits(&caller.token, project, &self.tenancy)?;
        Ok(running)
    }

    /// Returns true if a caller is an owner of a session: the account that opened it, or a user
    /// with the role of an admin or an owner in the project. An engine receives the permissions of
    /// a role and not its name, so it uses the permission to read recordings, which only these
    /// roles have.
    fn owns<N>(&self, caller: &Caller<N>, session: &RunningSession) -> bool {
        let write = Permission::WebttySessionsReadWrite;
        let (token, project) = (&caller.token, &caller.project);
        if self.tenancy.require(token, project, write).is_err() {
            return false;
        }
        let user = token.user_id.as_deref();
        let opened = user.is_some() && user == session.attributes.opener.user_id.as_deref();
        let directory = self.tenancy.directory();
        let logs = Permission::WebttyLogsReadOnly;
        opened || directory.is_some_and(|known| known.permits(user, project, logs))
    }
}

impl<A> Api<A> {
    /// Returns true if a caller sees the arguments of a session's command, which may be secrets:
    /// the user who opened it, and users who may read recordings.
    fn sees_arguments(&self, token: &VerifiedToken, project: &Project, session: &Session) -> bool {
        let opened = token.user_id.is_some() && token.user_id == session.initiator_user_id;
        let logs = Permission::WebttyLogsReadOnly;
        opened || self.tenancy.require(token, project, logs).is_ok()
    }

    /// A session as a caller sees it. Every response with a session uses this.
    fn session_for<N>(&self, caller: &Caller<N>, session: Session) -> Session {
        if self.sees_arguments(&caller.token, &caller.project, &session) {
            session
        } else {
            without_arguments(session)
        }
    }
}

/// Returns true if the token shows the session: the same as for the tunnel of its server.
fn is_session_visible(token: &VerifiedToken, project: &Project, known: &SessionEntry) -> bool {
    shows(token, project, known.tunnel())
}

/// Returns true if the token shows objects of a tunnel.
fn shows(token: &VerifiedToken, project: &Project, tunnel: &Tunnel) -> bool {
    let state = project.state();
    let workspace = state.workspace_id.as_deref();
    let scope = token.limits.boundary().list(&project.id, workspace, tunnel);
    scope != ListScope::Hidden
}

/// Checks that the token's boundary allows listing at least some objects of the project.
fn check_may_list<N>(caller: &Caller<N>, permission: Permission) -> Result<(), BoundaryDenial> {
    let state = caller.project.state();
    let workspace = state.workspace_id.as_deref();
    if caller
        .token
        .limits
        .boundary()
        .may_list(&caller.project.id, workspace)
    {
        return Ok(());
    }
    Err(BoundaryDenial::Boundary {
        permission,
        field: None,
    })
}

/// The caller as a person of a session, without a name.
fn person_of(token: &VerifiedToken) -> Person {
    Person {
        user_id: token.user_id.clone(),
        root: Some(token.root.clone()),
        ..Person::default()
    }
}

/// Parses a body strictly; an empty one yields the defaults.
fn body<T: DeserializeOwned + Default>(bytes: Result<Bytes, BytesRejection>) -> Result<T, Refusal> {
    let bytes = bytes.map_err(|_| Problem::content_too_large())?;
    if bytes.is_empty() {
        return Ok(T::default());
    }
    let limits = json::Limits {
        bytes: MAX_BODY,
        depth: MAX_DEPTH,
    };
    let value = json::parse(&bytes, limits).map_err(types::filter::ParamError::from)?;
    if !value.is_object() {
        return Err(Problem::invalid_request("expected an object").into());
    }
    let read = json::typed(value).map_err(types::filter::ParamError::from);
    read.map_err(Into::into)
}

/// The parameters of a path.
fn path<T>(path: Result<axum::extract::Path<T>, PathRejection>) -> Result<T, Refusal> {
    path.map(|path| path.0)
        .map_err(|_| Problem::not_found().into())
}

/// The problem for a request that a session refuses.
fn refused(refused: SessionRefusalError) -> Problem {
    let code = match refused {
        SessionRefusalError::NotFound => return Problem::not_found(),
        SessionRefusalError::Invalid(field) => {
            return Problem::invalid_request(refused.to_string()).with_field(field);
        }
        SessionRefusalError::NotAsController => {
            return Problem::invalid_request(refused.to_string()).with_field("role");
        }
        SessionRefusalError::NotAllowed
        | SessionRefusalError::OwnRequest
        | SessionRefusalError::NeedsPerson
        | SessionRefusalError::BadGrant => {
            return not_allowed(refused.to_string());
        }
        SessionRefusalError::TooMany => {
            return Problem::too_many_requests().with_detail(refused.to_string());
        }
        SessionRefusalError::NotActive => "session_not_active",
        SessionRefusalError::Sealed => "session_sealed",
        SessionRefusalError::NoTerminal => "session_without_terminal",
        SessionRefusalError::Expired => "expired",
        SessionRefusalError::NotConnected => "not_connected",
        SessionRefusalError::HasControl => "has_control",
        SessionRefusalError::IsPending => "is_pending",
        SessionRefusalError::NotPending => "not_pending",
        SessionRefusalError::NotGranted => "not_granted",
    };
    Problem::new(409, code, "").with_detail(refused.to_string())
}

/// The caller has the permission in general, but not for this object.
fn not_allowed(detail: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    Problem::new(403, "not_allowed", "").with_detail(detail)
}

/// A JSON response that must not be cached, because the state changes.
fn json<T: Serialize>(body: T) -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

fn at_most(limit: Option<u16>) -> usize {
    limit.map_or(usize::MAX, usize::from)
}

/// Bytes of a body: a reason for users, and additional data of programs.
const MAX_BODY: usize = 16 * 1024;
/// Nesting depth of objects: additional data of programs is flat.
const MAX_DEPTH: usize = 8;

type HandlerResult = Result<Response, Refusal>;
