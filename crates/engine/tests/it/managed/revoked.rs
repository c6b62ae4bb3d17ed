//! Open connections end with the credential, the membership or the project that authorised them.

use api::link::{Credential, Item, Record};
use bytes::Bytes;
use client::{Agent, Properties, Target};
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use testing::{
    FakePlatform, RawVisitor, ScriptedUpstream, Step, TestEngine, TestTunnel, Upstream, within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::task::AbortOnDropHandle;

use super::{A, B, TwoProjects};

/// A request whose access ends before the service answers gets a response with the reason, over
/// HTTP/1.1 and HTTP/2, with a reference to its record.
#[tokio::test]
async fn a_request_without_a_response_is_refused_when_its_access_ends() {
    let (platform, engine, agent, _) = one_agent("").await;
    let service = ScriptedUpstream::start(|_| vec![Step::ReadHead, Step::KeepOpen]).await;
    let target: Target = service.addr().to_string().parse().unwrap();
    let tunnel = TestTunnel::open(agent, Properties::http(), target).await;
    let host = tunnel.hostname();
    let mut http1 = engine.visitor().http1(host).await;
    let mut http2 = engine.visitor().h2(host).await;
    let requests = async { tokio::join!(http1.get("/", host), http2.get("/", host)) };
    let revocation = async {
        service.next_head().await;
        service.next_head().await;
        let names = vec![host.to_owned()];
        platform.add_project_with(A, |project| project.taken_down = names);
    };
    let ((answer1, answer2), ()) = tokio::join!(requests, revocation);
    for answer in [answer1, answer2] {
        assert_eq!(answer.status, 403);
        assert_eq!(answer.json()["code"], "access_ended");
        let reference = answer.json()["reference"].clone();
        let of_request = move |record: &Record| match record {
            Record::Stream(stream) if reference == *stream.stream_id => Some(stream.clone()),
            _ => None,
        };
        let record = platform.wait_for_record(of_request).await;
        assert_eq!(record.summary["response"]["http"]["status"], 403);
    }
    assert_eq!(
        http2.get("/", host).await.json()["code"],
        "hostname_taken_down"
    );
}

/// The refusal follows the interim response, which is complete.
#[tokio::test]
async fn a_request_with_an_interim_response_is_refused_when_its_access_ends() {
    let (platform, engine, agent, _) = one_agent("").await;
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n";
    let service =
        ScriptedUpstream::start(move |_| vec![Step::ReadHead, Step::write(hints), Step::KeepOpen])
            .await;
    let target: Target = service.addr().to_string().parse().unwrap();
    let tunnel = TestTunnel::open(agent, Properties::http(), target).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, "").await;
    assert_eq!(visitor.head().await.status, 103);
    let names = vec![host.to_owned()];
    platform.add_project_with(A, |project| project.taken_down = names);
    let answer = visitor.answer().await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.json()["code"], "access_ended");
}

/// A service that starts an answer and never ends it. After an upgrade it echoes its input.
/// Non-HTTP input is read and not answered.
pub(crate) async fn endless() -> Upstream {
    Upstream::start(|mut stream, _| async move {
        let mut head = [0; 4096];
        let mut seen = stream.read(&mut head).await.unwrap_or(0);
        let echoes = head.starts_with(b"GET /upgrade");
        if echoes {
            let answer = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                upgrade: websocket\r\n\r\nready";
            stream.write_all(answer).await.ok();
        } else if head.starts_with(b"GET") {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nready";
            stream.write_all(answer).await.ok();
        } else {
            stream.write_all(b"ready").await.ok();
        }
        while seen > 0 {
            seen = stream.read(&mut head).await.unwrap_or(0);
            if echoes {
                stream.write_all(&head[..seen]).await.ok();
            }
        }
    })
    .await
}

