// Sends the forms for passkeys. Such a form names the address of its options. The authenticator's
// response is added to fields of the form, and the form is submitted as usual.
"use strict";

const fromBase64Url = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (byte) => byte.charCodeAt(0));

const toBase64Url = (buffer) =>
  btoa(Array.from(new Uint8Array(buffer ?? []), (byte) => String.fromCharCode(byte)).join(""))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");

const named = (passkeys) => passkeys.map((passkey) => ({ ...passkey, id: fromBase64Url(passkey.id) }));

async function ask(form) {
  const response = await fetch(form.dataset.options, { method: "POST" });
  if (!response.ok) throw new Error(`options: ${response.status}`);
  const publicKey = await response.json();
  publicKey.challenge = fromBase64Url(publicKey.challenge);
  if (form.dataset.passkey === "get") {
    publicKey.allowCredentials = named(publicKey.allowCredentials);
    const { rawId, response: shown } = await navigator.credentials.get({ publicKey });
    return {
      credentialId: rawId,
      clientData: shown.clientDataJSON,
      authenticatorData: shown.authenticatorData,
      signature: shown.signature,
      userHandle: shown.userHandle,
    };
  }
  publicKey.user.id = fromBase64Url(publicKey.user.id);
  publicKey.excludeCredentials = named(publicKey.excludeCredentials);
  const { response: made } = await navigator.credentials.create({ publicKey });
  return { clientData: made.clientDataJSON, attestation: made.attestationObject };
}

function sentence(error) {
  switch (error.name) {
    case "NotAllowedError":
      return "No passkey was used. Try again when you are ready.";
    case "InvalidStateError":
      return "This device already has a passkey of your account.";
    default:
      return "That did not work. Reload the page and try again.";
  }
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  if (!window.PublicKeyCredential) {
    for (const absent of document.querySelectorAll("[data-passkey-absent]")) absent.hidden = false;
    break;
  }
  form.hidden = false;
  form.querySelector("[autofocus]")?.focus();
  const alert = form.querySelector("[role=alert]");
  const button = form.querySelector("button");
  if (form.dataset.passkey === "get" && !alert.hidden) button.focus();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    // Not `disabled`, because that would remove the focus.
    if (button.ariaDisabled === "true") return;
    button.ariaDisabled = "true";
    alert.hidden = true;
    try {
      for (const [name, bytes] of Object.entries(await ask(form))) {
        const field = form.elements.namedItem(name) ?? document.createElement("input");
        Object.assign(field, { type: "hidden", name, value: toBase64Url(bytes) });
        form.append(field);
      }
      form.submit();
    } catch (error) {
      alert.textContent = sentence(error);
      alert.hidden = false;
      button.ariaDisabled = "false";
      button.focus();
    }
  });
}
