#!/bin/sh
# Dead letters as a workplace: find one, read it, mend it, send it in again. Start `make run` first,
# then: sh examples/dead-letters.sh [broker]
# PROXY: the command, where it is not on the PATH (.venv/bin/kafka-delay-proxy).
set -eu
proxy=${PROXY:-kafka-delay-proxy}
bootstrap="${1:-localhost:9092}"

# A header that does not exist: the record is not delivered by guesswork, it becomes a dead letter.
"$proxy" send --bootstrap "$bootstrap" --topic orders --key k1 --value mended --header timer-dealy=2s
sleep 3

newest=$("$proxy" dead-letters list --bootstrap "$bootstrap" --reason header-unknown --limit 1 --json)
place=$(printf '%s' "$newest" | sed 's|.*"partition": \([0-9]*\), "offset": \([0-9]*\).*|\1/\2|')
"$proxy" dead-letters show --bootstrap "$bootstrap" "$place"

set -- "$place" --bootstrap "$bootstrap" --unset timer-dealy --set timer-delay=2s
"$proxy" dead-letters replay "$@" --dry-run
"$proxy" dead-letters replay "$@" --yes

# It keeps the origin it had, and is not replayed a second time unless you say --again.
"$proxy" dead-letters list --bootstrap "$bootstrap" --reason header-unknown --limit 1