/// The platform, an engine, the tokens of two users of a project, and the credential of the second
/// one.
async fn two_users() -> (FakePlatform, TestEngine, [String; 2], String) {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    platform.add_member("usr_bob", &[A]);
    let (credential, bob) = platform.add_pat("usr_bob");
    let engine = TestEngine::managed(&platform).await;
    (platform, engine, [ann, bob], credential)
}

/// The platform, an engine with further configuration sections, an agent of a project, and its
/// token.
async fn one_agent(sections: &str) -> (FakePlatform, TestEngine, Agent, String) {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed_with(&platform, sections).await;
    let agent = engine.agent_at(A, &ann).await;
    (platform, engine, agent, ann)
}

pub(crate) async fn open(agent: Agent, properties: Properties, service: &Upstream) -> TestTunnel {
    let target: Target = service.addr().to_string().parse().unwrap();
    TestTunnel::open(agent, properties, target).await
}

fn guarded() -> Properties {
    Properties::http().token_auth(true)
}

/// An HTTP/1.1 request whose answer has started.
pub(crate) async fn start_request(
    engine: &TestEngine,
    host: &str,
    target: &str,
    bearer: Option<&str>,
) -> RawVisitor {
    let mut visitor = engine.visitor().http1(host).await;
    let mut fields = bearer
        .map(|token| format!("Authorization: Bearer {token}\r\n"))
        .unwrap_or_default();
    if target == "/upgrade" {
        fields.push_str("Connection: upgrade\r\nUpgrade: websocket\r\n");
    }
    visitor.request("GET", target, host, &fields).await;
    let head = visitor.head().await;
    assert!(matches!(head.status, 101 | 200), "{}", head.status);
    assert_eq!(visitor.read_exact(5).await.unwrap(), b"ready");
    visitor
}

/// Checks that the upgraded visit is open by sending bytes that the service echoes.
pub(crate) async fn assert_open(visitor: &mut RawVisitor) {
    visitor.send("still here").await;
    let back = within("the echo", visitor.read_exact(10)).await;
    assert_eq!(back.as_deref(), Some(&b"still here"[..]));
}

pub(crate) async fn ends(mut visitor: RawVisitor) {
    within("the end of the visit", visitor.read_to_end()).await;
}

/// A drain waits for visits. A visit whose token is revoked in the meantime ends immediately.
#[tokio::test]
async fn a_visitor_ends_with_its_token_while_the_engine_drains() {
    let (platform, engine, [token, bobs], credential) = two_users().await;
    let service = endless().await;
    let tunnel = open(engine.agent_at(A, &token).await, guarded(), &service).await;
    let host = tunnel.hostname();
    let mut stays = start_request(&engine, host, "/upgrade", Some(&token)).await;
    let download = start_request(&engine, host, "/", Some(&bobs)).await;
    let upgrade = start_request(&engine, host, "/upgrade", Some(&bobs)).await;
    let mut idle = engine.visitor().http1(host).await;
    let stopping = tokio::spawn(engine.stop());
    // A drain first closes idle connections.
    within("the drain", idle.read_to_end()).await;
    platform.revoke(&credential);
    ends(download).await;
    ends(upgrade).await;
    assert_open(&mut stays).await;
    drop(stays);
    within("the end of the engine", stopping).await.unwrap();
}

