//! Converts flags to the server's settings, and rejects contradictions.

use std::{path::PathBuf, sync::Arc};

use client::{
    Properties,
    properties::{Protocol, TunnelKind},
};
use jiff::Timestamp;
use terminal::{
    enrollment::Enrollment,
    identity_file,
    inventory::{FilesOffer, Registration, ServerDescription, Transport},
    keys::{KeyList, key_id_text, read_identity, seal_context},
    server::{
        Account, AccountError, AuthToken, Execution, Files, Limits, Origins, Policy, Seal,
        Settings, Web,
    },
};

use tty::{
    admission::{self, Subject},
    identity::EndpointIdentity,
    seal::PublicKey,
};

use super::{Args, ExecutionMode, TransportOption};
use crate::commands::webtty::session_request;
use crate::failure::Failure;
use crate::process::random;

/// Refreshes tunnel properties that are valid only for a short time.
pub(super) type RefreshProperties = Box<dyn Fn(&mut Properties) + Send + Sync>;

/// A registered server, as enrolled on this host.
#[derive(Debug)]
pub(super) struct RegisteredServer {
    enrollment: Enrollment,
}

impl RegisteredServer {
    pub(super) fn id(&self) -> &str {
        &self.enrollment.server_id
    }

    /// True if sessions must be end-to-end encrypted.
    fn requires_encryption(&self) -> bool {
        self.enrollment.encryption_policy != "disabled"
    }

    fn identity(&self) -> Result<EndpointIdentity, Failure> {
        let path = &self.enrollment.identity_file;
        identity_file::load(path).map_err(|error| {
            Failure::usage(format!("cannot read the keys of the server: {error}"))
                .hint("lost keys cannot be recovered: register another server")
        })
    }

    /// Proves to the engine that this host is the server. Called for each tunnel request, because a
    /// proof is short-lived and can be used only once.
    pub(super) fn admission(&self) -> Result<RefreshProperties, Failure> {
        let identity = self.identity()?;
        let enrollment = self.enrollment.clone();
        Ok(Box::new(move |properties: &mut Properties| {
            properties.labels.remove(admission::LABEL);
            let subject = Subject {
                project_id: &enrollment.project_id,
                server_id: &enrollment.server_id,
                tunnel_protocol: properties.protocol.as_ref().map_or("", Protocol::as_str),
                tunnel_type: properties.kind.as_ref().map_or("", TunnelKind::as_str),
                labels: &properties.labels,
            };
            // Without a proof the engine rejects the tunnel with an explanation.
            let Ok(nonce) = random::bytes() else { return };
            let workspace = &enrollment.workspace_id;
            let signed = admission::sign(
                &identity.signing,
                workspace,
                subject,
                nonce,
                Timestamp::now(),
            );
            if let Ok(proof) = signed {
                properties.labels.insert(admission::LABEL.to_owned(), proof);
            }
        }))
    }

    fn registration(&self) -> Registration {
        Registration {
            id: self.enrollment.server_id.clone(),
            name: self.enrollment.server_name.clone(),
            encryption_policy: self.enrollment.encryption_policy.clone(),
        }
    }
}

impl Args {
    /// The registered server to serve as, if one is configured.
    pub(super) fn registered(&self) -> Result<Option<RegisteredServer>, Failure> {
        let path = match (&self.server_enrollment, &self.server_id) {
            (None, None) => return Ok(None),
            (Some(path), _) => path.clone(),
            (None, Some(id)) => Enrollment::path(&webtty_directory()?, id)
                .map_err(|error| Failure::usage(error.to_string()))?,
        };
        let enrollment = Enrollment::load(&path).map_err(|error| {
            Failure::usage(format!("cannot read the enrollment: {error}"))
                .hint("enroll this host with `svc webtty server enroll`")
        })?;
        if let Some(id) = &self.server_id
            && *id != enrollment.server_id
        {
            return Err(Failure::usage(format!(
                "{} is the enrollment of `{}`, not of `{id}`",
                path.display(),
                enrollment.server_id
            )));
        }
        Ok(Some(RegisteredServer { enrollment }))
    }

