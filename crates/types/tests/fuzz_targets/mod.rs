//! Properties that hold for any input of parsers that unauthenticated clients reach. `fuzz/` feeds
//! these functions with generated input, the tests with the inputs kept in `tests/corpus`.

use types::boundary::{Boundary, ListScope};
use types::callback::Callback;
use types::client::Client;
use types::filter::{
    Filter, ListClientsParams, ListParams, ListTunnelsParams, WatchParams, params_of_query,
};
use types::form::Form;
use types::id::{ClientId, TunnelId};
use types::json::{self, Limits};
use types::path::NormalPath;
use types::pattern::Pattern;
use types::proxy_protocol::{MAX_HEADER, ParsedHeader, next_part, parse, write_v1, write_v2};
use types::query_credential::{COMPAT_NAMES, extract, is_present, strip_referer};
use types::tunnel::{Tunnel, TunnelProperties};

/// A raw query, or the text of `params`.
pub(crate) fn params(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(Some(decoded)) = params_of_query(text) {
        assert!(
            is_present(text, &["params"]) || text.contains('+'),
            "what is found is there"
        );
        list::<types::filter::TunnelFilter>(&decoded);
    }
    list::<types::filter::TunnelFilter>(text);
    list::<types::filter::ClientFilter>(text);
    if let Ok(params) = ListClientsParams::parse(text, false) {
        params
            .filters
            .matches(&Client::online(ClientId::new(1, [1; 10])));
    }
    if let Ok(params) = ListTunnelsParams::parse(text, true) {
        params.filters.matches(&tunnel(TunnelProperties::default()));
    }
    if let Ok(params) = WatchParams::parse(text, true) {
        let again = serde_json::to_string(&params).unwrap();
        assert_eq!(
            WatchParams::parse(&again, false),
            Ok(params),
            "what is read reads back"
        );
    }
}

fn list<F: Filter + serde::Serialize + PartialEq + std::fmt::Debug>(text: &str) {
    if let Ok(params) = ListParams::<F>::parse(text, true) {
        let again = serde_json::to_string(&params).unwrap();
        assert_eq!(
            ListParams::<F>::parse(&again, false),
            Ok(params),
            "what is read reads back"
        );
    }
}

/// A `resources` claim as JSON.
pub(crate) fn boundary(data: &[u8]) {
    let Ok(resources) = json::parse(
        data,
        Limits {
            bytes: 16 * 1024,
            depth: 40,
        },
    ) else {
        return;
    };
    let boundary = Boundary::parse(Some(&resources), true);
    let sound = Boundary::check(&resources, true);
    let path = NormalPath::parse("/api/x").unwrap();
    let live = tunnel(TunnelProperties::default());
    let connects = boundary
        .connect("p1", Some("w1"), &live, Some(&path))
        .is_ok();
    let listed = boundary.list("p1", Some("w1"), &live);
    let mut planned = TunnelProperties::default();
    let created = boundary.create("p1", Some("w1"), &mut planned).is_ok();
    if sound.is_err() {
        assert!(
            !connects && !created && listed == ListScope::Hidden,
            "a wrong shape refuses everything"
        );
    }
    if !created {
        assert_eq!(
            planned,
            TunnelProperties::default(),
            "a refused value changes nothing"
        );
    }
    assert!(boundary.may_list("p1", Some("w1")) || listed == ListScope::Hidden);
    assert!(
        !boundary.watch_only_shape() || (!connects && !created),
        "watching needs no other permission"
    );
    assert!(boundary.has_tunnel_resource());
    let nowhere = boundary.and(&Boundary::refuse_everything());
    assert!(
        nowhere
            .connect("p1", Some("w1"), &live, Some(&path))
            .is_err()
    );
}

