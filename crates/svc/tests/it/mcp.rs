//! `svc mcp` as an AI client meets it: a child process, spoken to line by line.

use std::net::{Ipv4Addr, SocketAddr};

use axum::{Router, routing};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    time::timeout,
};

use super::{
    installed::{Up, up},
    program::{Home, SOON},
};

struct Client {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    count: u64,
}

impl Client {
    async fn start(home: &Home) -> Self {
        let mut command = home.command(&["mcp"]);
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut client = Self {
            child,
            stdin,
            lines,
            count: 0,
        };
        let hello = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let answer = client.ask("initialize", hello).await;
        assert_eq!(answer["serverInfo"]["name"], "svc");
        client
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        client
    }

    async fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.stdin.write_all(line.as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.count += 1;
        let id = self.count;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        let line = timeout(SOON, self.lines.next_line())
            .await
            .unwrap()
            .unwrap();
        let answer: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    async fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": name, "arguments": arguments}))
            .await
    }

    /// What a call that went well answers.
    async fn good(&mut self, name: &str, arguments: Value) -> Value {
        let result = self.call(name, arguments).await;
        assert_eq!(result["isError"], false, "{result}");
        result["structuredContent"].clone()
    }

    /// What a model is told of a call that failed.
    async fn bad(&mut self, name: &str, arguments: Value) -> String {
        let result = self.call(name, arguments).await;
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Ends standard input, and waits for the process.
    async fn leave(self) {
        let Self {
            mut child, stdin, ..
        } = self;
        drop(stdin);
        let status = timeout(SOON, child.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(0));
    }
}

async fn service() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let routes = Router::new().route("/", routing::get(|| async { "from this machine" }));
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    port
}

/// Status and text of a published address.
async fn visit(up: &Up, url: &str) -> (u16, String) {
    let url: reqwest::Url = url.parse().unwrap();
    let ca = std::fs::read(up.said("ca_file")).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, url.port().unwrap()));
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&ca).unwrap()])
        .resolve(url.host_str().unwrap(), address)
        .no_proxy()
        .build()
        .unwrap();
    let answer = client.get(url).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test]
async fn a_model_publishes_a_port_and_takes_it_away() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let port = service().await;
    let mut client = Client::start(&home).await;
    let listed = client.ask("tools/list", json!({})).await;
    let names: Vec<_> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    for name in [
        "svc_discovery",
        "svc_project_create",
        "svc_local_tunnel_expose",
        "svc_local_tunnel_list",
        "svc_local_tunnel_stop",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let who = client.good("svc_whoami", json!({})).await;
    assert_eq!(who["email"], up.said("admin_email"));
    let missing = json!({"project_id": "prj_x"});
    let missing = client.bad("svc_project_get", missing).await;
    assert!(
        missing.contains("not_found") || missing.contains("invalid"),
        "{missing}"
    );

    let wanted = json!({"port": port, "name": "mine"});
    let opened = client.good("svc_local_tunnel_expose", wanted).await;
    let (id, url) = (opened["id"].clone(), opened["url"].as_str().unwrap());
    assert_eq!(visit(&up, url).await, (200, "from this machine".to_owned()));
    let list = client.good("svc_local_tunnel_list", json!({})).await;
    assert_eq!(list["tunnels"][0], opened);
    let stopped = client
        .good("svc_local_tunnel_stop", json!({"id": id}))
        .await;
    assert_eq!(stopped["stopped"], id);
    // The engine remembers the name for a while.
    assert_eq!(visit(&up, url).await.0, 503);
    let again = client.bad("svc_local_tunnel_stop", json!({"id": id})).await;
    assert!(again.contains("no such tunnel"), "{again}");

    for wrong in [
        json!({}),
        json!({"port": 0}),
        json!({"port": port, "host": "10.0.0.1"}),
    ] {
        let told = client.bad("svc_local_tunnel_expose", wrong).await;
        assert!(told.contains("port") || told.contains("host"), "{told}");
    }

    // What is open when the client leaves goes with it.
    let opened = client
        .good("svc_local_tunnel_expose", json!({"port": port}))
        .await;
    client.leave().await;
    assert_eq!(visit(&up, opened["url"].as_str().unwrap()).await.0, 503);
}

#[tokio::test]
async fn local_tunnels_are_bounded() {
    let home = Home::new();
    let _up = up(&home, &[]).await;
    let port = service().await;
    let mut client = Client::start(&home).await;
    for _ in 0..16 {
        client
            .good("svc_local_tunnel_expose", json!({"port": port}))
            .await;
    }
    let one_more = json!({"port": port});
    let told = client.bad("svc_local_tunnel_expose", one_more).await;
    assert!(told.contains("16 tunnels"), "{told}");
    let first = json!({"id": "local-1"});
    client.good("svc_local_tunnel_stop", first).await;
    client
        .good("svc_local_tunnel_expose", json!({"port": port}))
        .await;
    client.leave().await;
}

#[tokio::test]
async fn without_a_login_there_are_no_tools() {
    let home = Home::new();
    let ended = home.run(&["mcp"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("svc login"), "{ended:?}");
}
