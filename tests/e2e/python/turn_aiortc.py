"""Two peers of aiortc, which connect only through the relay, over a data channel."""

import asyncio
import json
import os

from aiortc import RTCConfiguration, RTCIceServer, RTCIceTransportPolicy, RTCPeerConnection


async def main():
    given = json.loads(os.environ["TURN_CREDENTIAL"])
    server = RTCIceServer(urls=given["urls"], username=given["username"], credential=given["credential"])
    relayed = RTCConfiguration(iceServers=[server], iceTransportPolicy=RTCIceTransportPolicy.RELAY)
    one, other = RTCPeerConnection(relayed), RTCPeerConnection(relayed)
    channel, answered = one.createDataChannel("chat"), asyncio.get_running_loop().create_future()

    @other.on("datachannel")
    def _(incoming):
        incoming.on("message", lambda text: incoming.send(f"{text} to you"))

    channel.on("open", lambda: channel.send("good day"))
    channel.on("message", answered.set_result)
    await one.setLocalDescription(await one.createOffer())
    await other.setRemoteDescription(one.localDescription)
    await other.setLocalDescription(await other.createAnswer())
    await one.setRemoteDescription(other.localDescription)
    text = await asyncio.wait_for(answered, 60)
    sdp = one.localDescription.sdp + other.localDescription.sdp
    kinds = {line.split(" typ ")[1].split()[0] for line in sdp.splitlines() if " typ " in line}
    await asyncio.gather(one.close(), other.close())
    print(json.dumps({"text": text, "kinds": sorted(kinds)}))


asyncio.run(main())
