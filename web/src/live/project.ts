// The live view of a project: one stream for each project and tab, which views share.

import { useEffect } from "preact/hooks";
import { engineBase } from "../api/client";
import { onRecovery, reportFailure, reportSuccess } from "../api/connection";
import { onProjectLoad } from "../api/data";
import { invalidate } from "../api/resource";
import { ApiError, parseProblem, unreachable } from "../api/problem";
import { Store, useStore } from "../store";
import { Batch, gapMs } from "./batch";
import { LiveObjects } from "./objects";
import { Reconnect } from "./reconnect";
import { Slices } from "./slices";
import { sseReader } from "./sse";

export interface LiveView {
  readonly objects: LiveObjects;
  readonly state: "connecting" | "live" | "waiting";
  readonly error: ApiError | undefined;
  /** Differs after each batch of changes. */
  readonly version: number;
}

/** A stream that is silent for longer is dead: the engine sends a comment every 15 seconds. */
const SILENCE_MS = 45_000;
/** A stream stays open this long after its last view, for the next one. */
const LINGER_MS = 10_000;
/** A hidden tab gives its connection back after this time: browsers have six for a host. */
const HIDDEN_MS = 30_000;

const streams = new Map<string, ProjectStream>();

/** Follows the live objects of a project while the component is shown. */
export function useLive(project: string): LiveView {
  const stream = streamOf(project);
  const view = useStore(stream.view);
  useEffect(() => stream.hold(), [stream]);
  return view;
}

function streamOf(project: string): ProjectStream {
  let stream = streams.get(project);
  if (stream === undefined) {
    stream = new ProjectStream(project, () => streams.delete(project));
    streams.set(project, stream);
  }
  return stream;
}

export class ProjectStream {
  readonly view: Store<LiveView>;
  readonly #project: string;
  readonly #onEnd: () => void;
  readonly #objects = new LiveObjects();
  #holders = 0;
  #stop: AbortController | undefined;
  #linger: ReturnType<typeof setTimeout> | undefined;
  #unsubscribe: (() => void) | undefined;
  #hidden: ReturnType<typeof setTimeout> | undefined;
  #isPaused = false;
  /** False before the response of a connection and after its end. */
  #isConnected = false;
  readonly #reconnect = new Reconnect(() => this.#connect());
  readonly #slices = new Slices<readonly string[]>(
    (texts) => this.#objects.steps(texts),
    () => this.#applied(),
  );
  readonly #batch = new Batch(
    (texts) => this.#slices.add(texts),
    () => gapMs(this.#objects.tunnels.size),
  );

  constructor(project: string, onEnd: () => void) {
    this.#project = project;
    this.#onEnd = onEnd;
    this.view = new Store<LiveView>({ objects: this.#objects, state: "connecting", error: undefined, version: 0 });
  }

  /** Keeps the stream open until the returned function is called. */
  hold(): () => void {
    this.#holders += 1;
    clearTimeout(this.#linger);
    if (this.#stop === undefined) {
      const stopRecovery = onRecovery(() => {
        if (this.view.get().state === "waiting" && !this.#isPaused) this.#connect();
      });
      const stopLoads = onProjectLoad((loaded) => {
        if (loaded.id === this.#project) this.#reconnect.setActive(loaded.status === "active");
      });
      document.addEventListener("visibilitychange", this.#onVisibility);
      this.#unsubscribe = () => {
        stopRecovery();
        stopLoads();
        document.removeEventListener("visibilitychange", this.#onVisibility);
      };
      this.#connect();
    }
    return () => {
      this.#holders -= 1;
      if (this.#holders > 0) return;
      this.#linger = setTimeout(() => this.#end(), LINGER_MS);
    };
  }

  #end(): void {
    this.#stop?.abort();
    this.#stop = undefined;
    this.#reconnect.cancel();
    clearTimeout(this.#hidden);
    this.#unsubscribe?.();
    this.#onEnd();
  }

  readonly #onVisibility = (): void => {
    clearTimeout(this.#hidden);
    if (document.visibilityState === "hidden") {
      this.#hidden = setTimeout(() => this.#pause(), HIDDEN_MS);
    } else if (this.#isPaused) {
      this.#isPaused = false;
      this.#connect();
    }
  };

  #pause(): void {
    this.#isPaused = true;
    this.#reconnect.cancel();
    this.#stop?.abort();
    this.#show({ state: "connecting" });
  }

  #connect(): void {
    this.#reconnect.cancel();
    this.#stop?.abort();
    const stop = new AbortController();
    this.#stop = stop;
    this.#isConnected = false;
    void this.#run(stop).catch((thrown: unknown) => {
      if (this.#stop !== stop || this.#isPaused) return;
      const error = thrown instanceof ApiError ? thrown : unreachable();
      reportFailure(error);
      this.#show({ state: "waiting", error });
      // The notice of the frame depends on the project's status.
      if (error.code === "project_suspended") invalidate(`project/${this.#project}`);
      this.#reconnect.afterFailure(error);
    });
  }

  async #run(stop: AbortController): Promise<void> {
    let silence = setTimeout(() => stop.abort(), SILENCE_MS);
    try {
      const response = await fetch(`${engineBase(this.#project)}/api/sse`, { signal: stop.signal, headers: { Accept: "text/event-stream" } });
      if (!response.ok) throw parseProblem(response.status, await response.text(), response.headers.get("Retry-After"));
      if (response.body === null) throw unreachable();
      reportSuccess();
      this.#isConnected = this.#stop === stop;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const events = sseReader();
      for (;;) {
        // A broken stream is handled like an ended one: the response of the next request shows the reason.
        const { done, value } = await reader.read().catch(() => ({ done: true, value: "" }) as const);
        clearTimeout(silence);
        if (done) break;
        silence = setTimeout(() => stop.abort(), SILENCE_MS);
        const texts = events.push(value);
        if (texts.length > 0) this.#batch.add(texts);
      }
      // The stream ended, for example because its token expired: reconnect immediately, and the
      // response shows if that is no longer allowed.
      if (this.#stop !== stop || this.#isPaused) return;
      this.#reconnect.afterEnd();
    } finally {
      clearTimeout(silence);
      if (this.#stop === stop) this.#isConnected = false;
    }
  }

  /** The events may be those of a connection that has ended meanwhile. */
  #applied(): void {
    if (this.#isConnected) this.#reconnect.reset();
    this.#show(this.#isConnected ? { state: "live", error: undefined } : {});
  }

  #show(change: Partial<LiveView>): void {
    const old = this.view.get();
    this.view.set({ ...old, ...change, version: old.version + 1 });
  }
}
