//! The reason why a registered server is offline.

use api::control::webtty_servers::{GET, LIST, WebttyServer, WebttyServerList};
use types::webtty::ServerStatus;

use crate::{
    connection::Connection,
    failure::{Code, Failure},
    output::plain,
    platform::SessionFlags,
};

/// The reason why the server with this id or name is offline, if the platform of the context has
/// it. `None` without a platform, or if the platform does not answer.
pub(super) async fn offline_failure(connection: &Connection, wanted: &str) -> Option<Failure> {
    // The platform of the context has no data about an engine that was named explicitly.
    if connection.engine.is_some() {
        return None;
    }
    let flags = SessionFlags {
        api_url: None,
        token: connection.token.clone(),
        ca_file: connection.ca_file.clone(),
        proxy: connection.proxy.clone(),
        context: connection.context.clone(),
        config: connection.config.clone(),
    };
    let server = find_server(&flags, wanted).await?;
    let name = plain(&server.name);
    let (message, hint) = match server.status {
        ServerStatus::PendingEnrollment => (
            format!("server `{name}` is not enrolled yet"),
            format!("run `svc webtty server enroll {name}` on its host"),
        ),
        ServerStatus::Suspended => (
            format!("the server `{name}` is suspended"),
            format!("`svc webtty server resume {name}` allows it to connect again"),
        ),
        ServerStatus::Active => (
            format!("the server `{name}` is offline"),
            "is `svc webtty server` running on its host?".to_owned(),
        ),
    };
    let failure = Failure::new(Code::Failed, message);
    Some(failure.named("webtty_server_offline").hint(hint))
}

async fn find_server(flags: &SessionFlags, wanted: &str) -> Option<WebttyServer> {
    let session = flags.open().ok()?;
    let project = session.project(None).await.ok()?;
    if wanted.starts_with("wsv_") {
        let call = session.platform.call(GET, &[&project.id, wanted]);
        return call.answer().await.ok();
    }
    let call = session.platform.call(LIST, &[&project.id]);
    // The platform also matches parts of names.
    let call = call.query("q", Some(wanted)).query("pageSize", Some(100));
    let list: WebttyServerList = call.answer().await.ok()?;
    let mut servers = list.servers.into_iter();
    servers.find(|server| server.name == wanted)
}
