// The certificate of a custom domain that its owner uploads in place of those that the engines order.

import { useState } from "preact/hooks";
import { call, type Control } from "../../api/client";
import { invalidate } from "../../api/resource";
import { Confirm, Dialog } from "../../ui/dialog";
import { Field } from "../../ui/fields";
import { Form } from "../../ui/form";
import { Button } from "../../ui/parts";
import { toast } from "../../ui/toasts";

type Domain = Control<"Domain">;

/** The buttons of the certificate of a verified domain. */
export function Certificate({ project, domain }: { project: string; domain: Domain }) {
  const [show, setShow] = useState<"" | "upload" | "remove">("");
  const isUploaded = domain.certificate?.source === "uploaded";
  const path = { project_id: project, domain_id: domain.id };
  const close = () => setShow("");
  return (
    <>
      <Button onClick={() => setShow("upload")}>{isUploaded ? "Replace the certificate" : "Upload a certificate"}</Button>
      {isUploaded && <Button onClick={() => setShow("remove")}>Remove the certificate</Button>}
      {show === "upload" && <Upload project={project} domain={domain} onClose={close} />}
      {show === "remove" && (
        <Confirm
          title={`Remove the certificate of ${domain.hostname}`}
          verb="Remove the certificate"
          done="The certificate is removed."
          onClose={close}
          action={async () => {
            await call("delete", "/api/projects/tunnels/{project_id}/domains/{domain_id}/certificate", { path });
            invalidate(`project/${project}/domains`);
          }}
        >
          Engines order one themselves again. Until it is issued, visitors may see an error of the certificate.
        </Confirm>
      )}
    </>
  );
}

function Upload({ project, domain, onClose }: { project: string; domain: Domain; onClose: () => void }) {
  const [certificate, setCertificate] = useState("");
  const [privateKey, setPrivateKey] = useState("");
  return (
    <Dialog title={`Certificate of ${domain.hostname}`} isWide onClose={onClose}>
      <Form
        verb="Upload"
        look="main"
        onClose={onClose}
        onSubmit={async () => {
          const path = { project_id: project, domain_id: domain.id };
          await call("put", "/api/projects/tunnels/{project_id}/domains/{domain_id}/certificate", { path, body: { certificate, privateKey } });
          invalidate(`project/${project}/domains`);
          toast(`${domain.hostname} has the uploaded certificate.`);
          onClose();
        }}
      >
        <p>Engines use it instead of ordering one. You renew it; a mail reminds you before it expires.</p>
        <Field label="Certificate chain" name="certificate" value={certificate} onValue={setCertificate} rows={8} isRequired placeholder="-----BEGIN CERTIFICATE-----" hint="PEM: the certificate first, then those of its authorities." />
        <Field label="Private key" name="privateKey" value={privateKey} onValue={setPrivateKey} rows={6} isRequired placeholder="-----BEGIN PRIVATE KEY-----" hint="PEM. It is not shown again." />
      </Form>
    </Dialog>
  );
}
