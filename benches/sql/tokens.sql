-- Bearer tokens (HS256) for the accounts of accounts.sql, one a line, in their order: ten thousand by `oncegate token`
-- would take minutes. Needs the extension pgcrypto.
--
-- Variables: accounts (how many), secret.

WITH parts AS (
    SELECT n, convert_to('{"alg":"HS256","typ":"JWT"}', 'UTF8') AS head,
           convert_to(format('{"sub":"bench-%s","exp":%s}', n, extract(epoch FROM now())::int8 + 86400), 'UTF8') AS claims
    FROM generate_series(0, :accounts) AS n
), encoded AS (
    SELECT n, translate(encode(head, 'base64'), E'+/=\n', '-_')
        || '.' || translate(encode(claims, 'base64'), E'+/=\n', '-_') AS signed
    FROM parts
)
SELECT signed || '.' || translate(encode(hmac(signed, :'secret', 'sha256'), 'base64'), E'+/=\n', '-_')
FROM encoded
ORDER BY n;
