# shellcheck shell=bash
#
# Throw-away PostgreSQL and Redis servers for scripts/test and scripts/bench. To be sourced:
#
#   trap stop_services EXIT; trap 'exit 130' INT; trap 'exit 143' TERM
#   need_packages [COMMAND...]        # installs what is missing when root, else says what to install; the Debian
#                                     # package of a COMMAND has the same name, or is named: COMMAND=PACKAGE
#   start_postgres DIR [durable|fast] # exports PG_URL, PG_BIN
#   start_redis DIR                   # exports REDIS_TEST_URL (no path: every test appends its own /N)
#   start_redis_cluster DIR           # exports REDIS_CLUSTER_TEST_URL
#   stop_services                     # ends what was started here and nothing else; may be called twice
#
# DIR is an existing folder (usually ${TMPDIR:-/tmp}); every server gets a private folder of its own in it.
# Plain processes, because a developer's machine and a CI job may both lack containers and an init system.
# Linux only: it leans on util-linux (setpriv) and on /dev/tcp of bash.

OLDEST_POSTGRES=15
OLDEST_REDIS=7 # CLUSTER ADDSLOTSRANGE
READY_WITHIN=60 # seconds; a start takes half a second, a starved CI machine is given more
STOP_WITHIN=10  # seconds for each way of asking, see stop_process
POLL=0.05       # seconds between two looks at a condition

# For the one end that no trap can catch, a script killed by SIGKILL: the kernel then sends the server an INT.
# It must stand right before the server, because a change of user takes the wish back.
DIE_WITH_SCRIPT=(setpriv --pdeathsig INT)

SERVICE_PIDS=()
SERVICE_DIRS=()

complain() { printf '%s: %s\n' "$0" "$*" >&2; }

is_root() { ((EUID == 0)); }

# --- what must be installed ---

