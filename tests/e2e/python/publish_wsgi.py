"""Serves an application on the accepted streams themselves, which end after each answer."""

import asyncio

from rstream import wsgi

from under_test import client, run, soon, visitor


def application(environ, start_response):
    body = environ["wsgi.input"].read()
    start_response("201 Created", [("X-Method", environ["REQUEST_METHOD"])])
    return [environ["PATH_INFO"].encode(), b" ", body]


async def main():
    async with client() as sdk, visitor() as http:
        control = await soon(sdk.connect())
        tunnel = await soon(control.create_tunnel(protocol="http", publish=True))
        server = asyncio.create_task(wsgi.serve(application, tunnel))
        answers = []
        for n in range(5):
            answer = await http.put(f"{tunnel.forwarding_address}/{n}", content=b"hello")
            answers.append([answer.status_code, answer.headers["X-Method"], answer.text])
        await soon(tunnel.close())
        await soon(server)
        return {"answers": answers}


run(main)
