"""The Python SDK of the Model Context Protocol.

It starts the flow on a 401, which an endpoint with public lists does not return without a
credential. It therefore uses an invalid bearer, like a client whose token was revoked (MC-7).
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

    def __init__(self):
        self.tokens = OAuthToken(access_token="stale")
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


async def main():
    memory = Memory()
    provider = OAuthClientProvider(
        server_url=f"{URL}/api/mcp",
        client_metadata=OAuthClientMetadata(
            redirect_uris=[CALLBACK], token_endpoint_auth_method="none"
        ),
        storage=memory,
        redirect_handler=memory.send_away,
        callback_handler=memory.come_back,
    )
    async with httpx2.AsyncClient(auth=provider, trust_env=False) as http:
        transport = streamable_http_client(f"{URL}/api/mcp", http_client=http)
        async with Client(transport) as client:
            tools = (await client.list_tools()).tools
            listed = await client.call_tool("svc_project_list", {})
            whoami = await client.call_tool("svc_whoami", {})
    asked = parse_qs(urlsplit(memory.address).query)
    print(
        json.dumps(
            {
                "tools": [tool.name for tool in tools],
                "listed": listed.structured_content,
                "whoami": whoami.structured_content,
                "asked": asked["scope"][0],
                "resource": asked["resource"][0],
            }
        )
    )


asyncio.run(main())
