-- The schema of the shop. Times are timestamptz, written in whole milliseconds where a buyer sees them, so that
-- both databases keep the same value. Text that is compared or indexed is COLLATE "C": the order of bytes, the
-- same on every machine and in Rust, and cheaper to compare than any language's order.

-- What can be bought. The row is the one lock that orders of the same product queue for.
CREATE TABLE products (
    sku        text COLLATE "C" PRIMARY KEY,
    name       text   NOT NULL,
    unit_price bigint NOT NULL CHECK (unit_price >= 0),
    currency   text   NOT NULL,
    -- The last line of defence against selling what is not there.
    stock      bigint NOT NULL CONSTRAINT products_stock_not_negative CHECK (stock >= 0)
);

-- Who orders.
CREATE TABLE accounts (
    id         uuid PRIMARY KEY,
    -- Two first requests of one visitor must not open two accounts.
    subject    text COLLATE "C" NOT NULL CONSTRAINT accounts_subject_once UNIQUE,
    -- Nobody spends what is not there.
    balance    bigint NOT NULL DEFAULT 0 CONSTRAINT accounts_balance_not_negative CHECK (balance >= 0),
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Every movement of money; a balance is the sum of its entries.
CREATE TABLE account_entries (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id uuid   NOT NULL REFERENCES accounts,
    order_id   uuid,
    kind       text   NOT NULL CHECK (kind IN ('opening', 'deposit', 'charge', 'refund')),
    -- A wrong sign would create money. Goods may be free, so a charge may be nothing.
    amount     bigint NOT NULL CHECK (CASE kind WHEN 'charge' THEN amount <= 0 ELSE amount >= 0 END),
    created_at timestamptz NOT NULL DEFAULT now()
);
-- Money moves once per order and kind, whatever runs twice.
CREATE UNIQUE INDEX account_entries_once_per_order ON account_entries (order_id, kind) WHERE order_id IS NOT NULL;

-- Layer 3: one intent, one order, for ever.
CREATE TABLE orders (
    id              uuid PRIMARY KEY,
    account_id      uuid NOT NULL REFERENCES accounts,
    idempotency_key text COLLATE "C" NOT NULL,
    reference       text COLLATE "C",
    fingerprint     text COLLATE "C" NOT NULL,
    status          text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'paid', 'shipped', 'cancelled')),
    total           bigint NOT NULL CHECK (total BETWEEN 0 AND 1000000000000),
    currency        text NOT NULL,
    payment_method  text NOT NULL CHECK (payment_method IN ('balance', 'card')),
    note            text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    -- Stops whatever slips by the token and the record: swept, lost or damaged records, a bug above.
    CONSTRAINT orders_account_key_once UNIQUE (account_id, idempotency_key),
    -- Stops a client that makes a new key for every retry but keeps its own name for the order.
    CONSTRAINT orders_account_reference_once UNIQUE (account_id, reference)
);
-- The list of an account, newest first, and the look for a repeat of the last minutes.
CREATE INDEX orders_by_account ON orders (account_id, created_at DESC, id DESC);
-- What the sweep looks through for orders that were not paid in time, however many have been paid.
CREATE INDEX orders_pending ON orders (created_at) WHERE status = 'pending';

-- What was ordered, at the name and price of that moment. No foreign key to products: a product may leave the
-- catalogue, and its check would lock the row that every order of it queues for.
CREATE TABLE order_lines (
    order_id   uuid    NOT NULL REFERENCES orders,
    line_no    integer NOT NULL CHECK (line_no >= 1),
    sku        text    NOT NULL,
    name       text    NOT NULL,
    quantity   integer NOT NULL CHECK (quantity > 0),
    unit_price bigint  NOT NULL CHECK (unit_price >= 0),
    PRIMARY KEY (order_id, line_no)
);

