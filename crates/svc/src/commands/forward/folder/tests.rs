use std::{
    fs,
    os::unix::fs::symlink,
    time::{Duration, SystemTime},
};

use axum::body::to_bytes;
use tempfile::TempDir;

use super::*;

/// A folder that contains a folder `www` with a file of each kind.
fn outer_with_files() -> TempDir {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("www");
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::create_dir_all(root.join("app")).unwrap();
    fs::create_dir_all(root.join(".git")).unwrap();
    for (name, content) in [
        ("../secret.txt", "secret"),
        ("a b&<c>.txt", "hello"),
        ("javascript:x", "no script"),
        ("sub/page.html", "<p>page"),
        ("app/index.html", "<p>app"),
        (".env", "KEY=1"),
        (".git/config", "[core]"),
    ] {
        fs::write(root.join(name), content).unwrap();
    }
    symlink(outer.path().join("secret.txt"), root.join("out.txt")).unwrap();
    symlink(outer.path(), root.join("outer")).unwrap();
    symlink("sub/page.html", root.join("in.html")).unwrap();
    symlink(".env", root.join("env.txt")).unwrap();
    outer
}

async fn send_request(
    outer: &TempDir,
    options: Options,
    request: Request,
) -> (StatusCode, HeaderMap, String) {
    let root = FolderRoot::new(&outer.path().join("www"), options.hidden).unwrap();
    let files = Arc::new(Files {
        root,
        spa: options.spa,
    });
    let (head, body) = answer(State(files), request).await.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    (
        head.status,
        head.headers,
        String::from_utf8(body.to_vec()).unwrap(),
    )
}

fn get(path: &str) -> Request {
    Request::get(path).body(Body::empty()).unwrap()
}

async fn get_body(outer: &TempDir, path: &str) -> (u16, String) {
    let (status, _, body) = send_request(outer, Options::default(), get(path)).await;
    (status.as_u16(), body)
}

#[tokio::test]
async fn files_inside_are_served_and_nothing_else() {
    let outer = outer_with_files();
    for (path, body) in [
        ("/a%20b&%3Cc%3E.txt", "hello"),
        ("/sub/page.html", "<p>page"),
        ("//sub///page.html", "<p>page"),
        ("/in.html", "<p>page"),
        ("/app/", "<p>app"),
    ] {
        assert_eq!(
            get_body(&outer, path).await,
            (200, body.to_owned()),
            "{path}"
        );
    }
    for path in [
        "/nothing",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/sub/..%2f..%2fsecret.txt",
        "/sub/../../secret.txt",
        "/out.txt",
        "/outer/secret.txt",
        "/outer/",
        "/.env",
        "/%2eenv",
        "/.git/config",
        "/env.txt",
        "/in.html/",
        "/sub/page.html%00",
    ] {
        let (status, body) = get_body(&outer, path).await;
        assert_eq!(status, 404, "{path}: {body}");
    }
}