/// The visitor admits no data, so that the edge waits with the first bytes of the other protocol.
#[tokio::test]
async fn an_upgrade_whose_visitor_does_not_read_ends_with_its_token() {
    let (platform, engine, [token, bobs], credential) = two_users().await;
    let service = ScriptedUpstream::start(|_| {
        vec![
            Step::ReadHead,
            Step::write(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                 upgrade: chat\r\n\r\nhello",
            ),
            Step::KeepOpen,
        ]
    })
    .await;
    let target: Target = service.addr().to_string().parse().unwrap();
    let tunnel = TestTunnel::open(engine.agent_at(A, &token).await, guarded(), target).await;
    let host = tunnel.hostname();
    let config = engine.ca().client(&["h2"]);
    let stream = engine.visitor().connect(host, &config).await;
    let mut builder = h2::client::Builder::new();
    let handshake = builder.initial_window_size(0).handshake::<_, Bytes>(stream);
    let (sender, connection) = within("HTTP/2", handshake).await.unwrap();
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let address = format!("https://{host}/");
    // Any answer shows that the settings of the engine have arrived.
    let plain = http::Request::get(&address).body(()).unwrap();
    let mut sender = within("connection", sender.ready()).await.unwrap();
    let (answer, _) = sender.send_request(plain, true).unwrap();
    assert_eq!(within("answer", answer).await.unwrap().status(), 401);
    let connect = http::Request::connect(&address)
        .version(http::Version::HTTP_2)
        .extension(h2::ext::Protocol::from_static("chat"))
        .header("authorization", format!("Bearer {bobs}"));
    let mut sender = within("connection", sender.ready()).await.unwrap();
    let connect = sender.send_request(connect.body(()).unwrap(), false);
    let (answer, _requests) = connect.unwrap();
    let mut answer = within("answer", answer).await.unwrap();
    assert_eq!(answer.status(), 200);
    platform.revoke(&credential);
    let end = within("the end of the visit", answer.body_mut().data()).await;
    assert!(matches!(end, Some(Err(_))), "{end:?}");
}

/// Revoking a token closes its visits in the middle of an answer, an upgrade, and an HTTP/2 stream.
/// Visits with another token stay open.
#[tokio::test]
async fn a_visitor_ends_with_its_token() {
    let (platform, engine, [token, bobs], credential) = two_users().await;
    let service = endless().await;
    let tunnel = open(engine.agent_at(A, &token).await, guarded(), &service).await;
    let host = tunnel.hostname();

    let mut stays = start_request(&engine, host, "/upgrade", Some(&token)).await;
    let download = start_request(&engine, host, "/", Some(&bobs)).await;
    let upgrade = start_request(&engine, host, "/upgrade", Some(&bobs)).await;
    let mut h2 = engine.visitor().h2(host).await;
    let request = http::Request::get(format!("https://{host}/"))
        .header("authorization", format!("Bearer {bobs}"))
        .body(testing::H2Visitor::empty())
        .unwrap();
    let stream = h2.send(request).await.unwrap();
    assert_eq!(stream.status(), 200);

    platform.revoke(&credential);
    ends(download).await;
    ends(upgrade).await;
    assert!(!testing::H2Visitor::collect(stream).await.is_complete);
    let refused = engine.visitor().http1(host).await;
    let refused = with_bearer(refused, host, &bobs).await;
    assert_eq!(refused, 401);
    assert_open(&mut stays).await;
    assert_eq!(
        with_bearer(engine.visitor().http1(host).await, host, &token).await,
        200
    );
}

/// Over HTTP/2 a revoked token also ends a visit that waits for its answer or still sends its
/// request, not only one that has received the head of the answer.
#[tokio::test]
async fn requests_without_a_response_over_http2_are_refused_when_their_token_is_revoked() {
    let (platform, engine, [token, bobs], credential) = two_users().await;
    let (reached, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let service = Upstream::start(move |mut stream, _| {
        let reached = reached.clone();
        async move {
            let mut bytes = [0; 4096];
            let mut seen = stream.read(&mut bytes).await.unwrap_or(0);
            reached.send(()).ok();
            while seen > 0 {
                seen = stream.read(&mut bytes).await.unwrap_or(0);
            }
        }
    })
    .await;
    let tunnel = open(engine.agent_at(A, &token).await, guarded(), &service).await;
    let host = tunnel.hostname();
    let h2 = engine.visitor().h2(host).await;
    let request = |method, body| {
        http::Request::builder()
            .method(method)
            .uri(format!("https://{host}/"))
            .header("authorization", format!("Bearer {bobs}"))
            .body(body)
            .unwrap()
    };
    let sent = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"some of it")))]);
    let upload = StreamBody::new(sent.chain(futures_util::stream::pending())).boxed_unsync();
    let (mut waiting, mut sending) = (h2.clone(), h2);
    let waiting = waiting.send(request(http::Method::GET, testing::H2Visitor::empty()));
    let sending = sending.send(request(http::Method::POST, upload));
    let revoking = async {
        for _ in 0..2 {
            within("the service", arrivals.recv()).await.unwrap();
        }
        platform.revoke(&credential);
    };
    let (waiting, sending, ()) = tokio::join!(waiting, sending, revoking);
    for response in [waiting, sending] {
        let answer = testing::H2Visitor::collect(response.unwrap()).await;
        assert_eq!(answer.status, 403);
        assert_eq!(answer.json()["code"], "access_ended");
    }
}

