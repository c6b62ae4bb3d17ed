// The participants of a session, requests for control, and the buttons for both. The page that
// opened the session and the pages that watch it share this.

import { SignedOut, all, engine, page, path } from "/terminal/engine.mjs";
import { keepPresses } from "/terminal/press.mjs";
import { NOTICE } from "/terminal/webtty.mjs";

const one = (selector) => document.querySelector(selector);

keepPresses();

/** Shows a status, from texts and elements. It stays until the next one. */
export function say(...parts) {
  clearTimeout(passing);
  one("#state").replaceChildren(...parts);
}

/** Shows an event for a while. The status from before is no longer true after it. */
export function mention(...parts) {
  say(...parts);
  passing = setTimeout(() => say(), MENTION);
}

let passing;

/** Shows an error, or removes it. One that is shown already stays, with the focus. */
export function complain(error) {
  const alert = one("#error");
  const text = error?.message ?? error ?? "";
  if (text && !alert.hidden && alert.dataset.shown === text) return;
  alert.dataset.shown = text;
  alert.replaceChildren(text);
  if (error instanceof SignedOut) {
    const link = document.createElement("a");
    link.href = `/login?next=${encodeURIComponent(location.pathname)}`;
    link.textContent = "Sign in again";
    alert.append(" ", link, ".");
  }
  alert.hidden = !alert.textContent;
}

/** A name in a text. Its direction of writing does not affect the text around it. */
export function named(name) {
  const isolated = document.createElement("bdi");
  isolated.textContent = name;
  return isolated;
}

/** Shows the name of a server in the title of the tab. */
export function showTitle(name) {
  if (name) document.title = `${name} · ${document.title}`;
}

let members;

/** The names of the workspace's members. Engines only have their ids. */
export async function knowMembers() {
  if (members) return;
  members = new Map();
  try {
    const found = await all(`/api/workspaces/${page.workspace}/members`, "members");
    for (const member of found) members.set(member.id, member.name);
  } catch (error) {
    // Then the ids of users are shown.
    console.warn(error);
  }
}

/** Display name of a user, from the id or name of the engine. */
export const nameOf = (user) => members?.get(user) || user || "A user";

/** A button for an action that can be refused. */
export function button(label, does, name = label) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "quiet";
  made.textContent = label;
  made.ariaLabel = name;
  made.addEventListener("click", () => attempt(made, does));
  return made;
}

/** Runs the action of a button, but not twice at the same time. */
export async function attempt(of, does) {
  // Not `disabled`, because that would remove the focus.
  if (of.ariaDisabled === "true") return;
  of.ariaDisabled = "true";
  complain();
  try {
    await does();
  } catch (error) {
    complain(error);
  } finally {
    of.ariaDisabled = "false";
  }
}

export class Room {
  /**
   * `session` is its id, and `me` the participant's. `decide(request, grant)` answers a request.
   * `rules` is true if the user may decide about requests even without control.
   */
  constructor({ session, me, decide, rules }) {
    Object.assign(this, { session, me, decide, rules });
    this.users = new Map();
    this.shown = new Map();
    this.controls = false;
    one("#people-section").hidden = false;
    void this.look();
  }

  /** Handles a change of the participants. */
  notice(notice) {
    if (notice.user) this.users.set(notice.participantId, notice.user);
    if (notice.kind === NOTICE.requested) {
      this.ask({ id: notice.requestId, who: nameOf(notice.user), reason: notice.reason });
    }
    if (PEOPLE.includes(notice.kind)) void this.look();
  }

  /**
   * Reads the participants and, for users who may decide, the requests. Only one read runs at a
   * time.
   */
  async look() {
    if (this.looking) {
      this.lookAgain = true;
      return;
    }
    this.looking = true;
    try {
      await knowMembers();
      const people = await engine(path("sessions", this.session, "participants"));
      const asks = await engine(path("sessions", this.session, "control-requests"));
      this.#show(people.filter((person) => person.live.connected), asks);
      this.#asked(asks);
    } catch (error) {
      // A user who may not see the participants can still watch.
      console.warn(error);
    } finally {
      this.looking = false;
    }
    if (this.lookAgain) {
      this.lookAgain = false;
      await this.look();
    }
  }

  /** Shows a request that this user can answer. */
  ask({ id, who, reason }) {
    if (this.shown.has(id)) return;
    const box = document.createElement("div");
    box.className = "request";
    const text = document.createElement("p");
    text.append(named(who), " requests control");
    if (reason) text.append(": “", named(reason), "”");
    else text.append(" and gives no reason.");
    const answer = (grant) => async () => {
      await this.decide(id, grant);
      this.forget(id);
    };
    const choice = document.createElement("div");
    choice.className = "bar";
    choice.append(
      button("Grant", answer(true), `Grant control to ${who}`),
      button("Refuse", answer(false), `Refuse control to ${who}`),
    );
    box.append(text, choice);
    one("#requests").append(box);
    this.shown.set(id, box);
    // A request can also be withdrawn, or expire. The stream does not report that.
    this.polling ??= setInterval(() => void this.look(), POLL);
  }

