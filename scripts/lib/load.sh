# shellcheck shell=bash
#
# The two generators of load of scripts/bench, pgbench and the driver in benches/load, and what each run costs. To be
# sourced there; leans on its settings.
#
#   pgbench_run NAME URL SCRIPT CLIENTS VARIABLE=VALUE...  notes NAME in transactions a second; sets PGBENCH_DONE
#   load NAME SHOP CLIENTS MODE OPTION...                  notes NAME in pieces of work a second; sets RESULT
#   orders_by NAME SHOP CLIENTS MODE OPTION...             the same; what is acknowledged is written down and counted
#   note_times NAME                                        notes p50 and p99 of the pgbench or driver run before
#   begin_costs SHOP, end_costs NAME ORDERS                notes CPU and flushes per order of what ran between them

# field NAME LINE  the value of NAME=… in a line.
field() {
    local rest=${2#*" $1="}
    printf '%s' "${rest%% *}"
}

# --- pgbench ---

# A plan per connection, made once: the best that a baseline can do. With a time of each transaction.
pgbench_run() {
    local name=$1 url=$2 script=$3 clients=$4 variable variables=()
    shift 4
    for variable in "$@"; do variables+=(-D "$variable"); done
    rm -rf "$WORK/pgbench"
    mkdir "$WORK/pgbench"
    PGOPTIONS='-c plan_cache_mode=force_generic_plan' "$PG_BIN/pgbench" -n -M prepared -c "$clients" \
        -j "$((clients < 2 ? 1 : 2))" -T "$(printf '%.0f' "$SECONDS_EACH")" -l --log-prefix="$WORK/pgbench/log" "${variables[@]}" \
        -f "$script" "$url" >"$WORK/pgbench.out" 2>&1 || { cat "$WORK/pgbench.out" >&2; return 1; }
    PGBENCH_DONE=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$WORK/pgbench.out")
    RESULT=" $(pgbench_times)"
    note "$name" "$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$WORK/pgbench.out")"
}

# p50=… p99=… in ms. The third field of a log line is the transaction's time in µs.
pgbench_times() {
    cat "$WORK"/pgbench/log.* | cut -d ' ' -f 3 | sort -n | awk '{ v[NR] = $1 }
        END { printf "p50=%.3f p99=%.3f", v[int((NR + 1) / 2)] / 1000, v[int(NR * 0.99 + 0.5)] / 1000 }'
}

# pgbench_orders NAME CLIENTS PRODUCTS [SCRIPT]
BASELINE_ORDERS=0
pgbench_orders() {
    checkpoint
    pgbench_run "$1" "$BASELINE_URL" "${4:-$BENCHES/pgbench/order.sql}" "$2" accounts="$ACCOUNTS" products="$3" body="$BODY"
    BASELINE_ORDERS=$((BASELINE_ORDERS + PGBENCH_DONE))
}

# --- the driver ---

# drive FILE SHOP CLIENTS MODE OPTION...  what the driver says goes into the file.
drive() {
    local file=$1 shop=$2 clients=$3 tokens=$WORK/tokens
    shift 3
    [[ ! -e $tokens.$shop ]] || tokens=$tokens.$shop
    "$DRIVER" --address "${SHOP_ADDRESS[$shop]}" --clients "$clients" --seconds "$SECONDS_EACH" --tokens "$tokens" \
        --products "${SHOP_PRODUCTS[$shop]}" "$@" >"$file" 2>&1 || { cat "$file" >&2; return 1; }
}

# judge NAME FILE  what the driver said; sets RESULT.
judge() {
    RESULT=$(grep '^RESULT ' "$2") || { cat "$2" >&2; return 1; }
    if (($(field wrong "$RESULT") + $(field broken "$RESULT") > 0)); then
        check_failed "$1: $RESULT $(grep '^WRONG ANSWER' "$2")"
    fi
}

drive_and_judge() {
    local name=$1
    shift
    drive "$WORK/driver.out" "$@"
    judge "$name" "$WORK/driver.out"
}

load() {
    local name=$1
    shift
    drive_and_judge "$name" "$@"
    note "$name" "$(field rate "$RESULT")"
}

# Every write begins after a checkpoint, so that none pays for the one before it.
checkpoint() { database "$PG_URL" -c CHECKPOINT; }

declare -A ACKNOWLEDGED=() # how many, by shop
RUN=0
orders_by() {
    local name=$1 shop=$2 run=()
    checkpoint
    RUN=$((RUN + 1))
    case $4 in first | mix) run=(--run "$RUN") ;; esac
    load "$@" "${run[@]}" --out "$WORK/acknowledged.$shop.$RUN"
    # Replays and refusals of a mix are right as well, but no orders.
    ACKNOWLEDGED[$shop]=$((${ACKNOWLEDGED[$shop]:-0} + $(wc -l <"$WORK/acknowledged.$shop.$RUN")))
}

note_times() {
    note "$1 p50" "$(field p50 "$RESULT")"
    note "$1 p99" "$(field p99 "$RESULT")"
}

# --- costs ---

# Flushes of the write-ahead log since the server's start.
flushes() {
    local view='SELECT wal_sync FROM pg_stat_wal'
    if (($(database "$PG_URL" -c 'SHOW server_version_num') >= 180000)); then
        view="SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal'"
    fi
    database "$PG_URL" -c "$view"
}

# A connection that stays open tells its counts when it is used again after a second: so all of the service's are used.
let_connections_report() {
    local all=$SECONDS_EACH
    sleep 1.1
    SECONDS_EACH=0.5
    drive_and_judge 'reads of accounts' "$1" 64 account
    SECONDS_EACH=$all
}

# begin_costs [SHOP]  without a shop: the database's alone.
COSTS=()
begin_costs() {
    COST_OF=${1-}
    if [[ -n $COST_OF ]]; then let_connections_report "$COST_OF"; fi
    COSTS=("$(cpu_of "$POSTGRES_PID")" "$(own_cpu)" "$(flushes)")
}

own_cpu() { if [[ -n $COST_OF ]]; then cpu_of "${SHOP_PID[$COST_OF]}"; else printf 0; fi; }

end_costs() {
    local name=$1 orders=$2 database own
    database=$(cpu_of "$POSTGRES_PID") own=$(own_cpu)
    note "$name, CPU of the database" "$(quotient "$(difference "$database" "${COSTS[0]}")" "$orders" 1000)"
    if [[ -n $COST_OF ]]; then
        note "$name, CPU of the service" "$(quotient "$(difference "$own" "${COSTS[1]}")" "$orders" 1000)"
        let_connections_report "$COST_OF"
    fi
    note "$name, flushes" "$(quotient $(($(flushes) - COSTS[2])) "$orders" 1)"
}
