//! The stream of a participant: WebTTY on a WebSocket, after attaching (WT-3).

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Path, State};
use types::id::ParticipantId;
use types::problem::Problem;

use super::{HandlerResult, path, refused};
use crate::api::Api;
use crate::api::caller::SessionJoiner;
use crate::live::LoadMetric;
use crate::webtty::{self, Peer, SessionEntry};

/// Joins a session. The first message authenticates the caller with the grant from attaching. The
/// stream ends when the permission behind the attachment ends.
pub(super) async fn join<A: LoadMetric>(
    joiner: SessionJoiner,
    State(api): State<Arc<Api<A>>>,
    ids: Result<Path<(String, String)>, PathRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> HandlerResult {
    let (id, participant) = path(ids)?;
    let upgrade = upgrade.map_err(|_| Problem::upgrade_required())?;
    let participant: ParticipantId = participant.parse().map_err(|_| Problem::not_found())?;
    let known = api.terminals.find(&joiner.project.id, &id);
    let session = match known.ok_or_else(Problem::not_found)? {
        SessionEntry::Running(running) => running,
        SessionEntry::Ended(_) => {
            return Err(refused(tty::managed::SessionRefusalError::NotActive).into());
        }
    };
    let counted = api.upgraded.token();
    let config = webtty::websocket_config();
    Ok(upgrade
        .max_message_size(tty::message::limits::MAX_MESSAGE)
        .max_frame_size(tty::message::limits::MAX_MESSAGE)
        .read_buffer_size(config.read_buffer_size)
        .write_buffer_size(config.write_buffer_size)
        .on_upgrade(async move |socket| {
            let mut peer = Peer::api(socket);
            let opened = webtty::open_attachment(&session, &participant, &mut peer).await;
            if let Some((seat, lifetime)) = opened {
                let revoked = async {
                    match lifetime {
                        Some(mut lifetime) => drop(lifetime.ended().await),
                        None => std::future::pending().await,
                    }
                };
                webtty::participate(&session, &seat, peer, revoked).await;
            }
            drop(counted);
        }))
}
