//! The description of an agent from its hello, and the answer to it.

use std::sync::Arc;

use credentials::VerifiedToken;
use types::client::{Client, check_labels};
use wire::message::{
    ClientDetails, ControlChannelLiveness, ControlChannelOk, ControlChannelOutcome,
    OpenControlChannelRsp, ServerDetails, text,
};
use wire::{Error, Kind, Message};

use crate::core::Core;
use crate::directory::Project;

/// Longest detail of a client (its version, its system) that is kept.
const DETAIL_BYTES: usize = 256;

pub(super) fn client_view(
    core: &Core,
    project: &Project,
    details: &ClientDetails,
    credential: &VerifiedToken,
) -> Result<Client, Error> {
    check_labels(&details.labels).map_err(Error::from)?;
    let detail = |name: &str, value: Option<&wire::message::StringValue>| match text(value) {
        Some(value) if value.len() > DETAIL_BYTES => Err(Error::invalid_request(format!(
            "client_details.{name} is longer than {DETAIL_BYTES} bytes"
        ))),
        value => Ok(value.map(str::to_owned)),
    };
    let mut view = Client::online(core.live.new_client_id());
    view.user_id.clone_from(&credential.user_id);
    let state = project.state();
    let owned = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    view.project_id = Some(project.id.to_string());
    view.workspace_id = owned(&state.workspace_id);
    view.plan = owned(&state.plan);
    view.provider = owned(&state.provider);
    view.region = owned(&state.region);
    let cluster = core.tenancy.directory().and_then(|known| known.platform());
    view.cluster_id = cluster.map(|platform| platform.cluster_domain.clone());
    view.agent = detail("agent", details.agent.as_ref())?;
    view.channel = detail("channel", details.channel.as_ref())?;
    view.version = detail("version", details.version.as_ref())?;
    view.os = detail("os", details.os.as_ref())?;
    view.arch = detail("arch", details.arch.as_ref())?;
    view.protocol_version = detail("protocol_version", details.protocol_version.as_ref())?;
    view.labels.clone_from(&details.labels);
    Ok(view)
}

pub(super) fn greeting(
    project: &Project,
    client_id: String,
    liveness: Option<ControlChannelLiveness>,
    (extensions, process): (&[&'static str], &str),
) -> Message {
    let state = project.state();
    let owned = |text: &Option<Arc<str>>| text.as_deref().map(Into::into);
    let server_details = ServerDetails {
        plan: owned(&state.plan),
        provider: owned(&state.provider),
        region: owned(&state.region),
        agent: Some("svc-engine".into()),
        channel: Some("stable".into()),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        extensions: extensions.iter().map(|&name| name.to_owned()).collect(),
        process: process.to_owned(),
        ..ServerDetails::default()
    };
    let ok = ControlChannelOk {
        client_id,
        server_details: Some(server_details),
        liveness,
    };
    let outcome = Some(ControlChannelOutcome::Ok(ok));
    Kind::OpenControlChannelRsp(OpenControlChannelRsp { outcome }).into()
}
