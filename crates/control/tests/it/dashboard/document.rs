//! The document of the dashboard and its files, as the server sends them.

use std::path::Path;

use http::Method;

use crate::support::{Browser, TestControl};

/// Addresses of the application.
const ADDRESSES: [&str; 9] = [
    "/",
    "/welcome",
    "/projects",
    "/projects/prj_1",
    "/projects/prj_1/tunnels/web?status=5xx",
    "/projects/prj_1/sessions",
    "/workspaces/ws_1/members",
    "/credentials",
    "/installation/users",
];

#[tokio::test]
async fn the_dashboard_is_for_people_who_are_signed_in() {
    let control = TestControl::start("").await;
    control.person("Ada").await;
    for address in ADDRESSES {
        let answer = control.browser().open(address).await;
        assert_eq!(answer.status, 303, "{address}");
        let login = format!("/login?next={address}");
        assert_eq!(answer.location.as_deref(), Some(login.as_str()));
        let mut browser = control.browser();
        let fields = [
            ("email", "ada@example.com"),
            ("password", crate::support::PASSWORD),
            ("next", address),
        ];
        let back = browser.submit("/login", &fields).await;
        assert_eq!(back.location.as_deref(), Some(address));
        assert_eq!(browser.open(address).await.status, 200, "{address}");
    }
}

#[tokio::test]
async fn the_document_is_locked_down() {
    let control = TestControl::start("").await;
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    for address in ADDRESSES {
        let answer = browser.open(address).await;
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("referrer-policy"), "same-origin");
        assert_eq!(answer.header("cross-origin-opener-policy"), "same-origin");
        let policy = answer.header("content-security-policy");
        for rule in [
            "default-src 'none';",
            "script-src 'self';",
            "style-src 'self';",
            "connect-src 'self';",
            "frame-ancestors 'none';",
            "base-uri 'none';",
            "require-trusted-types-for 'script';",
            "trusted-types 'none'",
        ] {
            assert!(policy.contains(rule), "{address}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        // The policy would refuse them.
        assert!(!answer.text.contains("<script>"), "{}", answer.text);
        assert!(!answer.text.contains("<style"), "{}", answer.text);
        assert!(!answer.text.contains("style="), "{}", answer.text);
        assert!(
            !answer.text.contains("//"),
            "no other origin: {}",
            answer.text
        );
    }
}

#[tokio::test]
async fn files_are_compressed_and_kept_by_browsers() {
    let control = TestControl::start("").await;
    control.person("Ada").await;
    let index = control.signed_in("Ada").await.open("/").await;
    let files: Vec<_> = index.text.split("\"/assets/").skip(1).collect();
    assert!(
        files.len() > 1,
        "`cargo xtask test` builds the dashboard before the program: {}",
        index.text
    );
    let mut browser = control.browser();
    for file in files {
        let path = format!("/assets/{}", file.split('"').next().unwrap());
        let plain = browser.open(&path).await;
        assert_eq!(plain.status, 200, "{path}");
        assert_eq!(plain.header("content-encoding"), "");
        assert_eq!(plain.header("vary"), "accept-encoding");
        assert_eq!(plain.header("x-content-type-options"), "nosniff");
        let forever = "public, max-age=31536000, immutable";
        assert_eq!(plain.header("cache-control"), forever);
        let kind = plain.header("content-type").to_owned();
        let is_script = Path::new(&path).extension().is_some_and(|end| end == "js");
        let wanted = if is_script {
            "text/javascript; charset=utf-8"
        } else {
            "text/css; charset=utf-8"
        };
        assert_eq!(kind, wanted, "{path}");
        let length = compressed_length(&mut browser, &path).await;
        assert!(length < plain.text.len(), "{path}: {length}");
    }
    for missing in [
        "/assets/other-12345678.js",
        "/assets/index.html",
        "/assets/..%2findex.html",
    ] {
        assert_eq!(browser.open(missing).await.status, 404, "{missing}");
    }
}

/// Length of the response to a browser that accepts gzip. `HEAD` has the headers without the bytes,
/// which are not text.
async fn compressed_length(browser: &mut Browser<'_>, path: &str) -> usize {
    let headers = [("accept-encoding", "gzip, br")];
    let answer = browser.send(Method::HEAD, path, None, &headers).await;
    assert_eq!(answer.header("content-encoding"), "gzip", "{path}");
    answer.header("content-length").parse().unwrap()
}
