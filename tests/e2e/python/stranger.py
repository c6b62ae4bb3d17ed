"""A user with a separate account, who is not a member of the administrator's projects.

An account needs an invitation, so the user joins an empty workspace.
"""

import json
import os

import httpx

from person import Person

WORLD = json.loads(os.environ["SVC_TEST_WORLD"])
PASSWORD = "a password that nobody guesses"


def main():
    url, given = WORLD["url"], WORLD["given"]
    operator = httpx.Client(
        trust_env=False,
        base_url=url,
        headers={"authorization": f"Bearer {given['token']}"},
    )
    team = posted(operator, "/api/workspaces", {"name": "Empty"})
    invitation = {"email": "stranger@example.com", "role": "viewer"}
    sent = posted(operator, f"/api/workspaces/{team['id']}/invitations", invitation)
    link = sent["url"]

    person = Person(WORLD)
    page = person.visit(person.browser.get(link))
    fields = {"name": "A stranger", "password": PASSWORD}
    person.send(page, link.removeprefix(url), fields)
    person.browser.headers["origin"] = url
    token = posted(person.browser, f"{url}/api/tokens", {"permissions": None})
    print(json.dumps({"token": token["token"]}))


def posted(client, path, body):
    response = client.post(path, json=body)
    assert response.is_success, (response.status_code, response.text)
    return response.json()


main()
