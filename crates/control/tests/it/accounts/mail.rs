//! Mail over a test server that accepts, refuses, hangs, closes, and supports STARTTLS.

mod server;

use std::path::Path;
use std::time::{Duration, Instant};

use control::config::Config;
use control::mail::{MailError, Mailer, Message};
use control::people::email::Email;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::server::{Behaviour, MailServer, PASSWORD};
use crate::support::TestControl;

fn section(server: &MailServer, directory: &Path, more: &Value) -> Value {
    let password = directory.join("mail-password");
    std::fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    let authority = directory.join("mail-ca.pem");
    std::fs::write(&authority, server.authority()).unwrap();
    let mut smtp = json!({
        "host": "localhost",
        "port": server.port(),
        "username": "svc",
        "password_file": password,
        "ca_file": authority,
    });
    for (key, value) in more.as_object().unwrap() {
        smtp[key] = value.clone();
    }
    smtp.as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null());
    json!({"from": "Our Tunnels <no-reply@svc.example.com>", "smtp": smtp})
}

fn mailer(server: &MailServer, more: &Value) -> Mailer {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("control.yaml");
    let config = json!({
        "platform": {"base_url": "https://svc.example.com"},
        "mail": section(server, directory.path(), more),
    });
    std::fs::write(&file, config.to_string()).unwrap();
    let config = Config::load(Some(&file), []).unwrap();
    Mailer::open(&config).unwrap()
}

fn message() -> Message {
    let to = Email::parse("ada@example.com").unwrap();
    Message::new(to, "Hellö", "A secret line.\n.\nAnd one after a dot.\n")
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mail_is_sent_over_tls_with_authentication() {
    for (tls, implicit) in [("starttls", false), ("implicit", true)] {
        let server = MailServer::start(Behaviour::Takes, implicit).await;
        let mailer = mailer(&server, &json!({"tls": tls}));
        mailer.send(message(), now()).await.unwrap();
        let mails = server.mails();
        assert_eq!(mails.len(), 1, "{tls}");
        let mail = &mails[0];
        assert_eq!(mail.from, "no-reply@svc.example.com");
        assert_eq!(mail.to, "ada@example.com");
        assert!(mail.was_encrypted && mail.was_signed_in, "{tls}");
        let text = &mail.text;
        assert!(
            text.contains("From: Our Tunnels <no-reply@svc.example.com>\r\n"),
            "{text}"
        );
        assert!(text.contains("@svc.example.com>\r\n"), "{text}");
        assert!(
            text.ends_with("A secret line.\r\n.\r\nAnd one after a dot.\r\n"),
            "{text}"
        );
    }
}

/// A server without TLS, or with an untrusted certificate, receives nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_to_an_unauthenticated_server() {
    let server = MailServer::start(Behaviour::OffersNoTls, false).await;
    let in_the_clear = mailer(&server, &json!({"tls": "starttls"}));
    in_the_clear.retry_now();
    let refused = in_the_clear.send(message(), now()).await;
    assert!(matches!(refused, Err(MailError::NotOffered)), "{refused:?}");

    let server = MailServer::start(Behaviour::Takes, false).await;
    let distrustful = mailer(&server, &json!({"tls": "starttls", "ca_file": null}));
    distrustful.retry_now();
    let refused = distrustful.send(message(), now()).await;
    assert!(matches!(refused, Err(MailError::Connection)), "{refused:?}");
    assert!(server.mails().is_empty() && !server.has_recipient());
}

/// RFC 6531: a server accepts addresses beyond ASCII only if it announces SMTPUTF8. Otherwise the error
/// names the missing extension, and no retry can help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_beyond_ascii_needs_the_support_of_the_server() {
    let to = Email::parse("Jörg@example.com").unwrap();
    let message = Message::new(to, "Hello", "A line.\n");
    let server = MailServer::start(Behaviour::TakesAnyAddress, false).await;
    let capable = mailer(&server, &json!({}));
    capable.send(message.clone(), now()).await.unwrap();
    let mails = server.mails();
    let mail = &mails[0];
    assert_eq!(mail.to, "jörg@example.com");
    assert!(mail.parameters.contains("SMTPUTF8"), "{}", mail.parameters);
    assert!(
        mail.text.contains("\r\nTo: jörg@example.com\r\n"),
        "{}",
        mail.text
    );

    let server = MailServer::start(Behaviour::Takes, false).await;
    let older = mailer(&server, &json!({}));
    let refused = older.send(message, now()).await.unwrap_err();
    assert!(matches!(refused, MailError::AsciiOnly), "{refused:?}");
    assert!(refused.to_string().contains("SMTPUTF8"), "{refused}");
    assert_eq!((server.mails().len(), server.connections()), (0, 1));
}

