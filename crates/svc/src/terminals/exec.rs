//! Runs one command on a server from start to end.

use std::{collections::BTreeMap, time::Duration};

use ::mcp::Agent;
use bytes::Bytes;
use client::Config;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use terminal::client::{
    Endpoint, Event, Request, Session, SessionError,
    inventory::{self, Server, UnreachableError},
};
use tokio::time::{Instant, sleep_until};
use tty::message::{self, Environment, Options, Stream, User, Username, Workdir};
use types::percent::escaped;

use super::{TerminalError, list_servers};
use crate::{failure::chain, output::plain};

/// Arguments of the operation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecArguments {
    server: String,
    command: Vec<String>,
    stdin: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    workdir: Option<String>,
    user: Option<String>,
    purpose: Option<String>,
    timeout_seconds: u64,
}

/// Runs the command.
pub(super) async fn exec(
    config: Config,
    args: ExecArguments,
    agent: &Agent,
) -> Result<Value, TerminalError> {
    let servers = list_servers(&config).await?;
    let wanted = args.server.strip_prefix("svc://").unwrap_or(&args.server);
    let server = inventory::find(&servers, wanted).map_err(|error| {
        let detail = format!("{error}; svc_webtty_list lists the servers that are online");
        failed(404, "webtty_server_not_found", &detail)
    })?;
    if server.requires_seal() {
        let why = "This server accepts only end-to-end encrypted sessions, which run between it \
                   and the user's own program: `svc webtty exec`.";
        return Err(failed(501, "webtty_e2e", why));
    }
    let endpoint = exec_endpoint(server, config, &args, agent)?;
    let limit = Duration::from_secs(args.timeout_seconds.clamp(1, MAX_SECONDS));
    let (command, stdin) = (command(&args), args.stdin);
    run(endpoint, command, stdin, limit).await
}

async fn run(
    endpoint: Endpoint,
    command: message::Config,
    stdin: Option<String>,
    limit: Duration,
) -> Result<Value, TerminalError> {
    let began = Instant::now();
    let mut request = Request::new(command);
    // The call ends before the client could reconnect.
    request.resumes = false;
    let (mut session, input) = Session::start(endpoint, request);
    let typing = async {
        if let Some(stdin) = stdin {
            input.typed(Bytes::from(stdin)).await;
        }
        input.end().await;
        std::future::pending::<()>().await;
    };
    tokio::pin!(typing);
    let mut output = [OutputHead::default(), OutputHead::default()];
    let mut session_id = None;
    let ended = loop {
        tokio::select! {
            event = session.event() => match event {
                Some(Event::Opened { session_id: id }) => session_id = id,
                Some(Event::Output(stream, bytes)) => {
                    let [stdout, stderr] = &mut output;
                    let head = if stream == Stream::Stderr { stderr } else { stdout };
                    head.push(&bytes);
                }
                Some(Event::Ended(ended)) => break Some(ended),
                Some(_) => {}
                None => break Some(Err(SessionError::HungUp)),
            },
            () = &mut typing => {}
            () = sleep_until(began + limit) => break None,
        }
    };
    let exit_code = match ended {
        Some(Ok(ended)) => Some(ended.code),
        Some(Err(error)) => return Err(broken(&error)),
        None => {
            session.leave().await;
            None
        }
    };
    let [stdout, stderr] = output;
    let cut = [("stdout", &stdout), ("stderr", &stderr)].into_iter();
    let cut: Map<String, Value> = cut
        .filter(|(_, head)| head.left_out > 0)
        .map(|(name, head)| (name.to_owned(), head.left_out.into()))
        .collect();
    Ok(json!({
        "exit_code": exit_code,
        "stdout": stdout.text(),
        "stderr": stderr.text(),
        "truncated": cut,
        "timed_out": exit_code.is_none(),
        "duration_ms": u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        "session_id": session_id,
    }))
}

/// The endpoint of a server, with the session's attributes if it is managed.
fn exec_endpoint(
    server: &Server,
    config: Config,
    args: &ExecArguments,
    agent: &Agent,
) -> Result<Endpoint, TerminalError> {
    let mut endpoint = server.endpoint(config, None).map_err(|error| {
        let code = match error {
            UnreachableError::Address(_) => "webtty_address",
            UnreachableError::Transport { .. } | UnreachableError::WebTransport(_) => {
                "webtty_transport"
            }
        };
        failed(502, code, &plain(&error.to_string()))
    })?;
    if server.managed
        && let Endpoint::Url { url, .. } = &mut endpoint
    {
        let attributes = [
            ("session_mode", "non-interactive"),
            ("origin", "api"),
            ("initiator_kind", "agent"),
            ("agent_name", &agent.name),
            ("agent_version", &agent.version),
            ("purpose", args.purpose.as_deref().unwrap_or_default()),
        ];
        for (name, value) in attributes
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
        {
            let value: String = value.chars().take(MAX_ATTRIBUTE_CHARS).collect();
            let value = escaped(&value);
            *url = url.clone().with_parameter(name, &value.to_string());
        }
    }
    Ok(endpoint)
}