/// A raw query or a `Referer`.
pub(crate) fn query_credential(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match extract(text, COMPAT_NAMES) {
        Ok(None) => assert!(!is_present(text, COMPAT_NAMES)),
        Err(_) => assert!(is_present(text, COMPAT_NAMES)),
        Ok(Some(extracted)) => {
            assert!(
                !is_present(&extracted.rest, COMPAT_NAMES),
                "the credential is removed"
            );
            assert_eq!(extracted.token.split('.').count(), 3);
            let kept = |query: &str| query.bytes().filter(|byte| *byte == b'&').count();
            let lost = usize::from(text.contains('&'));
            assert_eq!(
                kept(text),
                kept(&extracted.rest) + lost,
                "one separator is removed with it"
            );
        }
    }
    if let Some(stripped) = strip_referer(data, COMPAT_NAMES) {
        assert_eq!(
            strip_referer(&stripped, COMPAT_NAMES),
            None,
            "nothing is left to strip"
        );
    }
}

/// A path, or a pattern and a path on two lines.
pub(crate) fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (pattern, raw) = text.split_once('\n').unwrap_or((".*", text));
    let Ok(path) = NormalPath::parse(raw) else {
        return;
    };
    assert_eq!(
        NormalPath::parse(path.as_str()),
        Ok(path.clone()),
        "one form"
    );
    assert!(path.as_str().starts_with('/') && !path.as_str().starts_with("//"));
    assert!(
        !path
            .as_str()
            .split('/')
            .any(|segment| matches!(segment, "." | ".."))
    );
    if let Ok(pattern) = Pattern::parse(pattern) {
        pattern.matches(path.as_str());
    }
}

fn tunnel(properties: TunnelProperties) -> Tunnel {
    Tunnel::online(
        TunnelId::new(1, [1; 10]),
        ClientId::new(1, [1; 10]),
        properties,
    )
}

/// A query or a form body of OAuth.
pub(crate) fn form(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(mut form) = Form::parse(text) else {
        return;
    };
    for name in ["client_id", "redirect_uri", "scope", "state", "code"] {
        let Some(value) = form.take(name) else {
            continue;
        };
        let again = types::form::encode([(name, value.as_str())]);
        let read = Form::parse(&again).unwrap().take(name);
        assert_eq!(read, Some(value), "the written value is parsed again");
        assert_eq!(form.take(name), None, "a name appears once");
    }
}

/// A callback, and an answer to it.
pub(crate) fn callback(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(callback) = Callback::parse(text) else {
        return;
    };
    let scheme = if callback.is_this_machine() {
        "http"
    } else {
        "https"
    };
    assert!(text.starts_with(scheme) && !callback.host().is_empty());
    let address = callback.with([("state", text), ("code", "c")]);
    assert!(
        address.starts_with(text),
        "the browser is sent to the registered address"
    );
    assert!(
        address
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
    );
    let (_, query) = address.split_once('?').unwrap();
    assert_eq!(
        Form::parse(query).unwrap().take("code").as_deref(),
        Some("c")
    );
}

/// The start of a connection: no header is longer than its limit, more bytes do not change a
/// result, and a parsed header equals a written one.
pub(crate) fn proxy_protocol(bytes: &[u8]) {
    let whole = parse(bytes);
    let first = (0..=bytes.len())
        .map(|len| parse(&bytes[..len]))
        .find(|verdict| *verdict != ParsedHeader::Partial);
    assert_eq!(first.unwrap_or(ParsedHeader::Partial), whole);
    assert!(whole != ParsedHeader::Partial || bytes.len() < MAX_HEADER);
    let ParsedHeader::Header { source, len } = whole else {
        return;
    };
    assert!(len <= MAX_HEADER && len <= bytes.len());
    let mut read = 0;
    while read < len {
        read += next_part(&bytes[..read]);
    }
    assert_eq!(read, len, "a reader does not take bytes after the header");
    let Some(source) = source else { return };
    for write in [write_v1, write_v2] {
        let mut written = Vec::new();
        write(Some(source), source, &mut written);
        let len = written.len();
        let source = Some(source);
        assert_eq!(parse(&written), ParsedHeader::Header { source, len });
    }
}