/// EN-1: revoking the token aborts an upload, although its visitor reads nothing of the answer.
#[tokio::test]
async fn en_1_an_upload_whose_visitor_does_not_read_ends_with_its_token() {
    let (platform, engine, [token, bobs], credential) = two_users().await;
    let (reached, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let service = Upstream::start(move |mut stream, _| {
        let reached = reached.clone();
        async move {
            let mut bytes = vec![0; 64 * 1024];
            assert!(stream.read(&mut bytes).await.unwrap() > 0);
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n";
            stream.write_all(head).await.unwrap();
            reached.send(()).ok();
            // More than any window allows. Then the connection is stuck, and so is the stream.
            while stream.write_all(&[0; 16 * 1024]).await.is_ok() {}
        }
    })
    .await;
    let tunnel = open(engine.agent_at(A, &token).await, guarded(), &service).await;
    let host = tunnel.hostname();
    let mut h2 = engine.visitor().h2(host).await;
    let (more, mut pieces) = tokio::sync::mpsc::channel::<Bytes>(1);
    let body = futures_util::stream::poll_fn(move |cx| {
        let piece = pieces.poll_recv(cx);
        piece.map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    });
    let request = http::Request::post(format!("https://{host}/"))
        .header("authorization", format!("Bearer {bobs}"))
        .body(StreamBody::new(body).boxed_unsync())
        .unwrap();
    more.send(Bytes::from_static(b"some of it")).await.unwrap();
    let answer = within("the answer", h2.send(request)).await.unwrap();
    assert_eq!(answer.status(), 200);
    within("the service", arrivals.recv()).await.unwrap();
    let started_at = std::time::Instant::now();
    platform.revoke(&credential);
    // The library drops the body when the stream is reset.
    within("the end of the upload", more.closed()).await;
    assert!(
        started_at.elapsed() < std::time::Duration::from_secs(20),
        "not the limit for stalls"
    );
    drop(answer);
}

async fn with_bearer(mut visitor: RawVisitor, host: &str, token: &str) -> u16 {
    let bearer = format!("Authorization: Bearer {token}\r\n");
    visitor.request("GET", "/", host, &bearer).await;
    visitor.head().await.status
}

/// An agent whose credential is revoked is disconnected with its tunnels and their visitors.
#[tokio::test]
async fn an_agent_ends_with_its_credential_and_so_do_its_visitors() {
    let TwoProjects { platform, .. } = TwoProjects::start().await;
    platform.add_member("usr_bob", &[A]);
    let (credential, bobs) = platform.add_pat("usr_bob");
    let engine = TestEngine::managed(&platform).await;
    let service = endless().await;
    let agent = engine.agent_at(A, &bobs).await;
    let tunnel = open(agent, Properties::http(), &service).await;
    let visit = start_request(&engine, tunnel.hostname(), "/", None).await;
    platform.revoke(&credential);
    ends(visit).await;
    let status = engine.visitor().http1(tunnel.hostname()).await;
    let status = with_bearer(status, tunnel.hostname(), "").await;
    assert_eq!(status, 503, "the tunnel is offline");
}

/// Connections of a user who leaves the workspace are closed there, and stay open elsewhere.
#[tokio::test]
async fn connections_of_a_user_that_leaves_are_closed() {
    let TwoProjects {
        platform,
        ann: token,
        ..
    } = TwoProjects::start().await;
    platform.add_project(B);
    platform.add_member("usr_bob", &[A, B]);
    platform.add_member("usr_ann", &[A, B]);
    let (_, bobs) = platform.add_pat("usr_bob");
    let engine = TestEngine::managed(&platform).await;
    let service = endless().await;
    let here = open(engine.agent_at(A, &token).await, guarded(), &service).await;
    let there = open(engine.agent_at(B, &token).await, guarded(), &service).await;
    let cut = start_request(&engine, here.hostname(), "/", Some(&bobs)).await;
    let mut stays = start_request(&engine, there.hostname(), "/upgrade", Some(&bobs)).await;
    platform.add_member("usr_bob", &[B]);
    ends(cut).await;
    assert_open(&mut stays).await;
    let refused = with_bearer(
        engine.visitor().http1(here.hostname()).await,
        here.hostname(),
        &bobs,
    );
    assert_eq!(refused.await, 403);
    let served = engine.visitor().http1(there.hostname()).await;
    assert_eq!(with_bearer(served, there.hostname(), &bobs).await, 200);
}

/// A suspended project serves nothing, including connections that are already open, over any
/// protocol.
#[tokio::test]
async fn everything_of_a_suspended_project_ends() {
    let (platform, engine, agent, token) = one_agent(&tcp_ports()).await;
    let service = endless().await;
    let web = open(agent.clone(), Properties::http(), &service).await;
    let tcp = open(agent.clone(), Properties::tcp(), &service).await;
    let private = open(agent, Properties::private("db"), &service).await;
    let dialler = engine.agent_at(A, &token).await;
    let visit = start_request(&engine, web.hostname(), "/", None).await;
    let mut raw = tcp_visitor(&engine, &tcp).await;
    let mut dialled = within("a dial", dialler.dial("db")).await.unwrap();
    for stream in [&mut raw as &mut dyn Duplex, &mut dialled] {
        stream.write_all(b"x").await.unwrap();
        let mut ready = [0; 5];
        within("the service", stream.read_exact(&mut ready))
            .await
            .unwrap();
    }
    platform.add_project_with(A, |project| project.suspended = true);
    ends(visit).await;
    for stream in [&mut raw as &mut dyn Duplex, &mut dialled] {
        let mut rest = Vec::new();
        // Either a reset or a close is an end.
        within("the end", stream.read_to_end(&mut rest)).await.ok();
    }
    drop(private);
    assert!(
        Agent::connect(engine.agent_config_at(A, &token))
            .await
            .is_err()
    );
}

/// A host name that an operator takes down refuses its visitors, also those that are connected. The
/// other tunnels of the project are not affected.
#[tokio::test]
async fn everything_of_a_taken_down_hostname_ends() {
    let (platform, engine, agent, _) = one_agent("").await;
    let service = endless().await;
    let web = open(agent.clone(), Properties::http(), &service).await;
    let tls = open(agent.clone(), Properties::tls(), &service).await;
    let other = open(agent, Properties::http(), &service).await;
    let host = web.hostname();
    let config = engine.ca().client(&[]);
    let raw = engine.visitor().connect(tls.hostname(), &config).await;
    let mut raw = RawVisitor::new(raw);
    raw.send("x").await;
    assert_eq!(raw.read_exact(5).await.unwrap(), b"ready");
    let download = start_request(&engine, host, "/", None).await;
    let upgrade = start_request(&engine, host, "/upgrade", None).await;
    let mut stays = start_request(&engine, other.hostname(), "/upgrade", None).await;
    let mut idle = engine.visitor().http1(host).await;
    let names = vec![host.to_owned(), tls.hostname().to_owned()];
    platform.add_project_with(A, |project| project.taken_down = names);
    ends(raw).await;
    ends(download).await;
    ends(upgrade).await;
    let refused = idle.get("/", host).await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.json()["code"], "hostname_taken_down");
    assert_open(&mut stays).await;
    platform.add_project(A);
    engine.wait_for_changes().await;
    start_request(&engine, host, "/", None).await;
}

