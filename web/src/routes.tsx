// The views by address.

import type { ComponentChildren } from "preact";
import { Credentials } from "./pages/credentials/list";
import { OperatorAudit } from "./pages/installation/audit";
import { OperatorEngines } from "./pages/installation/engines";
import { OperatorProjects, OperatorUsers, OperatorWorkspaces } from "./pages/installation/lists";
import { OperatorTakedowns } from "./pages/installation/takedowns";
import { Clients } from "./pages/project/clients";
import { Domains } from "./pages/project/domains";
import { Events } from "./pages/project/events";
import { Requests } from "./pages/project/log";
import { Overview } from "./pages/project/overview";
import { Servers } from "./pages/project/servers";
import { Sessions } from "./pages/project/sessions";
import { Settings } from "./pages/project/settings";
import { TunnelPage } from "./pages/project/tunnel";
import { Tunnels } from "./pages/project/tunnels";
import { Usage } from "./pages/project/usage";
import { WebhookPage } from "./pages/project/webhook";
import { Webhooks } from "./pages/project/webhooks";
import { Home, Projects } from "./pages/projects";
import { Welcome } from "./pages/publish";
import { WorkspaceAudit } from "./pages/workspace/audit";
import { Billing } from "./pages/workspace/billing";
import { Workspaces } from "./pages/workspace/list";
import { Members } from "./pages/workspace/members";
import { WorkspacePage } from "./pages/workspace/overview";
import { WorkspaceSettings } from "./pages/workspace/settings";
import type { Params } from "./router/match";

export interface Route {
  readonly pattern: string;
  readonly view: (params: Params) => ComponentChildren;
}

export const ROUTES: readonly Route[] = [
  { pattern: "/", view: () => <Home /> },
  { pattern: "/welcome", view: () => <Welcome /> },
  { pattern: "/projects", view: () => <Projects /> },
  ...project("", (id) => <Overview project={id} />),
  ...project("/tunnels", (id) => <Tunnels project={id} />),
  ...project("/tunnels/:tunnel", (id, params) => <TunnelPage project={id} id={params["tunnel"] ?? ""} />),
  ...project("/clients", (id) => <Clients project={id} />),
  ...project("/requests", (id) => <Requests project={id} />),
  ...project("/events", (id) => <Events project={id} />),
  ...project("/domains", (id) => <Domains project={id} />),
  ...project("/webhooks", (id) => <Webhooks project={id} />),
  ...project("/webhooks/:webhook", (id, params) => <WebhookPage project={id} id={params["webhook"] ?? ""} />),
  ...project("/recordings", (id) => <Sessions project={id} />),
  ...project("/servers", (id) => <Servers project={id} />),
  ...project("/usage", (id) => <Usage project={id} />),
  ...project("/settings", (id) => <Settings project={id} />),
  { pattern: "/credentials", view: () => <Credentials /> },
  { pattern: "/workspaces", view: () => <Workspaces /> },
  ...workspace("", (id) => <WorkspacePage workspace={id} />),
  ...workspace("/members", (id) => <Members workspace={id} />),
  ...workspace("/billing", (id) => <Billing workspace={id} />),
  ...workspace("/audit", (id) => <WorkspaceAudit workspace={id} />),
  ...workspace("/settings", (id) => <WorkspaceSettings workspace={id} />),
  { pattern: "/installation", view: () => <OperatorUsers /> },
  { pattern: "/installation/users", view: () => <OperatorUsers /> },
  { pattern: "/installation/workspaces", view: () => <OperatorWorkspaces /> },
  { pattern: "/installation/projects", view: () => <OperatorProjects /> },
  { pattern: "/installation/takedowns", view: () => <OperatorTakedowns /> },
  { pattern: "/installation/engines", view: () => <OperatorEngines /> },
  { pattern: "/installation/audit", view: () => <OperatorAudit /> },
];

/** A view of a project starts again with another project. */
function project(rest: string, view: (id: string, params: Params) => ComponentChildren): Route[] {
  return [{ pattern: `/projects/:project${rest}`, view: (params) => view(params["project"] ?? "", params) }];
}

function workspace(rest: string, view: (id: string, params: Params) => ComponentChildren): Route[] {
  return [{ pattern: `/workspaces/:workspace${rest}`, view: (params) => view(params["workspace"] ?? "", params) }];
}