    /// The transport of its streams.
    pub(super) fn stream_transport(
        &self,
        registered: Option<&RegisteredServer>,
    ) -> Result<Transport, Failure> {
        let is_public = self.listen.is_none() && !self.no_publish;
        match (self.transport, registered) {
            // With managed sessions the engine is the client, so the connection to the server uses
            // the plain transport.
            (None | Some(TransportOption::Plain), Some(_)) => Ok(Transport::Plain),
            (Some(TransportOption::Websocket), Some(_)) => Err(Failure::usage(
                "a registered server always uses the plain transport to its engine",
            )
            .hint("leave out --transport: clients can still use WebSockets")),
            (Some(TransportOption::Plain), None) if is_public => Err(Failure::usage(
                "--transport plain is for private tunnels and --listen: published tunnels use HTTP",
            )
            .hint("add --no-publish, or leave out --transport")),
            (Some(TransportOption::Plain), None) => Ok(Transport::Plain),
            (Some(TransportOption::Websocket) | None, None) => Ok(Transport::WebSocket),
        }
    }

    /// The settings of the server.
    pub(super) fn settings(
        &self,
        registered: Option<&RegisteredServer>,
        transport: Transport,
    ) -> Result<Settings, Failure> {
        let execution = self.execution(registered.is_some())?;
        Ok(Settings {
            web: Web {
                token: self.token(transport)?,
                origins: match self.listen {
                    Some(_) => Origins::These(self.allowed_origins.clone()),
                    None => Origins::Any,
                },
                files: self.files(&execution, transport)?,
            },
            policy: Policy {
                execution,
                shell: self.shell.clone(),
                environment: std::env::vars_os().collect(),
            },
            limits: Limits {
                sessions: usize::try_from(self.max_sessions).unwrap_or(usize::MAX),
                grace: self.grace,
                idle: self.idle_timeout,
                duration: self.max_duration,
            },
            seal: self.seal(registered)?,
        })
    }

    /// The labels of the tunnel that describe the server.
    pub(super) fn tunnel_labels(
        &self,
        registered: Option<&RegisteredServer>,
        settings: &Settings,
        transport: Transport,
    ) -> ServerDescription {
        ServerDescription {
            transport,
            is_login: matches!(settings.policy.execution, Execution::Login { .. }),
            is_sealed: settings.seal.is_some(),
            host_key_id: settings
                .seal
                .as_ref()
                .map(|seal| key_id_text(&seal.identity.public())),
            files: settings.web.files.as_ref().map(|files| FilesOffer {
                read_only: files.is_read_only(),
            }),
            registered: registered.map(RegisteredServer::registration),
            labels: self.labels.iter().cloned().collect(),
        }
    }

    /// The server's key and the admitted clients, if sessions are encrypted.
    fn seal(&self, registered: Option<&RegisteredServer>) -> Result<Option<Seal>, Failure> {
        if self.e2e
            && let Some(registered) = registered
            && !registered.requires_encryption()
        {
            return Err(Failure::usage(format!(
                "`{}` is registered without end-to-end encryption, which cannot be changed",
                registered.id()
            ))
            .hint("register another server with --encryption-policy explicit_key"));
        }
        let is_sealed = self.e2e || registered.is_some_and(RegisteredServer::requires_encryption);
        if !is_sealed {
            return match self.authorized_clients_file {
                Some(_) => Err(Failure::usage(
                    "--authorized-clients-file is only for end-to-end encrypted \
                                    sessions",
                )
                .hint("add --e2e")),
                None => Ok(None),
            };
        }
        if self.fs_root.is_some() {
            return Err(Failure::usage(
                "files are not end-to-end encrypted, and --e2e requires everything \
                                to be",
            )
            .hint("leave out --fs-root, or --e2e"));
        }
        let identity = match (registered, &self.identity_file) {
            (Some(registered), _) => registered.identity()?.encryption,
            (None, file) => {
                let path = match file {
                    Some(path) => path.clone(),
                    None => session_request::webtty_folder()?
                        .identity("default")
                        .map_err(|error| session_request::failed(&error))?,
                };
                read_identity(&path).map_err(|error| {
                    session_request::failed(&error)
                        .hint("`svc webtty identity create default` creates one")
                })?
            }
        };
        let clients = match &self.authorized_clients_file {
            Some(path) => path.clone(),
            None => session_request::webtty_folder()?.authorized_clients(),
        };
        // An unreadable list is reported at the start. Later, clients that cannot be looked up are
        // rejected.
        KeyList::read(&clients).map_err(|error| session_request::failed(&error))?;
        Ok(Some(Seal {
            identity: Arc::new(identity),
            context: seal_context(registered.map(RegisteredServer::id)).to_vec(),
            authorized: Arc::new(move |key: &PublicKey| {
                KeyList::read(&clients).is_ok_and(|known| known.contains(key))
            }),
        }))
    }

