//! CP-4g: paid objects are created only after their preview was shown and confirmed.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::hosted::HostedPlatform;
use crate::installed::up;
use crate::local_platform::long_sequence::fingerprint;
use crate::program::Home;
use crate::terminal::TerminalCommand;

/// CP-4g: without a terminal, the fingerprint of a preview is the only confirmation.
#[tokio::test]
async fn cp_4g_a_program_repeats_the_fingerprint() {
    let home = Home::new();
    let _up = up(&home, &[]).await;
    let projects =
        async || home.run(&["project", "list", "-o", "json"]).await.json()["total"].clone();

    let unseen = home.run(&["project", "create", "new"]).await;
    assert_eq!(unseen.code, Some(2), "{unseen:?}");
    assert!(unseen.stderr.contains("No charge"), "{unseen:?}");
    assert!(unseen.stderr.contains("--confirm "), "{unseen:?}");
    let blind = home.run(&["project", "create", "new", "--yes"]).await;
    assert_eq!(blind.code, Some(2), "{blind:?}");
    assert!(blind.stderr.contains("--preview"), "{blind:?}");
    // A fingerprint may start with a dash.
    let other = home
        .run(&["project", "create", "new", "--confirm", "-other"])
        .await;
    assert_eq!(other.code, Some(4), "{other:?}");
    assert!(other.stderr.contains("No charge"), "{other:?}");
    assert_eq!(projects().await, 1);

    let preview = home
        .run(&["project", "create", "--preview", "-o", "json"])
        .await
        .json();
    let shown_fingerprint = fingerprint(&preview, "basic");
    assert!(
        unseen.stderr.contains(&shown_fingerprint),
        "the hint equals the preview"
    );
    // The fingerprint of one plan confirms no other.
    let pro = [
        "project",
        "create",
        "new",
        "--plan",
        "pro",
        "--confirm",
        &shown_fingerprint,
    ];
    assert_eq!(home.run(&pro).await.code, Some(4));
    let made = home
        .run(&[
            "project",
            "create",
            "new",
            "--confirm",
            &shown_fingerprint,
            "-o",
            "json",
        ])
        .await
        .json();
    assert_eq!(made["name"], "new");
    assert_eq!(projects().await, 2);
    let text = home.run(&["project", "create", "--preview"]).await;
    assert!(text.stdout.contains("19.00 EUR every month"), "{text:?}");
}

/// CP-4g, CP-4d: a step that needs a hosted page prints its address, and creates nothing.
#[tokio::test]
async fn cp_4g_a_payment_is_made_on_its_page() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let preview = home
        .run(&["project", "create", "--preview", "-o", "json"])
        .await
        .json();
    let shown_fingerprint = fingerprint(&preview, "pro");
    let args = [
        "project",
        "create",
        "shop",
        "--plan",
        "pro",
        "--confirm",
        &shown_fingerprint,
    ];
    let output = home.run(&args).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    let url = output.stdout.trim();
    let base = up.ready_field("base_url");
    assert!(
        url.starts_with(&format!("{base}/billing/checkout?")),
        "{url}"
    );
    let answer = home.run(&[&args[..], &["-o", "json"]].concat()).await;
    let answer: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(answer, json!({"status": "payment_required", "url": url}));
}

/// CP-4g: a user at a terminal sees the impact and a question. Declining creates nothing.
#[tokio::test]
async fn cp_4g_a_user_confirms_after_seeing_the_impact() {
    let home = Home::new();
    let _up = up(&home, &[]).await;
    let mut prompt = TerminalCommand::start(&home, &["project", "create", "new"]);
    let shown = prompt.until("[y/N]").await;
    for text in [
        "new",
        "Basic",
        "No charge",
        "other/local",
        "Create project?",
    ] {
        assert!(shown.contains(text), "{text} is missing in {shown}");
    }
    prompt.answer("n\n");
    let (code, _rest) = prompt.ended().await;
    assert_eq!(code, Some(1));
    let mut prompt = TerminalCommand::start(&home, &["project", "create", "new"]);
    prompt.until("[y/N]").await;
    prompt.answer("yes\n");
    let (code, stdout) = prompt.ended().await;
    assert_eq!(code, Some(0));
    assert!(stdout.contains("new"), "{stdout}");
}

