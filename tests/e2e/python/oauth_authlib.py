"""Authlib: authorization code with PKCE, revocation; and the device grant."""

import json
import os
import time

import httpx
from authlib.common.security import generate_token
from authlib.integrations.base_client.errors import OAuthError
from authlib.integrations.httpx_client import OAuth2Client
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata, get_well_known_url

from person import Person

# The platform of a test has no TLS.
os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

SCOPE = "account.projects.read-only"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
WORLD = json.loads(os.environ["SVC_TEST_WORLD"])
URL = WORLD["url"]


def client(metadata, name):
    return OAuth2Client(
        name,
        token_endpoint_auth_method="none",
        revocation_endpoint_auth_method="none",
        code_challenge_method="S256",
        redirect_uri=WORLD["given"]["callback"],
        scope=SCOPE,
        token_endpoint=metadata["token_endpoint"],
        trust_env=False,
    )


def code_grant(metadata):
    session = client(metadata, WORLD["given"]["client"])
    verifier = generate_token(48)
    address, state = session.create_authorization_url(
        metadata["authorization_endpoint"], code_verifier=verifier, resource=URL
    )
    returned = Person(WORLD).approve(address)
    session.fetch_token(authorization_response=returned, code_verifier=verifier, state=state)
    return use(metadata, session)


def device_grant(metadata):
    session = client(metadata, "svc-cli")
    asked = {"client_id": "svc-cli", "scope": SCOPE}
    endpoint = metadata["device_authorization_endpoint"]
    started = httpx.post(endpoint, data=asked, trust_env=False).raise_for_status().json()

    def poll():
        return session.fetch_token(grant_type=DEVICE, device_code=started["device_code"])

    # The request is not yet approved.
    try:
        poll()
        raise AssertionError("a token before the approval")
    except OAuthError as error:
        assert error.error == "authorization_pending", error
    Person(WORLD).approve_device(started["verification_uri"], started["user_code"])
    # The server sets the polling interval.
    time.sleep(started["interval"])
    poll()
    return use(metadata, session)


def use(metadata, session):
    """Calls the API and a tool, and revokes the token."""
    token = session.token
    assert "refresh_token" not in token
    whoami = session.get(f"{URL}/api/whoami").raise_for_status().json()
    listed = call(session).raise_for_status()
    data = [line for line in listed.text.splitlines() if line.startswith("data: {")]
    result = json.loads(data[0][len("data: ") :] if data else listed.text)["result"]
    assert not result.get("isError"), result
    ended = session.revoke_token(metadata["revocation_endpoint"], token=token["access_token"])
    assert ended.status_code == 200, ended.text
    after = [session.get(f"{URL}/api/whoami").status_code, call(session).status_code]
    assert after == [401, 401], after
    return {"whoami": whoami, "listed": result["structuredContent"], "scope": token["scope"]}


def call(session):
    return session.post(
        f"{URL}/api/mcp",
        headers={
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-11-25",
        },
        json={
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "svc_project_list", "arguments": {}},
        },
    )


def main():
    known = httpx.get(get_well_known_url(URL, external=True), trust_env=False)
    metadata = AuthorizationServerMetadata(known.raise_for_status().json())
    code = code_grant(metadata)
    device = device_grant(metadata)
    print(json.dumps({"code": code, "device": device}))


main()
