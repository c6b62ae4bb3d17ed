// Fields with their labels, hints and errors.

import type { ComponentChildren } from "preact";
import { useContext, useId } from "preact/hooks";
import { FormError } from "./form";

interface FieldProps {
  label: string;
  value: string;
  onValue: (value: string) => void;
  hint?: ComponentChildren;
  /** The name of the field in the API, by which a failure of the form names it. */
  name?: string;
  type?: "text" | "email" | "url" | "number" | "date";
  placeholder?: string;
  maxLength?: number;
  isRequired?: boolean;
  isMono?: boolean;
  rows?: number;
}

export function Field({ label, value, onValue, hint, name, type = "text", placeholder, maxLength, isRequired = false, rows }: FieldProps) {
  const id = useId();
  const error = useContext(FormError);
  const isRefused = error !== undefined && name !== undefined && (error.field === name || error.field?.endsWith(`.${name}`) === true);
  const shared = {
    id,
    class: "input",
    value,
    required: isRequired,
    autocomplete: "off" as const,
    "aria-invalid": isRefused ? ("true" as const) : undefined,
    "aria-describedby": hint !== undefined || isRefused ? `${id}-hint` : undefined,
    ...(placeholder === undefined ? {} : { placeholder }),
    ...(maxLength === undefined ? {} : { maxLength }),
  };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {rows === undefined ? (
        // The types of Preact list the roles of each kind of input; these kinds have none.
        <input {...shared} type={type as "text"} onInput={(event) => onValue(event.currentTarget.value)} />
      ) : (
        <textarea {...shared} rows={rows} spellcheck={false} onInput={(event) => onValue(event.currentTarget.value)} />
      )}
      {(hint !== undefined || isRefused) && (
        <span class={isRefused ? "small bad" : "small quiet"} id={`${id}-hint`}>
          {isRefused ? error.detail : hint}
        </span>
      )}
    </div>
  );
}

export interface Option {
  readonly value: string;
  readonly text: string;
}

export function Select({ label, value, options, onValue, hint, isLabelSeen = true }: { label: string; value: string; options: readonly Option[]; onValue: (value: string) => void; hint?: ComponentChildren; isLabelSeen?: boolean }) {
  const id = useId();
  const select = (
    <select id={id} class="input" value={value} aria-label={isLabelSeen ? undefined : label} onChange={(event) => onValue(event.currentTarget.value)}>
      {options.map((option) => (
        <option key={option.value} value={option.value}>
          {option.text}
        </option>
      ))}
    </select>
  );
  if (!isLabelSeen) return select;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {select}
      {hint !== undefined && <span class="small quiet">{hint}</span>}
    </div>
  );
}

export function Check({ label, isChecked, onChange, hint }: { label: ComponentChildren; isChecked: boolean; onChange: (isChecked: boolean) => void; hint?: ComponentChildren }) {
  return (
    <label class="check">
      <input type="checkbox" checked={isChecked} onChange={(event) => onChange(event.currentTarget.checked)} />
      <span class="stack">
        <span>{label}</span>
        {hint !== undefined && <span class="small quiet">{hint}</span>}
      </span>
    </label>
  );
}

export function Search({ label, value, onValue }: { label: string; value: string; onValue: (value: string) => void }) {
  return <input class="input search" type="search" aria-label={label} placeholder={label} value={value} autocomplete="off" spellcheck={false} onInput={(event) => onValue(event.currentTarget.value)} />;
}

/** A day in the reader's zone, as a filter. */
export function Day({ label, value, onValue }: { label: string; value: string; onValue: (value: string) => void }) {
  return (
    <label class="day">
      <span class="small quiet">{label}</span>
      <input class="input" type="date" value={value} onChange={(event) => onValue(event.currentTarget.value)} />
    </label>
  );
}