    fn execution(&self, is_registered: bool) -> Result<Execution, Failure> {
        let asks_for_login = self.login_user.is_some() || self.allow_client_user;
        let mode = self
            .execution_mode
            .unwrap_or(if is_registered || asks_for_login {
                ExecutionMode::Login
            } else {
                ExecutionMode::Spawn
            });
        let usage = |error: AccountError| Failure::usage(error.to_string());
        match mode {
            ExecutionMode::Spawn if asks_for_login => Err(Failure::usage(
                "--login-user and --allow-client-user are for --execution-mode login",
            )),
            ExecutionMode::Spawn => Ok(Execution::Spawn),
            ExecutionMode::Login if !asks_for_login => Err(Failure::usage(
                "--execution-mode login needs an account",
            )
            .hint(
                "give --login-user or --allow-client-user, or --execution-mode spawn to run \
                     commands as this program",
            )),
            ExecutionMode::Login => {
                let account = self.login_user.as_deref().map(Account::named);
                let account = account.transpose().map_err(usage)?;
                if let Some(account) = &account {
                    account.check().map_err(usage)?;
                }
                if self.allow_client_user && !nix::unistd::geteuid().is_root() {
                    return Err(Failure::usage(
                        "only root can run commands as the account that a client chooses",
                    ));
                }
                Ok(Execution::Login {
                    account,
                    client_chooses: self.allow_client_user,
                })
            }
        }
    }

    /// The token that clients of an address need.
    fn token(&self, transport: Transport) -> Result<Option<AuthToken>, Failure> {
        if self.listen.is_none() || self.allow_unauthenticated {
            return Ok(None);
        }
        if transport == Transport::Plain {
            return Err(Failure::usage("the plain transport cannot carry a token")
                .hint("add --allow-unauthenticated, and protect the address by other means"));
        }
        let text = match &self.auth_token_file {
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                Failure::from_error(&format!("{} cannot be read", path.display()), error)
            })?,
            None => std::env::var(TOKEN_VARIABLE).unwrap_or_default(),
        };
        let token = AuthToken::new(&text).ok_or_else(|| {
            Failure::usage("anyone who can reach the address could run commands").hint(format!(
                "give --auth-token-file (or {TOKEN_VARIABLE}), or --allow-unauthenticated if this \
                 is intended"
            ))
        })?;
        Ok(Some(token))
    }

    fn files(&self, execution: &Execution, transport: Transport) -> Result<Option<Files>, Failure> {
        let Some(root) = &self.fs_root else {
            return Ok(None);
        };
        if transport == Transport::Plain {
            return Err(Failure::usage(
                "files are served over HTTP, and this server does not use HTTP",
            )
            .hint("leave out --fs-root, or --transport plain"));
        }
        // Files are accessed as the account of this program, which users of another account must
        // not see.
        if let Execution::Login {
            account,
            client_chooses,
        } = execution
            && (*client_chooses || !account.as_ref().is_some_and(Account::is_own))
        {
            return Err(Failure::usage(
                "--fs-root serves files as the account of this program, but commands run as \
                 another account",
            )
            .hint("leave out --fs-root, or run the server as that account"));
        }
        let files = Files::new(root, self.fs_read_only, self.fs_max_upload_size);
        files
            .map(Some)
            .map_err(|error| Failure::usage(format!("the files cannot be served: {error}")))
    }
}

/// `~/.svc/webtty`.
fn webtty_directory() -> Result<PathBuf, Failure> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.ok_or_else(|| {
        Failure::usage("HOME is not set").hint("give the file with --server-enrollment")
    })?;
    Ok(PathBuf::from(home).join(".svc").join("webtty"))
}

/// Environment variable with the token, if there is no file.
const TOKEN_VARIABLE: &str = "SVC_WEBTTY_AUTH_TOKEN";