/// The server's text may repeat the recipient. Only its code is logged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permanent_refusal_is_not_retried_and_logged_without_addresses() {
    let server = MailServer::start(Behaviour::RefusesForGood, false).await;
    let mailer = mailer(&server, &json!({}));
    let refused = mailer.send(message(), now()).await.unwrap_err();
    assert!(matches!(refused, MailError::Refused(550)), "{refused:?}");
    let error_text = format!("{refused} {refused:?}");
    assert!(!error_text.contains("ada"), "{error_text}");
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_temporary_refusal_is_retried() {
    for does in [Behaviour::RefusesOnce, Behaviour::ClosesOnce] {
        let server = MailServer::start(does, false).await;
        let mailer = mailer(&server, &json!({}));
        let sending = tokio::spawn({
            let mailer = mailer.clone();
            async move { mailer.send(message(), now()).await }
        });
        // The wait between the attempts is interrupted, as at the end of the process.
        server.connected().await;
        mailer.retry_now();
        sending.await.unwrap().unwrap();
        assert_eq!(
            (server.mails().len(), server.connections()),
            (1, 2),
            "{does:?}"
        );
    }
}

/// The server owns the mail once it has accepted it. A later error is not a failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_closes_without_quit_gets_the_mail_once() {
    let server = MailServer::start(Behaviour::ClosesAfterTaking, false).await;
    let mailer = mailer(&server, &json!({}));
    mailer.send(message(), now()).await.unwrap();
    assert_eq!((server.mails().len(), server.connections()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_times_out() {
    let server = MailServer::start(Behaviour::Hangs, false).await;
    let mailer = mailer(&server, &json!({}));
    mailer.retry_now();
    let refused = mailer.send(message(), now()).await;
    assert!(
        matches!(refused, Err(MailError::Connection | MailError::TooSlow)),
        "{refused:?}"
    );
}

/// Of many mails a few are being sent at a time. The others wait in a bounded queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mails_wait_for_a_few_connections_in_a_bounded_queue() {
    let send_all = |mailer: &Mailer, count: usize| {
        let mut sending = JoinSet::new();
        for _ in 0..count {
            let mailer = mailer.clone();
            sending.spawn(async move { mailer.send(message(), now()).await });
        }
        sending
    };
    let server = MailServer::start(Behaviour::Takes, false).await;
    let sent = send_all(&mailer(&server, &json!({})), 40).join_all().await;
    assert!(sent.iter().all(Result::is_ok));
    assert_eq!(server.mails().len(), 40);
    assert!(server.most_at_once() <= 4, "{}", server.most_at_once());

    let server = MailServer::start(Behaviour::Hangs, false).await;
    let mut sending = send_all(&mailer(&server, &json!({})), 257);
    let first = tokio::time::timeout(Duration::from_mins(1), sending.join_next()).await;
    let first = first.expect("one mail does not fit").unwrap().unwrap();
    assert!(matches!(first, Err(MailError::QueueFull)), "{first:?}");
    assert!(sending.try_join_next().is_none(), "256 have room");
}

/// Requests do not wait for mail. Neither the answer nor its time reveals whether an account
/// exists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_does_not_wait_for_a_mail_server_that_hangs() {
    let server = MailServer::start(Behaviour::Hangs, false).await;
    let directory = tempfile::tempdir().unwrap();
    let mail = section(&server, directory.path(), &json!({}));
    let control = TestControl::start(&format!("mail: {mail}")).await;
    control.person("Ada").await;
    let started_at = Instant::now();
    let mut pages = Vec::new();
    for email in ["ada@example.com", "nobody@example.com"] {
        let mut browser = control.browser();
        let answer = browser.submit("/reset", &[("email", email)]).await;
        assert_eq!(answer.status, StatusCode::OK);
        pages.push(answer.text);
    }
    assert_eq!(pages[0], pages[1]);
    server.connected().await;
    // The server does not answer for ten seconds at least.
    assert!(
        started_at.elapsed() < Duration::from_secs(9),
        "{:?}",
        started_at.elapsed()
    );
}
