-- When the owners were told that the uploaded certificate of a domain expires soon; none: not yet.
ALTER TABLE domains ADD COLUMN certificate_notice_at INTEGER;

-- Those whose owners may still be told.
CREATE INDEX domains_certificate_expiring ON domains (certificate_expires_at)
    WHERE certificate_notice_at IS NULL AND certificate_expires_at IS NOT NULL;
