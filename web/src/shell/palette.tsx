// The command palette: Ctrl-K finds pages, projects, tunnels and actions.

import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useProjects, useUser, useWorkspaces } from "../api/data";
import { callEngine } from "../api/client";
import { useResource } from "../api/resource";
import { navigate, useAddress } from "../router/location";
import { Store, useStore } from "../store";
import { returnFocus } from "../ui/focus";
import type { Tunnel } from "../live/objects";
import { commands, SIGN_OUT } from "./commands";
import { find, type Command } from "./find";
import { signOut } from "./sign-out";

const isOpen = new Store(false);
/** Tunnels of each project that the palette searches. */
const MAX_TUNNELS = 1000;
/** Projects whose tunnels it searches on a page without a project: each costs a request to an engine. */
const MAX_PROJECTS = 5;

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
      returnFocus(before);
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
    if (command.href === SIGN_OUT) signOut();
    else navigate(command.href);
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
          <li key={`${command.href} ${command.text}`} id={`${id}-${index}`} role="option" aria-selected={index === chosen} onClick={() => run(command)}>
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
  const isOperator = useUser().data?.role === "admin";
  const ids = project === undefined ? (projects ?? []).slice(0, MAX_PROJECTS).map((one) => one.id) : [project];
  const tunnels = useResource(ids.length === 0 ? undefined : `palette/${ids.join()}`, (signal) => tunnelsOf(ids, signal)).data;
  return useMemo(
    () => commands({ project, projects: projects ?? [], workspaces: workspaces ?? [], isOperator, tunnels: tunnels ?? new Map() }),
    [project, projects, workspaces, isOperator, tunnels],
  );
}

/** Tunnels by project. An engine that does not respond leaves out its projects. */
async function tunnelsOf(projects: readonly string[], signal: AbortSignal): Promise<ReadonlyMap<string, readonly Tunnel[]>> {
  const query = { params: JSON.stringify({ limit: MAX_TUNNELS }) };
  const lists = await Promise.allSettled(projects.map((project) => callEngine("get", project, "/api/tunnels", { query, signal })));
  const found = new Map<string, readonly Tunnel[]>();
  for (const [index, list] of lists.entries()) {
    const project = projects[index];
    if (project !== undefined && list.status === "fulfilled") found.set(project, list.value);
  }
  return found;
}
