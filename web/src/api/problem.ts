// Failures of requests: problem details (RFC 9457), and connections that failed.

export interface ProblemBody {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly detail: string;
  readonly field?: string;
  readonly reference?: string;
  readonly scope?: string;
  readonly url?: string;
}

export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly detail: string;
  readonly field: string | undefined;
  readonly reference: string | undefined;
  readonly scope: string | undefined;
  /** A page of the platform where the user can continue. */
  readonly url: string | undefined;
  /** Wait before another attempt that the server requested. */
  readonly retryAfterMs: number | undefined;

  constructor(body: ProblemBody, retryAfterMs?: number) {
    super(body.detail);
    this.name = "ApiError";
    this.status = body.status;
    this.code = body.code;
    this.title = body.title;
    this.detail = body.detail;
    this.field = body.field;
    this.reference = body.reference;
    this.scope = body.scope;
    this.url = body.url;
    this.retryAfterMs = retryAfterMs;
  }

  /** True if the same request may succeed later without a change. */
  get isTemporary(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** The error of a connection that failed before a response. */
export function unreachable(): ApiError {
  return new ApiError({
    status: 0,
    code: "unreachable",
    title: "The platform is not reachable",
    detail: "No response arrived. The network is down, or the platform is restarting.",
  });
}

/** Reads the body of a failed response. A body of another form, as from a proxy, is not shown. */
export function parseProblem(status: number, text: string, retryAfter: string | null): ApiError {
  const seconds = retryAfter === null ? NaN : Number(retryAfter);
  const wait = Number.isFinite(seconds) && seconds >= 0 ? Math.min(seconds, 3600) * 1000 : undefined;
  const body = asObject(text);
  const part = (name: string) => (typeof body[name] === "string" && body[name] !== "" ? body[name] : undefined);
  const field = part("field");
  const reference = part("reference");
  const scope = part("scope");
  const url = part("url");
  return new ApiError(
    {
      status,
      code: part("code") ?? part("error") ?? `http_${status}`,
      title: part("title") ?? `The request failed with status ${status}`,
      detail: part("detail") ?? "The response does not explain the failure.",
      ...(field === undefined ? {} : { field }),
      ...(reference === undefined ? {} : { reference }),
      ...(scope === undefined ? {} : { scope }),
      ...(url === undefined ? {} : { url }),
    },
    wait,
  );
}

export interface NextStep {
  readonly text: string;
  readonly href?: string;
  readonly label?: string;
}

/** The next step after a failure. `here` is the address to return to. */
export function nextStep(error: ApiError, here: string): NextStep | undefined {
  const next = encodeURIComponent(here);
  switch (error.code) {
    case "proof_required":
      return { text: "This needs a recent proof that it is you.", href: `/account/confirm?next=${next}`, label: "Confirm" };
    case "workspace_suspended":
      return { text: "An operator suspended this workspace. Its content can be read. Its owner can ask the operator for the reason." };
    case "project_suspended":
      return { text: "An operator suspended this project. Its owner can ask the operator for the reason." };
    case "insufficient_scope":
      return {
        text: `Your role does not allow this${error.scope === undefined ? "" : ` (${error.scope})`}. An owner or admin of the workspace can change the role.`,
      };
    case "engine_unreachable":
      return { text: "The engine of this project does not respond. The page tries again automatically." };
    case "too_many_streams":
      return { text: "Too many views of this account are open. Close other tabs of the dashboard." };
    case "not_in_plan": {
      const text = "The plan of this project does not include this, or its limit is reached. An owner or admin can change the plan on the page of its usage.";
      const project = /^\/projects\/[^/?]+/.exec(here)?.[0];
      return project === undefined ? { text } : { text, href: `${project}/usage`, label: "Usage" };
    }
    case "published_tcp_disabled":
      return { text: "An owner or admin can allow it in the settings of the project: “TCP tunnels may be published”." };
    default:
  }
  if (error.status === 401) return { text: "Your session has ended.", href: `/login?next=${next}`, label: "Sign in again" };
  if (error.status === 404) return { text: "It was deleted, or your role no longer shows it.", href: "/projects", label: "Your projects" };
  if (error.status === 429) return { text: "Wait a moment; the page tries again automatically." };
  if (error.isTemporary) return { text: "The page tries again automatically." };
  return undefined;
}

function asObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
