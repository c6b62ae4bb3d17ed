// Sharing a tunnel: its address, its QR code, who may open it, and a token for a visitor.

import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../../api/client";
import { useProject, useSettings } from "../../api/data";
import { invalidate } from "../../api/resource";
import { sentence } from "../../format/access";
import { LIFETIMES, opensWithToken, tokenLink, visitorCredential, ways } from "../../format/share";
import type { Tunnel } from "../../live/objects";
import { Dialog, mask } from "../../ui/dialog";
import { Select } from "../../ui/fields";
import { Form } from "../../ui/form";
import { Code, Facts } from "../../ui/parts";
import { QrCode } from "../../ui/qr";
import { browserLink, dialAddress, nameOf, visitAddress } from "../address";
import { useProjectRights } from "./rights";

export function ShareDialog({ project, tunnel, onClose }: { project: string; tunnel: Tunnel; onClose: () => void }) {
  const link = browserLink(tunnel);
  const visit = visitAddress(tunnel);
  const dial = dialAddress(tunnel);
  const rights = useProjectRights(project);
  const mayIssue = rights.may("tunnels.streams.create-delete") && rights.may("account.credentials.read-write");
  const needed = ways(tunnel);
  return (
    <Dialog title={`Share ${nameOf(tunnel)}`} onClose={onClose}>
      <div class="online">
        {link !== undefined && <QrCode text={link} label={`QR code of ${link}`} />}
        <div>
          {visit !== undefined && <Code text={visit} label="Copy the address" />}
          {dial !== undefined && <Code text={`svc dial ${dial}`} label="Copy the command" />}
          {visit === undefined && dial === undefined && <p>The tunnel has no address.</p>}
          <Sentence project={project} tunnel={tunnel} />
        </div>
      </div>
      {needed.length > 0 && <Facts rows={needed.map((way) => [way.name, way.text] as const)} />}
      {opensWithToken(tunnel) && mayIssue && <VisitorToken project={project} tunnel={tunnel} />}
    </Dialog>
  );
}

/** A token that opens only this tunnel. It is shown once, and revoked like any credential. Any valid credential reads its user. */
function VisitorToken({ project, tunnel }: { project: string; tunnel: Tunnel }) {
  const engine = useProject(project).data?.url;
  const [hours, setHours] = useState("24");
  const [token, setToken] = useState<string | undefined>(undefined);
  const shown = useRef<HTMLDivElement>(null);
  // The focus was on the button of the form, which is gone.
  useEffect(() => {
    if (token !== undefined) shown.current?.querySelector("button")?.focus();
  }, [token]);
  const link = browserLink(tunnel);
  const dial = dialAddress(tunnel);
  const create = async () => {
    const body = visitorCredential(project, tunnel, Number(hours), Date.now());
    const issued = await call("post", "/api/credentials", { body });
    invalidate("credentials");
    setToken(issued.token ?? "");
  };
  if (token === undefined) {
    return (
      <Form verb="Create a token" onSubmit={create}>
        <Select label="A token for a visitor without an account ends after" value={hours} onValue={setHours} options={LIFETIMES} hint="It opens this tunnel and no other. Its holder can also read your name and email address from the platform." />
      </Form>
    );
  }
  const secret = (label: string, textOf: (token: string) => string) => <Code text={textOf(token)} shown={textOf(mask(token))} label={label} />;
  return (
    <div class="form" ref={shown}>
      {link !== undefined ? (
        <>
          {secret("Copy the command with the token", (it) => `curl -H "Authorization: Bearer ${it}" ${link}/`)}
          {secret("Copy the address with the token", (it) => tokenLink(link, it))}
          <p class="quiet small">A browser sends the token with this one request only: a page that loads further files needs another proof.</p>
        </>
      ) : dial !== undefined && engine !== undefined ? (
        secret("Copy the command with the token", (it) => `svc dial ${dial} --engine ${engine} --token ${it}`)
      ) : (
        secret("Copy the token", (it) => it)
      )}
      <p class="quiet small" role="status">
        The token can be copied only here and now. <a href="/credentials">Credentials</a> lists and revokes it.
      </p>
    </div>
  );
}

/** The visitors that the tunnel admits, in words. */
export function Sentence({ project, tunnel }: { project: string; tunnel: Tunnel }) {
  const settings = useSettings(project);
  return (
    <>
      <p>{sentence(tunnel, settings.data)}</p>
      {settings.isHidden && <HiddenRules />}
    </>
  );
}

/** Without the project's rules, a sentence about visitors may promise too much. */
export function HiddenRules() {
  return <p class="quiet small">The rules of the project, which your role does not show, may admit fewer visitors.</p>;
}
