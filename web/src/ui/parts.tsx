// Small parts: buttons, times, states.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, nextStep } from "../api/problem";
import type { Resource } from "../api/resource";
import { bothZones, localTime, relative } from "../format/text";
import { useAddress } from "../router/location";
import { withQuery } from "../router/match";
import { useNow } from "./clock";
import { Icon, type IconName } from "./icons";
import { toast } from "./toasts";

type ButtonProps = Omit<JSX.IntrinsicElements["button"], "ref" | "icon"> & {
  look?: "main" | "grave" | "bare" | undefined;
  icon?: IconName | undefined;
  isBusy?: boolean | undefined;
};

/** A button. While it is busy it keeps the focus and does nothing. */
export function Button({ look, icon, isBusy = false, children, onClick, type = "button", ...rest }: ButtonProps) {
  return (
    <button
      {...rest}
      type={type}
      class={look === undefined ? "button" : `button is-${look}`}
      aria-disabled={isBusy ? "true" : undefined}
      onClick={(event) => {
        if (isBusy) event.preventDefault();
        else onClick?.(event);
      }}
    >
      {icon !== undefined && <Icon name={icon} />}
      {children}
    </button>
  );
}

export function ButtonLink({ href, look, icon, children }: { href: string; look?: "main" | "bare"; icon?: IconName; children: ComponentChildren }) {
  return (
    <a class={look === undefined ? "button" : `button is-${look}`} href={href}>
      {icon !== undefined && <Icon name={icon} />}
      {children}
    </a>
  );
}

/** A button that copies a text and confirms it. */
export function CopyButton({ text, label, look, onCopied }: { text: string; label: string; look?: "main" | "bare"; onCopied?: () => void }) {
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return;
    const timer = setTimeout(() => setCopied(false), 2_000);
    return () => clearTimeout(timer);
  }, [isCopied]);
  const copy = async () => {
    if (await copyText(text)) {
      setCopied(true);
      onCopied?.();
    } else {
      toast("The browser refused to copy. Select the text and copy it.", "bad");
    }
  };
  return (
    <Button look={look ?? "bare"} icon={isCopied ? "check" : "copy"} aria-label={isCopied ? "Copied" : label} title={label} onClick={() => void copy()}>
      {isCopied ? "Copied" : look === "main" ? label : ""}
    </Button>
  );
}

/** The clipboard exists only on https and localhost; elsewhere a selection is copied. */
async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.setAttribute("readonly", "");
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}

/** A text to copy. With `shown`, another text is shown in its place, such as one without a secret. */
export function Code({ text, label, shown = text, onCopied = () => {} }: { text: string; label: string; shown?: string; onCopied?: () => void }) {
  return (
    <div class="code">
      <code>{shown}</code>
      <CopyButton text={text} label={label} onCopied={onCopied} />
    </div>
  );
}

/** A time in the reader's zone, with UTC on hover. */
export function Time({ at, isRelative = true }: { at: string | number | undefined | null; isRelative?: boolean }) {
  const now = useNow();
  if (at === undefined || at === null) return <span class="quiet">–</span>;
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return <span class="quiet">–</span>;
  return (
    <time dateTime={date.toISOString()} title={bothZones(date)}>
      {isRelative ? relative(date.getTime(), now) : localTime(date)}
    </time>
  );
}

export type Tone = "good" | "bad" | "warn" | "plain";

export function Pill({ tone = "plain", isLive = false, children }: { tone?: Tone; isLive?: boolean; children: ComponentChildren }) {
  return (
    <span class={`pill ${tone}`}>
      {isLive && <span class="dot is-live" />}
      {children}
    </span>
  );
}

export function toneOf(status: string | undefined): Tone {
  if (status === undefined) return "plain";
  if (["online", "active", "verified", "succeeded", "connected", "enabled", "accepted", "found", "granted"].includes(status)) return "good";
  if (["suspended", "failed", "denied", "error", "expired", "unavailable", "missing", "different", "network_error", "timeout", "errored"].includes(status)) return "bad";
  if (["pending", "warned", "retrying", "delivering", "quarantined", "inconsistent", "unreachable", "pending_enrollment", "opening", "closing"].includes(status)) return "warn";
  return "plain";
}

export function Status({ of }: { of: string | undefined }) {
  return <Pill tone={toneOf(of)}>{(of ?? "unknown").replaceAll("_", " ")}</Pill>;
}

