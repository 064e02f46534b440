-- The whole schema of the embedded default. Ids are hyphenated lower-case text (readable in any SQLite shell), times
-- integer milliseconds since 1970 UTC (text times sort wrongly), both from the database's clock. STRICT tables,
-- because SQLite would otherwise keep any type in any column. Constraints are named as in the PostgreSQL schema.

-- What can be bought. The check is the last guard against overselling: whatever a bug decides, stock stays real.
CREATE TABLE products (
    sku        TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    unit_price INTEGER NOT NULL CHECK (unit_price >= 0),
    currency   TEXT    NOT NULL,
    stock      INTEGER NOT NULL CONSTRAINT products_stock_not_negative CHECK (stock >= 0)
) STRICT;

-- Who orders. One account per subject; a balance that no bug can overdraw.
CREATE TABLE accounts (
    id         TEXT    NOT NULL PRIMARY KEY,
    subject    TEXT    NOT NULL CONSTRAINT accounts_subject_once UNIQUE,
    balance    INTEGER NOT NULL DEFAULT 0 CONSTRAINT accounts_balance_not_negative CHECK (balance >= 0),
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER))
) STRICT;

-- Every movement of a balance; their sum is the balance. A charge may be 0: goods may be free.
CREATE TABLE account_entries (
    id         INTEGER NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL REFERENCES accounts (id),
    order_id   TEXT,
    kind       TEXT    NOT NULL CHECK (kind IN ('opening', 'deposit', 'charge', 'refund')),
    amount     INTEGER NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    CHECK (CASE kind WHEN 'charge' THEN amount <= 0 ELSE amount >= 0 END)
) STRICT;

-- Money moves once per order and kind.
CREATE UNIQUE INDEX account_entries_once_per_order ON account_entries (order_id, kind) WHERE order_id IS NOT NULL;

-- Layer 3. The constraints on key and reference hold for ever, whatever became of tokens and records: one key, one order, and
-- one reference, one order (for clients that change their key).
CREATE TABLE orders (
    id              TEXT    NOT NULL PRIMARY KEY,
    account_id      TEXT    NOT NULL REFERENCES accounts (id),
    idempotency_key TEXT    NOT NULL,
    reference       TEXT,
    fingerprint     TEXT    NOT NULL,
    status          TEXT    NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'paid', 'shipped', 'cancelled')),
    total           INTEGER NOT NULL CHECK (total BETWEEN 0 AND 1000000000000),
    currency        TEXT    NOT NULL,
    payment_method  TEXT    NOT NULL CHECK (payment_method IN ('balance', 'card')),
    note            TEXT,
    created_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    updated_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    CONSTRAINT orders_account_key_once UNIQUE (account_id, idempotency_key)
) STRICT;

-- An index of its own, because most orders have no reference and need not be in it.
CREATE UNIQUE INDEX orders_account_reference_once ON orders (account_id, reference) WHERE reference IS NOT NULL;

-- The list of an account's orders, newest first, and the repeat notice.
CREATE INDEX orders_by_account ON orders (account_id, created_at DESC, id DESC);

-- The sweep's question; orders that were paid are of no interest to it.
CREATE INDEX orders_pending ON orders (created_at) WHERE status = 'pending';

-- Goods at the name and price of their moment. No reference to products: a product may leave the catalogue. Kept in
-- the order of their key, as they are only ever read by order.
CREATE TABLE order_lines (
    order_id   TEXT    NOT NULL REFERENCES orders (id),
    line_no    INTEGER NOT NULL CHECK (line_no >= 1),
    sku        TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    quantity   INTEGER NOT NULL CHECK (quantity > 0),
    unit_price INTEGER NOT NULL CHECK (unit_price >= 0),
    PRIMARY KEY (order_id, line_no)
) STRICT, WITHOUT ROWID;

-- Each attempt to be paid. The provider's key and its name for the card (token) are fixed before the provider is
-- called. next_check_at and checks are the reconciler's: when it looks next, and how often it has; a row whose time
-- nobody set is looked at at once.
CREATE TABLE payments (
    order_id      TEXT    NOT NULL REFERENCES orders (id),
    attempt       INTEGER NOT NULL CHECK (attempt >= 1),
    method        TEXT    NOT NULL CHECK (method IN ('balance', 'card')),
    provider_key  TEXT    CONSTRAINT payments_provider_key_once UNIQUE,
    provider_id   TEXT,
    token         TEXT,
    amount        INTEGER NOT NULL CHECK (amount >= 0),
    status        TEXT    NOT NULL
        CHECK (status IN ('started', 'unknown', 'processing', 'declined', 'captured', 'refund_due', 'refunded')),
    created_at    INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    updated_at    INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    next_check_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    checks        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (order_id, attempt)
) STRICT, WITHOUT ROWID;

