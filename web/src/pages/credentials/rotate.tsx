// Replaces the secret of a credential.

import { useState } from "preact/hooks";
import { call, type Control } from "../../api/client";
import { invalidate } from "../../api/resource";
import { Dialog } from "../../ui/dialog";
import { Field, Select } from "../../ui/fields";
import { Form } from "../../ui/form";

const OVERLAPS = [
  { value: "0", text: "Immediately" },
  { value: "3600", text: "After an hour" },
  { value: "86400", text: "After a day" },
  { value: "604800", text: "After a week" },
];

export function Rotate({ credential, onRotated, onClose }: { credential: Control<"Credential">; onRotated: (issued: Control<"IssuedCredential">) => void; onClose: () => void }) {
  const [overlap, setOverlap] = useState("3600");
  const [pem, setPem] = useState("");
  const key = credential.type === "app" ? "publicKeyPem" : credential.type === "mtls" ? (credential.issuerFingerprint === undefined ? "certificatePem" : "issuerPem") : undefined;
  return (
    <Dialog title={`Rotate ${credential.name}`} onClose={onClose}>
      <Form
        verb="Rotate"
        look="main"
        onClose={onClose}
        onSubmit={async () => {
          const issued = await call("post", "/api/credentials/{credential_id}/rotate", {
            path: { credential_id: credential.id },
            body: { overlapSeconds: Number(overlap), ...(key === undefined ? {} : { [key]: pem }) },
          });
          invalidate("credentials");
          onRotated(issued);
        }}
      >
        <p>A credential with the same permissions and boundary replaces this one.</p>
        {key !== undefined && <Field label={key === "publicKeyPem" ? "New public key" : "New certificate"} name={key} value={pem} onValue={setPem} rows={6} isRequired hint="PEM." />}
        <Select label="The old one ends" value={overlap} onValue={setOverlap} options={OVERLAPS} />
      </Form>
    </Dialog>
  );
}
