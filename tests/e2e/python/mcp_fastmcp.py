"""The client of FastMCP. It serves its callback itself, on a port that it chooses, and opens a browser, which is the
user here."""

import asyncio
import json
import os
import threading
import warnings
import webbrowser
from urllib.parse import parse_qs, urlsplit

import httpx
from fastmcp import Client
from fastmcp.client.auth import OAuth

from person import Person

WORLD = json.loads(os.environ["SVC_TEST_WORLD"])
URL = f"{WORLD['url']}/api/mcp/sign-in"
# Its requests are for this machine.
os.environ["NO_PROXY"] = "*"
# It warns that its tokens are in memory only.
warnings.simplefilter("ignore", UserWarning)


class Browser(webbrowser.BaseBrowser):
    """A browser in which the user signs in, approves, and returns to the client."""

    def __init__(self):
        super().__init__("the user")
        self.address = None

    def open(self, url, new=0, autoraise=True):
        self.address = url
        threading.Thread(target=self.approve, daemon=True).start()
        return True

    def approve(self):
        asked = parse_qs(urlsplit(self.address).query)
        person = Person(WORLD)
        (person.callback,) = asked["redirect_uri"]
        returned = person.approve(self.address)
        # The client serves its callback only after it has opened the browser.
        transport = httpx.HTTPTransport(retries=8)
        with httpx.Client(transport=transport, trust_env=False, timeout=60) as browser:
            browser.get(returned).raise_for_status()


def oauth():
    return OAuth(
        client_id=WORLD["given"]["native_client"],
        issuer=WORLD["url"],
        # If the approval fails, the user never returns.
        callback_timeout=120,
    )


async def main():
    browser = Browser()
    webbrowser.register("the user", None, browser, preferred=True)
    async with Client(URL, auth=oauth()) as client:
        tools = await client.list_tools()
        listed = await client.call_tool("svc_project_list", {})
        whoami = await client.call_tool("svc_whoami", {})
    asked = parse_qs(urlsplit(browser.address).query)
    return {
        "tools": [tool.name for tool in tools],
        "listed": listed.structured_content,
        "whoami": whoami.structured_content,
        "asked": asked["scope"][0],
        "resource": asked["resource"][0],
    }


print(json.dumps(asyncio.run(main())))
