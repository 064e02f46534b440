# shellcheck shell=bash
#
# The shops of scripts/bench: each a database, and mostly a service on it. To be sourced there; leans on its settings.
#
#   make_tokens             first of all
#   make_shop NAME PRODUCTS ORDERS, make_embedded NAME   a PostgreSQL database, an SQLite file
#   start_shop NAME         starts the service of a shop
#   restart_shop NAME       a process that knows nothing yet
#   stop_shop NAME
#   await_thanks NAME       until every message of the orders so far has had its effect
#   inserted NAME           orders that the shop's processes counted, those that were stopped included

# shellcheck disable=SC2034,SC2153 # written here and read there, or the other way round
declare -A SHOP_DATABASE=() # what DATABASE_URL says
declare -A SHOP_REDIS=()    # and REDIS_URL
declare -A SHOP_PRODUCTS=() # how many to choose from
declare -A SHOP_PID=()
declare -A SHOP_ADDRESS=() # HOST:PORT
declare -A SHOP_OPS=()
declare -A SHOP_COUNTED=() # orders that earlier processes counted

# catalogue FILE PRODUCTS STOCK  as CSV; one of them is sold out.
catalogue() {
    awk -v products="$2" -v stock="$3" 'BEGIN {
        print "sku,name,unit_price,currency,stock"
        for (n = 1; n <= products; n++) printf "sku-%05d,Product %d,%d,EUR,%d\n", n, n, 100 + n, stock
        print "sold-out,Sold out,100,EUR,0"
    }' >"$1"
}

# oncegate NAME COMMAND...  a command of the service in a shop's surroundings.
oncegate() {
    local shop=$1
    shift
    env -i "${SERVICE_ENVIRONMENT[@]}" DATABASE_URL="${SHOP_DATABASE[$shop]}" REDIS_URL="${SHOP_REDIS[$shop]}" \
        "$BINARY" "$@" >"$WORK/command.log" 2>&1 || { cat "$WORK/command.log" >&2; return 1; }
}

# make_shop NAME PRODUCTS ORDERS  a database with the service's own schema, products, funded accounts, and orders of
# earlier days.
make_shop() {
    local shop=$1 products=$2 orders=$3 url=${PG_URL%/*}/$1
    database "$PG_URL" -c "CREATE DATABASE $shop"
    SHOP_DATABASE[$shop]=$url
    SHOP_REDIS[$shop]=$REDIS_TEST_URL/${#SHOP_DATABASE[@]}
    SHOP_PRODUCTS[$shop]=$products
    catalogue "$WORK/products.csv" "$products" "$STOCK"
    oncegate "$shop" migrate
    oncegate "$shop" products import "$WORK/products.csv"
    database "$url" -v accounts="$ACCOUNTS" -v balance="$BALANCE" -f "$BENCHES/sql/accounts.sql"
    if ((orders > 0)); then
        database "$url" -v orders="$orders" -v accounts="$ACCOUNTS" -v products="$products" -f "$BENCHES/sql/fill.sql"
    fi
    database "$url" -c 'VACUUM ANALYZE' # what autovacuum will have done within the shop's first minutes
}

# make_embedded NAME  an SQLite file with schema and products.
make_embedded() {
    SHOP_DATABASE[$1]=sqlite://$WORK/$1.db
    SHOP_REDIS[$1]=memory://
    SHOP_PRODUCTS[$1]=$PRODUCTS
    catalogue "$WORK/products.csv" "$PRODUCTS" "$STOCK"
    oncegate "$1" migrate
    oncegate "$1" products import "$WORK/products.csv"
}

# make_tokens  bearer tokens, and the surroundings of every service.
make_tokens() {
    SERVICE_ENVIRONMENT=(
        PATH="$PATH" ONCEGATE_JWT_SECRET="$JWT_SECRET" ONCEGATE_COOKIE_SECRET="$(printf 'b%.0s' {1..64})"
        ONCEGATE_LISTEN=127.0.0.1:0 ONCEGATE_OPS_LISTEN=127.0.0.1:0 ONCEGATE_OPENING_BALANCE="$BALANCE"
        ONCEGATE_DEMO=false
    )
    database "$PG_URL" -c 'CREATE EXTENSION pgcrypto'
    database "$PG_URL" -v accounts="$ACCOUNTS" -v secret="$JWT_SECRET" -f "$BENCHES/sql/tokens.sql" >"$WORK/tokens"
}

service_listens() { grep -q 'ops on http://' "$1" && grep -q 'listening on http://' "$1"; }

# logged_address FILE WORDS  HOST:PORT
logged_address() { sed -n "s|.*$2 http://\([0-9.:]*\).*|\1|p" "$1" | tail -n 1; }

start_shop() {
    local shop=$1 log=$WORK/service.$1.log
    launch "$log.now" env -i "${SERVICE_ENVIRONMENT[@]}" DATABASE_URL="${SHOP_DATABASE[$shop]}" \
        REDIS_URL="${SHOP_REDIS[$shop]}" "${DIE_WITH_SCRIPT[@]}" "$BINARY" serve
    SHOP_PID[$shop]=$LAUNCHED_PID
    await "$LAUNCHED_PID" service_listens "$log.now" ||
        { complain "the service of $shop did not start:"; tail "$log.now" >&2; return 1; }
    SHOP_ADDRESS[$shop]=$(logged_address "$log.now" 'listening on')
    SHOP_OPS[$shop]=$(logged_address "$log.now" 'ops on')
}

stop_shop() {
    local shop=$1 log=$WORK/service.$1.log
    SHOP_COUNTED[$shop]=$(inserted "$shop")
    stop_service "${SHOP_PID[$shop]}"
    SHOP_PID[$shop]=
    cat "$log.now" >>"$log"
    rm "$log.now" # or the next start would find the addresses of this one
}

restart_shop() {
    stop_shop "$1"
    start_shop "$1"
}

# counter NAME WHAT  a counter of the operators' listener; 0 while it was never touched.
counter() { curl -fsS "http://${SHOP_OPS[$1]}/metrics" | awk -v name="$2" 'index($0, name) == 1 { sum += $NF } END { printf "%d", sum }'; }

inserted() {
    local now=0
    if [[ -n ${SHOP_PID[$1]} ]]; then now=$(counter "$1" 'oncegate_layer_decisions_total{layer="constraint",decision="inserted"}'); fi
    printf '%d' $((${SHOP_COUNTED[$1]:-0} + now))
}

unthanked() { database "${SHOP_DATABASE[$1]}" -c 'SELECT count(*) FROM outbox WHERE consumed_at IS NULL'; }

thanked() { [[ $(unthanked "$1") == 0 ]]; }

# What an order sets going is part of its price, and no measurement shall pay for the one before it.
await_thanks() {
    await "${SHOP_PID[$1]}" thanked "$1" || complain "messages are left after $READY_WITHIN s: $(unthanked "$1")"
}
