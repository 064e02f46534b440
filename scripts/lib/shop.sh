# shellcheck shell=bash
#
# The two databases and the service of scripts/bench. To be sourced there; leans on its settings:
#
#   prepare             makes both, with catalogue, funded accounts and their tokens; sets BASELINE_URL and SHOP_URL
#   start_service       sets SERVICE_PID, SERVICE_URL and OPS_URL
#   inserted            orders that the running service counted

# A database with the service's own schema, the catalogue and funded accounts.
prepare_database() {
    local url=$1
    env -i "${SERVICE_ENVIRONMENT[@]}" DATABASE_URL="$url" "$BINARY" migrate >"$WORK/migrate.log" 2>&1 ||
        { cat "$WORK/migrate.log" >&2; return 1; }
    env -i "${SERVICE_ENVIRONMENT[@]}" DATABASE_URL="$url" "$BINARY" products import "$WORK/products.csv" \
        >"$WORK/import.log" 2>&1 || { cat "$WORK/import.log" >&2; return 1; }
    database "$url" -v accounts="$ACCOUNTS" -v balance="$BALANCE" -f "$BENCHES/sql/accounts.sql"
    database "$url" -c 'VACUUM ANALYZE' # what autovacuum will have done within the shop's first minutes
}

prepare() {
    awk -v products="$PRODUCTS" -v stock="$STOCK" 'BEGIN {
        print "sku,name,unit_price,currency,stock"
        for (n = 1; n <= products; n++) printf "sku-%05d,Product %d,%d,EUR,%d\n", n, n, 100 + n, stock
    }' >"$WORK/products.csv"

    database "$PG_URL" -c 'CREATE DATABASE baseline' -c 'CREATE DATABASE shop' -c 'CREATE EXTENSION pgcrypto'
    BASELINE_URL=${PG_URL%/*}/baseline
    SHOP_URL=${PG_URL%/*}/shop
    database "$PG_URL" -v accounts="$ACCOUNTS" -v secret="$JWT_SECRET" -f "$BENCHES/sql/tokens.sql" >"$WORK/tokens"
    SERVICE_ENVIRONMENT=(
        PATH="$PATH" DATABASE_URL="$SHOP_URL" REDIS_URL="$REDIS_TEST_URL" ONCEGATE_JWT_SECRET="$JWT_SECRET"
        ONCEGATE_COOKIE_SECRET="$(printf 'b%.0s' {1..64})" ONCEGATE_LISTEN=127.0.0.1:0 ONCEGATE_OPS_LISTEN=127.0.0.1:0
    )
    prepare_database "$BASELINE_URL"
    prepare_database "$SHOP_URL"
}

service_listens() { grep -q 'ops on http://' "$WORK/service.log" && grep -q 'listening on http://' "$WORK/service.log"; }

logged_url() { sed -n "s|.*$1 \(http://[0-9.:]*\).*|\1|p" "$WORK/service.log" | head -n 1; }

start_service() {
    launch "$WORK/service.log" env -i "${SERVICE_ENVIRONMENT[@]}" "${DIE_WITH_SCRIPT[@]}" "$BINARY" serve
    SERVICE_PID=$LAUNCHED_PID
    await "$SERVICE_PID" service_listens || { complain 'the service did not start:'; tail "$WORK/service.log" >&2; return 1; }
    # shellcheck disable=SC2034 # read by scripts/bench
    SERVICE_URL=$(logged_url 'listening on')
    OPS_URL=$(logged_url 'ops on')
}

# A counter of the operators' listener; 0 while it was never touched.
counter() { curl -fsS "$OPS_URL/metrics" | awk -v name="$1" 'index($0, name) == 1 { sum += $NF } END { printf "%d", sum }'; }

inserted() { counter 'oncegate_layer_decisions_total{layer="constraint",decision="inserted"}'; }
