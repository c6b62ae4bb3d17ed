-- Webhooks that nobody answers, what receivers said, and ports that rest before others get them.

-- Since when every attempt has failed. NULL: the latest one did not.
ALTER TABLE webhooks ADD COLUMN failing_since BIGINT;
-- The beginning of what was answered.
ALTER TABLE delivery_attempts ADD COLUMN response_body TEXT COLLATE "C";
-- What waits for one webhook.
CREATE INDEX deliveries_open ON deliveries (webhook_id) WHERE completed_at IS NULL;

-- When its project gave the port back: it is kept from others for a while. NULL: it is in use.
ALTER TABLE addresses ADD COLUMN released_at BIGINT;
CREATE INDEX addresses_released ON addresses (released_at) WHERE released_at IS NOT NULL;