  /** Removes a request that was answered, by any user. */
  forget(id) {
    const box = this.shown.get(id);
    if (!box) return;
    const had = box.contains(document.activeElement);
    box.remove();
    this.shown.delete(id);
    if (had) one("#terminal").focus();
    if (this.shown.size > 0) return;
    clearInterval(this.polling);
    this.polling = undefined;
  }

  /** Removes all participants. */
  close() {
    for (const id of [...this.shown.keys()]) this.forget(id);
    one("#people-section").hidden = true;
  }

  #asked(requests) {
    for (const { id, status, reason, requester_participant_id: asker } of requests) {
      // A request that is not in the list may be newer than the list.
      if (status !== "pending") this.forget(id);
      else if ((this.rules || this.controls) && asker !== this.me) {
        this.ask({ id, who: this.#name(asker), reason });
      }
    }
  }

  #show(people, requests) {
    const list = one("#people");
    const held = requests.find((request) => request.status === "granted");
    const entries = people.map((person) => this.#entry(person, held));
    // Unchanged lists stay, so that they keep the focus.
    if (list.textContent === entries.map((entry) => entry.textContent).join("")) return;
    const focused = list.contains(document.activeElement) ? document.activeElement : undefined;
    const entryOf = focused?.closest("li").dataset.person;
    list.replaceChildren(...entries);
    if (!focused) return;
    // The focus stays at the same button, or at the same participant.
    const entry = entries.find((entry) => entry.dataset.person === entryOf);
    const buttons = [...(entry?.querySelectorAll("button") ?? [])];
    const same = buttons.find((button) => button.textContent === focused.textContent) ?? buttons[0];
    (same ?? one("#terminal")).focus();
  }

  #entry(person, held) {
    const entry = document.createElement("li");
    entry.className = "row";
    entry.dataset.person = person.id;
    if (person.user_id) this.users.set(person.id, person.user_id);
    const text = document.createElement("span");
    const name = this.#name(person.id);
    const [has, sees] = person.id === this.me ? ["have", "watch"] : ["has", "watches"];
    text.append(named(name), ` ${person.live.controller ? `${has} control` : sees}`);
    entry.append(text);
    if (!this.rules || person.id === this.me) return entry;
    const choice = document.createElement("span");
    const holds = person.live.controller && held?.requester_participant_id === person.id;
    if (holds) {
      choice.append(button("Take control back", () => this.revoke(held.id)), " ");
    }
    const remove = () => this.#remove(person.id);
    choice.append(button("Remove", remove, `Remove ${name}`));
    entry.append(choice);
    return entry;
  }

  /** Revokes granted control. It may have been granted on another page. */
  async revoke(request) {
    await resolve(this.session, request, "revoke");
    await this.look();
  }

  async #remove(participant) {
    const body = { reason: "removed on the page" };
    const at = path("sessions", this.session, "participants", participant);
    await engine(at, { method: "POST", body });
    await this.look();
  }

  #name(id) {
    if (id === this.me) return "You";
    return nameOf(this.users.get(id));
  }
}

/** Answers a request over the API. `approver` is absent for an owner. */
export async function resolve(session, request, action, approver) {
  const body = { action };
  if (approver) body.approver_participant_id = approver;
  const at = path("sessions", session, "control-requests", request);
  return await engine(at, { method: "POST", body });
}

/** Reason of a command's end, as a sentence. */
export function ending({ returnCode, termination }) {
  const reason = REASONS[termination?.reason];
  const signal = termination?.signal ? ` (SIG${termination.signal})` : "";
  return reason ? `The session ended: ${reason}${signal}.` : `The session ended with ${returnCode}.`;
}

/** Reason of the end of a listed session, as a sentence. */
export const endOf = ({ exit_code: code }) =>
  code === undefined ? "The session has ended." : `The session ended with ${code}.`;

const REASONS = {
  2: "a signal ended it",
  3: "its client was disconnected for too long",
  4: "it was idle for too long",
  5: "it reached its maximum duration",
  6: "the server is shutting down",
  7: "a user ended it",
  8: "its recording could not continue",
};

/** Milliseconds between two reads while a request waits for an answer. */
const POLL = 3000;

/** Milliseconds for which an event is shown. */
const MENTION = 20_000;

const PEOPLE = [
  NOTICE.joined,
  NOTICE.left,
  NOTICE.requested,
  NOTICE.granted,
  NOTICE.refused,
  NOTICE.revoked,
  NOTICE.expired,
];

/** True if the user opened the session, or manages the project. */
export const isMine = (session) => session.initiator_user_id === page.user;
