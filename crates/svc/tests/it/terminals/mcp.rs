//! `svc mcp` used by an AI client: a child process with line-based messages.

use std::net::{Ipv4Addr, SocketAddr};

use axum::{Router, routing};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    time::timeout,
};

use crate::hosted::HostedPlatform;
use crate::installed::{RunningUp, up};
use crate::program::{Home, SOON};

/// An AI client.
pub(crate) struct Client {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    count: u64,
}

impl Client {
    pub(crate) async fn start(home: &Home) -> Self {
        Self::start_with(home, &[]).await
    }

    async fn start_with(home: &Home, more: &[&str]) -> Self {
        let mut command = home.command(&[&["mcp"], more].concat());
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
        let answer = self.answer().await;
        assert_eq!(answer["id"], id, "{answer}");
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// The next line.
    async fn answer(&mut self) -> Value {
        let line = timeout(SOON, self.lines.next_line()).await;
        let line = line.unwrap().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": name, "arguments": arguments}))
            .await
    }

    /// The result of a successful call.
    pub(crate) async fn call_ok(&mut self, name: &str, arguments: Value) -> Value {
        let result = self.call(name, arguments).await;
        assert_eq!(result["isError"], false, "{result}");
        result["structuredContent"].clone()
    }

    /// The error message of a failed call.
    pub(crate) async fn call_error(&mut self, name: &str, arguments: Value) -> String {
        let result = self.call(name, arguments).await;
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Closes standard input, and waits for the process.
    pub(crate) async fn leave(self) {
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
async fn visit(up: &RunningUp, url: &str) -> (u16, String) {
    let url: reqwest::Url = url.parse().unwrap();
    let ca = std::fs::read(up.ready_field("ca_file")).unwrap();
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
async fn a_model_publishes_and_unpublishes_a_port() {
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
    // MC-3: next to `_meta` and inside it, as at the endpoint of the platform.
    for tool in listed["tools"].as_array().unwrap() {
        let schemes = &tool["securitySchemes"];
        assert!(schemes[0]["type"].is_string(), "{tool}");
        assert_eq!(schemes, &tool["_meta"]["securitySchemes"], "{tool}");
    }
    let identity = client.call_ok("svc_whoami", json!({})).await;
    assert_eq!(identity["email"], up.ready_field("admin_email"));
    let missing = json!({"project_id": "prj_x"});
    let missing = client.call_error("svc_project_get", missing).await;
    assert!(
        missing.contains("not_found") || missing.contains("invalid"),
        "{missing}"
    );

    let wanted = json!({"port": port, "name": "mine"});
    let opened = client.call_ok("svc_local_tunnel_expose", wanted).await;
    let (id, url) = (opened["id"].clone(), opened["url"].as_str().unwrap());
    assert_eq!(visit(&up, url).await, (200, "from this machine".to_owned()));
    let list = client.call_ok("svc_local_tunnel_list", json!({})).await;
    assert_eq!(list["tunnels"][0], opened);
    // The project's engine lists it as well: the context's project, by id and by endpoint.
    for project in [
        json!({"project_id": up.ready_field("project_id")}),
        json!({"project_endpoint": up.ready_field("project_endpoint")}),
    ] {
        let live = client.call_ok("svc_tunnels_list", project.clone()).await;
        assert_eq!(live["tunnels"][0]["name"], "mine", "{live}");
        let live = client.call_ok("svc_clients_list", project).await;
        assert_eq!(live["clients"].as_array().unwrap().len(), 1, "{live}");
    }
    let stopped = client
        .call_ok("svc_local_tunnel_stop", json!({"id": id}))
        .await;
    assert_eq!(stopped["stopped"], id);
    // The engine keeps the name for a while.
    assert_eq!(visit(&up, url).await.0, 503);
    let again = client
        .call_error("svc_local_tunnel_stop", json!({"id": id}))
        .await;
    assert!(again.contains("does not exist"), "{again}");

    for wrong in [
        json!({}),
        json!({"port": 0}),
        json!({"port": port, "host": "10.0.0.1"}),
    ] {
        let error = client.call_error("svc_local_tunnel_expose", wrong).await;
        assert!(error.contains("port") || error.contains("host"), "{error}");
    }

    // Open tunnels are closed when the client disconnects.
    let opened = client
        .call_ok("svc_local_tunnel_expose", json!({"port": port}))
        .await;
    client.leave().await;
    assert_eq!(visit(&up, opened["url"].as_str().unwrap()).await.0, 503);
}

#[tokio::test]
async fn local_tunnels_are_limited() {
    let home = Home::new();
    let _up = up(&home, &[]).await;
    let port = service().await;
    let mut client = Client::start(&home).await;
    for _ in 0..16 {
        client
            .call_ok("svc_local_tunnel_expose", json!({"port": port}))
            .await;
    }
    let one_more = json!({"port": port});
    let error = client.call_error("svc_local_tunnel_expose", one_more).await;
    assert!(error.contains("16 tunnels"), "{error}");
    let first = json!({"id": "local-1"});
    client.call_ok("svc_local_tunnel_stop", first).await;
    client
        .call_ok("svc_local_tunnel_expose", json!({"port": port}))
        .await;
    client.leave().await;
}

/// Tools that act on this machine are separate, and name the confirmation that they need.
#[tokio::test]
async fn discovery_names_the_tools_of_this_machine() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let mut client = Client::start(&home).await;
    let found = client.call_ok("svc_discovery", json!({})).await;
    assert_eq!(found["resource"], up.ready_field("base_url"));
    assert!(found["local"]["summary"].is_string(), "{found}");
    assert_eq!(
        found["local"]["tools"],
        json!([
            {
                "name": "svc_local_tunnel_expose",
                "title": "Expose a local port",
                "scopes": ["tunnels.tunnels.create-delete"],
                "bundle": "expose-service-in-project",
            },
            {
                "name": "svc_local_tunnel_list",
                "title": "List local tunnels",
                "scopes": [],
                "bundle": null,
            },
            {
                "name": "svc_local_tunnel_stop",
                "title": "Stop a local tunnel",
                "scopes": [],
                "bundle": null,
            },
        ])
    );
    let bundles = found["bundles"].as_array().unwrap();
    assert!(
        bundles
            .iter()
            .any(|one| one["name"] == "expose-service-in-project")
    );
    let named = found["tools"].as_array().unwrap().iter();
    let mut named = named.map(|tool| tool["name"].as_str().unwrap());
    assert!(named.all(|name| !name.contains("local")), "{found}");
    client.leave().await;
}

/// A login while an AI client keeps the server running takes effect with the next call, for tools
/// of the platform and of this machine. So does a logout.
#[tokio::test]
async fn a_login_takes_effect_with_the_next_call() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let port = service().await;
    // A separate context, as stored by `svc login --context work`.
    let contexts = home.path().join(".config/svc/contexts");
    let own = std::fs::read(contexts.join("local.json")).unwrap();
    let own: Value = serde_json::from_slice(&own).unwrap();
    let file = contexts.join("work.json");
    let keep = |token: &Value| {
        let mut context = own.clone();
        context["token"] = token.clone();
        std::fs::write(&file, context.to_string()).unwrap();
    };
    keep(&own["token"]);
    let mut client = Client::start_with(&home, &["--context", "work"]).await;
    let identity = client.call_ok("svc_whoami", json!({})).await;
    assert_eq!(identity["email"], up.ready_field("admin_email"));
    let opened = json!({"port": port, "name": "before"});
    let opened = client.call_ok("svc_local_tunnel_expose", opened).await;

    let wanted = json!({"permissions": ["account.projects.read-only"], "ttl_seconds": 600});
    let less = client.call_ok("svc_token_create", wanted).await;
    keep(&less["token"]);
    let identity = client.call_ok("svc_whoami", json!({})).await;
    assert_eq!(
        identity["permissions"],
        json!(["account.projects.read-only"])
    );
    let refused = json!({"port": port, "name": "after"});
    let error = client.call_error("svc_local_tunnel_expose", refused).await;
    assert!(error.contains("refuses"), "{error}");
    // Open tunnels stay open.
    let url = opened["url"].as_str().unwrap();
    assert_eq!(visit(&up, url).await.0, 200);

    keep(&json!("ended.by.revocation"));
    let error = client.call_error("svc_whoami", json!({})).await;
    assert!(error.contains("run `svc login`"), "{error}");
    std::fs::remove_file(&file).unwrap();
    let error = client.call_error("svc_whoami", json!({})).await;
    assert!(error.contains("svc login --context work"), "{error}");
    keep(&own["token"]);
    let identity = client.call_ok("svc_whoami", json!({})).await;
    assert_ne!(
        identity["permissions"],
        json!(["account.projects.read-only"])
    );
    let again = json!({"port": port, "name": "after"});
    client.call_ok("svc_local_tunnel_expose", again).await;
    client.leave().await;
    assert_eq!(visit(&up, url).await.0, 503);
}

/// If the context has no engine, the platform is asked for the project's engine. Without the
/// permission for that, the error names the missing permission.
#[tokio::test]
async fn the_platform_returns_the_engine_address() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let contexts = home.path().join(".config/svc/contexts");
    let own = std::fs::read(contexts.join("local.json")).unwrap();
    let mut context: Value = serde_json::from_slice(&own).unwrap();
    let project = json!({"project_id": up.ready_field("project_id")});
    let keep = |context: &Value| {
        std::fs::write(contexts.join("work.json"), context.to_string()).unwrap();
    };
    let members = context.as_object_mut().unwrap();
    members.remove("project");
    members.remove("engine");
    keep(&context);
    let mut client = Client::start_with(&home, &["--context", "work"]).await;
    let live = client.call_ok("svc_tunnels_list", project.clone()).await;
    assert_eq!(live, json!({"tunnels": []}));
    let other = json!({"project_endpoint": "00000000"});
    let error = client.call_error("svc_tunnels_list", other).await;
    assert!(error.contains("not_found"), "{error}");

    let wanted = json!({"permissions": ["tunnels.resources.read-only"]});
    let less = client.call_ok("svc_token_create", wanted).await;
    context["token"] = less["token"].clone();
    keep(&context);
    let error = client.call_error("svc_tunnels_list", project.clone()).await;
    assert!(error.contains("account.projects.read-only"), "{error}");
    // For the context's project, the permission to list is enough.
    let mut selected: Value = serde_json::from_slice(&own).unwrap();
    selected["token"] = less["token"].clone();
    keep(&selected);
    let live = client.call_ok("svc_tunnels_list", project).await;
    assert_eq!(live, json!({"tunnels": []}));
    client.leave().await;
}

/// CP-4a, CP-4g: a model that was shown one preview creates one paid project, whatever its other
/// arguments are. Repeating the call finds that project.
#[tokio::test]
async fn cp_4g_one_confirmed_preview_creates_one_paid_project() {
    let home = Home::new();
    let platform = HostedPlatform::start(&home, json!({})).await;
    platform.login(&home).await;
    let mut client = Client::start(&home).await;
    let workspaces = client.call_ok("svc_workspace_list", json!({})).await;
    let workspace = workspaces["workspaces"][0]["id"].clone();
    assert!(workspace.is_string(), "{workspaces}");
    let previewed = async |client: &mut Client| {
        let asked = json!({"workspace_id": workspace});
        let preview = client.call_ok("svc_project_creation_options", asked).await;
        let plans = preview["plans"].as_array().unwrap().iter();
        plans
            .clone()
            .find(|plan| plan["plan"] == "pro")
            .cloned()
            .unwrap()
    };
    let creation = |plan: &Value, name: &str| {
        let provider = &plan["providers"][0];
        json!({"workspace_id": workspace, "name": name, "plan": "pro",
            "provider": provider["provider"], "region": provider["regions"][0]["region"],
            "creation_fingerprint": plan["creationFingerprint"], "confirmed": true})
    };
    // The user makes the first payment on a page.
    let first = previewed(&mut client).await;
    let result = client
        .call("svc_project_create", creation(&first, "first"))
        .await;
    let page = result["_meta"]["svc/problem"]["url"].as_str();
    platform
        .submit(page.expect("a page"), "/billing/checkout")
        .await;

    let shown = previewed(&mut client).await;
    let impact = &shown["billingImpact"]["type"];
    assert_eq!(impact, "prorated_charge", "{shown}");
    let created = client
        .call_ok("svc_project_create", creation(&shown, "second"))
        .await;
    for name in ["third", "fourth"] {
        let error = client
            .call_error("svc_project_create", creation(&shown, name))
            .await;
        assert!(error.contains("creation_preview_stale"), "{error}");
    }
    let mut keyed = creation(&shown, "second");
    keyed["idempotency_key"] = json!("another");
    let error = client.call_error("svc_project_create", keyed).await;
    assert!(error.contains("creation_preview_stale"), "{error}");
    let again = client
        .call_ok("svc_project_create", creation(&shown, "second"))
        .await;
    assert_eq!(again["id"], created["id"]);
    let projects = client.call_ok("svc_project_list", json!({})).await;
    assert_eq!(projects["total"], 2, "{projects}");
    client.leave().await;
}

/// A line that is longer than the limit is refused, and the conversation continues.
#[tokio::test]
async fn an_endless_line_is_refused() {
    let home = Home::new();
    let _up = up(&home, &[]).await;
    let mut client = Client::start(&home).await;
    let piece = vec![b'x'; 64 * 1024];
    for _ in 0..64 {
        client.stdin.write_all(&piece).await.unwrap();
    }
    let refused = client.answer().await;
    assert_eq!(refused["id"], Value::Null);
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    client.stdin.write_all(b"\n").await.unwrap();
    client.call_ok("svc_whoami", json!({})).await;
    client.leave().await;
}

/// Unanswered calls are limited. One more than the limit is refused immediately.
#[tokio::test]
async fn parallel_calls_are_limited() {
    let home = Home::new();
    // It accepts connections and never answers. Its port is leased, so that no server of another test
    // has it afterwards.
    let address = ports::lease_address();
    let platform = tokio::net::TcpListener::bind(&address).await.unwrap();
    let url = format!("http://{address}");
    let mut client = Client::start_with(&home, &["--api-url", &url, "--token", "a.b.c"]).await;
    let call = json!({"name": "svc_whoami", "arguments": {}});
    for id in 100..125 {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call});
        client.send(&call).await;
    }
    let refused = client.answer().await;
    assert_eq!(refused["error"]["code"], -32000, "{refused}");
    // All of them fail when the platform disconnects, and then there is capacity again.
    drop(platform);
    for _ in 0..24 {
        let answer = client.answer().await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    }
    let told = client.call_error("svc_whoami", json!({})).await;
    assert!(told.contains("platform_unreachable"), "{told}");
    client.leave().await;
}

#[tokio::test]
async fn without_a_login_there_are_no_tools() {
    let home = Home::new();
    let output = home.run(&["mcp"]).await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("svc login"), "{output:?}");
}
