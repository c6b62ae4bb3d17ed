//! Keeps `docs/agent-configuration.md` and `docs/agent.schema.json` current. Both are generated
//! from the file's type: `BLESS=1 cargo test -p svc --bin svc run::reference` rewrites them.

use std::{collections::BTreeSet, fs, path::Path};

use clap::CommandFactory;
use client::Properties;
use daemon::config::reference::{self, Documents};

use super::plan::Plan;

const DOCUMENTS: Documents = Documents {
    folder: DOCS,
    page: "agent-configuration.md",
    markers: [
        "<!-- agent keys: made from crates/svc/src/commands/run/file.rs -->\n",
        "<!-- end of agent keys -->\n",
    ],
    schema: "agent.schema.json",
};
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

#[test]
fn the_reference_has_every_key() {
    DOCUMENTS.check_page(&super::schema()).unwrap();
}

#[test]
fn the_committed_schema_is_current() {
    DOCUMENTS.check_schema(&super::schema()).unwrap();
}

#[test]
fn the_examples_of_the_documentation_are_accepted() {
    let text = fs::read_to_string(Path::new(DOCS).join(DOCUMENTS.page)).unwrap();
    let examples: Vec<_> = text
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|example| example.starts_with("version: 1"))
        .collect();
    assert!(examples.len() >= 2, "{examples:?}");
    for example in examples {
        let read = Plan::parse("example", example.as_bytes());
        assert!(read.is_ok(), "{example}\n{read:?}");
    }
}

#[test]
fn every_key_is_described() {
    assert_eq!(
        reference::undescribed(&super::schema()),
        Vec::<String>::new()
    );
}

/// A new tunnel property must be supported by flags, file and library.
#[test]
fn files_flags_and_library_have_the_same_properties() {
    let schema = super::schema();
    let keys = &schema["properties"]["tunnels"]["additionalProperties"]["properties"];
    let keys: BTreeSet<_> = keys
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();

    let short_forms = ["http", "tls", "tcp", "bytestream"];
    let command_flags = [
        "client_label",
        "heartbeat",
        "output",
        "help",
        "qr",
        "no_panel",
        "basic_auth",
        "inspect",
        "hidden",
        "spa",
        "drain",
        "health_listen",
        "metrics_token_file",
    ];
    let cli = crate::cli::Cli::command();
    let forward = cli.find_subcommand("forward").unwrap();
    for flag in forward.get_arguments() {
        let in_connection = flag.get_help_heading() == Some("Connection");
        let Some(long) = flag.get_long().filter(|_| !in_connection) else {
            continue;
        };
        let key = match long {
            "no-publish" => "publish".to_owned(),
            "label" => "labels".to_owned(),
            "geoip" => "geo_ip".to_owned(),
            long => long.replace('-', "_"),
        };
        let elsewhere = short_forms.contains(&long) || command_flags.contains(&key.as_str());
        assert!(elsewhere || keys.contains(key.as_str()), "--{long}");
    }

    let text = r#"{"name":"a","type":"b","publish":true,"protocol":"c","labels":{"d":"e"},
        "geo_ip":["CH"],"trusted_ips":["::1"],"tls_mode":"f","tls_alpns":["g"],
        "tls_min_version":"h","mtls_auth":true,"http_version":"i","token_auth":true,
        "svc_auth":true,"challenge_mode":true,"hostname":"j","port":1,"upstream_tls":true,
        "allow_cross_region_routing":true,"share":true,"allowed_origins":["https://a.example"],
        "pass_headers":["k"],"identity":["email=x-user"]}"#;
    let properties: Properties = serde_json::from_str(text).unwrap();
    // The file has the times as texts, which the plan parses.
    assert!(keys.contains("time_to_first_byte"));
    let section: super::file::TunnelSection = serde_json::from_str(text).unwrap();
    assert_eq!(section.properties(), properties);
}
