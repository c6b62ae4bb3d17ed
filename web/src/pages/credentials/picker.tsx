// The permission picker and the builder of boundaries.

import { useMemo, useState } from "preact/hooks";
import type { Project } from "../../api/data";
import type { Permission } from "../../api/roles";
import { PERMISSIONS } from "../../generated/permissions";
import { words } from "../../format/text";
import { Check, Field, Select } from "../../ui/fields";
import { Button, Json } from "../../ui/parts";
import { parseList } from "../project/labels";
import { type BoundaryChoice, boundaryText, parseResources, resources } from "./boundary";
import { PRESETS } from "./presets";

export function PermissionPicker({ owned, chosen, onChange }: { owned: ReadonlySet<string>; chosen: ReadonlySet<Permission> | undefined; onChange: (chosen: ReadonlySet<Permission> | undefined) => void }) {
  const preset = chosen === undefined ? "all" : (PRESETS.find((one) => one.permissions.length === chosen.size && one.permissions.every((permission) => chosen.has(permission)))?.value ?? "own");
  const known = PERMISSIONS.filter((one) => owned.has(one.name));
  const allowed = known.filter((one) => chosen === undefined || chosen.has(one.name as Permission));
  const forbidden = known.filter((one) => chosen !== undefined && !chosen.has(one.name as Permission));
  const toggle = (name: Permission, isChecked: boolean) => {
    const next = new Set(chosen ?? known.map((one) => one.name as Permission));
    if (isChecked) next.add(name);
    else next.delete(name);
    onChange(next);
  };
  return (
    <>
      <Select
        label="Permissions"
        value={preset}
        onValue={(value) => {
          if (value === "all") onChange(undefined);
          else if (value === "own") onChange(new Set(known.map((one) => one.name as Permission)));
          else onChange(new Set(PRESETS.find((one) => one.value === value)?.permissions ?? []));
        }}
        options={[...PRESETS.filter((one) => one.permissions.every((permission) => owned.has(permission))).map(({ value, text }) => ({ value, text })), { value: "own", text: "Choose each" }, { value: "all", text: "Everything that you may do" }]}
      />
      {preset !== "all" && (
        <fieldset>
          <legend>Each permission</legend>
          <div class="permissions" tabIndex={0} role="group" aria-label="Permissions">
            {known.map((one) => (
              <Check key={one.name} label={<code>{one.name}</code>} hint={one.description} isChecked={chosen?.has(one.name as Permission) ?? true} onChange={(isChecked) => toggle(one.name as Permission, isChecked)} />
            ))}
          </div>
        </fieldset>
      )}
      <div class="note">
        <span>
          <strong>Allows:</strong> {allowed.length === 0 ? "nothing" : allowed.map((one) => one.description.replace(/\.$/, "")).join("; ")}.
        </span>
        {forbidden.length > 0 && (
          <span class="small">
            <strong>Forbids:</strong> {forbidden.map((one) => one.description.replace(/\.$/, "")).join("; ")}.
          </span>
        )}
      </div>
    </>
  );
}

interface BoundaryProps {
  projects: readonly Project[];
  choice: BoundaryChoice;
  onChange: (choice: BoundaryChoice) => void;
  /** The boundary as the person wrote it; undefined while it is built by choosing. */
  json: string | undefined;
  onJson: (json: string | undefined) => void;
}

export function BoundaryPicker({ projects, choice, onChange, json, onJson }: BoundaryProps) {
  const names = useMemo(() => new Map(projects.map((one) => [one.id, one.name])), [projects]);
  const value = resources(choice);
  // As it was typed: a comma at the end starts the next name.
  const [typed, setTyped] = useState(choice.names.join(", "));
  const set = (part: Partial<BoundaryChoice>) => onChange({ ...choice, ...part });
  if (json !== undefined) {
    const written = parseResources(json);
    return (
      <fieldset class="form">
        <legend>Boundary</legend>
        <Field label="Boundary as JSON" name="resources" value={json} onValue={onJson} rows={12} hint="Empty: no boundary. The server refuses a wrong one and names its field." />
        {written.error !== undefined && (
          <div class="note is-bad" role="status">
            {written.error}
          </div>
        )}
        <div class="buttons">
          <Button onClick={() => onJson(undefined)}>Build it by choosing</Button>
        </div>
      </fieldset>
    );
  }
  return (
    <fieldset class="form">
      <legend>Boundary</legend>
      <div class="beside">
        <div class="form">
          <div class="permissions" tabIndex={0} role="group" aria-label="Projects; none chosen: all">
            {projects.map((one) => (
              <Check key={one.id} label={one.name} isChecked={choice.projects.includes(one.id)} onChange={(isChecked) => set({ projects: isChecked ? [...choice.projects, one.id] : choice.projects.filter((id) => id !== one.id) })} />
            ))}
          </div>
          <div class="bar">
            {(["mayCreate", "mayConnect", "mayList"] as const).map((name) => (
              <Check key={name} label={words(name.replace("may", "")) + " tunnels"} isChecked={choice[name]} onChange={(isChecked) => set({ [name]: isChecked })} />
            ))}
          </div>
          <Field label="Only these tunnels" value={typed} onValue={(text) => { setTyped(text); set({ names: parseList(text) }); }} placeholder="web, api" hint="Names with commas. Empty: all." />
          <Field label="Only these paths" value={choice.path} onValue={(text) => set({ path: text })} placeholder="^/public/" hint="A regular expression for visits. Empty: all." />
        </div>
        <div class="form">
          <div class="note">{value === undefined ? "No boundary: every project of yours, now and later." : boundaryText(choice, names)}</div>
          {value !== undefined && <Json value={value} />}
          <div class="buttons">
            <Button onClick={() => onJson(value === undefined ? "" : JSON.stringify(value, null, 2))}>Edit as JSON</Button>
          </div>
        </div>
      </div>
    </fieldset>
  );
}
