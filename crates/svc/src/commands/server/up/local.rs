//! The platform of `svc up`: embedded, on loopback, with one user and one project.
//!
//! User and token are created with the platform's own functions, because there is no user yet that
//! could request them. All later steps use its API.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use api::control::{
    plans::{BillingActionKind, BillingImpactKind, PLAN_CONFIGURATION, PlanConfiguration},
    projects::{self, CREATE, CreateProject, Placement, Project, ProjectList},
    turn::{ISSUE_BY_ID, IssueTurnCredential, TurnCredential},
    whoami::{WHOAMI, Whoami},
    workspaces::{self, WorkspaceList},
};
use client::{Proxies, Token};
use control::{BoundListeners, app::App, config::Config};
use credentials::Secret;
use daemon::{clock::SystemClock, shutdown::Shutdown};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use terminal::private;
use tokio::net::TcpListener;

use super::{
    HOST,
    relay::{ADDRESS, LocalRelay},
    saved_state::{LOCAL_EMAIL, SavedUpState},
};
use crate::commands::server::surfaces;
use crate::failure::{Code, Failure, chain};
use crate::platform::{ApiUrl, Platform};
use crate::process::random;

/// An OAuth client from the command line.
#[derive(Clone, Debug)]
pub(super) struct OauthClient {
    /// Id, which is also the name.
    pub(super) id: String,
    /// Redirect URI.
    pub(super) callback: String,
}

/// The bound sockets of a platform before its start. Clients that connect early wait.
#[derive(Debug)]
pub(super) struct Listeners {
    sockets: Vec<TcpListener>,
    port: u16,
}

/// Settings of the platform.
pub(super) struct PlatformOptions<'a> {
    /// Port of the engine.
    pub(super) engine_port: u16,
    /// File with the enrolment secret of the engine.
    pub(super) enrolment: Option<&'a Path>,
    /// The TURN relay.
    pub(super) relay: Option<&'a LocalRelay>,
    /// CA certificate of the engine.
    pub(super) ca_file: &'a Path,
    /// TCP ports that projects can reserve, `low-high`.
    pub(super) reserved_ports: Option<String>,
    /// OAuth clients beside the built-in ones.
    pub(super) oauth_clients: &'a [OauthClient],
}

/// A running platform and its objects.
#[derive(Debug)]
pub(super) struct LocalPlatform {
    running: control::RunningPlatform,
    shutdown: Shutdown,
    pub(super) base_url: String,
    pub(super) saved_state: SavedUpState,
    /// True if the stored password is still valid.
    pub(super) is_password_valid: bool,
    pub(super) workspace_id: String,
    pub(super) project: Project,
    pub(super) turn_urls: Vec<String>,
}

impl Listeners {
    /// Binds both loopback addresses if available, because browsers try both for `localhost`.
    pub(super) async fn bind(port: u16) -> Result<Self, Failure> {
        let mut listeners = Self::bind_first(port).await?;
        // One address is enough without IPv6, or if another program uses the port there.
        let second = TcpListener::bind((Ipv6Addr::LOCALHOST, listeners.port)).await;
        listeners.sockets.extend(second.ok());
        Ok(listeners)
    }

    /// Binds only 127.0.0.1, for programs that have this address.
    pub(super) async fn bind_first(port: u16) -> Result<Self, Failure> {
        let cannot = |error| Failure::from_error("cannot use the platform's port", error);
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(cannot)?;
        let port = first.local_addr().map_err(cannot)?.port();
        Ok(Self {
            sockets: vec![first],
            port,
        })
    }

