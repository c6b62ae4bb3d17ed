"""An accepted stream outlives the tunnel's control channel."""

import asyncio

from under_test import client, exchange, run, soon, until


async def main():
    async with client() as agent, client() as dialler:
        control = await soon(agent.connect())
        tunnel = await soon(control.create_tunnel(name="outlive", publish=False))
        near = await soon(dialler.dial("outlive"))
        near.write(b"hello")
        far = await soon(tunnel.accept())
        results = {"before": (await soon(far.readexactly(5))).decode()}

        # The channel breaks without a goodbye.
        control._writer.transport.abort()
        await until(lambda: control.closed)

        async def answer():
            far.write(await far.readexactly(5))
            await far.drain()

        _, results["after"] = await soon(asyncio.gather(answer(), exchange(near, b"again")))
        near.close()
        results["ends"] = await soon(far.read()) == b""
        far.close()
        return results


run(main)
