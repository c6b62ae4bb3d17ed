//! The loader with a small example configuration.

use std::io::Write;

use serde::Deserialize;
use tempfile::NamedTempFile;

use super::*;

#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Example {
    web: Web,
    metrics: Metrics,
    token: Option<SecretString>,
}

#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Web {
    host: Option<String>,
    port: Option<u16>,
    enabled: bool,
    level: crate::logs::Level,
    proxies: Vec<String>,
    secrets: Vec<SecretString>,
}

#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Metrics {
    prometheus: Option<Prometheus>,
}

#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Prometheus {
    listen_addr: Option<String>,
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn env(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn read(text: &str, variables: &[(&str, &str)]) -> Result<Example, ConfigErrors> {
    load(Some(file(text).path()), env(variables), Ok)
}

/// The error of `text` as `line:column: key: message`.
fn first_error(text: &str) -> String {
    let file = file(text);
    let error = load::<Example, _>(Some(file.path()), [], Ok)
        .unwrap_err()
        .to_string();
    error
        .trim_start_matches(&format!("{}:", file.path().display()))
        .to_owned()
}

/// The error of one variable.
fn env_refusal(name: &str, value: &str) -> String {
    load::<Example, _>(None, env(&[(name, value)]), Ok)
        .unwrap_err()
        .to_string()
}

#[test]
fn an_empty_file_and_an_empty_section_are_the_defaults() {
    assert_eq!(read("", &[]).unwrap(), Example::default());
    assert_eq!(read("# nothing\n", &[]).unwrap(), Example::default());
    assert_eq!(
        read("web:\nmetrics:\n  prometheus:\n", &[]).unwrap(),
        Example::default()
    );
    assert_eq!(
        load::<Example, _>(None, [], Ok).unwrap(),
        Example::default()
    );
}

#[test]
fn yaml_and_json_are_equivalent() {
    let yaml = "web:\n  host: a.example\n  port: 80\n  proxies: [10.0.0.0/8]\n";
    let json = r#"{"web": {"host": "a.example", "port": 80, "proxies": ["10.0.0.0/8"]}}"#;
    let read_yaml = read(yaml, &[]).unwrap();
    assert_eq!(read_yaml.web.port, Some(80));
    assert_eq!(read_yaml, read(json, &[]).unwrap());
}

#[test]
fn the_environment_overrides_the_file() {
    let read = read(
        "web: {host: file.example, port: 80, proxies: [a]}\n",
        &[
            ("SVC_WEB__PORT", "81"),
            ("SVC_WEB__ENABLED", "true"),
            ("SVC_WEB__LEVEL", "debug"),
            ("SVC_WEB__PROXIES", "[b, \"c\"]"),
            ("SVC_METRICS__PROMETHEUS__LISTEN_ADDR", "[::1]:9090"),
        ],
    )
    .unwrap();
    assert_eq!(read.web.host.as_deref(), Some("file.example"));
    assert_eq!(read.web.port, Some(81));
    assert!(read.web.enabled);
    assert_eq!(read.web.level, crate::logs::Level::Debug);
    assert_eq!(read.web.proxies, ["b", "c"]);
    let listen_addr = read.metrics.prometheus.unwrap().listen_addr;
    assert_eq!(listen_addr.as_deref(), Some("[::1]:9090"));
}

#[test]
fn only_a_double_underscore_makes_a_variable_configuration() {
    let env = [
        ("SVC_TOKEN", "x"),
        ("SVC_LOG", "debug"),
        ("WEB__PORT", "x"),
        ("PATH", "/bin"),
    ];
    assert_eq!(read("", &env).unwrap(), Example::default());
}

#[test]
fn a_text_from_the_environment_is_unchanged() {
    for text in [
        "0123", "null", "true", "# hash", "a: b", "[x]", "", " padded ", "'q'",
    ] {
        let read = read("", &[("SVC_WEB__HOST", text)]).unwrap();
        assert_eq!(read.web.host.as_deref(), Some(text));
    }
}

#[test]
fn two_variables_for_one_key_are_refused() {
    let env = env(&[("SVC_WEB__PORT", "1"), ("SVC_web__port", "2")]);
    let error = load::<Example, _>(None, env, Ok).unwrap_err();
    assert_eq!(
        error.to_string(),
        "SVC_web__port: web.port: SVC_WEB__PORT sets the same key"
    );
}

#[test]
fn an_unknown_key_is_named_with_its_position_and_the_nearest() {
    assert_eq!(
        first_error("web:\n  host: a\n  prot: 80\n"),
        "3:3: web.prot: unknown key; the nearest known one is web.port",
    );
    assert_eq!(
        first_error("metrics:\n  listen_addr: x\n"),
        "2:3: metrics.listen_addr: unknown key; \
         the nearest known one is metrics.prometheus.listen_addr",
    );
    assert_eq!(
        first_error("wbe: {host: a, port: 80}\n"),
        "1:1: wbe: unknown key; the nearest known one is web",
    );
    assert_eq!(
        env_refusal("SVC_METRIC__PROMETHEUS__LISTEN_ADDR", "x"),
        "SVC_METRIC__PROMETHEUS__LISTEN_ADDR: metric.prometheus.listen_addr: unknown key; \
         the nearest known one is metrics.prometheus.listen_addr",
    );
    assert_eq!(
        env_refusal("SVC_WEB__", "x"),
        "SVC_WEB__: web.: unknown key; the nearest known one is web",
    );
}

#[test]
fn a_value_of_the_wrong_kind_is_named_and_not_shown() {
    for (text, expected) in [
        (
            "web:\n  port: hunter2\n",
            "2:9: web.port: expected a whole number, found a text",
        ),
        (
            "web:\n  port: 1.5\n",
            "2:9: web.port: expected a whole number, found a number",
        ),
        (
            "web:\n  enabled: yes\n",
            "2:12: web.enabled: expected true or false, found a text",
        ),
        (
            "web: hunter2\n",
            "1:6: web: expected a section, found a text",
        ),
        (
            "token: 123456\n",
            "1:8: token: expected a text, found a number; put it in quotes",
        ),
        (
            "web:\n  secrets: hunter2\n",
            "2:12: web.secrets: expected a list, found a text",
        ),
        (
            "web:\n  secrets:\n  - abc\n  - 42\n",
            "4:5: web.secrets.1: expected a text, found a number; put it in quotes",
        ),
        (
            "web: {proxies: [a, ~]}\n",
            "1:20: web.proxies.1: an item of a list needs a value",
        ),
        ("- a\n", "1:1: expected a section, found a list"),
    ] {
        assert_eq!(first_error(text), expected, "{text:?}");
    }
    assert_eq!(
        env_refusal("SVC_WEB__PORT", "many"),
        "SVC_WEB__PORT: web.port: expected a whole number, found a text",
    );
    assert_eq!(
        env_refusal("SVC_WEB__PROXIES", "10.0.0.0/8"),
        "SVC_WEB__PROXIES: web.proxies: expected a list, found a text",
    );
}

#[test]
fn errors_of_the_type_have_a_position() {
    let out_of_range = first_error("web:\n  port: 70000\n");
    assert!(
        out_of_range.starts_with("2:9: web.port: "),
        "{out_of_range}"
    );
    let variant = first_error("web:\n  level: loud\n");
    assert!(
        variant.starts_with("2:10: web.level: unknown variant `loud`"),
        "{variant}"
    );
    let variable = env_refusal("SVC_WEB__PORT", "-1");
    assert!(
        variable.starts_with("SVC_WEB__PORT: web.port: "),
        "{variable}"
    );
}

#[test]
fn an_error_of_a_check_has_the_position_of_its_key() {
    let file = file("web:\n  host: a\n");
    let refuse = |key: &'static str| {
        let env = env(&[("SVC_WEB__PORT", "80")]);
        let check = |_: Example| Err::<(), _>(ConfigError::new(key, "no").into());
        load(Some(file.path()), env, check).unwrap_err().to_string()
    };
    assert_eq!(
        refuse("web.host"),
        format!("{}:2:9: web.host: no", file.path().display())
    );
    assert_eq!(refuse("web.port"), "SVC_WEB__PORT: web.port: no");
    // The section that lacks the key.
    assert_eq!(
        refuse("web.level"),
        format!("{}:2:3: web.level: no", file.path().display())
    );
}