    /// URL for the engine's link. It uses an address, because a name would need a resolver.
    pub(super) fn link_url(&self) -> String {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        format!("http://{address}")
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The listeners of a platform whose second listener is `local`.
    pub(super) fn with_local(self, local: Self) -> BoundListeners {
        BoundListeners {
            public: self.sockets,
            local: local.sockets.into_iter().next(),
        }
    }

    fn base_url(&self) -> String {
        match self.port {
            // An origin omits the default port of its scheme.
            80 => "http://localhost".to_owned(),
            port => format!("http://localhost:{port}"),
        }
    }
}

/// A platform before its start.
pub(super) struct PlatformLaunch<'a> {
    pub(super) config: Config,
    pub(super) listeners: BoundListeners,
    /// Public URL of the platform.
    pub(super) base_url: String,
    /// URL at which this process calls its API.
    pub(super) api_url: String,
    /// Mail address of the administrator, at the first start.
    pub(super) email: &'a str,
}

impl LocalPlatform {
    /// Starts the platform with the data of an earlier start in `data`.
    pub(super) async fn start(
        listeners: Listeners,
        data: &Path,
        options: &PlatformOptions<'_>,
    ) -> Result<Self, Failure> {
        let config = configuration(&listeners, data, options)?;
        let launch = PlatformLaunch {
            config,
            base_url: listeners.base_url(),
            api_url: listeners.base_url(),
            listeners: BoundListeners {
                public: listeners.sockets,
                local: None,
            },
            email: LOCAL_EMAIL,
        };
        Self::launch(launch, data).await
    }

    /// Starts a platform, and creates its administrator, a token and a project if they are missing.
    pub(super) async fn launch(launch: PlatformLaunch<'_>, data: &Path) -> Result<Self, Failure> {
        let PlatformLaunch {
            config,
            listeners,
            base_url,
            api_url,
            email,
        } = launch;
        let app = control::open(config, Arc::new(SystemClock))
            .await
            .map_err(|error| cannot_start(&error))?;
        let mut kept = SavedUpState::read(data, email)?;
        let password = if let Some(password) = &kept.admin_password {
            password.clone()
        } else {
            // The password is stored before it is set, so that an interrupted start does not lock
            // the user out.
            let drawn = control::draw_password().map_err(|refusal| refused(&refusal))?;
            kept.admin_password = Some(drawn.clone());
            kept.write(data)?;
            drawn
        };
        let secret = Secret::new(password.as_bytes());
        let operator = control::ensure_operator(&app, &kept.admin_email, &secret)
            .await
            .map_err(|refusal| refused(&refusal))?;
        let shutdown = Shutdown::new(DRAIN);
        let routes = surfaces::routes(&app)?;
        let running = control::start_routes(Arc::clone(&app), routes, listeners, shutdown.clone())
            .await
            .map_err(|error| cannot_start(&error))?;

        let address: ApiUrl = api_url
            .parse()
            .map_err(|error| Failure::usage(format!("{api_url} is {error}")))?;
        if !has_remaining_lifetime(&address, kept.token.as_deref()).await? {
            kept.token = Some(issue(&app, operator).await?);
            kept.write(data)?;
        }
        let token = Token::new(kept.token.as_deref().unwrap_or_default());
        let platform = Platform::new(address, token, None, Proxies::default())?;
        let workspace_id = own_workspace(&platform).await?;
        let project = match first_project(&platform, &workspace_id).await? {
            Some(project) => project,
            None => create_project(&platform, &workspace_id).await?,
        };
        let turn: TurnCredential = platform
            .call(ISSUE_BY_ID, &[&project.id])
            .body(&IssueTurnCredential {
                ttl_seconds: Some(1),
            })?
            .answer()
            .await?;
        Ok(Self {
            running,
            shutdown,
            base_url,
            saved_state: kept,
            is_password_valid: operator.is_password_current,
            workspace_id,
            project,
            turn_urls: turn.urls,
        })
    }

    /// Lets requests finish, or aborts them when `hard` fires.
    pub(super) async fn stop(self, hard: &Shutdown) {
        let shutdown = self.shutdown;
        shutdown.request();
        let force_stop = async {
            tokio::select! {
                () = hard.hard().cancelled() => {}
                () = tokio::time::sleep(DRAIN) => {}
            }
            shutdown.hard().cancel();
            // The platform's future determines the end.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.running.wait_until_stopped() => {}
            () = force_stop => {}
        }
    }
}

