-- The certificates of an engine's own names, as it reported last (JSON), and the time of that report.
ALTER TABLE link_reporters ADD COLUMN certificates TEXT;
ALTER TABLE link_reporters ADD COLUMN certificates_at INTEGER;