#[tokio::test]
async fn hidden_files_are_served_on_request() {
    let outer = outer_with_files();
    let hidden = Options {
        hidden: true,
        ..Options::default()
    };
    for path in ["/.env", "/env.txt", "/.git/config"] {
        let (status, _, _) = send_request(&outer, hidden.clone(), get(path)).await;
        assert_eq!(status, 200, "{path}");
    }
    let (status, _, _) = send_request(&outer, hidden, get("/.%2e/secret.txt")).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_listing_shows_visible_entries_and_escapes_their_names() {
    let outer = outer_with_files();
    let (status, body) = get_body(&outer, "/").await;
    assert_eq!(status, 200);
    assert!(
        body.contains(r#"href="./a%20b%26%3Cc%3E.txt">a b&#38;&#60;c&#62;.txt<"#),
        "{body}"
    );
    assert!(body.contains(r#"href="./javascript:x""#), "{body}");
    for absent in ["out.txt", "outer", ".env", ".git", "env.txt", "../"] {
        assert!(!body.contains(&format!(">{absent}<")), "{absent}: {body}");
    }
    let (_, body) = get_body(&outer, "/sub/").await;
    assert!(
        body.contains(r#"<a href="../">"#) && body.contains("deep/"),
        "{body}"
    );
}

#[tokio::test]
async fn a_folder_path_gets_a_trailing_slash_by_redirect_on_the_same_host() {
    let outer = outer_with_files();
    fs::create_dir(outer.path().join("www/evil.test")).unwrap();
    for (path, location) in [
        ("/sub?a=b", "/sub/?a=b"),
        ("/sub/deep", "/sub/deep/"),
        ("//evil.test", "/evil.test/"),
    ] {
        let (status, headers, _) = send_request(&outer, Options::default(), get(path)).await;
        assert_eq!(
            (status.as_u16(), &headers[header::LOCATION]),
            (307, &HeaderValue::from_static(location))
        );
    }
}

#[tokio::test]
async fn ranges_conditions_and_head_requests_are_answered() {
    let outer = outer_with_files();
    let with = |name: &str, value: &str| {
        let request = Request::get("/sub/page.html").header(name, value);
        request.body(Body::empty()).unwrap()
    };
    let (status, headers, body) =
        send_request(&outer, Options::default(), with("range", "bytes=1-2")).await;
    assert_eq!((status.as_u16(), body.as_str()), (206, "p>"));
    assert_eq!(headers[header::CONTENT_RANGE], "bytes 1-2/7");
    let last_modified = headers[header::LAST_MODIFIED].to_str().unwrap().to_owned();
    let not_modified = send_request(
        &outer,
        Options::default(),
        with("if-modified-since", &last_modified),
    )
    .await;
    assert_eq!(
        (not_modified.0.as_u16(), not_modified.2.as_str()),
        (304, "")
    );
    let head = Request::head("/sub/page.html").body(Body::empty()).unwrap();
    let (status, headers, body) = send_request(&outer, Options::default(), head).await;
    assert_eq!((status.as_u16(), body.as_str()), (200, ""));
    assert_eq!(headers[header::CONTENT_LENGTH], "7");
    assert_eq!(headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
    let post = Request::post("/").body(Body::empty()).unwrap();
    let (status, headers, _) = send_request(&outer, Options::default(), post).await;
    assert_eq!(
        (status.as_u16(), &headers[header::ALLOW]),
        (405, &HeaderValue::from_static("GET, HEAD"))
    );
}

/// RFC 9110 sections 13.1.5 and 14.2: any range that is not a single unconditional range of bytes
/// is ignored.
#[tokio::test]
async fn only_a_single_unconditional_range_is_sent() {
    let outer = outer_with_files();
    let ask = async |method: &Method, fields: &[(&str, &str)]| {
        let mut request = Request::builder().method(method).uri("/sub/page.html");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let (status, headers, body) = send_request(&outer, Options::default(), request).await;
        (status.as_u16(), headers, body)
    };
    let (_, headers, _) = ask(&Method::GET, &[]).await;
    let date = headers[header::LAST_MODIFIED].to_str().unwrap().to_owned();
    let one = ("range", "bytes=1-2");
    for fields in [
        &[one, ("if-range", "\"other\"")][..],
        &[one, ("if-range", &date)],
        &[("range", "bytes=0-1,3-4")],
        &[one, ("range", "bytes=3-4")],
        &[("range", "lines=1-2")],
    ] {
        let (status, headers, body) = ask(&Method::GET, fields).await;
        assert_eq!((status, body.as_str()), (200, "<p>page"), "{fields:?}");
        assert!(!headers.contains_key(header::CONTENT_RANGE), "{fields:?}");
    }
    let (status, headers, _) = ask(&Method::HEAD, &[one]).await;
    assert_eq!(status, 200);
    assert_eq!(headers[header::CONTENT_LENGTH], "7");
    for (range, status) in [("bytes=1-2", 206), ("bytes=-3", 206), ("bytes=7-", 416)] {
        assert_eq!(ask(&Method::GET, &[("range", range)]).await.0, status);
    }
    let not_modified = ask(&Method::GET, &[one, ("if-modified-since", &date)]).await;
    assert_eq!((not_modified.0, not_modified.2.as_str()), (304, ""));
}

#[tokio::test]
async fn an_older_replacement_file_is_sent() {
    let outer = outer_with_files();
    let get_since = |since: &HeaderValue| {
        let request = Request::get("/sub/page.html").header("if-modified-since", since);
        request.body(Body::empty()).unwrap()
    };
    let (_, before, _) = send_request(&outer, Options::default(), get("/sub/page.html")).await;
    let file = fs::File::options()
        .write(true)
        .open(outer.path().join("www/sub/page.html"))
        .unwrap();
    let older = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_modified(older).unwrap();
    let since = &before[header::LAST_MODIFIED];
    let (status, now, _) = send_request(&outer, Options::default(), get_since(since)).await;
    assert_eq!(status, 200);
    let since = &now[header::LAST_MODIFIED];
    assert_eq!(since, "Sun, 09 Sep 2001 01:46:40 GMT");
    let (status, again, body) = send_request(&outer, Options::default(), get_since(since)).await;
    assert_eq!((status.as_u16(), body.as_str()), (304, ""));
    assert_eq!(&again[header::LAST_MODIFIED], since);
}

#[tokio::test]
async fn a_file_with_a_date_before_1970_is_sent_whole() {
    let outer = outer_with_files();
    let file = fs::File::options()
        .write(true)
        .open(outer.path().join("www/sub/page.html"))
        .unwrap();
    let second = Duration::from_secs(1);
    let epoch = SystemTime::UNIX_EPOCH;
    for date in [epoch - second, epoch - 1_000_000_000 * second] {
        file.set_modified(date).unwrap();
        for (method, body) in [(Method::GET, "<p>page"), (Method::HEAD, "")] {
            let request = Request::builder().method(method).uri("/sub/page.html");
            let request = request.header("range", "bytes=1-2");
            let request = request.header("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT");
            let request = request.body(Body::empty()).unwrap();
            let (status, headers, got) = send_request(&outer, Options::default(), request).await;
            assert_eq!((status.as_u16(), got.as_str()), (200, body));
            assert_eq!(headers[header::CONTENT_LENGTH], "7");
            assert_eq!(headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
            assert!(!headers.contains_key(header::LAST_MODIFIED));
        }
    }
    file.set_modified(epoch).unwrap();
    let (status, headers, _) =
        send_request(&outer, Options::default(), get("/sub/page.html")).await;
    assert_eq!(status, 200);
    assert_eq!(
        headers[header::LAST_MODIFIED],
        "Thu, 01 Jan 1970 00:00:00 GMT"
    );
}

#[tokio::test]
async fn application_routes_get_the_index() {
    let outer = outer_with_files();
    fs::write(outer.path().join("www/index.html"), "<p>spa").unwrap();
    let spa = Options {
        spa: true,
        ..Options::default()
    };
    for (path, status) in [
        ("/", 200),
        ("/users/7", 200),
        ("/sub/", 200),
        ("/gone.js", 404),
    ] {
        let (got, _, body) = send_request(&outer, spa.clone(), get(path)).await;
        assert_eq!(got, status, "{path}: {body}");
        assert_eq!(body == "<p>spa", status == 200, "{path}: {body}");
    }
}

#[test]
fn a_path_that_is_not_a_folder_is_refused() {
    let outer = outer_with_files();
    let missing = FolderRoot::new(&outer.path().join("missing"), false).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    let file = FolderRoot::new(&outer.path().join("secret.txt"), false).unwrap_err();
    assert_eq!(file.kind(), io::ErrorKind::NotADirectory);
}
