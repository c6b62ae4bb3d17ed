-- When the owners were told that the uploaded certificate of a domain expires soon; none: not yet.
ALTER TABLE domains ADD COLUMN certificate_notice_at INTEGER;

-- Those whose owners may still be told.
CREATE INDEX domains_certificate_expiring ON domains (certificate_expires_at)
    WHERE certificate_notice_at IS NULL AND certificate_expires_at IS NOT NULL;

-- The certificate that an engine orders for a domain, as the engine reported last: expiry, reason of the
-- last failure, time of the next attempt after it.
ALTER TABLE domains ADD COLUMN ordered_expires_at INTEGER;
ALTER TABLE domains ADD COLUMN order_problem TEXT;
ALTER TABLE domains ADD COLUMN next_order_at INTEGER;
