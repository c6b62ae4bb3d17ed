import { useMemo } from "preact/hooks";
import { qr, qrPath } from "../qr/qr";

/** A QR code of an address, for a phone. */
export function QrCode({ text, label }: { text: string; label: string }) {
  const code = useMemo(() => {
    const found = qr(text);
    return found === undefined ? undefined : qrPath(found);
  }, [text]);
  if (code === undefined) return null;
  return (
    <svg class="qr" role="img" aria-label={label} viewBox={`0 0 ${code.side} ${code.side}`} shape-rendering="crispEdges">
      <path d={code.path} />
    </svg>
  );
}