export function Empty({ icon, title, children }: { icon: IconName; title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Skeleton({ rows = 4 }: { rows?: number }) {
  return (
    <div class="bones" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, index) => (
        <div class="bone" key={index} />
      ))}
    </div>
  );
}

/** A failure, shown where it happened, with its next step. */
export function Failure({ error, onRetry }: { error: ApiError; onRetry?: (() => void) | undefined }) {
  const { path, query } = useAddress();
  const step = nextStep(error, withQuery(path, query));
  return (
    <div class="note is-bad" role="alert">
      <strong>{error.title}</strong>
      <span>{error.detail}</span>
      {error.field !== undefined && (
        <span>
          Field: <code>{error.field}</code>
        </span>
      )}
      {step !== undefined && (
        <span>
          {step.text} {step.href !== undefined && <a href={step.href}>{step.label}</a>}
        </span>
      )}
      {error.reference !== undefined && (
        <span class="small">
          Reference: <code>{error.reference}</code>
        </span>
      )}
      {onRetry !== undefined && (
        <span>
          <Button onClick={onRetry}>Try again</Button>
        </span>
      )}
    </div>
  );
}

/** The content of a resource, or its skeleton; a failure is above content that is already there. */
export function Loaded<T>({ of, rows, children }: { of: Resource<T>; rows?: number; children: (data: T) => ComponentChildren }) {
  const { data, error } = of;
  return (
    <>
      {error !== undefined && error.code !== "unreachable" && error.status !== 401 && <Failure error={error} onRetry={of.reload} />}
      {error !== undefined && data === undefined && (error.code === "unreachable" || error.status === 401) && <Failure error={error} onRetry={of.reload} />}
      {data !== undefined ? children(data) : error === undefined && <Skeleton rows={rows ?? 4} />}
    </>
  );
}

export function Card({ title, actions, isFlush = false, children }: { title?: ComponentChildren; actions?: ComponentChildren; isFlush?: boolean; children: ComponentChildren }) {
  return (
    <section class={isFlush ? "card is-flush" : "card"}>
      {title !== undefined && (
        <div class="title">
          <h2>{title}</h2>
          {actions}
        </div>
      )}
      {children}
    </section>
  );
}

/** The frame of a view: heading, actions, content. The heading takes the focus after navigation. */
export function Page({ title, note, actions, isNarrow = false, children }: { title: string; note?: ComponentChildren; actions?: ComponentChildren; isNarrow?: boolean; children: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  const { path } = useAddress();
  useEffect(() => {
    document.title = `${title} · svc`;
  }, [title]);
  useEffect(() => {
    if (isFirstView) isFirstView = false;
    else heading.current?.focus({ preventScroll: true });
  }, [path]);
  return (
    <div class={isNarrow ? "page narrow" : "page"}>
      <div class="head">
        <div class="titles">
          <h1 tabIndex={-1} ref={heading}>
            {title}
          </h1>
          {note !== undefined && <div class="quiet">{note}</div>}
        </div>
        {actions !== undefined && <div class="actions">{actions}</div>}
      </div>
      {children}
    </div>
  );
}

let isFirstView = true;

export function Tabs({ label, items }: { label: string; items: readonly { href: string; text: string; isChosen: boolean }[] }) {
  return (
    <nav class="tabs" aria-label={label}>
      {items.map((item) => (
        <a key={item.href} href={item.href} aria-current={item.isChosen ? "page" : undefined}>
          {item.text}
        </a>
      ))}
    </nav>
  );
}

export function Json({ value }: { value: unknown }) {
  return (
    <pre class="json" tabIndex={0}>
      {JSON.stringify(value, null, 2)}
    </pre>
  );
}

export function Facts({ rows }: { rows: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="facts">
      {rows
        .filter(([, value]) => value !== undefined && value !== null && value !== "")
        .map(([name, value]) => [<dt key={name}>{name}</dt>, <dd key={`${name}.`}>{value}</dd>])}
    </dl>
  );
}

export function Labels({ of }: { of: Readonly<Record<string, string>> | undefined }) {
  const entries = Object.entries(of ?? {});
  if (entries.length === 0) return null;
  return (
    <span class="tags">
      {entries.map(([name, value]) => (
        <Pill key={name}>{value === "" ? name : `${name}=${value}`}</Pill>
      ))}
    </span>
  );
}
