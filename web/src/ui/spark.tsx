/** A small graph without axes. */
export function Spark({ values, label, isBad = false }: { values: readonly number[]; label: string; isBad?: boolean }) {
  if (values.length < 2) return <svg class="spark" aria-hidden="true" />;
  const most = Math.max(...values, Number.MIN_VALUE);
  const width = values.length - 1;
  const points = values.map((value, index) => `${index} ${(30 - (value / most) * 28).toFixed(2)}`);
  return (
    <svg class={isBad && values.some((value) => value > 0) ? "spark bad" : "spark"} viewBox={`0 0 ${width} 32`} preserveAspectRatio="none" role="img" aria-label={label}>
      <path class="area" d={`M0 32L${points.join("L")}L${width} 32Z`} />
      <path d={`M${points.join("L")}`} />
    </svg>
  );
}
