# shellcheck shell=bash
#
# What the kernel knows of processes and of the machine. Linux only. To be sourced:
#
#   memory_of PID VmRSS|VmHWM   megabytes
#   highest_memory_from_now PID forgets the highest so far (VmHWM)
#   cpu_of PID                  seconds, of the process and its children
#   look_for_other_work         warns when the machine is busy; sets OTHER_WORK, in percent

# A line of /proc/PID/status in megabytes.
memory_of() { awk -v name="$2:" '$1 == name { printf "%.1f", $2 / 1024 }' "/proc/$1/status"; }

highest_memory_from_now() { echo 5 >"/proc/$1/clear_refs"; }

# CPU seconds of a process and its children, also those that have ended.
cpu_of() {
    # A process may end between the listing and the look.
    { cat /proc/[0-9]*/stat 2>/dev/null || true; } | awk -v pid="$1" -v hertz="$(getconf CLK_TCK)" '
        { self = $1; sub(/^.*\) /, "") }
        self == pid { ticks += $12 + $13 + $14 + $15 }
        $2 == pid { ticks += $12 + $13 }
        END { printf "%.2f", ticks / hertz }'
}

busy_ticks() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 + $9, $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9; exit }' /proc/stat; }

# Other work favours whoever has more processes to run, which is pgbench: the ratios come out too low.
look_for_other_work() {
    local before after
    read -ra before < <(busy_ticks)
    sleep 2
    read -ra after < <(busy_ticks)
    OTHER_WORK=$(((after[0] - before[0]) * 100 / (after[1] - before[1])))
    ((OTHER_WORK <= 10)) || complain "other work takes $OTHER_WORK % of this machine: the ratios will mislead"
}
