-- One order in one statement: what the service is measured against. It leaves the rows that an order placed by the
-- service leaves, the finished idempotency record with an answer of the same size included, and touches the same
-- indexes and constraints. Left out, to the baseline's advantage: the claim beforehand, and any reading of what stands.
--
-- "The rows that an order leaves" are those written when it is placed. Its thanks, a coupon, come later by outbox and queue,
-- in batches and at nobody's expense; what is between the marks writes those rows in the same statement, for a figure
-- of their own: sed 's|/\*+||; s|+\*/||'.
--
-- Variables: accounts, products (how many to choose from), body (bytes of an answer).
-- Ids are made so that they grow with time, like the service's (UUID v7), or the indexes would fare differently.

\set account random(1, :accounts)
\set product random(1, :products)
\set key random(1, 9000000000000000)
WITH asked AS MATERIALIZED (
    SELECT 'pgbench-' || lpad(:key::text, 28, '0') AS key,
           encode(substring(int8send((date_part('epoch', clock_timestamp()) * 1000)::int8) FROM 3)
               || substring(uuid_send(gen_random_uuid()) FROM 7), 'hex')::uuid AS order_id,
           encode(substring(int8send((date_part('epoch', clock_timestamp()) * 1000)::int8) FROM 3)
               || substring(uuid_send(gen_random_uuid()) FROM 7), 'hex')::uuid AS message_id,
           '1:' || repeat('0123456789abcdef', 4) AS fingerprint
), product AS (
    UPDATE products SET stock = stock - 1
    WHERE sku = 'sku-' || lpad(:product::text, 5, '0') AND stock >= 1
    RETURNING sku, name, unit_price, currency
), account AS (
    UPDATE accounts SET balance = balance - product.unit_price
    FROM product
    WHERE id = ('00000000-0000-7000-8000-' || lpad(:account::text, 12, '0'))::uuid
        AND balance >= product.unit_price
    RETURNING id, sku, name, unit_price, currency
), placed AS (
    INSERT INTO orders (id, account_id, idempotency_key, fingerprint, status, total, currency, payment_method)
    SELECT order_id, account.id, key, fingerprint, 'paid', unit_price, currency, 'balance'
    FROM account, asked
), line AS (
    INSERT INTO order_lines (order_id, line_no, sku, name, quantity, unit_price)
    SELECT order_id, 1, sku, name, 1, unit_price
    FROM account, asked
), payment AS (
    INSERT INTO payments (order_id, attempt, method, amount, status)
    SELECT order_id, 1, 'balance', unit_price, 'captured'
    FROM account, asked
), entry AS (
    INSERT INTO account_entries (account_id, order_id, kind, amount)
    SELECT account.id, order_id, 'charge', -unit_price
    FROM account, asked
), message AS (
    INSERT INTO outbox (id, topic, payload /*+, published_at, consumed_at, publishings+*/)
    SELECT message_id, 'order.paid',
           '{"order_id":"' || order_id || '","account_id":"' || account.id || '"}' /*+, now(), now(), 1+*/
    FROM account, asked
/*+), consumed AS (
    INSERT INTO consumed_messages (consumer, message_id)
    SELECT 'coupons', message_id
    FROM account, asked
), coupon AS (
    INSERT INTO coupons (code, account_id, order_id, campaign)
    SELECT upper(right(order_id::text, 12)), account.id, order_id, 'welcome-back'
    FROM account, asked
+*/)
INSERT INTO idempotency_records (account_id, operation, key, fingerprint, status, epoch, lease_expires_at,
    response_status, response_content_type, response_location, response_body, order_id, completed_at, expires_at)
SELECT account.id, 'place_order', key, fingerprint, 'done', 1, now() + interval '30 s',
       201, 'application/json', '/api/orders/' || order_id, convert_to(repeat('.', :body), 'UTF8'), order_id,
       now(), now() + interval '1 day'
FROM account, asked;
