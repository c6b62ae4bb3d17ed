-- Sign-ins that are under way at an OpenID provider. Each is used once, by whichever process the
-- browser comes back to.

CREATE TABLE pending_sign_ins (
    -- Of the secret in the browser's cookie.
    hash BLOB NOT NULL PRIMARY KEY,
    -- What to do when the browser is back; encrypted, because a path may hold an invitation.
    sealed BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
);
CREATE INDEX pending_sign_ins_expiry ON pending_sign_ins (expires_at);
