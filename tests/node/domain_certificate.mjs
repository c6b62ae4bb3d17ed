// The certificate of a custom domain in the dashboard: a refused one is explained at its field, then
// it is uploaded and removed.

import assert from "node:assert/strict";

import { accessible, drive } from "./browser.mjs";
import { signIn } from "./looks.mjs";

await drive(async (world) => {
  const { project, hostname, certificate, privateKey } = world.given;
  const page = await world.open({ expected: [400] });
  await signIn(world, page, "ada@example.com");
  await page.goto(`/projects/${project}/domains`);
  await page.getByRole("button", { name: "Upload a certificate" }).click();
  const dialog = page.getByRole("dialog", { name: `Certificate of ${hostname}` });
  const chain = dialog.getByLabel("Certificate chain");
  const key = dialog.getByLabel("Private key");
  const upload = dialog.getByRole("button", { name: "Upload" });

  await chain.fill("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  await key.fill(privateKey);
  await upload.click();
  assert.match(await refusal(page, dialog, chain), /certificate: one of the certificates cannot be parsed/);
  assert.equal(await key.getAttribute("aria-invalid"), null, "the key is refused, too");
  await accessible(page, "a certificate that is refused");
  await chain.fill(certificate);
  await key.fill("not a key");
  await upload.click();
  assert.match(await refusal(page, dialog, key), /privateKey: expected a private key in PEM/);
  assert.equal(await chain.getAttribute("aria-invalid"), null, "the chain is refused, too");
  assert.equal(await chain.inputValue(), certificate, "the refusal emptied the form");

  await key.fill(privateKey);
  await upload.click();
  await page.getByText(`${hostname} has the uploaded certificate.`).waitFor();
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Replace the certificate" }).waitFor();
  await page.getByRole("definition").filter({ hasText: /^uploaded$/ }).waitFor();
  await page.getByRole("button", { name: "Remove the certificate" }).click();
  const remove = page.getByRole("dialog", { name: `Remove the certificate of ${hostname}` });
  await accessible(page, "the removal of a certificate");
  await remove.getByRole("button", { name: "Remove the certificate" }).click();
  await page.getByText("The certificate is removed.").waitFor();
  await page.getByRole("button", { name: "Upload a certificate" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Remove the certificate" }).count(), 0);
  page.clean();
});

/** The text next to a field whose value was refused. The form also reports the refusal as a whole. */
async function refusal(page, dialog, field) {
  const label = await field.evaluate((node) => node.labels[0].textContent);
  await page.waitForFunction(
    (label) => [...document.querySelectorAll("dialog label")].find((one) => one.textContent === label)?.control?.ariaInvalid === "true",
    label,
  );
  await dialog.getByRole("alert").waitFor();
  return await field.evaluate((node) => document.getElementById(node.getAttribute("aria-describedby")).textContent);
}
