import { render } from "preact";
import { startConnection } from "./api/connection";
import { App } from "./app";
import { startRouter } from "./router/location";
import { startPalette } from "./shell/palette";
import { keepPresses } from "../../crates/control/src/pages/terminal/press.mjs";

const root = document.getElementById("app");
if (root !== null) {
  startConnection();
  startRouter();
  startPalette();
  keepPresses();
  root.replaceChildren();
  render(<App />, root);
}
