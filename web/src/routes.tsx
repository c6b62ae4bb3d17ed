// The views by address.

import type { Route } from "./app";
import { Home, Projects } from "./pages/projects";
import { Welcome } from "./pages/publish";

export const ROUTES: readonly Route[] = [
  { pattern: "/", view: () => <Home /> },
  { pattern: "/welcome", view: () => <Welcome /> },
  { pattern: "/projects", view: () => <Projects /> },
];
