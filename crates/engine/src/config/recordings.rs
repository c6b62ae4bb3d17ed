//! Storage of recordings of managed terminals: the section of the file, and its check.

use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::config::values::optional_path;
use daemon::config::{ConfigError, ConfigErrors};
use http::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Storage and limits of recordings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recordings {
    /// Storage location; `None`: nothing is recorded.
    pub location: Option<RecordingLocation>,
    /// The file of the key that encrypts them; always set if there is a storage location.
    pub key_file: Option<PathBuf>,
    /// True if a missing key file is created.
    pub makes_key: bool,
    /// The file with the name under which this engine writes to a store that other engines use.
    pub owner_file: Option<PathBuf>,
    /// Behaviour if recordings cannot be stored.
    pub policy: RecordingPolicy,
    /// Bytes of one recording, including payload and heads.
    pub max_bytes_per_session: u64,
    /// Bytes of all recordings of a project.
    pub max_bytes_per_project: u64,
    /// Time for which they are kept; `None`: until they are deleted explicitly.
    pub retention: Option<Duration>,
}

/// Storage location of recordings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordingLocation {
    /// A folder of this machine.
    Folder(PathBuf),
    /// A bucket of an S3-compatible store.
    S3(S3),
}

/// A bucket of an S3-compatible store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3 {
    /// Address of the store: https, or http on loopback.
    pub endpoint: String,
    /// Name of the bucket.
    pub bucket: String,
    /// Region.
    pub region: String,
    /// Id of the access key.
    pub access_key_id: String,
    /// File of its secret.
    pub secret_access_key_file: PathBuf,
    /// Prefix of the names of all objects; may be empty.
    pub prefix: String,
}

/// Behaviour if a session that must be recorded cannot be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecordingPolicy {
    /// The session ends, and no other starts.
    #[default]
    Strict,
    /// The session continues, and the recording states that something is missing.
    BestEffort,
}

impl std::fmt::Display for RecordingPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict",
            Self::BestEffort => "best_effort",
        })
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RecordingsSection {
    /// The folder of recordings. If missing, it is created so that other users cannot read it.
    /// Without this key and `s3` it is `recordings` in `control_plane.data_dir`; a community engine
    /// then records nothing.
    #[schemars(example = "/var/lib/svc/recordings")]
    pub(super) path: Option<String>,
    /// An S3-compatible store for recordings, instead of a folder. Several engines may use the same
    /// one.
    pub(super) s3: Option<S3Section>,
    /// The file of the key that encrypts recordings, 64 hex digits. Without this key it is
    /// `recordings.key` beside the folder, or in `control_plane.data_dir` for a store, and is
    /// created at the first start. Engines that use the same store need the same key.
    #[schemars(example = "/etc/svc/recordings.key")]
    pub(super) key_file: Option<String>,
    /// Behaviour if a session cannot be recorded. With `strict` it ends and no other starts; with
    /// `best_effort` it continues and the recording states that something is missing.
    pub(super) policy: RecordingPolicy,
    /// Bytes of one recording, 65536 to 1099511627776. At this limit the recording states so and
    /// ends. With `strict` the session ends as well.
    pub(super) max_bytes_per_session: u64,
    /// Bytes of all recordings of one project, 1048576 to 1125899906842624. At this limit the
    /// behaviour is the same as for a session whose recording is full.
    pub(super) max_bytes_per_project: u64,
    /// Days for which recordings are kept, counted from the start of their sessions. After that
    /// they are removed with all data about the session. 0: for ever. 0 to 36500.
    pub(super) retention_days: u32,
}

