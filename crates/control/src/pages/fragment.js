// Keeps the fragment of an address over a sign-in. Browsers keep it over redirects, but drop it when
// a form is sent. The sign-in page, and the pages that offer another account, store it for the path
// that follows the sign-in. The page that leads back to a tunnel adds it to the address there.
"use strict";

(() => {
  const KEY = "fragment";
  const next = document.querySelector("form input[name=next]");
  const link = document.querySelector("a[data-return]");
  let kept = {};
  try {
    if (next && location.hash) {
      sessionStorage.setItem(KEY, JSON.stringify({ next: next.value, hash: location.hash }));
    }
    if (!link) return;
    kept = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
    sessionStorage.removeItem(KEY);
  } catch {
    // The browser stores nothing. The rest of the address is still right.
  }
  if (!link) return;
  // The fragment of another sign-in in this tab, which was not completed, is not used.
  const isOfThis = kept.next === location.pathname + location.search;
  link.hash = location.hash || (isOfThis ? kept.hash : "");
  location.replace(link.href);
})();
