-- Filters of the audit log by action and by object, newest first.
CREATE INDEX audit_action ON audit (action, id);
CREATE INDEX audit_target ON audit (target_id, id);