fn command(args: &ExecArguments) -> message::Config {
    let variables = args.env.iter();
    message::Config {
        options: Some(Options {
            interactive: args.stdin.is_some(),
            allocate_tty: false,
            send_heartbeat: true,
        }),
        cmd_args: args.command.clone(),
        env_vars: variables
            .map(|(key, value)| Environment {
                key: key.clone(),
                value: value.clone(),
            })
            .collect(),
        workdir: args.workdir.clone().map(|value| Workdir { value }),
        username: args.user.clone().map(|user| Username {
            payload: Some(User::Name(user)),
        }),
    }
}

/// The start of an output stream, which usually is the most informative part.
#[derive(Default)]
struct OutputHead {
    bytes: Vec<u8>,
    left_out: usize,
}

impl OutputHead {
    fn push(&mut self, bytes: &[u8]) {
        let room = MAX_OUTPUT.saturating_sub(self.bytes.len()).min(bytes.len());
        let (head, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.bytes.extend_from_slice(head);
        self.left_out = self.left_out.saturating_add(rest.len());
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

fn broken(error: &SessionError) -> TerminalError {
    use terminal::client::ConnectionError;
    if let SessionError::Connection(ConnectionError::Refused(problem)) = error {
        let code = match problem.code.as_str() {
            "" => "webtty_refused",
            code => code,
        };
        return TerminalError::new(problem.status, code, problem.to_string());
    }
    failed(502, "webtty_session", &chain(error))
}

fn failed(status: u16, code: &str, detail: &str) -> TerminalError {
    TerminalError::new(status, code, detail)
}

/// Limit of each output stream in bytes. A model does not read more.
const MAX_OUTPUT: usize = 64 * 1024;
/// Maximum of `timeout_seconds`. No client waits longer for a call.
const MAX_SECONDS: u64 = 120;
/// The engine's limit of a text attribute of a session, for the longest characters.
const MAX_ATTRIBUTE_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_long_output_is_kept() {
        let mut head = OutputHead::default();
        head.push(&vec![b'x'; MAX_OUTPUT - 1]);
        head.push(b"yz");
        assert_eq!((head.bytes.len(), head.left_out), (MAX_OUTPUT, 1));
        assert!(head.text().ends_with('y'));
    }

    #[test]
    fn a_managed_session_gets_the_client_attributes() {
        let server = Server {
            managed: true,
            publish: true,
            host: "build.t.engine.example:8443".to_owned(),
            exec_path: "/".to_owned(),
            ..Server::default()
        };
        let Ok(Endpoint::Url { url, .. }) = endpoint_for(&server) else {
            panic!("no address");
        };
        assert_eq!(
            url.to_string(),
            "wss://build.t.engine.example:8443/?session_mode=non-interactive&origin=api\
             &initiator_kind=agent&agent_name=helpful%20client&purpose=look%20%26%20see"
        );
    }
    #[test]
    fn a_server_with_only_webtransport_is_refused() {
        let server = Server {
            transport: Some(types::webtty::Transport::Webtransport),
            publish: true,
            host: "build.t.engine.example:8443".to_owned(),
            ..Server::default()
        };
        let refused = endpoint_for(&server).unwrap_err();
        assert_eq!(refused.0.code, "webtty_transport");
    }

    /// The endpoint for a client's command.
    fn endpoint_for(server: &Server) -> Result<Endpoint, TerminalError> {
        let args = ExecArguments {
            server: "build".to_owned(),
            command: vec!["id".to_owned()],
            stdin: None,
            env: BTreeMap::new(),
            workdir: None,
            user: None,
            purpose: Some("look & see".to_owned()),
            timeout_seconds: 1,
        };
        let agent = Agent {
            name: "helpful client".to_owned(),
            version: String::new(),
        };
        let config = Config::new(
            "engine.example:8443".parse().unwrap(),
            client::Token::new("t"),
        );
        exec_endpoint(server, config, &args, &agent)
    }
}
