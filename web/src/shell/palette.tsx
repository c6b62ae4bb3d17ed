// The command palette: Ctrl-K finds pages, projects, tunnels and actions.

import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useProjects, useUser, useWorkspaces } from "../api/data";
import { callEngine } from "../api/client";
import { useResource } from "../api/resource";
import { navigate, useAddress } from "../router/location";
import { to } from "../router/match";
import { Store, useStore } from "../store";
import { find, type Command } from "./find";
import { operatorItems, projectItems, workspaceItems } from "./places";

const isOpen = new Store(false);
/** Tunnels that the palette searches. */
const MAX_TUNNELS = 1000;

export function openPalette(): void {
  isOpen.set(true);
}

export function startPalette(): void {
  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    isOpen.set(!isOpen.get());
  });
}

export function Palette({ project }: { project: string | undefined }) {
  return useStore(isOpen) ? <Open project={project} /> : null;
}

function Open({ project }: { project: string | undefined }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const commands = useCommands(project);
  const found = useMemo(() => find(commands, text), [commands, text]);
  const id = useId();
  const { path } = useAddress();
  const [startPath] = useState(path);
  const close = () => isOpen.set(false);
  // Before the next key, so that no letter after Ctrl-K is lost.
  useLayoutEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      dialog.current?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  useEffect(() => {
    if (path !== startPath) close();
  }, [path]);
  useEffect(() => {
    document.getElementById(`${id}-${chosen}`)?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  const run = (command: Command | undefined) => {
    if (command === undefined) return;
    close();
    navigate(command.href);
  };
  // Enter may follow a letter before its results are shown.
  const newest = (typed: string) => (typed === text ? found : find(commands, typed));
  const onKeyDown = (event: KeyboardEvent & { currentTarget: HTMLInputElement }) => {
    if (event.key === "ArrowDown") setChosen(Math.min(chosen + 1, found.length - 1));
    else if (event.key === "ArrowUp") setChosen(Math.max(chosen - 1, 0));
    else if (event.key === "Enter") run(newest(event.currentTarget.value)[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog
      ref={dialog}
      class="dialog palette"
      aria-label="Search pages, tunnels and actions"
      onCancel={(event) => { event.preventDefault(); close(); }}
      onClick={(event) => event.target === dialog.current && close()}
    >
      <input
        class="input"
        role="combobox"
        aria-expanded="true"
        aria-controls={`${id}-list`}
        aria-activedescendant={found.length > 0 ? `${id}-${chosen}` : undefined}
        aria-label="Search pages, tunnels and actions"
        placeholder="Search pages, tunnels and actions"
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => { setText(event.currentTarget.value); setChosen(0); }}
        onKeyDown={onKeyDown}
      />
      <ul role="listbox" id={`${id}-list`} aria-label="Results">
        {found.map((command, index) => (
          <li key={command.href} id={`${id}-${index}`} role="option" aria-selected={index === chosen} onClick={() => run(command)}>
            <span class="cut">{command.text}</span>
            <span class="quiet small cut">{command.kind}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="empty quiet">Nothing matches.</p>}
    </dialog>
  );
}

function useCommands(project: string | undefined): readonly Command[] {
  const projects = useProjects().data;
  const workspaces = useWorkspaces().data;
  const user = useUser().data;
  const tunnels = useResource(project === undefined ? undefined : `project/${project}/palette`, (signal) =>
    callEngine("get", project ?? "", "/api/tunnels", { query: { params: JSON.stringify({ limit: MAX_TUNNELS }) }, signal }),
  ).data;
  return useMemo(() => {
    const commands: Command[] = [
      { text: "Publish something", kind: "Action", href: project === undefined ? "/welcome" : `/welcome?project=${encodeURIComponent(project)}` },
      { text: "Create a project", kind: "Action", href: "/projects?new=1" },
      { text: "Create a token", kind: "Action", href: "/credentials?new=1" },
      { text: "Projects", kind: "Page", href: "/projects" },
      { text: "Workspaces", kind: "Page", href: "/workspaces" },
      { text: "Credentials", kind: "Page", href: "/credentials" },
      { text: "Your account", kind: "Page", href: "/account" },
    ];
    if (project !== undefined) {
      const name = projects?.find((one) => one.id === project)?.name ?? "Project";
      for (const item of projectItems(project)) commands.push({ text: item.text, kind: name, href: item.href });
      const base = to("/projects/:id", { id: project });
      commands.push({ text: "Add a domain", kind: "Action", href: `${base}/domains?new=1` });
      commands.push({ text: "Create a webhook", kind: "Action", href: `${base}/webhooks?new=1` });
      for (const tunnel of tunnels ?? []) {
        if (tunnel.id === undefined) continue;
        commands.push({ text: tunnel.name ?? tunnel.hostname ?? tunnel.id, kind: "Tunnel", href: `${base}/tunnels/${encodeURIComponent(tunnel.id)}` });
      }
    }
    for (const one of projects ?? []) commands.push({ text: one.name, kind: "Project", href: to("/projects/:id", { id: one.id }) });
    for (const one of workspaces ?? []) {
      for (const item of workspaceItems(one.id)) commands.push({ text: item.isExact === true ? one.name : item.text, kind: item.isExact === true ? "Workspace" : one.name, href: item.href });
      commands.push({ text: "Invite a member", kind: `Action · ${one.name}`, href: `${to("/workspaces/:id", { id: one.id })}/members?new=1` });
    }
    if (user?.role === "admin") for (const item of operatorItems()) commands.push({ text: item.text, kind: "Installation", href: item.href });
    return commands;
  }, [project, projects, workspaces, user, tunnels]);
}
