// Two peers in a page of Chromium that may use relay candidates only, with a data channel between them.

/** Runs in the page. Returns the kinds of the candidates, and the text that returned over the channel. */
export async function meet(iceServer) {
  const configuration = { iceServers: [iceServer], iceTransportPolicy: "relay" };
  const [one, other] = [new RTCPeerConnection(configuration), new RTCPeerConnection(configuration)];
  const kinds = new Set();
  for (const [from, to] of [[one, other], [other, one]]) {
    from.onicecandidate = ({ candidate }) => {
      if (candidate?.candidate) {
        kinds.add(candidate.type);
        to.addIceCandidate(candidate);
      }
    };
  }
  other.ondatachannel = ({ channel }) => {
    channel.onmessage = ({ data }) => channel.send(`${data} to you`);
  };
  const channel = one.createDataChannel("chat");
  const text = new Promise((resolve, reject) => {
    channel.onopen = () => channel.send("good day");
    channel.onmessage = ({ data }) => resolve(data);
    setTimeout(() => reject(new Error(`no answer; candidates: ${[...kinds]}`)), 60_000);
  });
  await one.setLocalDescription(await one.createOffer());
  await other.setRemoteDescription(one.localDescription);
  await other.setLocalDescription(await other.createAnswer());
  await one.setRemoteDescription(other.localDescription);
  const result = { text: await text, kinds: [...kinds].sort() };
  one.close();
  other.close();
  return result;
}
