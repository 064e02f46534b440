-- Orders of earlier days: all rows that an order and its record leave, but for messages (those are swept) and coupons.
-- Each account has as many as any other, each product is sold as often; the intent and the stored answer of order n are
-- known to the load driver (`Fill::order`), which repeats them.
--
-- Written in the order of every index, so that ten million take minutes: index pages are fuller than after a year of
-- trade, and split when new orders come.
--
-- Variables: orders (how many), accounts, products.

SET synchronous_commit = off;
-- The rows refer to each other by their making; looking each of them up would take most of the time.
SET session_replication_role = replica;

CREATE FUNCTION pg_temp.part(text) RETURNS bytea LANGUAGE sql IMMUTABLE
AS $$ SELECT int8send(octet_length($1)) || convert_to($1, 'UTF8') $$;

-- The fingerprint is that of order/fingerprint.rs.
CREATE TEMP TABLE goods AS
SELECT n, sku, name, unit_price, currency,
       '1:' || encode(sha256(pg_temp.part('place_order') || pg_temp.part('1') || pg_temp.part(sku) || pg_temp.part('1')
           || pg_temp.part('balance') || pg_temp.part('-') || pg_temp.part('-') || pg_temp.part('-')), 'hex') AS fingerprint
FROM generate_series(1, :products) AS n JOIN products ON sku = 'sku-' || lpad(n::text, 5, '0');
CREATE UNIQUE INDEX ON goods (n);
ANALYZE goods;

CREATE TEMP VIEW filled AS
SELECT i.n, ('01900000-0000-7000-8000-' || lpad(i.n::text, 12, '0'))::uuid AS order_id,
       ('00000000-0000-7000-8000-' || lpad(((i.n - 1) / ceil(:orders / :accounts::numeric)::int8 + 1)::text, 12, '0'))::uuid
           AS account_id,
       'filled-' || lpad(i.n::text, 29, '0') AS key, sku, name, unit_price, currency, fingerprint,
       timestamptz '2026-01-01 00:00Z' AS created_at
FROM generate_series(1, :orders) AS i (n) JOIN goods ON goods.n = (i.n - 1) % :products + 1;

INSERT INTO orders (id, account_id, idempotency_key, fingerprint, status, total, currency, payment_method, created_at,
    updated_at)
SELECT order_id, account_id, key, fingerprint, 'paid', unit_price, currency, 'balance', created_at, created_at
FROM filled;

INSERT INTO order_lines (order_id, line_no, sku, name, quantity, unit_price)
SELECT order_id, 1, sku, name, 1, unit_price FROM filled;

INSERT INTO payments (order_id, attempt, method, amount, status, created_at, updated_at)
SELECT order_id, 1, 'balance', unit_price, 'captured', created_at, created_at FROM filled;

INSERT INTO account_entries (account_id, order_id, kind, amount, created_at)
SELECT account_id, order_id, 'charge', -unit_price, created_at FROM filled;

INSERT INTO idempotency_records (account_id, operation, key, fingerprint, status, epoch, lease_expires_at, response_status,
    response_content_type, response_location, response_body, order_id, created_at, completed_at, expires_at)
SELECT account_id, 'place_order', key, fingerprint, 'done', 1, now(), 201, 'application/json', '/api/orders/' || order_id,
       convert_to(format('{"id":"%s","status":"paid","lines":[{"sku":"%s","name":"%s","quantity":1,"unit_price":%s}],'
           '"total":%s,"currency":"%s","payment":{"method":"balance","status":"captured"},"reference":null,"note":null,'
           '"coupon":null,"created_at":"2026-01-01T00:00:00.000Z"}', order_id, sku, name, unit_price, unit_price, currency),
           'UTF8'),
       order_id, now(), now(), now() + interval '1 day'
FROM filled;

UPDATE products SET stock = stock - units
FROM (SELECT sku, count(*) AS units FROM filled GROUP BY sku) AS sold WHERE sold.sku = products.sku;
UPDATE accounts SET balance = balance - spent
FROM (SELECT account_id, sum(unit_price) AS spent FROM filled GROUP BY account_id) AS bought
WHERE bought.account_id = accounts.id;