/// Writes the configuration, and reads it back like `svc platform`.
fn configuration(
    listeners: &Listeners,
    data: &Path,
    options: &PlatformOptions<'_>,
) -> Result<Config, Failure> {
    let file = json!({
        "platform": {
            "base_url": listeners.base_url(),
            "listen_addr": SocketAddr::from((Ipv4Addr::LOCALHOST, listeners.port)).to_string(),
            "data_dir": data,
            "log_level": "warn",
            // There is no load balancer that needs time to redirect clients.
            "drain_seconds": 0,
        },
        "engines": [{
            "cluster_domain": HOST,
            "enrolment_secret_file": options.enrolment,
            "relay_secret_file": options.relay.map(|relay| &relay.secret_file),
            "ca_file": options.ca_file,
            "tcp_ports": options.reserved_ports,
        }],
        // The built-in plans. The free plan has no limits and includes webhooks, so that every
        // feature can be tried. The paid plan uses checkout.
        "catalog": {
            "plans": [{ "plan": "basic", "webhooks": true }],
            "regions": [{
                "provider": "other",
                "region": "local",
                "engine_port": options.engine_port,
            }],
        },
        // Webhook receivers for tests run on this machine.
        "webhooks": { "allowed_targets": ["127.0.0.0/8", "::1/128"] },
        "oauth": { "clients": clients(options.oauth_clients) },
        "compat": { "rstream": true },
    });
    let mut file = file;
    if let (Some(relay), Some(sections)) = (options.relay, file.as_object_mut()) {
        let section = json!({
            "domain": ADDRESS.to_string(),
            "port": relay.port,
            "tls_port": relay.tls_port,
        });
        sections.insert("turn".to_owned(), section);
    }
    write_and_load(&file, data)
}

/// The OAuth clients in the form of the configuration.
pub(super) fn clients(given: &[OauthClient]) -> Vec<Value> {
    let mut callbacks = BTreeMap::<_, Vec<_>>::new();
    for client in given {
        callbacks
            .entry(&client.id)
            .or_default()
            .push(&client.callback);
    }
    callbacks
        .into_iter()
        .map(|(id, callbacks)| {
            let accepts_any_port = callbacks.iter().any(|callback| has_free_port(callback));
            json!({
                "id": id,
                "name": id,
                "redirect_uris": callbacks,
                "loopback_any_port": accepts_any_port,
            })
        })
        .collect()
}

