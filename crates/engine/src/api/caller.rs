//! The authenticated caller, as an extractor, so that no handler can forget the check.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use credentials::{Secret, VerifiedToken, watch};
use daemon::problem::Refusal;
use http::request::Parts;
use types::permission::Permission;
use types::problem::Problem;
use types::query_credential;

use super::Api;
use super::lifetime::{CredentialGuard, RequiredAccess};
use crate::access::{Bearer, BoundaryDenial, TokenError, wait_for_update};
use crate::directory::Project;
use crate::live::LoadMetric;

/// A caller whose bearer token is valid and has the permission that `N` names. A credential in the
/// query is not accepted here (EN-5).
#[derive(Debug)]
pub(super) struct Caller<N> {
    pub(super) token: Arc<VerifiedToken>,
    pub(super) project: Arc<Project>,
    needs: PhantomData<N>,
}

/// The permission that an operation requires.
pub(super) trait RequiredPermission: Send {
    const PERMISSION: Option<Permission>;
    /// An alternative permission that includes the required one.
    const OR: Option<Permission> = None;
}

/// Any valid credential.
#[derive(Debug)]
pub(super) struct AnyCredential;

/// `tunnels.resources.read-only`.
#[derive(Debug)]
pub(super) struct ReadResources;

impl RequiredPermission for AnyCredential {
    const PERMISSION: Option<Permission> = None;
}

impl RequiredPermission for ReadResources {
    const PERMISSION: Option<Permission> = Some(Permission::TunnelsResourcesReadOnly);
}

/// `tunnels.tunnels.create-delete`.
#[derive(Debug)]
pub(super) struct CloseTunnels;

impl RequiredPermission for CloseTunnels {
    const PERMISSION: Option<Permission> = Some(Permission::TunnelsTunnelsCreateDelete);
}

/// `webtty.sessions.read-only`, or `webtty.sessions.read-write`, which may read as well (WT-4).
#[derive(Debug)]
pub(super) struct ReadTerminals;

/// `webtty.sessions.read-write` (WT-4).
#[derive(Debug)]
pub(super) struct WriteTerminals;

/// `webtty.logs.read-only` (WT-4).
#[derive(Debug)]
pub(super) struct ReadRecordings;

/// `webtty.logs.read-write`.
#[derive(Debug)]
pub(super) struct DeleteRecordings;

impl RequiredPermission for ReadRecordings {
    const PERMISSION: Option<Permission> = Some(Permission::WebttyLogsReadOnly);
}

impl RequiredPermission for DeleteRecordings {
    const PERMISSION: Option<Permission> = Some(Permission::WebttyLogsReadWrite);
}

impl RequiredPermission for ReadTerminals {
    const PERMISSION: Option<Permission> = Some(Permission::WebttySessionsReadOnly);
    const OR: Option<Permission> = Some(Permission::WebttySessionsReadWrite);
}

impl RequiredPermission for WriteTerminals {
    const PERMISSION: Option<Permission> = Some(Permission::WebttySessionsReadWrite);
}

impl<A: LoadMetric, N: RequiredPermission> FromRequestParts<Arc<Api<A>>> for Caller<N> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api<A>>) -> Result<Self, Refusal> {
        let (token, project) = api.identify(parts, bearer(parts)?).await?;
        if let Some(permission) = N::PERMISSION {
            let required = api.tenancy.require(&token, &project, permission);
            if let Err(denied) = required {
                let other = N::OR.map(|other| api.tenancy.require(&token, &project, other));
                if other.is_none_or(|other| other.is_err()) {
                    return Err(denied.into());
                }
            }
        }
        Ok(Self {
            token,
            project,
            needs: PhantomData,
        })
    }
}

/// A caller of a live stream, with a bearer or a watch token (EN-3a, EN-5), and its lifetime.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) token: Arc<VerifiedToken>,
    pub(super) project: Arc<Project>,
    pub(super) lifetime: CredentialGuard,
}

