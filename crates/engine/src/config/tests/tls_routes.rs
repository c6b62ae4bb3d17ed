//! The list `tls.routes`.

use super::{refused, with};

#[test]
fn routes_have_names_of_other_servers() {
    let route = |name: &str, to: &str| format!("[{{server_name: {name}, to: '{to}'}}]");
    let routes = route("Platform.Example.com", "localhost:8444");
    let config = with(&[("tls.routes", &routes)]).unwrap();
    let route_to = config.tls_routes.get("platform.example.com").unwrap();
    assert_eq!(route_to.to, "localhost:8444");
    for (name, to, at, why) in [
        ("tunnel.example.com", "a:1", "server_name", "itself"),
        ("web.t.tunnel.example.com", "a:1", "server_name", "itself"),
        ("127.0.0.1", "a:1", "server_name", "not a host name"),
        ("'*.example.com'", "a:1", "server_name", "not a host name"),
        ("a.example.com.", "a:1", "server_name", "not a host name"),
        ("a.example.com", "localhost", "to", "not HOST:PORT"),
        ("a.example.com", "localhost:0", "to", "not HOST:PORT"),
        ("a.example.com", "user@localhost:1", "to", "not HOST:PORT"),
    ] {
        let (key, message) = refused(&[("tls.routes", &route(name, to))]);
        assert_eq!(key, format!("tls.routes.0.{at}"), "{name} {to}");
        assert!(message.contains(why), "{message}");
    }
    let twice = "[{server_name: a.example, to: 'b:1'}, {server_name: A.example, to: 'b:1'}]";
    let (key, message) = refused(&[("tls.routes", twice)]);
    assert_eq!(key, "tls.routes.1.server_name");
    assert!(message.contains("already"), "{message}");
    let (key, _) = refused(&[("tls.routes", "[{to: 'b:1'}]")]);
    assert_eq!(key, "tls.routes.0.server_name");
}

#[test]
fn a_route_to_the_engine_itself_is_refused() {
    for (listen, to, is_refused) in [
        ("[::]:8443", "localhost:8443", true),
        ("0.0.0.0:8443", "127.0.0.2:8443", true),
        ("[::]:8443", "[::1]:8443", true),
        ("127.0.0.1:8443", "127.0.0.1:8443", true),
        ("127.0.0.1:8443", "127.0.0.2:8443", false),
        ("[::]:8443", "127.0.0.1:8444", false),
        ("[::]:8443", "192.0.2.1:8443", false),
    ] {
        let routes = format!("[{{server_name: a.example, to: '{to}'}}]");
        let values = [("tls.listen_addr", listen), ("tls.routes", &routes)];
        if is_refused {
            let (key, message) = refused(&values);
            assert_eq!(key, "tls.routes.0.to", "{listen} {to}");
            assert!(message.contains("itself"), "{message}");
        } else {
            assert!(with(&values).is_ok(), "{listen} {to}");
        }
    }
}