/// True for a callback on this machine without a port: the client listens on a port that it does
/// not know in advance (RFC 8252 section 7.3).
fn has_free_port(callback: &str) -> bool {
    let authority = callback
        .strip_prefix("http://")
        .and_then(|rest| rest.split(['/', '?']).next());
    matches!(authority, Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// Writes the configuration of the platform, and reads it back like `svc platform`.
pub(super) fn write_and_load(file: &Value, data: &Path) -> Result<Config, Failure> {
    let path = data.join("platform.yaml");
    private::write(&path, format!("{file:#}\n").as_bytes())
        .map_err(|error| Failure::from_error(&format!("cannot write {}", path.display()), error))?;
    Config::load(Some(&path), std::iter::empty()).map_err(|error| Failure::usage(error.to_string()))
}

/// True if the platform accepts the token, and its remaining lifetime is longer than any realistic
/// run.
async fn has_remaining_lifetime(address: &ApiUrl, token: Option<&str>) -> Result<bool, Failure> {
    let Some(token) = token else {
        return Ok(false);
    };
    let platform = Platform::new(address.clone(), Token::new(token), None, Proxies::default())?;
    let whoami: Result<Whoami, _> = platform.call(WHOAMI, &[]).answer().await;
    let whoami = match whoami {
        Ok(whoami) => whoami,
        Err(error) if error.refusal("invalid_token").is_some() => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let ends = whoami.expires_at.as_deref().map(str::parse::<Timestamp>);
    Ok(match ends {
        None => true,
        Some(Ok(end)) => end.duration_since(Timestamp::now()) > RENEW_BEFORE,
        Some(Err(_)) => false,
    })
}

async fn issue(app: &App, operator: control::Operator) -> Result<String, Failure> {
    let token = control::operator_token(app, operator, TOKEN_NAME, TOKEN_LIFE)
        .await
        .map_err(|refusal| refused(&refusal))?;
    Ok(String::from_utf8_lossy(token.expose()).into_owned())
}

async fn own_workspace(platform: &Platform) -> Result<String, Failure> {
    let list: WorkspaceList = platform
        .call(workspaces::LIST, &[])
        .query("type", Some("personal"))
        .answer()
        .await?;
    let own = list.workspaces.into_iter().next();
    own.map(|workspace| workspace.id)
        .ok_or_else(|| Failure::new(Code::Failed, "the administrator has no workspace"))
}

/// The oldest project, which is the same at every start while it exists.
async fn first_project(platform: &Platform, workspace: &str) -> Result<Option<Project>, Failure> {
    let list: ProjectList = platform
        .call(projects::LIST, &[])
        .query("workspaceId", Some(workspace))
        .query("sort", Some("id"))
        .query("pageSize", Some(1))
        .answer()
        .await?;
    Ok(list.projects.into_iter().next())
}

/// Creates a project with a free plan, which has no billing impact to confirm (CP-4g).
async fn create_project(platform: &Platform, workspace: &str) -> Result<Project, Failure> {
    let preview: PlanConfiguration = platform
        .call(PLAN_CONFIGURATION, &[workspace])
        .answer()
        .await?;
    let free = preview.plans.iter().find(|option| {
        option.available
            && option.billing_impact.kind == BillingImpactKind::None
            && option.billing_action.kind == BillingActionKind::Create
    });
    let place = free.and_then(|option| {
        let provider = option.providers.first()?;
        Some((option, provider.provider, provider.regions.first()?))
    });
    let (option, provider, region) =
        place.ok_or_else(|| Failure::new(Code::Failed, "the catalogue has no free plan"))?;
    let body = CreateProject {
        name: PROJECT_NAME.to_owned(),
        plan: option.plan,
        provider,
        region: region.region.clone(),
        routing: Placement::Regional,
        creation_fingerprint: option.creation_fingerprint.clone(),
        idempotency_key: random::hex::<16>()?,
    };
    let call = platform.call(CREATE, &[workspace]).body(&body)?;
    Ok(call.repeatable().answer().await?)
}

fn cannot_start(error: &control::StartError) -> Failure {
    let message = format!("the platform cannot start: {}", chain(error));
    Failure::new(Code::Failed, message)
}

fn refused(refusal: &control::http_api::problem::Refusal) -> Failure {
    let message = format!("the platform cannot start: {}", refusal.problem().detail);
    Failure::new(Code::Failed, message)
}

/// Name of the token in the list of credentials.
const TOKEN_NAME: &str = "svc up";
/// Lifetime of the token of an installation on one machine.
const TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(90 * 24);
/// A token that expires within a month is replaced at the start.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(30 * 24);
const PROJECT_NAME: &str = "local";
/// Time for open requests to finish. They are short, and a user waits at the terminal.
const DRAIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_on_this_machine_without_a_port_permits_every_port() {
        for (callback, permits) in [
            ("http://localhost/callback", true),
            ("http://127.0.0.1?from=svc", true),
            ("http://[::1]/callback", true),
            ("http://localhost:3333/callback", false),
            ("http://[::1]:3333/callback", false),
            ("https://localhost/callback", false),
            ("http://localhost.example/callback", false),
            ("http://localhost@client.example/callback", false),
        ] {
            let client = OauthClient {
                id: "a".to_owned(),
                callback: callback.to_owned(),
            };
            let written = clients(&[client]);
            assert_eq!(written[0]["loopback_any_port"], permits, "{callback}");
        }
    }
}
