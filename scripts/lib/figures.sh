# shellcheck shell=bash
#
# Figures of scripts/bench: noted one by one under a name, shown as median, lowest and highest, held against goals.
# And checks: something that is right or wrong, not fast or slow. To be sourced.
#
#   note NAME FIGURE            one more figure of that name
#   figures NAME...             a table
#   ratio_goal WORDS A B GOAL   A / B, round by round: GOAL is ">= N", "<= N", or empty where it is only told
#   limit_goal WORDS A GOAL     the same of A itself
#   check WORDS A LOW [HIGH]    A is from LOW to HIGH, or is LOW
#   finish_checks               fails when a check did

declare -A FIGURES=()
CHECKS_FAILED=0

# --- arithmetic that bash lacks ---

# quotient A B FACTOR
quotient() { awk -v a="$1" -v b="$2" -v f="$3" 'BEGIN { printf "%.6g", b ? a / b * f : 0 }'; }
difference() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.6g", a - b }'; }

# spread FIGURE...  the median, the lowest and the highest.
spread() {
    printf '%s\n' "$@" | sort -g | awk '{ v[NR] = $1 }
        END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2, v[1], v[NR] }'
}

# --- figures ---

note() {
    FIGURES[$1]+=" $2"
    printf '  %-46s %12.3f\n' "$1" "$2"
}

figures_heading() { printf '\n%-48s %12s %12s %12s\n' "$1" median lowest highest; }

figures() {
    local name spread
    for name in "$@"; do
        # shellcheck disable=SC2086 # a list of figures
        read -ra spread < <(spread ${FIGURES[$name]})
        # Digits to tell the spread by: a whole number of orders, thousandths of a flush.
        awk -v name="$name" -v a="${spread[0]}" -v b="${spread[1]}" -v c="${spread[2]}" 'BEGIN {
            f = a >= 1000 ? "%12.0f" : "%12.3f"
            printf "  %-46s " f " " f " " f "\n", name, a, b, c
        }'
    done
}

goals_heading() { printf '\n%-52s %8s %16s %8s  %s\n' "$1" median lowest-highest goal verdict; }

# goal_line WORDS MEDIAN LOWEST HIGHEST GOAL
goal_line() {
    awk -v words="$1" -v a="$2" -v b="$3" -v c="$4" -v goal="$5" 'BEGIN {
        split(goal, g, " ")
        verdict = goal == "" ? "" : (g[1] == ">=" ? a >= g[2] : a <= g[2]) ? "reached" : "MISSED"
        printf "%-52s %8.2f %16s %8s  %s\n", words, a, sprintf("%.2f-%.2f", b, c), goal, verdict
    }'
}

# Round by round, because what slows the machine down slows both down.
ratio_goal() {
    local i over under ratios=() spread
    read -ra over <<<"${FIGURES[$2]}"
    read -ra under <<<"${FIGURES[$3]}"
    for i in "${!over[@]}"; do ratios+=("$(quotient "${over[i]}" "${under[i]}" 1)"); done
    read -ra spread < <(spread "${ratios[@]}")
    goal_line "$1" "${spread[@]}" "${4-}"
}

limit_goal() {
    local spread
    # shellcheck disable=SC2086 # a list of figures
    read -ra spread < <(spread ${FIGURES[$2]})
    goal_line "$1" "${spread[@]}" "${3-}"
}

# --- checks ---

check_failed() {
    CHECKS_FAILED=$((CHECKS_FAILED + 1))
    printf '  WRONG  %s\n' "$1"
}

check() {
    local words=$1 figure=$2 low=$3 high=${4:-$3}
    if ((figure >= low && figure <= high)); then
        printf '  ok     %s: %s\n' "$words" "$figure"
    else
        check_failed "$words: $figure, not $low..$high"
    fi
}

finish_checks() {
    if ((CHECKS_FAILED == 0)); then
        printf '\nevery answer and every invariant was right\n'
        return 0
    fi
    printf '\n%d checks FAILED: the figures above mean nothing\n' "$CHECKS_FAILED"
    return 1
}