#[test]
fn invalid_yaml_has_a_position_and_is_not_shown() {
    for text in [
        "web:\n  secrets: [hunter2\n",
        "token: hunter2\ntoken: hunter2\n",
        "token: \"hunter2\nweb: {}\n",
        "token: *hunter\n",
        "a: b\n---\ntoken: hunter2\n",
        "token: hunter2: hunter2\n",
    ] {
        let error = first_error(text);
        assert!(
            error.contains("this is not valid YAML: "),
            "{text:?}: {error}"
        );
        assert!(
            error.starts_with(|first: char| first.is_ascii_digit()),
            "{text:?}: {error}"
        );
        assert!(!error.contains("hunter2"), "{text:?}: {error}");
    }
}

#[test]
fn messages_name_no_types_of_this_program_and_of_its_parser() {
    let twice = all_errors("webs: {}\nwebs: {}\n");
    assert_eq!(
        twice,
        ["many.yaml:2:1: this is not valid YAML: the key webs is written twice in one section"]
    );
    assert_eq!(
        all_errors("- a\n- b\n"),
        ["many.yaml:1:1: expected a section, found a list"]
    );
    for text in ["7\n", "text\n", "webs: {}\n---\nwebs: {}\n", "webs: 7\n"] {
        for error in all_errors(text) {
            let is_plain = !error.contains("struct ") && !error.contains("Policy");
            assert!(is_plain && !error.contains("from_"), "{error}");
        }
    }
}

