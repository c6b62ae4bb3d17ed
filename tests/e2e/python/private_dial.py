"""Dials a private tunnel by name and by id, with and without zero-RTT at either end."""

import asyncio
import os

from under_test import client, echo, exchange, run, soon


async def main():
    results = {}
    data = os.urandom(1 << 20)
    for agent_zero_rtt in (True, False):
        async with client(zero_rtt=agent_zero_rtt) as agent, client() as dialler:
            control = await soon(agent.connect())
            name = f"private-{agent_zero_rtt}"
            tunnel = await soon(control.create_tunnel(name=name, publish=False))
            server = asyncio.create_task(echo(tunnel))
            results["address"] = tunnel.forwarding_address
            results["protocol"] = tunnel.properties.protocol
            results["publish"] = tunnel.properties.publish
            for zero_rtt in (True, False):
                for by, key in (("name", name), ("id", tunnel.id)):
                    async with await soon(dialler.dial(key, zero_rtt=zero_rtt)) as stream:
                        came_back = [
                            await exchange(stream, b"first"),
                            await exchange(stream, data),
                        ]
                    results[f"agent {agent_zero_rtt}, dialler {zero_rtt}, by {by}"] = came_back
            # Several in parallel, each with its own stream.
            streams = await asyncio.gather(*(soon(dialler.dial(name)) for _ in range(20)))
            answers = await asyncio.gather(
                *(exchange(stream, str(n).encode()) for n, stream in enumerate(streams))
            )
            results[f"at once, agent {agent_zero_rtt}"] = sum(answers)
            for stream in streams:
                stream.close()
            await soon(tunnel.close())
            await soon(server)
    return results


run(main)
