//! Combines the surfaces of the platform: the API with its pages, and the API as tools for AI
//! clients.

use std::{collections::HashMap, sync::Arc};

use axum::Router;
use bytes::Bytes;
use client::{Config as ClientConfig, HostPort, Proxies, Token, Trust};
use control::{
    app::App,
    caller::{self, Principal},
    config::Config,
    projects::{self, ProjectSelector},
    router::{router, router_with},
};
use http::{Extensions, HeaderMap, HeaderValue, Request, Response};
use mcp::{
    CallerAuthenticator, CallerFuture, Engines, HeldPermissions, HostedEndpoint, ProjectName,
    ResponseFuture, TerminalRequest,
};
use types::{permission::Permission, problem::Problem};

use crate::engine_client::engine_api::{EngineApi, TrustAnchors, problem_response};
use crate::failure::Failure;
use crate::terminals::Terminals;

/// All routes of the platform.
///
/// # Errors
/// The CA certificates of a cluster's engines cannot be read.
pub(crate) fn routes(app: &Arc<App>) -> Result<Router, Failure> {
    let tools = mcp::hosted(HostedEndpoint {
        base_url: app.config.base_url.clone(),
        api: router(Arc::clone(app)),
        identify: BearerAuthenticator(Arc::clone(app)),
        engines: ProjectEngines(Arc::new(EngineProxy::open(app)?)),
        origins: app.config.oauth.origins().cloned().collect(),
    });
    Ok(router_with(Arc::clone(app), tools))
}

/// Authenticates callers of tools like the API does, but only by their bearer token (MC-5).
struct BearerAuthenticator(Arc<App>);

impl CallerAuthenticator for BearerAuthenticator {
    fn identify(&self, headers: HeaderMap) -> CallerFuture {
        let app = Arc::clone(&self.0);
        Box::pin(async move {
            match caller::of_bearer(&app, &headers).await {
                Ok(caller) => Ok(caller.map(|who| {
                    let mut extensions = Extensions::new();
                    if let Some(permissions) = who.limits.permissions() {
                        extensions.insert(HeldPermissions(permissions));
                    }
                    extensions.insert(who);
                    extensions
                })),
                // MC-7.
                Err(refusal) => Err(axum::response::IntoResponse::into_response(refusal)),
            }
        })
    }
}

/// Forwards tool requests to the engine of a project, with the bearer token of the caller.
struct ProjectEngines(Arc<EngineProxy>);

/// The clusters of the platform, with a client for the engines of each.
struct EngineProxy {
    app: Arc<App>,
    by_domain: HashMap<String, EngineApi>,
    terminals: Terminals,
    /// Used for a region whose cluster is not in the configuration.
    other: EngineApi,
}

impl EngineProxy {
    fn open(app: &Arc<App>) -> Result<Self, Failure> {
        Ok(Self {
            app: Arc::clone(app),
            by_domain: by_domain(&app.config)?,
            terminals: Terminals::default(),
            other: EngineApi::new(TrustAnchors::System, Proxies::default())?,
        })
    }

    async fn send_request(
        &self,
        who: &Principal,
        project: &ProjectName,
        needed: Permission,
        request: Request<Bytes>,
    ) -> Response<Bytes> {
        match self.engine(who, project, needed).await {
            Ok((address, domain)) => {
                let cluster = self.by_domain.get(&domain);
                let api = cluster.unwrap_or(&self.other);
                api.send_request(&address, request).await
            }
            Err(problem) => problem_response(&problem),
        }
    }

    async fn terminal(
        &self,
        who: &Principal,
        (project, needed): (&ProjectName, Permission),
        ask: TerminalRequest,
        credential: &HeaderValue,
    ) -> Response<Bytes> {
        let (address, domain) = match self.engine(who, project, needed).await {
            Ok(found) => found,
            Err(problem) => return problem_response(&problem),
        };
        let bearer = credential.to_str().ok();
        let Some(bearer) = bearer.and_then(|text| text.split_once(' ')) else {
            return problem_response(&Problem::unauthenticated());
        };
        let mut config = ClientConfig::new(address, Token::new(bearer.1.trim()));
        let mut engines = self.app.config.engines.iter();
        let engine = engines.find(|engine| engine.cluster_domain == domain);
        if let Some(path) = engine.and_then(|engine| engine.ca_file.clone()) {
            config.trust = Trust::CaFile(path);
        }
        self.terminals.answer(config, ask).await
    }

    /// The engine of a project that the caller may see, and the domain of its cluster.
    async fn engine(
        &self,
        who: &Principal,
        project: &ProjectName,
        needed: Permission,
    ) -> Result<(HostPort, String), Problem> {
        let named = match project {
            ProjectName::Id(id) => ProjectSelector::Id(id),
            ProjectName::Endpoint(endpoint) => ProjectSelector::Endpoint(endpoint),
        };
        let engine = projects::engine_of(&self.app, who, named, needed).await;
        let engine = engine.map_err(|refusal| refusal.problem().clone())?;
        let host = format!("{}.{}", engine.endpoint, engine.cluster_domain);
        let address = HostPort::new(&host, engine.port).map_err(|_| {
            tracing::error!(host, "the engine of a project has no address");
            Problem::internal()
        })?;
        Ok((address, engine.cluster_domain))
    }
}

fn by_domain(config: &Config) -> Result<HashMap<String, EngineApi>, Failure> {
    let clusters = config.engines.iter().map(|engine| {
        let authorities = engine.ca_file.as_deref();
        let authorities = authorities.map_or(TrustAnchors::System, TrustAnchors::SystemAnd);
        let api = EngineApi::new(authorities, Proxies::default())
            .map_err(|failure| failure.hint("check ca_file of the configuration's engines"))?;
        Ok((engine.cluster_domain.clone(), api))
    });
    clusters.collect()
}

impl Engines for ProjectEngines {
    fn send_request(
        &self,
        project: ProjectName,
        needed: Permission,
        request: Request<Bytes>,
        caller: &Extensions,
    ) -> ResponseFuture {
        let clusters = Arc::clone(&self.0);
        let who = caller.get::<Principal>().cloned();
        Box::pin(async move {
            match who {
                Some(who) => clusters.send_request(&who, &project, needed, request).await,
                None => problem_response(&Problem::unauthenticated()),
            }
        })
    }

    fn terminal(
        &self,
        project: ProjectName,
        needed: Permission,
        ask: TerminalRequest,
        credential: HeaderValue,
        caller: &Extensions,
    ) -> ResponseFuture {
        let clusters = Arc::clone(&self.0);
        let who = caller.get::<Principal>().cloned();
        Box::pin(async move {
            let Some(who) = who else {
                return problem_response(&Problem::unauthenticated());
            };
            let requested = clusters.terminal(&who, (&project, needed), ask, &credential);
            requested.await
        })
    }
}