/// The answer does not depend on the agent: the operator is the one who can restore the name.
#[tokio::test]
async fn a_taken_down_hostname_is_refused_without_its_tunnel() {
    let (platform, engine, agent, _) = one_agent("").await;
    let service = endless().await;
    let web = open(agent, Properties::http(), &service).await;
    let host = web.hostname().to_owned();
    let never_online = format!("a-{host}");
    let names = vec![host.clone(), never_online.clone()];
    platform.add_project_with(A, |project| project.taken_down = names);
    web.close().await;
    engine.wait_for_changes().await;
    for name in [&host, &never_online] {
        let refused = engine.visitor().http1(name).await.get("/", name).await;
        assert_eq!(refused.status, 403, "{name}");
        assert_eq!(refused.json()["code"], "hostname_taken_down", "{name}");
    }
    platform.add_project(A);
    engine.wait_for_changes().await;
    let offline = engine.visitor().http1(&host).await.get("/", &host).await;
    assert_eq!(offline.json()["code"], "tunnel_offline");
}

pub(crate) trait Duplex:
    tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send
{
}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send> Duplex for S {}

pub(crate) fn tcp_ports() -> String {
    let ports = ports::lease_range(20);
    format!("tcp: {{port_range: '{}-{}'}}", ports.start(), ports.end())
}

