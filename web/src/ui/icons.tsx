// Icons as paths, in the size of the text.

const PATHS = {
  home: "M3 11l9-8 9 8M5 9.5V21h5v-6h4v6h5V9.5",
  projects: "M3 7a2 2 0 0 1 2-2h4l2 2h8a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2z",
  overview: "M4 19V5M4 19h16M8 15l3-4 3 2 5-6",
  tunnels: "M4 17v-2a8 8 0 0 1 16 0v2M9 17v-2a3 3 0 0 1 6 0v2",
  clients: "M4 5h16v10H4zM9 19h6M12 15v4",
  log: "M5 6h14M5 10h14M5 14h9M5 18h9",
  domains: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M3 12h18M12 3c3 3 3 15 0 18M12 3c-3 3-3 15 0 18",
  webhooks: "M8 8a4 4 0 1 1 6.5 3.1L17 16M8.5 17H16a3 3 0 1 0 3-3M12 8l-3.5 6A3 3 0 1 1 6 14",
  keys: "M14 10a4 4 0 1 0-3.5 4L12 15.5h2V17h2v2h3v-3z",
  terminal: "M4 5h16v14H4zM7 9l3 3-3 3M12 15h4",
  play: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M10 8.500v7l6-3.500z",
  members: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7M3 20c0-4 2.5-6 6-6s6 2 6 6M16 4.5a3.5 3.5 0 0 1 0 6M17.500 14.500c2.200.8 3.500 2.700 3.500 5.500",
  usage: "M5 20V10M12 20V4M19 20v-7",
  audit: "M6 3h9l4 4v14H6zM15 3v4h4M9 12h7M9 16h7",
  settings: "M12 15.500a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7M12 3v3M12 18v3M3 12h3M18 12h3M5.600 5.600l2.200 2.200M16.200 16.200l2.200 2.200M5.600 18.400l2.200-2.200M16.200 7.800l2.200-2.200",
  engine: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01",
  user: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8M4 21c0-4.500 3-7 8-7s8 2.500 8 7",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14M16 16l5 5",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  check: "M5 12.500l4.500 4.500L19 7",
  down: "M6 9l6 6 6-6",
  plus: "M12 5v14M5 12h14",
  out: "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
  share: "M12 15V4M8 8l4-4 4 4M5 12v8h14v-8",
  alert: "M12 4l9 16H3zM12 10v4M12 17h.01",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
