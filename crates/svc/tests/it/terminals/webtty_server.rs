//! `svc webtty server`: terminals at an address and behind a tunnel.

use std::process::Command as Program;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue},
};
use tty::{
    frame,
    message::{
        self, Config, Feature, Kind, OpenCommand, OpenSession, Options, Payload, Resume, Stream,
        TerminationReason, User, Username,
    },
};

use crate::installed::{alone, alone_at};
use crate::program::{Home, RunningCommand, SOON};

/// WT-1: an ad-hoc server is a tunnel with labels, and nothing else.
#[tokio::test]
async fn a_server_behind_a_private_tunnel_is_found_by_its_labels_and_dialled() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let args = [
        "webtty",
        "server",
        "--no-publish",
        "--label",
        "team=core",
        "-o",
        "json",
    ];
    let plain = ["--name", "plain", "--transport", "plain"];
    let mut first = home.start(&[&args[..], &plain].concat());
    let online = first.json().await;
    assert_eq!(
        (&online["status"], &online["name"]),
        (&"online".into(), &"plain".into())
    );
    let mut second = home.start(&[&args[..], &["--name", "web"]].concat());
    second.json().await;

    let tunnels = home.run(&["tunnels", "-o", "json"]).await.json();
    let labels = |name: &str| {
        let mut all = tunnels.as_array().unwrap().iter();
        let tunnel = all.find(|tunnel| tunnel["name"] == name).unwrap();
        tunnel["labels"].clone()
    };
    let plain = labels("plain");
    assert_eq!(plain["application-protocol"], "svc.webtty");
    assert_eq!(plain["svc.webtty.transport"], "plain");
    assert_eq!(plain["svc.webtty.label.team"], "core");
    assert_eq!(plain["svc.webtty.os_family"], "linux");
    assert_eq!(labels("web")["svc.webtty.transport"], "websocket");

    let (dialling, ports) = dial(&home, &["plain", "web"]).await;
    let mut client = Client::plain(&ports[0]).await;
    client.open(script("echo $0 in $PWD; exit 5")).await;
    let (output, code) = client.finish().await;
    assert_eq!((output.as_str(), code), ("sh in /\n", 5));
    let opened = first.json_where(|line| line["session"] == "opened").await;
    assert_eq!(opened["terminal"], false);
    let closed = first.json_where(|line| line["session"] == "closed").await;
    assert_eq!(closed["session_id"], opened["session_id"]);
    assert_eq!(
        (&closed["exit_code"], &closed["reason"]),
        (&5.into(), &"exited".into())
    );

    let mut client = Client::websocket(&ports[1], None).await.unwrap();
    client.open(script("echo over a websocket")).await;
    assert_eq!(client.finish().await.0, "over a websocket\n");
    for server in [first, second] {
        let ended = server.terminate().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains(r#""status":"closed""#), "{ended:?}");
    }
    dialling.terminate().await;
    up.stop().await;
}

/// The engine restarts. The shell continues, and its client finds it again.
#[tokio::test]
async fn a_shell_outlives_its_engine() {
    let home = Home::new();
    let port = ports::lease().to_string();
    let up = alone_at(&home, &port).await;
    let args = [
        "webtty",
        "server",
        "--no-publish",
        "--name",
        "t",
        "--transport",
        "plain",
        "-o",
        "json",
    ];
    let mut server = home.start(&args);
    server.json().await;
    let (dialling, ports) = dial(&home, &["t"]).await;
    let mut client = Client::plain(&ports[0]).await;
    let mut open = script("echo pid $$; read x; echo still $$ $x; exit 6");
    open.session = Some(OpenSession {
        features: vec![Feature::Resume.into()],
        ..OpenSession::default()
    });
    let ack = client.open(open).await.session.unwrap();
    let seen = client.until("\n").await;
    let pid = seen.trim().strip_prefix("pid ").unwrap().to_owned();
    up.stop().await;
    assert!(client.is_lost().await);
    let up = alone_at(&home, &port).await;
    server.json_where(|line| line["status"] == "online").await;
    let back = OpenCommand {
        session: Some(OpenSession {
            resume: Some(Resume {
                token: ack.resume_token,
                received: seen.len().try_into().unwrap(),
            }),
            ..OpenSession::default()
        }),
        ..OpenCommand::default()
    };
    let mut client = Client::plain(&ports[0]).await;
    client.open(back).await;
    client.send(&Kind::data(Stream::Stdin, "here\n")).await;
    let (output, code) = client.finish().await;
    assert_eq!((output, code), (format!("still {pid} here\n"), 6));
    assert_eq!(server.terminate().await.code, Some(0));
    dialling.terminate().await;
    up.stop().await;
}

