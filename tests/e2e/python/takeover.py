"""Two channels and one name. SVC_TEST_OTHER_TOKEN belongs to another identity."""

import asyncio
import os

from under_test import client, echo, exchange, refusal, run, soon, until


async def main():
    async with client() as old, client() as new, client() as dialler:
        first = await soon((await soon(old.connect())).create_tunnel(name="one", publish=False))
        waiting = asyncio.create_task(refusal(first.accept()))

        other = client(token=os.environ["SVC_TEST_OTHER_TOKEN"])
        stranger = await soon(other.connect())
        results = {"stranger": await refusal(stranger.create_tunnel(name="one", publish=False))}
        await soon(other.close())

        second = await soon((await soon(new.connect())).create_tunnel(name="one", publish=False))
        await until(lambda: first.closed)
        results["displaced"] = await waiting
        results["same_id"] = first.id == second.id

        server = asyncio.create_task(echo(second))
        async with await soon(dialler.dial("one")) as stream:
            results["answers"] = await exchange(stream, b"who")
        await soon(second.close())
        await soon(server)
        return results


run(main)
