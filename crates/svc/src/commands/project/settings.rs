//! `svc project settings`: the policy of a project (ED-8).

use api::control::settings::{DELETE, GET, PATCH, ProjectSettings, ProjectSettingsPatch};
use clap::{Parser, Subcommand};
use serde_json::{Map, Value, json};

use super::ProjectArg;
use crate::{failure::Failure, output, output::Format};

/// The flags of `svc project settings`.
#[derive(Debug, Parser)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  svc project settings
  svc project settings set publicAccessPolicy=auth-required trustedIps=192.0.2.0/24
  svc project settings set geoIp=deny:AQ minTlsVersion=
  svc project settings reset"
)]
pub(crate) struct SettingsArgs {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    on: ProjectArg,
}

/// The subcommands. Without one, the policy is shown.
#[derive(Debug, Subcommand)]
enum Command {
    /// Show the policy
    Get(ProjectArg),
    /// Change parts of the policy
    #[command(after_help = "Example:
  svc project settings set publicAccessPolicy=auth-required trustedIps=192.0.2.0/24")]
    Set(SetArgs),
    /// Reset the policy to its defaults
    Reset(ProjectArg),
}

/// The flags of `svc project settings set`.
#[derive(Debug, Parser)]
struct SetArgs {
    /// `publicAccessPolicy` (allowed, auth-required, forbidden), `publishedTcpEnabled` (true,
    /// false), `trustedIps` (a,b), `geoIp` (allow:CH,AT or deny:AQ), `minTlsVersion` (tls1.2,
    /// tls1.3). A key without a value is reset to its default
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = pair)]
    changes: Vec<(String, Value)>,

    #[command(flatten)]
    on: ProjectArg,
}

/// Runs a subcommand.
pub(super) async fn run(args: SettingsArgs) -> Result<(), Failure> {
    match args.command {
        None => get(args.on).await,
        Some(Command::Get(on)) => get(on).await,
        Some(Command::Set(set)) => change(set).await,
        Some(Command::Reset(on)) => reset(on).await,
    }
}

async fn get(on: ProjectArg) -> Result<(), Failure> {
    let session = on.flags.open()?;
    let project = session.project(on.project.as_deref()).await?;
    let call = session.platform.call(GET, &[&project.id]);
    show(on.output, &call.answer().await?)
}

async fn change(args: SetArgs) -> Result<(), Failure> {
    let patch = parse_patch(args.changes)?;
    let session = args.on.flags.open()?;
    let project = session.project(args.on.project.as_deref()).await?;
    let call = session.platform.call(PATCH, &[&project.id]);
    show(args.on.output, &call.body(&patch)?.answer().await?)
}

async fn reset(on: ProjectArg) -> Result<(), Failure> {
    let session = on.flags.open()?;
    let project = session.project(on.project.as_deref()).await?;
    session
        .platform
        .call(DELETE, &[&project.id])
        .execute()
        .await?;
    let call = session.platform.call(GET, &[&project.id]);
    show(on.output, &call.answer().await?)
}

fn show(format: Format, settings: &ProjectSettings) -> Result<(), Failure> {
    if format == Format::Json {
        return output::json(settings);
    }
    let value = serde_json::to_value(settings)
        .map_err(|error| Failure::from_error("the settings cannot be shown", error))?;
    let text = |key: &str| match value.get(key) {
        None => "not set".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => items
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(","),
        Some(other) => other.to_string(),
    };
    output::record(&KEYS.map(|key| (key, text(key))))
}

/// Parses one `key=value` into JSON.
fn pair(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` is not key=value"))?;
    if !KEYS.contains(&key) {
        return Err(format!(
            "setting `{key}` does not exist; the settings are {}",
            KEYS.join(", ")
        ));
    }
    let list = |text: &str| -> Value { text.split(',').map(str::trim).collect() };
    let value = match (key, value) {
        (_, "" | "null") => Value::Null,
        ("publishedTcpEnabled", "true") => json!(true),
        ("publishedTcpEnabled", "false") => json!(false),
        ("trustedIps", value) => list(value),
        ("geoIp", value) => match value.split_once(':') {
            Some((way @ ("allow" | "deny"), countries)) => json!({way: list(countries)}),
            _ => return Err("write geoIp=allow:CH,AT or geoIp=deny:AQ".to_owned()),
        },
        (_, value) => json!(value),
    };
    Ok((key.to_owned(), value))
}

fn parse_patch(changes: Vec<(String, Value)>) -> Result<ProjectSettingsPatch, Failure> {
    let mut object = Map::new();
    for (key, value) in changes {
        if object.contains_key(&key) {
            return Err(Failure::usage(format!("`{key}` is given twice")));
        }
        object.insert(key, value);
    }
    serde_json::from_value(Value::Object(object)).map_err(|error| {
        Failure::usage(format!("not a valid setting: {error}"))
            .hint("`svc project settings set --help` shows the values")
    })
}

/// Every setting, by its name in the API.
const KEYS: [&str; 5] = [
    "publicAccessPolicy",
    "publishedTcpEnabled",
    "trustedIps",
    "geoIp",
    "minTlsVersion",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_converted_to_an_api_change() {
        let changes = [
            "publicAccessPolicy=auth-required",
            "publishedTcpEnabled=false",
            "trustedIps=192.0.2.0/24, 2001:db8::1",
            "geoIp=deny:AQ,BV",
            "minTlsVersion=",
        ];
        let changes = changes.map(|text| pair(text).unwrap()).to_vec();
        assert_eq!(
            serde_json::to_value(parse_patch(changes).unwrap()).unwrap(),
            json!({
                "publicAccessPolicy": "auth-required",
                "publishedTcpEnabled": false,
                "trustedIps": ["192.0.2.0/24", "2001:db8::1"],
                "geoIp": {"deny": ["AQ", "BV"]},
                "minTlsVersion": null,
            })
        );
    }

    #[test]
    fn unknown_settings_are_refused_by_name() {
        assert!(
            pair("publicAccess=allowed")
                .unwrap_err()
                .contains("publicAccessPolicy")
        );
        assert!(pair("trustedIps").is_err());
        assert!(pair("geoIp=CH").is_err());
        for wrong in ["publishedTcpEnabled=yes", "minTlsVersion=tls1.1"] {
            let failure = parse_patch(vec![pair(wrong).unwrap()]).unwrap_err();
            assert!(
                failure.to_string().contains("not a valid setting"),
                "{failure}"
            );
        }
        let twice = ["trustedIps=a", "trustedIps=b"].map(|text| pair(text).unwrap());
        assert!(parse_patch(twice.to_vec()).is_err());
    }

    #[test]
    fn every_setting_of_the_api_can_be_set() {
        let all: Map<String, Value> = KEYS
            .iter()
            .map(|key| ((*key).to_owned(), Value::Null))
            .collect();
        let patch: ProjectSettingsPatch = serde_json::from_value(all.into()).unwrap();
        let keys = serde_json::to_value(patch).unwrap();
        assert_eq!(keys.as_object().unwrap().len(), KEYS.len());
    }
}