#[test]
fn errors_of_the_file_and_of_variables_are_reported_together() {
    let file = file("web:\n  prot: 80\n  host: 7\n");
    let variables = [
        ("SVC_WEB__PORT", "many"),
        ("SVC_TOKEN__X", "1"),
        ("SVC_WEB__PROXIES", "[a"),
    ];
    let check = |_: Example| Err::<(), _>(ConfigError::new("web.level", "it is missing").into());
    let errors = load(Some(file.path()), env(&variables), check).unwrap_err();
    let keys: Vec<_> = errors.iter().map(|error| error.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "web.proxies",
            "web.port",
            "token",
            "web.prot",
            "web.level",
            "web.host"
        ],
        "{errors}"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let missing =
        load::<Example, _>(Some(Path::new("/nonexistent/engine.yaml")), [], Ok).unwrap_err();
    assert!(
        missing
            .to_string()
            .starts_with("/nonexistent/engine.yaml cannot be read: ")
    );
    let endless = load::<Example, _>(Some(Path::new("/dev/zero")), [], Ok).unwrap_err();
    assert!(endless.to_string().contains("larger than"), "{endless}");
}

#[test]
fn a_secret_is_never_printed() {
    let read = read("token: hunter2\nweb: {secrets: [hunter3]}\n", &[]).unwrap();
    assert_eq!(read.token.as_ref().unwrap().expose(), "hunter2");
    assert!(!format!("{read:?}").contains("hunter"));
}

#[test]
fn the_schema_is_closed_and_without_references() {
    let schema = schema::<Example>();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(
        schema["properties"]["web"]["properties"]["port"]["maximum"],
        65535
    );
    assert!(!schema.to_string().contains("$ref"));
}

