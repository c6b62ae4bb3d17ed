// A graph over time. It is a chunk of its own, which loads only where a graph is shown.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { localDay, localMinutes } from "../format/text";

export interface Line {
  readonly name: string;
  /** A design token. */
  readonly colour: string;
  readonly values: readonly (number | null)[];
}

interface GraphProps {
  label: string;
  seconds: readonly number[];
  lines: readonly Line[];
  format: (value: number) => string;
}

const HEIGHT = 200;

export default function Graph({ label, seconds, lines, format }: GraphProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const names = lines.map((line) => line.name).join();
  const data: uPlot.AlignedData = [[...seconds], ...lines.map((line) => [...line.values])];
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(element, lines, format), data, element);
    };
    draw();
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", draw);
    return () => {
      observer.disconnect();
      theme.removeEventListener("change", draw);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [names]);
  useEffect(() => plot.current?.setData(data), [seconds, ...lines.map((line) => line.values)]);
  return <div ref={box} class="graph" role="img" aria-label={label} />;
}

function options(element: HTMLElement, lines: readonly Line[], format: (value: number) => string): uPlot.Options {
  const style = getComputedStyle(element);
  const token = (name: string) => style.getPropertyValue(name).trim();
  const axis = { stroke: token("--quiet"), grid: { stroke: token("--edge"), width: 1 }, ticks: { show: false }, font: `12px ${token("--sans")}` };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: (_, __, most) => [0, Math.max(most, Number.EPSILON) * 1.1] } },
    axes: [{ ...axis, size: 32, values: (_, values) => times(values) }, { ...axis, size: 64, values: (_, values) => values.map(format) }],
    series: [{}, ...lines.map((line) => ({ label: line.name, stroke: token(line.colour), width: 1.5, points: { show: false }, spanGaps: false }))],
  };
}

/** Times in the reader's zone; days for long ranges. */
function times(seconds: readonly number[]): string[] {
  const isLong = (seconds.at(-1) ?? 0) - (seconds[0] ?? 0) > 86_400;
  return seconds.map((at) => {
    const date = new Date(at * 1000);
    return isLong ? localDay(date) : localMinutes(date);
  });
}
