//! `svc events`: printed, posted, and in the form of webhooks (EV-1).

use std::{
    collections::BTreeMap,
    io::Write,
    process::{Command, Stdio},
    sync::Arc,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    sync::{Mutex, mpsc},
    time::timeout,
};

use crate::installed::alone;
use crate::program::{Home, RunningCommand, SOON};

/// EV-1: each event is a line of JSON, over either transport, and filters restrict the events.
#[tokio::test]
async fn ev_1_each_event_is_a_line_of_json_over_either_transport() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let mut all = home.start(&["events"]);
    let mut narrow = home.start(&[
        "events",
        "--transport",
        "websocket",
        "--events",
        "tunnel.created,tunnel.deleted",
        "--tunnels",
        "name=api",
    ]);
    let mut snapshots = home.start(&["events", "--transport", "websocket"]);
    assert_eq!(all.json().await["type"], "state.initial");
    assert_eq!(snapshots.json().await["type"], "state.initial");
    narrow.wait_for_stderr("following").await;
    let web = publish(&home, "web").await;
    let api = publish(&home, "api").await;
    let mut types = Vec::new();
    for running in [&mut all, &mut snapshots] {
        let event = running
            .json_where(|event| event["object"]["name"] == "api")
            .await;
        types.push(event["type"].clone());
        assert!(event["id"].as_str().unwrap().starts_with("evt_"), "{event}");
    }
    assert_eq!(types, ["tunnel.created", "tunnel.created"]);
    assert_eq!(narrow.json().await["object"]["name"], "api");
    api.terminate().await;
    assert_eq!(narrow.json().await["type"], "tunnel.deleted");

    // Both transports report the engine's refusal.
    for transport in ["sse", "websocket"] {
        let args = ["events", "--transport", transport, "--tunnels", "nam=x"];
        let refused = home.run(&args).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(
            refused.stderr.contains("did you mean `name`?"),
            "{refused:?}"
        );
        let stranger = ["events", "--transport", transport, "--token", "a.b.c"];
        assert_eq!(home.run(&stranger).await.code, Some(3));
    }
    let slip = home.run(&["events", "--events", "tunel.created"]).await;
    assert_eq!(slip.code, Some(2), "{slip:?}");
    assert!(
        slip.stderr.contains("did you mean `tunnel.created`?"),
        "{slip:?}"
    );
    for running in [all, narrow, snapshots, web] {
        assert_eq!(running.terminate().await.code, Some(0));
    }
    up.stop().await;
}

/// EV-1: each event is posted in order. A failed one is retried, and the next one waits for it.
#[tokio::test]
async fn ev_1_events_are_posted_in_order_until_each_is_accepted() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let mut receiver = Receiver::start(&[200, 503, 503, 204]).await;
    let args = ["events", "--forward-to", &receiver.url, "-o", "json"];
    let mut events = home.start(&args);
    let first = events.json().await;
    assert_eq!(
        (&first["type"], &first["status"]),
        (&json!("state.initial"), &json!(200))
    );
    let agent = publish(&home, "web").await;
    let client = events.json().await;
    assert_eq!(
        (&client["type"], &client["status"]),
        (&json!("client.created"), &json!(204))
    );
    assert_eq!(client["attempts"], 3);
    let tunnel = events.json().await;
    assert_eq!(
        (&tunnel["type"], &tunnel["attempts"]),
        (&json!("tunnel.created"), &json!(1))
    );
    let mut seen = Vec::new();
    for _ in 0..5 {
        let request = receiver.next().await;
        assert_eq!(request.headers["content-type"], "application/json");
        assert!(!request.headers.contains_key("webhook-id"));
        let event: Value = serde_json::from_str(&request.body).unwrap();
        seen.push(event["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(
        seen,
        [
            "state.initial",
            "client.created",
            "client.created",
            "client.created",
            "tunnel.created"
        ]
    );
    assert_eq!(events.terminate().await.code, Some(0));

    // A refused event is not sent again.
    let refusing = Receiver::start(&[404]).await;
    let output = home.run(&["events", "--forward-to", &refusing.url]).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.stderr.starts_with("error[receiver_refused]: "),
        "{output:?}"
    );
    assert!(
        output.stderr.contains("answered 404 to state.initial"),
        "{output:?}"
    );
    agent.terminate().await;
    up.stop().await;
}

