use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

fn address(text: &str) -> HostPort {
    text.parse().unwrap()
}

fn environment(variables: &[(&str, &str)]) -> Proxies {
    Proxies::from_environment(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

/// The proxy of a connection with TLS, or the reason for its absence.
fn route(proxies: &Proxies, target: &str) -> String {
    match proxies.route(&address(target), true) {
        Ok(Route::Proxy(proxy)) => proxy.to_string(),
        Ok(Route::Direct(reason)) => format!("{reason:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn proxies_are_parsed() {
    for (text, shown, url) in [
        (
            "proxy.example",
            "http://proxy.example:80",
            "http://proxy.example:80",
        ),
        ("proxy:3128", "http://proxy:3128", "http://proxy:3128"),
        (
            "HTTP://proxy:3128/",
            "http://proxy:3128",
            "http://proxy:3128",
        ),
        ("http://[::1]", "http://[::1]:80", "http://[::1]:80"),
        (
            "http://[::1]:3128",
            "http://[::1]:3128",
            "http://[::1]:3128",
        ),
        (
            "socks5://proxy",
            "socks5://proxy:1080",
            "socks5h://proxy:1080",
        ),
        (
            "socks5h://10.0.0.1:1",
            "socks5://10.0.0.1:1",
            "socks5h://10.0.0.1:1",
        ),
        (
            "http://ada:s%40cret@proxy:1",
            "http://proxy:1",
            "http://ada:s%40cret@proxy:1",
        ),
        (
            "socks5://ada@proxy:1",
            "socks5://proxy:1",
            "socks5h://ada:@proxy:1",
        ),
    ] {
        let proxy: Proxy = text.parse().unwrap();
        assert_eq!(proxy.to_string(), shown, "{text}");
        assert_eq!(proxy.expose_url(), url, "{text}");
    }
}

#[test]
fn settings_that_cannot_be_used_are_refused_without_their_text() {
    let long = format!("http://{}:x@proxy:1", "u".repeat(256));
    for text in [
        "",
        "http://",
        "http://proxy:0",
        "http://proxy:1/path",
        "http://ada:hunter2@pro xy:1",
        "https://ada:hunter2@proxy:443",
        "socks4://ada:hunter2@proxy:1",
        "http://:hunter2@proxy:1",
        "http://a%3Ab:hunter2@proxy:1",
        "http://ada:hunter2%0d%0ax@proxy:1",
        "http://ada:hunter2@https://proxy",
        &long,
    ] {
        let error = text.parse::<Proxy>().unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{text}: {error}");
    }
}

#[test]
fn debug_output_leaves_the_password_out() {
    let proxy: Proxy = "http://ada:hunter2@proxy:1".parse().unwrap();
    let shown = format!("{proxy:?} {:?} {proxy}", Proxies::new(proxy.clone()));
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn the_environment_selects_the_proxy() {
    let target = "engine.example:443";
    let of = |variables: &[(&str, &str)]| route(&environment(variables), target);
    assert_eq!(of(&[]), "Unset");
    assert_eq!(of(&[("HTTPS_PROXY", " ")]), "Unset");
    assert_eq!(
        of(&[("HTTP_PROXY", "http://p:1"), ("http_proxy", "http://p:1")]),
        "Unset"
    );
    assert_eq!(of(&[("HTTPS_PROXY", "http://p:1")]), "http://p:1");
    assert_eq!(
        of(&[("HTTPS_PROXY", "http://p:1"), ("https_proxy", "http://p:2")]),
        "http://p:2"
    );
    assert_eq!(of(&[("ALL_PROXY", "socks5://p:1")]), "socks5://p:1");
    assert_eq!(
        of(&[("ALL_PROXY", "socks5://p:1"), ("HTTPS_PROXY", "http://p:1")]),
        "http://p:1"
    );
    assert!(of(&[("HTTPS_PROXY", "https://p:1")]).contains("HTTPS_PROXY"));
    assert!(of(&[("all_proxy", "p:x")]).starts_with("all_proxy"));
    let proxies = environment(&[("HTTPS_PROXY", "http://p:1")]);
    let Ok(Route::Proxy(proxy)) = proxies.route(&address(target), true) else {
        panic!("{proxies:?}");
    };
    assert_eq!(proxy.variable(), Some("HTTPS_PROXY"));
    let plain = environment(&[("http_proxy", "http://p:1"), ("HTTPS_PROXY", "http://p:2")]);
    let Ok(Route::Proxy(proxy)) = plain.route(&address(target), false) else {
        panic!("{plain:?}");
    };
    assert_eq!(proxy.to_string(), "http://p:1");
}

/// A setting that cannot be used does not affect addresses without a proxy.
#[test]
fn this_machine_is_never_reached_through_a_proxy() {
    for setting in ["http://p:1", "https://p:1"] {
        let proxies = environment(&[("ALL_PROXY", setting)]);
        for target in [
            "localhost:443",
            "LOCALHOST.:443",
            "web.t.engine.localhost:443",
            "127.0.0.1:443",
            "127.8.8.8:443",
            "0.0.0.0:443",
            "[::1]:443",
            "[::]:443",
            "[::ffff:127.0.0.1]:443",
        ] {
            assert_eq!(route(&proxies, target), "ThisMachine", "{target}");
        }
        for target in ["localhost.example:443", "10.0.0.1:443", "[::2]:443"] {
            assert_ne!(route(&proxies, target), "ThisMachine", "{target}");
        }
    }
}

#[test]
fn exceptions_are_names_addresses_and_networks() {
    let list = "intern.example, .dot.example *.star.example,10.1.0.0/16 192.0.2.7,\
                2001:db8::/32,ported.example:8443,[2001:db9::1]:444,bad/x,:1";
    let proxies = environment(&[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", list)]);
    for target in [
        "intern.example:443",
        "INTERN.example.:443",
        "a.b.intern.example:443",
        "dot.example:1",
        "x.dot.example:1",
        "x.star.example:1",
        "10.1.255.1:443",
        "192.0.2.7:443",
        "[::ffff:192.0.2.7]:443",
        "[2001:db8:1::1]:443",
        "ported.example:8443",
        "[2001:db9::1]:444",
    ] {
        assert_eq!(route(&proxies, target), "Exception", "{target}");
    }
    for target in [
        "notintern.example:443",
        "example:443",
        "10.2.0.1:443",
        "192.0.2.8:443",
        "[2001:db9::1]:443",
        "ported.example:443",
    ] {
        assert_eq!(route(&proxies, target), "http://p:1", "{target}");
    }
    let all = environment(&[("HTTPS_PROXY", "http://p:1"), ("no_proxy", "*")]);
    assert_eq!(route(&all, "engine.example:443"), "Exception");
}

/// Runs the client side against a proxy with a fixed response. Returns the result and the bytes
/// that the proxy received.
async fn exchange(proxy: &str, target: &str, answer: &[u8]) -> (Result<(), ProxyFault>, Vec<u8>) {
    let proxy: Proxy = proxy.parse().unwrap();
    let target = address(target);
    let (mut ours, mut theirs): (DuplexStream, DuplexStream) = duplex(64 * 1024);
    theirs.write_all(answer).await.unwrap();
    theirs.shutdown().await.unwrap();
    let login = proxy.login.as_ref();
    let result = match proxy.protocol {
        ProxyProtocol::Http => http_connect::open(&mut ours, &target, login).await,
        ProxyProtocol::Socks5 => socks5::open(&mut ours, &target, login).await,
    };
    drop(ours);
    let mut received = Vec::new();
    theirs.read_to_end(&mut received).await.unwrap();
    (result, received)
}

async fn fault(proxy: &str, answer: &[u8]) -> String {
    let (result, _received) = exchange(proxy, "engine.example:443", answer).await;
    result.map_or_else(|fault| fault.to_string(), |()| "open".to_owned())
}

#[tokio::test]
async fn http_requests_name_the_target_and_carry_the_login() {
    let ok = b"HTTP/1.0 200 Connection established\r\nProxy-agent: x\r\n\r\n";
    let (result, sent) = exchange("http://p:1", "engine.example:443", ok).await;
    result.unwrap();
    assert_eq!(
        String::from_utf8(sent).unwrap(),
        "CONNECT engine.example:443 HTTP/1.1\r\nHost: engine.example:443\r\n\r\n"
    );
    let (result, sent) =
        exchange("http://Aladdin:open%20sesame@p:1", "[2001:db8::1]:443", ok).await;
    result.unwrap();
    assert_eq!(
        String::from_utf8(sent).unwrap(),
        "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\
         Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n"
    );
}

#[tokio::test]
async fn http_refusals_are_distinguished() {
    let basic = b"HTTP/1.1 407 x\r\nProxy-Authenticate: Negotiate, Basic realm=\"x\"\r\n\r\n";
    let ntlm = b"HTTP/1.1 407 x\r\nProxy-Authenticate: NTLM\r\n\r\n";
    assert!(
        fault("http://p:1", basic)
            .await
            .contains("requires a user name")
    );
    assert!(
        fault("http://a:b@p:1", basic)
            .await
            .contains("does not accept")
    );
    assert!(fault("http://a:b@p:1", ntlm).await.contains("other than"));
    let wrong = fault("http://a:b@p:1", b"HTTP/1.0 401 Unauthorized\r\n\r\n").await;
    assert!(wrong.contains("does not accept"), "{wrong}");
    let rules = fault("http://p:1", b"HTTP/1.1 403 \x1b[31m\r\n\r\n").await;
    assert!(!rules.contains('\x1b'), "{rules}");
    let down = fault("http://p:1", b"HTTP/1.1 502 x\r\nContent-Length: 9\r\n\r\n").await;
    assert!(
        down.contains("engine.example:443") && down.contains("502"),
        "{down}"
    );
    let mut huge = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
    huge.resize(20 * 1024, b'x');
    assert!(fault("http://p:1", &huge).await.contains("too large"));
    for answer in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\n\n",
        b"HTTP/1.1 200 OK\r\n\r\nmore",
        b"\x05\x00",
    ] {
        let fault = fault("http://p:1", answer).await;
        assert!(fault.contains("not that of a proxy"), "{fault}");
    }
    assert!(
        fault("http://p:1", b"HTTP/1.1 200")
            .await
            .contains("closed")
    );
    // The advice for a target would be wrong: an https:// proxy is refused.
    let tls = fault("http://p:1", b"\x15\x03\x01\x00\x02\x02\x46").await;
    assert_eq!(
        tls,
        "its response is not that of a proxy: it uses TLS, which is not supported"
    );
}

#[tokio::test]
async fn socks_requests_leave_the_name_to_the_proxy() {
    let name = b"\x05\x00\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x01";
    let (result, sent) = exchange("socks5://p:1", "engine.example:443", name).await;
    result.unwrap();
    assert_eq!(
        sent,
        b"\x05\x01\x00\x05\x01\x00\x03\x0eengine.example\x01\xbb"
    );
    let login = b"\x05\x02\x01\x00\x05\x00\x00\x03\x01x\x00\x01";
    let (result, sent) = exchange("socks5://ada:pw@p:1", "10.0.0.1:1", login).await;
    result.unwrap();
    assert_eq!(
        sent,
        b"\x05\x02\x00\x02\x01\x03ada\x02pw\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x01"
    );
}

#[tokio::test]
async fn socks_refusals_are_distinguished() {
    for (proxy, answer, text) in [
        ("socks5://p:1", &b"\x05\xff"[..], "requires a user name"),
        ("socks5://a:b@p:1", b"\x05\xff", "other than"),
        ("socks5://a:b@p:1", b"\x05\x02\x01\x01", "does not accept"),
        (
            "socks5://p:1",
            b"\x05\x00\x05\x05\x00\x01",
            "the connection was refused",
        ),
        (
            "socks5://p:1",
            b"\x05\x00\x05\x63\x00\x01",
            "SOCKS reply 99",
        ),
        ("socks5://p:1", b"\x05\x02", "not offered"),
        (
            "socks5://p:1",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "not SOCKS5",
        ),
        ("socks5://p:1", b"\x05\x00\x05\x00\x00\x09", "unknown kind"),
        ("socks5://p:1", b"\x05\x00\x05\x00\x00\x03\xffx", "closed"),
    ] {
        let fault = fault(proxy, answer).await;
        assert!(fault.contains(text), "{text}: {fault}");
    }
}

proptest! {
    /// Any response ends the exchange without a panic.
    #[test]
    fn any_response_is_a_result(answer in prop::collection::vec(any::<u8>(), 0..64), socks: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (proxy, start) = if socks {
            ("socks5://a:b@p:1", &b"\x05"[..])
        } else {
            ("http://a:b@p:1", &b"HTTP/1.1 "[..])
        };
        let answer = [start, &answer].concat();
        drop(runtime.block_on(fault(proxy, &answer)));
    }
}