/// CP-4g, CP-4b: an offer that changes during the question is shown and confirmed again.
#[tokio::test]
async fn cp_4g_a_stale_offer_is_confirmed_again() {
    let home = Home::new();
    let region = |name: &str| json!({"provider": "aws", "region": name, "capacity": {"basic": 1}});
    let catalog = json!({"regions": [region("one"), region("two")]});
    let platform = HostedPlatform::start(&home, catalog).await;
    platform.login(&home).await;
    let create = |name: &'static str, place: &'static str| {
        [
            "project", "create", name, "--plan", "basic", "--region", place,
        ]
    };
    let mut prompt = TerminalCommand::start(&home, &create("mine", "aws/one"));
    prompt.until("[y/N]").await;
    // Another user takes the slot in the other region, so the preview is stale.
    let preview = home
        .run(&["project", "create", "--preview", "-o", "json"])
        .await
        .json();
    let shown_fingerprint = fingerprint(&preview, "basic");
    let theirs = [
        &create("theirs", "aws/two")[..],
        &["--confirm", &shown_fingerprint, "-o", "json"],
    ];
    home.run(&theirs.concat()).await.json();
    prompt.answer("y\n");
    let again = prompt.until("[y/N]").await;
    assert!(again.contains("has changed"), "{again}");
    let list = home.run(&["project", "list", "-o", "json"]).await.json();
    assert_eq!(list["total"], 1, "the stale answer created nothing");
    prompt.answer("y\n");
    let (code, stdout) = prompt.ended().await;
    assert_eq!(code, Some(0), "{stdout}");
    let list = home.run(&["project", "list", "-o", "json"]).await.json();
    assert_eq!(list["total"], 2);
    // Without a free slot the plan is unavailable.
    let full = home.run(&create("more", "aws/one")).await;
    assert_eq!(full.code, Some(5), "{full:?}");
}

/// CP-4a: one invocation creates one project, even if the first answer is lost.
#[tokio::test]
async fn cp_4a_a_lost_answer_does_not_create_twice() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let proxy = losing_the_first_answer(up.ready_field("base_url")).await;
    let preview = home
        .run(&["project", "create", "--preview", "-o", "json"])
        .await
        .json();
    let shown_fingerprint = fingerprint(&preview, "basic");
    let args = [
        "project",
        "create",
        "once",
        "--confirm",
        &shown_fingerprint,
        "-o",
        "json",
    ];
    let through = ["--api-url", &proxy, "--token", up.ready_field("token")];
    let made = home.run(&[&args[..], &through].concat()).await.json();
    let list = home.run(&["project", "list", "-o", "json"]).await.json();
    assert_eq!(list["total"], 2, "{list}");
    assert_eq!(list["projects"][1]["id"], made["id"]);
}

/// A proxy that drops the first answer to a POST and forwards everything else. Returns its address.
async fn losing_the_first_answer(base_url: &str) -> String {
    let upstream: reqwest::Url = base_url.parse().unwrap();
    let upstream = (Ipv4Addr::LOCALHOST, upstream.port().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let lost = Arc::new(AtomicBool::new(false));
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(upstream).await.unwrap();
            tokio::spawn(between(client, server, Arc::clone(&lost)));
        }
    });
    format!("http://{address}")
}

async fn between(mut client: TcpStream, mut server: TcpStream, lost: Arc<AtomicBool>) {
    let (mut up, mut down) = ([0; 16 * 1024], [0; 16 * 1024]);
    let mut loses = false;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(1..) = read else { return };
                let request = &up[..read.unwrap()];
                if request.starts_with(b"POST ") {
                    loses = !lost.swap(true, Ordering::SeqCst);
                }
                server.write_all(request).await.unwrap();
            }
            read = server.read(&mut down) => {
                let Ok(1..) = read else { return };
                // The platform has answered, and the connection breaks.
                if loses {
                    return;
                }
                client.write_all(&down[..read.unwrap()]).await.unwrap();
            }
        }
    }
}
