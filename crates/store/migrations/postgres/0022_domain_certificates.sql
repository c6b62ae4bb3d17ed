-- Certificates that projects uploaded for their domains. The key is encrypted by the platform. NULL: the
-- engine orders one.
ALTER TABLE domains ADD COLUMN certificate_chain TEXT COLLATE "C";
ALTER TABLE domains ADD COLUMN sealed_certificate_key BYTEA;
ALTER TABLE domains ADD COLUMN certificate_expires_at BIGINT;
