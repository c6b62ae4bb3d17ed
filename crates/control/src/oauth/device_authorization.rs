//! `POST /oauth/device_authorization` (OA-4, RFC 8628 section 3.1).

use std::net::IpAddr;
use std::sync::Arc;

use api::control::oauth::DeviceAuthorization;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use daemon::connections::source_network;
use ipnet::IpNet;
use jiff::SignedDuration;
use store::device_grants::{self, DeviceGrant, Status};
use store::{Conflict, SecretHash};

use super::error::{Code, OauthError, no_store};
use super::form::ClientForm;
use super::scope::{parse_scope, resource};
use super::source;
use super::user_code::UserCode;
use crate::app::App;
use crate::http_api::extract::ClientIp;
use crate::people::secret_link::LinkSecret;
use crate::people::session::later;

pub(super) async fn device_authorization(
    State(app): State<Arc<App>>,
    ip: Result<ClientIp, crate::http_api::problem::Refusal>,
    mut form: ClientForm,
) -> Result<Response, OauthError> {
    let ClientIp(ip) = ip?;
    let client = form.client(&app)?;
    if !client.is_device() {
        let description = "this client has callbacks and must use the authorization code grant";
        return Err(Code::UnauthorizedClient.with_description(description));
    }
    let scope = parse_scope(form.take("scope").as_deref())?;
    resource(&app.config, form.take("resource").as_deref())?;
    let compat = app.config.compat_rstream;
    let sources = [
        form.take("svc_source"),
        form.take("rstream_source").filter(|_| compat),
    ];
    let source = match sources {
        [Some(_), Some(_)] => {
            let description = "svc_source and rstream_source have the same meaning: send only one";
            return Err(Code::InvalidRequest.with_description(description));
        }
        [Some(text), None] | [None, Some(text)] => source::parse(&text)?,
        [None, None] => Vec::new(),
    };
    let now = app.now();
    if let Err(wait) = app
        .oauth
        .devices_by_network
        .record_attempt(&source_network(ip), now)
    {
        let refused = Code::TemporarilyUnavailable
            .with_description("too many device requests from this address");
        return Err(refused.with_retry_after(wait.0));
    }
    let device_code = LinkSecret::draw()?;
    // A code has 34 bits. If another device waits with the same code, it is drawn again.
    for _ in 0..MAX_DRAWS {
        let user_code = UserCode::draw()?;
        let grant = DeviceGrant {
            hash: SecretHash(device_code.hash()),
            user_code_hash: user_code.hash(&app)?,
            client_id: client.id().to_owned(),
            permissions: scope.iter().map(|one| one.to_string()).collect(),
            resources: None,
            source: Some(serde_json::json!(source)),
            ip: ip.to_string(),
            created_at: now,
            expires_at: later(now, LIFETIME),
            interval_seconds: i64::from(INTERVAL_SECONDS),
            status: Status::Pending,
            user_id: None,
            session_id: None,
        };
        let mut tx = app.store.begin().await?;
        let network = network_of(ip).to_string();
        let of_network = device_grants::count_of_network(&mut tx, &network, now).await?;
        if of_network >= MAX_PER_NETWORK {
            let refused = Code::TemporarilyUnavailable
                .with_description("too many device requests from this address");
            return Err(refused.with_retry_after(INTERVAL_SECONDS));
        }
        // Removing rows of the networks with the most codes keeps the endpoint available to others.
        if device_grants::count(&mut tx, now).await? >= MAX_PENDING {
            device_grants::make_room(&mut tx, now, EVICTION_BATCH).await?;
        }
        match device_grants::insert(&mut tx, &grant, &network).await {
            Err(store::Error::Conflict(Conflict::UserCodeTaken)) => continue,
            other => other?,
        }
        tx.commit().await?;
        return Ok(no_store(
            answer(&app, &device_code, user_code).into_response(),
        ));
    }
    tracing::error!("no free user code was found");
    Err(Code::ServerError.with_description("no code was free"))
}

fn answer(app: &App, device_code: &LinkSecret, user_code: UserCode) -> Json<DeviceAuthorization> {
    let user_code = user_code.reveal();
    Json(DeviceAuthorization {
        device_code: device_code.reveal(),
        verification_uri: app.config.url("/device"),
        verification_uri_complete: app.config.url(&format!("/device?user_code={user_code}")),
        user_code,
        expires_in: u32::try_from(LIFETIME.as_secs()).unwrap_or_default(),
        interval: INTERVAL_SECONDS,
    })
}

/// Time to find the browser, the password and the second factor. It is short, because an attacker
/// can persuade a user to approve the code while it is pending.
const LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// For this long a device receives the error that its code has expired, instead of an unknown code.
pub(crate) const EXPIRED_CODE_RETENTION: SignedDuration = SignedDuration::from_hours(1);

/// The default of RFC 8628 section 3.2.
pub(super) const INTERVAL_SECONDS: u32 = 5;

/// Maximum number of pending codes. More codes would make a guess more likely to match. With this
/// many it matches one time in a quarter of a million.
const MAX_PENDING: u64 = 100_000;

/// Maximum for one network, a hundredth of all codes. It allows a company to set up its machines
/// together.
const MAX_PER_NETWORK: u64 = 1_000;

/// Number of rows that are removed together, so that the rows are not counted for each device.
const EVICTION_BATCH: u32 = 100;

/// The network of an address, in the size that one owner usually has: a /24, or a /48 of IPv6.
fn network_of(address: IpAddr) -> IpNet {
    let (address, length) = match address.to_canonical() {
        address @ IpAddr::V4(_) => (address, 24),
        address @ IpAddr::V6(_) => (address, 48),
    };
    IpNet::new(address, length).map_or(IpNet::from(address), |network| network.trunc())
}

/// Four duplicate draws in a row are not an accident.
const MAX_DRAWS: u32 = 4;
