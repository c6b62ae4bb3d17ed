// Issues a credential: kind, lifetime, permissions, boundary.

import { useState } from "preact/hooks";
import { call, type Control } from "../../api/client";
import { useProjects } from "../../api/data";
import { invalidate, useResource } from "../../api/resource";
import type { Permission } from "../../api/roles";
import { Field, Select } from "../../ui/fields";
import { Form } from "../../ui/form";
import { Failure, Skeleton } from "../../ui/parts";
import { type BoundaryChoice, NO_BOUNDARY, parseResources, resources } from "./boundary";
import { BoundaryPicker, PermissionPicker } from "./picker";
import { PRESETS } from "./presets";

const LIFETIMES = [
  { value: "1", text: "1 day" },
  { value: "7", text: "7 days" },
  { value: "30", text: "30 days" },
  { value: "90", text: "90 days" },
  { value: "365", text: "1 year" },
  { value: "", text: "Without an end" },
];

export function NewCredential({ onIssued, onClose }: { onIssued: (issued: Control<"IssuedCredential">) => void; onClose: () => void }) {
  const whoami = useResource("whoami", (signal) => call("get", "/api/whoami", { signal }));
  const projects = useProjects().data ?? [];
  const [type, setType] = useState<string>("pat");
  const [name, setName] = useState("");
  const [days, setDays] = useState("90");
  const [pem, setPem] = useState("");
  const [chosen, setChosen] = useState<ReadonlySet<Permission> | undefined>(new Set(PRESETS[0]?.permissions ?? []));
  const [boundary, setBoundary] = useState<BoundaryChoice>(NO_BOUNDARY);
  const [json, setJson] = useState<string | undefined>(undefined);
  const written = json === undefined ? { value: resources(boundary) } : parseResources(json);
  const key = type === "app" ? "publicKeyPem" : type === "mtls" ? "certificatePem" : type === "ca" ? "issuerPem" : undefined;
  const save = async () => {
    if (written.error !== undefined) return;
    const limits = written.value;
    const issued = await call("post", "/api/credentials", {
      body: {
        type: (type === "ca" ? "mtls" : type) as Control<"CredentialKind">,
        name: name.trim(),
        permissions: chosen === undefined ? null : [...chosen],
        ...(days === "" ? {} : { expiresAt: new Date(Date.now() + Number(days) * 86_400_000).toISOString() }),
        ...(limits === undefined ? {} : { resources: limits }),
        ...(key === undefined ? {} : { [key]: pem }),
      },
    });
    invalidate("credentials");
    onIssued(issued);
  };
  if (whoami.data === undefined) return whoami.error === undefined ? <Skeleton rows={6} /> : <Failure error={whoami.error} onRetry={whoami.reload} />;
  return (
    <Form
      verb="Issue"
      look="main"
      isReady={written.error === undefined && chosen?.size !== 0}
      onClose={onClose}
      onSubmit={save}
    >
      <Field label="Name" name="name" value={name} onValue={setName} isRequired maxLength={100} placeholder="laptop" />
      <Select
        label="Kind"
        value={type}
        onValue={setType}
        options={[
          { value: "pat", text: "Token, for agents and scripts" },
          { value: "app", text: "Application that signs with its own key" },
          { value: "mtls", text: "Client certificate" },
          { value: "ca", text: "Authority of client certificates" },
        ]}
      />
      {key !== undefined && <Field label={key === "publicKeyPem" ? "Public key" : "Certificate"} name={key} value={pem} onValue={setPem} rows={6} isRequired hint={key === "publicKeyPem" ? "PEM: P-256, P-521 or Ed25519." : "PEM."} />}
      <Select label="Lifetime" value={days} onValue={setDays} options={LIFETIMES} hint={days === "" ? "Issuing this needs a recent proof that it is you." : undefined} />
      <PermissionPicker owned={new Set(whoami.data.permissions)} chosen={chosen} onChange={setChosen} />
      <BoundaryPicker projects={projects} choice={boundary} onChange={setBoundary} json={json} onJson={setJson} />
    </Form>
  );
}
