-- Accounts with funds for the whole run, as clients of the API have them. The ids follow a pattern, so that pgbench can
-- name an account by its number without a look-up.
--
-- Variables: accounts (how many), balance (minor units).

INSERT INTO accounts (id, subject, balance)
SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'client:bench-' || n,
       CASE n WHEN 0 THEN 0 ELSE :balance END
FROM generate_series(0, :accounts) AS n;

INSERT INTO account_entries (account_id, kind, amount)
SELECT id, 'opening', balance FROM accounts;