/// EV-1: with `--webhook` the receiver gets what the platform would send. The library of Standard
/// Webhooks and the ecosystem's SDK verify it, and both refuse it with another secret.
#[tokio::test]
async fn ev_1_third_party_libraries_verify_the_signed_request() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let mut receiver = Receiver::start(&[]).await;
    let args = [
        "events",
        "--webhook",
        "--webhook-secret",
        SECRET,
        "--include-webhook-headers",
        "--forward-to",
        &receiver.url,
    ];
    let mut events = home.start(&args);
    let mut drawn = home.start(&["events", "--webhook", "--include-webhook-headers"]);
    let output = drawn.wait_for_stderr("following").await;
    assert!(output.contains("signing with whsec_"), "{output}");
    events.wait_for_stderr("following").await;
    let agent = publish(&home, "web").await;
    agent.terminate().await;
    let (mut types, mut requests) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let shown = events.json().await;
        let request = receiver.next().await;
        let event: Value = serde_json::from_str(&request.body).unwrap();
        types.push(event["type"].as_str().unwrap().to_owned());
        assert_eq!(shown["body"], request.body);
        for name in ["webhook-signature", "svc-signature", "svc-delivery-id"] {
            assert_eq!(shown["headers"][name], request.headers[name]);
        }
        assert_eq!(request.headers["webhook-id"], event["id"]);
        assert_eq!(request.headers["svc-event-type"], event["type"]);
        assert!(request.headers["svc-webhook-id"].starts_with("cli_we_"));
        assert!(request.headers["svc-delivery-id"].starts_with("cli_del_"));
        requests.push(request);
    }
    // No snapshot, because webhooks have none.
    assert_eq!(
        types,
        [
            "client.created",
            "tunnel.created",
            "tunnel.deleted",
            "client.deleted"
        ]
    );
    let output = drawn.json().await;
    let other = Request {
        headers: serde_json::from_value(output["headers"].clone()).unwrap(),
        body: output["body"].as_str().unwrap().to_owned(),
    };
    for running in [events, drawn] {
        assert_eq!(running.terminate().await.code, Some(0));
    }
    // Run here, where this thread may block.
    for request in &requests {
        assert_eq!(verified(request, SECRET), (true, true));
    }
    assert_eq!(verified(&other, SECRET), (false, false));
    let bad = home
        .run(&["events", "--webhook", "--webhook-secret", "hunter2"])
        .await;
    assert_eq!(bad.code, Some(2), "{bad:?}");
    up.stop().await;
}

/// An agent whose tunnel is online. Its service is not needed.
async fn publish(home: &Home, name: &str) -> RunningCommand {
    let mut agent = home.start(&["forward", "9", "--name", name, "-o", "json"]);
    agent.json_where(|line| line["status"] == "online").await;
    agent
}

/// A request that a receiver got.
#[derive(Debug)]
struct Request {
    headers: BTreeMap<String, String>,
    body: String,
}

/// A receiver that gives these answers, and 200 after them.
struct Receiver {
    url: String,
    requests: mpsc::Receiver<Request>,
}

impl Receiver {
    async fn start(answers: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut left = answers.to_vec();
        left.reverse();
        let left = Arc::new(Mutex::new(left));
        let (to, requests) = mpsc::channel(64);
        tokio::spawn(async move {
            loop {
                let (stream, _peer) = listener.accept().await.unwrap();
                let (to, left) = (to.clone(), Arc::clone(&left));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some(request) = read(&mut stream).await {
                        to.send(request).await.ok();
                        let status = left.lock().await.pop().unwrap_or(200);
                        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
                        // 204 has no length (RFC 9110 section 8.6).
                        let answer = match status {
                            204 => "HTTP/1.1 204 X\r\n\r\n".to_owned(),
                            _ => answer,
                        };
                        if stream.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self {
            url: format!("http://127.0.0.1:{port}/in"),
            requests,
        }
    }

    async fn next(&mut self) -> Request {
        timeout(SOON, self.requests.recv()).await.unwrap().unwrap()
    }
}

async fn read(stream: &mut BufReader<tokio::net::TcpStream>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    if line.is_empty() {
        return None;
    }
    assert_eq!(line, "POST /in HTTP/1.1\r\n");
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    Some(Request {
        headers,
        body: String::from_utf8(body).unwrap(),
    })
}

/// True for each library that accepts the request.
fn verified(request: &Request, secret: &str) -> (bool, bool) {
    let input = json!({"headers": request.headers, "body": request.body, "secret": secret});
    let mut node = Command::new(variable("SVC_TEST_NODE"));
    node.args(["--input-type=module", "--eval", STANDARD])
        .current_dir(variable("SVC_TEST_NODE_PACKAGES"));
    let mut python = Command::new(variable("SVC_TEST_PYTHON"));
    python.args(["-c", SDK]);
    let [by_standard, by_sdk] =
        [node, python].map(|command| judged(command, &input) == json!(true));
    (by_standard, by_sdk)
}

fn variable(name: &str) -> std::ffi::OsString {
    std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set: run cargo xtask test"))
}

fn judged(mut command: Command, input: &Value) -> Value {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

const STANDARD: &str = r#"
import { Webhook, WebhookVerificationError } from "standardwebhooks";
import { readFileSync } from "node:fs";
const { headers, body, secret } = JSON.parse(readFileSync(0, "utf8"));
let answer = true;
try {
  const event = new Webhook(secret).verify(body, headers);
  if (event.id !== headers["webhook-id"]) answer = "another event";
} catch (error) {
  if (!(error instanceof WebhookVerificationError)) throw error;
  answer = String(error);
}
console.log(JSON.stringify(answer));
"#;

const SDK: &str = r#"
import json, sys
from rstream.errors import RuntimeError
from rstream.webhooks import Webhooks
given = json.load(sys.stdin)
answer = True
try:
    event = Webhooks().event(given["body"], given["headers"]["svc-signature"], given["secret"])
    if event.id != given["headers"]["svc-event-id"]:
        answer = "another event"
except RuntimeError as error:
    answer = str(error)
print(json.dumps(answer))
"#;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