# Debian keeps the server's programs off the PATH, in a folder per version; elsewhere they are on it.
# Sets and exports PG_BIN: the newest that is new enough.
find_postgres() {
    local bin version newest=0
    PG_BIN=
    for bin in /usr/lib/postgresql/*/bin "$(dirname -- "$(command -v postgres || echo /none/postgres)")"; do
        [[ -x $bin/postgres && -x $bin/initdb && -x $bin/pg_isready && -x $bin/psql ]] || continue
        version=$("$bin/postgres" --version) || continue
        [[ $version =~ \(PostgreSQL\)\ ([0-9]+) ]] || continue
        if ((BASH_REMATCH[1] >= OLDEST_POSTGRES && BASH_REMATCH[1] > newest)); then
            newest=${BASH_REMATCH[1]}
            PG_BIN=$bin
        fi
    done
    export PG_BIN
    [[ -n $PG_BIN ]]
}

# initdb refuses root, so root also needs the account that the package creates.
have_postgres() { find_postgres && { ! is_root || id -u postgres >/dev/null 2>&1; }; }

have_redis() {
    local version
    command -v redis-cli >/dev/null || return 1
    version=$(redis-server --version 2>/dev/null) || return 1
    [[ $version =~ v=([0-9]+) ]] && ((BASH_REMATCH[1] >= OLDEST_REDIS))
}

# Debian's maintainer scripts start a system service for each server. policy-rc.d is how Debian lets one
# forbid that; 101 means "not allowed". A machine's own policy is put back afterwards. A subshell, so that
# its EXIT trap cleans up whatever happens to the installation and leaves the caller's traps alone.
install_without_starting() (
    policy=/usr/sbin/policy-rc.d
    saved=
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    if [[ -e $policy || -L $policy ]]; then
        saved=$(mktemp -u "$policy.XXXXXX")
        cp -a "$policy" "$saved" || exit
    fi
    trap 'rm -f "$policy"; [[ -z $saved ]] || mv "$saved" "$policy"' EXIT
    rm -f "$policy" && printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" || exit

    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update || exit
    apt-get -qq -y -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 install --no-install-recommends "$@"
)

# find_missing COMMAND...  Sets MISSING: the packages to install.
find_missing() {
    local extra
    MISSING=()
    have_postgres || MISSING+=(postgresql)
    have_redis || MISSING+=(redis-server)
    for extra in "$@"; do
        command -v "${extra%%=*}" >/dev/null || MISSING+=("${extra#*=}")
    done
    ((${#MISSING[@]} == 0))
}

# Installs only what is missing; asks no package server when nothing is.
need_packages() {
    find_missing "$@" && return 0
    if is_root && command -v apt-get >/dev/null; then
        printf 'installing %s\n' "${MISSING[*]}"
        install_without_starting "${MISSING[@]}" </dev/null || complain "apt-get could not install ${MISSING[*]}"
        find_missing "$@" && return 0
    fi
    complain "missing: ${MISSING[*]}. Needed are PostgreSQL >= $OLDEST_POSTGRES (server), Redis >= $OLDEST_REDIS" \
        "${*:+and $*}; on Debian: apt-get install ${MISSING[*]}"
    return 1
}

# --- processes ---

# A private folder, remembered for stop_services. Sets NEW_DIR.
new_service_dir() {
    NEW_DIR=$(mktemp -d "$1/oncegate-$2.XXXXXX") || return
    SERVICE_DIRS+=("$NEW_DIR")
}

port_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Sets FREE_PORT. Below Linux's range for outgoing connections (from 32768), so that no client socket takes the
# port meanwhile; the port + 10000 is looked at too, because a Redis cluster node listens there as well. That
# is only a good guess: another process may be faster, which start_server deals with.
choose_port() {
    local attempt
    for attempt in {1..100}; do
        FREE_PORT=$((20000 + RANDOM % 12000))
        if ! port_answers "$FREE_PORT" && ! port_answers $((FREE_PORT + 10000)); then return 0; fi
    done
    complain "no free port in 20000..31999 after $attempt attempts"
    return 1
}

# launch LOG COMMAND...  starts a server and remembers it. Sets LAUNCHED_PID.
# Job control gives it a process group of its own: a ^C in the terminal then reaches the script alone, which
# stops things in order.
launch() {
    local log=$1
    shift
    set -m
    "$@" >"$log" 2>&1 </dev/null &
    LAUNCHED_PID=$!
    set +m
    SERVICE_PIDS+=("$LAUNCHED_PID")
}

# await PID CONDITION...  until the command succeeds; fails when the process has died or time is up.
await() {
    local pid=$1 deadline=$((SECONDS + READY_WITHIN))
    shift
    until "$@" >/dev/null 2>&1; do
        kill -0 "$pid" 2>/dev/null || return 1
        ((SECONDS < deadline)) || return 1
        sleep "$POLL"
    done
}

# Asks in rising tones. INT: "now, but orderly" to PostgreSQL (TERM would wait for clients) and to Redis.
# QUIT: PostgreSQL ends its children without a checkpoint. KILL is for what is beyond asking. CONT each time,
# since a test may have left a process frozen. The last wait reaps it, so that the pid is really gone.
stop_process() {
    local pid=$1 signal deadline
    for signal in INT QUIT KILL; do
        kill -s "$signal" "$pid" 2>/dev/null || break
        kill -s CONT "$pid" 2>/dev/null || break
        deadline=$((SECONDS + STOP_WITHIN))
        while kill -0 "$pid" 2>/dev/null && ((SECONDS < deadline)); do sleep "$POLL"; done
    done
    wait "$pid" 2>/dev/null || true
}

# stop_service PID  one of them, before the others.
stop_service() {
    local pid left=()
    stop_process "$1"
    for pid in "${SERVICE_PIDS[@]}"; do [[ $pid == "$1" ]] || left+=("$pid"); done
    SERVICE_PIDS=("${left[@]}")
}

stop_services() {
    local item
    # The last first: what was started later may need what was there before.
    while ((${#SERVICE_PIDS[@]})); do
        stop_process "${SERVICE_PIDS[-1]}"
        unset 'SERVICE_PIDS[-1]'
    done
    for item in "${SERVICE_DIRS[@]}"; do rm -rf -- "$item" || true; done
    SERVICE_DIRS=()
}

# start_server KIND DIR  runs KIND_command PORT (which fills SERVER_COMMAND) until one attempt gets its port and
# KIND_ready says yes. Sets SERVER_PORT. Only a lost race for the port is worth another attempt.
# The probes ask through the unix socket in the private folder: on the port somebody else's server may answer.
start_server() {
    local kind=$1 dir=$2 attempt
    for attempt in {1..10}; do
        choose_port || return
        SERVER_PORT=$FREE_PORT
        "${kind}_command" "$dir" "$SERVER_PORT"
        launch "$dir/log" "${SERVER_COMMAND[@]}"
        if await "$LAUNCHED_PID" "${kind}_ready" "$dir" "$SERVER_PORT"; then return 0; fi
        stop_service "$LAUNCHED_PID"
        if ! grep -qi 'address already in use' "$dir/log"; then break; fi
    done
    complain "$kind did not start (attempt $attempt); the end of its log:"
    tail -n 20 "$dir/log" >&2
    return 1
}

# --- PostgreSQL ---

# postgres_as DIR  fills POSTGRES_AS, what goes before each of its commands. As root: another user, by setpriv
# rather than runuser because setpriv becomes the command instead of staying its parent, so that the pid is the
# server's own. From within the private folder, because that user may not be allowed into the caller's.
postgres_as() {
    POSTGRES_AS=(env -C "$1")
    if is_root; then
        POSTGRES_AS+=(setpriv "--reuid=$(id -u postgres)" "--regid=$(id -g postgres)" --init-groups)
    fi
}

# shellcheck disable=SC2329 # called by start_server
postgres_command() {
    SERVER_COMMAND=("${POSTGRES_AS[@]}" "${DIE_WITH_SCRIPT[@]}" "$PG_BIN/postgres" -D "$1/data"
        -c listen_addresses=127.0.0.1 -c "port=$2" -c "unix_socket_directories=$1" -c max_connections=400
        "${POSTGRES_OPTIONS[@]}")
}

# shellcheck disable=SC2329 # called by start_server
postgres_ready() { "${POSTGRES_AS[@]}" "$PG_BIN/pg_isready" -q -h "$1" -p "$2" -U postgres -d postgres; }

# `durable`: PostgreSQL's defaults, what a benchmark must measure. `fast`: nothing waits for the disk, for tests
# that lose their database anyway. Locale C: the same order of text on every machine.
start_postgres() {
    local mode=${2:-fast} dir initdb_options=()
    POSTGRES_OPTIONS=()
    case $mode in
    durable) ;;
    fast)
        POSTGRES_OPTIONS=(-c fsync=off -c full_page_writes=off)
        initdb_options=(--no-sync)
        ;;
    *)
        complain "start_postgres: durable or fast, not $mode"
        return 2
        ;;
    esac
    have_postgres || { complain "no PostgreSQL >= $OLDEST_POSTGRES here"; return 1; }
    new_service_dir "$1" postgres || return
    dir=$NEW_DIR
    if is_root; then chown postgres: "$dir" || return; fi
    postgres_as "$dir"
    if ! "${POSTGRES_AS[@]}" "$PG_BIN/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C \
        --no-instructions "${initdb_options[@]}" >"$dir/log" 2>&1 </dev/null; then
        complain "initdb failed:"
        tail -n 20 "$dir/log" >&2
        return 1
    fi
    start_server postgres "$dir" || return
    export PG_URL="postgres://postgres@127.0.0.1:$SERVER_PORT/postgres"
}

# --- Redis ---

# Nothing on disk; and no configuration file, so none of the machine's is read.
# shellcheck disable=SC2329 # called by start_server
redis_command() {
    SERVER_COMMAND=("${DIE_WITH_SCRIPT[@]}" redis-server --bind 127.0.0.1 --port "$2" --unixsocket "$1/socket" --dir "$1"
        --save '' --appendonly no --databases 4096)
}

# shellcheck disable=SC2329 # called by start_server
redis_ready() { [[ $(redis-cli -s "$1/socket" ping) == PONG ]]; }

start_redis() {
    new_service_dir "$1" redis || return
    start_server redis "$NEW_DIR" || return
    export REDIS_TEST_URL="redis://127.0.0.1:$SERVER_PORT"
}

# A node without neighbours does not know its own address; clients are told where to go by it, hence announce-ip.
# shellcheck disable=SC2329 # called by start_server
redis_cluster_command() {
    SERVER_COMMAND=("${DIE_WITH_SCRIPT[@]}" redis-server --bind 127.0.0.1 --port "$2" --unixsocket "$1/socket" --dir "$1"
        --save '' --appendonly no --cluster-enabled yes --cluster-config-file nodes.conf
        --cluster-announce-ip 127.0.0.1)
}

# shellcheck disable=SC2329 # called by start_server
redis_cluster_ready() { redis_ready "$@"; }

redis_cluster_serves() { [[ $(redis-cli -s "$1/socket" cluster info) == *cluster_state:ok* ]]; }

# One node that owns all slots: enough for what differs in a cluster (key slots, one database, other commands).
start_redis_cluster() {
    local dir
    new_service_dir "$1" cluster || return
    dir=$NEW_DIR
    start_server redis_cluster "$dir" || return
    if ! redis-cli -e -s "$dir/socket" cluster addslotsrange 0 16383 >/dev/null ||
        ! await "$LAUNCHED_PID" redis_cluster_serves "$dir"; then
        complain "the Redis cluster node does not reach the state ok; the end of its log:"
        tail -n 20 "$dir/log" >&2
        return 1
    fi
    export REDIS_CLUSTER_TEST_URL="redis://127.0.0.1:$SERVER_PORT/?cluster=true"
}
