//! `svc domain`: custom domains, with a name server on loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;
use serde_json::json;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::long_sequence::create_project;
use crate::hosted::HostedPlatform;
use crate::program::Home;

/// A name server without records, or with those of one domain once they are published.
struct NameServer {
    port: u16,
    has_records: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl NameServer {
    /// `texts` becomes the ownership record of every name, and `target` the alias.
    async fn start(records: Arc<std::sync::Mutex<(String, String)>>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let has_records = Arc::new(AtomicBool::new(false));
        let published = Arc::clone(&has_records);
        let task = tokio::spawn(async move {
            let mut buffer = [0; 1_500];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                let (proof, target) = records.lock().unwrap().clone();
                let published = published.load(Ordering::Acquire);
                let reply = reply(&buffer[..length], published.then_some((&proof, &target)));
                // The client may have ended its wait.
                drop(socket.send_to(&reply, from).await);
            }
        });
        Self {
            port,
            has_records,
            task,
        }
    }
}

/// An authoritative response (RFC 1035 section 4.1) to a question: a TXT record for a question for
/// one, a CNAME record for all others, or no such name.
fn reply(question: &[u8], records: Option<(&String, &String)>) -> Vec<u8> {
    let mut end = 12;
    while question[end] != 0 {
        end += usize::from(question[end]) + 1;
    }
    let is_text = question[end + 2] == 16;
    end += 5;
    let mut reply = question[..end].to_vec();
    // A response with authority, one question, and perhaps one answer.
    let answers = u8::from(records.is_some());
    let code = if records.is_some() { 0 } else { 3 };
    reply[2..12].copy_from_slice(&[0x84, code, 0, 1, 0, answers, 0, 0, 0, 0]);
    let Some((proof, target)) = records else {
        return reply;
    };
    let (kind, data) = if is_text {
        (
            16,
            [&[u8::try_from(proof.len()).unwrap()], proof.as_bytes()].concat(),
        )
    } else {
        (5, encoded(target))
    };
    // The name of the question, the type, the class, a minute, and the data.
    reply.extend_from_slice(&[0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60]);
    reply.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
    reply.extend_from_slice(&data);
    reply
}