#[tokio::test]
async fn an_address_requires_the_token_and_a_signal_drains_it() {
    let home = Home::new();
    std::fs::write(home.path().join("token"), "secret\n").unwrap();
    let mut server = home.start(&[
        "webtty",
        "server",
        "--listen",
        "127.0.0.1:0",
        "--auth-token-file",
        "token",
        "-o",
        "json",
    ]);
    let online = server.json().await;
    let address = online["listening"].as_str().unwrap();
    assert_eq!(online["forwarding"], format!("ws://{address}"));
    assert_eq!(Client::websocket(address, None).await.unwrap_err(), 401);
    assert_eq!(
        Client::websocket(address, Some("wrong")).await.unwrap_err(),
        401
    );
    let mut client = Client::websocket(address, Some("secret")).await.unwrap();
    let mut open =
        script("trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done");
    open.session = Some(OpenSession {
        features: vec![Feature::Signals.into()],
        ..OpenSession::default()
    });
    client.open(open).await;
    client.until("ready").await;
    server.signal(nix::sys::signal::Signal::SIGTERM);
    client.until("asked").await;
    let close = client.close().await;
    assert_eq!(close.return_code, 3);
    let termination = close.termination.unwrap();
    assert_eq!(termination.reason(), TerminationReason::Drain);
    drop(client);
    let output = server.ended().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains(r#""reason":"drain""#), "{output:?}");
}

#[tokio::test]
async fn insecure_or_contradicting_options_are_usage_errors() {
    let home = Home::new();
    let listen = ["--listen", "127.0.0.1:0"];
    let cases: [(&[&str], &str); 8] = [
        (&listen, "could run commands"),
        (
            &[listen[0], listen[1], "--transport", "plain"],
            "cannot carry a token",
        ),
        (&["--transport", "plain"], "private tunnels"),
        (&["--execution-mode", "login"], "needs an account"),
        (
            &["--execution-mode", "spawn", "--login-user", "root"],
            "for --execution-mode login",
        ),
        (&["--login-user", "nobody-is-called-so"], "does not exist"),
        (
            &["--no-publish", "--engine", "e.example:1", "--token", "t"],
            "needs a name",
        ),
        (&["--server-id", "wsv_1"], "enroll this host"),
    ];
    for (args, message) in cases {
        let output = home.run(&[&["webtty", "server"], args].concat()).await;
        assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
        assert!(
            output.stderr.contains(message),
            "{args:?}: {}",
            output.stderr
        );
    }
}

/// An account that is removed with this value.
struct TestAccount(String);

impl TestAccount {
    fn new() -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "the test of other accounts makes one, and has to run as root"
        );
        let name = format!("svctty{}", std::process::id());
        let made = Program::new("useradd")
            .args(["--create-home", "--shell", "/bin/sh", &name])
            .status();
        assert!(made.unwrap().success(), "useradd made {name}");
        Self(name)
    }
}

impl Drop for TestAccount {
    fn drop(&mut self) {
        drop(Program::new("userdel").args(["--remove", &self.0]).output());
    }
}

#[tokio::test]
async fn a_login_is_a_login_of_its_account() {
    let made = TestAccount::new();
    let home = Home::new();
    let start = async |more: &[&str]| {
        let args = [
            "webtty",
            "server",
            "--listen",
            "127.0.0.1:0",
            "--allow-unauthenticated",
            "--transport",
            "plain",
            "--execution-mode",
            "login",
            "-o",
            "json",
        ];
        let mut command = home.command(&[&args[..], more].concat());
        command
            .env("SVC_TOKEN", "secret")
            .env("SSH_AUTH_SOCK", "/agent");
        let mut server = RunningCommand::spawn(&mut command);
        let address = server.json().await["listening"]
            .as_str()
            .unwrap()
            .to_owned();
        (server, address)
    };
    let (mut server, address) = start(&["--login-user", &made.0]).await;
    let mut client = Client::plain(&address).await;
    let mut shell = script("");
    shell.config.as_mut().unwrap().cmd_args.clear();
    client.open(shell).await;
    let commands =
        "id -un; pwd; echo $0 $HOME $USER $LOGNAME; env | grep -c -e SVC_ -e SSH_\nexit 2\n";
    client.send(&Kind::data(Stream::Stdin, commands)).await;
    let (output, code) = client.finish().await;
    let name = &made.0;
    let home = ["", "home", name].join("/");
    assert_eq!(
        output,
        format!("{name}\n{home}\n-sh {home} {name} {name}\n0\n")
    );
    assert_eq!(code, 2);
    let opened = server.json_where(|line| line["session"] == "opened").await;
    assert_eq!(opened["account"], Value::from(name.as_str()));
    // A user cannot choose another account.
    let mut client = Client::plain(&address).await;
    client.send(&Kind::Open(Box::new(as_user("root")))).await;
    assert!(client.refused().await.contains("run as"));
    server.terminate().await;

    let (server, address) = start(&["--allow-client-user"]).await;
    let mut client = Client::plain(&address).await;
    client.open(as_user(name)).await;
    assert_eq!(client.finish().await.0, format!("{name}\n"));
    server.terminate().await;
}