-- An order is charged once: a second captured payment cannot be written.
CREATE UNIQUE INDEX payments_captured_once ON payments (order_id) WHERE status = 'captured';

-- Refunds are told by the provider's id alone. Not unique: a word that names another order's is a mismatch to tell.
CREATE INDEX payments_by_provider_id ON payments (provider_id) WHERE provider_id IS NOT NULL;

-- The reconciler's question; what is settled is of no interest to it.
CREATE INDEX payments_due ON payments (next_check_at)
    WHERE status IN ('started', 'unknown', 'processing', 'refund_due');

-- The provider's messages, each taken once. order_id is theirs, so it refers to nothing.
CREATE TABLE payment_events (
    provider    TEXT    NOT NULL,
    event_id    TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    order_id    TEXT,
    outcome     TEXT    NOT NULL,
    received_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    PRIMARY KEY (provider, event_id)
) STRICT, WITHOUT ROWID;

-- The sweep.
CREATE INDEX payment_events_by_age ON payment_events (received_at);

-- What other parts must hear of, written in the transaction it speaks of: never lost, never of what was rolled back.
-- due_at is when a relay may take it (again): once it was taken, only after that relay or the queue must have lost it.
-- consumed_at is set in the transaction of the message's effect.
CREATE TABLE outbox (
    id           TEXT    NOT NULL PRIMARY KEY,
    topic        TEXT    NOT NULL,
    payload      TEXT    NOT NULL,
    created_at   INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    published_at INTEGER,
    due_at       INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    publishings  INTEGER NOT NULL DEFAULT 0,
    consumed_at  INTEGER
) STRICT;

-- The relay's question; what has had its effect is of no interest to it.
CREATE INDEX outbox_due ON outbox (due_at) WHERE consumed_at IS NULL;

-- The sweep.
CREATE INDEX outbox_by_consumption ON outbox (consumed_at) WHERE consumed_at IS NOT NULL;

-- Which consumer has had which message: queues deliver at least once.
CREATE TABLE consumed_messages (
    consumer    TEXT    NOT NULL,
    message_id  TEXT    NOT NULL,
    consumed_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;

-- The sweep.
CREATE INDEX consumed_messages_by_age ON consumed_messages (consumed_at);

-- Granted coupons, one per order and campaign.
CREATE TABLE coupons (
    code       TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL REFERENCES accounts (id),
    order_id   TEXT    NOT NULL REFERENCES orders (id),
    campaign   TEXT    NOT NULL,
    granted_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    CONSTRAINT coupons_order_campaign_once UNIQUE (order_id, campaign)
) STRICT;

-- An account's coupons.
CREATE INDEX coupons_by_account ON coupons (account_id);

-- Layer 2. No references: a record may outlive, or come before, what it speaks of. The answer is kept as bytes, so
-- that it is replayed as it was given.
CREATE TABLE idempotency_records (
    account_id            TEXT    NOT NULL,
    operation             TEXT    NOT NULL,
    key                   TEXT    NOT NULL,
    fingerprint           TEXT    NOT NULL,
    status                TEXT    NOT NULL CHECK (status IN ('processing', 'done')),
    epoch                 INTEGER NOT NULL,
    lease_expires_at      INTEGER NOT NULL,
    response_status       INTEGER,
    response_content_type TEXT,
    response_location     TEXT,
    response_body         BLOB,
    order_id              TEXT,
    created_at            INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    completed_at          INTEGER,
    expires_at            INTEGER NOT NULL,
    PRIMARY KEY (account_id, operation, key),
    CONSTRAINT idempotency_records_done_has_answer
        CHECK (status <> 'done' OR (response_status IS NOT NULL AND response_body IS NOT NULL))
) STRICT;

-- The sweep.
CREATE INDEX idempotency_records_by_expiry ON idempotency_records (expires_at);

-- Who is who in a browser. Here and not in Redis, so that neither a restart nor an outage forgets a visitor.
CREATE TABLE sessions (
    id         TEXT    NOT NULL PRIMARY KEY,
    data       BLOB    NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

-- The sweep.
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
