-- What must hold at rest, one line for each: how many rows break it, and its words. What fill.sql wrote is looked at with
-- all the rest, but has no messages: those of old orders are swept.
--
-- Variables: put_in (stock of each product at the start; the product that is sold out has none).

SELECT count(*), 'one order per account and key'
FROM (SELECT FROM orders GROUP BY account_id, idempotency_key HAVING count(*) > 1) AS broken
UNION ALL
SELECT count(*), 'exactly one captured payment per order, of its total'
FROM (
    SELECT FROM orders LEFT JOIN payments ON payments.order_id = orders.id AND payments.status = 'captured'
    GROUP BY orders.id
    HAVING count(payments.order_id) <> 1 OR max(payments.amount) <> orders.total
) AS broken
UNION ALL
SELECT count(*), 'stock and ordered units are what was put in'
FROM products
LEFT JOIN (
    SELECT sku, sum(quantity) AS units
    FROM order_lines JOIN orders ON orders.id = order_id AND orders.status <> 'cancelled'
    GROUP BY sku
) AS ordered USING (sku)
WHERE stock < 0 OR stock + coalesce(units, 0) <> CASE sku WHEN 'sold-out' THEN 0 ELSE :put_in END
UNION ALL
SELECT count(*), 'a balance is the sum of its entries'
FROM accounts
LEFT JOIN (SELECT account_id, sum(amount) AS amount FROM account_entries GROUP BY account_id) AS entries
    ON entries.account_id = accounts.id
WHERE balance < 0 OR balance <> coalesce(amount, 0)
UNION ALL
SELECT count(*), 'one charge per order, of its total'
FROM orders LEFT JOIN account_entries AS entry ON entry.order_id = orders.id AND kind = 'charge'
WHERE entry.amount IS DISTINCT FROM -orders.total
UNION ALL
SELECT count(*), 'an order costs the sum of its lines'
FROM (
    SELECT FROM orders LEFT JOIN order_lines ON order_id = orders.id
    GROUP BY orders.id
    HAVING coalesce(sum(quantity * unit_price), 0) <> orders.total
) AS broken
UNION ALL
SELECT abs((SELECT count(*) FROM outbox WHERE topic = 'order.paid') - (SELECT count(*) FROM orders WHERE idempotency_key NOT LIKE 'filled-%')),
       'one message per order'
UNION ALL
SELECT count(*), 'every order has its finished record, and every record its order or its refusal'
FROM orders
FULL JOIN (SELECT * FROM idempotency_records WHERE response_status IS DISTINCT FROM 402 AND response_status IS DISTINCT FROM 409)
    AS record
    ON record.account_id = orders.account_id AND record.key = orders.idempotency_key AND operation = 'place_order'
WHERE orders.id IS NULL OR record.order_id IS DISTINCT FROM orders.id
    OR record.status <> 'done' OR record.response_status <> 201;
