"""The user's part of a grant, without a browser: reads pages and submits their forms."""

from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx


class Forms(HTMLParser):
    """The forms of a page: their addresses and the values of their fields."""

    def __init__(self):
        super().__init__()
        self.forms = []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "form":
            self.forms.append((attrs["action"], {}))
        elif tag == "input" and "name" in attrs:
            self.forms[-1][1][attrs["name"]] = attrs.get("value") or ""


class Person:
    """A user with cookies, who may sign in."""

    def __init__(self, world):
        self.url = world["url"]
        self.callback = world["given"]["callback"]
        self.login = {key: world["given"][key] for key in ("email", "password")}
        self.browser = httpx.Client(trust_env=False, timeout=60)

    def approve(self, address):
        """Signs in, approves, and returns the client address of the redirect."""
        page = self.visit(self.browser.get(address))
        page = self.send(page, "/login", self.login)
        response = self.send(page, "/oauth/authorize", {"decision": "approve"})
        location = response.headers["location"]
        assert location.startswith(self.callback + "?"), location
        return location

    def approve_device(self, address, code):
        """Enters the code of a device, and approves."""
        page = self.visit(self.browser.get(address))
        page = self.send(page, "/login", self.login)
        page = self.send(page, "/device", {"user_code": code})
        assert code in page.text, page.text
        page = self.send(page, "/device/approve", {"decision": "approve"})
        assert page.status_code == 200, page

    def send(self, page, action, fields):
        """Fills in the form with that address and submits it like a browser."""
        (hidden,) = (fields for to, fields in forms_of(page) if to == action)
        return self.visit(
            self.browser.post(
                urljoin(self.url, action),
                data={**hidden, **fields},
                headers={"origin": self.url},
            )
        )

    def visit(self, response):
        """Follows redirects as long as they stay on the platform."""
        while response.is_redirect:
            target = urljoin(str(response.url), response.headers["location"])
            if urlsplit(target).netloc != urlsplit(self.url).netloc:
                return response
            response = self.browser.get(target)
        assert response.status_code == 200, (response.url, response.status_code, response.text)
        return response


def forms_of(page):
    parser = Forms()
    parser.feed(page.text)
    return parser.forms