fn encoded(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// The whole life of a domain in the command line.
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn a_domain_is_added_verified_and_removed() {
    let home = Home::new();
    let records = Arc::new(std::sync::Mutex::new((String::new(), String::new())));
    let dns = NameServer::start(Arc::clone(&records)).await;
    let domains = json!({
        "root_servers": ["127.0.0.1"],
        "name_server_port": dns.port,
        "allow_private_nameservers": true,
    });
    let platform = HostedPlatform::start_with(&home, json!({ "domains": domains })).await;
    platform.login(&home).await;
    create_project(&home, "shop").await;
    let run = async |args: &[&str]| {
        let project = ["--project", "shop"];
        home.run(&[&["domain"][..], args, &project].concat()).await
    };
    let json = ["-o", "json"];
    let json = async |args: &[&str]| run(&[args, &json].concat()).await.json();

    let added = json(&["add", "App.Example.com", "--no-wait"]).await;
    assert_eq!(added["hostname"], "app.example.com");
    assert_eq!(added["status"], "pending");
    let value = |at: usize| added["records"][at]["value"].as_str().unwrap().to_owned();
    *records.lock().unwrap() = (value(0), value(1));
    let text = run(&["add", "app.example.com", "--no-wait"]).await;
    assert_eq!(text.code, Some(0), "{text:?}");
    let rows: Vec<_> = text.stdout.lines().collect();
    let expected = [
        format!("TXT\t_svc-challenge.app.example.com\t{}", value(0)),
        format!("CNAME\tapp.example.com\t{}", value(1)),
    ];
    assert_eq!(rows, expected);
    let others = format!("ALIAS {}, or A and AAAA with the addresses", value(1));
    assert!(text.stderr.contains(&others), "{text:?}");

    // The failure names the record.
    let early = run(&["verify", "app.example.com"]).await;
    assert_eq!(early.code, Some(1), "{early:?}");
    assert!(early.stderr.contains("domain_not_verified"), "{early:?}");
    assert!(early.stderr.contains(&value(0)), "{early:?}");

    // A wait prints what is missing, and ends once the records are there.
    let wait = ["domain", "add", "app.example.com", "--project", "shop"];
    let mut waiting = home.start(&wait);
    waiting
        .wait_for_stderr("ownership: The record is missing")
        .await;
    waiting.signal(Signal::SIGINT);
    let interrupted = waiting.ended().await;
    assert_eq!(interrupted.code, Some(1), "{interrupted:?}");
    let hint = "the platform continues to check";
    assert!(interrupted.stderr.contains(hint), "{interrupted:?}");
    let mut waiting = home.start(&wait);
    waiting
        .wait_for_stderr("ownership: The record is missing")
        .await;
    dns.has_records.store(true, Ordering::Release);
    let ended = waiting.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stderr.contains("app.example.com is verified"),
        "{ended:?}"
    );

    // A certificate of the project's own.
    let made = rcgen::generate_simple_self_signed(["app.example.com".to_owned()]).unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| home.path().join(name));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let [cert, key] = [&cert, &key].map(|path| path.to_str().unwrap());
    let set = async |key: &str| {
        let files = ["app.example.com", "--cert", cert, "--key", key];
        run(&[&["certificate", "set"][..], &files].concat()).await
    };
    let uploaded = set(key).await;
    assert_eq!(uploaded.code, Some(0), "{uploaded:?}");
    let shown = run(&["show", "app.example.com"]).await;
    let expected = "uploaded, expires 4096-01-01T00:00:00.000Z";
    assert!(shown.stdout.contains(expected), "{shown:?}");
    let mistaken = set(cert).await;
    assert_ne!(mistaken.code, Some(0), "{mistaken:?}");
    assert!(mistaken.stderr.contains("privateKey"), "{mistaken:?}");
    let missing = set("absent.pem").await;
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("check --key"), "{missing:?}");
    let removed = run(&["certificate", "remove", "app.example.com"]).await;
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let shown = run(&["show", "app.example.com"]).await;
    assert!(shown.stdout.contains("ordered by the engine"), "{shown:?}");

    let id = added["id"].as_str().unwrap();
    let listed = json(&["list"]).await;
    assert_eq!(listed["domains"][0]["id"], id);
    assert_eq!(listed["domains"][0]["status"], "verified");
    assert_eq!(
        json(&["show", &id[..12]]).await["hostname"],
        "app.example.com"
    );
    let other = run(&["show", "other.example.com"]).await;
    assert_eq!(other.code, Some(1), "{other:?}");
    let unasked = run(&["remove", "app.example.com"]).await;
    assert_eq!(unasked.code, Some(2), "{unasked:?}");
    let start = run(&["remove", &id[..12], "--yes"]).await;
    assert_eq!(start.code, Some(2), "{start:?}");
    let removed = run(&["remove", "APP.example.com", "--yes"]).await;
    assert_eq!(removed.code, Some(0), "{removed:?}");
    // The plural is another word for the group.
    let empty = home
        .run(&["domains", "list", "--project", "shop", "-o", "json"])
        .await;
    assert_eq!(empty.json(), json!({"domains": []}));
}

#[tokio::test]
async fn a_refusal_names_the_reason() {
    let home = Home::new();
    let platform = HostedPlatform::start(&home, json!({})).await;
    platform.login(&home).await;
    create_project(&home, "shop").await;
    for (name, reason) in [
        ("co.uk", "public suffix"),
        ("10.0.0.1", "IP address"),
        ("a.engine.example.com", "belongs to the platform"),
    ] {
        let refused = home
            .run(&["domain", "add", name, "--no-wait", "--project", "shop"])
            .await;
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert!(refused.stderr.contains(reason), "{refused:?}");
    }
}
