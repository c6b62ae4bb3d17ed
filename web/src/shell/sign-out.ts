/** Signs out with the form of the server-rendered pages, so that other tabs are signed out as well. */
export function signOut(): void {
  const form = document.createElement("form");
  form.method = "post";
  form.action = "/logout";
  document.body.append(form);
  form.submit();
}
