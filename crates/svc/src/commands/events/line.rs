//! Events as text for people.

use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

use crate::{commands::tunnels, names::Names, output::plain};

/// The lines of an event. A snapshot has a line for each tunnel.
pub(super) fn lines(event: &Value, zone: &TimeZone, names: &Names) -> Vec<String> {
    let name = text(event, "type").unwrap_or("event");
    let at = text(event, "created_at").and_then(|at| at.parse::<Timestamp>().ok());
    let at = at.map_or_else(
        || "--:--:--".to_owned(),
        |at| at.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string(),
    );
    let object = event.get("object").unwrap_or(&Value::Null);
    if name == SNAPSHOT {
        let (tunnels, clients) = (list(object, "tunnels"), list(object, "clients"));
        let count = |list: &[Value], kind: &str| match list.len() {
            1 => format!("1 {kind}"),
            count => format!("{count} {kind}s"),
        };
        let head = format!(
            "{at}  now online: {}, {}",
            count(tunnels, "tunnel"),
            count(clients, "client")
        );
        let tunnels = tunnels
            .iter()
            .map(|tunnel| format!("{INDENT}{}", about(tunnel, names)));
        return std::iter::once(head).chain(tunnels).collect();
    }
    vec![plain(&format!(
        "{at}  {name:NAME_WIDTH$}  {}",
        about(object, names)
    ))]
}

/// The names by which people recognise an object.
fn about(object: &Value, names: &Names) -> String {
    let field = |key| text(object, key);
    let mut words: Vec<String> = Vec::new();
    words.extend(field("name").map(str::to_owned));
    if object.get("client_id").is_some() && object.get("protocol").is_some() {
        words.push(tunnels::address(object));
        words.extend(field("protocol").map(str::to_owned));
    }
    let keys = [
        "agent",
        "version",
        "os",
        "user_id",
        "initiator_user_id",
        "server_id",
        "role",
        "outcome",
        "status",
    ];
    words.extend(
        keys.into_iter()
            .filter_map(field)
            .map(|text| names.of(text)),
    );
    words.extend(field("id").map(|id| format!("({id})")));
    plain(&words.join("  "))
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    let text = value.get(key)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

fn list<'v>(object: &'v Value, key: &str) -> &'v [Value] {
    let list = object.get(key).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

const SNAPSHOT: &str = "state.initial";

/// The width of the frequent types.
const NAME_WIDTH: usize = "tunnel.created".len();

/// The width of the time, and a gap.
const INDENT: &str = "          ";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_lines_for_people() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let tunnel = json!({
            "id": "tun_1", "client_id": "cli_1", "name": "web\u{1b}[2J", "protocol": "http",
            "publish": true, "host": "web.t.engine.example", "status": "online",
        });
        let created = json!({
            "type": "tunnel.created", "created_at": "2026-08-03T12:00:01.5Z", "object": tunnel,
        });
        let mut names = Names::default();
        names.insert("usr_1", "ada@example.com");
        let lines = |event: &Value, zone| lines(event, zone, &names);
        assert_eq!(
            lines(&created, &zone),
            [
                "14:00:01  tunnel.created  web\u{fffd}[2J  web.t.engine.example  http  online  (tun_1)"
            ]
        );
        let state = json!({
            "type": "state.initial", "created_at": "2026-08-03T12:00:00Z",
            "object": {"tunnels": [tunnel], "clients": [{"id": "cli_1"}, {"id": "cli_2"}]},
        });
        let shown = lines(&state, &zone);
        assert_eq!(shown[0], "14:00:00  now online: 1 tunnel, 2 clients");
        assert!(shown[1].starts_with("          web"), "{shown:?}");
        let client = json!({
            "type": "client.deleted", "created_at": "bad",
            "object": {"id": "cli_1", "agent": "svc", "version": "1.0", "os": "linux",
                "user_id": "usr_1"},
        });
        let shown = lines(&client, &zone);
        assert_eq!(
            shown,
            ["--:--:--  client.deleted  svc  1.0  linux  ada@example.com  (cli_1)"]
        );
    }
}
