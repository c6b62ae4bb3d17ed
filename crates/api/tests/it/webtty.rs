//! Schemas of managed terminals, as the public clients read them.

use api::webtty::{
    AttachBody, ControlRequest, ControlRequestBody, Participant, ResolveBody, Session,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn same<T: Serialize + DeserializeOwned>(value: &Value) {
    let read: T = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(&serde_json::to_value(read).unwrap(), value);
}

#[test]
fn fields_that_public_clients_read_keep_their_names_and_are_never_null() {
    same::<Session>(&json!({
        "id": "wts_1", "tunnel_id": "tun_1", "status": "active",
        "session_mode": "non-interactive", "recording_mode": "recorded",
        "encryption_mode": "managed", "downstream_transport": "websocket",
        "context": {"origin": "api", "initiator_kind": "agent", "labels": {"a": "b"}},
        "started_at": "2026-01-02T03:04:05.000Z", "exit_code": 0,
        "live": {"available": true, "attachable": true, "participant_count": 2,
            "controller_participant_id": "wtp_1", "has_upstream": true},
    }));
    same::<Participant>(&json!({
        "id": "wtp_1", "session_id": "wts_1", "role": "spectator",
        "attached_at": "2026-01-02T03:04:05.000Z", "controller": false,
        "grant_state": "attached", "attach_grant": "AAEC",
        "attach_grant_expires_at": "2026-01-02T03:04:35.000Z",
        "live": {"connected": false, "controller": false},
    }));
    same::<ControlRequest>(&json!({
        "id": "wtc_1", "session_id": "wts_1", "requester_participant_id": "wtp_1",
        "status": "pending", "reason": "the disk is full", "control_lines": 1,
        "created_at": "2026-01-02T03:04:05.000Z", "updated_at": "2026-01-02T03:04:05.000Z",
        "expires_at": "2026-01-02T03:06:05.000Z",
    }));
}

#[test]
fn requests_of_clients_are_parsed_and_unknown_keys_are_refused() {
    same::<AttachBody>(&json!({"role": "spectator", "transport": "websocket"}));
    same::<AttachBody>(&json!({}));
    same::<ControlRequestBody>(&json!({"participant_id": "wtp_1", "control_seconds": 60}));
    same::<ResolveBody>(&json!({"action": "grant", "approver_participant_id": "wtp_1"}));
    for wrong in [
        json!({"role": "owner"}),
        json!({"rôle": "spectator"}),
        json!([1]),
    ] {
        assert!(serde_json::from_value::<AttachBody>(wrong).is_err());
    }
    assert!(serde_json::from_value::<ResolveBody>(json!({"action": "expire"})).is_err());
}
