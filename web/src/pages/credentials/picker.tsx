// The permission picker and the builder of boundaries.

import { useMemo } from "preact/hooks";
import type { Project } from "../../api/data";
import type { Permission } from "../../api/roles";
import { PERMISSIONS } from "../../generated/permissions";
import { words } from "../../format/text";
import { Check, Field, Select } from "../../ui/fields";
import { Json } from "../../ui/parts";
import { parseList } from "../project/labels";
import { type BoundaryChoice, boundaryText, resources } from "./boundary";
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

export function BoundaryPicker({ projects, choice, onChange }: { projects: readonly Project[]; choice: BoundaryChoice; onChange: (choice: BoundaryChoice) => void }) {
  const names = useMemo(() => new Map(projects.map((one) => [one.id, one.name])), [projects]);
  const value = resources(choice);
  const set = (part: Partial<BoundaryChoice>) => onChange({ ...choice, ...part });
  return (
    <fieldset class="form">
      <legend>Boundary</legend>
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
      <Field label="Only these tunnels" value={choice.names.join(", ")} onValue={(text) => set({ names: parseList(text) })} placeholder="web, api" hint="Names with commas. Empty: all." />
      <Field label="Only these paths" value={choice.path} onValue={(text) => set({ path: text.trim() })} placeholder="^/public/" hint="A regular expression for visits. Empty: all." />
      <div class="note">{value === undefined ? "No boundary: every project of yours, now and later." : boundaryText(choice, names)}</div>
      {value !== undefined && <Json value={value} />}
    </fieldset>
  );
}