fn as_user(name: &str) -> OpenCommand {
    let mut open = script("id -un");
    open.config.as_mut().unwrap().username = Some(Username {
        payload: Some(User::Name(name.to_owned())),
    });
    open
}

fn script(text: &str) -> OpenCommand {
    OpenCommand {
        config: Some(Config {
            options: Some(Options::default()),
            cmd_args: ["sh", "-c", text].map(str::to_owned).to_vec(),
            workdir: (!text.is_empty()).then(|| message::Workdir {
                value: "/".to_owned(),
            }),
            ..Config::default()
        }),
        ..OpenCommand::default()
    }
}

/// `svc dial`, and the local addresses of the tunnels.
async fn dial(home: &Home, names: &[&str]) -> (RunningCommand, Vec<String>) {
    let mut args = vec!["dial".to_owned()];
    args.extend(names.iter().map(|name| format!("{name}=0")));
    args.extend(["-o".to_owned(), "json".to_owned()]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut dial = home.start(&args);
    let ready = dial.json().await;
    let ports = match ready["tunnels"].as_array() {
        Some(all) => all.iter().map(|one| one["listening"].clone()).collect(),
        None => vec![ready["listening"].clone()],
    };
    let ports = ports.iter().map(|port| port.as_str().unwrap().to_owned());
    (dial, ports.collect())
}

#[derive(Debug)]
enum Client {
    Plain(TcpStream, frame::Decoder),
    WebSocket(Box<WebSocketStream<TcpStream>>),
}

impl Client {
    async fn plain(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self::Plain(stream, frame::Decoder::new())
    }

    /// Returns the status of a refusal.
    async fn websocket(address: &str, token: Option<&str>) -> Result<Self, u16> {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut request = format!("ws://{address}/").into_client_request().unwrap();
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
            request.headers_mut().insert("authorization", value);
        }
        match client_async(request, stream).await {
            Ok((socket, _)) => Ok(Self::WebSocket(Box::new(socket))),
            Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => {
                Err(answer.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    async fn send(&mut self, kind: &Kind) {
        match self {
            Self::Plain(stream, _) => stream
                .write_all(&frame::encode(kind).unwrap())
                .await
                .unwrap(),
            Self::WebSocket(socket) => socket
                .send(Message::Binary(message::encode(kind).unwrap()))
                .await
                .unwrap(),
        }
    }

    async fn next(&mut self) -> Option<Kind> {
        match self {
            Self::Plain(stream, decoder) => loop {
                if let Some(kind) = decoder.next().unwrap() {
                    return Some(kind);
                }
                let mut buffer = [0; 4096];
                match stream.read(&mut buffer).await {
                    Ok(read @ 1..) => decoder.push(&buffer[..read]),
                    _ => return None,
                }
            },
            Self::WebSocket(socket) => loop {
                if let Message::Binary(bytes) = socket.next().await?.ok()? {
                    return Some(message::decode(bytes).unwrap());
                }
            },
        }
    }

    /// The next message that is not a heartbeat.
    async fn said(&mut self) -> Option<Kind> {
        loop {
            match timeout(SOON, self.next()).await.unwrap() {
                Some(Kind::Heartbeat(_)) => {}
                said => return said,
            }
        }
    }

    async fn open(&mut self, open: OpenCommand) -> message::Ack {
        self.send(&Kind::Open(Box::new(open))).await;
        match self.said().await {
            Some(Kind::Ack(ack)) => ack,
            other => panic!("no ack: {other:?}"),
        }
    }

    async fn until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            match self.said().await {
                Some(Kind::Data(data)) => {
                    if let Some(Payload::Data(bytes)) = data.payload {
                        seen.push_str(&String::from_utf8_lossy(&bytes));
                    }
                }
                other => panic!("{other:?} before `{text}`: {seen}"),
            }
        }
        seen
    }

    async fn close(&mut self) -> message::Close {
        loop {
            match self.said().await {
                Some(Kind::Data(_)) => {}
                Some(Kind::Close(close)) => return close,
                other => panic!("{other:?}"),
            }
        }
    }

    async fn finish(&mut self) -> (String, i32) {
        let mut output = String::new();
        loop {
            match self.said().await {
                Some(Kind::Data(data)) => {
                    if let Some(Payload::Data(bytes)) = data.payload {
                        output.push_str(&String::from_utf8_lossy(&bytes));
                    }
                }
                Some(Kind::Close(close)) => return (output, close.return_code),
                other => panic!("{other:?} after {output}"),
            }
        }
    }

    async fn refused(&mut self) -> String {
        match self.said().await {
            Some(Kind::Error(error)) => error.msg,
            other => panic!("{other:?}"),
        }
    }

    async fn is_lost(&mut self) -> bool {
        self.said().await.is_none()
    }
}
