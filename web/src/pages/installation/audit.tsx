// The audit log of the whole installation.

import { useMemo } from "preact/hooks";
import { call } from "../../api/client";
import { useResource } from "../../api/resource";
import { Audit, AUDIT_PAGE_SIZE } from "../audit";

export function OperatorAudit() {
  const users = useResource("installation/names", (signal) => call("get", "/api/operator/users", { query: { pageSize: 100 }, signal })).data;
  const names = useMemo(() => new Map((users?.users ?? []).map((one) => [one.id, one.name])), [users]);
  return (
    <Audit
      title="Audit log"
      note="Actions in this installation."
      cacheKey="installation/audit"
      names={names}
      fetch={(page, signal) => call("get", "/api/operator/audit", { query: { page, pageSize: AUDIT_PAGE_SIZE }, signal })}
    />
  );
}