#[test]
fn an_error_is_one_line_for_any_key() {
    for (text, shown) in [
        ("\"a\\u001b[2Jb\": 1\n", r"a\u{1b}[2Jb: unknown key"),
        ("web: {\"x\\ny\": 1}\n", r"web.x\ny: unknown key"),
    ] {
        let refused = read(text, &[]).unwrap_err().to_string();
        assert!(refused.contains(shown), "{refused}");
        assert!(!refused.contains(char::is_control), "{refused:?}");
    }
    let variable = [("SVC_WEB__PO\u{7}RT", "1")];
    let refused = read("", &variable).unwrap_err().to_string();
    assert!(!refused.contains(char::is_control), "{refused:?}");
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Sections {
    webs: std::collections::BTreeMap<String, Web>,
    sizes: Vec<u16>,
}

/// All errors of a text, one per line.
fn all_errors(text: &str) -> Vec<String> {
    let check = |many: Sections| {
        let hostless = many.webs.iter().filter(|(_, web)| web.host.is_none());
        let sizes = many.sizes.iter().enumerate();
        let empty = sizes.filter(|(_, size)| **size == 0);
        let errors: Vec<_> = hostless
            .map(|(name, _)| ConfigError::new(format!("webs.{name}.host"), "it is missing"))
            .chain(empty.map(|(at, _)| ConfigError::new(format!("sizes.{at}"), "it is empty")))
            .collect();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors.into())
        }
    };
    match read_all("many.yaml", text.as_bytes(), check) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn all_errors_are_reported_with_positions() {
    let text = "webs:
  a:
    host: a
    prot: 1
  b:
    port: http
    host: 7
  c:
    enabled: true
  d:
    hots: d
";
    assert_eq!(
        all_errors(text),
        [
            "many.yaml:4:5: webs.a.prot: unknown key; the nearest known one is webs.a.port",
            "many.yaml:6:11: webs.b.port: expected a whole number, found a text",
            "many.yaml:7:11: webs.b.host: expected a text, found a number; put it in quotes",
            "many.yaml:9:5: webs.c.host: it is missing",
            "many.yaml:11:5: webs.d.hots: unknown key; the nearest known one is webs.d.host",
        ]
    );
    assert_eq!(all_errors("webs: {a: {host: a}}"), Vec::<String>::new());
    assert_eq!(
        all_errors("wbs: {a: {host: a}}"),
        ["many.yaml:1:1: wbs.a.host: unknown key; the nearest known one is webs.a.host"]
    );
    // Errors that only the conversion finds.
    let values = "webs:
  a: {host: a, port: 70000, level: loud}
  b: {port: 80000}
";
    let errors = all_errors(values);
    for (error, start) in errors.iter().zip([
        "many.yaml:2:22: webs.a.port: ",
        "many.yaml:2:36: webs.a.level: unknown variant `loud`",
        "many.yaml:3:6: webs.b.host: it is missing",
        "many.yaml:3:13: webs.b.port: ",
    ]) {
        assert!(error.starts_with(start), "{error}");
    }
    assert_eq!(errors.len(), 4, "{errors:?}");
    let errors = all_errors("sizes: [1, 70000]\nwebs: {a: {host: a, port: 70000}}\n");
    for (error, start) in errors
        .iter()
        .zip(["many.yaml:1:12: sizes.1: ", "many.yaml:2:27: webs.a.port: "])
    {
        assert!(error.starts_with(start), "{error}");
    }
    assert_eq!(errors.len(), 2, "{errors:?}");
    let broken = all_errors("webs: [");
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert!(
        broken[0].starts_with("many.yaml:1:"),
        "the place is told: {broken:?}"
    );
}

/// An error that follows from another key is not reported if that key has an error of its own,
/// which may be its only reason.
#[test]
fn consequences_of_other_errors_are_not_reported() {
    let check = |example: Example| {
        let mut errors = ConfigErrors::default();
        if example.web.port.is_none() {
            let error = ConfigError::new("web.host", "only allowed with a port");
            errors.push(error.depending_on("web.port"));
        }
        if example.web.proxies.is_empty() {
            let error = ConfigError::new("web.enabled", "only allowed with proxies");
            errors.push(error.depending_on("web.proxies"));
        }
        if example.token.is_none() {
            errors.push(ConfigError::new("token", "this key is required"));
        }
        errors
            .push(ConfigError::new("web.level", "only allowed with a token").depending_on("token"));
        Err::<Example, _>(errors)
    };
    let keys = |text: &str| -> Vec<String> {
        let errors = read_all::<Example, _>("x.yaml", text.as_bytes(), check).unwrap_err();
        errors.into_iter().map(|error| error.key).collect()
    };
    let sorted = |text: &str| {
        let mut keys = keys(text);
        keys.sort();
        keys
    };
    // Nothing else is wrong.
    assert_eq!(
        sorted("web: {host: a}\ntoken: a"),
        ["web.enabled", "web.host", "web.level"]
    );
    // A wrong type, a wrong value, a misspelt key, and a wrong item.
    for (text, expected) in [
        ("port: a", ["web.enabled", "web.level", "web.port"]),
        ("port: 70000", ["web.enabled", "web.level", "web.port"]),
        ("prot: 1", ["web.enabled", "web.level", "web.prot"]),
        ("proxies: [7]", ["web.host", "web.level", "web.proxies.0"]),
    ] {
        let text = format!("web: {{{text}}}\ntoken: a");
        assert_eq!(sorted(&text), expected, "{text}");
    }
    // An error of the check itself.
    assert_eq!(sorted("web: {port: 1}"), ["token", "web.enabled"]);
}
