// The rules of the edge in words, with the next step of each: the texts of `svc explain`
// (crates/svc/src/commands/explain/advice.rs).

const SENTENCES: Readonly<Record<string, string>> = {
  host: "The name is not served on this connection.",
  offline: "The tunnel's agent is not connected.",
  starting: "The engine had just started, and no agent had connected with this name yet.",
  unknown: "No tunnel has this name.",
  uninformed: "The engine has not yet received its state from the platform.",
  loop: "The request loops: the tunnel's service sends it back to the edge.",
  http: "The request is malformed, or larger than the edge accepts.",
  edge: "This is a route of the edge itself.",
};

const STEPS: Readonly<Record<string, string>> = {
  private: "Connect to it with `svc dial`, or publish it: start its agent without `--no-publish`.",
  suspended: "See the project's status with `svc project list`.",
  taken_down: "See the operator's reason with `svc project takedowns`.",
  unenforceable: "Remove the access rule, or use an engine that supports it.",
  trusted_ips: "Connect from one of the trusted addresses, or change `trusted_ips` of the tunnel, or `trustedIps` with `svc project settings set`.",
  geo_ip: "Connect from an allowed country, or change `geo_ip` of the tunnel, or `geoIp` with `svc project settings set`.",
  tls_version: "Use a newer client, or change `minTlsVersion` with `svc project settings set`.",
  public_access: "Add an access rule to the tunnel (`--token-auth`, `--svc-auth`), or change `publicAccessPolicy` with `svc project settings set`.",
  rate_limit: "Send fewer requests; the project's plan sets the rate limit.",
  ambiguous: "Send one proof: the client certificate, the token, the cookie or the link password.",
  query_credential: "Put the complete `svc.token` into the address exactly once, or use the header.",
  challenge: "Open it in a browser, or send a valid token.",
  token: "Send a valid token: `svc token inspect` shows its contents, `svc token create` creates one.",
  session: "Open it in a browser and sign in as a member of the project's workspace.",
  cross_site: "Open it from a page of the tunnel itself, or list the page's origin with `--allowed-origins` of the agent.",
  certificate: "Present a registered client certificate: `svc credential list` shows them.",
  password: "Send the link password: those of the tunnel are in the `--basic-auth-file` of its agent, or were entered with `--basic-auth`. After many wrong ones, wait as long as `Retry-After` says.",
  permission: "Use a credential with `tunnels.streams.create-delete`.",
  boundary: "Use a credential whose `resources` include this project, tunnel and path.",
  path: "Request a plain path: no encoded slashes, no dot segments.",
  host: "Use one name for TLS (SNI) and for `Host`.",
  offline: "Restart its agent; `svc clients` shows the connected agents.",
  starting: "Try again: agents reconnect within seconds. If it persists, `svc clients` shows the connected agents.",
  unknown: "`svc tunnels` shows the names that are online.",
  uninformed: "Try again soon; if it persists, check the engine's connection to its platform.",
  loop: "Point the agent, or the service behind it, at the service itself instead of at a public name of this engine.",
  http: "Correct the request: the reason states what is wrong with it.",
};

const PROBLEM_STEPS: Readonly<Record<string, string>> = {
  upstream_unreachable: "Check whether the service behind the agent answers: the output of its `svc forward` shows each stream.",
  upstream_timeout: "Check whether the service behind the agent answers: the output of its `svc forward` shows each stream.",
  access_ended: "Send the request again: the response states who may visit the tunnel now.",
  upstream_invalid_response: "Correct the response of the service, or the scheme (http or https) of its address.",
  loop_detected: "Point the agent, or the service behind it, at the service itself instead of at a public name of this engine.",
  service_unavailable: "Try again soon.",
  rate_limited: "Send fewer requests; the project's plan sets the rate limit.",
  invalid_certificate: "Present a registered client certificate: `svc credential list` shows them.",
  misdirected_request: "Use one name for TLS (SNI) and for `Host`.",
  tunnel_offline: "Restart its agent; `svc clients` shows the connected agents.",
  tunnel_not_found: "`svc tunnels` shows the names that are online.",
  unauthenticated: "Use what the address needs: `svc token create` creates a token, a browser signs in, and `svc credential list` shows the registered client certificates.",
  invalid_token: "Send a valid token: `svc token inspect` shows its contents, `svc token create` creates one.",
  password_required: "Send the link password: those of the tunnel are in the `--basic-auth-file` of its agent, or were entered with `--basic-auth`. After many wrong ones, wait as long as `Retry-After` says.",
  invalid_password: "Send the link password: those of the tunnel are in the `--basic-auth-file` of its agent, or were entered with `--basic-auth`. After many wrong ones, wait as long as `Retry-After` says.",
  insufficient_scope: "Use a credential whose `resources` include this project, tunnel and path.",
  ambiguous_credentials: "Send one proof: the client certificate, the token, the cookie or the link password.",
  challenge_required: "Open it in a browser, or send a valid token.",
  cross_site_request: "Open it from a page of the tunnel itself, or list the page's origin with `--allowed-origins` of the agent.",
};

/** Description of a rule that has none in the record. */
export function ruleSentence(rule: string | undefined): string | undefined {
  return known(SENTENCES, rule);
}

/** The next step after this rule refused a visitor. */
export function ruleStep(rule: string | undefined): string | undefined {
  return known(STEPS, rule);
}

/** The next step after an incomplete or invalid response. */
export function problemStep(problem: string | undefined): string | undefined {
  return known(PROBLEM_STEPS, problem);
}

function known(table: Readonly<Record<string, string>>, name: string | undefined): string | undefined {
  return name !== undefined && Object.hasOwn(table, name) ? table[name] : undefined;
}
