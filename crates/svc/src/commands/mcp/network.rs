//! Sends tool calls as requests to the platform, with the token of the context.

use std::sync::Arc;

use ::mcp::{Backend, ProjectName, ResponseFuture, TerminalRequest};
use api::control::projects::{self, Project};
use bytes::Bytes;
use client::{Config, HostPort, Trust};
use http::{Extensions, HeaderValue, Request, Response, StatusCode, header::AUTHORIZATION};
use parking_lot::Mutex;
use serde_json::json;
use types::permission::Permission;

use crate::context::Context;
use crate::engine_client::engine_api::{EngineApi, TrustAnchors};
use crate::failure::{Code, Failure};
use crate::platform::{Platform, Session, SessionFlags};
use crate::terminals::Terminals;

/// The platform over the network.
///
/// Platform and token are read again for each call, so that a `svc login` takes effect while an AI
/// client keeps this process running.
#[derive(Debug)]
pub(super) struct Network {
    flags: SessionFlags,
    /// The platform of the last call, with its connections.
    last: Mutex<Arc<Platform>>,
    terminals: Arc<Terminals>,
}

impl Network {
    /// Opens the platform that the flags select. Fails if there is none at the start.
    pub(super) fn open(flags: SessionFlags, terminals: Arc<Terminals>) -> Result<Self, Failure> {
        let last = Mutex::new(Arc::new(flags.open()?.platform));
        Ok(Self {
            flags,
            last,
            terminals,
        })
    }

    fn platform(&self) -> Result<Arc<Platform>, Failure> {
        let mut last = self.last.lock();
        if let Some(other) = self.flags.open_again(&last)? {
            *last = Arc::new(other);
        }
        Ok(Arc::clone(&last))
    }
}

impl Backend for Network {
    fn base_url(&self) -> Arc<str> {
        // If no platform is configured any more, the last one is returned, because calls were made
        // for it.
        let platform = self.platform();
        let platform = platform.unwrap_or_else(|_| Arc::clone(&self.last.lock()));
        platform.address().to_string().into()
    }

    fn has_credential(&self, _caller: &Extensions) -> bool {
        // If the token is missing, the call reports how to get one.
        true
    }

    fn send_request(&self, request: Request<Bytes>, _caller: &Extensions) -> ResponseFuture {
        let platform = self.platform();
        Box::pin(async move {
            let platform = match platform {
                Ok(platform) => platform,
                Err(failure) => return failed("not_signed_in", &failure),
            };
            send_to_platform(&platform, request).await
        })
    }

    fn send_to_engine(
        &self,
        project: ProjectName,
        _needed: Permission,
        mut request: Request<Bytes>,
        _caller: &Extensions,
    ) -> ResponseFuture {
        let session = self.flags.open();
        Box::pin(async move {
            let (platform, engine) = match platform_and_engine(session, &project).await {
                Ok(found) => found,
                Err(answer) => return answer,
            };
            let trust = platform.ca_file();
            let api = trust.map_or(TrustAnchors::System, TrustAnchors::Only);
            let bearer = HeaderValue::try_from(format!("Bearer {}", platform.token().expose()));
            match (EngineApi::new(api, platform.proxies().clone()), bearer) {
                (Ok(api), Ok(mut bearer)) => {
                    bearer.set_sensitive(true);
                    request.headers_mut().insert(AUTHORIZATION, bearer);
                    api.send_request(&engine, request).await
                }
                (Err(failure), _) => failed("engine_unreachable", &failure),
                (_, Err(_control)) => {
                    let failure = Failure::usage("the token of this context cannot be sent")
                        .hint("have the user run `svc login`, and call again");
                    failed("not_signed_in", &failure)
                }
            }
        })
    }

    fn send_to_terminal(
        &self,
        project: ProjectName,
        _needed: Permission,
        ask: TerminalRequest,
        _caller: &Extensions,
    ) -> ResponseFuture {
        let session = self.flags.open();
        let terminals = Arc::clone(&self.terminals);
        Box::pin(async move {
            let (platform, engine) = match platform_and_engine(session, &project).await {
                Ok(found) => found,
                Err(answer) => return answer,
            };
            let mut config = Config::new(engine, platform.token().clone());
            config.proxies = platform.proxies().clone();
            if let Some(path) = platform.ca_file() {
                config.trust = Trust::CaFile(path.to_owned());
            }
            terminals.answer(config, ask).await
        })
    }
}

/// The platform of the session, and the engine of a project.
async fn platform_and_engine(
    session: Result<Session, Failure>,
    project: &ProjectName,
) -> Result<(Platform, HostPort), Response<Bytes>> {
    let Session {
        platform, context, ..
    } = session.map_err(|failure| failed("not_signed_in", &failure))?;
    let engine = match selected(context.as_ref(), project) {
        Some(engine) => engine,
        None => engine_of_project(&platform, project).await?,
    };
    Ok((platform, engine))
}

async fn send_to_platform(platform: &Platform, request: Request<Bytes>) -> Response<Bytes> {
    match platform.send_request(request).await {
        Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED => {
            // The challenge of the endpoint is replaced: only the user can act on it here.
            let failure =
                Failure::usage("the platform no longer accepts the token of this context")
                    .hint("have the user run `svc login`, and call again");
            failed("not_signed_in", &failure)
        }
        Ok(answer) => answer,
        Err(error) => failed("platform_unreachable", &Failure::from(error)),
    }
}

/// The engine of the context, if its project is the requested one. This allows a token without
/// access to projects to list live objects of its own project.
fn selected(context: Option<&Context>, project: &ProjectName) -> Option<HostPort> {
    let context = context?;
    let selected = context.project.as_ref()?;
    let is_meant = match project {
        ProjectName::Id(id) => *id == selected.id,
        ProjectName::Endpoint(endpoint) => *endpoint == selected.endpoint,
    };
    let engine = context.engine.as_deref().filter(|_| is_meant)?;
    engine.parse().ok()
}

/// The engine of a project as reported by the platform, or the platform's refusal.
async fn engine_of_project(
    platform: &Platform,
    project: &ProjectName,
) -> Result<HostPort, Response<Bytes>> {
    let path = match project {
        ProjectName::Id(id) => projects::GET.path.replace("{project_id}", id),
        ProjectName::Endpoint(endpoint) => projects::RESOLVE
            .path
            .replace("{project_endpoint}", endpoint),
    };
    let no_project = || {
        let failure = Failure::new(
            Code::Failed,
            "the platform did not send the engine's address",
        );
        failed("engine_unreachable", &failure)
    };
    let request = Request::get(path).body(Bytes::new());
    let request = request.map_err(|_| no_project())?;
    let answer = send_to_platform(platform, request).await;
    if answer.status() != StatusCode::OK {
        return Err(answer);
    }
    let project = serde_json::from_slice::<Project>(answer.body());
    let project = project.map_err(|_| no_project())?;
    let host = format!("{}.{}", project.endpoint, project.domain);
    HostPort::new(&host, project.engine_port).map_err(|_| no_project())
}

/// A response for a request that never reached the platform.
fn failed(code: &str, failure: &Failure) -> Response<Bytes> {
    let problem = json!({"code": code, "detail": failure.to_string()});
    let mut response = Response::new(Bytes::from(problem.to_string()));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
