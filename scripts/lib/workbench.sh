# shellcheck shell=bash
#
# What every benchmark works with: its private folder, the two programs, servers of default durability. To be sourced:
#
#   clear_the_bench   traps, a clean environment, what must be installed; sets WORK
#   build             the service and the load driver
#   set_up_durable    PostgreSQL and Redis; sets POSTGRES_PID
#   database          psql, quiet and strict

# shellcheck disable=SC2034 # settings for the other files
BINARY=$PWD/target/release/oncegate
DRIVER=$PWD/target/release/oncegate-load
BENCHES=$PWD/benches
WORK= # a private folder for what the run writes
STOCK=1000000000 # of each product, enough for any run
BALANCE=1000000000000
JWT_SECRET=benchmark-only-benchmark-only-32

# The service runs under a clean environment of its own; this is for psql and pgbench, and for proxies.
clean_environment() {
    local name
    for name in "${!ONCEGATE_@}" "${!PG@}" DATABASE_URL REDIS_URL; do unset "$name"; done
    export NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost
    export LC_ALL=C # figures with a decimal point
}

# In the background with `wait`, because bash runs a trap only after a foreground command has ended. One after the other:
# what the driver needs of its dependencies must not go into the service.
build() {
    cargo build --release --locked </dev/null &
    wait $!
    cargo build --release --locked -p oncegate-load </dev/null &
    wait $!
}

# shellcheck disable=SC2329 # called by the trap
clean_up() {
    local status=$?
    trap '' INT TERM HUP # a second ^C must not leave half of it behind
    stop_services
    [[ -z $WORK ]] || rm -rf -- "$WORK"
    exit "$status"
}

database() { "$PG_BIN/psql" -qAtX -v ON_ERROR_STOP=1 "$@"; }

# What a real shop's database would refuse to lose.
check_durability() {
    local setting
    for setting in fsync synchronous_commit full_page_writes; do
        [[ $(database "$PG_URL" -c "SHOW $setting") == on ]] || { complain "$setting is not on"; return 1; }
        printf '%s=on ' "$setting"
    done
    database "$PG_URL" -c 'SELECT version()'
}

clear_the_bench() {
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    clean_environment
    need_packages curl
    [[ -x $PG_BIN/pgbench ]] || { complain "missing: $PG_BIN/pgbench. On Debian it is part of postgresql"; return 1; }
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/oncegate-bench.XXXXXX")
}

set_up_durable() {
    start_postgres "${TMPDIR:-/tmp}" durable
    POSTGRES_PID=$LAUNCHED_PID
    start_redis "${TMPDIR:-/tmp}"
    check_durability
}
