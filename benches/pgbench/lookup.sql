-- The least that a replay costs: one finished record, read by its primary key. Among the keys and in the table that the
-- service replays from (`Intent::seeded` of the load driver).
--
-- Variables: keys (how many to choose from).

\set n random(1, :keys)
SELECT fingerprint, status, epoch, response_status, response_content_type, response_location, response_body, order_id,
       expires_at > now() AS stands
FROM idempotency_records
WHERE account_id = ('00000000-0000-7000-8000-' || lpad(:n::text, 12, '0'))::uuid
    AND operation = 'place_order'
    AND key = 'replayed-' || lpad(:n::text, 27, '0');
