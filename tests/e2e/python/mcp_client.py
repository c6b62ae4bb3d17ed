"""The Python SDK of the Model Context Protocol.

It starts the flow on a 401. The endpoint that requires a token returns one at once. The endpoint
with public lists does not return one without a credential, so there the client has an invalid
bearer, as after a revocation (MC-7).
"""

import asyncio
import json
import os
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)

from person import Person

WORLD = json.loads(os.environ["SVC_TEST_WORLD"])
URL = WORLD["url"]
CALLBACK = WORLD["given"]["callback"]


class Memory:
    """Data that a client stores about a server, and its contact with the user."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.client = OAuthClientInformationFull(
            client_id=WORLD["given"]["client"],
            redirect_uris=[CALLBACK],
            token_endpoint_auth_method="none",
            issuer=URL,
        )
        self.address = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info

    async def send_away(self, address):
        self.address = address

    async def come_back(self):
        returned = await asyncio.to_thread(Person(WORLD).approve, self.address)
        query = {name: value for name, (value,) in parse_qs(urlsplit(returned).query).items()}
        return AuthorizationCodeResult(**query)


async def run(path, tokens):
    memory = Memory(tokens)
    provider = OAuthClientProvider(
        server_url=f"{URL}{path}",
        client_metadata=OAuthClientMetadata(
            redirect_uris=[CALLBACK], token_endpoint_auth_method="none"
        ),
        storage=memory,
        redirect_handler=memory.send_away,
        callback_handler=memory.come_back,
    )
    async with httpx2.AsyncClient(auth=provider, trust_env=False) as http:
        transport = streamable_http_client(f"{URL}{path}", http_client=http)
        async with Client(transport) as client:
            tools = (await client.list_tools()).tools
            listed = await client.call_tool("svc_project_list", {})
            whoami = await client.call_tool("svc_whoami", {})
    asked = parse_qs(urlsplit(memory.address).query)
    return {
        "tools": [tool.name for tool in tools],
        "listed": listed.structured_content,
        "whoami": whoami.structured_content,
        "asked": asked["scope"][0],
        "resource": asked["resource"][0],
    }


async def main():
    stale = OAuthToken(access_token="stale")
    public = await run("/api/mcp", stale)
    sign_in = await run("/api/mcp/sign-in", None)
    print(json.dumps({"public": public, "sign_in": sign_in}))


asyncio.run(main())
