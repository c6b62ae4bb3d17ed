"""Heartbeats that are answered, and a client that sends none."""

from under_test import client, run, soon, until


async def main():
    async with client(heartbeat_interval=1.0) as beating, client(heartbeat=False) as silent:
        control = await soon(beating.connect())
        quiet = await soon(silent.connect())
        results = {"timeout": control._heartbeat_timeout, "silent_timeout": quiet._heartbeat_timeout}
        await until(lambda: control._heartbeat_acknowledgement >= 3)
        tunnel = await soon(quiet.create_tunnel(name="silent", publish=False))
        results["silent_serves"] = tunnel.properties.name
        results["open"] = [not control.closed, not quiet.closed]
        return results


run(main)
