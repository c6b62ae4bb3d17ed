//! The `oauth2` crate. It leaves HTTP to its users, which is hyper here, with one connection per
//! request.

use std::cell::RefCell;
use std::io;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{CLIENT, Platform};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use oauth2::basic::{BasicClient, BasicTokenResponse};
use oauth2::url::Url;
use oauth2::{
    AccessToken, AuthUrl, AuthorizationCode, ClientId, CsrfToken, DeviceAuthorizationUrl,
    EndpointNotSet, EndpointSet, HttpRequest, HttpResponse, PkceCodeChallenge, RedirectUrl,
    RevocationUrl, Scope, StandardDeviceAuthorizationResponse, TokenResponse as _, TokenUrl,
};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::SCOPE;

/// A client with every endpoint except introspection, which does not exist.
type Client = BasicClient<EndpointSet, EndpointSet, EndpointNotSet, EndpointSet, EndpointSet>;

/// The authorization code with PKCE; then the token is used and revoked.
pub(super) fn code_grant(platform: &Platform) -> Result<Value> {
    let redirect = RedirectUrl::new(platform.callback())?;
    let client = client(platform, CLIENT)?.set_redirect_uri(redirect);
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let (address, state) = client
        .authorize_url(CsrfToken::new_random)
        .add_scope(Scope::new(SCOPE.to_owned()))
        .add_extra_param("resource", platform.base_url())
        .set_pkce_challenge(challenge)
        .url();
    let returned = Url::parse(&platform.approve(address.as_str())?)?;
    ensure!(answer(&returned, "state")? == *state.secret(), "{returned}");
    ensure!(
        answer(&returned, "iss")? == platform.base_url(),
        "{returned}"
    );
    let code = AuthorizationCode::new(answer(&returned, "code")?);
    let token = client
        .exchange_code(code)
        .set_pkce_verifier(verifier)
        .request(&send)?;
    use_up(platform, &client, &token)
}

/// The device grant; then the token is used and revoked.
pub(super) fn device_grant(platform: &Platform) -> Result<Value> {
    let client = client(platform, "svc-cli")?;
    let device: StandardDeviceAuthorizationResponse = client
        .exchange_device_code()
        .add_scope(Scope::new(SCOPE.to_owned()))
        .request(&send)?;
    let approved = RefCell::new(None);
    #[expect(
        clippy::disallowed_methods,
        reason = "the grant's own pause between two questions"
    )]
    let wait = |interval: Duration| {
        // It has polled once, before the approval.
        approved.borrow_mut().get_or_insert_with(|| {
            platform.approve_device(
                device.verification_uri().as_str(),
                device.user_code().secret(),
            )
        });
        // The server sets the polling interval.
        thread::sleep(interval);
    };
    let token = client
        .exchange_device_access_token(&device)
        .request(&send, wait, None)?;
    approved
        .into_inner()
        .context("a token before the approval")??;
    use_up(platform, &client, &token)
}

/// Calls the API and a tool, revokes the token, and checks that it is not valid any more.
fn use_up(platform: &Platform, client: &Client, token: &BasicTokenResponse) -> Result<Value> {
    ensure!(token.refresh_token().is_none(), "a refresh token");
    let scopes: Vec<&str> = token
        .scopes()
        .into_iter()
        .flatten()
        .map(|one| one.as_str())
        .collect();
    let access = token.access_token();
    let (_, whoami) = whoami(platform, access)?;
    let (_, called) = project_list(platform, access)?;
    client.revoke_token(access.clone().into())?.request(&send)?;
    let (after, _) = self::whoami(platform, access)?;
    let (tool, _) = project_list(platform, access)?;
    ensure!(
        [after, tool] == [StatusCode::UNAUTHORIZED; 2],
        "{after} {tool}"
    );
    Ok(json!({
        "whoami": whoami,
        "listed": called["result"]["structuredContent"],
        "scope": scopes.join(" "),
        "expires_in": token.expires_in().map(|lifetime| lifetime.as_secs()),
    }))
}

fn client(platform: &Platform, id: &str) -> Result<Client> {
    let known = format!(
        "{}/.well-known/oauth-authorization-server",
        platform.base_url()
    );
    let metadata = json_of(&send(Request::get(known).body(Vec::new())?)?)?;
    let endpoint = |name: &str| {
        let address = metadata[name].as_str().map(str::to_owned);
        address.with_context(|| format!("the metadata have no {name}"))
    };
    // It revokes over TLS only, which the platform of a test does not have. `send` removes it.
    let revocation = endpoint("revocation_endpoint")?.replacen("http:", "https:", 1);
    Ok(BasicClient::new(ClientId::new(id.to_owned()))
        .set_auth_uri(AuthUrl::new(endpoint("authorization_endpoint")?)?)
        .set_token_uri(TokenUrl::new(endpoint("token_endpoint")?)?)
        .set_device_authorization_url(DeviceAuthorizationUrl::new(endpoint(
            "device_authorization_endpoint",
        )?)?)
        .set_revocation_url(RevocationUrl::new(revocation)?))
}

/// A parameter of the redirect to the client.
fn answer(returned: &Url, name: &str) -> Result<String> {
    let found = returned.query_pairs().find(|(key, _)| key == name);
    let (_, value) = found.with_context(|| format!("no {name} in {returned}"))?;
    Ok(value.into_owned())
}

fn whoami(platform: &Platform, token: &AccessToken) -> Result<(StatusCode, Value)> {
    let address = format!("{}/api/whoami", platform.base_url());
    let request = Request::get(address).header("authorization", bearer(token));
    let response = send(request.body(Vec::new())?)?;
    Ok((response.status(), json_of(&response)?))
}

fn project_list(platform: &Platform, token: &AccessToken) -> Result<(StatusCode, Value)> {
    let call = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "svc_project_list", "arguments": {}},
    });
    let request = Request::post(format!("{}/api/mcp", platform.base_url()))
        .header("authorization", bearer(token))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-11-25");
    let response = send(request.body(call.to_string().into())?)?;
    Ok((response.status(), json_of(&response)?))
}

fn bearer(token: &AccessToken) -> String {
    format!("Bearer {}", token.secret())
}

fn json_of(response: &HttpResponse) -> Result<Value> {
    let text = String::from_utf8_lossy(response.body());
    serde_json::from_str(&text).with_context(|| format!("no JSON: {text}"))
}

/// The HTTP client for the library. It follows no redirects, as the library requires.
fn send(request: HttpRequest) -> io::Result<HttpResponse> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let authority = request.uri().authority().map(ToString::to_string);
        let authority = authority.ok_or_else(|| io::Error::other("no authority"))?;
        let path = request.uri().path_and_query().map(ToString::to_string);
        let stream = TcpStream::connect(&authority).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        // Ends with the runtime.
        tokio::spawn(connection);
        let (mut head, body) = request.into_parts();
        head.uri = path
            .unwrap_or_default()
            .parse::<Uri>()
            .map_err(io::Error::other)?;
        let authority = authority.parse().map_err(io::Error::other)?;
        head.headers.insert("host", authority);
        let request = Request::from_parts(head, Full::<Bytes>::from(body));
        let response = sender
            .send_request(request)
            .await
            .map_err(io::Error::other)?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?;
        Ok(HttpResponse::from_parts(head, body.to_bytes().into()))
    })
}
