// The frame around every view: sidebar, top bar, notices about the connection.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { connection, probeNow } from "../api/connection";
import { useProject, useProjects, useUser, useWorkspaces } from "../api/data";
import { useAddress } from "../router/location";
import { to, withQuery } from "../router/match";
import { useStore } from "../store";
import { Icon } from "../ui/icons";
import { Menu } from "../ui/menu";
import { Button } from "../ui/parts";
import { openPalette } from "./palette";
import { operatorItems, projectItems, type Item, workspaceItems } from "./places";
import { signOut } from "./sign-out";

export function Frame({ project, workspace, children }: { project: string | undefined; workspace: string | undefined; children: ComponentChildren }) {
  const [isOpen, setOpen] = useState(false);
  const { path } = useAddress();
  useEffect(() => setOpen(false), [path]);
  useEffect(() => {
    if (!isOpen) return;
    const close = (event: KeyboardEvent) => event.key === "Escape" && setOpen(false);
    addEventListener("keydown", close);
    return () => removeEventListener("keydown", close);
  }, [isOpen]);
  return (
    <div class="frame">
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>
        Skip to the content
      </a>
      <Sidebar isOpen={isOpen} project={project} workspace={workspace} />
      {isOpen && <div class="scrim" onClick={() => setOpen(false)} />}
      <div class="tops">
        <header class="top">
          <span class="only-narrow">
            <Button look="bare" icon="menu" aria-label="Navigation" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)} />
          </span>
          <Switcher project={project} workspace={workspace} />
          <span class="space" />
          <Button look="bare" icon="search" onClick={openPalette} aria-keyshortcuts="Control+K">
            <span class="wide-only">Search</span>
            <kbd class="wide-only" aria-hidden="true">
              Ctrl K
            </kbd>
            <span class="only-narrow unseen">Search</span>
          </Button>
          <AccountMenu />
        </header>
        <Banner />
        {project !== undefined && <SuspendedNotice project={project} />}
      </div>
      <main class="main" id="content" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

function Sidebar({ isOpen, project, workspace }: { isOpen: boolean; project: string | undefined; workspace: string | undefined }) {
  const { data: user } = useUser();
  const projects = useProjects().data;
  const workspaces = useWorkspaces().data;
  // A user with one project or one workspace always sees its pages.
  const shown = project ?? (projects?.length === 1 ? projects[0]?.id : undefined);
  const home = workspace ?? projects?.find((one) => one.id === shown)?.workspaceId ?? (workspaces?.length === 1 ? workspaces[0]?.id : undefined);
  return (
    <aside class={isOpen ? "side is-open" : "side"} aria-label="Navigation">
      <a class="brand" href="/">
        <svg viewBox="0 0 32 32" aria-hidden="true">
          <rect width="32" height="32" rx="7" fill="#1f5fd0" />
          <path d="M6 22v-3a10 10 0 0 1 20 0v3M12 22v-3a4 4 0 0 1 8 0v3" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round" />
        </svg>
        svc
      </a>
      <nav aria-label="Pages">
        <Items items={[{ href: "/projects", text: "Projects", icon: "projects", isExact: true }]} />
        {shown !== undefined && <Group name="Project" items={projectItems(shown)} />}
        {home !== undefined && <Group name="Workspace" items={workspaceItems(home)} />}
        <Group name="You" items={[{ href: "/credentials", text: "Credentials", icon: "keys" }, { href: "/account", text: "Account", icon: "user" }]} />
        {user?.role === "admin" && <Group name="Installation" items={operatorItems()} />}
      </nav>
    </aside>
  );
}

function Group({ name, items }: { name: string; items: readonly Item[] }) {
  return (
    <>
      <p class="group">{name}</p>
      <Items items={items} />
    </>
  );
}

function Items({ items }: { items: readonly Item[] }) {
  const { path } = useAddress();
  return (
    <>
      {items.map((item) => {
        const isHere = path === item.href || (item.isExact !== true && path.startsWith(`${item.href}/`));
        return (
          <a key={item.href} class="item" href={item.href} aria-current={isHere ? "page" : undefined}>
            <Icon name={item.icon} />
            {item.text}
          </a>
        );
      })}
    </>
  );
}

function Switcher({ project, workspace }: { project: string | undefined; workspace: string | undefined }) {
  const projects = useProjects().data ?? [];
  const workspaces = useWorkspaces().data ?? [];
  const chosen = projects.find((one) => one.id === project);
  const home = workspaces.find((one) => one.id === (workspace ?? chosen?.workspaceId));
  const label = chosen !== undefined ? chosen.name : home !== undefined ? home.name : "All projects";
  const full = chosen !== undefined && home !== undefined ? `${home.name} / ${label}` : label;
  return (
    <Menu isStart label={<span class="cut">{full}</span>} name={`${full}: switch project or workspace`}>
      {() => (
        <>
          {workspaces.slice(0, MAX_SHOWN).map((one) => (
            <>
              <a key={one.id} href={to("/workspaces/:id", { id: one.id })}>
                <Icon name="members" />
                <span class="cut">{one.name}</span>
              </a>
              {projects
                .filter((candidate) => candidate.workspaceId === one.id)
                .slice(0, MAX_SHOWN)
                .map((candidate) => (
                  <a key={candidate.id} href={to("/projects/:id", { id: candidate.id })} aria-current={candidate.id === project ? "true" : undefined}>
                    <Icon name="projects" />
                    <span class="cut">{candidate.name}</span>
                  </a>
                ))}
            </>
          ))}
          <a href="/projects">All projects</a>
          <a href="/workspaces">All workspaces</a>
        </>
      )}
    </Menu>
  );
}

/** Entries in the switcher; the lists and the palette have all of them. */
const MAX_SHOWN = 20;

function AccountMenu() {
  const { data: user } = useUser();
  return (
    <Menu label={<span class="cut wide-only">{user?.name ?? ""}</span>} icon="user" name={user === undefined ? "Account" : `${user.name}: account`}>
      {() => (
        <>
          <span class="group cut">{user?.email}</span>
          <a href="/account">Your account</a>
          <a href="/credentials">Credentials</a>
          <a href="/welcome">Publish something</a>
          <button type="button" onClick={signOut}>
            Sign out
          </button>
        </>
      )}
    </Menu>
  );
}

function Banner() {
  const state = useStore(connection);
  const { path, query } = useAddress();
  if (state === "good") return null;
  if (state === "signed_out") {
    return (
      <div class="banner is-bad" role="alert">
        <Icon name="alert" /> Your session has ended. The content below is no longer updated.
        <a href={`/login?next=${encodeURIComponent(withQuery(path, query))}`}>Sign in again</a>
      </div>
    );
  }
  return (
    <div class="banner" role="alert">
      <Icon name="alert" />
      {state === "offline" ? "This device is offline." : "The platform is not reachable; it may be restarting."} The content below may be old. The page
      reconnects automatically.
      <button type="button" class="link" onClick={probeNow}>
        Try now
      </button>
    </div>
  );
}

/** Shown in every view of the project, because any of them may have a refused request. */
function SuspendedNotice({ project }: { project: string }) {
  const { data } = useProject(project);
  // The status of a suspended project; nothing else has it.
  if (data?.status !== "unavailable") return null;
  return (
    <div class="banner is-bad" role="alert">
      <Icon name="alert" /> An operator suspended this project. Its content can be read, and nothing of it is online. Its owner can ask the operator for the
      reason. The page continues automatically when the project is resumed.
    </div>
  );
}