impl<A: LoadMetric> FromRequestParts<Arc<Api<A>>> for Watcher {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api<A>>) -> Result<Self, Refusal> {
        // Subscribed before the check, so that a later revocation is noticed at the stream's first
        // wait.
        let changes = api.tokens.changes();
        let query = parts.uri.query().unwrap_or_default();
        // If there is a query credential, only that one is checked; a bearer does not help if it is
        // invalid (ED-1d).
        let (text, token, project) = match query_credential::extract(query, api.reserved()) {
            Err(malformed) => return Err(refused(&malformed)),
            Ok(Some(found)) => {
                let (token, project) = api.identify(parts, &found.token).await?;
                // EN-5a, EN-5b, EN-5c, EN-5d.
                watch::check(&token, api.unix_seconds()).map_err(|refusal| refused(&refusal))?;
                (Secret::new(found.token), token, project)
            }
            Ok(None) => {
                let text = bearer(parts)?;
                let (token, project) = api.identify(parts, text).await?;
                (Secret::new(text), token, project)
            }
        };
        let permission = Permission::TunnelsResourcesReadOnly;
        api.tenancy.require(&token, &project, permission)?;
        let tokens = Arc::clone(&api.tokens);
        let right = RequiredAccess {
            tenancy: api.tenancy.clone(),
            project: Arc::clone(&project),
            permission,
            additional_permission: None,
        };
        let lifetime = CredentialGuard::new(
            text,
            token.limits.expires_at(),
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

/// A caller that opens a stream and authenticates with its first message. A credential is checked
/// if there is one, but is not required, because browsers can only send one in the query.
#[derive(Debug)]
pub(super) struct SessionJoiner {
    pub(super) project: Arc<Project>,
}

impl<A: LoadMetric> FromRequestParts<Arc<Api<A>>> for SessionJoiner {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api<A>>) -> Result<Self, Refusal> {
        let query = parts.uri.query().unwrap_or_default();
        let identified = match query_credential::extract(query, api.reserved()) {
            Err(malformed) => return Err(refused(&malformed)),
            Ok(Some(found)) => {
                let (token, project) = api.identify(parts, &found.token).await?;
                watch::check(&token, api.unix_seconds()).map_err(|refusal| refused(&refusal))?;
                Some((token, project))
            }
            Ok(None) if Bearer::from_headers(&parts.headers) == Bearer::Absent => None,
            Ok(None) => Some(api.identify(parts, bearer(parts)?).await?),
        };
        let Some((token, project)) = identified else {
            let project = project(parts)?;
            return Ok(Self { project });
        };
        api.terminal_permission(&token, &project)?;
        Ok(Self { project })
    }
}

impl<N> Caller<N> {
    /// The lifetime of a stream that the caller opens: as long as its token and this permission are
    /// valid. `None` if the token was not sent as a bearer, which cannot happen.
    pub(super) fn lifetime<A>(
        &self,
        api: &Api<A>,
        headers: &http::HeaderMap,
        permission: Permission,
    ) -> Option<CredentialGuard> {
        // Subscribed before the check, so that a later revocation is noticed at the stream's first
        // wait.
        let changes = api.tokens.changes();
        let Bearer::Token(text) = Bearer::from_headers(headers) else {
            return None;
        };
        let right = RequiredAccess {
            tenancy: api.tenancy.clone(),
            project: Arc::clone(&self.project),
            permission,
            additional_permission: None,
        };
        Some(CredentialGuard::new(
            Secret::new(text),
            self.token.limits.expires_at(),
            Arc::clone(&api.tokens),
            right,
            Arc::clone(&api.clock),
            changes,
        ))
    }
}

impl<A> Api<A> {
    /// The permission by which a token may see terminals; the larger one if it has both.
    pub(super) fn terminal_permission(
        &self,
        token: &VerifiedToken,
        project: &Project,
    ) -> Result<Permission, BoundaryDenial> {
        let write = Permission::WebttySessionsReadWrite;
        if self.tenancy.require(token, project, write).is_ok() {
            return Ok(write);
        }
        let read = Permission::WebttySessionsReadOnly;
        self.tenancy.require(token, project, read).map(|()| read)
    }

    pub(super) fn unix_seconds(&self) -> i64 {
        self.clock.now().as_second()
    }

    /// The token of the caller and the project of the request. The request is counted here, so that
    /// every caller is counted. A new token or member may have to wait for the platform's update.
    async fn identify(
        &self,
        parts: &Parts,
        token: &str,
    ) -> Result<(Arc<VerifiedToken>, Arc<Project>), Refusal> {
        let now = || self.unix_seconds();
        let mut verdict = self.verdict(parts, token)?;
        if matches!(verdict, Err(TokenError::UnknownCredential(_)))
            && let Some(project) = parts.extensions.get::<Arc<Project>>()
        {
            wait_for_update(&self.tokens, &self.tenancy, (token, project), now).await;
            verdict = self.verdict(parts, token)?;
        }
        let mut verified = verdict.map_err(|unverified| refused(&unverified))?;
        let project = project(parts)?;
        let is_member = self.tenancy.check_access(&verified, &project).is_ok();
        // Before the wait for a membership, so that the rate limits the requests that wait.
        self.rates.take(parts, &verified, &project, is_member)?;
        if !is_member {
            wait_for_update(&self.tokens, &self.tenancy, (token, &project), now).await;
            let again = self.verdict(parts, token)?;
            verified = again.map_err(|unverified| refused(&unverified))?;
        }
        Ok((verified, project))
    }

    fn verdict(
        &self,
        parts: &Parts,
        token: &str,
    ) -> Result<Result<Arc<VerifiedToken>, TokenError>, Refusal> {
        let now = self.unix_seconds();
        match self.tokens.verified_before(token, now) {
            Some(verdict) => Ok(verdict),
            None => self.rates.verify(parts, || self.tokens.verify(token, now)),
        }
    }
}

/// The project whose address the request was sent to.
fn project(parts: &Parts) -> Result<Arc<Project>, Refusal> {
    let project = parts.extensions.get::<Arc<Project>>();
    project
        .map(Arc::clone)
        .ok_or_else(|| Problem::misdirected_request().into())
}

fn bearer(parts: &Parts) -> Result<&str, Refusal> {
    match Bearer::from_headers(&parts.headers) {
        Bearer::Token(token) => Ok(token),
        Bearer::Absent => Err(Problem::unauthenticated().into()),
        Bearer::Malformed => Err(refused(&"malformed bearer")),
    }
}

/// The response only states that the credential is not valid; the log has the reason.
fn refused(reason: &dyn std::fmt::Display) -> Refusal {
    tracing::info!(%reason, "credential refused at the engine API");
    Problem::invalid_token().into()
}
