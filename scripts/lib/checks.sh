# shellcheck shell=bash
#
# What must be right after all the load of scripts/bench. To be sourced there; leans on its settings.
#
#   check_everything

check_invariants() {
    local broken words
    while IFS='|' read -r broken words; do
        check "$1: $words" "$broken" 0
    done < <(database "${SHOP_DATABASE[$1]}" -v put_in="$STOCK" -f "$BENCHES/sql/invariants.sql")
}

count_orders() { database "${SHOP_DATABASE[$1]}" -c "SELECT count(*) FROM orders WHERE idempotency_key NOT LIKE 'filled-%'"; }

# check_acknowledged NAME SEEDED  every acknowledged order exists, and no other but those that were seeded.
check_acknowledged() {
    local shop=$1 seeded=$2 orders missing
    orders=$(count_orders "$shop")
    cat "$WORK/acknowledged.$shop".* >"$WORK/acknowledged"
    missing=$({
        printf 'CREATE TEMPORARY TABLE acknowledged (id uuid);\n\\copy acknowledged FROM %s\n' "$WORK/acknowledged"
        printf 'SELECT count(*) FROM acknowledged LEFT JOIN orders USING (id) WHERE orders.created_at IS NULL;\n'
    } | database "${SHOP_DATABASE[$shop]}")
    check "$shop: acknowledged orders that do not exist" "$missing" 0
    check "$shop: orders, of which all were acknowledged" "$orders" $((${ACKNOWLEDGED[$shop]} + seeded))
    check "$shop: orders the service counted as inserted" "$(inserted "$shop")" "$orders"
}

# The first answers once more, key by key, after all the load, by this process and by one that knows nothing.
check_replays() {
    local when
    for when in after 'after a restart and'; do
        [[ $when == after ]] || restart_shop shop
        drive_and_judge compare shop "$CLIENTS" compare --firsts "$WORK/firsts"
        check "keys whose replay is its first answer, byte for byte, $when all that" "$(field replayed "$RESULT")" "$REPLAY_KEYS"
    done
}

check_everything() {
    local shop
    check_replays
    check_acknowledged shop "$REPLAY_KEYS"
    check_acknowledged large 0
    check_acknowledged forms 0
    for shop in shop large forms baseline; do check_invariants "$shop"; done
    check 'baseline: orders' "$(count_orders baseline)" "$BASELINE_ORDERS"
    # shellcheck disable=SC2004 # the place is a word, not a number
    check 'embedded: orders the service counted as inserted' "$(inserted embedded)" \
        $((${ACKNOWLEDGED[embedded]} + EMBEDDED_ACCOUNTS))
    cat "$WORK"/service.*.log* | grep -E ' (WARN|ERROR) ' | head -n 5 | sed 's/^/  log:   /' || true
}
