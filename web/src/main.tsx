import { render } from "preact";
import { startConnection } from "./api/connection";
import { App } from "./app";
import { startRouter } from "./router/location";
import { startPalette } from "./shell/palette";

const root = document.getElementById("app");
if (root !== null) {
  startConnection();
  startRouter();
  startPalette();
  root.replaceChildren();
  render(<App />, root);
}