pub(crate) async fn tcp_visitor(engine: &TestEngine, tunnel: &TestTunnel) -> tokio::net::TcpStream {
    let port = tunnel.online().properties.port.unwrap();
    tokio::net::TcpStream::connect((engine.addr().ip(), port))
        .await
        .unwrap()
}

/// The old secret of a rotated credential is valid until the overlap ends. Agents and visitors that
/// connected with it stay until then, and are disconnected at that time.
#[tokio::test]
async fn a_rotated_credential_stays_valid_until_its_overlap_ends() {
    let TwoProjects { platform, .. } = TwoProjects::start().await;
    let mut stored = None;
    let (credential, token) = platform.add_pat_with("usr_ann", |pat| stored = Some(pat.clone()));
    let engine = TestEngine::managed(&platform).await;
    let service = endless().await;
    let tunnel = open(engine.agent_at(A, &token).await, guarded(), &service).await;
    let mut visit = start_request(&engine, tunnel.hostname(), "/upgrade", Some(&token)).await;
    let overlap = jiff::Timestamp::now().as_second() + 3600;
    platform.send(vec![Item::Credential(Box::new(Credential {
        expires_at: Some(overlap),
        ..stored.unwrap()
    }))]);
    engine.wait_for_changes().await;
    let another = engine.visitor().http1(tunnel.hostname()).await;
    assert_eq!(with_bearer(another, tunnel.hostname(), &token).await, 200);
    let nothing = tokio::time::timeout(std::time::Duration::from_millis(300), visit.read_exact(1));
    assert!(nothing.await.is_err(), "the visit is open");
    platform.revoke(&credential);
    ends(visit).await;
}

/// A snapshot without changes ends nothing.
#[tokio::test]
async fn a_restored_link_disturbs_no_connection() {
    let TwoProjects {
        platform,
        ann: token,
        ..
    } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let service = endless().await;
    let tunnel = open(engine.agent_at(A, &token).await, guarded(), &service).await;
    let mut visit = start_request(&engine, tunnel.hostname(), "/upgrade", Some(&token)).await;
    platform.restore();
    platform.wait_for_engines(1).await;
    platform.add_member("usr_late", &[A]);
    engine.wait_for_changes().await;
    assert_open(&mut visit).await;
    let another = engine.visitor().http1(tunnel.hostname()).await;
    assert_eq!(with_bearer(another, tunnel.hostname(), &token).await, 200);
    assert_open(&mut visit).await;
}
