//! Enrollment of this host: creates keys, sends the public ones to the platform, and writes the
//! settings for `svc webtty server`.

use std::path::PathBuf;

use api::control::webtty_servers::{
    DeclareWebttyServerCapabilities, ENROLL, EnrollWebttyServer, WebttyServer,
};
use jiff::Timestamp;
use terminal::{
    enrollment::{self, Enrollment},
    identity_file,
};
use tty::identity::KEY_ALGORITHM;

use super::Files;
use crate::{failure::Failure, output, platform::Session};

/// Enrolls this host as a server. Repeating it with the same keys changes nothing, so an
/// interrupted enrollment can be run again.
pub(super) async fn enroll(
    session: &Session,
    server: WebttyServer,
    files: &Files,
) -> Result<WebttyServer, Failure> {
    let enrollment_file = match &files.server_enrollment {
        Some(path) => path.clone(),
        None => Enrollment::path(&webtty_directory()?, &server.id).map_err(not_kept)?,
    };
    let identity_file = match &files.identity_file {
        Some(path) => std::path::absolute(path).map_err(not_kept)?,
        None => identity_file::path(&webtty_directory()?, &server.id).map_err(not_kept)?,
    };
    let identity = identity_file::load_or_create(&identity_file, Timestamp::now())
        .map_err(not_kept)?
        .public();
    let body = EnrollWebttyServer {
        server_public_key: identity.encryption_text(),
        server_signing_key_id: identity.signing.id(),
        server_signing_public_key: identity.signing.to_text(),
        server_fingerprint: Some(identity.fingerprint()),
        server_key_algorithm: KEY_ALGORITHM.to_owned(),
        capabilities: Some(capabilities()),
    };
    let ids = [server.project_id.as_str(), &server.id];
    let call = session.platform.call(ENROLL, &ids);
    let enrolled: WebttyServer = call.body(&body)?.repeatable().answer().await?;
    let kept = Enrollment {
        version: enrollment::VERSION,
        server_id: enrolled.id.clone(),
        server_name: enrolled.name.clone(),
        workspace_id: enrolled.workspace_id.clone(),
        project_id: enrolled.project_id.clone(),
        api_url: session.platform.address().to_string(),
        identity_file,
        server_public_key: body.server_public_key,
        server_signing_key_id: body.server_signing_key_id,
        server_signing_public_key: body.server_signing_public_key,
        server_fingerprint: identity.fingerprint(),
        server_key_algorithm: body.server_key_algorithm,
        encryption_policy: enrolled.encryption_policy.to_string(),
        enrollment_status: "enrolled".to_owned(),
        enrolled_at: enrolled.enrolled_at.clone().unwrap_or_default(),
    };
    kept.save(&enrollment_file).map_err(not_kept)?;
    let shown = enrollment_file.display().to_string();
    output::message(&format!("enrolled; {}", output::plain(&shown)));
    Ok(enrolled)
}

/// The capabilities of this program as a server.
fn capabilities() -> DeclareWebttyServerCapabilities {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let labels = [
        ("os_family", std::env::consts::OS),
        ("arch", std::env::consts::ARCH),
    ];
    DeclareWebttyServerCapabilities {
        transports: words(&["plain", "websocket"]),
        execution_modes: words(&["spawn", "login"]),
        encryption: words(&["disabled", "explicit_key"]),
        labels: labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    }
}

/// The directory of keys and enrollments.
fn webtty_directory() -> Result<PathBuf, Failure> {
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    home.map(|home| home.join(".svc").join("webtty"))
        .ok_or_else(|| {
            Failure::usage("no home directory is set")
                .hint("give --identity-file and --server-enrollment")
        })
}

fn not_kept(error: impl std::error::Error) -> Failure {
    Failure::from_error("cannot save the enrollment", error)
}