impl Default for RecordingsSection {
    fn default() -> Self {
        Self {
            path: None,
            s3: None,
            key_file: None,
            policy: RecordingPolicy::default(),
            // A day of busy typing and reading takes about ten MiB.
            max_bytes_per_session: 256 * 1024 * 1024,
            max_bytes_per_project: 16 * 1024 * 1024 * 1024,
            retention_days: 90,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct S3Section {
    /// Address of the store: https, or http on loopback. Required in this section.
    #[schemars(example = "https://s3.example.com")]
    pub(super) endpoint: Option<String>,
    /// Name of the bucket; it has to exist. Required in this section.
    #[schemars(example = &"recordings")]
    pub(super) bucket: Option<String>,
    /// Region of the bucket; self-hosted stores mostly accept any.
    #[schemars(example = "eu-west-1")]
    pub(super) region: Option<String>,
    /// Id of the access key. Required in this section.
    #[schemars(example = &"AKIAEXAMPLE")]
    pub(super) access_key_id: Option<String>,
    /// The file with the secret of the access key, read at the start. Required in this section.
    #[schemars(example = "/etc/svc/s3-secret")]
    pub(super) secret_access_key_file: Option<String>,
    /// Prefix of the names of all objects.
    #[schemars(example = &"terminals")]
    pub(super) prefix: String,
}

type CheckResult<T> = Result<T, ConfigError>;

/// Converts the section; `data_dir` is the directory for the state of a managed engine.
///
/// # Errors
/// All errors.
pub(super) fn check(
    section: RecordingsSection,
    data_dir: Option<&Path>,
) -> Result<Recordings, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let recordings = check_values(section, data_dir, &mut errors);
    errors.finish(recordings)
}

fn check_values(
    section: RecordingsSection,
    data_dir: Option<&Path>,
    errors: &mut ConfigErrors,
) -> Option<Recordings> {
    let path = errors.keep_or_default(optional_path("webtty.recordings.path", section.path));
    let mut is_placed = true;
    let location = match (path, section.s3) {
        (Some(_), Some(_)) => {
            let message = "recordings have one storage: remove this key or s3";
            errors.push(ConfigError::new("webtty.recordings.path", message));
            is_placed = false;
            None
        }
        (Some(path), None) => Some(RecordingLocation::Folder(path)),
        (None, Some(s3)) => {
            let bucket = bucket(s3, errors);
            is_placed = bucket.is_some();
            bucket.map(RecordingLocation::S3)
        }
        (None, None) => data_dir.map(|dir| RecordingLocation::Folder(dir.join("recordings"))),
    };
    let given = optional_path("webtty.recordings.key_file", section.key_file);
    let given = errors.keep_or_default(given);
    let makes_key = given.is_none();
    let beside = match &location {
        Some(RecordingLocation::Folder(path)) => path.parent(),
        _ => data_dir,
    };
    let key_file = given.or_else(|| beside.map(|dir| dir.join("recordings.key")));
    if location.is_some() && key_file.is_none() {
        let message = "this key is required: there is no default location for the key";
        let error = ConfigError::new("webtty.recordings.key_file", message);
        errors.push(error.depending_on("control_plane"));
    }
    let owner_file = match &location {
        Some(RecordingLocation::Folder(path)) => Some(path.join(".owner")),
        _ => data_dir.map(|dir| dir.join("recordings.owner")),
    };
    let days = section.retention_days;
    if days > MAX_DAYS {
        let message = format!("{days} is not between 0 and {MAX_DAYS}");
        errors.push(ConfigError::new(
            "webtty.recordings.retention_days",
            message,
        ));
    }
    let max_bytes_per_session = bytes(
        "max_bytes_per_session",
        section.max_bytes_per_session,
        64 * 1024,
        1 << 40,
    );
    let max_bytes_per_project = bytes(
        "max_bytes_per_project",
        section.max_bytes_per_project,
        1024 * 1024,
        1 << 50,
    );
    let recordings = Recordings {
        location,
        key_file,
        makes_key,
        owner_file,
        policy: section.policy,
        max_bytes_per_session: errors.keep_or_default(max_bytes_per_session),
        max_bytes_per_project: errors.keep_or_default(max_bytes_per_project),
        retention: (days > 0).then(|| Duration::from_secs(u64::from(days) * DAY)),
    };
    is_placed.then_some(recordings)
}

/// A century: a larger number is a typo.
const MAX_DAYS: u32 = 36_500;

const DAY: u64 = 24 * 60 * 60;

fn bytes(name: &str, value: u64, low: u64, high: u64) -> CheckResult<u64> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(ConfigError::new(
        format!("webtty.recordings.{name}"),
        format!("{value} is not between {low} and {high}"),
    ))
}

fn bucket(section: S3Section, errors: &mut ConfigErrors) -> Option<S3> {
    let named = |name: &str| format!("webtty.recordings.s3.{name}");
    let required = |name: &str, value: Option<String>| {
        let value = value.filter(|value| !value.is_empty());
        value.ok_or_else(|| ConfigError::new(named(name), "this key is required"))
    };
    let endpoint = required("endpoint", section.endpoint).and_then(|endpoint| {
        let message = "this is not an https address, nor an http address on loopback";
        let unsafe_endpoint = || ConfigError::new(named("endpoint"), message);
        is_safe(&endpoint)
            .then_some(endpoint)
            .ok_or_else(unsafe_endpoint)
    });
    let endpoint = errors.keep(endpoint);
    let bucket = errors.keep(required("bucket", section.bucket));
    let access_key_id = errors.keep(required("access_key_id", section.access_key_id));
    let secret = required("secret_access_key_file", section.secret_access_key_file);
    let secret = errors.keep(secret);
    Some(S3 {
        endpoint: endpoint?.trim_end_matches('/').to_owned(),
        bucket: bucket?,
        region: section.region.unwrap_or_else(|| "us-east-1".to_owned()),
        access_key_id: access_key_id?,
        secret_access_key_file: PathBuf::from(secret?),
        prefix: section.prefix.trim_matches('/').to_owned(),
    })
}

fn is_safe(endpoint: &str) -> bool {
    let Ok(uri) = endpoint.parse::<Uri>() else {
        return false;
    };
    let Some(host) = uri.host() else {
        return false;
    };
    match uri.scheme_str() {
        Some("https") => true,
        Some("http") => daemon::config::values::is_loopback(host),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(yaml: &str, data_dir: Option<&str>) -> Result<Recordings, String> {
        let section = serde_json::from_str(yaml).map_err(|error| error.to_string())?;
        check(section, data_dir.map(Path::new)).map_err(|error| error.to_string())
    }

    #[test]
    fn by_default_only_a_managed_engine_records_in_its_data_directory() {
        let managed = checked("{}", Some("/var/lib/svc")).unwrap();
        assert_eq!(
            managed.location,
            Some(RecordingLocation::Folder("/var/lib/svc/recordings".into()))
        );
        assert_eq!(managed.key_file, Some("/var/lib/svc/recordings.key".into()));
        assert!(managed.makes_key && managed.policy == RecordingPolicy::Strict);
        assert_eq!(checked("{}", None).unwrap().location, None);
        let own = checked(r#"{"path":"/srv/rec","retention_days":0}"#, None).unwrap();
        assert_eq!(own.key_file, Some("/srv/recordings.key".into()));
        assert_eq!(own.retention, None);
    }

    #[test]
    fn mistakes_are_named() {
        let s3 = |more: &str| {
            format!(
                r#"{{"s3":{{"bucket":"b","access_key_id":"a","secret_access_key_file":"/s"{more}}}}}"#
            )
        };
        let https = r#","endpoint":"https://s3.example.com""#;
        for (yaml, problem) in [
            (r#"{"unknown":1}"#.to_owned(), "unknown field"),
            (r#"{"policy":"lenient"}"#.to_owned(), "unknown variant"),
            (s3(""), "s3.endpoint"),
            (s3(r#","endpoint":"http://s3.example.com""#), "s3.endpoint"),
            (s3(https), "key_file"),
            (s3(r#","path":"/x""#), "unknown field"),
            (r#"{"path":""}"#.to_owned(), "recordings.path"),
            (r#"{"max_bytes_per_session":1}"#.to_owned(), "per_session"),
            (r#"{"max_bytes_per_project":1}"#.to_owned(), "per_project"),
            (r#"{"retention_days":99999}"#.to_owned(), "retention_days"),
        ] {
            let refused = checked(&yaml, None).unwrap_err();
            assert!(refused.contains(problem), "{yaml}: {refused}");
        }
        assert!(checked(&s3(https), Some("/var/lib/svc")).is_ok());
    }
}
