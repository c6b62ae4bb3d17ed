// Terminals of servers without managed sessions, on the pages of a running platform. Such a server
// waits for a page that reconnects with its token, and resumes the same shell with its screen.

import assert from "node:assert/strict";

import { drive, watched } from "./browser.mjs";
import { seen, signIn } from "./looks.mjs";
import { lines, shows, state, typed } from "./terminal_page.mjs";

await drive(async (world) => {
  const { given } = world;
  const first = await world.open({ ignoreHTTPSErrors: true });
  await signIn(world, first, given.email);
  const at = (server) => `/projects/${given.project}/terminals/${server}`;
  const sockets = await cuttable(first);

  await first.goto(at("shell"));
  await opens(first);
  await typed(first, "kept=41; printf 'shown-%d\\n' $((40+2))");
  await shows(first, "shown-42");
  // A terminal query of a program is not answered again when the page redraws.
  const asks = "stty -echo; printf '\\033[c'; IFS= read -r -d c answer; stty echo";
  await typed(first, `${asks}; printf 'answer-%d\\n' \${#answer}`);
  await shows(first, "answer-6");

  await first.reload();
  await state(first, "You are connected to your terminal again.");
  for (const line of ["shown-42", "answer-6"]) await shows(first, line);
  await typed(first, "echo reloaded-$((kept+1))");
  await shows(first, "reloaded-42");

  // The connection breaks while the command writes, and nothing is shown twice.
  await typed(first, "for i in 1 2 3 4 5 6 7 8; do echo n-$i; sleep 0.2; done; echo done-$((kept+2))");
  await shows(first, "n-2");
  const comesBack = await watched(first, "#state", "The connection is lost. Reconnecting …");
  sockets.cut();
  await comesBack();
  await state(first, "You are connected to your terminal again.");
  await shows(first, "done-43");
  const numbers = (await lines(first)).filter((line) => /^n-\d$/.test(line));
  assert.deepEqual(numbers, ["n-1", "n-2", "n-3", "n-4", "n-5", "n-6", "n-7", "n-8"]);

  // More output than the server stores: the remaining part is drawn.
  await typed(first, "seq 1 60000; echo many-$((kept+3))");
  await shows(first, "many-44");
  await first.reload();
  await state(first, "You are connected to your terminal again.");
  await shows(first, "many-44");

  // The tab is closed. Another one finds the terminal, and continues.
  const second = await world.beside(first);
  await first.close();
  await second.goto(at("shell"));
  await state(second, "The terminal that you left is still open.");
  await seen(world, second, "left");
  await second.getByRole("button", { name: "Go back to your terminal" }).click();
  await state(second, "You are connected to your terminal again.");
  await shows(second, "many-44");
  await typed(second, "exit $((kept-34))");
  await state(second, "The session ended with 7.");
  await second.reload();
  await state(second, "No terminal is open yet.");

  // A wrong token gets the same answer as one that is too late.
  await opens(second);
  await second.evaluate(() => {
    const [key] = Object.keys(localStorage).filter((key) => key.startsWith("terminal:"));
    addEventListener("pagehide", () => {
      const kept = JSON.parse(localStorage.getItem(key));
      localStorage.setItem(key, JSON.stringify({ ...kept, token: btoa("x".repeat(32)) }));
    });
  });
  await second.reload();
  await state(second, "The terminal has ended: no user reconnected to it in time.");
  for (const page of [first, second]) page.clean();
  console.log(JSON.stringify({ kept: true }));
});

async function opens(page) {
  await page.getByRole("button", { name: "Open a terminal" }).click();
  await state(page, "The terminal is open.");
}

/** WebSockets of the page, which the test can close. */
async function cuttable(page) {
  const open = new Set();
  await page.routeWebSocket(/^wss:/, (socket) => {
    const server = socket.connectToServer();
    open.add(() => Promise.all([socket.close({ code: 1001 }), server.close()]));
  });
  return {
    cut() {
      for (const close of open) void close();
      open.clear();
    },
  };
}
