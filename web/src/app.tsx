// The routes of the application.

import { useProjects } from "./api/data";
import { useAddress } from "./router/location";
import { matchPath, type Params } from "./router/match";
import { Frame } from "./shell/frame";
import { Palette } from "./shell/palette";
import { Boundary } from "./shell/boundary";
import { Empty, Page } from "./ui/parts";
import { Toasts } from "./ui/toasts";
import { type Route, ROUTES } from "./routes";

export function App() {
  const { path, query } = useAddress();
  const [route, params] = routeOf(path);
  const project = params["project"] ?? query["project"];
  const workspace = params["workspace"];
  return (
    <>
      <Frame project={useKnownProject(project)} workspace={workspace}>
        <Boundary key={path}>{route === undefined ? <NotFound /> : route.view(params)}</Boundary>
      </Frame>
      <Palette project={params["project"]} />
      <Toasts />
    </>
  );
}

/** The project of the address; on pages outside a project none is chosen. */
function useKnownProject(project: string | undefined): string | undefined {
  const { data } = useProjects();
  return data === undefined || data.some((one) => one.id === project) ? project : undefined;
}

function routeOf(path: string): [Route | undefined, Params] {
  for (const route of ROUTES) {
    const params = matchPath(route.pattern, path);
    if (params !== undefined) return [route, params];
  }
  return [undefined, {}];
}

function NotFound() {
  return (
    <Page title="Nothing is here">
      <Empty icon="alert" title="This address has no page">
        <p class="quiet">It may be mistyped, or what it showed was deleted.</p>
        <a class="button" href="/projects">
          Your projects
        </a>
      </Empty>
    </Page>
  );
}
