"""The user's part of a grant, for clients that are not written in Python."""

import json
import os

from person import Person

WORLD = json.loads(os.environ["SVC_TEST_WORLD"])


def main():
    given = WORLD["given"]
    if "user_code" in given:
        Person(WORLD).approve_device(given["address"], given["user_code"])
        print(json.dumps({}))
    else:
        print(json.dumps({"returned": Person(WORLD).approve(given["address"])}))


main()