-- Every attempt to be paid. It is written before a provider is called, with the key the provider will know it by.
CREATE TABLE payments (
    order_id      uuid    NOT NULL REFERENCES orders,
    attempt       integer NOT NULL CHECK (attempt >= 1),
    method        text    NOT NULL CHECK (method IN ('balance', 'card')),
    -- The provider's own idempotency: one attempt, one key.
    provider_key  text    COLLATE "C",
    provider_id   text    COLLATE "C",
    -- The provider's name for the card: whoever sends the attempt again sends the same.
    token         text,
    amount        bigint  NOT NULL CHECK (amount >= 0),
    status        text    NOT NULL CHECK (status IN
        ('started', 'unknown', 'processing', 'declined', 'captured', 'refund_due', 'refunded')),
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    -- When the reconciler looks at it next, and how often it has; a row whose time nobody set is looked at at once.
    next_check_at timestamptz NOT NULL DEFAULT now(),
    checks        integer NOT NULL DEFAULT 0,
    PRIMARY KEY (order_id, attempt)
);
CREATE UNIQUE INDEX payments_provider_key_once ON payments (provider_key) WHERE provider_key IS NOT NULL;
-- An order is paid at most once; any further payment is to be paid back.
CREATE UNIQUE INDEX payments_captured_once ON payments (order_id) WHERE status = 'captured';
-- A refund is told by the provider's id alone. Not unique: a word that names another order's is a mismatch to be told
-- of, not an error of ours.
CREATE INDEX payments_by_provider_id ON payments (provider_id) WHERE provider_id IS NOT NULL;
-- The reconciler's question: only what is in doubt or to be paid back, however much has been settled.
CREATE INDEX payments_due ON payments (next_check_at)
    WHERE status IN ('started', 'unknown', 'processing', 'refund_due');

-- The provider's word, as it came: an event counts once however often it is delivered.
CREATE TABLE payment_events (
    provider    text NOT NULL,
    event_id    text COLLATE "C" NOT NULL,
    kind        text NOT NULL,
    order_id    uuid,
    outcome     text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (provider, event_id)
);
-- For the sweep.
CREATE INDEX payment_events_by_age ON payment_events (received_at);

-- What is to be told to the queue, written in the transaction that makes it true.
CREATE TABLE outbox (
    id           uuid PRIMARY KEY,
    topic        text NOT NULL,
    payload      text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    -- When a relay may take it (again): once it was taken, only after that relay or the queue must have lost it.
    due_at       timestamptz NOT NULL DEFAULT now(),
    publishings  integer     NOT NULL DEFAULT 0,
    -- Set in the transaction of its effect. Until then the queue is told again and again: this row is the truth, the
    -- queue only carries it.
    consumed_at  timestamptz
);
-- The relay reads only what is still to be told, however much has been told.
CREATE INDEX outbox_due ON outbox (due_at) WHERE consumed_at IS NULL;
-- For the sweep.
CREATE INDEX outbox_by_consumption ON outbox (consumed_at) WHERE consumed_at IS NOT NULL;

-- Messages whose effect is there: a redelivery finds its row and does nothing.
CREATE TABLE consumed_messages (
    consumer    text NOT NULL,
    message_id  text COLLATE "C" NOT NULL,
    consumed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, message_id)
);
-- For the sweep.
CREATE INDEX consumed_messages_by_age ON consumed_messages (consumed_at);

-- Thanks for an order.
CREATE TABLE coupons (
    code       text COLLATE "C" PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES accounts,
    order_id   uuid NOT NULL REFERENCES orders,
    campaign   text NOT NULL,
    granted_at timestamptz NOT NULL DEFAULT now(),
    -- One grant per order and campaign, whatever the queue delivers twice.
    CONSTRAINT coupons_order_campaign_once UNIQUE (order_id, campaign)
);
CREATE INDEX coupons_by_account ON coupons (account_id);

-- Layer 2: what became of a key. No foreign key: a record may precede or outlive what it speaks of.
CREATE TABLE idempotency_records (
    account_id            uuid NOT NULL,
    operation             text COLLATE "C" NOT NULL,
    key                   text COLLATE "C" NOT NULL,
    fingerprint           text COLLATE "C" NOT NULL,
    status                text NOT NULL CHECK (status IN ('processing', 'done')),
    -- The fence: each take-over raises it, and work done under an older one cannot commit.
    epoch                 bigint NOT NULL,
    lease_expires_at      timestamptz NOT NULL,
    response_status       smallint,
    response_content_type text,
    response_location     text,
    response_body         bytea,
    order_id              uuid,
    created_at            timestamptz NOT NULL DEFAULT now(),
    completed_at          timestamptz,
    expires_at            timestamptz NOT NULL,
    PRIMARY KEY (account_id, operation, key),
    -- A finished record without an answer could be neither replayed nor taken over.
    CONSTRAINT idempotency_records_done_has_answer
        CHECK (status <> 'done' OR (response_status IS NOT NULL AND response_body IS NOT NULL))
);
-- For the sweep.
CREATE INDEX idempotency_records_by_expiry ON idempotency_records (expires_at);

-- Visitors of the pages: in the database, so that neither a restart nor a lost Redis forgets them.
CREATE TABLE sessions (
    id         text COLLATE "C" PRIMARY KEY,
    data       bytea NOT NULL,
    expires_at timestamptz NOT NULL
);
-- For the sweep.
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
