//! `svc up --public` with mistakes, which are found before anything is started.

use std::net::TcpListener;

use crate::installed::tcp_ports;
use crate::program::Home;

const HOST: &str = "engine.example.com";
const EMAIL: &str = "ada@example.com";

#[tokio::test]
async fn mistakes_are_found_before_the_start() {
    let home = Home::new();
    let address = ["--public-address", "203.0.113.7"];
    for (args, expected) in [
        (vec!["--public", HOST], "--email"),
        (vec!["--email", EMAIL], "--public"),
        (
            vec!["--public", HOST, "--email", EMAIL, "--community"],
            "--community",
        ),
        (
            vec!["--public", "203.0.113.7", "--email", EMAIL],
            "certificates are for names",
        ),
        (
            vec!["--public", "localhost", "--email", EMAIL],
            "this machine",
        ),
        (
            vec!["--public", "https://engine.example.com", "--email", EMAIL],
            "is not a host name",
        ),
        (
            vec!["--public", HOST, "--email", "ada"],
            "is not an email address",
        ),
        (vec!["--public", HOST, "--email", EMAIL], "--agree-terms"),
        (
            vec![
                "--public",
                HOST,
                "--email",
                EMAIL,
                "--agree-terms",
                "--resolver",
                "ns1",
            ],
            "--resolver",
        ),
        (
            vec![
                "--public",
                HOST,
                "--email",
                EMAIL,
                "--agree-terms",
                "--turn-tls-port",
                "0",
            ],
            "--turn-tls-port",
        ),
        (
            vec!["--public", HOST, "--email", EMAIL, "--dns-update", "ns1"],
            "--dns-key",
        ),
        (
            vec![
                "--public",
                HOST,
                "--email",
                EMAIL,
                "--staging",
                "--acme-directory",
                "https://ca.example",
            ],
            "--staging",
        ),
    ] {
        let mut all = [&["up"][..], args.as_slice()].concat();
        if args.contains(&"--public") {
            all.extend(address);
        }
        let output = home.run(&all).await;
        assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
        assert!(output.stderr.contains(expected), "{args:?}: {output:?}");
    }
    assert!(!home.path().join(".local/share/svc").exists());
}

#[tokio::test]
async fn all_ports_in_use_are_reported_together() {
    let home = Home::new();
    let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = taken.each_ref().map(|listener| {
        let address = listener.local_addr().unwrap();
        address.port().to_string()
    });
    let turn_tls = ports::lease().to_string();
    let output = home
        .run(&[
            "up",
            "--public",
            HOST,
            "--email",
            EMAIL,
            "--agree-terms",
            "--skip-dns-check",
            "--public-address",
            "127.0.0.1",
            "--listen-address",
            "127.0.0.1",
            "--port",
            &ports[0],
            "--http-port",
            &ports[1],
            "--metrics-port",
            "0",
            "--platform-port",
            "0",
            "--turn-port",
            "0",
            "--turn-tls-port",
            &turn_tls,
            "--dns-port",
            "0",
            "--tcp-ports",
            &tcp_ports(),
        ])
        .await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("server_not_prepared"), "{output:?}");
    for port in ports {
        let line = format!("port    127.0.0.1:{port} (TCP");
        assert!(output.stderr.contains(&line), "{output:?}");
    }
}

#[tokio::test]
async fn the_directory_of_a_local_server_is_not_used() {
    let home = Home::new();
    let data = home.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let saved = r#"{"admin_email": "admin@localhost"}"#;
    std::fs::write(data.join("up.json"), saved).unwrap();
    let output = home
        .run(&[
            "up",
            "--public",
            HOST,
            "--email",
            EMAIL,
            "--agree-terms",
            "--public-address",
            "127.0.0.1",
            "--data-dir",
            data.to_str().unwrap(),
        ])
        .await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("without --public"), "{output:?}");
}
