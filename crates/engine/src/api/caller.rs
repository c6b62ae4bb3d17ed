//! Who calls: an extractor, so that no handler can forget to ask.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use credentials::{Secret, Verified, watch};
use daemon::problem::Refusal;
use http::request::Parts;
use types::permission::Permission;
use types::problem::Problem;
use types::query_credential;

use super::Api;
use super::lifetime::{Lifetime, Right};
use crate::access::Bearer;
use crate::directory::Project;
use crate::live::Load;

/// A caller whose bearer token is valid and holds the permission that `N` names. The query is no
/// place for a credential here (EN-5).
#[derive(Debug)]
pub(super) struct Caller<N> {
    pub(super) token: Arc<Verified>,
    pub(super) project: Arc<Project>,
    needs: PhantomData<N>,
}

/// The permission that an operation needs.
pub(super) trait Needs: Send {
    const PERMISSION: Option<Permission>;
}

/// Any valid credential.
#[derive(Debug)]
pub(super) struct Anything;

/// `tunnels.resources.read-only`.
#[derive(Debug)]
pub(super) struct ReadResources;

impl Needs for Anything {
    const PERMISSION: Option<Permission> = None;
}

impl Needs for ReadResources {
    const PERMISSION: Option<Permission> = Some(Permission::TunnelsResourcesReadOnly);
}

impl<A: Load, N: Needs> FromRequestParts<Arc<Api<A>>> for Caller<N> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api<A>>) -> Result<Self, Refusal> {
        let token = api.verify(bearer(parts)?)?;
        let project = project(parts)?;
        if let Some(permission) = N::PERMISSION {
            api.tenancy.require(&token, &project, permission)?;
        }
        Ok(Self {
            token,
            project,
            needs: PhantomData,
        })
    }
}

/// A caller of a live stream, by bearer or by watch token (EN-3a, EN-5), and how long it may stay.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) token: Arc<Verified>,
    pub(super) project: Arc<Project>,
    pub(super) lifetime: Lifetime,
}

impl<A: Load> FromRequestParts<Arc<Api<A>>> for Watcher {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api<A>>) -> Result<Self, Refusal> {
        // Taken first: a revocation between here and the stream's first wait is seen there.
        let changes = api.tokens.changes();
        let query = parts.uri.query().unwrap_or_default();
        // A present query credential is the credential and is judged alone; where it is no good a
        // bearer does not help (ED-1d).
        let (text, token) = match query_credential::extract(query, api.reserved()) {
            Err(malformed) => return Err(refused(&malformed)),
            Ok(Some(found)) => {
                let token = api.verify(&found.token)?;
                // EN-5a, EN-5b, EN-5c, EN-5d.
                watch::check(&token, api.unix_seconds()).map_err(|refusal| refused(&refusal))?;
                (Secret::new(found.token), token)
            }
            Ok(None) => {
                let text = bearer(parts)?;
                (Secret::new(text), api.verify(text)?)
            }
        };
        let project = project(parts)?;
        let permission = Permission::TunnelsResourcesReadOnly;
        api.tenancy.require(&token, &project, permission)?;
        let tokens = Arc::clone(&api.tokens);
        let right = Right {
            tenancy: api.tenancy.clone(),
            project: Arc::clone(&project),
            permission,
        };
        let lifetime = Lifetime::new(
            text,
            token.expires_at,
            tokens,
            right,
            Arc::clone(&api.clock),
            changes,
        );
        Ok(Self {
            token,
            project,
            lifetime,
        })
    }
}

impl<A> Api<A> {
    pub(super) fn unix_seconds(&self) -> i64 {
        self.clock.now().as_second()
    }

    fn verify(&self, token: &str) -> Result<Arc<Verified>, Refusal> {
        self.tokens
            .verify(token, self.unix_seconds())
            .map_err(|unverified| refused(&unverified))
    }
}

/// The project at whose address the request came in.
fn project(parts: &Parts) -> Result<Arc<Project>, Refusal> {
    let project = parts.extensions.get::<Arc<Project>>();
    project
        .map(Arc::clone)
        .ok_or_else(|| Problem::misdirected_request().into())
}

fn bearer(parts: &Parts) -> Result<&str, Refusal> {
    match Bearer::of(&parts.headers) {
        Bearer::Token(token) => Ok(token),
        Bearer::Absent => Err(Problem::unauthenticated().into()),
        Bearer::Malformed => Err(refused(&"malformed bearer")),
    }
}

/// The caller learns that the credential is no good here; the log learns why.
fn refused(reason: &dyn std::fmt::Display) -> Refusal {
    tracing::info!(%reason, "credential refused at the engine API");
    Problem::invalid_token().into()
}
