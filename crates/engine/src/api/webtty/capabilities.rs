//! Capabilities of this engine for terminals.

use std::sync::Arc;

use ::api::webtty::Capabilities;
use axum::extract::State;
use axum::response::Response;
use types::permission::Permission;
use types::webtty::{EncryptionMode, RecordingMode, Transport};

use super::json;
use crate::api::Api;
use crate::api::caller::{AnyCredential, Caller};
use crate::live::LoadMetric;

pub(super) async fn capabilities<A: LoadMetric>(
    _: Caller<AnyCredential>,
    State(api): State<Arc<Api<A>>>,
) -> Response {
    let managed = api.tenancy.directory().is_some();
    let stored = api.terminals.recorder.is_configured();
    let required = PERMISSIONS.iter().map(|(operation, permissions)| {
        let names = permissions.iter().map(ToString::to_string);
        ((*operation).to_owned(), names.collect())
    });
    json(Capabilities {
        managed_protocol: managed,
        store_configured: stored,
        session_listing: managed,
        recording: stored,
        replay: stored,
        live_attach: managed,
        control_transfer: managed,
        e2e: managed,
        implemented_transports: vec![Transport::Plain, Transport::Websocket],
        recording_modes: vec![RecordingMode::Recorded, RecordingMode::Private],
        encryption_modes: vec![EncryptionMode::Managed, EncryptionMode::E2e],
        required_permissions: required.collect(),
    })
}

/// WT-4. If there are several, any one of them suffices.
const PERMISSIONS: &[(&str, &[Permission])] = {
    use Permission::{
        WebttyLogsReadOnly, WebttyLogsReadWrite, WebttySessionsReadOnly, WebttySessionsReadWrite,
    };
    const READ: &[Permission] = &[WebttySessionsReadOnly, WebttySessionsReadWrite];
    const WRITE: &[Permission] = &[WebttySessionsReadWrite];
    &[
        ("sessions_read", READ),
        ("participants_attach", READ),
        ("control_requests_create", WRITE),
        ("control_requests_resolve", WRITE),
        ("sessions_terminate", WRITE),
        ("events_read", &[WebttyLogsReadOnly]),
        ("recordings_read", &[WebttyLogsReadOnly]),
        ("recordings_delete", &[WebttyLogsReadWrite]),
    ]
};
